"""The one loop of environments and actors that makes experience: no process, no queue, no thread.

A worker process runs it on slots of shared memory, the serial pool on plain arrays; the bytes are
the same. Read core/unroll.py first for what the rows mean. Next: agent/worker.py, agent/pool.py.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from agent.acting import ActionSource, LocalActor
from core.episode import EpisodeEnd
from core.unroll import Record, Unroll, UnrollSchema
from wrappers.vector import EnvVector, RestorableEnvVector


@dataclass(frozen=True)
class EnvGroup:
    """Environments that step together, and who chooses their actions."""

    env: EnvVector
    actor: ActionSource


@dataclass
class _Lane:
    """A group, the rows of a block that are its own, and where it stands."""

    group: EnvGroup
    rows: slice
    stacks: np.ndarray  # [n, S, *frame_shape], what the environments show now
    first: np.ndarray  # [n] bool


class Rollout:
    """Steps E environments and writes their unrolls, T rows at a time.

    With one group, all environments step together. With two, one group's actor may think while the
    other's environments step: each is asked right after its step, and answers a row later. Its
    last question of a block is then the first row of the next one, asked before `collect` begins.
    """

    def __init__(
        self, groups: Sequence[EnvGroup], schema: UnrollSchema, worker_id: int, task_id: int = 0
    ) -> None:
        """Start all environments; the first `collect` begins at their first observations.

        Args:
          groups: environments in the order of their rows; E is the sum of their sizes.
          schema: of the unrolls.
          worker_id: written into each unroll.
          task_id: likewise.
        """
        self._schema = schema
        self._worker_id = worker_id
        self._task_id = task_id
        self._seq = 0
        self._lanes: list[_Lane] = []
        start = 0
        for group in groups:
            rows = slice(start, start + group.env.num_envs)
            stacks = group.env.reset()
            group.actor.ask(stacks)
            self._lanes.append(_Lane(group, rows, stacks, np.ones(group.env.num_envs, np.bool_)))
            start = rows.stop
        self.env_s = 0.0  # seconds spent in the environments since start
        self.act_s = 0.0  # seconds spent choosing actions, or waiting for them, since start

    def collect(self, block: Record) -> list[EpisodeEnd]:
        """Fill a block with the next unroll of every environment.

        The version written into an unroll is that of its row 0. A `LocalActor` keeps its weights
        during the whole unroll; a server may take newer ones in between, and the recorded logits
        are those that acted, row by row.

        Args:
          block: [E, schema.nbytes] uint8, written completely.

        Returns:
          The whole games that ended meanwhile.
        """
        unrolls = [self._begin(lane, block) for lane in self._lanes]
        episodes: list[EpisodeEnd] = []
        for t in range(self._schema.unroll_length):
            for lane, unroll in zip(self._lanes, unrolls, strict=True):
                episodes += self._step(lane, unroll, t)
        for lane, unroll in zip(self._lanes, unrolls, strict=True):
            lane.first = unroll.first[:, -1].copy()
        self._seq += 1
        return episodes

    def _begin(self, lane: _Lane, block: Record) -> Unroll:
        """Write what is known of a lane's unrolls before their first step."""
        unroll = self._schema.unroll(block[lane.rows])
        unroll.worker_id[...] = self._worker_id
        unroll.env_id[...] = np.arange(lane.rows.start, lane.rows.stop)
        unroll.seq[...] = self._seq
        unroll.task_id[...] = self._task_id
        # The stack of row 0 as the environment shows it: its older frames are already cut there.
        unroll.frames[:, : self._schema.env_spec.frames_stacked] = lane.stacks
        unroll.first[:, 0] = lane.first
        return unroll

    def _step(self, lane: _Lane, unroll: Unroll, t: int) -> list[EpisodeEnd]:
        """Act once in each environment of a lane and write row t."""
        clock = time.perf_counter
        env, actor = lane.group.env, lane.group.actor
        started = clock()
        decision = actor.answer()
        decided = clock()
        result = env.step(decision.action)
        self.act_s += decided - started
        self.env_s += clock() - decided
        if t == 0:
            unroll.version[...] = actor.version
        unroll.action[:, t] = decision.action
        unroll.behaviour_params[:, t] = decision.params
        unroll.behaviour_value[:, t] = decision.value
        if unroll.features is not None:
            unroll.features[:, t] = decision.features
        actor.ask(result.stacks)  # as early as the answer has been read
        unroll.reward[:, t] = result.reward
        unroll.terminated[:, t] = result.terminated
        unroll.first[:, t + 1] = result.first
        unroll.frames[:, t + self._schema.env_spec.frames_stacked] = result.stacks[:, -1]
        lane.stacks = result.stacks
        offset = lane.rows.start
        return [replace(end, env_id=end.env_id + offset) for end in result.episodes]

    def state_dict(self) -> dict[str, Any]:
        """Return what the next unroll depends on.

        Needs a single group, with a restorable environment and a `LocalActor`.
        """
        (lane,) = self._lanes
        return {
            "env": cast("RestorableEnvVector", lane.group.env).state_dict(),
            "actor": cast("LocalActor", lane.group.actor).state_dict(),
            "seq": self._seq,
            "first": lane.first.astype(np.uint8),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on exactly where `state_dict` was taken."""
        (lane,) = self._lanes
        lane.stacks = cast("RestorableEnvVector", lane.group.env).load_state_dict(state["env"])
        lane.group.actor.ask(lane.stacks)
        cast("LocalActor", lane.group.actor).load_state_dict(state["actor"])
        self._seq = int(state["seq"])
        lane.first = np.asarray(state["first"]).astype(np.bool_)
