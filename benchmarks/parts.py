"""What each part of a training run costs alone, in microseconds of the whole machine.

Every part runs in as many single-threaded processes at once as there are cores, because that is how
a run loads the machine: a figure of 200 means 5 000 per second if all cores did only that.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from benchmarks.programs import START_S, all_started, answers
from ritornello.agent.acting.actor import Actor, Observation
from ritornello.agent.assembly import Blueprint, env_config
from ritornello.agent.learning.feed import Feed
from ritornello.agent.learning.learner import Learner
from ritornello.agent.learning.scorer import Scorer
from ritornello.agent.models.pixels import PixelStatistics
from ritornello.core.unroll import Record, UnrollSchema
from ritornello.replay.item import Draw, Item
from ritornello.transport.weights import WeightBoard
from ritornello.wrappers.registry import make_env_vector

WARM_UP_S = 1.0


def machine_us(part: str, flags: dict[str, Any], processes: int, seconds: float) -> float:
    """Return machine microseconds per unit of work of a part.

    Args:
      part: a key of PARTS.
      flags: values for option_flags.Flags.
      processes: how many run it at once; usually the number of cores.
      seconds: how long it is measured.
    """
    arguments = [(part, flags, seconds)] * processes
    rates: list[float] = answers(_measure, arguments, START_S + WARM_UP_S + seconds)
    return 1e6 / sum(rates)


def _measure(part: str, values: dict[str, Any], seconds: float) -> float:
    """Child process: return units of work per second."""
    torch.set_num_threads(1)
    from ritornello.flags.options import Flags

    work = PARTS[part](Blueprint.draw(Flags(**values)))
    work()
    all_started()
    until = time.perf_counter() + WARM_UP_S
    while time.perf_counter() < until:
        work()
    units, began = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - began) < seconds:
        units += work()
    return units / elapsed


def _emulation(blueprint: Blueprint) -> Callable[[], int]:
    """One unit: one agent step of one environment, random actions."""
    count = blueprint.choices.envs_per_worker
    env = make_env_vector(env_config(blueprint.flags), count, list(range(count)))
    env.reset()
    actions = np.random.default_rng(0).integers(0, env.spec.action_count, (997, count))
    position = 0

    def work() -> int:
        nonlocal position
        env.step(actions[position % len(actions)])
        position += 1
        return count

    return work


def _inference(blueprint: Blueprint) -> Callable[[], int]:
    """One unit: one action chosen for one environment."""
    spec, count = blueprint.env_spec, blueprint.choices.envs_per_worker
    model, block = blueprint.acting_model()
    blueprint.acting_weights.pack(_learner(blueprint).model, block)
    actor = Actor(model, 0, with_features=blueprint.schema.feature_count > 0)
    stacks = _frames(spec.frames_stacked, count, blueprint).swapaxes(0, 1).copy()
    observation = Observation.at_start(stacks)

    def work() -> int:
        actor.act(observation)
        return count

    return work


def _learner(blueprint: Blueprint) -> Learner:
    """Return a learner that knows the mean image, as nearly all of a run does."""
    learner = blueprint.learner()
    for module in learner.model.modules():
        if isinstance(module, PixelStatistics):
            images = torch.randint(0, 256, (8, *module.mean.shape), dtype=torch.uint8)
            while not module.is_settled:
                module.observe(images)
    return learner


def _frames(rows: int, columns: int, blueprint: Blueprint) -> np.ndarray:
    spec = blueprint.env_spec
    random = np.random.default_rng(0)
    if spec.is_image:
        return random.integers(0, 255, (rows, columns, *spec.frame_shape), np.uint8)
    return random.standard_normal((rows, columns, *spec.frame_shape)).astype(np.float32)


def synthetic_records(blueprint: Blueprint, count: int) -> list[Record]:
    """Return unrolls of plausible content: sparse rewards, a few ends of episodes."""
    schema = blueprint.schema
    random = np.random.default_rng(0)
    records = schema.allocate(count)
    unroll = schema.unroll(records)
    depth, steps = blueprint.env_spec.frames_stacked, schema.unroll_length
    unroll.frames[...] = _frames(count, steps + depth, blueprint)
    unroll.first[...] = False
    unroll.action[...] = random.integers(0, blueprint.env_spec.action_count, (count, steps))
    unroll.reward[...] = random.random((count, steps)) < 0.02
    unroll.terminated[...] = random.random((count, steps)) < 0.001
    unroll.behaviour_params[...] = random.standard_normal(unroll.behaviour_params.shape) * 0.1
    unroll.behaviour_value[...] = 0.0
    if unroll.features is not None:
        unroll.features[...] = random.random(unroll.features.shape)
    if unroll.state is not None:
        unroll.state[...] = random.standard_normal(unroll.state.shape) * 0.1
    for name in ("worker_id", "seq", "version", "task_id", "last_action", "last_reward"):
        getattr(unroll, name)[...] = 0
    unroll.env_id[...] = np.arange(count)
    return list(records)


def _draws(schema: UnrollSchema, records: list[Record]) -> list[Draw]:
    return [
        Draw(Item(i, record, "none", 0, 0), 0, record, i % 2 == 0)
        for i, record in enumerate(records)
    ]


def _learning(blueprint: Blueprint) -> Callable[[], int]:
    """One unit: one step of one unroll learned from."""
    learner = _learner(blueprint)
    size, schema = blueprint.flags.batch_size, blueprint.schema
    feed = Feed(schema, blueprint.choices.device)
    batch = feed.compose(_draws(schema, synthetic_records(blueprint, size)), 0)

    def work() -> int:
        learner.step(batch, 0.0)
        return size * schema.unroll_length

    return work


def _hand_over(blueprint: Blueprint) -> Callable[[], int]:
    """One unit: one step of an unroll copied out of its slot and inserted into the buffers."""
    flags = blueprint.flags.model_copy(update={"discarding_strategy": "keep_latest"})
    replay = Blueprint.draw(flags).replay()
    records = synthetic_records(blueprint, 8)

    def work() -> int:
        for record in records:
            replay.insert(record, 0, 1.0)
        return len(records) * blueprint.schema.unroll_length

    return work


def _sampling(blueprint: Blueprint) -> Callable[[], int]:
    """One unit: one step of one draw, chosen uniformly, stacked and re-stacked into a batch."""
    size, schema = blueprint.flags.batch_size, blueprint.schema
    feed = Feed(schema, blueprint.choices.device)
    draws = _draws(schema, synthetic_records(blueprint, size))

    def work() -> int:
        feed.compose(draws, 0)
        return size * schema.unroll_length

    return work


def _scoring(blueprint: Blueprint) -> Callable[[], int]:
    """One unit: one row of one candidate evaluated by the scorer."""
    schema = blueprint.schema
    board = WeightBoard(blueprint.acting_weights.nbytes)
    model, _ = blueprint.acting_model()
    with board.write(0) as idle:
        blueprint.acting_weights.pack(_learner(blueprint).model, idle)
    scorer = Scorer(model, blueprint.acting_weights, board, schema, blueprint.choices.device)
    records = synthetic_records(blueprint, 3 * blueprint.flags.batch_size)
    rows = np.arange(schema.unroll_length)

    def work() -> int:
        scorer.evaluate(records, rows)
        return len(records) * len(rows)

    return work


PARTS: dict[str, Callable[[Blueprint], Callable[[], int]]] = {
    "emulation": _emulation,
    "inference": _inference,
    "hand-over": _hand_over,
    "sampling": _sampling,
    "scoring": _scoring,
    "learning": _learning,
}
