"""The one loop of environments and actor that makes experience: no process, no queue, no thread.

A worker process runs it on slots of shared memory, the serial pool on plain arrays; the bytes are
the same. Read core/unroll.py first for what the rows mean. Next: agent/worker.py, agent/pool.py.
"""

from __future__ import annotations

import time
from typing import Any, cast

import numpy as np

from agent.acting import Actor
from core.episode import EpisodeEnd
from core.unroll import Record, UnrollSchema
from wrappers.vector import EnvVector, RestorableEnvVector


class Rollout:
    """Steps E environments together and writes their unrolls, T rows at a time.

    Weights change only between calls of `collect`, so one version per unroll is exact.
    """

    def __init__(
        self, env: EnvVector, actor: Actor, schema: UnrollSchema, worker_id: int, task_id: int = 0
    ) -> None:
        """Start all environments; the first `collect` begins at their first observations."""
        self._env = env
        self._actor = actor
        self._schema = schema
        self._worker_id = worker_id
        self._task_id = task_id
        self._seq = 0
        self._stacks = env.reset()
        self._first = np.ones(env.num_envs, np.bool_)
        self.env_s = 0.0  # seconds spent in the environments since start
        self.act_s = 0.0  # seconds spent choosing actions since start

    def collect(self, block: Record, version: int) -> list[EpisodeEnd]:
        """Fill a block with the next unroll of every environment.

        Args:
          block: [E, schema.nbytes] uint8, written completely.
          version: learner updates in the actor's weights.

        Returns:
          The whole games that ended meanwhile.
        """
        unroll = self._schema.unroll(block)
        depth = self._schema.env_spec.frames_stacked
        unroll.worker_id[...] = self._worker_id
        unroll.env_id[...] = np.arange(self._env.num_envs)
        unroll.seq[...] = self._seq
        unroll.version[...] = version
        unroll.task_id[...] = self._task_id
        # The stack of row 0 as the environment shows it: its older frames are already cut there.
        unroll.frames[:, :depth] = self._stacks
        unroll.first[:, 0] = self._first
        episodes: list[EpisodeEnd] = []
        clock = time.perf_counter
        for t in range(self._schema.unroll_length):
            started = clock()
            decision = self._actor.act(self._stacks)
            decided = clock()
            result = self._env.step(decision.action)
            self.act_s += decided - started
            self.env_s += clock() - decided
            unroll.action[:, t] = decision.action
            unroll.behaviour_params[:, t] = decision.params
            unroll.behaviour_value[:, t] = decision.value
            if unroll.features is not None:
                unroll.features[:, t] = decision.features
            unroll.reward[:, t] = result.reward
            unroll.terminated[:, t] = result.terminated
            unroll.first[:, t + 1] = result.first
            unroll.frames[:, t + depth] = result.stacks[:, -1]
            episodes.extend(result.episodes)
            self._stacks = result.stacks
        self._first = unroll.first[:, -1].copy()
        self._seq += 1
        return episodes

    def state_dict(self) -> dict[str, Any]:
        """Return what the next unroll depends on; needs a restorable environment."""
        return {
            "env": cast("RestorableEnvVector", self._env).state_dict(),
            "actor": self._actor.state_dict(),
            "seq": self._seq,
            "first": self._first.astype(np.uint8),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on exactly where `state_dict` was taken."""
        self._stacks = cast("RestorableEnvVector", self._env).load_state_dict(state["env"])
        self._actor.load_state_dict(state["actor"])
        self._seq = int(state["seq"])
        self._first = np.asarray(state["first"]).astype(np.bool_)
