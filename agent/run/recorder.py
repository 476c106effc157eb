"""Records of a training: what workers told, what the machine did, and what is wrong with it.

    WorkerReport ── book ──► Tally, WorkerTable, Sink (games)
                           │
    Hardware, values ── write ──► Record ──► Sink, Diagnosis, RunStatus

Belongs to the trainer's main thread.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ritornello.agent.pools.worker_pool import HasProcesses, ProcessRow
from ritornello.agent.run.experience import Experience, WorkerReport
from ritornello.agent.run.no_evaluation import NoEvaluating
from ritornello.agent.run.status import RunStatus
from ritornello.agent.run.tally import Tally
from ritornello.metrics.energy import EnergyBook
from ritornello.metrics.hardware import Hardware
from ritornello.metrics.health import Diagnosis, Finding
from ritornello.metrics.machine_share import ProcessUse
from ritornello.metrics.record import Record
from ritornello.metrics.sinks import Sink

log = logging.getLogger(__name__)


class Recorder:
    """Books what has been heard, and writes a record of it when the trainer asks for one."""

    def __init__(
        self,
        sink: Sink,
        tally: Tally,
        status: RunStatus,
        experience: Experience,
        evaluating: NoEvaluating,
        earlier: Sequence[Record],
    ) -> None:
        """Read what the run was told before: that is known, and not said again.

        Args:
          sink: where records and games are reported.
          tally: counters of the run.
          status: what is shown to those who look from outside.
          experience: what gives batches; asked for its values and its processes.
          evaluating: the evaluation worker, or what stands for none.
          earlier: records of the run's earlier sessions, oldest first.
        """
        self._sink = sink
        self._tally = tally
        self._status = status
        self._experience = experience
        self._evaluating = evaluating
        self._diagnosis = Diagnosis()
        self.findings: list[Finding] = [f for r in earlier for f in self._diagnosis.add(r)]
        self._hardware = Hardware(earlier)
        self._workers = WorkerTable()

    @property
    def energy(self) -> EnergyBook:
        """What the run has used so far, over the time in which it was measured."""
        return self._hardware.energy

    def book(self, reports: Sequence[WorkerReport]) -> None:
        """Book what all workers have told since the last call."""
        for report in reports:
            self._tally.book_block(report.stats)
            self._workers.book(report)
            for episode in report.episodes:
                self._sink.episode(episode, self._tally.book_game(episode))

    def write(self, version: int, bad_updates: int) -> None:
        """Write a record of the time since the last one.

        Args:
          version: number of updates of the newest weights.
          bad_updates: of the run so far.
        """
        more = self._experience.stats()
        rows = [*processes_of(self._experience), *self._evaluating.rows()]
        more.update(self._hardware.read(self._tally.agent_steps, self._workers.parts(rows)))
        more.update(self._status.disk_free_mb)
        more.update(self._evaluating.values())
        for note in self._hardware.new_notes():
            log.info("%s", note)
        more["learner/bad_updates"] = float(bad_updates)
        record = self._tally.record(more)
        self._experience.adapt(record.values)
        self._sink.write(record)
        for finding in self._diagnosis.add(record):
            log.warning("health: %s", finding)
            self.findings.append(finding)
            self._status.finding(finding, record)
        processes = self._workers.show(rows, version, self._hardware.processes)
        self._status.record(record, len(self.findings), processes, self._experience)


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

    def book(self, report: WorkerReport) -> None:
        """Book what came with one block of unrolls."""
        if report.worker_id is None:
            return
        book = self._books.setdefault(report.worker_id, _Book())
        book.agent_steps += report.stats.steps
        book.unrolls += report.unrolls
        book.version = max(book.version, report.version)

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
