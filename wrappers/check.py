"""What is wrong with an environment of yours, line by line.

    python -m ritornello.wrappers.check CartPole-v1
    python -m ritornello.wrappers.check my_envs:Cave-v0 --env_kwargs='{"size": 8}'

Each line is `ok`, `note` (it works, but look at it) or `wrong` (training would fail, or would learn
something else than you mean), followed by what to do. Exit status: 0 nothing is wrong, 1 something
is, 2 there is nothing to look at: the id is unknown, or the command cannot be understood; 130 it
was interrupted. Each line is printed when it is found, so the last one says how far an environment
came that hangs, or takes the program with it.

Games are played as in training (wrappers/plain_env.py), with random actions from a seed of their
own, so that two looks at the same environment say the same.
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, redirect_stdout, suppress
from itertools import islice
from typing import Any, get_args

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete

from ritornello.core.command_line import tell
from ritornello.core.errors import PlatformError
from ritornello.core.leaving import leave
from ritornello.core.plain_data import shown
from ritornello.wrappers import start_line
from ritornello.wrappers.action_masks import nearest_allowed
from ritornello.wrappers.batch_env import batch_backend, make_batch, tried
from ritornello.wrappers.config import BackendChoice, EnvConfig
from ritornello.wrappers.env_ids import check_env_id, is_atari
from ritornello.wrappers.env_kwargs import kwargs_text
from ritornello.wrappers.findings import Findings, Stop
from ritornello.wrappers.images import is_image_space
from ritornello.wrappers.plain_env import PlainEnv, reset_result, step_result
from ritornello.wrappers.registry import (
    advice_on_limit,
    check_rendering,
    make_as_it_is,
    make_env_vector,
    max_game_steps,
)
from ritornello.wrappers.spaces import leaves, values
from ritornello.wrappers.trusted_modules import trust_kwargs, trust_modules_of
from ritornello.wrappers.user_code import told_if_slow
from ritornello.wrappers.world_views import left_out_of

SEED = 7
STEPS = 2_000  # of random play; most environments do that within a second
PLAY_S = 30.0  # for a slow environment, which plays as many of these as it can
TWIN_STEPS = 200  # of the games that must be the same, where STEPS were played
ATARI_STEPS = 100
ENOUGH_GAMES = 4  # of one length say that it is a limit
LARGE_REWARD = 1e4
LARGE_NUMBER = 100.0  # networks learn from numbers of about 1; tens still work
SMALL_REACH, LARGE_REACH = 0.1, 20.0  # a bound nearer to 0, or a range wider, is far from 1
SEEN, ACTED = "observation_space", "action_space"
RNG_ADVICE = (
    "call super().reset(seed=seed) in reset, and draw every random number from self.np_random, "
    "none from the modules random or numpy.random"
)


def check(
    env_id: str,
    kwargs: str = "",
    show: Callable[[str], None] = lambda line: None,
    backend: BackendChoice = "auto",
) -> Findings:
    """Look over one environment.

    Args:
      env_id: an id of Gymnasium, or `module:Id`.
      kwargs: that it is made with (wrappers/env_kwargs.py).
      show: function that is called with each line when it is found.
      backend: as --env_backend says.

    Raises:
      ConfigError: if there is no such environment.
    """
    check_env_id(env_id)
    findings, config = Findings(show), EnvConfig(env_id, kwargs=kwargs, backend=backend)
    with suppress(Stop), told_if_slow(env_id):
        if is_atari(env_id):
            _check_atari(config, findings)
        elif batch_backend(config):
            _check_batch(config, findings)
        else:
            _check_plain(config, findings)
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


def _check_batch(config: EnvConfig, findings: Findings) -> None:
    """Look over a vector whose environments are stepped by one call."""
    with findings.stopping("making it"):
        spec, said = tried(config)
        (findings.note if "not seen" in said else findings.ok)("making it", said)
        findings.ok(SEEN, start_line.shown_parts(spec))
        findings.ok(ACTED, spec.actions.describe())
    with findings.stopping("step"):
        marks, ends = _batch_marks(config, STEPS // 2)
        findings.ok("step", f"{2 * len(marks):,} steps of random actions; {ends} games ended")
        if _batch_marks(config, len(marks))[0] == marks:
            findings.ok("seed", "the same seeds and actions give the same games")
        else:
            findings.wrong("seed", f"games with the same seeds and actions differ: {RNG_ADVICE}")
    _check_limit(config, ends, findings)


def _batch_marks(config: EnvConfig, steps: int) -> tuple[list[int], int]:
    """Play in a new vector; return a hash of what each step shows, and how many games ended."""
    with closing(make_batch(config, [SEED, SEED + 1])) as vector:
        marks, ends, end_s = [hash(vector.reset().tobytes())], 0, time.monotonic() + PLAY_S
        vector.action_space.seed(SEED)
        while len(marks) < steps and time.monotonic() < end_s:
            wanted = [vector.action_space.sample() for _ in range(2)]
            result = vector.step(vector.allowed(np.array(wanted, vector.spec.actions.dtype)))
            shown = (result.stacks, result.reward, result.terminated, result.first)
            marks.append(hash(b"".join(each.tobytes() for each in shown)))
            ends += len(result.episodes)
    return marks, ends


def _check_plain(config: EnvConfig, findings: Findings) -> None:
    """Look over an environment that is not Atari's."""

    def make() -> gymnasium.Env:
        with findings.stopping("making it"), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Gymnasium's own advice; what matters is told below
            return make_as_it_is(config.env_id, config.kwargs)

    def plain(env: gymnasium.Env) -> PlainEnv:
        with findings.stopping("spaces"):
            return PlainEnv(env, config.env_id)

    own = make()
    findings.ok("making it", type(own.unwrapped).__name__)
    with findings.closing(own):
        env = plain(own)
        _check_spaces(env, findings)
        play = _Play(env, findings)
        played, ends = _check_steps(play, findings)
        other = make()
        with findings.closing(other):
            steps = max(1, TWIN_STEPS * played // STEPS)
            _check_seeds(play, _Play(plain(other), findings), steps, findings)
        _check_limit(config, ends, findings)
    _check_pictures(own, config, findings)


def _check_spaces(env: PlainEnv, findings: Findings) -> None:
    """Say what is shown and done; an unsupported space has been told before."""
    findings.ok(SEEN, start_line.shown_parts(env.env_spec))
    for name in left_out_of(env.env):
        findings.note(
            SEEN,
            f"its {name} is left out: where the task is said there, the agent does not know it, "
            "unless a wrapper of yours makes numbers of it",
        )
    for _, box in leaves(env.env.observation_space):
        if is_image_space(box) and box.dtype != np.uint8:
            findings.note(
                SEEN,
                f"its images are {box.dtype}, which takes four times the memory of uint8 in replay",
            )
    findings.ok(ACTED, env.env_spec.actions.describe())
    for _, box in leaves(env.env.action_space):
        if isinstance(box, Box):
            _check_reach(box, findings)


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


class _Play:
    """Plays random actions in one environment, and judges as training does what comes back."""

    def __init__(self, env: PlainEnv, findings: Findings) -> None:
        """Begin with nothing seen."""
        self._env, self._findings = env, findings
        self._is_inside = True
        self.largest = 0.0  # of the numbers that were seen
        self.allowed: list[float] = []  # the share of what was allowed, at each step with a mask

    def reset(self, seed: int) -> np.ndarray:
        """Begin a game; return its first frame."""
        with self._findings.stopping("reset"):
            observation, info = reset_result(self._env.env.reset(seed=seed, options=None))
            self._env.masks.of_reset(info)
            return self._frame("reset", observation)

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool]:
        """Do one action; return (frame, reward, terminated, truncated)."""
        plain, mask = self._env, self._env.masks.now
        if mask is not None:
            self.allowed.append(float(mask.mean()))
            action = nearest_allowed(action, mask, plain.env_spec.actions)
            action = action.item() if plain.actions.is_single_choice else action
        with self._findings.stopping("step", f" for action {shown(action)}"):
            result: Any = plain.env.step(plain.actions.decode(action))
            observation, reward, terminated, truncated, info = step_result(result)
            plain.masks.of_step(info, terminated or truncated)
            return self._frame("step", observation), reward, terminated, truncated

    def actions(self) -> Iterator[Any]:
        """Yield random actions, the same ones each time; at first each of one choice."""
        space = self._env.action_space
        if isinstance(space, Discrete):
            yield from range(int(space.n))
        space.seed(SEED)
        while True:
            yield space.sample()

    def marks(self, seed: int, steps: int) -> list[int]:
        """Return a hash of what each step of a game shows, which a twin must have too."""
        marks = [hash(self.reset(seed).tobytes())]
        for action in islice(self.actions(), steps):
            frame, *rest = self.step(action)
            marks.append(hash((frame.tobytes(), *rest)))
            if rest[1] or rest[2]:
                marks.append(hash(self.reset(seed + 1).tobytes()))
        return marks

    def _frame(self, where: str, observation: Any) -> np.ndarray:
        frame, space = self._env.shown(observation), self._env.env.observation_space
        if self._is_inside and observation not in space:
            self._is_inside = False
            self._findings.note(
                where,
                f"returns {shown(observation)}, which is not in {SEEN} {space}: widen the space, "
                "or mend the number or its dtype",
            )
        for (_, leaf), value in zip(leaves(space), values(space, observation), strict=True):
            if isinstance(leaf, Box) and not is_image_space(leaf):
                self.largest = max(self.largest, np.abs(value).max(initial=0.0))
        return frame


def _check_steps(play: _Play, findings: Findings) -> tuple[int, int]:
    """Play STEPS or fewer; return how many, and the number of games that came to their end."""
    play.reset(SEED)
    findings.ok("reset", "returns (observation, info), the observation as its space says")
    ends: list[tuple[int, bool]] = []  # the length of a game, and whether it was terminated
    played = length = 0
    end_s = time.monotonic() + PLAY_S
    for action in islice(play.actions(), STEPS):
        if played and time.monotonic() > end_s:
            break
        _, reward, terminated, truncated = play.step(action)
        played, length = played + 1, length + 1
        if abs(reward) > LARGE_REWARD:
            findings.note(
                "step",
                f"rewards beyond {LARGE_REWARD:g} were seen: give "
                "--reward_clipping_method=abs_one_sign, or divide them",
            )
        if terminated or truncated:
            ends.append((length, terminated and not truncated))
            length = 0
            play.reset(SEED + len(ends))
    ended = f"{len(ends)} games came to their end" if ends else "no game ended"
    findings.ok("step", f"{played:,} steps of random actions; {ended}")
    if play.allowed:
        share = np.mean(play.allowed)
        findings.ok("action_mask", f"says what is allowed, {share:.0%} of it in the mean")
    if play.largest > LARGE_NUMBER:
        findings.note(
            "observation",
            f"has numbers up to {play.largest:g}, of which float32 keeps seven digits, and "
            "networks learn best from numbers of about 1: divide what is larger, show a clock as "
            "what has passed since the start of the game, or give --normalise_vectors=True",
        )
    if len(ends) >= ENOUGH_GAMES and set(ends) == {(ends[0][0], True)} and ends[0][0] > 1:
        findings.note(
            "truncated",
            f"each of {len(ends)} games was terminated after {ends[0][0]} steps, whatever was "
            "done. If that is a limit of time and not the end of the task, return "
            "truncated=True and terminated=False there: the value of the last state is learned "
            "otherwise",
        )
    return played, len(ends)


def _check_seeds(play: _Play, other: _Play, steps: int, findings: Findings) -> None:
    """Compare games of equal seeds: in one environment, and in another one made anew."""
    first = play.marks(SEED, steps)
    for where, again in (("", play), (" in another environment made anew", other)):
        marks = again.marks(SEED, steps)
        if marks != first:
            step = next(
                n for n, pair in enumerate(zip(first, marks, strict=False)) if len({*pair}) > 1
            )
            findings.wrong(
                "seed",
                f"two games with the same seed and actions differ from step {step} on{where}: "
                f"{RNG_ADVICE}",
            )
            return
    findings.ok("seed", "the same seed and actions give the same game")
    if all(play.marks(SEED + n, steps) == first for n in (1, 2, 3)):
        findings.note(
            "seed",
            "other seeds give the same game too: fine if nothing in it is random, otherwise "
            f"{RNG_ADVICE}",
        )


def _check_limit(config: EnvConfig, ends: int, findings: Findings) -> None:
    limit = max_game_steps(config)
    if limit is not None:
        findings.ok("time limit", f"Gymnasium truncates its games after {limit} steps")
    elif not ends:
        findings.note(
            "time limit", f"no game came to its end in these steps: {advice_on_limit(config)}"
        )


def _check_pictures(env: gymnasium.Env, config: EnvConfig, findings: Findings) -> None:
    modes = (getattr(env.unwrapped, "metadata", None) or {}).get("render_modes", [])
    if "rgb_array" not in modes:
        findings.note(
            "rendering",
            "rgb_array is not in metadata['render_modes']: its games cannot be recorded as films "
            "(--render=True and python -m ritornello.analysis). Training does not need it",
        )
        return
    with findings.stopping("rendering"):
        check_rendering(config, "rgb_array")
    findings.ok("rendering", "draws pictures")


def main(argv: Sequence[str]) -> int:
    """Check the environment that is named; print what is found; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m ritornello.wrappers.check",
        description="Says line by line what is wrong with an environment of yours.",
    )
    parser.add_argument("env", help="an id of Gymnasium, or <module>:<id> of your own")
    parser.add_argument("--env_backend", default="auto", choices=get_args(BackendChoice))
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
        findings = check(options.env, kwargs, show, options.env_backend)
    except PlatformError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    show(findings.verdict(options.env, kwargs, options.env_backend))
    return 1 if findings.wrongs else 0


if __name__ == "__main__":
    os.environ["SDL_VIDEODRIVER"] = "dummy"  # pictures are drawn without a display
    faulthandler.enable()  # an environment may crash in C
    leave(main(sys.argv[1:]))  # a thread of the environment does not keep it
