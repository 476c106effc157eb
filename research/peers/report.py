"""The comparison as a table for people and as one line of JSON for machines."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from research.peers.catalogue import OURS, System
from research.peers.measurement import Run


@dataclass
class Result:
    """All runs of one system; `failure` is why there are no more, one line, or empty."""

    system: System
    runs: list[Run] = field(default_factory=list)
    failure: str = ""

    @property
    def steps_per_s(self) -> float | None:
        """Median over the runs, or None without a run."""
        return statistics.median(run.steps_per_s for run in self.runs) if self.runs else None

    def to_json(self, ratios: Mapping[str, float]) -> dict[str, Any]:
        """Return everything as plain types; `ratios` are those of `ours_over`."""
        speed = self.steps_per_s
        return {
            "version": self.system.version,
            "network": self.system.network,
            "remark": self.system.remark,
            "steps_per_s": None if speed is None else round(speed, 1),
            "steps_per_s_runs": [round(run.steps_per_s, 1) for run in self.runs],
            "ours_over_this": {name: round(ratio, 3) for name, ratio in ratios.items()},
            "busy_cpus_runs": [round(run.busy_cpus, 2) for run in self.runs],
            "peak_memory_mb": round(max((r.peak_memory_mb for r in self.runs), default=0)) or None,
            "flags": self.runs[0].flags if self.runs else "",
            "failure": self.failure,
        }


def ours_over(results: Mapping[str, Result], name: str) -> dict[str, float]:
    """Return how many times as fast each of our configurations is as the system `name`.

    Args:
      results: by name of the system.
      name: the system that is divided by; {} if it has no run.
    """
    theirs = results[name].steps_per_s
    ours = {key: results[key].steps_per_s for key in OURS if key in results}
    if not theirs:
        return {}
    return {key: speed / theirs for key, speed in ours.items() if speed is not None}


def table(results: Mapping[str, Result]) -> str:
    """Return the table, and below it the exact flags of each system.

    Args:
      results: by name of the system, in the order of the rows.
    """
    ours = [name for name in OURS if name in results]
    head = ["system", "version", "steps/s", "runs", *[f"{name}/this" for name in ours],
            "busy CPUs", "peak PSS MB", "network"]  # fmt: skip
    rows, failures = [head], {}
    for name, result in results.items():
        speed = result.steps_per_s
        if result.failure:
            failures[name] = f"{name:<16}failed: {result.failure}"
        if speed is None:
            continue
        ratios = ours_over(results, name)
        busy = statistics.median(run.busy_cpus for run in result.runs)
        rows.append([
            result.system.title, result.system.version, f"{speed:.0f}",
            " ".join(f"{run.steps_per_s:.0f}" for run in result.runs),
            *[f"{ratios[key]:.2f}" if key in ratios else "-" for key in ours],
            f"{busy:.2f}", f"{max(run.peak_memory_mb for run in result.runs):.0f}",
            result.system.network,
        ])  # fmt: skip
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    lines = [
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    lines += failures.values()
    lines.append("")
    for name, result in results.items():
        if result.runs:
            lines += [f"{name}: {result.system.remark}", f"    {result.runs[0].flags}"]
    return "\n".join(lines)
