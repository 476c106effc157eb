"""Whole games of a frozen model: a number of them, or one that is shown or filmed.

Each environment plays a fixed share of the games, so that short games are not counted more often
than long ones, and starts with seeds of its own. Test mode (evaluator.py) and the process that
evaluates a run while it trains (evaluation.py) play in this way.
Next to read: agent/testing/player.py, which plays a step.
"""

from __future__ import annotations

import hashlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from ritornello.agent.assembly import Blueprint
from ritornello.agent.models.base import ActorCritic
from ritornello.agent.testing.player import Player, env_seeds, game_config, make_filmed_env
from ritornello.agent.testing.score_table import Game, Life
from ritornello.core.errors import EnvironmentFault, PlatformError
from ritornello.metrics.film import Film, FilmError
from ritornello.metrics.text import duration
from ritornello.wrappers.config import EnvConfig
from ritornello.wrappers.registry import (
    advice_on_limit,
    check_rendering,
    make_env_vector,
    steps_per_s,
)
from ritornello.wrappers.vector import EnvVector, StepResult

MAX_ENVS = 16
PROGRESS_INTERVAL_S = 10.0  # between lines on how many games are over


class EndlessGameError(PlatformError):
    """Games that do not come to an end."""


def nothing(*_: object) -> None:
    """Do nothing at a step, or with a line of progress."""


def play_games(
    blueprint: Blueprint,
    model: ActorCritic,
    env: str,
    wanted: int,
    *,
    number: int = 0,
    show: Callable[[str], None] = nothing,
    each_step: Callable[[], None] = nothing,
    max_steps: int | None = None,
) -> Iterator[Game]:
    """Yield whole games as they end.

    Args:
      blueprint: has the rules, the seed, and whether the most probable actions are taken.
      model: an acting model on the CPU.
      env: id of the game.
      wanted: number of games.
      number: number of the first game, if the caller has played others.
      show: is called with each line of progress.
      each_step: is called at the start and after each step; an exception from it ends the games.
      max_steps: limit on the steps of all environments together; None: no limit.

    Raises:
      EndlessGameError: if the games are not over after `max_steps`.
    """
    if wanted < 1:
        return
    seeds = env_seeds(blueprint.flags.seed or 0, min(MAX_ENVS, wanted))
    config = _playing_config(blueprint, env)
    with closing(make_env_vector(config, len(seeds), seeds)) as vector:
        yield from _play(
            blueprint, model, config, vector, wanted, number, show, each_step, max_steps
        )


def play_shown(
    blueprint: Blueprint,
    model: ActorCritic,
    env: str,
    video: Path,
    show: Callable[[str], None],
) -> list[Game]:
    """Play one game in a window, or into a film if there is no display; return [] if that fails.

    The arguments are those of `play_games`; `video` is the path of the film.
    """
    if has_display():
        show("showing the first game in a window")
        config = _playing_config(blueprint, env)
        seeds = env_seeds(blueprint.flags.seed or 0, 1, "shown")
        with closing(make_env_vector(config, 1, seeds, render_mode="human")) as window:
            return list(_play(blueprint, model, config, window, 1, 0, show))
    try:
        game = film_game(blueprint, model, env, video, show=show)
    except FilmError as error:  # the games are what was asked for
        show(f"the first game is not shown: {error}")
        return []
    show(f"no display: the first game is recorded in {video}")
    return [game]


def film_game(
    blueprint: Blueprint,
    model: ActorCritic,
    env: str,
    video: Path,
    *,
    show: Callable[[str], None] = nothing,
    each_step: Callable[[], None] = nothing,
    max_steps: int | None = None,
) -> Game:
    """Play one game into a film, which is whole or not made; arguments as those of `play_games`.

    Raises:
      ConfigError: if the environment draws no pictures.
      FilmError: if the film cannot be written.
    """
    seeds = env_seeds(blueprint.flags.seed or 0, 1, "shown")
    config = _playing_config(blueprint, env)
    film = Film(video, steps_per_s(config))
    with closing(make_filmed_env(config, seeds)) as vector:

        def add_picture() -> None:
            each_step()
            try:
                picture = vector.render()
            except EnvironmentFault as fault:  # of the picture; the game itself goes on
                raise FilmError(str(fault)) from fault
            film.add(picture)

        with film:
            (game,) = _play(blueprint, model, config, vector, 1, 0, show, add_picture, max_steps)
    return game


def _playing_config(blueprint: Blueprint, env: str) -> EnvConfig:
    """Return the config of one game for test mode."""
    # Lost lives end nothing here, but they are marked: that is all that this option does.
    return replace(game_config(blueprint, env), episodic_life=True)


def _play(
    blueprint: Blueprint,
    model: ActorCritic,
    config: EnvConfig,
    vector: EnvVector,
    count: int,
    number: int,
    show: Callable[[str], None],
    each_step: Callable[[], None] = nothing,
    max_steps: int | None = None,
) -> Iterator[Game]:
    """Yield `count` games, the same number (give or take one) of each environment.

    `config` is what the environments were made from.
    """
    num_envs = vector.num_envs
    # One thread, unless more are asked for. An observation is little to share, and threads that do
    # wait for each other wherever something else computes too (docs/evaluation.md, "Threads").
    torch.set_num_threads(min(blueprint.flags.learner_thread_count or 1, num_envs))
    left = [count // num_envs + (i < count % num_envs) for i in range(num_envs)]
    # A game that the model does not know is told as the first one; values then mean nothing.
    env, tasks = config.env_id, blueprint.env_spec.tasks
    player = Player(
        *(model, vector, [tasks.index(env) if env in tasks else 0] * num_envs),
        seed=blueprint.flags.seed or 0,
        games_before=number,
        greedy=blueprint.flags.greedy,
    )
    lives, fingerprints = Lives(num_envs), Fingerprints(player.observation.stacks)
    began_s = shown_s = time.monotonic()
    steps = 0  # of all environments
    each_step()
    while any(left):
        step = player.step()
        lives.add(step.result)
        fingerprints.add(step.action, step.result)
        each_step()
        for end in step.episodes:
            index, lived = end.env_id, lives.take(end.env_id)
            if left[index]:
                left[index] -= 1
                mark = fingerprints.of(index)
                yield Game(number, end.return_raw, end.length_steps, end.length_frames, mark, lived)
                number += 1
        steps += num_envs
        if max_steps is not None and steps > max_steps and any(left):
            advice = advice_on_limit(config)
            text = f"{sum(left)} of {count} games of {env} are not over after {max_steps:,} steps"
            raise EndlessGameError(f"{text}{f': {advice}' * bool(advice)}.")
        now_s, over = time.monotonic(), count - sum(left)
        if now_s - shown_s >= PROGRESS_INTERVAL_S and any(left):
            shown_s, advice = now_s, "" if over else advice_on_limit(config)
            text = f"{over}/{count} games over after {duration(now_s - began_s)}, {steps:,} steps"
            show(f"{text}; {advice}" if advice else text)


class Lives:
    """Cuts the games of E environments at their lost lives."""

    def __init__(self, num_envs: int) -> None:
        """Begin with games of which nothing has been played."""
        self._returns = np.zeros(num_envs)
        self._steps = np.zeros(num_envs, np.int64)
        self._lived: list[list[Life]] = [[] for _ in range(num_envs)]

    def add(self, result: StepResult) -> None:
        """Add the results of a step; the end of a game ends its last life, whatever the rules."""
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
    """Hashes everything that was seen and done in a game: equal hashes mean the same game.

    Hashed are the first stack of frames and, for each step, the action, the reward and the newest
    frame. The action that a reset row ignores is left out: it belongs to no game. It makes no
    difference which environment played a game, and after which other game.
    """

    def __init__(self, first_stacks: np.ndarray) -> None:
        """Begin a game in each environment with its first stack, [E, S, *frame_shape] in all."""
        self._hashes = [_begun(stack) for stack in first_stacks]

    def add(self, actions: np.ndarray, result: StepResult) -> None:
        """Add a step: the actions [E, *action_shape], and their results."""
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


def check_can_be_shown(blueprint: Blueprint, env: str) -> None:
    """Raise ConfigError unless a game can be shown in the way that `--render` asks for.

    This is checked before the first game, because some environments know no render_mode.
    """
    mode = "human" if has_display() else "rgb_array"
    if mode == "rgb_array":
        os.environ["SDL_VIDEODRIVER"] = "dummy"  # otherwise SDL complains that there is no display
    check_rendering(game_config(blueprint, env), mode)


def has_display() -> bool:
    """Whether a window can be opened, and seen.

    SDL, which draws the windows, has drivers that show nothing (SDL_VIDEODRIVER=dummy). Somebody
    who sets one of them wants no window, on any system.
    """
    if os.environ.get("SDL_VIDEODRIVER") in ("dummy", "offscreen"):
        return False
    if sys.platform in ("win32", "darwin"):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
