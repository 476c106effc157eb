"""What is wrong with an environment of yours, line by line.

    python -m ritornello.wrappers.check CartPole-v1
    python -m ritornello.wrappers.check my_envs:Cave-v0 --env_kwargs='{"size": 8}'

Each line is `ok`, `note` (it works, but look at it) or `wrong` (training would fail, or would learn
something else than you mean), followed by what to do. Exit status: 0 nothing is wrong, 1 something
is, 2 there is nothing to look at: the id is unknown, or the command cannot be understood; 130 it
was interrupted. Each line is printed when it is found, so the last one says how far an environment
came that hangs, or takes the program with it.

Games are played by the vectors of a training, with random actions from a seed of their own, so that
two looks at the same environment say the same.
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, redirect_stdout, suppress
from dataclasses import dataclass, field, replace
from typing import Any, get_args

import gymnasium
import numpy as np
from gymnasium.spaces import Box

from ritornello.core.command_line import counted, reader_may_leave, tell
from ritornello.core.errors import PlatformError
from ritornello.core.leaving import leave
from ritornello.core.plain_data import shown
from ritornello.core.project import main_command
from ritornello.core.spec import CHOICE, EnvSpec
from ritornello.wrappers import start_line
from ritornello.wrappers.action_masks import all_allowed
from ritornello.wrappers.batch_env import batch_backend
from ritornello.wrappers.config import BackendChoice, EnvConfig
from ritornello.wrappers.env_ids import check_env_id, is_atari
from ritornello.wrappers.env_kwargs import kwargs_text
from ritornello.wrappers.gym_vector import GymVector
from ritornello.wrappers.images import is_image_space
from ritornello.wrappers.plain_env import PlainEnv
from ritornello.wrappers.registry import (
    advice_on_limit,
    check_rendering,
    make_as_it_is,
    make_env_spec,
    make_env_vector,
    max_game_steps,
    tidied,
    tried,
)
from ritornello.wrappers.spaces import leaves, values
from ritornello.wrappers.trusted_modules import module_of, trust_kwargs, trust_modules_of
from ritornello.wrappers.user_code import RAISED, describe
from ritornello.wrappers.vector import EnvVector

SEED = 7
STEPS = 1_000  # of two environments, which mostly takes a second
PLAY_S = 30.0  # for slow environments, which play as many of these as they can in it
TWIN_STEPS = 100  # of the games that must be the same
ENOUGH_GAMES = 4  # of one length say that it is a limit
LARGE_REWARD = 1e4
LARGE_NUMBER = 100.0  # networks learn from numbers of about 1; tens still work
# Of vectors, and of images.
LARGE_ADVICE = (
    "of which float32 keeps seven digits, and networks learn best from numbers of about 1: divide "
    "what is larger, show a clock as what has passed since the start of the game, or give "
    "--normalise_vectors=True",
    "which the network takes as they are; pixels of uint8 it normalises: give the space the dtype "
    "np.uint8, or divide by 255",
)
SMALL_REACH, LARGE_REACH = 0.1, 20.0  # a bound nearer to 0, or a range wider, is far from 1
SEEN, ACTED = "observation_space", "action_space"
RNG_ADVICE = (
    "call super().reset(seed=seed) in reset, and draw every random number from self.np_random, "
    "none from the modules random or numpy.random"
)
# Of what differs only after another game in the same environment.
MEMORY_ADVICE = (
    ". Nothing else may be kept from game to game either: the running statistics of "
    "NormalizeObservation or NormalizeReward are in no checkpoint, so a test has others. Those of "
    "--normalise_vectors=True and of PopArt are in the model"
)


class Stop(Exception):
    """Something is so wrong that nothing else can be looked at."""


@dataclass
class Findings:
    """What was found, a line each, in the order in which it was looked for."""

    tell: Callable[[str], None] = lambda line: None  # is called with each line when it is found
    lines: list[str] = field(default_factory=list)
    are_inside: bool = True  # all observations so far were in their space

    def ok(self, what: str, text: str) -> None:
        """Say that something is as it should be."""
        self._say("ok", what, text)

    def note(self, what: str, text: str) -> None:
        """Say what works, but should be looked at."""
        self._say("note", what, text)

    def wrong(self, what: str, text: str) -> None:
        """Say what has to be mended."""
        self._say("wrong", what, text)

    def _say(self, level: str, what: str, text: str) -> None:
        line = f"{level:5}  {what}: {text}"
        if line not in self.lines:  # once is enough
            self.lines.append(line)
            self.tell(line)

    def count(self, level: str) -> int:
        """Return the number of lines of a level."""
        return sum(line.startswith(level) for line in self.lines)

    @contextmanager
    def stopping(self, what: str) -> Iterator[None]:
        """Stop at any exception in the body, and report it as an error of the environment."""
        try:
            yield
        except RAISED as error:
            is_told = isinstance(error, PlatformError)
            self.wrong(what, str(error).rstrip(".") if is_told else describe(error))
            raise Stop from error

    def verdict(self, config: EnvConfig) -> str:
        """Return the last lines: the number of findings, or the command that trains on it."""
        wrongs, notes = self.count("wrong"), self.count("note")
        if wrongs:
            return f"{config.env_id}: {wrongs} wrong, {notes} to look at"
        looks = f"; {notes} to look at" if notes else ""
        made_with = f" --env_kwargs={shlex.quote(config.kwargs)}" if config.kwargs else ""
        made_with += f" --env_backend={config.backend}" if config.backend != "auto" else ""
        return (
            f"{config.env_id}: nothing is wrong{looks}. Train on it:\n"
            f"  {main_command(module_of(config.env_id))} --env={config.env_id}{made_with}"
        )


def check(config: EnvConfig, show: Callable[[str], None] = lambda line: None) -> Findings:
    """Check one environment; call `show` with each line as soon as it is found.

    Raises:
      ConfigError: if there is no such environment.
    """
    check_env_id(config.env_id)
    findings = Findings(show)
    if not is_atari(config.env_id):
        config = replace(config, frames_stacked=1)
    with suppress(Stop):
        with findings.stopping("making it"):
            spec, made = make_env_spec(config), start_line.describe(config)
        (findings.note if "not seen" in made else findings.ok)("making it", made)
        _check_spaces(config, spec, findings)
        with tidied(config.env_id), findings.stopping("playing"):
            ends = _check_play(config, spec, findings)
        _check_limit(config, ends, findings)
        if _is_plain(config):
            _check_pictures(config, findings)
    return findings


def _is_plain(config: EnvConfig) -> bool:
    """Whether the environments are single ones of Gymnasium, without rules of this program."""
    return not is_atari(config.env_id) and not batch_backend(config)


def _check_spaces(config: EnvConfig, spec: EnvSpec, findings: Findings) -> None:
    """Report observations and actions; an unsupported space has been reported before."""
    findings.ok(SEEN, start_line.shown_parts(spec))
    of_game = (config.env_id, config.kwargs, config.backend)
    for name in () if is_atari(config.env_id) else tried(*of_game).left_out:
        findings.note(
            SEEN,
            f"its {name} is left out: where the task is said there, the agent does not know it, "
            "unless a wrapper of yours makes numbers of it",
        )
    if spec.shows_images and spec.frame_dtype == "float32":
        findings.note(SEEN, "its images are floats, four times the memory of uint8 in replay")
    findings.ok(ACTED, spec.actions.describe())


class _Watched(PlainEnv):
    """Looks at the observations of an environment that training would take."""

    def __init__(self, env: gymnasium.Env, env_id: str, findings: Findings) -> None:
        """Begin with nothing seen."""
        super().__init__(env, env_id)
        self._findings = findings
        self._encode = self._looked_at
        for _, box in leaves(env.action_space):
            if isinstance(box, Box):
                _check_reach(box, findings)

    def _looked_at(self, observation: Any) -> np.ndarray:
        frame = self.shown.encode(observation)  # raises what training would
        self._look(self.env.observation_space, observation)
        return frame

    def _look(self, space: gymnasium.Space, observation: Any) -> None:
        if self._findings.are_inside and observation not in space:
            self._findings.are_inside = False
            self._findings.note(
                "observation",
                f"{shown(observation)} is not in {SEEN} {space}: widen the space, "
                "or mend the number or its dtype",
            )
        for (_, leaf), value in zip(leaves(space), values(space, observation), strict=True):
            is_image = is_image_space(leaf)
            is_watched = isinstance(leaf, Box) and not (is_image and leaf.dtype == np.uint8)
            if is_watched and np.abs(np.asarray(value)).max(initial=0.0) > LARGE_NUMBER:
                has = f"has {'images with ' * is_image}numbers beyond {LARGE_NUMBER:g}"
                self._findings.note("observation", f"{has}, {LARGE_ADVICE[is_image]}")


def _check_reach(box: Box, findings: Findings) -> None:
    """Report whether the first actions, of mean 0 and deviation 1, fit the size of a Box."""
    low, high = box.low, box.high
    is_odd = (low > -SMALL_REACH) | (high < SMALL_REACH) | ((high - low) > LARGE_REACH)
    is_odd &= np.isfinite(low) & np.isfinite(high) & (low < high)
    for index in map(tuple, np.argwhere(low == high)[:1].tolist()):
        findings.note(ACTED, f"has {low[index]:g} alone at {list(index)}: leave it out")
    for index in map(tuple, np.argwhere(is_odd)[:1].tolist()):
        findings.note(
            ACTED,
            f"has numbers from {low[index]:g} to {high[index]:g} at {list(index)}, and the first "
            "actions have mean 0 and deviation 1: wrap it in "
            "gymnasium.wrappers.RescaleAction(env, -1, 1)",
        )


def _vector(config: EnvConfig, spec: EnvSpec, seeds: list[int], findings: Findings) -> EnvVector:
    """Return environments as training makes them, whose observations are looked at."""
    if not _is_plain(config):
        return make_env_vector(config, len(seeds), seeds)

    def make_env() -> gymnasium.Env:
        return _Watched(make_as_it_is(config), config.env_id, findings)

    return GymVector(spec, make_env, seeds)


def _drawn(vector: EnvVector, step: int, rng: np.random.Generator) -> np.ndarray:
    """Return random actions `[E, *action_shape]`, each moved on to one that is allowed now.

    The first environment goes through all choices in turn, so that none is left out by chance.
    """
    spec, count = vector.spec.actions, vector.num_envs
    columns: list[np.ndarray] = []
    for part in spec.parts:
        if part.kind == CHOICE:
            columns.append(rng.integers(part.count, size=(count, 1)))
            columns[-1][0] = step % part.count
        else:
            columns.append(rng.standard_normal((count, part.count)))
    actions = np.concatenate(columns, axis=1).astype(spec.dtype).reshape(count, *spec.shape)
    return all_allowed(actions, vector.action_mask, spec)


@dataclass
class _Played:
    """Results of random actions."""

    marks: list[int]  # a hash of what each step showed, which those of a twin must have too
    ends: list[tuple[int, bool]] = field(default_factory=list)  # (steps of a game, terminated)
    allowed: list[float] = field(default_factory=list)  # share of the choices at each step


def _play(vector: EnvVector, steps: int, findings: Findings) -> _Played:
    """Start games and play `steps` steps, or fewer if they are slow."""
    played = _Played([hash(vector.reset().tobytes())])
    rng, end_s = np.random.default_rng(SEED), time.monotonic() + PLAY_S
    while len(played.marks) <= steps and time.monotonic() < end_s:
        if vector.action_mask is not None:
            played.allowed.append(float(vector.action_mask.mean()))
        result = vector.step(_drawn(vector, len(played.marks) - 1, rng))
        seen = (result.stacks, result.reward, result.terminated, result.first)
        played.marks.append(hash(b"".join(each.tobytes() for each in seen)))
        for end in result.episodes:
            played.ends.append((end.length_steps, bool(result.terminated[end.env_id])))
        if np.abs(result.reward).max() > LARGE_REWARD:
            findings.note(
                "step",
                f"rewards beyond {LARGE_REWARD:g} were seen: give "
                "--reward_clipping_method=abs_one_sign, or divide them",
            )
    return played


def _check_play(config: EnvConfig, spec: EnvSpec, findings: Findings) -> int:
    """Play games; return how many ended. Games with equal seeds must be the same."""
    seeds = [SEED, SEED + 1]
    with closing(_vector(config, spec, seeds, findings)) as vector:
        first = _play(vector, STEPS, findings)
        _tell_steps(first, findings)
        again = _play(vector, TWIN_STEPS, findings)
    with closing(_vector(config, spec, seeds, findings)) as vector:
        anew = _play(vector, TWIN_STEPS, findings)
    more = MEMORY_ADVICE * (_first_difference(first, anew) is None)
    for where, twin in (("", again), (" in another environment made anew", anew)):
        step = _first_difference(first, twin)
        if step is not None:
            text = f"two games with the same seed and actions differ from step {step} on{where}"
            findings.wrong("seed", f"{text}: {RNG_ADVICE}{more}")
            return len(first.ends)
    findings.ok("seed", "the same seed and actions give the same game")
    with closing(_vector(config, spec, [SEED + 2, SEED + 3], findings)) as vector:
        if _first_difference(first, _play(vector, TWIN_STEPS, findings)) is None:
            text = "other seeds give the same game too: fine if nothing in it is random, otherwise"
            findings.note("seed", f"{text} {RNG_ADVICE}")
    return len(first.ends)


def _first_difference(one: _Played, other: _Played) -> int | None:
    """Return the number of the first step that differs, among those that both have, or None."""
    pairs = enumerate(zip(one.marks, other.marks, strict=False))
    return next((number for number, marks in pairs if len({*marks}) > 1), None)


def _tell_steps(played: _Played, findings: Findings) -> None:
    ends = played.ends
    ended = f"{counted(len(ends), 'game')} ended" if ends else "no game ended"
    findings.ok("step", f"{2 * len(played.marks) - 2:,} steps of random actions; {ended}")
    if played.allowed:
        share = np.mean(played.allowed)
        findings.ok("action_mask", f"says what is allowed, {share:.0%} of it in the mean")
    if len(ends) >= ENOUGH_GAMES and set(ends) == {(ends[0][0], True)} and ends[0][0] > 1:
        findings.note(
            "truncated",
            f"each of {len(ends)} games was terminated after {ends[0][0]} steps, whatever was "
            "done. If that is a limit of time and not the end of the task, return "
            "truncated=True and terminated=False there: the value of the last state is learned "
            "otherwise",
        )


def _check_limit(config: EnvConfig, ends: int, findings: Findings) -> None:
    limit = max_game_steps(config)
    if limit is not None:
        findings.ok("time limit", f"games are truncated after {limit} steps")
    elif not ends:
        said = f"no game came to its end in these steps: {advice_on_limit(config)}"
        findings.note("time limit", said)


def _check_pictures(config: EnvConfig, findings: Findings) -> None:
    try:
        check_rendering(config, "rgb_array")
    except PlatformError as error:
        text = "its games cannot be recorded as films, which training does not need"
        findings.note("rendering", f"{text}: {error}")
    else:
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
        with redirect_stdout(output), reader_may_leave():
            tell(text)

    try:
        kwargs = kwargs_text(options.env_kwargs)
        trust_kwargs(kwargs)
        config = EnvConfig(options.env, kwargs=kwargs, backend=options.env_backend)
        findings = check(config, show)
    except PlatformError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    show(findings.verdict(config))
    return 1 if findings.count("wrong") else 0


if __name__ == "__main__":
    os.environ["SDL_VIDEODRIVER"] = "dummy"  # pictures are drawn without a display
    faulthandler.enable()  # an environment may crash in C
    leave(main(sys.argv[1:]))  # a thread of the environment does not keep it
