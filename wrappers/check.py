"""What is wrong with an environment of yours, line by line.

    python -m ritornello.wrappers.check CartPole-v1
    python -m ritornello.wrappers.check my_envs:Cave-v0 --env_kwargs='{"size": 8}'

Each line is `ok`, `note` (it works, but look at it) or `wrong` (training would fail, or would learn
something else than you mean), followed by what to do. Exit status: 0 nothing is wrong, 1 something
is, 2 there is nothing to look at: the id is unknown, or the command cannot be understood; 130 it
was interrupted. Each line is printed when it is found, so the last one says how far an environment
came that hangs, or takes the program with it.

Next to read: wrappers/check_play.py, what is seen while games are played.
"""

from __future__ import annotations

import argparse
import faulthandler
import sys
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NoReturn

import gymnasium
import numpy as np
from gymnasium.spaces import Box
from gymnasium.wrappers import TimeLimit

from ritornello.core.command_line import tell
from ritornello.core.errors import ConfigError, EnvironmentFault, PlatformError
from ritornello.core.leaving import leave
from ritornello.core.plain_data import shown_text
from ritornello.wrappers import start_line
from ritornello.wrappers.check_play import SEED, Findings, Stop, close, play
from ritornello.wrappers.config import EnvConfig
from ritornello.wrappers.env_ids import check_env_id, is_atari
from ritornello.wrappers.env_kwargs import kwargs_text
from ritornello.wrappers.gym_actions import RowActions, boxes_of, why_not
from ritornello.wrappers.gym_checks import of_another_package
from ritornello.wrappers.gym_observations import PartsObservation, why_not_shown
from ritornello.wrappers.images import (
    ChannelsFirst,
    channel_axes,
    is_image_space,
    picture_of,
)
from ritornello.wrappers.registry import make_as_it_is, make_env_vector
from ritornello.wrappers.trusted_modules import trust_kwargs, trust_modules_of
from ritornello.wrappers.user_code import RAISED, describe, told_if_slow
from ritornello.wrappers.world_views import left_out_of

Make = Callable[..., gymnasium.Env]

LARGE_BOUND = 100.0  # networks learn from numbers of about 1; tens still work
ATARI_STEPS = 100
SMALL_REACH, LARGE_REACH = 0.1, 20.0  # a bound nearer to 0, or a range wider, is far from 1


def check(
    env_id: str, kwargs: str = "", show: Callable[[str], None] = lambda line: None
) -> Findings:
    """Look over one environment.

    Args:
      env_id: an id of Gymnasium, or `module:Id`.
      kwargs: that it is made with (wrappers/env_kwargs.py).
      show: function that is called with each line when it is found.

    Raises:
      ConfigError: if there is no such environment.
    """
    check_env_id(env_id)
    if is_atari(env_id):
        return _check_atari(EnvConfig(env_id, kwargs=kwargs), Findings(show))

    def make(render_mode: str | None = None) -> gymnasium.Env:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Gymnasium's own advice; what matters is told below
            return make_as_it_is(env_id, kwargs, render_mode)

    findings = Findings(show)
    with suppress(Stop), told_if_slow(env_id):
        env = _made(make, findings)
        try:
            _check_spaces(env, findings)
            play(env, make, findings)
        finally:
            close(env, findings)
        _check_time_limit(env, findings)
        _check_rendering(env, make, findings)
    return findings


def _check_atari(config: EnvConfig, findings: Findings) -> Findings:
    """Look over an Atari game, whose rules are those of wrappers/atari.py; play some steps."""
    try:
        rules = start_line.describe(config)
        games = make_env_vector(config, 1, [SEED])
        try:
            games.reset()
            for _ in range(ATARI_STEPS):
                games.step(np.zeros(1, np.int64))
        finally:
            games.close()
    except PlatformError as error:
        findings.wrong("making it", str(error))
    else:
        findings.ok("rules", rules)
    return findings


def _made(make: Make, findings: Findings) -> gymnasium.Env:
    with findings.stopping("making it"):
        env = make()
    findings.ok("making it", type(env.unwrapped).__name__)
    return env


def _check_spaces(env: gymnasium.Env, findings: Findings) -> None:
    """Say what it shows and takes; stop if that is not supported."""
    for name in ("observation_space", "action_space"):
        try:
            getattr(env, name)
        except RAISED as error:
            findings.stop(name, f"is missing: set self.{name} in __init__ ({describe(error)})")
    _check_actions(env, findings)
    seen = env.observation_space
    reason = why_not_shown(env)
    if reason:
        advice = "ObservationWrapper that leaves it out, or makes numbers of it"
        _stop_at_space("observation_space", seen, reason, advice, findings)
    for name in left_out_of(env):
        findings.note(
            "observation_space",
            f"its {name} is left out: where the task is said there, the agent does not know it, "
            "unless a wrapper of yours makes numbers of it",
        )
    if is_image_space(seen):
        assert isinstance(seen, Box)
        _check_images(env, seen, findings)
        return
    shown_as = PartsObservation(env)
    for part in shown_as.parts:
        size = "x".join(map(str, part.shape))
        image = f"an image {size} (channels, height, width), {part.name}"
        findings.ok("observation_space", image if part.is_image else f"{size} numbers")
    if not shown_as.parts:
        (count,) = shown_as.observation_space.shape or (0,)
        findings.ok("observation_space", f"vectors of {count} numbers")
    for box in boxes_of(seen):
        if not is_image_space(box):
            _check_bounds(box, findings)


def _stop_at_space(what: str, space: Any, reason: str, advice: str, findings: Findings) -> NoReturn:
    remedy = "" if of_another_package(space) else f". Wrap it in a gymnasium.{advice}"
    findings.stop(what, f"is {shown_text(str(space))}, which is not supported: {reason}{remedy}")


def _check_actions(env: gymnasium.Env, findings: Findings) -> None:
    acted = env.action_space
    reason = why_not(acted)
    if reason:
        advice = "ActionWrapper that makes its actions from another space"
        _stop_at_space("action_space", acted, reason, advice, findings)
    actions = RowActions(env).actions
    findings.ok("action_space", actions.describe())
    if actions.is_single_choice and actions.parts[0].count == 1:
        findings.note("action_space", "has one action only: there is nothing to choose")
    for box in boxes_of(acted):
        _check_reach(box, findings)


def _check_reach(box: Box, findings: Findings) -> None:
    """Say whether the first actions, of mean 0 and deviation 1, are of the size of a Box."""
    low, high = np.broadcast_arrays(box.low, box.high)
    is_odd = (low > -SMALL_REACH) | (high < SMALL_REACH) | ((high - low) > LARGE_REACH)
    is_odd &= np.isfinite(low) & np.isfinite(high)
    if is_odd.any():
        place = np.argwhere(is_odd)[0]
        index = tuple(place.tolist())
        findings.note(
            "action_space",
            f"has numbers from {low[index]:g} to {high[index]:g} at {place.tolist()}, and the "
            "first actions have mean 0 and deviation 1: wrap it in "
            "gymnasium.wrappers.RescaleAction(env, -1, 1)",
        )


def _check_images(env: gymnasium.Env, seen: Box, findings: Findings) -> None:
    try:
        axes = channel_axes(seen.shape, (env.metadata or {}).get("channels"))
    except ConfigError as error:
        findings.stop("observation_space", str(error))
    channels, height, width = ChannelsFirst(env).observation_space.shape or (0, 0, 0)
    order = (
        "gray" if not axes else f"channels {'last' if axes[-1] == len(seen.shape) - 1 else 'first'}"
    )
    if len(axes) == 2:
        order += f" in each of {seen.shape[0]} that are stacked"
    images = f"images of {height}x{width} pixels and {channels} channels ({order})"
    findings.ok("observation_space", images)
    if len(seen.shape) == 3 and "channels" not in (env.metadata or {}) and channels > 4:
        findings.note(
            "observation_space",
            f"the {'last' if axes == (2,) else 'first'} axis is taken for the channels; if that is "
            "not so, say metadata = {'channels': 'first'} (or 'last') in your class",
        )
    if seen.dtype != np.uint8:
        findings.note(
            "observation_space",
            f"its images are {seen.dtype}, which takes four times the memory of uint8 in replay; "
            "uint8 from 0 to 255 is scaled for the network",
        )
        _check_bounds(seen, findings)
    elif seen.high.max() <= 1:
        findings.note(
            "observation_space",
            "its images are uint8 from 0 to 1, nearly black: show 0 to 255",
        )


def _check_bounds(seen: Box, findings: Findings) -> None:
    if (seen.low >= seen.high).any():
        index = np.argwhere(seen.low >= seen.high)[0].tolist()
        findings.note("observation_space", f"has no room at {index}: its low is not below its high")
    finite = seen.high[np.isfinite(seen.high) & (np.abs(seen.high) < 1e30)]
    if finite.size and np.abs(finite).max() > LARGE_BOUND:
        findings.note(
            "observation_space",
            f"goes up to {np.abs(finite).max():g}: networks learn best from numbers of about 1, "
            "so divide in your environment what is larger",
        )


def _check_time_limit(env: gymnasium.Env, findings: Findings) -> None:
    while isinstance(env, gymnasium.Wrapper) and not isinstance(env, TimeLimit):
        env = env.env
    if isinstance(env, TimeLimit):
        limit = env._max_episode_steps  # Gymnasium has no other name for it
        findings.ok("time limit", f"Gymnasium truncates its games after {limit} steps")
    elif not findings.has_ended:
        findings.note(
            "time limit",
            "there is none, and no game came to its end in the steps that were played: register "
            "it with max_episode_steps=..., give --env_kwargs='{\"max_episode_steps\": 500}', or "
            "let step return truncated=True at some time",
        )


def _check_rendering(env: gymnasium.Env, make: Make, findings: Findings) -> None:
    modes = (getattr(env.unwrapped, "metadata", None) or {}).get("render_modes", [])
    if "rgb_array" not in modes:
        findings.note(
            "rendering",
            "rgb_array is not in metadata['render_modes']: its games cannot be recorded as films "
            "(--render=True and python -m ritornello.analysis). Training does not need it",
        )
        return
    try:
        drawn = make(render_mode="rgb_array")
        drawn.reset(seed=0)
        picture = drawn.render()
        close(drawn, findings)
    except RAISED as error:
        findings.wrong(
            "rendering",
            f"it lists rgb_array and raises {describe(error)}: take render_mode in __init__, keep "
            "it as self.render_mode, and return a picture from render()",
        )
        return
    try:
        picture = picture_of(picture)
    except EnvironmentFault as fault:
        findings.wrong("rendering", str(fault).rstrip("."))
        return
    findings.ok("rendering", f"pictures of {picture.shape[0]}x{picture.shape[1]} pixels")


def main(argv: Sequence[str]) -> int:
    """Check the environment that is named; print what is found; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m ritornello.wrappers.check",
        description="Says line by line what is wrong with an environment of yours.",
    )
    parser.add_argument("env", help="an id of Gymnasium, or <module>:<id> of your own")
    parser.add_argument(
        "--env_kwargs", default="", help='arguments it is made with, as {"size": 8}'
    )
    options = parser.parse_args(argv)
    trust_modules_of(options.env)
    try:
        kwargs = kwargs_text(options.env_kwargs)
        trust_kwargs(kwargs)
        findings = check(options.env, kwargs, tell)
    except PlatformError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    tell(findings.verdict(options.env, kwargs))
    return 1 if findings.wrongs else 0


if __name__ == "__main__":
    faulthandler.enable()  # an environment may crash in C
    leave(main(sys.argv[1:]))  # a thread of the environment does not keep it
