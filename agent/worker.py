"""A worker process: environments and an acting copy of the policy, writing unrolls into its ring.

`agent/pool.py` starts, watches and restarts it. All its work is `Rollout.collect`.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
import traceback
from dataclasses import dataclass

import numpy as np
import torch

from agent.acting import Actor, FlatWeights
from agent.models.factory import ModelConfig, make_model
from agent.rollout import Rollout
from core.episode import EpisodeEnd
from core.errors import Closed
from core.rng import child_seed
from core.spec import EnvSpec
from core.unroll import Record, UnrollSchema
from transport.channel import WorkerEnd, WorkerStats
from transport.weights import WeightBoard
from wrappers.config import EnvConfig
from wrappers.registry import make_env_vector

SLOT_WAIT_S = 1.0  # how often a waiting worker looks up; it wakes at once when a slot comes free

# Workers give way to the learner: its threads wait for one another, so that a worker that takes a
# core from one of them stops them all; a worker that is made to wait delays nobody.
NICENESS = 19


@dataclass(frozen=True)
class WorkerConfig:
    """All that a worker needs to know; plain and picklable, so that spawn can carry it."""

    worker_id: int
    life: int  # 0, then 1 more for each restart, so that a restarted worker plays new games
    env_config: EnvConfig
    env_spec: EnvSpec
    num_envs: int
    unroll_length: int
    feature_count: int  # F if unrolls carry features, else 0
    model_config: ModelConfig
    popart: bool
    acting_dtype: torch.dtype
    seed: int
    restorable: bool = False
    check_unrolls: bool = False

    def schema(self) -> UnrollSchema:
        """Return the schema of this worker's unrolls."""
        return UnrollSchema(self.env_spec, self.unroll_length, self.feature_count)


class WorkerBody:
    """What worker processes and the serial pool share: the rollout and its weights."""

    def __init__(self, config: WorkerConfig, board: WeightBoard) -> None:
        """Build environments and model, and load the newest weights."""
        path = ("worker", config.worker_id, "life", config.life)
        model = make_model(config.model_config, config.env_spec, popart=config.popart).eval()
        weights = FlatWeights(model, config.acting_dtype)
        self._block = np.zeros(weights.nbytes, np.uint8)
        weights.bind(model, self._block)
        self._board = board
        self._version = -1
        seeds = [child_seed(config.seed, *path, "env", i) for i in range(config.num_envs)]
        env = make_env_vector(
            config.env_config, config.num_envs, seeds, restorable=config.restorable
        )
        actor = Actor(
            model,
            child_seed(config.seed, *path, "actor"),
            with_features=config.feature_count > 0,
        )
        self._schema = config.schema()
        self._check_unrolls = config.check_unrolls
        self._clocks = (time.monotonic(), 0.0, 0.0, 0.0)  # now, env, act, waited; seconds
        self.rollout = Rollout(env, actor, self._schema, config.worker_id)
        self.close = env.close

    def collect(
        self, block: Record, waited_s: float = 0.0
    ) -> tuple[int, tuple[EpisodeEnd, ...], WorkerStats]:
        """Fill a block with the newest weights; return their version, games that ended, times.

        Args:
          block: [E, nbytes] uint8, written completely.
          waited_s: seconds this worker has waited for slots since its start.
        """
        version = self._board.read_if_newer(self._version, self._block)
        if version is not None:
            self._version = version
        if self._check_unrolls:
            self._schema.poison(block)
        episodes = self.rollout.collect(block, self._version)
        if self._check_unrolls:
            for record in block:
                self._schema.check(self._schema.unroll(record))
        first = self._schema.view(block, "first")
        clocks = (time.monotonic(), self.rollout.env_s, self.rollout.act_s, waited_s)
        total_s, env_s, act_s, wait_s = (
            now - before for now, before in zip(clocks, self._clocks, strict=True)
        )
        self._clocks = clocks
        steps = first[:, 1:].size - int(first[:, 1:].sum())  # a reset row is not a decision
        stats = WorkerStats(steps, total_s, env_s, act_s, wait_s)
        return self._version, tuple(episodes), stats


def worker_main(config: WorkerConfig, end: WorkerEnd, board: WeightBoard) -> None:
    """Entry point of the process. Returns when told to stop or when the learner is gone."""
    # The terminal sends Ctrl-C to every process; the parent alone decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(os, "nice"):
        os.nice(NICENESS)
    torch.set_num_threads(1)
    try:
        body = WorkerBody(config, board)
        end.send_started()
        while True:
            slot = end.wait_for_slot(SLOT_WAIT_S)
            if slot is not None:
                end.send_ready(slot, *body.collect(end.ring.block(slot), end.waited_s))
    except Closed:
        pass  # told to stop, or the learner's process is gone
    except BaseException:
        with contextlib.suppress(Closed):
            end.send_failed(traceback.format_exc())
        sys.exit(1)
    finally:
        end.close()
