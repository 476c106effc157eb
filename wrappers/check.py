"""What is wrong with an environment of yours, line by line.

    python -m ritornello.wrappers.check CartPole-v1
    python -m ritornello.wrappers.check my_envs:Cave-v0 --env_kwargs='{"size": 8}'

Each line is `ok`, `note` (it works, but look at it) or `wrong` (training would fail, or would learn
something else than you mean), followed by what to do. Exit status: 0 nothing is wrong, 1 something
is, 2 there is nothing to look at: the id is unknown, or the command cannot be understood; 130 it
was interrupted. Each line is printed when it is found, so the last one says how far an environment
came that hangs, or takes the program with it.

Games are played with random actions from a seed of their own, so that two looks at the same
environment say the same (wrappers/check_play.py).
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout, suppress
from typing import Any, NoReturn

import gymnasium
import numpy as np
from gymnasium.spaces import Box
from gymnasium.wrappers import TimeLimit

from ritornello.core.command_line import tell
from ritornello.core.errors import ConfigError, PlatformError
from ritornello.core.leaving import leave
from ritornello.core.plain_data import shown_text
from ritornello.wrappers import start_line
from ritornello.wrappers.check_play import SEED, Findings, Stop, play
from ritornello.wrappers.config import FRAMES_PER_S, EnvConfig
from ritornello.wrappers.env_ids import check_env_id, is_atari
from ritornello.wrappers.env_kwargs import kwargs_text
from ritornello.wrappers.gym_actions import ActionCode
from ritornello.wrappers.images import channel_axes, is_image_space, picture_of
from ritornello.wrappers.plain_env import observation_code
from ritornello.wrappers.registry import (
    MAX_RATE,
    MIN_RATE,
    make_as_it_is,
    make_env_vector,
    rate_of,
)
from ritornello.wrappers.spaces import leaves, of_another_package
from ritornello.wrappers.trusted_modules import trust_kwargs, trust_modules_of
from ritornello.wrappers.user_code import RAISED, describe, told_if_slow
from ritornello.wrappers.world_views import left_out_of

LARGE_BOUND = 100.0  # networks learn from numbers of about 1; tens still work
ATARI_STEPS = 100
SMALL_REACH, LARGE_REACH = 0.1, 20.0  # a bound nearer to 0, or a range wider, is far from 1
SEEN, ACTED = "observation_space", "action_space"


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
    findings = Findings(show)

    def make(render_mode: str | None = None) -> gymnasium.Env:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Gymnasium's own advice; what matters is told below
            return make_as_it_is(env_id, kwargs, render_mode)

    with suppress(Stop), told_if_slow(env_id):
        if is_atari(env_id):
            _check_atari(EnvConfig(env_id, kwargs=kwargs), findings)
            return findings
        with findings.stopping("making it"):
            env = make()
        findings.ok("making it", type(env.unwrapped).__name__)
        with findings.closing(env):
            _check_spaces(env, findings)
            play(env, make, findings)
        _check_time_limit(env, findings)
        _check_rendering(env, make, findings)
    return findings


def _check_atari(config: EnvConfig, findings: Findings) -> None:
    """Look over an Atari game, whose rules are those of wrappers/atari.py; play some steps."""
    with findings.stopping("making it"):
        rules = start_line.describe(config)
        games = make_env_vector(config, 1, [SEED])
        try:
            games.reset()
            for _ in range(ATARI_STEPS):
                games.step(np.zeros(1, np.int64))
        finally:
            games.close()
    findings.ok("rules", rules)


def _check_spaces(env: gymnasium.Env, findings: Findings) -> None:
    """Say what it shows and takes; stop if that is not supported."""
    for name in (SEEN, ACTED):
        try:
            getattr(env, name)
        except RAISED as error:
            findings.stop(name, f"is missing: set self.{name} in __init__ ({describe(error)})")
    _check_actions(env.action_space, findings)
    seen = env.observation_space
    try:
        code = observation_code(env)
    except ConfigError as error:
        advice = "ObservationWrapper that leaves it out, or makes numbers of it"
        _stop_at_space(SEEN, seen, error, advice, findings)
    for name in left_out_of(env):
        findings.note(
            SEEN,
            f"its {name} is left out: where the task is said there, the agent does not know it, "
            "unless a wrapper of yours makes numbers of it",
        )
    for part in code.parts:
        size = "x".join(map(str, part.shape))
        image = f"an image {size} (channels, height, width), {part.name}"
        findings.ok(SEEN, image if part.is_image else f"{size} numbers")
    if isinstance(seen, Box) and is_image_space(seen):
        _check_images(env, seen, code.shape, findings)
    elif not code.parts:
        findings.ok(SEEN, f"vectors of {code.shape[0]} numbers")
    for _, box in leaves(seen):
        if isinstance(box, Box) and not (is_image_space(box) and box.dtype == np.uint8):
            _check_bounds(box, findings)


def _stop_at_space(
    what: str, space: Any, reason: ConfigError, advice: str, findings: Findings
) -> NoReturn:
    is_foreign = any(of_another_package(leaf) for _, leaf in leaves(space))
    remedy = "" if is_foreign else f". Wrap it in a gymnasium.{advice}"
    findings.stop(what, f"is {shown_text(str(space))}, which is not supported: {reason}{remedy}")


def _check_actions(space: Any, findings: Findings) -> None:
    try:
        actions = ActionCode(space).actions
    except ConfigError as error:
        advice = "ActionWrapper that makes its actions from another space"
        _stop_at_space(ACTED, space, error, advice, findings)
    findings.ok(ACTED, actions.describe())
    if actions.is_single_choice and actions.parts[0].count == 1:
        findings.note(ACTED, "has one action only: there is nothing to choose")
    for _, leaf in leaves(space):
        if isinstance(leaf, Box):
            _check_reach(leaf, findings)


def _check_reach(box: Box, findings: Findings) -> None:
    """Say whether the first actions, of mean 0 and deviation 1, are of the size of a Box."""
    low, high = box.low, box.high
    is_odd = (low > -SMALL_REACH) | (high < SMALL_REACH) | ((high - low) > LARGE_REACH)
    is_odd &= np.isfinite(low) & np.isfinite(high)
    if is_odd.any():
        index = tuple(np.argwhere(is_odd)[0].tolist())
        findings.note(
            ACTED,
            f"has numbers from {low[index]:g} to {high[index]:g} at {list(index)}, and the first "
            "actions have mean 0 and deviation 1: wrap it in "
            "gymnasium.wrappers.RescaleAction(env, -1, 1)",
        )


def _check_images(
    env: gymnasium.Env, seen: Box, shape: tuple[int, ...], findings: Findings
) -> None:
    said = (env.metadata or {}).get("channels")
    axes = channel_axes(seen.shape, said)
    channels, height, width = shape
    order = f"channels {'last' if axes[-1] == len(seen.shape) - 1 else 'first'}" if axes else "gray"
    if len(axes) == 2:
        order += f" in each of {seen.shape[0]} that are stacked"
    findings.ok(SEEN, f"images of {height}x{width} pixels and {channels} channels ({order})")
    if len(seen.shape) == 3 and said is None and channels > 4:
        findings.note(
            SEEN,
            f"the {'last' if axes == (2,) else 'first'} axis is taken for the channels; if that is "
            "not so, say metadata = {'channels': 'first'} (or 'last') in your class",
        )
    if seen.dtype != np.uint8:
        findings.note(
            SEEN,
            f"its images are {seen.dtype}, which takes four times the memory of uint8 in replay; "
            "uint8 from 0 to 255 is scaled for the network",
        )
    elif seen.high.max() <= 1:
        findings.note(SEEN, "its images are uint8 from 0 to 1, nearly black: show 0 to 255")


def _check_bounds(seen: Box, findings: Findings) -> None:
    if (seen.low >= seen.high).any():
        index = np.argwhere(seen.low >= seen.high)[0].tolist()
        findings.note(SEEN, f"has no room at {index}: its low is not below its high")
    finite = seen.high[np.isfinite(seen.high) & (np.abs(seen.high) < 1e30)]
    if finite.size and np.abs(finite).max() > LARGE_BOUND:
        findings.note(
            SEEN,
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


def _check_rendering(
    env: gymnasium.Env, make: Callable[..., gymnasium.Env], findings: Findings
) -> None:
    modes = (getattr(env.unwrapped, "metadata", None) or {}).get("render_modes", [])
    if "rgb_array" not in modes:
        findings.note(
            "rendering",
            "rgb_array is not in metadata['render_modes']: its games cannot be recorded as films "
            "(--render=True and python -m ritornello.analysis). Training does not need it",
        )
        return
    if rate_of(env) is None:
        findings.note(
            "rendering",
            f"metadata['render_fps'] is no rate from {MIN_RATE:g} to {MAX_RATE:g}: its films show "
            f"{FRAMES_PER_S:g} pictures a second",
        )
    try:
        drawn = make(render_mode="rgb_array")
        with findings.closing(drawn):
            drawn.reset(seed=0)
            picture = drawn.render()
    except RAISED as error:
        findings.stop(
            "rendering",
            f"it lists rgb_array and raises {describe(error)}: take render_mode in __init__, keep "
            "it as self.render_mode, and return a picture from render()",
        )
    with findings.stopping("rendering"):
        height, width, _ = picture_of(picture).shape
    findings.ok("rendering", f"pictures of {height}x{width} pixels")


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
    output = sys.stdout  # of now, whatever the environment puts there

    def show(text: str) -> None:
        with redirect_stdout(output):
            tell(text)

    try:
        kwargs = kwargs_text(options.env_kwargs)
        trust_kwargs(kwargs)
        findings = check(options.env, kwargs, show)
    except PlatformError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    show(findings.verdict(options.env, kwargs))
    return 1 if findings.wrongs else 0


if __name__ == "__main__":
    os.environ["SDL_VIDEODRIVER"] = "dummy"  # pictures are drawn without a display
    faulthandler.enable()  # an environment may crash in C
    leave(main(sys.argv[1:]))  # a thread of the environment does not keep it
