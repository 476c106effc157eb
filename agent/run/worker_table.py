"""The processes of a run side by side: what each does, and what has come from it.

The trainer's main thread owns the table. It books what comes with each block of unrolls, and asks
the pool how its processes are.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ritornello.agent.pools.worker_pool import HasProcesses, ProcessRow
from ritornello.agent.run.experience import Experience, News
from ritornello.metrics.machine_share import ProcessUse


@dataclass
class _Book:
    """What has come from one worker in this session."""

    agent_steps: int = 0
    unrolls: int = 0
    version: int = 0  # of the newest weights that it has acted with


class WorkerTable:
    """What is known of each process. Belongs to the main thread."""

    def __init__(self) -> None:
        """Know of no process yet."""
        self._books: dict[int, _Book] = {}

    def book(self, news: News) -> None:
        """Book what came with one block of unrolls."""
        if news.worker_id is None:
            return
        book = self._books.setdefault(news.worker_id, _Book())
        book.agent_steps += news.stats.steps
        book.unrolls += news.unrolls
        book.version = max(book.version, news.version)

    def parts(self, rows: list[ProcessRow]) -> dict[int, str]:
        """Return process id -> part of the run ("learner", "workers", "server")."""
        return {os.getpid(): "learner"} | {row.pid: row.part for row in rows if row.pid is not None}

    def show(
        self, rows: list[ProcessRow], version: int, uses: Mapping[int, ProcessUse]
    ) -> dict[str, Any]:
        """Return the parts "workers", "server" and "evaluation" of status.json.

        Args:
          rows: the processes as the pool sees them; without any, workers take turns in this one.
          version: number of updates of the newest weights.
          uses: what each process takes, by process id.
        """
        here = [
            ProcessRow("workers", number, 0, os.getpid(), "taking turns with the learner", 0.0, 0)
            for number in sorted(self._books)
        ]
        workers: list[dict[str, Any]] = []
        others: dict[str, dict[str, Any] | None] = {"server": None, "evaluation": None}
        is_serial = not any(row.part == "workers" for row in rows)
        for row in [*rows, *(here if is_serial else [])]:
            shown = _shown(row, {} if row in here else uses)
            if row.part in others:
                others[row.part] = shown
                continue
            book = self._books.get(row.number, _Book())
            shown |= {"agent_steps": book.agent_steps, "unrolls": book.unrolls}
            workers.append({**shown, "lag": version - book.version if book.unrolls else None})
        return {"workers": workers, **others}


def processes_of(experience: Experience) -> list[ProcessRow]:
    """Return the processes of the pool that experience comes from, none if it does not say."""
    pool = experience.pool
    return pool.processes() if isinstance(pool, HasProcesses) else []


def _shown(row: ProcessRow, uses: Mapping[int, ProcessUse]) -> dict[str, Any]:
    use = None if row.pid is None else uses.get(row.pid)
    return {
        "number": row.number,
        "life": row.life,
        "pid": row.pid,
        "doing": row.doing,
        "silent_s": round(row.silent_s, 1),
        "cores": None if use is None else round(use.cores, 3),
        "memory_mb": None if use is None else round(use.memory_mb, 1),
    }
