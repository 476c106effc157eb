"""One line about each run, from the edges of its files: 300 runs are looked at within a second.

Of metrics.jsonl the last records are read, and a record here and there for a small curve. What was
found is kept until one of the files changes.
"""

from __future__ import annotations

import math
import os
import socket
import threading
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

from ritornello.analysis.places import NotThereError, ResultsFolder
from ritornello.core.errors import ConfigError
from ritornello.core.file_lock import try_lock
from ritornello.core.run_layout import FLAGS, LOCK, RECORDS, STATUS, SUMMARY
from ritornello.core.spec import game_name
from ritornello.metrics.curve import RETURN, SCORE
from ritornello.metrics.record import Record
from ritornello.metrics.run_files import TAIL_BYTES, record_in, tail

SPARK_POINTS = 32
SILENT_S = 60.0  # a run that gave no sign for so long is shown as silent, by the page itself
# What status.json may say, and what it means that the process is gone without having said the last.
RUNNING = ("starting", "filling", "training", "paused", "saving")
ENDED = ("ended", "failed")
SAMPLE_BYTES = 16_384  # around a record that is looked for: several records, or of many games one
_SHOWN_FLAGS = ("env", "seed", "algorithm", "model", "preset", "lr", "worker_count", "op_mode")


class Overview:
    """Facts about all runs. Thread-safe."""

    def __init__(self, results: ResultsFolder) -> None:
        """Look at nothing yet."""
        self._results = results
        self._lock = threading.Lock()
        self._kept: dict[str, tuple[Any, dict[str, Any]]] = {}

    def runs(self) -> list[dict[str, Any]]:
        """Return the facts about every run, the latest changed first."""
        names = self._results.runs()
        found = [self.of(name) for name in names]
        with self._lock:
            for gone in self._kept.keys() - set(names):
                del self._kept[gone]
        return sorted(found, key=lambda each: -each["changed"])

    def of(self, run: str) -> dict[str, Any]:
        """Return the facts about one run; the state is as of now."""
        files = (RECORDS, FLAGS, STATUS, SUMMARY, LOCK)
        signature = tuple(self._results.facts(run, name) for name in files)
        with self._lock:
            kept = self._kept.get(run)
        if kept is None or kept[0] != signature:
            kept = (signature, self._look(run, signature))
            with self._lock:
                self._kept[run] = kept
        about = dict(kept[1])
        holder, status = (about.pop(name) for name in ("holder", "status"))
        is_asked = bool(holder) and status.get("state") not in ENDED
        is_alive = is_asked and self._is_held(run, holder)
        return {**about, "state": state_of(status, is_alive, has_summary=bool(signature[3][2]))}

    def _look(self, run: str, signature: tuple[tuple[int, int, int], ...]) -> dict[str, Any]:
        flags = self._results.json(run, FLAGS)
        status = self._results.json(run, STATUS)
        curve, newest = self._curve(run)
        values = {} if newest is None else newest.values
        env = str(flags.get("env", ""))
        seen_s = number(status.get("time"))
        changed_s = max(signature[0][0], signature[1][0], signature[3][0]) / 1e9
        return {
            "run": run,
            "name": run.rpartition("/")[2],
            "group": run.rpartition("/")[0],
            "games": ", ".join(game_name(each) for each in env.split(",")) if env else "",
            "flags": {name: flags[name] for name in _SHOWN_FLAGS if name in flags},
            "agent_steps": _count(status, newest, "agent_steps"),
            "target_steps": number(status.get("target_steps", flags.get("environment_max_steps"))),
            "updates": _count(status, newest, "updates"),
            "episodes": newest and newest.episodes,
            "minutes": newest and newest.wall_s / 60,
            "score": newest and score_of(newest),
            "best": values.get("episode/return_best"),
            "steps_per_second": number(
                status.get("steps_per_second", values.get("throughput/agent_steps_per_s"))
            ),
            "seconds_left": number(status.get("seconds_left")),
            "findings": number(status.get("findings")),
            "reason": str(status.get("reason") or "")[:40],
            "changed": max(seen_s or 0.0, changed_s),
            "curve": curve,
            "status": status,
            "holder": self._results.json(run, LOCK, 1000),
        }

    def _is_held(self, run: str, holder: dict[str, Any]) -> bool:
        """Whether a process has the run's lock; one on another machine is believed."""
        if holder.get("host", socket.gethostname()) != socket.gethostname():
            return True  # nothing more is known here; the page shows how long it has been silent
        with suppress(NotThereError, OSError, ConfigError), self._results.open(run, LOCK) as file:
            return not try_lock(file.fileno(), Path(run) / LOCK, together=True)
        return False

    def _curve(self, run: str) -> tuple[list[list[float]], Record | None]:
        """Return [agent steps, score] at some records, and the newest record; None without."""
        found: list[Record] = []
        with suppress(NotThereError, OSError), self._results.open(run, RECORDS) as file:
            found = sampled(file, SPARK_POINTS)
        scores = [(record.agent_steps, score_of(record)) for record in found]
        points = [[steps, score] for steps, score in scores if score is not None]
        return points, found[-1] if found else None


def score_of(record: Record) -> float | None:
    """Return the mean return in a record, or the score of a run of several games."""
    return record.values.get(SCORE, record.values.get(RETURN))


def state_of(status: dict[str, Any], is_alive: bool, *, has_summary: bool) -> str:
    """Return the state of a run in status.json (RUNNING, ENDED), as long as that can be true.

    Otherwise it is "ended" with a summary, "stopped" if the process is gone without one.
    """
    said = status.get("state")
    if said in ENDED:
        return str(said)
    if said in RUNNING and is_alive:
        return str(said)
    if has_summary:
        return "ended"
    return "training" if is_alive and not said else "stopped"


def _count(status: dict[str, Any], newest: Record | None, name: str) -> float | None:
    """Return a counter of status.json, else of the newest record."""
    known = number(status.get(name))
    return getattr(newest, name, None) if known is None else known


def number(value: Any) -> float | None:
    """Return a finite number that a file holds; None for anything else."""
    return float(value) if type(value) in (int, float) and math.isfinite(value) else None


def sampled(file: BinaryIO, points: int) -> list[Record]:
    """Return at most `points` records at even distances in the file, and its newest one."""
    size = file.seek(0, os.SEEK_END)
    found: list[Record] = []
    if size <= 2 * SAMPLE_BYTES:
        found = [*filter(None, map(record_in, tail(file, size)))]
        stride = -(-len(found) // points) or 1
        return found[:-1][::stride] + found[-1:]
    ends = tail(file, TAIL_BYTES)
    nbytes = max(SAMPLE_BYTES, 2 * (1 + max(map(len, ends), default=0)))
    for place in range(points):
        begin = place * max(0, size - nbytes) // points
        around = os.pread(file.fileno(), nbytes, begin).split(b"\n")
        found += islice(filter(None, map(record_in, around[1 if begin else 0 : -1])), 1)
    return [*found, *islice(filter(None, map(record_in, reversed(ends))), 1)]
