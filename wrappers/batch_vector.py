"""E environments in one object of Gymnasium's `VectorEnv`: one call steps them all.

What a vector does after the end of a game is its autoreset mode, which its metadata says:

* NEXT_STEP shows the last observation; the next step ignores the action and shows the new game.
  That is what rows of this program are (wrappers/vector.py).
* SAME_STEP shows the new game in place of the last observation, which is in `info["final_obs"]`.
* DISABLED does nothing: `reset(options={"reset_mask": mask})` starts the games of a mask anew.

In the last two no environment can wait for the reset row of another: `step` steps all. So where a
reset row is due, an environment goes on hidden for one step and is then started by a mask. A vector
in SAME_STEP that knows no mask keeps its hidden step: its games are seen from their second
observation on, which the log and `wrappers.check` say.

Next to read: wrappers/batch_env.py, which makes such vectors.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv

from ritornello.core.episode import EpisodeEnd
from ritornello.core.errors import ConfigError, EnvironmentFault
from ritornello.core.plain_data import shown, shown_text
from ritornello.core.saved_state import array
from ritornello.core.spec import CHOICE, EnvSpec
from ritornello.wrappers.action_masks import KEY, NONE_AT_RESET, MaskTakenOut, all_allowed
from ritornello.wrappers.env_ids import is_atari
from ritornello.wrappers.gym_observations import MAX_FLOAT32
from ritornello.wrappers.gym_vector import episode_seed
from ritornello.wrappers.plain_env import STEP_RETURNS, PlainEnv, reset_result
from ritornello.wrappers.user_code import RAISED, describe, fault_of
from ritornello.wrappers.vector import (
    EnvVector,
    StepResult,
    check_actions,
    check_as_tried,
    check_played_again,
    checksums,
    saved_seeds,
)

log = logging.getLogger(__name__)


class BatchVector(EnvVector):
    """E environments that a `VectorEnv` of NumPy, JAX or Torch steps together.

    Vectors that take a seed for each environment (Gymnasium's own two, EnvPool) are given those of
    wrappers/gym_vector.py, others one seed for all. Because everything follows from the seeds and
    the actions since `reset`, these say where the environments are: `load_state_dict` plays all of
    them again. Owns the environments and the stacks it returns. Not thread-safe.
    """

    def __init__(
        self,
        make_env: Callable[[int], VectorEnv],
        env_id: str,
        seeds: Sequence[int],
        spec: EnvSpec | None = None,
        restorable: bool = False,
    ) -> None:
        """Make E environments.

        Args:
          make_env: function that makes a vector of so many environments.
          env_id: id of one of them, for messages.
          seeds: E root seeds.
          spec: what the environments show. None: it is read from them, and `reset` finds out
            whether they have masks.
          restorable: keep all actions since `reset`, for `state_dict`.

        Raises:
          ConfigError: if the spaces or the autoreset mode are not supported.
          EnvironmentFault: if the environments cannot be made; later, if they raise an exception or
            return something invalid.
        """
        self.num_envs, self._env_id = len(seeds), env_id
        self._seeds = [int(seed) for seed in seeds]
        self._steps = -1  # since reset; -1 before it
        with self._told():
            self._env: Any = make_env(self.num_envs)
        one: gymnasium.Env = gymnasium.Env()  # one of them, which is never stepped
        one.observation_space = self._env.single_observation_space
        one.action_space, one.metadata = self._env.single_action_space, self._env.metadata
        try:
            self.mode = _autoreset_mode(self._env, env_id)
            self._one = PlainEnv(one, env_id)
            if spec is not None and not is_atari(env_id):
                check_as_tried(self._one.env_spec, spec)
        except BaseException:
            self.close()
            raise
        self.spec = spec or self._one.env_spec
        self._has_choices = any(part.kind == CHOICE for part in self.spec.actions.parts)
        self._looks_for_masks = spec is None and self._has_choices
        self._says_masks = _method(self._env)
        self._legal = np.ones((self.num_envs, self.spec.actions.param_count), np.bool_)  # now
        is_own = isinstance(self._env.unwrapped, (SyncVectorEnv, AsyncVectorEnv))
        said, is_disabled = self._env.metadata, self.mode is AutoresetMode.DISABLED
        self._takes_seeds = is_own or said.get("takes_seeds", False)
        self.takes_mask = is_own or is_disabled or said.get("reset_mask", False)
        # Lives and frames are told by EnvPool's games; elsewhere such a key may mean anything.
        self._is_atari = is_atari(env_id)
        self._done: bytearray | None = bytearray() if restorable else None
        shape = (self.num_envs, self.spec.frames_stacked, *self.spec.frame_shape)
        self._stacks = np.zeros(shape, self.spec.frame_dtype)

    def reset(self) -> np.ndarray:
        """Start every environment with its first game; return stacks `[E, S, *frame_shape]`."""
        is_first, self._steps = self._steps < 0, 0
        self._over = np.zeros(self.num_envs, bool)  # the next step is the reset row
        self._games = np.zeros(self.num_envs, np.int64)  # index of the game of each environment
        self._returns, self._lengths = np.zeros(self.num_envs), np.zeros(self.num_envs, np.int64)
        self._done = None if self._done is None else bytearray()
        seeds = self._game_seeds() or episode_seed(self._seeds[0], 0)
        with self._told():
            result = reset_result(self._env.reset(seed=seeds))
            converted = _in_numpy(self._env, result[0]) if is_first else self._env
            if converted is not self._env:
                self._env = converted
                result = reset_result(self._env.reset(seed=seeds))
            self._stacks[:] = 0
            self._stacks[:, -1] = self._frames(*result, ~self._over)
        self._looks_for_masks = False
        self.action_mask = self._legal if self.spec.has_action_mask else None
        return self._stacks

    def step(self, actions: np.ndarray) -> StepResult:
        """Do `actions` ([E, *action_shape]), one in each environment."""
        check_actions(actions, self.num_envs, self.spec.actions)
        if self._done is not None:
            self._done += actions.tobytes()
        self._steps += 1
        first, mode = self._over, self.mode
        resets = bool(first.any())
        starts = resets and self.takes_mask and mode is not AutoresetMode.NEXT_STEP
        self._games += first
        with self._told():
            if starts and mode is AutoresetMode.DISABLED:
                self.start(first)  # what is over must not be stepped
            if resets and mode is not AutoresetMode.NEXT_STEP:
                actions = all_allowed(actions, self._legal, self.spec.actions)
            result = self._env.step(self._one.actions.decode_all(actions))
            observations, reward, terminated, truncated, info = self._checked(result)
            over = terminated | truncated
            ended = over & ~first
            goes_on = mode is AutoresetMode.SAME_STEP or ~ended
            frames = self._frames(observations, info, goes_on & ~(first & starts))
            given = self._given  # before a reset of other environments gives theirs
            if mode is AutoresetMode.SAME_STEP:
                for index in np.flatnonzero(ended).tolist():
                    frames[index] = self._one.shown.encode(self._final(info, index))
            if starts:
                begun = self.start(first)
                if (begun != frames)[~(first | ended)].any():
                    raise EnvironmentFault("reset has started games that reset_mask leaves out.")
                frames[first] = begun[first]
        if self.action_mask is not None:
            self.action_mask = self._legal | ended[:, None]
            for index in np.flatnonzero(ended & ~terminated).tolist():
                self.action_mask[index] = self._last_mask(info, given, index)
        if resets:
            self._returns[first] = self._lengths[first] = 0
            if mode is AutoresetMode.SAME_STEP and not starts:
                hidden = first & ~over  # else another game has begun behind the hidden step
                self._returns[hidden], self._lengths[hidden] = reward[hidden], 1
            reward[first] = 0
        self._stacks[:, :-1] = self._stacks[:, 1:]
        self._stacks[first] = 0
        self._stacks[:, -1] = frames
        self._returns += reward
        self._lengths += ~first
        self._over = ended
        lost = info["life_lost"] if self._is_atari else False
        terminated = (terminated | lost) & ~first
        ticks = info["episode_frame_number"] if self._is_atari else self._lengths
        episodes = [
            EpisodeEnd(i, float(self._returns[i]), int(self._lengths[i]), int(ticks[i]))
            for i in np.flatnonzero(ended).tolist()
        ]
        reward = reward.astype(np.float32)
        return StepResult(self._stacks, reward, terminated, first, episodes, self.action_mask)

    def start(self, mask: np.ndarray) -> np.ndarray:
        """Start games where `mask`, [E] bool, is True; return frames `[E, *frame_shape]`."""
        options = {"reset_mask": mask.copy()}
        result = reset_result(self._env.reset(seed=self._game_seeds(), options=options))
        return self._frames(*result, mask)

    def close(self) -> None:
        """Close the environments."""
        env, self._env = self._env, None
        if env is None:
            return
        try:
            env.close()
        except RAISED as error:
            log.warning("env %s raised %s.", self._env_id, describe(error, "when closed"))

    def describe(self) -> str:
        """Return in a few words what the vector is, and what it does at the end of a game."""
        hides = self.mode is AutoresetMode.SAME_STEP and not self.takes_mask
        advice = (
            " without masks: first steps of later games are not seen, unless reset takes "
            "options={'reset_mask': mask} and the metadata say reset_mask=True"
        )
        return f"{type(self._env.unwrapped).__name__}, autoreset {self.mode.name}{advice * hides}"

    def state_dict(self) -> dict[str, Any]:
        """Return the seeds and all actions since `reset`, `[N, E, *action_shape]`."""
        if self._done is None:
            return super().state_dict()
        actions = self.spec.actions
        done = np.frombuffer(bytes(self._done), actions.dtype)
        done = done.reshape(-1, self.num_envs, *actions.shape)
        return {
            "env_id": self._env_id,
            "seeds": list(self._seeds),
            "done": done,
            "checksums": self._checksums(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> np.ndarray:
        """Play everything again since `reset`; return the stacks shown there."""
        self._seeds, actions = saved_seeds(state, self._env_id, self.num_envs), self.spec.actions
        done = array(state, "done", actions.dtype, (None, self.num_envs, *actions.shape))
        self.reset()
        for row in done:
            self.step(row)
        check_played_again(state, self._checksums(), self._env_id)
        return self._stacks

    def _checksums(self) -> list[int]:
        return checksums(self._stacks, self._over, self._returns)

    def _frames(self, observations: Any, info: Any, rows: Any) -> np.ndarray:
        """Return frames `[E, *frame_shape]`; read action masks where `rows`, [E], is True."""
        env = self._one.env
        if isinstance(env, MaskTakenOut):
            observations, given = env.observation(observations), env.action_masks()
        else:
            given = info.get(KEY) if self._says_masks is None else self._says_masks()
        if given is not None and self._looks_for_masks:
            self.spec = replace(self.spec, has_action_mask=True)
        elif not (given is None or self.spec.has_action_mask) and self._has_choices and rows.any():
            raise EnvironmentFault(NONE_AT_RESET)
        for index in np.flatnonzero(rows).tolist() if self.spec.has_action_mask else ():
            self._legal[index] = self._one.masks.read(_row_of(given, index))
        self._given = given
        return self._one.shown.all_of(observations, self.num_envs).copy()

    def _final(self, info: Any, index: int) -> Any:
        """Return the last observation of a game that ended in SAME_STEP."""
        final = _row_of(info["final_obs"], index) if "final_obs" in info else None
        env = self._one.env
        if final is None:
            raise EnvironmentFault(
                f"info has no final_obs of environment {index + 1}, whose game is over, expected "
                "the true last observation there: the autoreset mode is SAME_STEP."
            )
        return env.observation(final) if isinstance(env, MaskTakenOut) else final

    def _last_mask(self, info: Any, given: Any, index: int) -> np.ndarray:
        """Return the mask of the last observation of a game that was cut, [P] bool."""
        if self.mode is not AutoresetMode.SAME_STEP:
            return self._one.masks.read_last(_row_of(given, index))
        # What is given belongs to the next game.
        last = info.get("final_obs" if isinstance(self._one.env, MaskTakenOut) else "final_info")
        if isinstance(last, Mapping):
            given = _row_of(last.get(KEY), index)
        else:
            given = None if last is None else last[index].get(KEY)
        return self._one.masks.read_last(given)

    def _game_seeds(self) -> list[int] | None:
        """Return the seeds of the games that are played, None if the vector has one for all."""
        pairs = zip(self._seeds, self._games.tolist(), strict=True)
        return [episode_seed(*pair) for pair in pairs] if self._takes_seeds else None

    def _checked(self, result: Any) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, Any]:
        """Return the five things that `step` returned, the reward as [E] float64."""
        if not isinstance(result, tuple) or len(result) != 5:
            raise EnvironmentFault(f"step returned {shown(result)}, expected {STEP_RETURNS}.")
        names = {"reward": "biuf", "terminated": "biu", "truncated": "biu"}
        rows = [np.asarray(value) for value in result[1:4]]
        for (name, kinds), row in zip(names.items(), rows, strict=True):
            good = row.shape == (self.num_envs,) and row.dtype.kind in kinds
            if not good or not (np.abs(row) <= MAX_FLOAT32).all():  # nor is NaN
                what = "finite numbers" if "f" in kinds else "truth values"
                raise EnvironmentFault(
                    f"{name} is {row.dtype} {shown(row)}, expected {self.num_envs} {what}."
                )
        reward, terminated, truncated = map(np.ndarray.astype, rows, (np.float64, bool, bool))
        return result[0], reward, terminated, truncated, result[4]

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Turn an exception in the body into an EnvironmentFault that says where it was raised."""
        try:
            yield
        except ConfigError:
            raise
        except RAISED as error:
            step = {-1: "when it was made", 0: "its reset"}.get(self._steps, f"step {self._steps}")
            where = f"env {shown_text(self._env_id)}, a vector of {self.num_envs}, {step}"
            raise fault_of(where, error) from error


def _autoreset_mode(env: VectorEnv, env_id: str) -> AutoresetMode:
    said = (getattr(env, "metadata", None) or {}).get("autoreset_mode")
    if said is None and "FunctionalJaxVectorEnv" in {each.__name__ for each in type(env).__mro__}:
        return AutoresetMode.NEXT_STEP  # of Gymnasium, where some forget to say so
    try:
        return AutoresetMode(said)
    except ValueError as error:
        raise ConfigError(
            f"env {env_id} is a vector whose metadata['autoreset_mode'] is {shown(said)}, expected "
            "one of gymnasium.vector.AutoresetMode, by which its ends are understood."
        ) from error


def _method(env: VectorEnv) -> Callable[[], Any] | None:
    """Return the method that gives the masks of all environments; None if there is none."""
    name, own = "action_masks", env.unwrapped
    if isinstance(own, (SyncVectorEnv, AsyncVectorEnv)) and own.call("has_wrapper_attr", name)[0]:
        return lambda: list(own.call(name))
    return getattr(own, name, None)


def _in_numpy(env: VectorEnv, observations: Any) -> VectorEnv:
    """Return a vector that shows and takes NumPy arrays; Gymnasium has wrappers for others."""
    while isinstance(observations, (Mapping, tuple)):
        parts = observations.values() if isinstance(observations, Mapping) else observations
        observations = next(iter(parts))
    package = type(observations).__module__.partition(".")[0]
    if package not in ("jax", "jaxlib", "torch"):
        return env
    from gymnasium.wrappers.vector import ArrayConversion

    own = importlib.import_module("torch" if package == "torch" else "jax.numpy")
    return ArrayConversion(env, env_xp=own, target_xp=np)


def _row_of(value: Any, index: int) -> Any:
    """Return the part of one environment in an array, or in a dict or tuple of arrays."""
    if value is None:
        return None
    if isinstance(value, Mapping):
        return {name: _row_of(part, index) for name, part in value.items()}
    if isinstance(value, tuple):
        return tuple(_row_of(part, index) for part in value)
    return value[index]
