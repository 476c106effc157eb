"""Whole workers in spawned processes: what arrives, who dies, what is left."""

import multiprocessing
import os
import signal
import struct
import sys
import termios
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fcntl import ioctl
from multiprocessing.connection import wait
from types import SimpleNamespace

import numpy as np
import pytest

from ritornello.agent.pools.places import WorkerPlace
from ritornello.transport.channel import Free, Stop, WorkerEnd
from ritornello.transport.ring import SlotState, UnrollRing
from ritornello.transport.weights import WeightBoard
from tests.deadlines import HANGS_S
from tests.transport import programs
from tests.transport.programs import TIMEOUT_S, pattern

ENVS, NBYTES = 4, 3000
NO_WARDEN = SimpleNamespace(keep=lambda *_: None, release=lambda *_: None)


@dataclass(frozen=True)
class Config:
    num_envs: int
    nbytes: int
    worker_id: int = 0
    life: int = 0

    def schema(self):
        return self


class Place(WorkerPlace):
    """A worker's place, in which programs of tests/transport/programs.py run."""

    def __init__(self, slots=3, envs=ENVS, nbytes=NBYTES):
        super().__init__(Config(envs, nbytes), slots, None, NO_WARDEN)

    def start(self, *program):
        self.program = program
        self.launch(None)
        return self.life.process

    def entry(self, board):
        program, *arguments = self.program
        return programs.as_worker, (program, self.ring, *arguments)


def drain(places, order=None):
    """Read from all until everybody has left; blocks are copied out in a shuffled order."""
    blocks, messages, held = defaultdict(dict), defaultdict(list), []
    deadline = time.monotonic() + HANGS_S
    while living := {k: p for k, p in places.items() if p.life.connection is not None}:
        assert time.monotonic() < deadline, "the workers hang"
        wait([place.life.connection for place in living.values()], timeout=1.0)
        for key, place in living.items():
            for message in place.receive():
                messages[key].append(message)
                held.append((key, message))
        if order is not None:
            order.shuffle(held)
        for key, message in held:
            seq = int(message.episodes[0].return_raw) if message.episodes else 0
            blocks[key][seq] = places[key].ring.take(message.slot).copy()
            places[key].free(message.slot)
        held = []
    return blocks, messages


@pytest.mark.process
def test_a_committed_unroll_is_read_back_byte_identical_from_any_worker_under_any_interleaving():
    places = {k: Place() for k in range(2)}
    processes = [place.start(programs.write_blocks, k, 60) for k, place in places.items()]
    blocks, messages = drain(places, np.random.default_rng(0))
    for worker in places:
        assert sorted(blocks[worker]) == list(range(60))
        for seq, block in blocks[worker].items():
            np.testing.assert_array_equal(block, pattern(worker, seq, ENVS, NBYTES))
        assert [m.episodes[0].return_raw for m in messages[worker]] == list(range(60))
        assert sum((m.stats for m in messages[worker][1:]), messages[worker][0].stats).steps == 1200
    for process in processes:
        process.join(TIMEOUT_S)
        assert process.exitcode == 0


@pytest.mark.process
def test_a_worker_killed_while_writing_loses_only_the_block_it_was_writing():
    places = {k: Place() for k in range(2)}
    victim = places[0].start(programs.write_blocks_and_die_half_way, 0, 7)
    other = places[1].start(programs.write_blocks, 1, 60)
    blocks, _ = drain(places)
    victim.join(TIMEOUT_S)
    other.join(TIMEOUT_S)
    assert (victim.exitcode, other.exitcode) == (-signal.SIGKILL, 0)
    for worker, count in ((0, 7), (1, 60)):
        assert sorted(blocks[worker]) == list(range(count))
        for seq, block in blocks[worker].items():
            np.testing.assert_array_equal(block, pattern(worker, seq, ENVS, NBYTES))

    # Its slot is still WRITING; a successor gets a ring without holes.
    ring = places[0].ring
    assert (ring.count(SlotState.FREE), ring.count(SlotState.WRITING)) == (2, 1)
    assert places[0].bury() == " after 0 unrolls; 1 unfinished block lost"
    assert ring.count(SlotState.FREE) == 3
    successor = places[0].start(programs.write_blocks, 5, 9)
    blocks, _ = drain({5: places[0]})
    successor.join(TIMEOUT_S)
    assert sorted(blocks[5]) == list(range(9))


@pytest.mark.process
def test_a_worker_leaves_when_it_is_told_to_and_when_the_learner_is_gone():
    leave = [lambda p: p.life.send(Stop()), lambda p: p.life.hang_up()]
    places = [Place(2, 1, 64) for _ in leave]
    processes = [place.start(programs.write_until_stopped) for place in places]
    for place, process, ask in zip(places, processes, leave, strict=True):
        for _ in range(5):  # let it work a little first
            assert wait([place.life.connection], TIMEOUT_S)
            for message in place.receive():
                place.ring.take(message.slot)
                place.free(message.slot)
        ask(place)
        process.join(TIMEOUT_S)
        assert process.exitcode == 7


@pytest.mark.process
def test_readers_in_other_processes_never_see_torn_weights():
    board, place, last = WeightBoard(200_000), Place(2, 1, 8), 400
    process = place.start(programs.follow_weights, board, last)
    assert wait([place.life.connection], TIMEOUT_S)
    for version in range(last + 1):
        with board.write(version) as half:
            half[...] = version % 256
    _, messages = drain({0: place})
    process.join(TIMEOUT_S)
    assert place.life.failure == ""
    assert messages[0][-1].stats.steps == last


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux how much waits in the pipe")
def test_a_worker_stopped_in_the_middle_of_many_games_does_not_hold_its_reader():
    place = Place(2)
    process = place.start(programs.announce_many_games, 9_000)
    try:
        wait_until_the_pipe_is_full(place)
        os.kill(process.pid, signal.SIGSTOP)
        reader = ThreadPoolExecutor(1)
        assert reader.submit(place.receive).result(HANGS_S) == []  # the block is not yet announced
        os.kill(process.pid, signal.SIGCONT)
        _, messages = drain({0: place})
    finally:
        process.kill()
        process.join(HANGS_S)
    assert [game.return_raw for game in messages[0][0].episodes] == list(range(9_000))
    assert len(messages[0]) == 1


def wait_until_the_pipe_is_full(place):
    """Return when bytes wait in the pipe and no more come."""
    deadline, before = time.monotonic() + HANGS_S, -1
    while time.monotonic() < deadline:
        waiting = struct.unpack("i", ioctl(place.life.connection, termios.FIONREAD, bytes(4)))[0]
        if waiting == before > 0:
            return
        before = waiting
        time.sleep(0.2)  # polling with a deadline: the worker is blocked and cannot tell us
    pytest.fail("the pipe did not fill")


def test_a_full_ring_makes_the_worker_wait_until_a_slot_is_freed():
    ring, (ours, theirs) = UnrollRing(2, 1, 8), multiprocessing.Pipe()
    with ours, theirs:
        end = WorkerEnd(ring, theirs)
        for _ in range(2):
            end.send_ready(end.wait_for_slot(0))
        assert end.wait_for_slot(0.01) is None
        assert end.waited_s >= 0.01
        slot = ours.recv().slot
        ring.take(slot)
        assert end.wait_for_slot(0.0) is None  # being read: not yet
        ring.release(slot)
        ours.send(Free(slot))
        assert end.wait_for_slot(TIMEOUT_S) == slot
