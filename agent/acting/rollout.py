"""The loop that makes experience: actors choose actions, environments step, rows are written.

It uses no process, queue or thread itself. A worker process (agent/acting/worker.py) runs it on
slots of shared memory, and the serial pool (agent/pools/serial_pool.py) runs it on plain arrays;
the bytes are the same. core/unroll.py explains the rows.

Next to read: transport/ring.py, through which unrolls reach the learner.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ritornello.agent.acting.lane import Lane
from ritornello.core.episode import EpisodeEnd
from ritornello.core.saved_state import whole
from ritornello.core.unroll import Record, Unroll, UnrollSchema
from ritornello.transport.lifeline import Phase, no_beat


class Rollout:
    """Steps E environments and writes their unrolls, T rows at a time.

    With one group, all environments step together. With two groups, one group's actions are
    computed while the other group's environments step. Each group asks for its next action right
    after it has stepped, and uses the answer one row later. The last question of a block therefore
    belongs to row 0 of the next block.
    """

    def __init__(
        self,
        lanes: Sequence[Lane],
        schema: UnrollSchema,
        worker_id: int,
        beat: Callable[[Phase], None] = no_beat,
    ) -> None:
        """Start all environments; the first `collect` begins at their first observations.

        `lanes` are in the order of their rows, and E is the sum of their sizes. `worker_id` is
        written into each unroll. `beat` is called with the present phase, at each change.
        """
        self._beat = beat
        self._schema = schema
        self._worker_id = worker_id
        self._seq = 0
        self._lanes = list(lanes)
        first_row = 0
        for lane in self._lanes:
            beat(Phase.BUILDING)
            lane.start(first_row)
            first_row = lane.rows.stop
        self.env_s = 0.0  # seconds spent in the environments since start
        self.act_s = 0.0  # seconds spent choosing actions, or waiting for them, since start

    def collect(self, block: Record) -> list[EpisodeEnd]:
        """Fill a block with the next unroll of every environment; return the games that ended.

        `block` is [E, schema.nbytes] uint8, one record per environment; all of it is written.

        The version in an unroll is the version of the weights at row 0. A `LocalActor` keeps its
        weights during the whole unroll. A server may take newer ones in between; the logits in each
        row are those from which its action was drawn.
        """
        unrolls = [self._begin(lane, block) for lane in self._lanes]
        episodes: list[EpisodeEnd] = []
        for t in range(self._schema.unroll_length):
            for lane, unroll in zip(self._lanes, unrolls, strict=True):
                episodes += self._step(lane, unroll, t)
        self._seq += 1
        return episodes

    def _begin(self, lane: Lane, block: Record) -> Unroll:
        """Write the header and row 0 of a lane's unrolls, before their first step."""
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
        if unroll.action_mask is not None:
            unroll.action_mask[:, 0] = lane.now.action_mask
        return unroll

    def _step(self, lane: Lane, unroll: Unroll, t: int) -> list[EpisodeEnd]:
        """Act once in each environment of a lane and write row t."""
        clock = time.perf_counter
        env, actor = lane.env, lane.actor
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
        # A copy, because the decision is valid only until the next question.
        lane.now = lane.now.after(decision.action.copy(), result)
        actor.ask(lane.now)  # as early as the answer has been read
        unroll.reward[:, t] = result.reward
        unroll.terminated[:, t] = result.terminated
        unroll.first[:, t + 1] = result.first
        if unroll.action_mask is not None:
            unroll.action_mask[:, t + 1] = result.action_mask
        unroll.frames[:, t + self._schema.env_spec.frames_stacked] = result.stacks[:, -1]
        offset, tasks = lane.rows.start, lane.now.task_id
        return [
            replace(end, env_id=end.env_id + offset, task_id=int(tasks[end.env_id]))
            for end in result.episodes
        ]

    def state_dict(self) -> dict[str, Any]:
        """Return the state on which the next unroll depends.

        Needs a single group, with a restorable environment and a `LocalActor`.
        """
        (lane,) = self._lanes
        return {**lane.state_dict(), "seq": self._seq}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue exactly from the moment of a `state_dict`."""
        (lane,) = self._lanes
        lane.load_state_dict(state)
        self._seq = whole(state, "seq")
