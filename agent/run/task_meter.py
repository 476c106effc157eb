"""`TaskMeter`: how the games of a run of several go, and the one score of all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ritornello.agent.testing.human_scores import human_normalised
from ritornello.core.episode import EpisodeEnd
from ritornello.core.errors import CheckpointError
from ritornello.core.saved_state import item, items, within
from ritornello.metrics.meters import EpisodeMeter, mean_of


class TaskMeter:
    """The games of a run of several: a meter for each, and one score for all; an `EpisodeMeter`.

    Raw returns of different games cannot be averaged, so `mean` is the mean of the games' mean
    returns on the scale from random (0) to human (1) play, over the games that are played and of
    which both marks are known (agent/testing/human_scores.py). If they are known of none, it is the
    mean of the raw means. There is no mean before each of these games was finished once, and no
    best mean before each has a full window.
    """

    def __init__(self, tasks: Sequence[str], window: int, played: Sequence[int]) -> None:
        """Start without a game.

        `tasks` are the ids of the games in task order, `played` the numbers of those that are
        played. `window` games of each are in its moving average.
        """
        self.best: float | None = None  # a best return of different games says nothing
        self.best_mean: float | None = None
        self._tasks = tuple(tasks)
        self._meters = [EpisodeMeter(window) for _ in tasks]
        known = [task for task in played if human_normalised(tasks[task], 0.0) is not None]
        self._judged = known or list(played)

    @property
    def count(self) -> int:
        """Finished games, all together."""
        return sum(meter.count for meter in self._meters)

    @property
    def mean(self) -> float | None:
        """The score (`episode/score_mean`), None before each judged game was finished once."""
        means = [(task, self._meters[task].mean) for task in self._judged]
        known = [(task, mean) for task, mean in means if mean is not None]
        if len(known) < len(means):
            return None
        scores = [(human_normalised(self._tasks[task], mean), mean) for task, mean in known]
        return mean_of([mean if score is None else score for score, mean in scores])

    @property
    def full_mean(self) -> float | None:
        """The score over full windows of all judged games, None before: models are ranked by it."""
        is_full = all(self._meters[task].full_mean is not None for task in self._judged)
        return self.mean if is_full else None

    def add(self, episode: EpisodeEnd) -> None:
        """Count one game."""
        self._meters[episode.task_id].add(episode)
        mean = self.full_mean
        if mean is not None and (self.best_mean is None or mean > self.best_mean):
            self.best_mean = mean

    def read(self) -> dict[str, float]:
        """Return the values for a Record and start a new interval."""
        values = {} if self.mean is None else {"episode/score_mean": self.mean}
        for task, meter in enumerate(self._meters):
            of_game = meter.read()
            values[f"episode/count_{task}"] = meter.count
            for name in ("episode/return_mean", "episode/return_best", "episode/length_steps"):
                if name in of_game:
                    values[f"{name}_{task}"] = of_game[name]
        return values

    def state_dict(self) -> dict[str, Any]:
        """Return plain types for a checkpoint."""
        return {
            "count": self.count,
            "best_mean": self.best_mean,
            "judged": list(self._judged),
            "tasks": [meter.state_dict() for meter in self._meters],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from `state_dict`; CheckpointError if it is of another number of games."""
        saved = items(state, "tasks", dict, default=[state])
        if len(saved) != len(self._meters):
            raise CheckpointError(
                f"the saved counters are of {len(saved)} games, expected {len(self._meters)}: "
                "resume with the same --env."
            )
        pairs = list(zip(self._meters, saved, strict=True))
        # The best of other games, or of shorter or longer windows, is no best of these.
        is_comparable = items(state, "judged", int, default=self._judged) == self._judged
        is_comparable &= all(meter.has_window_of(of_game) for meter, of_game in pairs)
        self.best_mean = item(state, "best_mean", float, default=None) if is_comparable else None
        for task, (meter, of_game) in enumerate(pairs):
            with within("tasks", task):
                meter.load_state_dict(of_game)
