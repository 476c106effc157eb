"""What status.json says of a run at each record: state, speed, workers, buffers, hardware.

The trainer's main thread puts it together; agent/run/status_files.py writes it on another thread.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ritornello.agent.assembly import Blueprint, buffer_configs
from ritornello.agent.run.experience import Experience
from ritornello.agent.run.status_files import StatusFiles
from ritornello.metrics.health import Finding
from ritornello.metrics.meters import Speed
from ritornello.metrics.record import Record
from ritornello.replay.buffer import Buffer

AGE_BINS = 20


class RunStatus:
    """Says how the run is. Belongs to the main thread; without files it says nothing."""

    def __init__(self, files: StatusFiles | None, blueprint: Blueprint, began: Record) -> None:
        """Say nothing yet.

        Args:
          files: what writes it; None: nobody looks.
          blueprint: flags and shapes of the run.
          began: counters of the run when the session begins.
        """
        # What the owner of a control folder wants to be shown under "control", if there is one.
        self.control: Callable[[], Mapping[str, Any]] | None = None
        self._files = files
        self._flags = blueprint.flags
        self._games = blueprint.env_spec.tasks
        self._kinds = [
            str(config.type) for config in buffer_configs(blueprint.flags, blueprint.env_spec)
        ]
        self._state = "starting"
        self._shown_s = -math.inf
        self._began = began
        self._speed = Speed(began)

    @property
    def disk_free_mb(self) -> dict[str, float]:
        """The room on the run's disk as a value for a Record, if somebody has looked."""
        free_mb = None if self._files is None else self._files.disk_free_mb
        return {} if free_mb is None else {"system/disk_free_mb": free_mb}

    def enter(self, state: str) -> None:
        """Say at once that something else is done from now on."""
        if self._files is not None and state != self._state:
            self._files.show({"state": state})
        self._state = state

    def finding(self, finding: Finding, at: Record) -> None:
        """Write a finding down, with the counters of its moment."""
        if self._files is not None:
            self._files.finding(finding, at)

    def record(
        self,
        record: Record,
        findings: int,
        processes: Mapping[str, Any],
        experience: Experience,
    ) -> None:
        """Say how the run is, if that is due: a reproducible run has a record for each update.

        Args:
          record: the newest record.
          findings: number of findings of the run.
          processes: the parts "workers" and "server" (agent/run/recorder.py).
          experience: where batches come from.
        """
        now_s = time.monotonic()
        is_new = self._state == "filling" and "loss/total" in record.values
        if is_new:
            self._state = "training"
        pause_s = self._flags.log_interval_s if self._flags.reproducible else 0.0
        if self._files is None or (now_s - self._shown_s < pause_s and not is_new):
            return
        self._shown_s = now_s
        self._speed.add(record)
        self._files.show(
            {
                "state": self._state,
                "agent_steps": record.agent_steps,
                "target_steps": self._flags.environment_max_steps,
                "updates": record.updates,
                "wall_s": round(record.wall_s, 1),
                "steps_per_second": _rounded(self._speed.steps_per_s),
                "seconds_left": _rounded(self._seconds_left(record)),
                "games": record.episodes,
                "mean_return": self._mean_returns(record),
                **processes,
                "buffers": self._buffers(experience, record.updates),
                "hardware": {
                    name: value
                    for name, value in record.values.items()
                    if name.startswith("system/")
                },
                "findings": findings,
                "control": {} if self.control is None else dict(self.control()),
            }
        )

    def _seconds_left(self, record: Record) -> float | None:
        limits = [self._speed.seconds_until(self._flags.environment_max_steps)]
        if self._flags.training_seconds:
            ran_s = record.wall_s - self._began.wall_s  # of this session, without its pauses
            limits.append(max(0.0, self._flags.training_seconds - ran_s))
        return min((limit for limit in limits if limit is not None), default=None)

    def _mean_returns(self, record: Record) -> dict[str, float]:
        """Return the mean return of the last games, by the id of the game."""
        names = ["episode/return_mean"]
        if len(self._games) > 1:
            names = [f"episode/return_mean_{task}" for task in range(len(self._games))]
        return {
            game: record.values[name]
            for game, name in zip(self._games, names, strict=True)
            if name in record.values
        }

    def _buffers(self, experience: Experience, updates: int) -> list[dict[str, Any]]:
        replay = experience.replay
        return [
            buffer_row(buffer, kind, inserted, updates, self._games)
            for buffer, kind, inserted in zip(
                replay.buffers, self._kinds, replay.insertions(), strict=True
            )
        ]


def buffer_row(
    buffer: Buffer, kind: str, inserted_at: Sequence[int], updates: int, games: Sequence[str]
) -> dict[str, Any]:
    """Return what status.json says of one buffer.

    Args:
      buffer: the buffer.
      kind: its kind, as --replay_parameters names it.
      inserted_at: the update at which each of its items came in.
      updates: number of updates so far.
      games: ids of the games, in task order.
    """
    ages = updates - np.array(inserted_at, np.int64)
    width = int(ages.max(initial=0)) // AGE_BINS + 1
    edges = width * np.arange(AGE_BINS + 1)
    return {
        "name": buffer.name,
        "kind": kind,
        "task": None if buffer.task is None else games[buffer.task],
        "items": len(inserted_at),
        "capacity": buffer.capacity,
        "ages": {"edges": edges.tolist(), "counts": np.histogram(ages, edges)[0].tolist()},
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else round(value, 1)
