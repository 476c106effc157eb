"""Environments that use multiprocessing themselves, in a worker, which is a daemonic process."""

import multiprocessing
from concurrent.futures import ProcessPoolExecutor

import pytest

from ritornello.agent.pools.supervision import _as_parent
from tests.deadlines import HANGS_S

SPAWN = multiprocessing.get_context("spawn")


def process():
    child = SPAWN.Process(target=abs, args=(-1,))
    child.start()
    child.join(HANGS_S)
    assert child.exitcode == 0


def pool():
    with SPAWN.Pool(1) as workers:
        assert workers.map(abs, [-1]) == [1]


def executor():
    with ProcessPoolExecutor(1, mp_context=SPAWN) as workers:
        assert workers.submit(abs, -1).result(HANGS_S) == 1


def manager():
    with SPAWN.Manager() as shared:
        assert list(shared.list([1])) == [1]


def work(answer):
    for use in (process, pool, executor, manager):
        use()
        answer.send(use.__name__)


@pytest.mark.process
def test_a_worker_may_have_children():
    heard, answer = SPAWN.Pipe(duplex=False)
    worker = SPAWN.Process(target=_as_parent, args=(work, answer), daemon=True)
    worker.start()
    answer.close()
    try:
        for name in ("process", "pool", "executor", "manager"):
            assert heard.poll(HANGS_S)
            assert heard.recv() == name
    finally:
        worker.join(HANGS_S)
    assert worker.exitcode == 0
