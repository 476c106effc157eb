"""What is kept of games while they are played in test mode: lives, a mark of each, and progress.

All are fed with every step of E environments; agent/testing/whole_games.py asks them when a game is
over.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence

import numpy as np

from ritornello.agent.testing.score_table import Life
from ritornello.core.durations import duration
from ritornello.wrappers.vector import StepResult

PROGRESS_INTERVAL_S = 10.0  # between lines


class Progress:
    """Says now and then how many games are over."""

    def __init__(
        self,
        wanted: int,
        show: Callable[[str], None],
        advice: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin to play.

        Args:
          wanted: number of games that are to be played.
          show: function that is called with each line.
          advice: how a limit of their length is set, where games may never end.
          clock: function that returns the time in seconds.
        """
        self._wanted, self._show, self._clock = wanted, show, clock
        self._advice = f"; {advice}" * bool(advice)
        self._began_s = self._shown_s = clock()
        self._steps = 0  # of each environment

    def add(self, left: Sequence[int]) -> None:
        """Take in a step, after which so many games are left to finish in each environment."""
        self._steps += 1
        now_s, over = self._clock(), self._wanted - sum(left)
        if now_s - self._shown_s >= PROGRESS_INTERVAL_S and any(left):
            self._shown_s = now_s
            self._show(
                f"{over}/{self._wanted} games over after {duration(now_s - self._began_s)}, "
                f"{self._steps * len(left):,} steps{self._advice if not over else ''}"
            )


class Lives:
    """Cuts the games of E environments at their lost lives."""

    def __init__(self, num_envs: int) -> None:
        """Begin with games of which nothing has been played."""
        self._returns = np.zeros(num_envs)
        self._steps = np.zeros(num_envs, np.int64)
        self._lived: list[list[Life]] = [[] for _ in range(num_envs)]

    def add(self, result: StepResult) -> None:
        """Take in a step; a game ends its last life, by its rules or not."""
        self._returns += result.reward
        self._steps += ~result.first
        over = set(np.flatnonzero(result.terminated).tolist())
        for index in over.union(end.env_id for end in result.episodes):
            self._lived[index].append(Life(float(self._returns[index]), int(self._steps[index])))
            self._returns[index] = self._steps[index] = 0

    def take(self, index: int) -> tuple[Life, ...]:
        """Return the lives of the game that has just ended in an environment."""
        lived, self._lived[index] = self._lived[index], []
        return tuple(lived)


class Fingerprints:
    """Hashes everything that was seen and done in a game: equal ones mean the same game.

    That is the first stack of frames, and of each step the action, the reward and the newest frame.
    Not the action that a reset row ignores: it belongs to no game. Which environment played a game,
    and after which other game, makes no difference.
    """

    def __init__(self, first_stacks: np.ndarray) -> None:
        """Begin a game in each environment.

        Args:
          first_stacks: [E, S, *frame_shape], what `reset` has shown.
        """
        self._hashes = [_begun(stack) for stack in first_stacks]

    def add(self, actions: np.ndarray, result: StepResult) -> None:
        """Take in a step.

        Args:
          actions: [E, *action_shape], the actions of the step.
          result: result of the step.
        """
        for index, is_first in enumerate(result.first.tolist()):
            if is_first:
                self._hashes[index] = _begun(result.stacks[index])
                continue
            mark = self._hashes[index]
            mark.update(actions[index].tobytes())
            mark.update(np.float32(result.reward[index]).tobytes())
            mark.update(result.stacks[index, -1].tobytes())

    def of(self, index: int) -> str:
        """Return the fingerprint of the game that has just ended in an environment."""
        return self._hashes[index].hexdigest()


def _begun(stack: np.ndarray) -> hashlib.blake2b:
    return hashlib.blake2b(stack.tobytes(), digest_size=8)
