"""`python -m ritornello.metrics` prints docs/metrics.md."""

from __future__ import annotations

import sys
from itertools import groupby

from ritornello.core.markdown import table
from ritornello.metrics.health import healthy_text
from ritornello.metrics.record import METRICS

INTRODUCTION = """# Metrics

Generated from `metrics/metrics.csv` and `metrics/health.csv` by `make docs`; do not edit.

Every line of `metrics.jsonl` in a run's folder holds the counters `agent_steps`, `frames`,
`updates`, `episodes`, `wall_s` and the `values` below, measured since the line before. A value that
does not exist (no game ended, no such buffer) is absent. `*` stands for the name of a replay buffer
(`queue`, `standard`, `standard_2`, ...) or the number of a game.
"""


def markdown() -> str:
    """Return the page: one table per group."""
    lines = [INTRODUCTION]
    for group, names in groupby(METRICS, key=lambda name: name.split("/")[0]):
        rows = []
        for name in names:
            info = METRICS[name]
            healthy = "; ".join(filter(None, (healthy_text(name), info.healthy)))
            rows.append((f"`{name}`", info.unit, info.doc, healthy))
        lines += [f"## {group}", "", *table(("metric", "unit", "meaning", "healthy"), rows), ""]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.stdout.write(markdown())
