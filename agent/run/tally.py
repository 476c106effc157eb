"""The books of a run: how much was done, how the games went, where the time goes.

The trainer's main thread books blocks of experience, games and updates, and turns them into a
`Record` every few seconds. What must survive a resume is in `state_dict`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

import torch

from ritornello.agent.assembly import Blueprint
from ritornello.agent.learning.learner import UpdateMetrics
from ritornello.core.episode import EpisodeEnd
from ritornello.core.saved_state import expect, item, items, number, whole, within
from ritornello.metrics.meters import EpisodeMeter, Rate
from ritornello.metrics.record import Record, check_declared
from ritornello.transport.channel import WorkerStats

if TYPE_CHECKING:
    from ritornello.agent.run.task_meter import TaskMeter


class Tally:
    """Counters, recent games, and the averages since the last record."""

    def __init__(
        self,
        action_repeat: int,
        window: int,
        tasks: Sequence[str] = ("",),
        environments: Sequence[int] | None = None,
    ) -> None:
        """Start at zero.

        Args:
          action_repeat: simulator frames per agent step.
          window: number of games in the moving average of the return.
          tasks: ids of the games, in task order; the id of a single game does not matter.
          environments: how many of a learner's environments play each game, 0 for a game that is
            not played now; by default an equal number.
        """
        self.agent_steps = 0
        self._frames = 0
        self.updates = 0
        self._environments = [1] * len(tasks) if environments is None else list(environments)
        self._steps_of_games = [0.0] * len(tasks)
        played = [game for game, count in enumerate(self._environments) if count]
        self.games: EpisodeMeter | TaskMeter = EpisodeMeter(window)
        if len(tasks) > 1:
            from ritornello.agent.run.task_meter import TaskMeter

            self.games = TaskMeter(tasks, window, played)
        self._action_repeat = action_repeat
        self._wall_before_s = 0.0  # of earlier sessions of the same run
        self._began = math.inf  # its clock starts with the first update of a session
        self.start_rates()
        self._workers = WorkerStats()
        self._metrics: list[UpdateMetrics] = []
        self._recorded = self._counts()  # of the last record
        self._declared: set[str] = set()  # names that were looked up before

    @property
    def wall_s(self) -> float:
        """Seconds of training since the first update, and those of earlier sessions."""
        return self._wall_before_s + max(0.0, time.monotonic() - self._began)

    @property
    def has_updates(self) -> bool:
        """Whether an update was booked since the last record."""
        return bool(self._metrics)

    @property
    def has_news(self) -> bool:
        """Whether the counters have moved since the last record."""
        return self._counts() != self._recorded

    def _counts(self) -> tuple[int, int, int]:
        return self.agent_steps, self.updates, self.games.count

    def rest(self, seconds: float) -> None:
        """Leave `seconds` that have just passed, a pause, out of all clocks."""
        self._began += seconds
        self._step_rate.rest(seconds)
        self._update_rate.rest(seconds)

    def start_rates(self) -> None:
        """Measure speeds from now on, of what is counted from now on."""
        self._step_rate = Rate(count=self.agent_steps)
        self._update_rate = Rate(count=self.updates)

    def book_block(self, stats: WorkerStats) -> None:
        """Book one block of unrolls."""
        self.agent_steps += stats.steps
        self._frames += stats.steps * self._action_repeat
        self._add_steps(stats.steps)
        self._workers = self._workers + stats

    def _add_steps(self, steps: int) -> None:
        """Divide agent steps among the games: every environment takes as many as the others."""
        total = sum(self._environments)
        for game, count in enumerate(self._environments):
            self._steps_of_games[game] += steps * count / total

    def book_game(self, episode: EpisodeEnd) -> Record:
        """Book one whole game; return the counters of this moment."""
        self.games.add(episode)
        return self.counters()

    def book_update(self, metrics: UpdateMetrics) -> None:
        """Book one update; its metrics stay on their device until the next record."""
        self.updates += 1
        self._began = min(self._began, time.monotonic())
        self._metrics.append(metrics)

    def counters(self, values: dict[str, float] | None = None) -> Record:
        """Return the counters of this moment, with values."""
        return Record(
            agent_steps=self.agent_steps,
            frames=self._frames,
            updates=self.updates,
            episodes=self.games.count,
            wall_s=self.wall_s,
            values=values or {},
        )

    def record(self, more: dict[str, float]) -> Record:
        """Return everything since the last record, with `more`, and start a new interval.

        Raises:
          UndeclaredMetricError: if a metric has a name that nobody declared; a name is looked up
            once.
        """
        values = {**_means(self._metrics), **self.games.read(), **more}
        if len(self._environments) > 1:
            for game, steps in enumerate(self._steps_of_games):
                values[f"episode/agent_steps_{game}"] = steps
        steps_per_s = self._step_rate.read(self.agent_steps)
        updates_per_s = self._update_rate.read(self.updates)
        if steps_per_s is not None and updates_per_s is not None:
            values["throughput/agent_steps_per_s"] = steps_per_s
            values["throughput/frames_per_s"] = steps_per_s * self._action_repeat
            values["throughput/updates_per_s"] = updates_per_s
        if self._workers.total_s > 0:
            values["workers/env_fraction"] = self._workers.env_s / self._workers.total_s
            values["workers/act_fraction"] = self._workers.act_s / self._workers.total_s
            values["ring/wait_fraction"] = self._workers.wait_s / self._workers.total_s
        self._workers = WorkerStats()
        self._metrics = []
        self._recorded = self._counts()
        for name in values.keys() - self._declared:
            check_declared(name)
            self._declared.add(name)
        return self.counters(values)

    def state_dict(self) -> dict[str, Any]:
        """Return the counters and the recent games (a copy)."""
        return {
            "agent_steps": self.agent_steps,
            "frames": self._frames,
            "updates": self.updates,
            "steps_of_games": list(self._steps_of_games),
            "games": self.games.state_dict(),
            "wall_s": self.wall_s,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over a state from `state_dict`; raise StateError if it is malformed."""
        self.agent_steps = whole(state, "agent_steps")
        # An earlier version counted as if all sessions had skipped as many frames as the last.
        self._frames = whole(state, "frames", default=self.agent_steps * self._action_repeat)
        self.updates = whole(state, "updates")
        with within("games"):
            self.games.load_state_dict(item(state, "games", dict))
        self._steps_of_games = [0.0] * len(self._environments)
        saved = items(state, "steps_of_games", float, default=None)
        if saved is None:  # of an earlier version
            self._add_steps(self.agent_steps)
        else:
            fits = len(saved) == len(self._environments) and all(0 <= n < math.inf for n in saved)
            expect(fits, "the steps of each game", "steps_of_games")
            self._steps_of_games = saved
        wall_s = number(state, "wall_s", default=0.0)
        self._recorded = self._counts()
        self._wall_before_s = wall_s
        self._began = math.inf
        self.start_rates()


def new_tally(blueprint: Blueprint) -> Tally:
    """Return the books of a run that has done nothing yet."""
    window, spec = blueprint.flags.avg_buff_size, blueprint.env_spec
    return Tally(spec.action_repeat, window, spec.tasks, blueprint.environments_of_games())


def _means(metrics: Sequence[UpdateMetrics]) -> dict[str, float]:
    """Average each metric over the updates that reported it; one wait for the device in all.

    NaN reports nothing: a buffer may have no draw in a batch.
    """
    rows: dict[tuple[str, ...], list[torch.Tensor]] = {}
    for update in metrics:
        rows.setdefault(update.names, []).append(update.row)
        for name, value in update.more.items():
            rows.setdefault((name,), []).append(value.float().reshape(1))
    if not rows:
        return {}
    means = torch.cat([torch.stack(of_names).nanmean(0) for of_names in rows.values()])
    return dict(zip(chain.from_iterable(rows), means.tolist(), strict=True))
