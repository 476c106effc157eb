"""`load_agent`: a trained agent that acts on observations, wherever these come from.

    agent = load_agent("models/pong")
    env = agent.make_env()
    observation, _ = env.reset(seed=1)
    agent.reset()
    over = False
    while not over:
        action = agent.act(observation)
        observation, reward, terminated, truncated, _ = env.step(action)
        over = terminated or truncated

The agent stacks frames, keeps the memory of a recurrent network and remembers its last action.
E is the number of environments that it acts in at once.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import torch

from ritornello.agent.acting.actor import Actor, Observation
from ritornello.analysis import playing
from ritornello.analysis.playing import LoadedAgent
from ritornello.command import command_line, path_text
from ritornello.core.errors import ConfigError, ShapeError
from ritornello.core.plain_data import shown, shown_text
from ritornello.core.rng import child_seed
from ritornello.core.spec import ActionSpec, EnvSpec
from ritornello.interpreter import trusting_for_now
from ritornello.wrappers.registry import make_single_env
from ritornello.wrappers.trusted_modules import trust_kwargs, trust_modules_of


@dataclass(frozen=True)
class Decision:
    """The action of an agent, and its view of the observations. Without E for a single one."""

    action: Any  # int, or [E] int64; [W] or [E, W] where an action is more than one choice
    params: np.ndarray  # [E, P] float32, of the policy: logits, where one action is chosen
    value: Any  # float, or [E] float32: the discounted return that it expects, as it was trained


class _Past(NamedTuple):
    """What an agent remembers of the E environments that it acts in."""

    stacks: np.ndarray  # [E, S, *frame_shape]
    state: torch.Tensor  # [E, state_count]
    last_action: np.ndarray  # [E, *action_shape]


class Agent:
    """A trained agent. Not thread-safe: it has a memory of its game, and a random stream.

    It acts in one environment (observations `[*frame_shape]`) or in E at once (`[E,
    *frame_shape]`). Call `reset` between the two, and before each new game of a single environment.
    """

    def __init__(self, loaded: LoadedAgent, *, greedy: bool = False, seed: int = 0) -> None:
        """Start at the beginning of a game.

        Args:
          loaded: model and flags.
          greedy: take the most probable action instead of a draw.
          seed: seed of the draws.
        """
        self._loaded = loaded
        self._needs_reward = loaded.blueprint.model_config.use_last_reward
        self._actor = Actor(
            loaded.model, child_seed(seed, "test actor"), with_features=False, greedy=greedy
        )
        self._task = loaded.task
        self.reset()

    def __repr__(self) -> str:
        games = shown_text(self.spec.env_id)  # the file's own words, if the agent plays elsewhere
        return f"<Agent {self._loaded.label}: {games}, {self.agent_steps:,} agent steps>"

    @property
    def spec(self) -> EnvSpec:
        """Observations and actions of its games; `frame_shape` is the shape of an observation."""
        return self._loaded.env_spec

    @property
    def agent_steps(self) -> int:
        """Number of agent steps for which it was trained."""
        return self._loaded.agent_steps

    @property
    def flags(self) -> dict[str, Any]:
        """The flags with which it was trained, as JSON types."""
        return self._loaded.blueprint.flags.to_json()

    @property
    def model(self) -> torch.nn.Module:
        """The network, fp32, on the CPU."""
        return self._loaded.model

    def reset(self, game: str | None = None) -> None:
        """Forget the past: the next observation is the first of a game.

        `game` is the id of the game that is played from now on, one of those that the agent knows.
        None keeps the game, which is at first the agent's first one, or that of `env`.

        Raises:
          ConfigError: if the agent does not know the game.
        """
        if game is not None:
            self._task = self._loaded.task_of(game)
        self._past: _Past | None = None  # from the first decision on

    def act(self, observation: Any, **more: Any) -> Any:
        """Return the action for an observation, an int; or [E] int64 for E of them.

        Where an action is more than one choice it is a row of numbers, as the environment of
        `make_env` takes it (docs/worlds.md), or a row for each of E.

        Args: those of `decide`.
        """
        return self.decide(observation, **more).action

    def decide(
        self,
        observation: Any,
        *,
        reward: Any = None,
        first: Any = None,
        last_action: Any = None,
        action_mask: Any = None,
    ) -> Decision:
        """Decide, and return more than the action.

        Args:
          observation: the newest frame, as the environment of `make_env` shows it: an array of
            `spec.frame_shape`, or `[E, *frame_shape]`. A gray image may lack its channel.
          reward: finite number or [E], raw, the reward for the action before. Only agents that see
            it (--use_last_reward) need it, and not at the start of a game.
          first: bool or [E] bool, whether this is the first observation of a game; None: only after
            `reset`.
          last_action: action that was done instead of the last one chosen, as `act` returns it.
          action_mask: [P] or [E, P] bool, `info["action_mask"]` of `make_env`. Agents need it if
            their games have masks (`spec.has_action_mask`), and only they take it.

        Raises:
          ShapeError: if the observation has another shape or dtype than the agent's games show, or
            a number that is not finite, or another argument is invalid.
          ConfigError: if E has changed without `reset`, or the reward is missing.

        A call that is refused changes nothing.
        """
        frames, is_single = self._frames(observation)
        count, actions = len(frames), self.spec.actions
        past = self._past or self._nothing_yet(count)
        if len(past.stacks) != count:
            raise ConfigError(
                f"got {count} observations after {len(past.stacks)} of them: expected the same "
                "number of environments until reset() is called."
            )
        starts = _for_each("first", self._past is None if first is None else first, count)
        starts = starts.astype(np.bool_) | (self._past is None)
        if self._needs_reward and reward is None and not starts.all():
            raise ConfigError(
                "this agent looks at the last reward (--use_last_reward), and none was given: "
                "call act(observation, reward=...)."
            )
        rewards = _for_each("reward", 0.0 if reward is None else reward, count)
        mask = self._mask(action_mask, count)
        if last_action is not None:
            past = past._replace(last_action=_actions(last_action, count, actions))
        stacks = past.stacks.copy()  # what is remembered changes when nothing can fail any more
        stacks[starts] = 0
        stacks[:, :-1] = stacks[:, 1:]
        stacks[:, -1] = frames
        shown_now = Observation(
            stacks,
            starts,
            past.last_action,
            rewards.astype(np.float32),
            np.full(count, self._task, np.int64),
            mask,
        )
        decided, state = self._actor.decide(shown_now, past.state)
        self._past = _Past(stacks, state, decided.action.copy())
        if is_single:
            action = decided.action[0]
            action = action.item() if actions.is_single_choice else action.copy()
            return Decision(action, decided.params[0], decided.value[0].item())
        return Decision(decided.action, decided.params, decided.value)

    def make_env(self, render_mode: str | None = None) -> gymnasium.Env:
        """Make an environment that shows what the agent was trained on: one game, all lives.

        It resets nothing by itself, as all environments of Gymnasium. `render_mode` is "human",
        "rgb_array", or None to show nothing.

        Raises:
          ConfigError: if the environment cannot be made.
        """
        if render_mode not in (None, "human", "rgb_array"):
            raise ConfigError(
                f"render_mode is {shown(render_mode)}, expected None, 'human' or 'rgb_array'. The "
                "game is the agent's; agent.reset(<id>) begins another of its games."
            )
        config = self._loaded.game_config(self._task)
        with trusting_for_now():
            trust_modules_of(config.env_id)  # checked when the agent was loaded,
            trust_kwargs(config.kwargs)  # and these too
            return make_single_env(config, render_mode=render_mode)

    def _nothing_yet(self, count: int) -> _Past:
        """Return the memory before the first observation."""
        actions = self.spec.actions
        return _Past(
            np.zeros(
                (count, self.spec.frames_stacked, *self.spec.frame_shape), self.spec.frame_dtype
            ),
            self._loaded.model.initial_state(count),
            np.zeros((count, *actions.shape), actions.dtype),
        )

    def _frames(self, observation: Any) -> tuple[np.ndarray, bool]:
        """Return `[E, *frame_shape]`, and whether a single observation was given."""
        array = _array(observation)
        shape, dtype = self.spec.frame_shape, np.dtype(self.spec.frame_dtype)
        gray = self.spec.is_image and shape[0] == 1
        if array.shape == shape or (gray and array.shape == shape[1:]):
            frames, is_single = array.reshape(1, *shape), True
        elif array.shape[1:] == shape or (gray and array.shape[1:] == shape[1:]):
            frames, is_single = array.reshape(len(array), *shape), False
        else:
            raise self._refused(array)
        if not len(frames) or (dtype == np.uint8 and frames.dtype != np.uint8):
            raise self._refused(array)
        if dtype.kind == "f" and frames.dtype.kind not in "fiub":
            raise self._refused(array)
        with np.errstate(over="ignore"):  # it becomes an infinity, which is found
            frames = frames.astype(dtype, copy=False)
        if dtype.kind == "f" and not np.isfinite(frames).all():
            bad = frames[~np.isfinite(frames)][0]
            raise ShapeError(f"an observation has {bad}, expected finite numbers of {dtype}.")
        return frames, is_single

    def _mask(self, given: Any, count: int) -> np.ndarray | None:
        """Return the mask as `[count, P]` bool, given once or for each; None without masks."""
        actions, has = self.spec.actions, self.spec.has_action_mask
        if given is None and not has:
            return None
        array = _array(given)
        shapes = ((actions.param_count,), (count, actions.param_count))
        if not has or array.shape not in shapes or array.dtype != np.bool_:
            expected = f"bool of shape {shapes[0]} or {shapes[1]}" if has else "None: no masks here"
            raise ShapeError(
                f"action_mask is {shown(given)}, expected {expected}, as info['action_mask'] of "
                "environments of agent.make_env() is."
            )
        ends = np.cumsum([part.param_count for part in actions.parts])[:-1]
        if not all(own.any(-1).all() for own in np.split(array, ends, -1)):
            raise ShapeError("action_mask allows nothing, expected at least one of each choice.")
        return np.array(np.broadcast_to(array, shapes[1]))

    def _refused(self, array: np.ndarray) -> ShapeError:
        hint = ""
        if array.dtype == object:
            pair, parts = "reset() returns (observation, info)", "they make one array of a dict"
            hint = f" ({parts if isinstance(array[()], dict) else pair})"
        return ShapeError(
            f"an observation has shape {array.shape} and dtype {array.dtype}, expected "
            f"{self.spec.frame_shape} or (E, {', '.join(map(str, self.spec.frame_shape))}) of "
            f"{self.spec.frame_dtype}, as environments of agent.make_env() show{hint}."
        )


def load_agent(
    path: Path | str, *, greedy: bool = False, seed: int | None = None, **flags: Any
) -> Agent:
    """Load a trained agent.

    Args:
      path: run folder (its latest checkpoint), checkpoint file, model folder, or "hf:owner/name".
      greedy: take the most probable action instead of a draw.
      seed: seed of the draws; None: another one each time.
      **flags: flags of main.py that differ from those of the training. `env="module:Id"` allows the
        module of an environment of your own, as on the command line.

    Raises:
      ConfigError: if an argument is of another type, or a flag cannot be honoured.
      CheckpointError: if there is no such agent, or it is damaged.
    """
    if not isinstance(seed, int | np.integer | None):
        raise ConfigError(f"seed is {shown(seed)}, expected a whole number, or None to draw one.")
    if not isinstance(greedy, int | np.bool_):
        raise ConfigError(f"greedy is {shown(greedy)}, expected True or False.")
    given: Sequence[str] = command_line(flags)
    with trusting_for_now():
        loaded = playing.load_agent(path_text(path), given)
    if seed is None:
        seed = secrets.randbits(31)
    return Agent(loaded, greedy=greedy, seed=seed)


def _actions(value: Any, count: int, actions: ActionSpec) -> np.ndarray:
    """Return `last_action` as `[count, *action_shape]`, given once for all or for each."""
    array = _for_each("last_action", value, count, actions.shape, actions.describe())
    # Checked before the cast, which would make a whole number of 1.7.
    if not all(
        ((chosen == np.floor(chosen)) & (chosen >= 0) & (chosen < option_count)).all()
        for chosen, option_count in actions.choices_in(array)
    ):
        raise ShapeError(
            f"last_action is {shown(value)}, expected {actions.describe()}, where a choice is a "
            "whole number from 0."
        )
    return array.astype(actions.dtype)


def _array(value: Any) -> np.ndarray:
    """Return a value as an array, of objects if it has no shape, as what reset() returns."""
    try:
        return np.asarray(value)
    except (TypeError, ValueError, RuntimeError):  # two of them are of tensors
        return np.asarray(None)


def _for_each(
    name: str, value: Any, count: int, shape: tuple[int, ...] = (), what: str = "a finite number"
) -> np.ndarray:
    """Return `[count, *shape]` of a value that is given once for all, or for each.

    Raises:
      ShapeError: if it has another shape, or is not finite in float32, as the model sees it.
    """
    array = _array(value)
    shapes = [shape, (count, *shape)] if shape else [(), (1,), (count,)]
    is_right = array.shape in shapes and array.dtype.kind in "biuf"
    with np.errstate(over="ignore"):  # it becomes an infinity, which is found
        if not is_right or not np.isfinite(array.astype(np.float32)).all():
            raise ShapeError(
                f"{name} is {shown(value)}, expected {what}: an array of shape {shape}, or "
                f"{count} of them."
            )
    return np.array(np.broadcast_to(array, (count, *shape)))
