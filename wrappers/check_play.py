"""What the checker (wrappers/check.py) sees while it plays: what reset and step return, and seeds.

Observations are those of the environment itself, before this program has turned its images.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NoReturn

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete

from ritornello.core.errors import PlatformError
from ritornello.core.plain_data import shown
from ritornello.core.project import main_command
from ritornello.wrappers.gym_observations import ObservationCode
from ritornello.wrappers.plain_env import observation_code, reset_result, step_result
from ritornello.wrappers.spaces import leaves, values
from ritornello.wrappers.user_code import RAISED, describe

STEPS = 2_000  # of random play; most environments do that within a second
PLAY_S = 30.0  # for a slow environment, which plays as many of these as it can
TWIN_STEPS = 200  # of the two games that must be the same, where STEPS were played
SEED = 7
LARGE_REWARD = 1e4
ENOUGH_GAMES = 4  # of one length say that it is a limit
EXACT_UP_TO = 2.0**24  # in float32, of whole numbers
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
        except PlatformError as error:
            self.stop(what, str(error).rstrip("."))
        except RAISED as error:
            self.stop(what, f"raises {describe(error)}{doing}")

    @contextmanager
    def closing(self, env: gymnasium.Env) -> Iterator[None]:
        """Close an environment after the body, and say it if that raises."""
        try:
            yield
        finally:
            try:
                env.close()
            except RAISED as error:
                self.wrong("close", f"raises {describe(error)}")

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
        line = f"{level:5}  {what}: {text}"
        if line in self.lines:
            return False  # once is enough
        self.lines.append(line)
        self.tell(line)
        return True


def play(env: gymnasium.Env, make: Callable[..., gymnasium.Env], findings: Findings) -> None:
    """Play, and say what is wrong with what comes back.

    Args:
      env: the environment; its spaces are supported.
      make: function that makes another one like it.
      findings: the list that takes what is found; its `stop` is raised where play cannot go on.
    """
    code = observation_code(env)
    _check_reset(env, code, findings)
    played = _check_steps(env, code, findings)
    twin_steps = max(1, TWIN_STEPS * played // STEPS)

    def game(env: gymnasium.Env, seed: int) -> list[tuple[str, Any]]:
        return _game(env, seed, twin_steps, code, findings)

    _check_seeds(env, make, game, findings)


def _check_reset(env: gymnasium.Env, code: ObservationCode, findings: Findings) -> None:
    before = findings.wrongs
    observation = _reset(env, SEED, findings)
    _check_observation("reset", observation, env, code, findings)
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
        return reset_result(env.reset(seed=seed))[0]


def _check_steps(env: gymnasium.Env, code: ObservationCode, findings: Findings) -> int:
    """Play STEPS with random actions, each action at least once, or fewer; return how many."""
    before = findings.wrongs
    _reset(env, SEED, findings)
    ends: list[tuple[int, bool]] = []  # the length of a game, and whether it was terminated
    played = length = 0
    end_s = time.monotonic() + PLAY_S
    for action in islice(_actions(env.action_space), STEPS):
        if played and time.monotonic() > end_s:
            break
        played += 1
        terminated, truncated = _check_step(env, action, code, findings)
        length += 1
        if terminated or truncated:
            ends.append((length, terminated and not truncated))
            length = 0
            _reset(env, SEED + len(ends), findings)
    findings.has_ended = bool(ends)
    if findings.wrongs == before:
        ended = f"{len(ends)} games came to their end" if ends else "no game ended"
        findings.ok("step", f"{played:,} steps of random actions; {ended}")
    if len(ends) >= ENOUGH_GAMES and set(ends) == {(ends[0][0], True)} and ends[0][0] > 1:
        findings.note(
            "truncated",
            f"each of {len(ends)} games was terminated after {ends[0][0]} steps, whatever was "
            "done. If that is a limit of time and not the end of the task, return "
            "truncated=True and terminated=False there: the value of the last state is learned "
            "otherwise",
        )
    return played


def _actions(space: gymnasium.Space) -> Iterator[Any]:
    """Yield random actions of a space, the same ones each time; at first each of one choice."""
    if not isinstance(space, Discrete):
        space.seed(SEED)
        while True:
            yield space.sample()
    first, count = int(space.start), int(space.n)
    yield from range(first, first + count)
    random = np.random.default_rng(SEED)
    while True:
        yield first + int(random.integers(count))


def _check_step(
    env: gymnasium.Env, action: Any, code: ObservationCode, findings: Findings
) -> tuple[bool, bool]:
    with findings.stopping("step", f" for action {shown(action)}"):
        observation, reward, terminated, truncated, info = step_result(env.step(action))
    _check_observation("step", observation, env, code, findings)
    if abs(reward) > LARGE_REWARD:
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
    return terminated, truncated


def _check_observation(
    where: str, observation: Any, env: gymnasium.Env, code: ObservationCode, findings: Findings
) -> None:
    """Say how an observation differs from its space; stop if training would not take it."""
    with findings.stopping(where):
        code(observation)
    space = env.observation_space
    for (path, leaf), value in zip(leaves(space), values(space, observation), strict=True):
        if isinstance(leaf, Box):
            _check_numbers(where, path, leaf, np.asarray(value), findings)


def _check_numbers(
    where: str, path: str, space: Box, array: np.ndarray, findings: Findings
) -> None:
    if array.dtype != space.dtype:
        findings.note(
            where,
            f"returns observation{path} as {array.dtype}, and observation_space has {space.dtype}",
        )
    if _loses_digits(array):
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
            f"{space.low[place]:g} to {space.high[place]:g}): widen the space, or mend the number",
        )


def _loses_digits(array: np.ndarray) -> bool:
    """Whether whole numbers of an array, a clock say, can no longer be told apart in float32."""
    if np.can_cast(array.dtype, np.float32):
        return False
    large = array[np.isfinite(array) & (np.abs(array) > EXACT_UP_TO)]
    return bool((large.astype(np.float32).astype(np.float64) != large).any())


def _check_seeds(
    env: gymnasium.Env,
    make: Callable[..., gymnasium.Env],
    game: Callable[[gymnasium.Env, int], list[tuple[str, Any]]],
    findings: Findings,
) -> None:
    """Compare games of equal seeds: in one environment, and in another one made anew."""
    first = game(env, SEED)
    difference = _difference(first, game(env, SEED))
    if difference:
        findings.wrong(
            "seed", f"two games with the same seed and actions differ in {difference}: {RNG_ADVICE}"
        )
        return
    try:
        other = make()
    except RAISED as error:
        findings.stop("making it", f"works once, and then raises {describe(error)}")
    with findings.closing(other):
        difference = _difference(first, game(other, SEED))
    if difference:
        findings.wrong(
            "seed",
            f"a game differs in {difference} from one with the same seed and actions in another "
            f"environment of the same kind: something is left over from before. {RNG_ADVICE}",
        )
        return
    findings.ok("seed", "the same seed and actions give the same game")
    if all(_difference(first, game(env, SEED + n)) is None for n in (1, 2, 3)):
        findings.note(
            "seed",
            "other seeds give the same game too: fine if nothing in it is random, otherwise "
            f"{RNG_ADVICE}",
        )


def _game(
    env: gymnasium.Env, seed: int, steps: int, code: ObservationCode, findings: Findings
) -> list[tuple[str, Any]]:
    """Play with actions that are always the same; return (in words, what was seen) in order.

    Of an observation there is a hash, because hundreds of large ones would fill the memory.
    """

    def seen_in(observation: Any) -> int:
        return hash(code(observation).tobytes())

    seen: list[tuple[str, Any]] = []
    with findings.stopping("step"):
        seen.append(("their first observation", seen_in(_reset(env, seed, findings))))
        for step, action in enumerate(islice(_actions(env.action_space), steps), 1):
            observation, reward, terminated, truncated, _ = step_result(env.step(action))
            seen.append((f"whether they ended at step {step}", (terminated, truncated)))
            seen.append((f"the reward of step {step}", reward))
            seen.append(("a later observation", seen_in(observation)))
            if terminated or truncated:
                again = seen_in(_reset(env, seed + 1, findings))
                seen.append(("a later observation", again))
    return seen


def _difference(one: list[tuple[str, Any]], two: list[tuple[str, Any]]) -> str | None:
    """Return what differs first between two games, in words; None if nothing does."""
    pairs = zip(one, two, strict=False)  # of other lengths only if they differ before
    return next((what for (what, a), (_, b) in pairs if a != b), None)
