"""Test mode: whole games with a frozen model, raw returns, numbers that mean something.

Each environment plays a fixed share of the games, so that short games are not counted more often
than long ones, and starts with seeds of its own; the report counts how many games really differ.
"""

from __future__ import annotations

import csv
import hashlib
import json
import logging
import os
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from agent.acting import Actor
from agent.assembly import Blueprint, env_config
from agent.checkpoint import Checkpoint
from agent.human_scores import human_normalised
from core.episode import EpisodeEnd
from core.errors import ConfigError
from core.rng import child_seed
from wrappers.gym_vector import GymVector
from wrappers.registry import describe, make_env_vector
from wrappers.vector import EnvVector

log = logging.getLogger(__name__)

MAX_ENVS = 16
VIDEO_FRAMES_PER_S = 60  # the console's rate; divided by the action repeat


@dataclass(frozen=True)
class Game:
    """One finished game of a test."""

    number: int
    return_raw: float
    length_steps: int
    length_frames: int
    fingerprint: str  # of all actions: equal for games that are the same


@dataclass(frozen=True)
class Report:
    """The result of a test; `test_*.json` holds just this."""

    env: str
    checkpoint: str
    agent_steps: int
    policy: str  # sampled | greedy
    episodes: int
    distinct_games: int
    mean: float
    median: float
    std: float
    min: float
    max: float
    mean_length_frames: float
    human_normalised: float | None  # (mean - random) / (human - random), where known

    def lines(self) -> list[str]:
        """Return what the terminal shows."""
        lines = [
            f"{self.episodes} game{'s' * (self.episodes > 1)} of {self.env}, "
            f"{self.distinct_games} of them distinct, {self.policy} actions",
            f"  return  mean {self.mean:.2f}  median {self.median:.2f}  std {self.std:.2f}  "
            f"min {self.min:.2f}  max {self.max:.2f}",
        ]
        if self.human_normalised is not None:
            lines.append(f"  human-normalised score  {100 * self.human_normalised:.1f} %")
        return lines


def evaluate(
    blueprint: Blueprint,
    checkpoint: Checkpoint,
    output: Path,
    *,
    show: Callable[[str], None] = print,
) -> Report:
    """Play `--test_episode_count` whole games and report them.

    Args:
      blueprint: of the checkpoint's flags, changed by what the user says.
      checkpoint: whose model plays.
      output: folder for the CSV, JSON and video.
      show: called with each line of progress.
    """
    flags = blueprint.flags
    checkpoint.check_spec(blueprint.env_spec)
    steps = int(checkpoint.state["tally"]["agent_steps"])
    show(f"{checkpoint.path}: {steps:,} agent steps")
    show(describe(env_config(flags, testing=True)))
    stem = f"test_{checkpoint.path.stem}"
    games: list[Game] = []

    def finished(game: Game) -> None:
        games.append(game)
        show(
            f"game {len(games)}/{flags.test_episode_count}: return {game.return_raw:g}, "
            f"{game.length_steps} steps, {game.length_frames} frames"
        )

    wanted = flags.test_episode_count
    try:
        if flags.render:
            _play_shown(blueprint, checkpoint, output / f"{stem}.mp4", finished, show)
        if wanted > len(games):
            count = wanted - len(games)
            env_count = min(MAX_ENVS, count)
            env = _make_env(blueprint, env_count, None)
            try:
                _play(blueprint, checkpoint, env, count, len(games), finished)
            finally:
                env.close()
    except KeyboardInterrupt:
        if not games:
            raise
        show(f"interrupted after {len(games)} games")
    report = summarise(games, flags.env, str(checkpoint.path), steps, flags.greedy)
    output.mkdir(parents=True, exist_ok=True)
    with (output / f"{stem}.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=list(asdict(games[0])))
        writer.writeheader()
        writer.writerows(asdict(game) for game in games)
    (output / f"{stem}.json").write_text(json.dumps(asdict(report), indent=2) + "\n", "utf-8")
    for line in report.lines():
        show(line)
    show(f"written: {output / stem}.csv and .json")
    return report


def summarise(
    games: list[Game], env: str, checkpoint: str, agent_steps: int, greedy: bool
) -> Report:
    """Return the statistics of a list of games (at least one)."""
    returns = np.array([game.return_raw for game in games])
    return Report(
        env=env,
        checkpoint=checkpoint,
        agent_steps=agent_steps,
        policy="greedy" if greedy else "sampled",
        episodes=len(games),
        distinct_games=len({game.fingerprint for game in games}),
        mean=float(returns.mean()),
        median=float(np.median(returns)),
        std=float(returns.std()),
        min=float(returns.min()),
        max=float(returns.max()),
        mean_length_frames=float(np.mean([game.length_frames for game in games])),
        human_normalised=human_normalised(env, float(returns.mean())),
    )


def _make_env(blueprint: Blueprint, count: int, render_mode: str | None) -> EnvVector:
    seed = blueprint.flags.seed or 0
    name = "test" if render_mode is None else "shown"
    seeds = [child_seed(seed, name, index) for index in range(count)]
    config = env_config(blueprint.flags, testing=True)
    return make_env_vector(config, count, seeds, render_mode=render_mode)


def _play(
    blueprint: Blueprint,
    checkpoint: Checkpoint,
    env: EnvVector,
    count: int,
    first_number: int,
    finished: Callable[[Game], None],
    each_step: Callable[[], None] = lambda: None,
) -> None:
    """Play `count` games, the same number (give or take one) in each environment."""
    # An observation is too little to share: for a single game, two threads take 6 times as long.
    torch.set_num_threads(min(blueprint.choices.learner_threads, env.num_envs))
    model, block = blueprint.acting_model()
    trained, _ = blueprint.acting_model()
    trained.load_state_dict(checkpoint.state["learner"]["model"])
    blueprint.acting_weights.pack(trained, block)
    seed = child_seed(blueprint.flags.seed or 0, "test actor", first_number)
    actor = Actor(model, seed, with_features=False, greedy=blueprint.flags.greedy)
    left = [count // env.num_envs + (i < count % env.num_envs) for i in range(env.num_envs)]
    hashes = [hashlib.blake2b(digest_size=8) for _ in left]
    number = first_number
    stacks = env.reset()
    for index, stack in enumerate(stacks):
        hashes[index].update(stack.tobytes())
    each_step()
    while any(left):
        action = actor.act(stacks).action
        result = env.step(action)
        stacks = result.stacks
        each_step()
        for index, chosen in enumerate(action.tolist()):
            hashes[index].update(bytes([chosen]))
        for end in result.episodes:
            if left[end.env_id]:
                left[end.env_id] -= 1
                finished(_game(number, end, hashes[end.env_id].hexdigest()))
                number += 1
            hashes[end.env_id] = hashlib.blake2b(digest_size=8)


def _game(number: int, end: EpisodeEnd, fingerprint: str) -> Game:
    return Game(number, end.return_raw, end.length_steps, end.length_frames, fingerprint)


def _play_shown(
    blueprint: Blueprint,
    checkpoint: Checkpoint,
    video: Path,
    finished: Callable[[Game], None],
    show: Callable[[str], None],
) -> None:
    """Play one game in a window, or into a film where there is no display."""
    if has_display():
        show("showing the first game in a window")
        env = _make_env(blueprint, 1, "human")
        try:
            _play(blueprint, checkpoint, env, 1, 0, finished)
        finally:
            env.close()
        return
    env = _make_env(blueprint, 1, "rgb_array")
    if not isinstance(env, GymVector):
        raise ConfigError("rendering needs the Gymnasium backend; leave --env_backend at auto")
    film = _Film(video, VIDEO_FRAMES_PER_S / blueprint.env_spec.action_repeat)
    try:
        with film:
            _play(blueprint, checkpoint, env, 1, 0, finished, lambda: film.add(env.render()))
    finally:
        env.close()
    show(f"the first game, without a display recorded as a film: {video}")


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


class _Film:
    """An MP4 file that grows frame by frame."""

    def __init__(self, path: Path, frames_per_s: float) -> None:
        self._path = path
        self._rate = frames_per_s
        self._writer: Any = None

    def __enter__(self) -> _Film:
        import imageio.v3 as iio  # lazily: only films need it

        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._writer = iio.imopen(self._path, "w", plugin="pyav")
        self._writer.init_video_stream("libx264", fps=self._rate)
        return self

    def add(self, frame: np.ndarray) -> None:
        """Append an RGB frame [H, W, 3] uint8, cut to even sizes as the codec wants them."""
        height, width = (size // 2 * 2 for size in frame.shape[:2])
        self._writer.write_frame(np.ascontiguousarray(frame[:height, :width]))

    def __exit__(self, *error: object) -> None:
        self._writer.close()
