"""Whole games of a frozen model: a number of them, or one that is shown or filmed.

Each environment plays a fixed share of the games, so that short games are not counted more often
than long ones, and starts with seeds of its own. Test mode (evaluator.py) and the process that
evaluates a run while it trains (evaluation.py) play in this way.
Next to read: agent/testing/player.py, which plays a step.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from ritornello.agent.assembly import Blueprint
from ritornello.agent.models.base import ActorCritic
from ritornello.agent.testing.games_played import Fingerprints, Lives, Progress
from ritornello.agent.testing.player import Player, env_seeds, game_config, make_filmed_env
from ritornello.agent.testing.score_table import Game
from ritornello.core.errors import EnvironmentFault
from ritornello.metrics.film import Film, FilmError
from ritornello.wrappers.config import EnvConfig
from ritornello.wrappers.registry import (
    advice_on_limit,
    check_rendering,
    make_env_vector,
    steps_per_s,
)
from ritornello.wrappers.vector import EnvVector

MAX_ENVS = 16

Finished = Callable[[Game], None]


def _playing_config(blueprint: Blueprint, env: str) -> EnvConfig:
    """Return the config of one game for test mode."""
    # Lost lives end nothing here, but they are marked: that is all that this option does.
    return replace(game_config(blueprint, env), episodic_life=True)


def _nothing() -> None:
    """Do nothing at a step."""


def play_games(
    blueprint: Blueprint,
    model: ActorCritic,
    env: str,
    wanted: int,
    games: Sequence[Game],
    finished: Finished,
    show: Callable[[str], None],
    each_step: Callable[[], None] = _nothing,
) -> None:
    """Play until there are `wanted` games.

    Args:
      blueprint: rules of the games, seed, and whether actions are the most probable ones.
      model: an acting model on the CPU.
      env: id of the game.
      wanted: number of games.
      games: those that are there already; `finished` adds to them.
      finished: is called with each game that is over.
      show: is called with each line of progress.
      each_step: is called at the start and after each step; what it raises ends the games.
    """
    if len(games) >= wanted:
        return
    count = wanted - len(games)
    seeds = env_seeds(blueprint.flags.seed or 0, min(MAX_ENVS, count))
    config = _playing_config(blueprint, env)
    vector = make_env_vector(config, len(seeds), seeds)
    try:
        _play(blueprint, model, config, vector, count, len(games), finished, show, each_step)
    finally:
        vector.close()


def _play(
    blueprint: Blueprint,
    model: ActorCritic,
    config: EnvConfig,
    vector: EnvVector,
    count: int,
    first_number: int,
    finished: Finished,
    show: Callable[[str], None],
    each_step: Callable[[], None] = _nothing,
) -> None:
    """Play `count` games, the same number (give or take one) in each environment.

    `config` is what the environments were made from.
    """
    num_envs = vector.num_envs
    # One thread, unless more are asked for. An observation is little to share, and threads that do
    # wait for each other wherever something else computes too (docs/evaluation.md, "Threads").
    torch.set_num_threads(min(blueprint.flags.learner_thread_count or 1, num_envs))
    left = [count // num_envs + (i < count % num_envs) for i in range(num_envs)]
    lives = Lives(num_envs)
    number = first_number
    # A game that the model does not know is told as the first one; values then mean nothing.
    env, tasks = config.env_id, blueprint.env_spec.tasks
    player = Player(
        *(model, vector, [tasks.index(env) if env in tasks else 0] * num_envs),
        seed=blueprint.flags.seed or 0,
        games_before=first_number,
        greedy=blueprint.flags.greedy,
    )
    fingerprints = Fingerprints(player.observation.stacks)
    progress = Progress(count, show, advice_on_limit(config))
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
                fingerprint = fingerprints.of(index)
                steps, frames = end.length_steps, end.length_frames
                finished(Game(number, end.return_raw, steps, frames, fingerprint, lived))
                number += 1
        progress.add(left)


def check_can_be_shown(blueprint: Blueprint, env: str) -> None:
    """Raise ConfigError unless a game can be shown in the way in which `--render` would.

    Asked for before the first game, because not every environment can be: some know no render_mode.
    """
    mode = "human" if has_display() else "rgb_array"
    if mode == "rgb_array":
        os.environ["SDL_VIDEODRIVER"] = "dummy"  # otherwise SDL complains that there is no display
    check_rendering(game_config(blueprint, env), mode)


def play_shown(
    blueprint: Blueprint,
    model: ActorCritic,
    env: str,
    video: Path,
    finished: Finished,
    show: Callable[[str], None],
) -> None:
    """Play one game in a window, or into a film where there is no display.

    Arguments as for `play_games`; `video` is the path of the film.
    """
    if has_display():
        show("showing the first game in a window")
        config = _playing_config(blueprint, env)
        seeds = env_seeds(blueprint.flags.seed or 0, 1, "shown")
        window = make_env_vector(config, 1, seeds, render_mode="human")
        try:
            _play(blueprint, model, config, window, 1, 0, finished, show)
        finally:
            window.close()
        return
    try:
        film_game(blueprint, model, env, video, finished, show)
    except FilmError as error:  # the games are what was asked for
        show(f"the first game is not shown: {error}")
        return
    show(f"no display: the first game is recorded in {video}")


def film_game(
    blueprint: Blueprint,
    model: ActorCritic,
    env: str,
    video: Path,
    finished: Finished,
    show: Callable[[str], None],
    each_step: Callable[[], None] = _nothing,
) -> None:
    """Play one game into a film, which is whole or not made; arguments as those of `play_games`.

    Raises:
      ConfigError: if the environment draws no pictures.
      FilmError: if the film cannot be written.
    """
    seeds = env_seeds(blueprint.flags.seed or 0, 1, "shown")
    config = _playing_config(blueprint, env)
    film = Film(video, steps_per_s(config))
    vector = make_filmed_env(config, seeds)

    def add_picture() -> None:
        each_step()
        try:
            picture = vector.render()
        except EnvironmentFault as fault:  # of the picture; the game itself goes on
            raise FilmError(str(fault)) from fault
        film.add(picture)

    try:
        with film:
            _play(blueprint, model, config, vector, 1, 0, finished, show, add_picture)
    finally:
        vector.close()


def has_display() -> bool:
    """Whether a window can be opened, and seen.

    SDL, which draws the windows, has drivers that show nothing (SDL_VIDEODRIVER=dummy): who sets
    one of them wants no window, on any system.
    """
    if os.environ.get("SDL_VIDEODRIVER") in ("dummy", "offscreen"):
        return False
    if sys.platform in ("win32", "darwin"):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
