from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from agent.checkpoint import Checkpoint
from agent.evaluator import Game, evaluate, has_display, summarise
from tests.agent.runs import make_blueprint


@pytest.mark.parametrize("platform", ["linux", "darwin", "win32"])
@pytest.mark.parametrize(
    ("driver", "seen"), [(None, True), ("x11", True), ("dummy", False), ("offscreen", False)]
)
def test_a_driver_that_shows_nothing_is_no_display_on_any_system(
    monkeypatch: pytest.MonkeyPatch, platform: str, driver: str | None, seen: bool
) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setenv("DISPLAY", ":0")
    if driver is None:
        monkeypatch.delenv("SDL_VIDEODRIVER", raising=False)
    else:
        monkeypatch.setenv("SDL_VIDEODRIVER", driver)
    assert has_display() is seen


def test_a_linux_without_a_display_server_has_no_display(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER"):
        monkeypatch.delenv(name, raising=False)
    assert not has_display()
    monkeypatch.setenv("WAYLAND_DISPLAY", "wayland-0")
    assert has_display()


@pytest.mark.parametrize(("count", "said"), [(1, "1 game of Test-v0"), (2, "2 games of Test-v0")])
def test_a_report_counts_its_games(monkeypatch: pytest.MonkeyPatch, count: int, said: str) -> None:
    monkeypatch.setattr("agent.evaluator.human_normalised", lambda env, score: None)
    games = [Game(number, 1.0 + number, 10, 40, str(number)) for number in range(count)]
    report = summarise(games, "Test-v0", "models/test/model.safetensors", 5, greedy=True)
    assert report.lines()[0] == f"{said}, {count} of them distinct, greedy actions"
    assert report.mean == (1.0 if count == 1 else 1.5)


@pytest.mark.parametrize(("games", "threads"), [(1, 1), (2, 2), (5, 3)])
def test_no_more_threads_compute_than_games_are_played_at_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, games: int, threads: int
) -> None:
    used: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", used.append)
    blueprint = make_blueprint(test_episode_count=games, learner_thread_count=3)
    state = {
        "env_spec": blueprint.env_spec.to_dict(),
        "learner": {"model": blueprint.learner().model.state_dict()},
        "tally": {"agent_steps": 1},
    }
    evaluate(blueprint, Checkpoint(tmp_path / "some.pt", state), tmp_path, show=lambda line: None)
    assert used == [threads]
