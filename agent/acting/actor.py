"""Acting: observations in, actions out, with the logits they were drawn from.

The behaviour logits for V-trace are those of the copy of the model that acts
(agent/acting/acting_model.py), in its precision, so the importance weights stay exact.

A rollout does not care where actions come from (`ActionSource`): from an `Actor` of its own process
(`LocalActor`), or from the inference server (`RemoteActor` in agent/acting/inference_server.py).

The acting process keeps the memory of a recurrent model from step to step and clears it at each
`first`. Weights may change in between, as in IMPALA; memory from older weights is kept.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch

from ritornello.agent.acting.acting_model import ActingModel
from ritornello.agent.models.base import ActorCritic, Core, Heads, Inputs
from ritornello.core.saved_state import expect, item
from ritornello.core.spec import CHOICE, ActionPart, ActionSpec
from ritornello.wrappers.vector import StepResult

ONE_CHOICE = ActionSpec((ActionPart(CHOICE, 1),))  # stored as any other choice


class Observation(NamedTuple):
    """All that E environments show to an actor; their next step may reuse the arrays."""

    stacks: np.ndarray  # [E, S, *frame_shape] uint8 or float32
    first: np.ndarray  # [E] bool, the first observation after a reset
    last_action: np.ndarray  # [E, *action_shape], the action before; means nothing where `first`
    last_reward: np.ndarray  # [E] float32, the raw reward before it; likewise
    task_id: np.ndarray  # [E] int64, which game each environment plays
    action_mask: np.ndarray | None = None  # [E, P] bool, what is allowed; None: everything

    @classmethod
    def at_start(
        cls,
        stacks: np.ndarray,
        task_id: np.ndarray | None = None,
        actions: ActionSpec = ONE_CHOICE,
        action_mask: np.ndarray | None = None,
    ) -> Observation:
        """Return the observation of environments that were just reset.

        Args:
          stacks: [E, S, *frame_shape], from `EnvVector.reset`.
          task_id: [E] int64, number of the game of each environment; None: all play game 0.
          actions: what an action is.
          action_mask: [E, P] bool, from `EnvVector.action_mask`.
        """
        count = len(stacks)
        return cls(
            stacks,
            np.ones(count, np.bool_),
            np.zeros((count, *actions.shape), actions.dtype),
            np.zeros(count, np.float32),
            np.zeros(count, np.int64) if task_id is None else task_id,
            action_mask,
        )

    def after(self, action: np.ndarray, result: StepResult) -> Observation:
        """Return the observation after a step in which `action` gave `result`."""
        return Observation(
            result.stacks, result.first, action, result.reward, self.task_id, result.action_mask
        )


@dataclass(frozen=True)
class Action:
    """Decisions of an actor for its E environments, and what must be recorded of them."""

    action: np.ndarray  # [E, *action_shape], as the spec stores it
    params: np.ndarray  # [E, P] float32, of the distribution from which it was drawn
    value: np.ndarray  # [E] float32, unnormalised
    features: np.ndarray | None  # [E, F] float16
    state: np.ndarray | None = None  # [E, state_count] float32, memory before this decision


class ActingPass(NamedTuple):
    """One forward pass of the model over E observations."""

    inputs: Inputs  # [E, ...], what it looked at
    features: torch.Tensor  # [E, F]
    heads: Heads  # [E, ...]
    state: torch.Tensor  # [E, state_count], its memory afterwards


class Actor:
    """Turns observations into actions. Not thread-safe: owns a random stream and the memory.

    It belongs to the environments that it first acted in: the memory is theirs, row by row.
    """

    def __init__(
        self,
        model: ActorCritic,
        seed: int,
        *,
        with_features: bool,
        greedy: bool = False,
        device: torch.device | str = "cpu",
    ) -> None:
        """Wrap an acting model; equal seeds give equal draws on the same device.

        Args:
          model: the acting model, on `device`.
          seed: seed of this actor's own stream of random numbers.
          with_features: whether actions carry features.
          greedy: take the most probable action instead of a draw.
          device: where the model computes; observations and actions are on the CPU in any case.
        """
        self._model = model
        self._device = torch.device(device)
        self._generator = torch.Generator(self._device).manual_seed(seed)
        self._with_features = with_features
        # Parameters [E, P] -> actions [E, *action_shape], on their device. Bound once: it is asked
        # at every step.
        self.choose: Callable[[torch.Tensor], torch.Tensor] = (
            model.distribution.mode
            if greedy
            else functools.partial(model.distribution.sample, generator=self._generator)
        )
        # Most models look at nothing but pixels; small copies to a GPU would be for nothing then.
        self._is_plain = type(model.core) is Core and model.value_head.task_count == 1
        self._state: torch.Tensor | None = None  # [E, state_count], known at the first decision

    def act(self, observation: Observation) -> Action:
        """Choose an action for each environment; E is the same in every call."""
        if self._state is None:
            self._state = self._model.initial_state(len(observation.stacks))
        action, self._state = self.decide(observation, self._state)
        return action

    @torch.inference_mode()
    def decide(self, observation: Observation, state: torch.Tensor) -> tuple[Action, torch.Tensor]:
        """Choose actions given the memory; return them and the memory after them.

        `state`, [E, state_count] on the device, is the memory; the caller keeps it, and it is not
        written to. If the device is a GPU, the stacks are in pinned memory.
        """
        _, features, heads, after = self.forward(observation, state)
        decision = Action(
            action=self.choose(heads.params).cpu().numpy(),
            params=heads.params.cpu().numpy(),
            value=heads.value.cpu().numpy(),
            features=features.to(torch.float16).cpu().numpy() if self._with_features else None,
            state=state.cpu().numpy() if self._model.state_count else None,
        )
        return decision, after

    def forward(self, observation: Observation, state: torch.Tensor) -> ActingPass:
        """Run the model on observations and choose nothing; the arguments are those of `decide`."""
        inputs = self._inputs(observation)
        return ActingPass(inputs, *self._model(inputs, state))

    def _inputs(self, observation: Observation) -> Inputs:
        """Return the inputs of the model as tensors."""
        envs, depth, channels = observation.stacks.shape[:3]
        frame = observation.stacks.shape[3:]
        obs = torch.from_numpy(observation.stacks).view(envs, depth * channels, *frame)
        obs = obs.to(self._device, non_blocking=True)
        device = "cpu" if self._is_plain else self._device
        inputs = Inputs(obs, *(torch.from_numpy(array).to(device) for array in observation[1:5]))
        if observation.action_mask is None:
            return inputs
        mask = torch.from_numpy(observation.action_mask).to(self._device)
        return inputs._replace(action_mask=mask)

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return the random stream and, of a recurrent model, the memory (copies)."""
        state = {"generator": self._generator.get_state().clone()}
        if self._model.state_count and self._state is not None:
            state["state"] = self._state.cpu().clone()
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over a state from `state_dict`.

        Raises:
          StateError: if it is of another model.
        """
        self._generator.set_state(item(state, "generator", torch.Tensor))
        memory = item(state, "state", torch.Tensor, default=None)
        if memory is not None:
            expected = self._model.initial_state(len(memory)).shape
            fits = memory.shape == expected and memory.dtype == torch.float32
            expect(fits, f"float32 of {tuple(expected)}", "state")
            memory = memory.to(self._device, copy=True)
        self._state = memory


class ActionSource(Protocol):
    """Chooses the actions of one group of environments, in two calls: `ask`, then `answer`.

    Between the two the caller may do something else, such as stepping another group.
    """

    @property
    def version(self) -> int:
        """Learner updates in the weights of the last answer."""

    def ask(self, observation: Observation) -> None:
        """Pass on an observation, whose arrays are left alone until the answer."""

    def answer(self) -> Action:
        """Return the actions for the last observation; valid until the next `ask`."""


class LocalActor:
    """An ActionSource of this process: it acts when the answer is wanted."""

    def __init__(self, actor: Actor, acting: ActingModel) -> None:
        """Wrap `actor`, which acts with the model of `acting`; the caller refreshes it."""
        self.actor = actor
        self._acting = acting
        self._observation: Observation | None = None

    @property
    def version(self) -> int:
        """Learner updates in the weights as they are now."""
        return self._acting.version

    def ask(self, observation: Observation) -> None:
        """Remember the observations (no copy)."""
        self._observation = observation

    def answer(self) -> Action:
        """Act on them."""
        assert self._observation is not None, "nothing was asked"
        return self.actor.act(self._observation)
