"""Records of a training: reports of workers, the use of the machine, and findings.

    WorkerReport ── book ──► Tally, Sink (games)
                           │
    Hardware, values ── write ──► Record ──► Sink, Diagnosis, Status

Belongs to the trainer's main thread.
"""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ritornello.agent.assembly import replay_configs
from ritornello.agent.pools.worker_pool import HasProcesses, ProcessRow
from ritornello.agent.run.experience import WorkerReport
from ritornello.agent.run.memory import CapacityWatch, unrolls_when_full
from ritornello.agent.run.run import Run
from ritornello.metrics.energy import EnergyBook
from ritornello.metrics.hardware import Hardware
from ritornello.metrics.health import Diagnosis, Finding
from ritornello.metrics.meters import Speed
from ritornello.metrics.record import Record
from ritornello.metrics.run_files import each_record
from ritornello.metrics.sinks import Sink
from ritornello.replay.parameters import renewal_updates

if TYPE_CHECKING:
    from ritornello.agent.run.evaluating import Evaluating

log = logging.getLogger(__name__)


class Recorder:
    """Books reports of workers, and writes a record of them when the trainer asks for one."""

    def __init__(self, run: Run, sink: Sink, evaluating: Evaluating | None) -> None:
        """Read the findings of earlier sessions, which are not reported again.

        Records and games go to `sink`; `evaluating` is None if nothing evaluates the run.
        """
        self._run = run
        self._sink = sink
        self._evaluating = evaluating
        configs = replay_configs(run.flags)
        self._diagnosis = Diagnosis(renewal_updates(configs, run.flags.batch_size))
        self.findings: list[Finding] = []
        self._hardware = Hardware(self._earlier())
        self._capacity = CapacityWatch(unrolls_when_full(run.blueprint), run.flags)
        self._speed = Speed(run.flags.environment_max_steps, run.flags.training_seconds)
        self._shown_s = -math.inf

    def _earlier(self) -> Iterator[Record]:
        """Yield the records of earlier sessions, whose findings are noted on the way."""
        for record in each_record(self._run.folder.path):
            self.findings += self._diagnosis.add(record)
            yield record

    @property
    def energy(self) -> EnergyBook:
        """Energy that the run has used so far, over the time in which it was measured."""
        return self._hardware.energy

    def book(self, reports: Sequence[WorkerReport]) -> None:
        """Book the reports of all workers since the last call."""
        for report in reports:
            self._run.tally.book_block(report.stats)
            for episode in report.episodes:
                self._sink.episode(episode, self._run.tally.book_game(episode))

    def write(self) -> None:
        """Write a record of the time since the last one.

        Raises:
          ConfigError: if replay will not fit into memory when it is full.
        """
        run = self._run
        more = run.experience.stats()
        self._capacity.look(more)
        rows = self._processes()
        parts = {row.pid: row.part for row in rows if row.pid is not None}
        more |= self._hardware.read(run.tally.agent_steps, {os.getpid(): "learner"} | parts)
        if run.status.disk_free_mb is not None:
            more["system/disk_free_mb"] = run.status.disk_free_mb
        if self._evaluating is not None:
            more |= self._evaluating.values()
        for note in self._hardware.new_notes():
            log.info("%s", note)
        more["learner/bad_updates"] = float(run.bad_updates.count)
        record = run.tally.record(more)
        run.experience.adapt(record.values)
        self._sink.write(record)
        for finding in self._diagnosis.add(record):
            log.warning("health: %s", finding)
            self.findings.append(finding)
            run.status.finding(finding, record)
        self._show(record, rows)

    def _processes(self) -> list[ProcessRow]:
        """Return a row for each process besides this one, as far as its owner says something."""
        pool = self._run.experience.pool
        rows = pool.processes() if isinstance(pool, HasProcesses) else []
        return rows if self._evaluating is None else [*rows, *self._evaluating.rows()]

    # --- status.json -----------------------------------------------------------------------------

    def _show(self, record: Record, rows: list[ProcessRow]) -> None:
        """Update status.json, if that is due: a reproducible run has a record for each update."""
        run, status, now_s = self._run, self._run.status, time.monotonic()
        begins = status.state == "filling" and "loss/total" in record.values
        pause_s = run.flags.log_interval_s if run.flags.reproducible else 0.0
        if now_s - self._shown_s < pause_s and not begins:
            return
        self._shown_s = now_s
        self._speed.add(record)
        if begins:
            status.state = "training"
        machine = {n: value for n, value in record.values.items() if n.startswith("system/")}
        status.show(
            {
                "agent_steps": record.agent_steps,
                "target_steps": run.flags.environment_max_steps,
                "updates": record.updates,
                "wall_s": round(record.wall_s, 1),
                "steps_per_second": _rounded(self._speed.steps_per_s),
                "seconds_left": _rounded(self._speed.seconds_left()),
                "games": record.episodes,
                **_shown(rows),
                "buffers": [
                    {"name": buffer.name, "items": len(buffer), "capacity": buffer.capacity}
                    for buffer in run.experience.replay.buffers
                ],
                "hardware": machine,
                "findings": len(self.findings),
            }
        )


def _shown(rows: Sequence[ProcessRow]) -> dict[str, Any]:
    """Return the parts "workers", "server" and "evaluation" of status.json."""
    shown: dict[str, Any] = {"workers": [], "server": None, "evaluation": None}
    for row in rows:
        facts = asdict(row) | {"silent_s": round(row.silent_s, 1)}
        if row.part == "workers":
            shown["workers"].append(facts)
        else:
            shown[row.part] = facts
    return shown


def _rounded(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else round(value, 1)
