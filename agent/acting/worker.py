"""A worker process: environments and their actors, writing unrolls into its ring.

It acts with a copy of the model of its own, or asks the inference server. `agent/pools/pool.py`
starts, watches and restarts it. All its work is `Rollout.collect`.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import sys
import time
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection

import numpy as np
import torch

from ritornello.agent.acting.acting_model import ActingModel, FlatWeights
from ritornello.agent.acting.actor import ActionSource, Actor, LocalActor
from ritornello.agent.acting.config import WorkerConfig
from ritornello.agent.acting.inference_server import RemoteActor
from ritornello.agent.acting.lane import Lane
from ritornello.agent.acting.rollout import Rollout
from ritornello.agent.machine import give_way, stay_on_core
from ritornello.agent.models.factory import make_model
from ritornello.core.episode import EpisodeEnd
from ritornello.core.errors import Closed, EnvironmentFault
from ritornello.core.process_death import ignore_interrupts
from ritornello.core.rng import child_seed
from ritornello.core.standard_error import limit_warnings
from ritornello.core.unroll import Record
from ritornello.transport.channel import WorkerEnd, WorkerStats, last_words
from ritornello.transport.lifeline import LifelineEnd, Phase, no_beat
from ritornello.transport.mailbox import Mailbox
from ritornello.transport.ring import UnrollRing
from ritornello.transport.weights import WeightBoard
from ritornello.wrappers.registry import make_env_vector
from ritornello.wrappers.trusted_modules import trust_kwargs, trust_modules_of

SLOT_WAIT_S = 1.0  # how often a waiting worker looks up; it wakes at once when a slot comes free


class WorkerBody:
    """What worker processes and the serial pool share: environments and their actors."""

    def __init__(
        self,
        config: WorkerConfig,
        board: WeightBoard,
        mailbox: Mailbox | None = None,
        beat: Callable[[Phase], None] = no_beat,
    ) -> None:
        """Build environments, and a model if there is no mailbox to ask for actions.

        `beat` is called with the present phase, at each change.
        """
        self._config, self._beat = config, beat
        self._path: tuple[str | int, ...] = ("worker", config.worker_id, "life", config.life)
        if config.launch:
            self._path += ("launch", *config.launch)
        self._acting: ActingModel | None = None
        if mailbox is None:
            self._lanes = [self._with_own_model(board)]
        else:
            self._lanes = self._with_server(mailbox)
        self._schema = config.schema()
        self._clocks = (time.monotonic(), 0.0, 0.0, 0.0)  # now, env, act, waited; seconds
        self.rollout = Rollout(self._lanes, self._schema, config.worker_id, beat)

    def _with_own_model(self, board: WeightBoard) -> Lane:
        """Return all environments as one lane."""
        config = self._config
        model = make_model(config.model_config, config.env_spec, popart=config.popart).eval()
        self._acting = ActingModel(model, FlatWeights(model, config.acting_format), board)
        actor = Actor(
            model,
            child_seed(config.seed, *self._path, "actor"),
            with_features=config.feature_count > 0,
        )
        return self._lane(range(config.num_envs), LocalActor(actor, self._acting))

    def _with_server(self, mailbox: Mailbox) -> list[Lane]:
        """Return a lane for each group of the mailbox; their environments play the same games."""
        lanes, start = [], 0
        for group, count in enumerate(mailbox.group_sizes):
            actor = RemoteActor(mailbox, group, self._beat)
            lanes.append(self._lane(range(start, start + count), actor))
            start += count
        return lanes

    def _lane(self, indices: range, actor: ActionSource) -> Lane:
        """Return the worker's environments with these indices, with their actor."""
        self._beat(Phase.BUILDING)
        config = self._config
        seeds = [child_seed(config.seed, *self._path, "env", index) for index in indices]
        tasks = [config.tasks[index] for index in indices]
        env = make_env_vector(
            config.env_config, len(indices), seeds, tasks=tasks, restorable=config.restorable
        )
        return Lane(env, actor, np.array(tasks, np.int64))

    def close(self) -> None:
        """Close all environments, also after one that fails to; raises the last failure."""
        with contextlib.ExitStack() as stack:
            for lane in self._lanes:
                stack.callback(lane.env.close)

    def collect(
        self, block: Record, waited_s: float = 0.0
    ) -> tuple[tuple[EpisodeEnd, ...], WorkerStats]:
        """Fill a block with the newest weights; return the games that ended, and times.

        `block` is [E, nbytes] uint8; all of it is written. `waited_s` is how long this worker has
        waited for slots since its start.
        """
        self._beat(Phase.ACTING)
        if self._acting is not None:
            self._acting.refresh()
        if self._config.check_unrolls:
            self._schema.poison(block)
        episodes = self.rollout.collect(block)
        if self._config.check_unrolls:
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
        return tuple(episodes), stats


def prepare_process(config: WorkerConfig) -> None:
    """Make this process one in which a worker runs."""
    trust_modules_of(config.env_config.env_id)  # the learner's process has checked it,
    trust_modules_of(config.model_config.name)
    trust_kwargs(config.env_config.kwargs)  # and these too
    give_way()
    if config.core is not None:
        stay_on_core(config.core)
    torch.set_num_threads(1)
    limit_warnings()


def worker_main(
    config: WorkerConfig,
    ring: UnrollRing,
    board: WeightBoard,
    mailbox: Mailbox | None,
    connection: Connection,
    lifeline: LifelineEnd,
) -> None:
    """Entry point of the process. Returns when told to stop or when the learner is gone."""
    ignore_interrupts()
    lifeline.hold()
    prepare_process(config)
    parent = multiprocessing.parent_process()
    if mailbox is not None and parent is not None:
        mailbox.hang_up_with(parent.sentinel)
    beat, end = lifeline.pulse.beat, WorkerEnd(ring, connection)
    body = None
    try:
        body = WorkerBody(config, board, mailbox, beat)
        while True:
            beat(Phase.WAITING)
            slot = end.wait_for_slot(SLOT_WAIT_S)
            if slot is not None:
                report = body.collect(ring.block(slot), end.waited_s)
                beat(Phase.SENDING)
                end.send_ready(slot, *report)
    except Closed:
        pass  # told to stop, or the learner's process is gone
    except BaseException as error:
        _say(end, words_of(error))
        sys.exit(1)
    finally:
        beat(Phase.CLOSING)
        if body is not None:
            _close(body, end)
        end.close()


def _close(body: WorkerBody, end: WorkerEnd) -> None:
    """Close the environments: they may own processes, windows or files."""
    try:
        body.close()
    except BaseException as error:
        _say(end, words_of(error))


def words_of(error: BaseException) -> str:
    """Return the last words of a worker that `error` ends.

    If an environment broke its contract, they are the text of the fault: a traceback would show
    only code of this program.
    """
    if isinstance(error, EnvironmentFault) and error.__cause__ is None:
        return f"EnvironmentFault: {error}"
    return "".join(traceback.format_exception(error))


def _say(end: WorkerEnd, words: str) -> None:
    with contextlib.suppress(Closed):
        end.send_failed(last_words(words))
