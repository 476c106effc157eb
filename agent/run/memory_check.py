"""Whether a run fits into memory, asked before anything is made.

A run that does not fit is not refused by the system: it starts, its buffers fill, and after an hour
the kernel kills whichever process is largest. So everything that grows with the flags is added up
here and compared with what is free, within the limit of this container if it has one.

What a process takes before it does anything, and what the learner computes with, does not follow
from flags; it was measured (Linux, torch 2.13 on a CPU) and is written below.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np
import psutil

from ritornello.agent.assembly import Blueprint, buffer_configs
from ritornello.agent.models.base import ActorCritic
from ritornello.agent.run.threaded import MAX_CACHE_DEPTH
from ritornello.core.errors import ConfigError
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


@dataclass(frozen=True)
class Need:
    """What one part of a run takes."""

    part: str
    nbytes: int
    is_shared: bool = False  # between processes, which a container may limit further

    def __str__(self) -> str:
        return f"{self.part} {self.nbytes / 1e9:.2f} GB"


def memory_needs(blueprint: Blueprint, model: ActorCritic) -> list[Need]:
    """Return what the parts of a training take at most, in bytes.

    Args:
      blueprint: flags and shapes of the run.
      model: one like that of the run, whose weights are counted.
    """
    flags, choices, schema = blueprint.flags, blueprint.choices, blueprint.schema
    weights = sum(tensor.nbytes for tensor in model.state_dict().values())
    has_gateway = flags.multiprocessing_backend == "ray"
    workers = 0 if flags.reproducible or flags.ray_address else choices.worker_count
    envs = choices.envs_per_worker
    unrolls = unrolls_when_full(blueprint)
    kept_bytes = unrolls * schema.nbytes
    if flags.use_replay_compression:
        kept_bytes //= BEST_COMPRESSION
    # A batch holds stacks, of which neighbours share frames that an unroll stores once.
    stack_bytes = (
        prod(blueprint.env_spec.obs_shape) * np.dtype(schema.env_spec.frame_dtype).itemsize
    )
    batch_bytes = flags.batch_size * (schema.nbytes + (schema.unroll_length + 1) * stack_bytes)
    needs = [
        Need(
            f"replay of {unrolls:,} unrolls of {schema.nbytes / 1e3:.0f} kB (--replay_parameters)",
            kept_bytes,
        ),
        Need(
            f"{_batches(blueprint)} batches (--batch_size, --r_f_steps)",
            _batches(blueprint) * batch_bytes,
        ),
        Need(
            f"weights of {weights / 1e6:.0f} MB, their gradients, moments and checkpoint (--model)",
            COPIES_OF_WEIGHTS * weights,
        ),
        Need("the learner's process", LEARNER_BYTES),
    ]
    if has_gateway:
        nbytes = GATEWAY_BYTES + RAY_BYTES * (not flags.ray_address)
        from ritornello.agent.cluster.gateway_pool import ring_slots

        slots = ring_slots(choices.worker_count)
        needs += [
            Need("the gateway to the cluster", nbytes),
            Need(
                "the ring of the gateway",
                UnrollRing.nbytes_needed(slots, envs, schema.nbytes),
                is_shared=True,
            ),
        ]
    if workers:
        ring = UnrollRing.nbytes_needed(flags.shared_queue_size, envs, schema.nbytes)
        board = WeightBoard.nbytes_needed(blueprint.acting_weights.nbytes)
        needs += [
            Need(
                f"{workers} rings (--worker_count, --envs_per_worker, --shared_queue_size)",
                workers * ring + board,
                is_shared=True,
            ),
            Need(
                f"{workers} worker processes (--worker_count)", workers * (WORKER_BYTES + weights)
            ),
        ]
    if flags.evaluate_every_steps and not flags.reproducible:
        board = WeightBoard.nbytes_needed(weights)
        needs += [
            Need("weights to evaluate", board, is_shared=True),
            Need("the process that evaluates (--evaluate_every_steps)", WORKER_BYTES + 3 * weights),
        ]
    if workers and choices.inference == "server":
        letter_bytes = stack_bytes + 4 * (
            blueprint.env_spec.actions.param_count + schema.feature_count + schema.state_count + 32
        )
        needs += [
            Need(f"{workers} mailboxes", workers * envs * letter_bytes, is_shared=True),
            Need("the inference server", SERVER_BYTES + weights),
        ]
    return needs


def unrolls_when_full(blueprint: Blueprint) -> int:
    """Return how many different unrolls all replay buffers of a run hold when they are full."""
    flags = blueprint.flags
    configs = buffer_configs(flags, blueprint.env_spec)
    return most_unrolls_held(configs, flags.discarding_strategy, flags.batch_size)


def check_memory(blueprint: Blueprint, model: ActorCritic) -> None:
    """Raise ConfigError if a training cannot fit into the memory that is free here.

    Args:
      blueprint: flags and shapes of the run.
      model: one like that of the run.
    """
    needs = memory_needs(blueprint, model)
    learners = blueprint.place.local_world_size  # each of which finds the same memory free
    check_shared_memory(learners * sum(need.nbytes for need in needs if need.is_shared))
    needed, free = learners * sum(need.nbytes for need in needs), free_memory_bytes()
    agents = blueprint.flags.agent_count
    if needed <= free and (agents == 1 or agents * needed <= whole_memory_bytes()):
        return
    largest = sorted(needs, key=lambda need: need.nbytes, reverse=True)
    advice = "lower the largest of them"
    if not blueprint.flags.use_replay_compression and largest[0] is needs[0]:
        advice += ", or give --use_replay_compression=True"
    if needed <= free:
        raise ConfigError(
            f"this agent takes {needed / 1e9:.2f} GB of memory, and {agents} like it "
            f"{agents * needed / 1e9:.2f} GB, of {whole_memory_bytes() / 1e9:.2f} GB in all: "
            f"{', '.join(map(str, largest))}; {advice}, or let fewer run at once."
        )
    raise ConfigError(
        f"this run takes {needed / 1e9:.2f} GB of memory, and {free / 1e9:.2f} GB are free"
        f"{_limit()}: {', '.join(map(str, largest))}; {advice}."
    )


def free_memory_bytes() -> int:
    """Return how much memory this process and its children may still take."""
    free = int(psutil.virtual_memory().available)
    container = container_free_bytes()
    return free if container is None else min(free, container)


def whole_memory_bytes() -> int:
    """Return how much memory there is for all programs, within the limit of this container."""
    whole = int(psutil.virtual_memory().total)
    container = container_limit_bytes()
    return whole if container is None else min(whole, container)


def _batches(blueprint: Blueprint) -> int:
    """Return how many batches there are at once: ahead, in the making, and being learned from."""
    flags = blueprint.flags
    if flags.reproducible or not flags.caching_threads:
        return 1
    size = flags.cache_output_buffer_size
    return (MAX_CACHE_DEPTH if size == "auto" else int(size)) + 1


def _limit() -> str:
    container = container_free_bytes()
    if container is None or container > psutil.virtual_memory().available:
        return ""
    return " within the limit of this container"
