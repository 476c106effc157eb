"""What the child processes of these tests run. A module of its own: spawned children import it."""

import ctypes
import os
import signal
import time

import numpy as np

from ritornello.core.episode import EpisodeEnd
from ritornello.core.errors import Closed
from ritornello.transport.channel import WorkerEnd, WorkerStats
from ritornello.transport.lifeline import Phase

TIMEOUT_S = 20.0


def pattern(worker, seq, envs, nbytes):
    """The bytes that block `seq` of a worker must have: no two blocks are equal."""
    return np.random.default_rng([worker, seq]).integers(0, 256, (envs, nbytes), np.uint8)


def as_worker(program, ring, *arguments):
    """Run one of these programs as a pool runs a worker."""
    *arguments, connection, _ = arguments
    program(WorkerEnd(ring, connection), *arguments)


def write_blocks(end, worker, count):
    """Hand over `count` blocks, then leave."""
    for seq in range(count):
        slot = end.wait_for_slot(TIMEOUT_S)
        assert slot is not None
        block = end.ring.block(slot)
        block[...] = pattern(worker, seq, *block.shape)
        game = EpisodeEnd(0, float(seq), 10, 40)
        end.send_ready(slot, (game,), WorkerStats(steps=20, total_s=1.0))


def announce_many_games(end, count):
    """Hand over one block in which `count` games ended, more than the pipe holds."""
    slot = end.wait_for_slot(TIMEOUT_S)
    assert slot is not None
    end.send_ready(slot, tuple(EpisodeEnd(0, float(n), n, 4 * n) for n in range(count)))


def write_blocks_and_die_half_way(end, worker, count):
    """Hand over `count` blocks, write half of the next and be killed by SIGKILL."""
    write_blocks(end, worker, count)
    slot = end.wait_for_slot(TIMEOUT_S)
    assert slot is not None
    block = end.ring.block(slot)
    block[: block.shape[0] // 2] = 77
    os.kill(os.getpid(), signal.SIGKILL)


def write_until_stopped(end):
    """Hand over blocks until the learner says stop or dies; exit status 7 tells it was Closed."""
    try:
        while True:
            slot = end.wait_for_slot(TIMEOUT_S)
            if slot is not None:
                end.send_ready(slot)
    except Closed:
        raise SystemExit(7) from None


def follow_weights(end, board, last):
    """Read each newer version until `last`; a torn copy is reported as a failure."""
    version, weights = -1, np.empty(board.nbytes, np.uint8)
    slot = end.wait_for_slot(TIMEOUT_S)
    assert slot is not None
    end.send_ready(slot)  # from here on it reads
    while version < last:
        newer = board.read_if_newer(version, weights)
        if newer is None:
            continue
        if newer <= version or not (weights == newer % 256).all():
            end.send_failed(f"version {newer} after {version} is torn: {np.unique(weights)}")
            return
        version = newer
    slot = end.wait_for_slot(TIMEOUT_S)
    assert slot is not None
    end.send_ready(slot, stats=WorkerStats(steps=version))


def add_up(box, doorbell, count):
    """Answer `count` questions: each action is the sum of its observation."""
    answered = 0
    while answered < count:
        for group in box.asked():
            letter = box.letter(group)
            letter["action"][...] = letter["stacks"].sum((1, 2, 3, 4), np.int64)
            box.answer(group)
            answered += 1
        if answered < count:
            doorbell.wait(0.0 if box.asked() else TIMEOUT_S)


def read_questions_and_die(box, doorbell, count):
    """Hear the bell, begin to answer, and be killed by SIGKILL."""
    assert doorbell.wait(TIMEOUT_S)
    box.letter(0)["action"][...] = 7
    os.kill(os.getpid(), signal.SIGKILL)


def ask_and_die(box, question):
    """Ask for the actions of group 0 and be killed by SIGKILL."""
    box.post(0, *question)
    os.kill(os.getpid(), signal.SIGKILL)


def beat_for_ever(end):
    """Give signs of life."""
    end.hold()
    while True:
        end.pulse.beat(Phase.STEPPING)


def hang_in_python(end):
    """Go to sleep, as code that waits for an answer does."""
    end.hold()
    end.pulse.beat(Phase.STEPPING)
    time.sleep(3600)


def hang_in_c(end):
    """Hang in a way that lets no line of Python run, in no thread: PyDLL keeps the interpreter."""
    end.hold()
    end.pulse.beat(Phase.STEPPING)
    while True:
        ctypes.PyDLL(None).sleep(3600)  # ends at a signal


def crash(end):
    """Read memory that is not there."""
    end.hold()
    ctypes.string_at(8)


def never_hold(end):
    """Get stuck before the lifeline is taken."""
    time.sleep(3600)
