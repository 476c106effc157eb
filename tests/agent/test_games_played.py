"""Fingerprints: the same game has the same one, whoever plays it and after what; others do not."""

from __future__ import annotations

import types
from typing import Any

import numpy as np
import pytest
import torch

from ritornello.agent.acting.actor import Observation
from ritornello.agent.testing import player, whole_games
from ritornello.agent.testing.games_played import Fingerprints
from ritornello.agent.testing.score_table import Game, summarise
from ritornello.core.episode import EpisodeEnd
from ritornello.wrappers.config import EnvConfig
from ritornello.wrappers.vector import StepResult
from tests.agent.states import SPEC

LENGTH = 3


class Repeating:
    """E environments that play the same game again and again, one started later than the other."""

    spec = SPEC

    def __init__(self, num_envs: int, paid: float = 1.0) -> None:
        self.num_envs, self.paid = num_envs, paid
        self.t = np.zeros(num_envs, np.int64)
        self.over = np.zeros(num_envs, bool)

    def reset(self) -> np.ndarray:
        return self._stacks()

    def step(self, actions: np.ndarray) -> StepResult:
        first = self.over.copy()
        self.t = np.where(first, 0, self.t + 1)
        self.over = self.t == LENGTH
        ends = [EpisodeEnd(int(i), self.paid, LENGTH, LENGTH) for i in np.flatnonzero(self.over)]
        reward = np.where(self.over, self.paid, 0.0).astype(np.float32)
        return StepResult(self._stacks(), reward, self.over.copy(), first, ends)

    def close(self) -> None:
        pass

    def _stacks(self) -> np.ndarray:
        return np.repeat(self.t[:, None, None], 4, 2).astype(np.float32)


class Reader:
    """Acts by a rule of what it sees, and by chance where its action is ignored."""

    def __init__(self, model: Any, seed: int, **options: Any) -> None:
        self.rng = np.random.default_rng(0)

    def forward(self, observation: Observation, state: None) -> Any:
        self.seen = observation.stacks[:, -1, 0].astype(np.int64)
        return types.SimpleNamespace(
            inputs=None, features=None, heads=types.SimpleNamespace(params=None), state=None
        )

    def choose(self, params: None) -> torch.Tensor:
        ignored = self.rng.integers(1000, size=self.seen.shape)
        return torch.from_numpy(np.where(self.seen == LENGTH, ignored, self.seen))


def play(monkeypatch: pytest.MonkeyPatch, vector: Repeating, count: int) -> list[Game]:
    monkeypatch.setattr(player, "Actor", Reader)
    blueprint: Any = types.SimpleNamespace(
        flags=types.SimpleNamespace(seed=0, greedy=True, learner_thread_count=1),
        env_spec=types.SimpleNamespace(tasks=("X",)),
    )
    games: list[Game] = []
    model: Any = types.SimpleNamespace(initial_state=lambda count: None)
    config = EnvConfig("CartPole-v1")
    whole_games._play(blueprint, model, config, vector, count, 0, games.append, print)  # type: ignore[arg-type]
    return games


def test_equal_games_count_once_whatever_a_reset_row_was_told(monkeypatch):
    games = play(monkeypatch, Repeating(2), 6)
    assert len(games) == 6
    assert len({game.fingerprint for game in games}) == 1
    assert summarise(games, "CartPole-v1", "c", 0, greedy=True).distinct_games == 1


@pytest.mark.parametrize("what", ["start", "action", "frame", "reward", "length"])
def test_each_difference_makes_another_game(what):
    def mark(changed):
        start = np.zeros((1, 2, 3), np.float32)
        frame, action, reward = np.ones((1, 2, 3), np.float32), 258, 0.5
        if changed and what == "start":
            start[0, 0, 0] = 1
        if changed and what == "frame":
            frame[0, -1, 2] = 5
        if changed and what == "action":
            action = 2  # equal to 258 in one byte
        if changed and what == "reward":
            reward = 0.25
        marks = Fingerprints(start)
        step = StepResult(
            frame, np.array([reward], np.float32), np.zeros(1, bool), np.zeros(1, bool), []
        )
        for _ in range(2 + (changed and what == "length")):
            marks.add(np.array([action]), step)
        return marks.of(0)

    assert mark(False) == mark(False)
    assert mark(False) != mark(True)
