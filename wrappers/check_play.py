"""What the checker (wrappers/check.py) sees while it plays: what reset and step return, and seeds.

Games are played with random actions from a seed of their own, so that two looks at the same
environment say the same. Observations are those of the environment itself, before this program has
turned its images.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NoReturn

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, Tuple

from ritornello.core.errors import ConfigError, EnvironmentFault
from ritornello.core.plain_data import shown
from ritornello.core.project import main_command
from ritornello.wrappers.gym_checks import (
    first_frame_of,
    flag_of,
    loses_digits,
    parts_of,
    reward_of,
)
from ritornello.wrappers.gym_observations import PartsObservation, spaces_in
from ritornello.wrappers.user_code import RAISED, describe

STEPS = 2_000  # of random play; most environments do that within a second
TWIN_STEPS = 200  # of the two games that must be the same
SEED = 7
LARGE_REWARD = 1e4
ENOUGH_GAMES = 4  # of one length say that it is a limit
RNG_ADVICE = (
    "call super().reset(seed=seed) in reset, and draw every random number from self.np_random, "
    "none from the modules random or numpy.random"
)


class Stop(Exception):
    """Something is so wrong that nothing else can be looked at."""


@dataclass
class Findings:
    """What was found, in the order in which it was looked for."""

    tell: Callable[[str], None] = lambda line: None  # is called with each line when it is found
    lines: list[str] = field(default_factory=list)
    wrongs: int = 0
    notes: int = 0
    has_ended: bool = False  # whether some game came to its end
    _said: set[tuple[str, str]] = field(default_factory=set)

    def ok(self, what: str, text: str) -> None:
        """Say that something is as it should be."""
        self._say("ok", what, text)

    def note(self, what: str, text: str) -> None:
        """Say what works, but should be looked at."""
        self.notes += self._say("note", what, text)

    def wrong(self, what: str, text: str) -> None:
        """Say what has to be mended."""
        self.wrongs += self._say("wrong", what, text)

    def stop(self, what: str, text: str) -> NoReturn:
        """Say what has to be mended before anything else can be looked at."""
        self.wrong(what, text)
        raise Stop

    @contextmanager
    def stopping(self, what: str, doing: str = "") -> Iterator[None]:
        """Stop at whatever the body raises, which is told as an error of the environment."""
        try:
            yield
        except Stop:
            raise
        except EnvironmentFault as fault:
            self.stop(what, str(fault).rstrip("."))
        except ConfigError as error:  # about the arguments
            self.stop(what, str(error))
        except RAISED as error:
            self.stop(what, f"raises {describe(error)}{doing}")

    def verdict(self, env_id: str, kwargs: str = "") -> str:
        """Return the last line, of an environment that is made with `kwargs`."""
        if self.wrongs:
            return f"{env_id}: {self.wrongs} wrong, {self.notes} to look at"
        looks = f"; {self.notes} to look at" if self.notes else ""
        made_with = f" --env_kwargs={shlex.quote(kwargs)}" if kwargs else ""
        return (
            f"{env_id}: nothing is wrong{looks}. Train on it:\n"
            f"  {main_command()} --env={env_id}{made_with}"
        )

    def _say(self, level: str, what: str, text: str) -> bool:
        if (what, text) in self._said:
            return False  # once is enough
        self._said.add((what, text))
        self.lines.append(f"{level:5}  {what}: {text}")
        self.tell(self.lines[-1])
        return True


def play(env: gymnasium.Env, make: Callable[..., gymnasium.Env], findings: Findings) -> None:
    """Play, and say what is wrong with what comes back.

    Args:
      env: the environment; its spaces are supported.
      make: function that makes another one like it.
      findings: the list that takes what is found; its `stop` is raised where play cannot go on.
    """
    _check_reset(env, findings)
    _check_steps(env, findings)
    _check_seeds(env, make, findings)


def close(env: gymnasium.Env, findings: Findings) -> None:
    """Close an environment, and say it if that raises."""
    try:
        env.close()
    except RAISED as error:
        findings.wrong("close", f"raises {describe(error)}")


def _check_reset(env: gymnasium.Env, findings: Findings) -> None:
    observation = _reset(env, SEED, findings)
    before = findings.wrongs
    _check_observation("reset", observation, PartsObservation(env), findings)
    try:
        env.reset()
        env.reset(seed=SEED, options={})
    except RAISED as error:
        findings.wrong(
            "reset",
            f"raises {describe(error)} when it is called as reset() or reset(seed=1, options={{}})"
            ": declare def reset(self, *, seed=None, options=None)",
        )
    if findings.wrongs == before:
        findings.ok("reset", "returns (observation, info), the observation as its space says")


def _reset(env: gymnasium.Env, seed: int, findings: Findings) -> Any:
    with findings.stopping("reset"):
        return first_frame_of(env.reset(seed=seed))


def _check_steps(env: gymnasium.Env, findings: Findings) -> None:
    """Play STEPS with random actions, each action at least once."""
    before = findings.wrongs
    actions, seen = _Actions(env.action_space), PartsObservation(env)
    _reset(env, SEED, findings)
    lengths: list[int] = []
    terminated_lengths: list[int] = []
    length = 0
    for number in range(STEPS):
        terminated, truncated = _check_step(seen, actions.take(number), findings)
        length += 1
        if terminated or truncated:
            lengths.append(length)
            if terminated and not truncated:
                terminated_lengths.append(length)
            length = 0
            _reset(env, SEED + len(lengths), findings)
    findings.has_ended = bool(lengths)
    if findings.wrongs == before:
        ended = f"{len(lengths)} games came to their end" if lengths else "no game ended"
        findings.ok("step", f"{STEPS:,} steps of random actions; {ended}")
    alike = len(set(terminated_lengths)) == 1 and len(terminated_lengths) == len(lengths)
    if alike and len(lengths) >= ENOUGH_GAMES and lengths[0] > 1:
        findings.note(
            "truncated",
            f"each of {len(lengths)} games was terminated after {lengths[0]} steps, whatever was "
            "done. If that is a limit of time and not the end of the task, return "
            "truncated=True and terminated=False there: the value of the last state is learned "
            "otherwise",
        )


class _Actions:
    """Random actions of a space, the same ones each time."""

    def __init__(self, space: gymnasium.Space) -> None:
        self._space = space
        self._random = np.random.default_rng(SEED)
        if not isinstance(space, Discrete):
            space.seed(SEED)

    def take(self, number: int | None = None) -> Any:
        """Return an action: of one choice the one of this number, if there is one; else a draw."""
        if not isinstance(self._space, Discrete):
            return self._space.sample()
        count = int(self._space.n)
        if number is None or number >= count:
            number = int(self._random.integers(count))
        return number + int(self._space.start)


def _check_step(seen: PartsObservation, action: Any, findings: Findings) -> tuple[bool, bool]:
    with findings.stopping("step", f" for action {shown(action)}"):
        observation, reward, terminated, truncated, info = parts_of(seen.env.step(action))
    _check_observation("step", observation, seen, findings)
    with findings.stopping("step"):
        number = reward_of(reward)
    if abs(number) > LARGE_REWARD:
        findings.note(
            "step",
            f"rewards beyond {LARGE_REWARD:g} were seen: give "
            "--reward_clipping_method=abs_one_sign, or divide them",
        )
    if "TimeLimit.truncated" in info and not truncated:
        findings.wrong(
            "truncated",
            "info has TimeLimit.truncated, as Gym before 0.26: return truncated=True instead",
        )
    with findings.stopping("step"):
        return flag_of("terminated", terminated), flag_of("truncated", truncated)


def _check_observation(
    where: str, observation: Any, seen: PartsObservation, findings: Findings
) -> None:
    """Say how an observation differs from its space; stop if training would not take it."""
    with findings.stopping(where):
        seen.shown(observation)
    for path, space, array in _boxes(seen.env.observation_space, observation):
        if array.dtype != space.dtype:
            findings.note(
                where,
                f"returns observation{path} as {array.dtype}, and observation_space has "
                f"{space.dtype}",
            )
        if loses_digits(array):
            findings.note(
                f"observation{path}",
                "has numbers beyond 2**24, of which float32 keeps seven digits: the agent does not "
                "see them change. Show what has passed since the start of the game, or a rest",
            )
        outside = (array < space.low) | (array > space.high)
        if outside.any():
            index = np.argwhere(outside)[0].tolist()
            place = tuple(index)
            findings.wrong(
                where,
                f"shows numbers outside of observation_space{path} at {index} (there it is from "
                f"{space.low[place]:g} to {space.high[place]:g}): widen the space, or mend the "
                "number",
            )


def _boxes(
    space: gymnasium.Space, value: Any, path: str = ""
) -> Iterator[tuple[str, Box, np.ndarray]]:
    """Yield the boxes of an observation that is as its space says, and what is in them."""
    if isinstance(space, (Dict, Tuple)):
        for name, one in spaces_in(space):
            yield from _boxes(one, value[name], f"{path}[{name!r}]")
    elif isinstance(space, Box):
        yield path, space, np.asarray(value)


def _check_seeds(
    env: gymnasium.Env, make: Callable[..., gymnasium.Env], findings: Findings
) -> None:
    """Compare games of equal seeds: in one environment, and in another one made anew."""
    first = _game(env, SEED, findings)
    difference = _difference(first, _game(env, SEED, findings))
    if difference:
        findings.wrong(
            "seed", f"two games with the same seed and actions differ in {difference}: {RNG_ADVICE}"
        )
        return
    try:
        other = make()
    except RAISED as error:
        findings.stop("making it", f"works once, and then raises {describe(error)}")
    try:
        difference = _difference(first, _game(other, SEED, findings))
    finally:
        close(other, findings)
    if difference:
        findings.wrong(
            "seed",
            f"a game differs in {difference} from one with the same seed and actions in another "
            f"environment of the same kind: something is left over from before. {RNG_ADVICE}",
        )
        return
    findings.ok("seed", "the same seed and actions give the same game")
    if all(_difference(first, _game(env, SEED + n, findings)) is None for n in (1, 2, 3)):
        findings.note(
            "seed",
            "other seeds give the same game too: fine if nothing in it is random, otherwise "
            f"{RNG_ADVICE}",
        )


def _game(env: gymnasium.Env, seed: int, findings: Findings) -> list[tuple[str, Any]]:
    """Play TWIN_STEPS with actions that are always the same; return all that was seen, in words."""
    actions, shown_as = _Actions(env.action_space), PartsObservation(env)
    first = shown_as.shown(_reset(env, seed, findings)).copy()
    seen: list[tuple[str, Any]] = [("their first observation", first)]
    with findings.stopping("step"):
        for step in range(1, TWIN_STEPS + 1):
            observation, reward, terminated, truncated, _ = env.step(actions.take())
            seen.append((f"whether they ended at step {step}", (terminated, truncated)))
            seen.append((f"the reward of step {step}", reward))
            seen.append(("a later observation", shown_as.shown(observation).copy()))
            if terminated or truncated:
                observation = _reset(env, seed + 1, findings)
                seen.append(("a later observation", shown_as.shown(observation).copy()))
    return seen


def _difference(one: list[tuple[str, Any]], two: list[tuple[str, Any]]) -> str | None:
    """Return what differs first between two games, in words; None if nothing does."""
    pairs = zip(one, two, strict=False)  # of other lengths only if they differ before
    return next((what for (what, a), (_, b) in pairs if not np.array_equal(a, b)), None)
