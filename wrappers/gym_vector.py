"""E Gymnasium environments, stepped one after another in plain Python: the readable vector.

Environments come in through `make_env`; StepResults go out (wrappers/vector.py). It runs every
environment this project supports, can be put back to where it was, and is the twin by which the
fast vector is tested. What environments give is checked where they are wrapped
(wrappers/plain_env.py), and what they raise is told with the environment's name.

Next to read: wrappers/atari.py, the rules of Atari.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import gymnasium
import numpy as np

from ritornello.core.episode import EpisodeEnd
from ritornello.core.errors import EnvironmentFault, PlatformError
from ritornello.core.plain_data import shown, shown_text
from ritornello.core.rng import child_seed
from ritornello.core.saved_state import items, within
from ritornello.core.spec import CHOICE, EnvSpec
from ritornello.wrappers.action_masks import KEY, NONE_AT_RESET
from ritornello.wrappers.env_ids import is_atari
from ritornello.wrappers.images import picture_of
from ritornello.wrappers.user_code import RAISED, describe, fault_of
from ritornello.wrappers.vector import (
    EnvVector,
    StepResult,
    check_actions,
    check_as_tried,
    check_played_again,
    checksums,
    led_elsewhere,
    saved_seeds,
)

log = logging.getLogger(__name__)


def episode_seed(seed: int, episode: int) -> int:
    """Return the seed of the n-th episode of the environment with root `seed`.

    31 bits, because some environments hand it to generators that take no more.
    """
    return child_seed(seed, "episode", episode) >> 32


@dataclass
class _Game:
    """The game that one environment is playing."""

    episode: int = -1  # index of the game; -1 before the first
    over: bool = False  # the next step is the reset row
    return_raw: float = 0.0
    length_steps: int = 0
    # Since its start, if restorable; rows of numbers where an action is more than one choice.
    actions: list[int | list[float]] = field(default_factory=list)


class GymVector(EnvVector):
    """E environments made by `make_env`, each episode started with a seed of its own.

    Because a game depends on nothing but its seed and its actions, (episode index, actions so far)
    says where an environment is: `load_state_dict` plays these actions again, and refuses to go on
    where they lead elsewhere. Owns the environments and the stacks it returns. Not thread-safe.
    """

    def __init__(
        self,
        spec: EnvSpec,
        make_env: Callable[[], gymnasium.Env],
        seeds: Sequence[int],
        *,
        restorable: bool = False,
        looks_for_masks: bool = False,
    ) -> None:
        """Make E environments; the seeds of their episodes follow from E root `seeds`.

        `make_env` makes one environment, whose observations are single frames of `spec`. With
        `restorable`, the actions of the running games are kept, for `state_dict`. With
        `looks_for_masks`, `reset` finds out whether they have masks, and `spec` says it then.

        Raises:
          EnvironmentFault: if an environment cannot be made; later, from `reset` and `step`, if one
            raises an exception or returns something invalid.
        """
        self.spec = spec
        self.num_envs = len(seeds)
        # Lives and frames are told by wrappers/atari.py; elsewhere such a key may mean anything.
        self._is_atari = is_atari(spec.env_id)
        self._restorable, self._looks_for_masks = restorable, looks_for_masks
        self._seeds = [int(seed) for seed in seeds]
        self._envs: list[gymnasium.Env] = []
        try:
            for _ in seeds:
                self._envs.append(self._made(make_env))
                check_as_tried(getattr(self._envs[-1], "env_spec", spec), spec)
        except BaseException:
            self.close()  # they may hold windows and processes
            raise
        self._games = [_Game() for _ in seeds]
        shape = (self.num_envs, spec.frames_stacked, *spec.frame_shape)
        self._stacks = np.zeros(shape, spec.frame_dtype)
        self._has_choices = any(part.kind == CHOICE for part in spec.actions.parts)
        if spec.has_action_mask:
            self.action_mask = self._all_allowed()

    def reset(self) -> np.ndarray:
        """Start every environment with its first episode; return stacks `[E, S, *frame_shape]`."""
        for index in range(self.num_envs):
            self._start(index, episode=0)
        return self._stacks

    def step(self, actions: np.ndarray) -> StepResult:
        """Do `actions` ([E, *action_shape]), one in each environment."""
        check_actions(actions, self.num_envs, self.spec.actions)
        reward = np.zeros(self.num_envs, np.float32)
        terminated = np.zeros(self.num_envs, bool)
        first = np.zeros(self.num_envs, bool)
        episodes: list[EpisodeEnd] = []
        for index, action in enumerate(actions.tolist()):
            game = self._games[index]
            if game.over:
                self._start(index, game.episode + 1)
                first[index] = True
                continue
            reward[index], terminated[index], end = self._advance(index, action)
            if end is not None:
                episodes.append(end)
        return StepResult(self._stacks, reward, terminated, first, episodes, self.action_mask)

    def close(self) -> None:
        """Close the environments."""
        envs, self._envs = self._envs, []
        for env in envs:
            try:
                env.close()
            except RAISED as error:  # the others hold windows and processes as well
                log.warning("env %s raised %s.", self.spec.env_id, describe(error, "when closed"))

    def render(self) -> np.ndarray:
        """Return the picture that the first environment draws, [H, W, 3] uint8."""
        try:
            return picture_of(self._envs[0].render())
        except RAISED as error:
            raise self._fault(0, error) from error

    def state_dict(self) -> dict[str, Any]:
        """Return where each environment is, as plain ints and lists."""
        if not self._restorable:
            return super().state_dict()
        return {
            "env_id": self.spec.env_id,
            "seeds": list(self._seeds),
            "episodes": [game.episode for game in self._games],
            "actions": [list(game.actions) for game in self._games],
            "checksums": self._checksums(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> np.ndarray:
        """Play each saved game again up to where it was; return the stacks shown there."""
        self._seeds = saved_seeds(state, self.spec.env_id, self.num_envs)
        episodes, actions = items(state, "episodes", int), items(state, "actions", list)
        spec = self.spec.actions
        for index, (episode, done) in enumerate(zip(episodes, actions, strict=True)):
            if done:
                with within("actions", index):
                    stored = np.array(done).astype(spec.dtype, casting="same_kind")
                    check_actions(stored, len(done), spec)
            self._games[index] = _Game()
            if episode >= 0:  # else saved before the first reset
                self._start(index, episode)
                for action in done:
                    if self._games[index].over:
                        raise led_elsewhere(self.spec.env_id, index, self.num_envs)
                    self._advance(index, action)
        check_played_again(state, self._checksums(), self.spec.env_id)
        return self._stacks

    def _checksums(self) -> list[int]:
        ends = [(game.over, game.return_raw) for game in self._games]
        return checksums(self._stacks, ends)

    def _made(self, make_env: Callable[[], gymnasium.Env]) -> gymnasium.Env:
        try:
            return make_env()
        except PlatformError:
            raise
        except RAISED as error:
            which = f"environment {len(self._envs) + 1} of {self.num_envs}, when it was made"
            raise fault_of(f"env {shown_text(self.spec.env_id)}, {which}", error) from error

    def _start(self, index: int, episode: int) -> None:
        self._games[index] = _Game(episode)
        seed = episode_seed(self._seeds[index], episode)
        try:
            frame, info = self._envs[index].reset(seed=seed)
            if self.action_mask is None and self._has_choices and KEY in info:
                if not self._looks_for_masks:
                    raise EnvironmentFault(NONE_AT_RESET)
                self.spec = replace(self.spec, has_action_mask=True)
                self.action_mask = self._all_allowed()
            self._note_mask(index, info)
        except RAISED as error:
            raise self._fault(index, error) from error
        self._stacks[index] = 0
        self._stacks[index, -1] = frame

    def _advance(
        self, index: int, action: int | list[float]
    ) -> tuple[float, bool, EpisodeEnd | None]:
        """Do one action; return (reward, terminated, the end of the game if it ended)."""
        game = self._games[index]
        game.length_steps += 1
        try:
            frame, reward, terminated, truncated, info = self._envs[index].step(action)
            self._note_mask(index, info)
        except RAISED as error:
            raise self._fault(index, error, f", action {shown(action)}") from error
        self._stacks[index, :-1] = self._stacks[index, 1:]
        self._stacks[index, -1] = frame
        game.return_raw += float(reward)
        if self._restorable:
            game.actions.append(action)
        game.over = terminated or truncated
        end = None
        if game.over:
            frames = info["episode_frame_number"] if self._is_atari else game.length_steps
            end = EpisodeEnd(index, game.return_raw, game.length_steps, int(frames))
        lost = self._is_atari and info.get("life_lost", False)
        return float(reward), bool(terminated or lost), end

    def _all_allowed(self) -> np.ndarray:
        return np.ones((self.num_envs, self.spec.actions.param_count), np.bool_)

    def _note_mask(self, index: int, info: Mapping[str, Any]) -> None:
        if self.action_mask is None:
            return
        if KEY not in info:
            raise EnvironmentFault(
                f"info has no {KEY}, expected one at each reset, as when the run began: it says "
                "that not all actions are allowed."
            )
        self.action_mask[index] = info[KEY]

    def _fault(self, index: int, error: BaseException, doing: str = "") -> EnvironmentFault:
        """Return the error that says in which environment, game and step something was wrong."""
        game = self._games[index]
        step = f"step {game.length_steps}{doing}" if game.length_steps else "its reset"
        which = f"environment {index + 1} of {self.num_envs}, game {game.episode + 1}, {step}"
        return fault_of(f"env {shown_text(self.spec.env_id)}, {which}", error)
