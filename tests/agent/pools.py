"""Pools of worker processes: what comes from them, and what must be true of it."""

import time

from tests.deadlines import HANGS_S


def gather_until(pool, condition):
    """(worker, records) of the blocks that come until `condition(blocks)`, released at once."""
    taken, deadline = [], time.monotonic() + HANGS_S
    while not condition(taken):
        assert time.monotonic() < deadline, pool.describe()
        for block in pool.poll(0.2):
            taken.append((block.worker_id, block.records.copy()))
            block.release()
    return taken


def more_than(count):
    return lambda taken: len(taken) > count


def all_of(*workers):
    return lambda taken: {worker for worker, _ in taken} == set(workers)


def first_block_of(worker, schema):
    """Whether the first block of a life of a worker is among some."""
    return lambda taken: any(w == worker and schema.unroll(r).seq[0] == 0 for w, r in taken)


def check_no_unroll_is_missed(schema, taken, *, died=None):
    """Unrolls of each environment count from 0; those of a worker that died once do so twice."""
    seqs = {}
    for worker, records in taken:
        unroll = schema.unroll(records)
        for env, seq in zip(unroll.env_id.tolist(), unroll.seq.tolist(), strict=True):
            seqs.setdefault((worker, env), []).append(seq)
    for (worker, _), found in seqs.items():
        first = found.index(0, 1) if worker == died else len(found)
        assert found == [*range(first), *range(len(found) - first)]
