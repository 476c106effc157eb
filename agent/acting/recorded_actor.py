"""Acting on a GPU by recordings, one for each power of two of environments.

A forward pass of a small network is some 60 kernels, which Python needs ten times as long to ask
for as the GPU to compute them (agent/learning/recorded.py). The inference server is asked for any
number of environments at once; the rows of the next larger recording that are left over compute
what nobody reads.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ritornello.agent.acting.actor import Action, Actor, Observation
from ritornello.agent.learning.recorded import cuda_graph
from ritornello.agent.models.base import Inputs
from ritornello.core.spec import EnvSpec

NOT_LOOKED_AT = ("first", "last_action", "last_reward", "task_id")  # by a plain model


class _Recording(NamedTuple):
    reads: tuple[Any, ...]  # observation and memory, [size, ...] on the GPU
    replay: Callable[[], None]
    writes: tuple[Tensor, Tensor, Tensor]  # see `_work`


class RecordedActor(Actor):
    """An actor on a GPU that launches one recording per decision. Not thread-safe."""

    def prepare(self, spec: EnvSpec, most: int) -> None:
        """Record passes for up to `most` environments, in a second or two."""
        self._param_count = spec.actions.param_count
        self._action_dtype = np.dtype(spec.actions.dtype)
        self._action_shape = spec.actions.shape
        sizes = [1 << power for power in range(3, max(3, (most - 1).bit_length()) + 1)]
        self._recordings = {size: self._record(spec, size) for size in sizes}
        width = self._param_count + 1 + math.prod(self._action_shape)
        self._answers = torch.empty((sizes[-1], width), pin_memory=True)
        # Who waits for it sleeps: workers have the core meanwhile.
        self._done = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]

    @torch.inference_mode()
    def _record(self, spec: EnvSpec, size: int) -> _Recording:
        everything = np.ones((size, spec.actions.param_count), np.bool_)
        start = Observation.at_start(
            np.zeros((size, spec.frames_stacked, *spec.frame_shape), spec.frame_dtype),
            actions=spec.actions,
            action_mask=everything if spec.has_action_mask else None,
        )
        arrays = [None if a is None else torch.from_numpy(a).to(self._device) for a in start]
        reads: Any = (*arrays, self._model.initial_state(size))
        self._work(*reads)  # libraries prepare themselves
        replay, writes = cuda_graph(lambda: self._work(*reads), self._generator)
        return _Recording(reads, replay, writes)

    def _work(
        self,
        stacks: Tensor,
        first: Tensor,
        action: Tensor,
        reward: Tensor,
        game: Tensor,
        action_mask: Tensor | None,
        state: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return parameters, value and action side by side as float32, features, and the memory."""
        inputs = Inputs(stacks.flatten(1, 2), first, action, reward, game, action_mask)
        features, heads, after = self._model(inputs, state)
        chosen = self.choose(heads.params).reshape(len(stacks), -1).float()
        answer = torch.cat([heads.params, heads.value.unsqueeze(1), chosen], 1)
        return answer, features.to(torch.float16), after

    @torch.inference_mode()
    def decide(self, observation: Observation, state: Tensor) -> tuple[Action, Tensor]:
        """Choose actions given the memory; see `Actor.decide`."""
        count = len(observation.stacks)
        size = next(size for size in self._recordings if size >= count)
        reads, replay, (answers, features, after) = self._recordings[size]
        *inputs, memory = reads
        for name, read in zip(Observation._fields, inputs, strict=True):
            if read is not None and not (self._is_plain and name in NOT_LOOKED_AT):
                read[:count].copy_(torch.from_numpy(getattr(observation, name)), non_blocking=True)
        memory[:count].copy_(state)
        replay()
        self._answers[:count].copy_(answers[:count], non_blocking=True)
        self._done.record()
        self._done.synchronize()
        params, value, action = np.split(
            self._answers[:count].numpy().copy(), [self._param_count, self._param_count + 1], 1
        )
        decision = Action(
            action=action.astype(self._action_dtype).reshape(count, *self._action_shape),
            params=params,
            value=value[:, 0],
            features=features[:count].cpu().numpy() if self._with_features else None,
            state=state.cpu().numpy() if self._model.state_count else None,
        )
        return decision, after[:count].clone()
