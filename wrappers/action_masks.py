"""Which actions an environment allows at each step, in whichever way it says so.

Three ways are understood, the first of these that an environment has:

* a part `action_mask` of a dict that it shows, as in PettingZoo; the agent is not shown it;
* a method `action_masks()`, as for sb3-contrib's MaskablePPO;
* `info["action_mask"]` of reset and step, as in Gymnasium's Taxi.

Each gives, for each action among which is chosen, whether it is allowed: one array for one choice,
one after another for several choices, or the shape of the action's space (a tuple or dict of
arrays). Real numbers have none. What comes out is `info["action_mask"]`, [P] bool: one for each
parameter of the policy (core/unroll.py), where those of real numbers are True.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Tuple

from ritornello.core.errors import EnvironmentFault
from ritornello.core.plain_data import shown
from ritornello.core.spec import CHOICE, ActionSpec

KEY = "action_mask"
NONE_AT_RESET = f"info has {KEY}, expected one in the info of each reset: an earlier one had none."


class MaskTakenOut(gymnasium.ObservationWrapper):
    """Shows a dict without its mask; a single part that is left is shown by itself."""

    def __init__(self, env: gymnasium.Env) -> None:
        """Wrap an environment that shows a dict with an `action_mask`."""
        super().__init__(env)
        assert isinstance(env.observation_space, Dict)
        left = {name: one for name, one in env.observation_space.spaces.items() if name != KEY}
        self._only = next(iter(left)) if len(left) == 1 else None
        self.observation_space = Dict(left) if self._only is None else left[self._only]
        self._mask: Any = None

    def observation(self, observation: Any) -> Any:
        """Return the observation without the mask, and keep the mask."""
        if not isinstance(observation, Mapping) or KEY not in observation:
            raise EnvironmentFault(f"observation is {shown(observation)}, expected {KEY!r} in it.")
        self._mask = observation[KEY]
        if self._only is not None:
            return observation[self._only]
        return {name: one for name, one in observation.items() if name != KEY}

    def action_masks(self) -> Any:
        """Return the mask of the last observation."""
        return self._mask


def mask_taken_out(env: gymnasium.Env) -> gymnasium.Env:
    """Return an environment whose `action_masks()` gives the mask that `env` showed."""
    seen = getattr(env, "observation_space", None)
    return MaskTakenOut(env) if isinstance(seen, Dict) and KEY in seen.spaces else env


class ActionMasks:
    """Reads the masks of one environment, step after step."""

    def __init__(self, env: gymnasium.Env, space: Any, actions: ActionSpec) -> None:
        """Look for a method of the environment that gives masks; its observations have none.

        `space` is the environment's action space; `actions` says how its actions are stored.
        """
        name = "action_masks"
        method = env.get_wrapper_attr(name) if env.has_wrapper_attr(name) else None
        self._method = method if callable(method) else None
        self._space = space
        self._given = False  # whether the environment says what is allowed; known at its reset
        counts = [part.count for part in actions.parts if part.kind == CHOICE]
        self._starts = np.cumsum([0, *counts[:-1]])  # of each choice among the choices
        self._is_choice = np.repeat(
            [part.kind == CHOICE for part in actions.parts],
            [part.param_count for part in actions.parts],
        )
        self._counts = counts

    def of_reset(self, info: Any) -> Any:
        """Return `info` of a reset, with the mask in it if the environment has one.

        Raises:
          EnvironmentFault: if the environment gives something else as a mask, or one that allows
            nothing.
        """
        self._given = self._counts != [] and (
            self._method is not None or (isinstance(info, Mapping) and KEY in info)
        )
        return self.of_step(info) if self._given else info

    def of_step(
        self, info: Mapping[str, Any], terminated: bool = False, truncated: bool = False
    ) -> Mapping[str, Any]:
        """Return `info` of a step, with the mask in it if its reset had one.

        Where a game terminated, nothing comes that could be chosen, so all actions are allowed.

        Raises:
          EnvironmentFault: if the environment gives something else as a mask, or one that allows
            nothing.
        """
        if not self._given:
            is_over = terminated or truncated
            if self._counts and not is_over and info.get(KEY) is not None:
                raise EnvironmentFault(NONE_AT_RESET)
            return info
        if terminated:
            mask = self.read_last(None)
        elif truncated:
            mask = self.read_last(info.get(KEY) if self._method is None else self._method())
        elif self._method is not None:
            mask = self.read(self._method())
        elif KEY in info:
            mask = self.read(info[KEY])
        else:
            raise EnvironmentFault(f"info has no {KEY}, expected one at each step, as at reset.")
        return {**info, KEY: mask}

    def read_last(self, given: Any) -> np.ndarray:
        """Convert the mask of the last observation of a game that was cut to [P] bool.

        Nothing is chosen there, but Q-learning asks for the best action. All are allowed if the
        environment gives no mask there, or one that allows nothing, as many do.
        """
        try:
            return self.read(given)
        except EnvironmentFault:
            return np.ones(len(self._is_choice), np.bool_)

    def read(self, given: Any) -> np.ndarray:
        """Convert the mask that an environment gives to [P] bool."""
        try:
            own = [array for _, array in choices_in(self._space, given)]
            allowed = np.concatenate([*own, np.zeros(0, np.bool_)])
        except (ValueError, TypeError) as error:  # rows of unequal depth
            raise self._fault(given) from error
        fits = allowed.shape == (sum(self._counts),) and allowed.dtype.kind in "biuf"
        if not fits or not ((allowed == 0) | (allowed == 1)).all():
            raise self._fault(given)
        allowed = allowed.astype(np.bool_)
        has_any = np.logical_or.reduceat(allowed, self._starts)
        if not has_any.all():
            where = f" of choice {int(has_any.argmin()) + 1}" if len(self._counts) > 1 else ""
            raise EnvironmentFault(
                f"{KEY} allows nothing{where}, expected at least one action that is allowed where "
                "the game goes on; where it does not, return terminated=True."
            )
        mask = np.ones(len(self._is_choice), np.bool_)
        mask[self._is_choice] = allowed
        return mask

    def _fault(self, given: Any) -> EnvironmentFault:
        return EnvironmentFault(
            f"{KEY} is {shown(given)}, expected {sum(self._counts)} of 0 and 1, one for each "
            f"action among which is chosen: {', '.join(map(str, self._counts))}."
        )


def choices_in(space: Any, given: Any, path: str = "") -> Iterator[tuple[str, np.ndarray]]:
    """Yield the part of a mask that belongs to each choice of a space, in order, after its path.

    Arrays of one tuple for several choices have its path.
    """
    is_whole = isinstance(given, np.ndarray) or given is None
    if isinstance(space, Dict) and not is_whole:
        for name, one in space.spaces.items():
            own = given.get(name) if isinstance(given, Mapping) else given
            yield from choices_in(one, own, f"{path}[{name!r}]")
    elif isinstance(space, Tuple) and not is_whole and len(given) == len(space.spaces):
        for place, (one, own) in enumerate(zip(space.spaces, given, strict=True)):
            yield from choices_in(one, own, f"{path}[{place}]")
    elif isinstance(given, (tuple, list)):
        yield from ((path, np.ravel(own)) for own in given)
    elif not isinstance(space, Box):
        yield path, np.ravel(given)


def nearest_allowed(action: np.ndarray, mask: np.ndarray, actions: ActionSpec) -> np.ndarray:
    """Move each choice of an action on to the next one that is allowed, cyclically.

    `action` is [*action_shape], as it is stored; `mask` is [P] bool.
    """
    moved = np.array(action)
    columns = moved.reshape(-1)  # a view
    column = param = 0
    for part in actions.parts:
        if part.kind == CHOICE:
            own = mask[param : param + part.count]
            wanted = (int(columns[column]) + np.arange(part.count)) % part.count
            columns[column] = wanted[own[wanted].argmax()]
        column, param = column + part.width, param + part.param_count
    return moved


def all_allowed(actions: np.ndarray, masks: np.ndarray | None, spec: ActionSpec) -> np.ndarray:
    """Apply `nearest_allowed` to the actions `[E, *action_shape]` of E environments.

    `masks` are [E, P] bool; without them the actions are returned as they are.
    """
    if masks is None:
        return actions
    return np.stack([nearest_allowed(*row, spec) for row in zip(actions, masks, strict=True)])
