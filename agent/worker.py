"""A worker process: environments and who acts in them, writing unrolls into its ring.

It acts with a copy of the model of its own, or asks the inference server. `agent/pool.py` starts,
watches and restarts it. All its work is `Rollout.collect`.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
import sys
import time
import traceback
from dataclasses import dataclass

import numpy as np
import torch

from agent.acting import ActingModel, ActionSource, Actor, FlatWeights, LocalActor
from agent.inference_server import RemoteActor
from agent.machine import give_way, stay_on_core
from agent.models.factory import ModelConfig, make_model
from agent.rollout import EnvGroup, Rollout
from core import faults
from core.episode import EpisodeEnd
from core.errors import Closed
from core.rng import child_seed
from core.spec import EnvSpec
from core.unroll import Record, UnrollSchema
from transport.channel import WorkerEnd, WorkerStats
from transport.mailbox import Mailbox
from transport.weights import WeightBoard
from wrappers.config import EnvConfig
from wrappers.registry import make_env_vector
from wrappers.trusted_modules import trust_modules_of

SLOT_WAIT_S = 1.0  # how often a waiting worker looks up; it wakes at once when a slot comes free


@dataclass(frozen=True)
class WorkerConfig:
    """All that a worker needs to know; plain and picklable, so that spawn can carry it."""

    worker_id: int
    life: int  # 0, then 1 more for each restart, so that a restarted worker plays new games
    env_config: EnvConfig
    env_spec: EnvSpec
    num_envs: int
    tasks: tuple[int, ...]  # which game each environment plays
    unroll_length: int
    feature_count: int  # F if unrolls carry features, else 0
    state_count: int  # numbers in the model's memory, 0 if it has none
    model_config: ModelConfig
    popart: bool
    acting_dtype: torch.dtype
    seed: int
    core: int | None = None  # that the process stays on; None: wherever there is room
    restorable: bool = False
    check_unrolls: bool = False
    fault_plan: tuple[faults.Fault, ...] = ()  # what is to go wrong in this life (core/faults.py)

    def schema(self) -> UnrollSchema:
        """Return the schema of this worker's unrolls."""
        return UnrollSchema(self.env_spec, self.unroll_length, self.feature_count, self.state_count)


class WorkerBody:
    """What worker processes and the serial pool share: environments, and who acts in them."""

    def __init__(
        self, config: WorkerConfig, board: WeightBoard, mailbox: Mailbox | None = None
    ) -> None:
        """Build environments, and a model unless a server acts.

        Args:
          config: of the worker.
          board: where the newest weights are.
          mailbox: where to ask for actions; None: this worker acts itself.
        """
        self._path = ("worker", config.worker_id, "life", config.life)
        self._acting: ActingModel | None = None
        if mailbox is None:
            groups = [self._with_own_model(config, board)]
        else:
            groups = self._with_server(config, mailbox)
        self._schema = config.schema()
        self._check_unrolls = config.check_unrolls
        self._clocks = (time.monotonic(), 0.0, 0.0, 0.0)  # now, env, act, waited; seconds
        self._envs = [group.env for group in groups]
        self.rollout = Rollout(groups, self._schema, config.worker_id)

    def _with_own_model(self, config: WorkerConfig, board: WeightBoard) -> EnvGroup:
        """Return all environments as one group."""
        model = make_model(config.model_config, config.env_spec, popart=config.popart).eval()
        self._acting = ActingModel(model, FlatWeights(model, config.acting_dtype), board)
        actor = Actor(
            model,
            child_seed(config.seed, *self._path, "actor"),
            with_features=config.feature_count > 0,
        )
        everything = range(config.num_envs)
        return self._make_group(config, everything, LocalActor(actor, self._acting))

    def _with_server(self, config: WorkerConfig, mailbox: Mailbox) -> list[EnvGroup]:
        """Return one group of environments for each of the mailbox; their games are the same."""
        groups, start = [], 0
        for group, count in enumerate(mailbox.group_sizes):
            indices = range(start, start + count)
            groups.append(self._make_group(config, indices, RemoteActor(mailbox, group)))
            start += count
        return groups

    def _make_group(self, config: WorkerConfig, indices: range, actor: ActionSource) -> EnvGroup:
        """Return these environments of the worker, and who acts in them."""
        seeds = [child_seed(config.seed, *self._path, "env", index) for index in indices]
        tasks = [config.tasks[index] for index in indices]
        env = make_env_vector(
            config.env_config, len(indices), seeds, tasks=tasks, restorable=config.restorable
        )
        return EnvGroup(env, actor, np.array(tasks, np.int64))

    def close(self) -> None:
        """Close the environments."""
        for env in self._envs:
            env.close()

    def collect(
        self, block: Record, waited_s: float = 0.0
    ) -> tuple[int, tuple[EpisodeEnd, ...], WorkerStats]:
        """Fill a block with the newest weights; return their version, games that ended, times.

        The version is that of the oldest row 0 of the block.

        Args:
          block: [E, nbytes] uint8, written completely.
          waited_s: seconds this worker has waited for slots since its start.
        """
        if self._acting is not None:
            self._acting.refresh()
        if self._check_unrolls:
            self._schema.poison(block)
        episodes = self.rollout.collect(block)
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
        version = int(self._schema.view(block, "version").min())
        return version, tuple(episodes), stats


def worker_main(
    config: WorkerConfig, end: WorkerEnd, board: WeightBoard, mailbox: Mailbox | None = None
) -> None:
    """Entry point of the process. Returns when told to stop or when the learner is gone."""
    # The terminal sends Ctrl-C to every process; the parent alone decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    faults.load_for(f"worker {config.worker_id}", config.fault_plan)
    trust_modules_of(config.env_config.env_id)  # the learner's process has checked it
    give_way()
    if config.core is not None:
        stay_on_core(config.core)
    torch.set_num_threads(1)
    parent = multiprocessing.parent_process()
    if mailbox is not None and parent is not None:
        mailbox.hang_up_with(parent.sentinel)
    try:
        body = WorkerBody(config, board, mailbox)
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
