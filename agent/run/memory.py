"""Whether a run fits into memory: asked before anything is made, and again while replay fills up.

A run that does not fit is not refused by the system: it starts, its buffers fill, and after an hour
the kernel kills whichever process is largest. So everything that grows with the flags is added up
here and compared with what is free, within the limit of this container if it has one.

The memory of an idle process, and of the learner's computation, does not follow from flags; it was
measured (Linux, torch 2.13 on a CPU) and is written below.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

import numpy as np
import psutil

from ritornello.agent.assembly import Blueprint, buffer_configs
from ritornello.agent.models.base import ActorCritic
from ritornello.core.errors import ConfigError
from ritornello.flags.options import Flags
from ritornello.replay.cache import MAX_DEPTH
from ritornello.replay.parameters import most_unrolls_held
from ritornello.transport.cgroups import container_free_bytes, container_limit_bytes
from ritornello.transport.ring import UnrollRing
from ritornello.transport.shared import check_shared_memory
from ritornello.transport.weights import WeightBoard

# Memory that no other process shares, of CartPole: a worker has torch and its environments' code.
WORKER_BYTES = 170_000_000
SERVER_BYTES = 250_000_000
GATEWAY_BYTES = 350_000_000  # with Ray's driver in it
RAY_BYTES = 400_000_000  # processes of a private Ray
# Beside the learner's process as it is now: activations, threads, charts, file buffers.
LEARNER_BYTES = 250_000_000
# Weights, their gradients and two moments of the optimiser. A checkpoint is written from these, or,
# of a learner on a GPU, from a copy of three of them.
COPIES_OF_WEIGHTS = 4
# The most that frames were ever seen to shrink (docs/performance.md), so that compressed replay is
# refused only where it cannot fit whatever the frames are like.
BEST_COMPRESSION = 50
FIRST_UNROLLS = 100  # after which replay is weighed for the first time
# Of Python's objects around a payload: the item, its array, its places in two buffers and tables.
ITEM_BYTES = 600
OF_ITEMS, OF_MEMORY = "replay/unrolls", "replay/memory_mb"

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Need:
    """Memory that one part of a run takes."""

    part: str
    nbytes: int
    is_shared: bool = False  # between processes, which a container may limit further

    def __str__(self) -> str:
        return f"{self.part} {self.nbytes / 1e9:.2f} GB"


def memory_needs(blueprint: Blueprint, model: ActorCritic) -> list[Need]:
    """Return the memory that the parts of a training take at most, in bytes; replay comes first.

    `model` is like that of the run; its weights are counted.
    """
    flags, weights = blueprint.flags, sum(tensor.nbytes for tensor in model.state_dict().values())
    needs = _of_learner(blueprint, weights)
    if flags.multiprocessing_backend == "ray":
        needs += _of_gateway(blueprint)
    if not (flags.reproducible or flags.ray_address):
        needs += _of_workers(blueprint, weights)
    if flags.evaluate_every_steps and not flags.reproducible:
        board, process = WeightBoard.nbytes_needed(weights), WORKER_BYTES + 3 * weights
        needs.append(Need("weights to evaluate", board, is_shared=True))
        needs.append(Need("the process that evaluates (--evaluate_every_steps)", process))
    return needs


def _of_learner(blueprint: Blueprint, weights: int) -> list[Need]:
    flags, schema = blueprint.flags, blueprint.schema
    unrolls = unrolls_when_full(blueprint)
    smaller = BEST_COMPRESSION if flags.use_replay_compression else 1
    batches = 1  # ahead, in the making, and being learned from
    if not flags.reproducible and flags.caching_threads:
        size = flags.cache_output_buffer_size
        batches += MAX_DEPTH if size == "auto" else int(size)
    # A batch holds stacks, of which neighbours share frames that an unroll stores once.
    stacks_bytes = (schema.unroll_length + 1) * _stack_bytes(blueprint)
    batch_bytes = flags.batch_size * (schema.nbytes + stacks_bytes)
    return [
        Need(
            f"replay of {unrolls:,} unrolls of {schema.nbytes / 1e3:.0f} kB (--replay_parameters)",
            unrolls * schema.nbytes // smaller,
        ),
        Need(f"{batches} batches (--batch_size, --r_f_steps)", batches * batch_bytes),
        Need(
            f"weights of {weights / 1e6:.0f} MB, their gradients, moments and checkpoint (--model)",
            COPIES_OF_WEIGHTS * weights,
        ),
        Need("the learner's process", LEARNER_BYTES),
    ]


def _of_gateway(blueprint: Blueprint) -> list[Need]:
    from ritornello.agent.cluster.gateway_pool import ring_slots

    choices = blueprint.choices
    ring = UnrollRing.nbytes_needed(
        ring_slots(choices.worker_count), choices.envs_per_worker, blueprint.schema.nbytes
    )
    nbytes = GATEWAY_BYTES + RAY_BYTES * (not blueprint.flags.ray_address)
    return [
        Need("the gateway to the cluster", nbytes),
        Need("the ring of the gateway", ring, is_shared=True),
    ]


def _of_workers(blueprint: Blueprint, weights: int) -> list[Need]:
    flags, schema = blueprint.flags, blueprint.schema
    workers, envs = blueprint.choices.worker_count, blueprint.choices.envs_per_worker
    ring = UnrollRing.nbytes_needed(flags.shared_queue_size, envs, schema.nbytes)
    board = WeightBoard.nbytes_needed(blueprint.acting_weights.nbytes)
    needs = [
        Need(
            f"{workers} rings (--worker_count, --envs_per_worker, --shared_queue_size)",
            workers * ring + board,
            is_shared=True,
        ),
        Need(f"{workers} worker processes (--worker_count)", workers * (WORKER_BYTES + weights)),
    ]
    if blueprint.choices.inference == "server":
        numbers = blueprint.env_spec.actions.param_count + schema.feature_count + schema.state_count
        letter_bytes = _stack_bytes(blueprint) + 4 * (numbers + 32)
        needs += [
            Need(f"{workers} mailboxes", workers * envs * letter_bytes, is_shared=True),
            Need("the inference server", SERVER_BYTES + weights),
        ]
    return needs


def _stack_bytes(blueprint: Blueprint) -> int:
    """Return the size of one observation as the network sees it."""
    dtype = np.dtype(blueprint.schema.env_spec.frame_dtype)
    return prod(blueprint.env_spec.obs_shape) * dtype.itemsize


def unrolls_when_full(blueprint: Blueprint) -> int:
    """Return how many different unrolls all replay buffers of a run hold when they are full."""
    flags = blueprint.flags
    configs = buffer_configs(flags, blueprint.env_spec)
    return most_unrolls_held(configs, flags.discarding_strategy, flags.batch_size)


def check_memory(blueprint: Blueprint, model: ActorCritic) -> None:
    """Raise ConfigError if a training of such a model cannot fit into the free memory."""
    needs = memory_needs(blueprint, model)
    learners = blueprint.place.local_world_size  # each of which finds the same memory free
    check_shared_memory(learners * sum(need.nbytes for need in needs if need.is_shared))
    needed, free = learners * sum(need.nbytes for need in needs), free_memory_bytes()
    agents, whole = blueprint.flags.agent_count, whole_memory_bytes()
    if needed <= free and (agents == 1 or agents * needed <= whole):
        return
    largest = sorted(needs, key=lambda need: need.nbytes, reverse=True)
    advice = "lower the largest of them"
    if not blueprint.flags.use_replay_compression and largest[0] is needs[0]:
        advice += ", or give --use_replay_compression=True"
    said = f"this run takes {needed / 1e9:.2f} GB of memory"
    if needed <= free:
        said += f", and {agents} like it {agents * needed / 1e9:.2f} GB, of {whole / 1e9:.2f} GB"
        advice += ", or let fewer run at once"
    else:
        said += f", and {free / 1e9:.2f} GB are free on this machine, within its container's limit"
    raise ConfigError(f"{said}: {', '.join(map(str, largest))}; {advice}.")


def free_memory_bytes() -> int:
    """Return how much memory this process and its children may still take."""
    free, container = psutil.virtual_memory().available, container_free_bytes()
    return int(free if container is None else min(free, container))


def whole_memory_bytes() -> int:
    """Return how much memory there is for all programs, within the limit of this container."""
    whole, container = psutil.virtual_memory().total, container_limit_bytes()
    return int(whole if container is None else min(whole, container))


class CapacityWatch:
    """Weighs the first unrolls in replay, because it is unknown before how well frames compress.

    If all unrolls together will not fit, the run ends at once, while little is lost.
    """

    def __init__(self, unrolls: int, flags: Flags) -> None:
        """Weigh nothing yet. `unrolls` is the number of unrolls that all buffers hold when full."""
        self._unrolls = unrolls
        self._flags = flags
        self._has_looked = False

    def look(self, figures: Mapping[str, float]) -> None:
        """Weigh the unrolls, by the metrics OF_ITEMS and OF_MEMORY, once there are enough.

        Raises:
          ConfigError: if replay will not fit.
        """
        held = int(figures.get(OF_ITEMS, 0))
        if self._has_looked or held < max(1, min(FIRST_UNROLLS, self._unrolls)):
            return
        self._has_looked = True
        each, agents = figures[OF_MEMORY] * 1e6 / held + ITEM_BYTES, self._flags.agent_count
        needed, free = agents * max(0, self._unrolls - held) * each, free_memory_bytes()
        takes = (
            f"replay of {self._unrolls:,} unrolls of {(each - ITEM_BYTES) / 1e3:.1f} kB will take "
            f"{self._unrolls * each / 1e9:.2f} GB of memory when it is full; {free / 1e9:.2f} GB "
            "are free"
        )
        if needed <= free:
            log.info("%s", takes)
            return
        advice = f"lower the capacities to {100 * free / needed:.0f} % of what they are"
        if not self._flags.use_replay_compression:
            advice += ", or give --use_replay_compression=True"
        many = f" for {agents} agents" if agents > 1 else ""
        raise ConfigError(
            f"{takes}, and {needed / 1e9:.2f} GB are still needed{many}: {advice} "
            "(--replay_parameters)."
        )
