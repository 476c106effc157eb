"""Small unrolls, items and managers for the tests of replay."""

from functools import lru_cache

import numpy as np

from ritornello.core.spec import EnvSpec
from ritornello.core.unroll import UnrollSchema
from ritornello.replay.item import Item
from ritornello.replay.manager import ReplayManager
from ritornello.replay.parameters import make_buffers, parse_replay_parameters
from ritornello.replay.scoring import Evaluation, SampleContext
from ritornello.replay.several_games import split_by_task
from ritornello.replay.sum_tree import SumTree

SPEC = EnvSpec("tests/Vector-v0", (3,), "float32", 1, ("left", "right"), 1)
SCHEMA = UnrollSchema(SPEC, unroll_length=4, feature_count=5)
SCHEMA_WITHOUT_FEATURES = UnrollSchema(SPEC, unroll_length=4)


def make_record(seq, env_id=0, version=0, schema=SCHEMA, task_id=0):
    """A valid record of which every byte follows from its `seq` (stored features: all `seq`)."""
    return _cached_record(seq, env_id, version, schema, task_id).copy()


@lru_cache(2000)
def _cached_record(seq, env_id, version, schema, task_id):
    rng = np.random.default_rng(seq)
    record = schema.allocate()
    unroll = schema.unroll(record)
    unroll.frames[...] = rng.normal(size=unroll.frames.shape)
    unroll.first[...] = False
    unroll.action[...] = rng.integers(0, 2, unroll.action.shape)
    unroll.reward[...] = seq
    unroll.terminated[...] = False
    unroll.behaviour_params[...] = rng.normal(size=unroll.behaviour_params.shape)
    unroll.behaviour_value[...] = rng.normal(size=unroll.behaviour_value.shape)
    if unroll.features is not None:
        unroll.features[...] = seq
    if unroll.state is not None:
        unroll.state[...] = seq
    header = {"worker_id": 0, "env_id": env_id, "seq": seq, "version": version, "task_id": task_id}
    header |= {"last_action": 0, "last_reward": 0}
    for name, value in header.items():
        schema.view(record, name)[...] = value
    return record


def seq_of(record, schema=SCHEMA):
    return int(schema.view(record, "seq"))


def make_item(item_id, inserted_at_update=0):
    return Item(item_id, np.zeros(1, np.uint8), "none", 0, inserted_at_update)


def fill(buffer, count, seed=0):
    """Insert the items 0, 1, ... and return them."""
    rng, items = np.random.default_rng(seed), [make_item(number) for number in range(count)]
    for item in items:
        buffer.insert(item, rng)
    return items


def check_valid(buffer):
    """Fail if an invariant of a buffer is broken."""
    table = buffer._table
    held = [entry.item.id for entry in table.entries]
    assert len(set(held)) == len(held) <= buffer.capacity
    assert {i: position for position, i in enumerate(held)} == dict(table._positions)
    assert all(entry.draws >= 0 for entry in table.entries)
    inserted = [entry.item.inserted_at_update for entry in table.entries]
    assert table._sum_inserted_at == sum(inserted)
    if table.priorities is not None:
        tree = table.priorities.tree
        check_sums(tree)
        masses = tree[np.arange(len(held))]
        assert (masses > 0).all(), "an item has no priority"
        assert tree.total == SumTree(masses).total, "there are priorities of items that are gone"


def check_sums(tree):
    """Fail if an inner node is not exactly the sum of its children."""
    inner, nodes = np.arange(1, tree._leaf_count), tree._nodes
    assert np.array_equal(nodes[inner], nodes[2 * inner] + nodes[2 * inner + 1])
    assert (nodes >= 0).all()


def priorities_of(buffer):
    """The priority of each item by its id."""
    state = buffer.state_dict()
    return dict(zip(state["ids"].tolist(), state["priorities"].tolist(), strict=True))


def evaluate_as_stored(records, rows, queries=()):
    """A model that has not changed since the unrolls were made."""
    views = [SCHEMA.unroll(record) for record in records]
    return Evaluation(
        np.stack([view.features[rows] for view in views]).astype(np.float32),
        np.stack([view.behaviour_params[rows] for view in views]),
        np.stack([SCHEMA.view(q, "features")[rows[-1]] for q in queries]) if queries else None,
    )


def context(progress=0.0, update=0, evaluate=None):
    return SampleContext(update, progress, evaluate or evaluate_as_stored)


def queries_of(buffer):
    """A list that will hold the `seq` of each query with which an attentive buffer compares."""
    seen: list[int] = []
    measure = buffer.sampler.measure

    def spy(evidence):
        seen.extend(evidence.queries[:, 0].astype(int).tolist())
        return measure(evidence)

    buffer.sampler.measure = spy
    return seen


def make_manager(
    parameters,
    batch_size,
    *,
    fill_in_factor=0.0,
    seed=0,
    codec="none",
    schema=SCHEMA,
    task_shares=(1.0,),
    **options,
):
    configs = split_by_task(parse_replay_parameters(parameters), task_shares)
    return ReplayManager(
        make_buffers(configs, fill_in_factor),
        [config.sample_ratio for config in configs],
        batch_size,
        np.random.default_rng(seed),
        schema=schema,
        codec=codec,
        **options,
    )


def maker(kind):
    """A function that writes the configuration of a buffer of this kind."""

    def make(capacity, ratio=1.0, **more):
        return {"type": kind, "capacity": capacity, "sample_ratio": ratio, **more}

    return make


queue, standard, elite, attentive = map(maker, ("queue", "standard", "elite", "attentive"))
prioritised, least_drawn, circular = map(maker, ("prioritised", "least_drawn", "circular"))

ALL_KINDS = [
    queue(3, 0.2),
    prioritised(20, 0.1),
    least_drawn(20, 0.1),
    standard(20, 0.2, reservoir=True),
    elite(20, 0.2, insert_strategy="elite_insertion", elite_batch_size=5, score_period=2),
    attentive(20, 0.2),
]
