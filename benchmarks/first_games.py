"""Unrolls of real games, played by a network that has learned nothing."""

from __future__ import annotations

from ritornello.agent.acting.worker import WorkerBody
from ritornello.agent.assembly import Blueprint
from ritornello.core.unroll import Record
from ritornello.transport.weights import WeightBoard


def played(blueprint: Blueprint, count: int) -> list[Record]:
    """Return unrolls of the first worker's games, as many whole blocks as `count` holds."""
    board = WeightBoard(blueprint.acting_weights.nbytes)
    with board.write(0) as block:
        blueprint.acting_weights.pack(blueprint.learner().model, block)
    config = blueprint.workers()[0]
    worker = WorkerBody(config, board)
    blocks = []
    for _ in range(count // config.num_envs):
        blocks.append(blueprint.schema.allocate(config.num_envs))
        worker.collect(blocks[-1])
    worker.close()
    return [record for block in blocks for record in block]
