"""Records of a training: what workers told, what the machine did, and what is wrong with it.

    News ── book ──► Tally, WorkerTable, Sink (games)
                           │
    Hardware, values ── write ──► Record ──► Sink, Diagnosis, RunStatus

Belongs to the trainer's main thread.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from ritornello.agent.run.evaluating import NoEvaluating
from ritornello.agent.run.experience import Experience, News
from ritornello.agent.run.status import RunStatus
from ritornello.agent.run.tally import Tally
from ritornello.agent.run.worker_table import WorkerTable, processes_of
from ritornello.metrics.energy import EnergyBook
from ritornello.metrics.hardware import Hardware
from ritornello.metrics.health import Diagnosis, Finding
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

    def book(self, reports: Sequence[News]) -> None:
        """Book what all workers have told since the last call."""
        for news in reports:
            self._tally.book_block(news.stats)
            self._workers.book(news)
            for episode in news.episodes:
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
