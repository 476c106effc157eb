"""CartPole that misbehaves when it is told to, and leaves a mark for each process that it lives in.

What it does is told by environment variables, because they reach worker processes however these are
started, and because a resume without them finds the same environment in good health:

    CHAOS_BEHAVIOUR   what to do, see BEHAVIOURS; nothing: behave
    CHAOS_AFTER       after so many steps of one environment
    CHAOS_TIMES       so often, all processes together
    CHAOS_FOLDER      exists; for marks and for counting across processes
"""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.classic_control.cartpole import CartPoleEnv

LONG_S = 3600.0
STEPS: dict[str, Any] = {}  # behaviours of `step`: name -> function of (environment, result)
# These happen elsewhere than in `step`.
IN_CONSTRUCTOR = ("raise_in_constructor", "hang_in_constructor")
IN_RESET = ("raise_in_reset", "hang_in_reset", "nan_reset", "shape_reset")
ALWAYS = ("leak_process", "leak_session", "raise_in_close", "chatter", "ignore_signals")
Result = tuple[Any, ...]


def _behaviour(function: Any) -> Any:
    STEPS[function.__name__.strip("_")] = function
    return function


class ChaosCartPole(CartPoleEnv):
    """CartPole with a second face."""

    def __init__(self, **more: Any) -> None:
        """Make the environment, and whatever it was told to do at that."""
        super().__init__(**more)
        self._behaviour = os.environ.get("CHAOS_BEHAVIOUR", "")
        self._after = int(os.environ.get("CHAOS_AFTER", "0"))
        self._steps = 0
        self._helper: subprocess.Popen | None = None
        _mark("process", os.getpid())
        in_worker = multiprocessing.parent_process() is not None
        # The learner makes one as well, to look at it: only a worker can be replaced.
        hangs_here = in_worker or self._behaviour != "hang_in_constructor"
        if self._behaviour in IN_CONSTRUCTOR and hangs_here and _takes_turn():
            _raise_or_hang(self._behaviour)
        if self._behaviour in ("leak_process", "leak_session"):
            self._helper = subprocess.Popen(
                [sys.executable, "-c", f"import time; time.sleep({LONG_S})"],
                start_new_session=self._behaviour == "leak_session",
            )
        if self._behaviour == "ignore_signals":
            for number in (signal.SIGTERM, signal.SIGHUP):
                with contextlib.suppress(ValueError):  # only the main thread may
                    signal.signal(number, signal.SIG_IGN)

    def reset(self, **more: Any) -> Result:
        """Begin a game."""
        observation, info = super().reset(**more)
        if self._behaviour in IN_RESET and self._is_time() and _takes_turn():
            if self._behaviour == "nan_reset":
                return np.full_like(observation, np.nan), info
            if self._behaviour == "shape_reset":
                return observation[:1], info
            _raise_or_hang(self._behaviour)
        return observation, info

    def step(self, action: Any) -> Result:
        """Play one step."""
        self._steps += 1
        result = super().step(action)
        if self._behaviour == "chatter" and self._steps % 10 == 0:
            sys.stdout.write("the environment says something " * 30 + "\n")
        misbehave = STEPS.get(self._behaviour)
        if misbehave is not None and self._is_time() and _takes_turn():
            return misbehave(self, result)
        return result

    def close(self) -> None:
        """End what the environment has started."""
        if self._behaviour == "raise_in_close" and self._steps:
            raise RuntimeError("this environment fails when it is closed")
        if self._helper is not None:
            self._helper.kill()
            self._helper.wait()
        super().close()

    def _is_time(self) -> bool:
        return self._steps >= self._after


@_behaviour
def _raise_in_step(env: ChaosCartPole, result: Result) -> Result:
    raise RuntimeError("this environment fails in step")


@_behaviour
def _hang_in_step(env: ChaosCartPole, result: Result) -> Result:
    time.sleep(LONG_S)
    return result


@_behaviour
def _hang_deaf(env: ChaosCartPole, result: Result) -> Result:
    """Hang in C code that no Python signal handler interrupts, SIGTERM ignored."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    libc = ctypes.CDLL(None)
    while True:
        libc.sleep(int(LONG_S))


@_behaviour
def _spin(env: ChaosCartPole, result: Result) -> Result:
    end = time.monotonic() + LONG_S
    while time.monotonic() < end:
        pass
    return result


@_behaviour
def _leave(env: ChaosCartPole, result: Result) -> Result:
    sys.exit(0)


@_behaviour
def _leave_at_once(env: ChaosCartPole, result: Result) -> Result:
    os._exit(0)


@_behaviour
def _segfault(env: ChaosCartPole, result: Result) -> Result:
    os.kill(os.getpid(), signal.SIGSEGV)
    return result


@_behaviour
def _interrupt(env: ChaosCartPole, result: Result) -> Result:
    raise KeyboardInterrupt


@_behaviour
def _no_memory(env: ChaosCartPole, result: Result) -> Result:
    raise MemoryError("this environment finds no memory")


@_behaviour
def _four_values(env: ChaosCartPole, result: Result) -> Result:
    return result[0], result[1], result[2], result[4]


@_behaviour
def _short_observation(env: ChaosCartPole, result: Result) -> Result:
    return result[0][:1], *result[1:]


@_behaviour
def _scalar_observation(env: ChaosCartPole, result: Result) -> Result:
    return np.float32(0.5), *result[1:]


@_behaviour
def _long_observation(env: ChaosCartPole, result: Result) -> Result:
    return np.zeros(5, np.float32), *result[1:]


@_behaviour
def _text_observation(env: ChaosCartPole, result: Result) -> Result:
    return np.array(["1.5", "0", "0", "0"]), *result[1:]


@_behaviour
def _no_observation(env: ChaosCartPole, result: Result) -> Result:
    return None, *result[1:]


@_behaviour
def _nan_observation(env: ChaosCartPole, result: Result) -> Result:
    return np.full_like(result[0], np.nan), *result[1:]


@_behaviour
def _inf_observation(env: ChaosCartPole, result: Result) -> Result:
    return np.full_like(result[0], np.inf), *result[1:]


@_behaviour
def _huge_observation(env: ChaosCartPole, result: Result) -> Result:
    return np.full_like(result[0], 1e38), *result[1:]


@_behaviour
def _nan_reward(env: ChaosCartPole, result: Result) -> Result:
    return result[0], float("nan"), *result[2:]


@_behaviour
def _inf_reward(env: ChaosCartPole, result: Result) -> Result:
    return result[0], float("inf"), *result[2:]


@_behaviour
def _huge_reward(env: ChaosCartPole, result: Result) -> Result:
    return result[0], 1e300, *result[2:]


@_behaviour
def _no_reward(env: ChaosCartPole, result: Result) -> Result:
    return result[0], None, *result[2:]


@_behaviour
def _array_reward(env: ChaosCartPole, result: Result) -> Result:
    return result[0], np.ones(3), *result[2:]


BEHAVIOURS = (*STEPS, *IN_CONSTRUCTOR, *IN_RESET, *ALWAYS)


def _raise_or_hang(behaviour: str) -> None:
    if behaviour.startswith("hang"):
        time.sleep(LONG_S)
    raise RuntimeError(f"this environment was told to {behaviour.replace('_', ' ')}")


def _takes_turn() -> bool:
    """Whether one of the CHAOS_TIMES turns is left; takes it, across all processes."""
    times = int(os.environ.get("CHAOS_TIMES", "1000000"))
    if times >= 1000:
        return True
    return any(_mark("turn", number) for number in range(times))


def _mark(kind: str, number: int) -> bool:
    """Leave a mark; return whether it is new. Without a folder no mark can be left."""
    folder = os.environ.get("CHAOS_FOLDER")
    if folder is None:
        return False
    with contextlib.suppress(OSError):
        (Path(folder) / f"{kind}_{number}").touch(exist_ok=False)
        return True
    return False


def marked_processes(folder: Path) -> set[int]:
    """Return the ids of the processes that made environments which left their mark in a folder."""
    return {int(path.name.split("_")[1]) for path in folder.glob("process_*")}


class ChaosOfNumbers(ChaosCartPole):
    """The same with one real number as its action: its sign says where the cart is pushed."""

    def __init__(self, **more: Any) -> None:
        """Make the environment."""
        super().__init__(**more)
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def step(self, action: Any) -> Result:
        """Play one step."""
        # CartPole looks into its action space itself.
        self.action_space, numbers = gymnasium.spaces.Discrete(2), self.action_space
        try:
            return super().step(int(action[0] > 0))
        finally:
            self.action_space = numbers


gymnasium.register("ChaosCartPole-v0", entry_point=ChaosCartPole, max_episode_steps=500)
gymnasium.register("ChaosOfNumbers-v0", entry_point=ChaosOfNumbers, max_episode_steps=500)
