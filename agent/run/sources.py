"""Which source of batches the flags ask for: worker processes side by side, or all in turn.

Next to read: agent/run/experience.py, which says what a source does.
"""

from __future__ import annotations

from collections.abc import Callable

from ritornello.agent.assembly import Blueprint
from ritornello.agent.learning.feed import Feed
from ritornello.agent.learning.scorer import Scorer
from ritornello.agent.pools.pool import ProcessPool
from ritornello.agent.pools.serial_pool import SerialPool
from ritornello.agent.pools.worker_pool import WorkerPool
from ritornello.agent.run.capacity import CapacityWatch
from ritornello.agent.run.experience import Experience, Serial
from ritornello.agent.run.memory_check import free_memory_bytes, unrolls_when_full
from ritornello.agent.run.threaded import Threaded
from ritornello.transport.weights import WeightBoard

# (flags and shapes, where the newest weights are, the life of the workers) -> what is started.
MakeExperience = Callable[[Blueprint, WeightBoard, int], Experience]
MakePool = Callable[[Blueprint, WeightBoard, int], WorkerPool]


def make_experience(
    blueprint: Blueprint, board: WeightBoard, life: int, make_pool: MakePool | None = None
) -> Experience:
    """Return the source of batches that the flags ask for, not started.

    Args:
      blueprint: flags and shapes.
      board: where those who act find the newest weights.
      life: workers and servers of different lives play different games.
      make_pool: makes what unrolls come from; None: what the flags ask for.
    """
    flags, device = blueprint.flags, blueprint.choices.device
    replay, feed = blueprint.replay(), Feed(blueprint.schema, device)
    evaluate = None
    if replay.needs_evaluation:
        model, _ = blueprint.acting_model()
        scorer = Scorer(model, blueprint.acting_weights, board, blueprint.schema, device)
        evaluate = scorer.evaluate
    capacity = CapacityWatch(
        unrolls_when_full(blueprint),
        blueprint.schema.nbytes,
        free_memory_bytes,
        is_compressed=flags.use_replay_compression,
        agents=flags.agent_count,
    )
    if flags.reproducible and make_pool is None:
        serial = Serial(SerialPool(blueprint.workers(), board), replay, feed, evaluate)
        serial.capacity = capacity
        return serial
    own = _gateway_pool if flags.multiprocessing_backend == "ray" else _process_pool
    pool = (make_pool or own)(blueprint, board, life)
    depth = flags.cache_output_buffer_size
    threaded = Threaded(
        pool, replay, feed, evaluate,
        cache_depth=0 if not flags.caching_threads else None if depth == "auto" else int(depth),
        cache_threads=max(1, flags.caching_threads),
    )  # fmt: skip
    threaded.capacity = capacity
    return threaded


def _process_pool(blueprint: Blueprint, board: WeightBoard, life: int) -> WorkerPool:
    flags = blueprint.flags
    return ProcessPool(
        blueprint.workers(life=life),
        board,
        slots=flags.shared_queue_size,
        max_restarts=flags.max_worker_restarts,
        worker_timeout_s=flags.worker_timeout,
        server=blueprint.server(life=life),
    )


def _gateway_pool(blueprint: Blueprint, board: WeightBoard, life: int) -> WorkerPool:
    from ritornello.agent.cluster.gateway_pool import GatewayPool

    return GatewayPool(blueprint.gateway(life=life), board)
