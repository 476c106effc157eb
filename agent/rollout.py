"""The one loop of environments and actors that makes experience: no process, no queue, no thread.

A worker process runs it on slots of shared memory, the serial pool on plain arrays; the bytes are
the same. Read core/unroll.py first for what the rows mean. Next: agent/worker.py, agent/pool.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from agent.acting import ActionSource, LocalActor, Observation
from core.episode import EpisodeEnd
from core.unroll import Record, Unroll, UnrollSchema
from transport.pulse import Phase, no_beat
from wrappers.vector import EnvVector, RestorableEnvVector


@dataclass(frozen=True)
class EnvGroup:
    """n environments that step together, and who chooses their actions."""

    env: EnvVector
    actor: ActionSource
    task_id: np.ndarray  # [n] int64, which game each of them plays


@dataclass
class _Lane:
    """A group, the rows of a block that are its own, and where it stands."""

    group: EnvGroup
    rows: slice
    now: Observation  # what the environments show, and what came before


class Rollout:
    """Steps E environments and writes their unrolls, T rows at a time.

    With one group, all environments step together. With two, one group's actor may think while the
    other's environments step: each is asked right after its step, and answers a row later. Its
    last question of a block is then the first row of the next one, asked before `collect` begins.
    """

    def __init__(
        self,
        groups: Sequence[EnvGroup],
        schema: UnrollSchema,
        worker_id: int,
        beat: Callable[[Phase], None] = no_beat,
    ) -> None:
        """Start all environments; the first `collect` begins at their first observations.

        Args:
          groups: environments in the order of their rows; E is the sum of their sizes.
          schema: of the unrolls.
          worker_id: written into each unroll.
          beat: is told what happens, at each change.
        """
        self._beat = beat
        self._schema = schema
        self._worker_id = worker_id
        self._seq = 0
        self._lanes: list[_Lane] = []
        start = 0
        for group in groups:
            beat(Phase.BUILDING)
            rows = slice(start, start + group.env.num_envs)
            now = Observation.at_start(group.env.reset(), group.task_id)
            group.actor.ask(now)
            self._lanes.append(_Lane(group, rows, now))
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
        self._seq += 1
        return episodes

    def _begin(self, lane: _Lane, block: Record) -> Unroll:
        """Write what is known of a lane's unrolls before their first step."""
        unroll = self._schema.unroll(block[lane.rows])
        unroll.worker_id[...] = self._worker_id
        unroll.env_id[...] = np.arange(lane.rows.start, lane.rows.stop)
        unroll.seq[...] = self._seq
        unroll.task_id[...] = lane.now.task_id
        unroll.last_action[...] = lane.now.last_action
        unroll.last_reward[...] = lane.now.last_reward
        # The stack of row 0 as the environment shows it: its older frames are already cut there.
        unroll.frames[:, : self._schema.env_spec.frames_stacked] = lane.now.stacks
        unroll.first[:, 0] = lane.now.first
        return unroll

    def _step(self, lane: _Lane, unroll: Unroll, t: int) -> list[EpisodeEnd]:
        """Act once in each environment of a lane and write row t."""
        clock = time.perf_counter
        env, actor = lane.group.env, lane.group.actor
        started = clock()
        self._beat(Phase.ACTING)
        decision = actor.answer()
        decided = clock()
        self._beat(Phase.STEPPING)
        result = env.step(decision.action)
        self.act_s += decided - started
        self.env_s += clock() - decided
        if t == 0:
            unroll.version[...] = actor.version
            if unroll.state is not None:
                unroll.state[...] = decision.state
        unroll.action[:, t] = decision.action
        unroll.behaviour_params[:, t] = decision.params
        unroll.behaviour_value[:, t] = decision.value
        if unroll.features is not None:
            unroll.features[:, t] = decision.features
        # A copy, since the decision is valid no longer than until the next question.
        lane.now = lane.now.after(decision.action.copy(), result)
        actor.ask(lane.now)  # as early as the answer has been read
        unroll.reward[:, t] = result.reward
        unroll.terminated[:, t] = result.terminated
        unroll.first[:, t + 1] = result.first
        unroll.frames[:, t + self._schema.env_spec.frames_stacked] = result.stacks[:, -1]
        offset, tasks = lane.rows.start, lane.now.task_id
        return [
            replace(end, env_id=end.env_id + offset, task_id=int(tasks[end.env_id]))
            for end in result.episodes
        ]

    def state_dict(self) -> dict[str, Any]:
        """Return what the next unroll depends on.

        Needs a single group, with a restorable environment and a `LocalActor`.
        """
        (lane,) = self._lanes
        return {
            "env": cast("RestorableEnvVector", lane.group.env).state_dict(),
            "actor": cast("LocalActor", lane.group.actor).state_dict(),
            "seq": self._seq,
            "first": lane.now.first.astype(np.uint8),
            "last_action": lane.now.last_action.copy(),
            "last_reward": lane.now.last_reward.copy(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on exactly where `state_dict` was taken."""
        (lane,) = self._lanes
        count = lane.group.env.num_envs
        lane.now = Observation(
            stacks=cast("RestorableEnvVector", lane.group.env).load_state_dict(state["env"]),
            first=np.asarray(state["first"]).astype(np.bool_),
            # Not in checkpoints from before unrolls held them; no model of those days looks at it.
            last_action=np.asarray(state.get("last_action", np.zeros(count, np.int64))),
            last_reward=np.asarray(state.get("last_reward", np.zeros(count, np.float32))),
            task_id=lane.group.task_id,
        )
        cast("LocalActor", lane.group.actor).load_state_dict(state["actor"])
        lane.group.actor.ask(lane.now)
        self._seq = int(state["seq"])
