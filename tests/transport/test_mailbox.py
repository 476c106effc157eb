"""The protocol of mailbox and bell within one process, and with peers that are killed."""

import multiprocessing
import signal

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ritornello.core.errors import Closed, ShapeError, TransportError
from ritornello.core.spec import EnvSpec
from ritornello.transport.mailbox import QUESTION, Bell, Mailbox, Turn
from tests.transport import programs
from tests.transport.programs import TIMEOUT_S

SPAWN = multiprocessing.get_context("spawn")
SIZES = (3, 2)
SPEC = EnvSpec(
    env_id="Test-v0",
    frame_shape=(1, 4, 5),
    frame_dtype="uint8",
    frames_stacked=2,
    action_meanings=("A", "B", "C"),
    action_repeat=1,
    has_action_mask=True,
)


ANSWER = ("action", "params", "value", "features", "state")


def make_box(feature_count=0, sizes=SIZES, state_count=0):
    doorbell = Bell()
    return Mailbox(SPEC, sizes, feature_count, doorbell, state_count), doorbell


def question_of(group, number):
    """What no other question has, in the order of QUESTION."""
    draw = np.random.default_rng([group, number])
    count = SIZES[group]
    return (
        draw.integers(0, 256, (count, 2, 1, 4, 5), np.uint8),
        draw.random(count) < 0.5,
        draw.integers(0, 3, count),
        draw.standard_normal(count).astype(np.float32),
        draw.integers(0, 9, count),
        draw.random((count, 3)) < 0.5,
    )


class Protocol(RuleBasedStateMachine):
    """Worker and server in any order, against a model of who asked what."""

    def __init__(self):
        super().__init__()
        self.box, self.doorbell = make_box(feature_count=7, state_count=4)
        self.open: dict[int, int] = {}  # group -> number of its open question
        self.answered: dict[int, int] = {}
        self.number = 0

    @rule(group=st.sampled_from([0, 1]))
    def post(self, group):
        self.number += 1
        question = question_of(group, self.number)
        if group in self.open:
            with pytest.raises(TransportError, match="turn of the server, expected the worker"):
                self.box.post(group, *question)
            return
        self.box.post(group, *question)
        for array in question:
            array[...] = 0  # the caller may reuse it
        self.open[group] = self.number
        self.answered.pop(group, None)
        assert self.doorbell.wait(0.0)

    @rule(group=st.sampled_from([0, 1]))
    def answer(self, group):
        if group not in self.open:
            with pytest.raises(TransportError, match="turn of the worker, expected the server"):
                self.box.answer(group)
            return
        number = self.open.pop(group)
        letter = self.box.letter(group)
        for name, asked in zip(QUESTION, question_of(group, number), strict=True):
            np.testing.assert_array_equal(letter[name], asked, err_msg=name)
        letter["version"][...] = number
        for field in [letter[name] for name in ANSWER]:
            field[...] = number
        self.box.answer(group)
        self.answered[group] = number

    @precondition(lambda self: self.answered)
    @rule()
    def read(self):
        for group, number in self.answered.items():
            assert self.box.wait(group, 0.0)
            letter = self.box.letter(group)
            fields = [letter[name] for name in ANSWER]
            count = SIZES[group]
            shapes = [(count,), (count, 3), (count,), (count, 7), (count, 4)]
            assert [field.shape for field in fields] == shapes
            for field in fields:
                assert (field == number).all()
            assert letter["version"].tolist() == [number]

    @invariant()
    def the_turns_are_those_of_the_model(self):
        assert self.box.asked() == sorted(self.open)
        for group in range(len(SIZES)):
            turn = Turn.SERVER if group in self.open else Turn.WORKER
            assert self.box.turn(group) == turn
            assert self.box.wait(group, 0.0) == (turn == Turn.WORKER)


Protocol.TestCase.settings = settings(max_examples=30, stateful_step_count=30, deadline=None)
TestProtocol = Protocol.TestCase


def test_a_question_of_another_shape_is_refused_and_nothing_is_asked():
    box, _ = make_box()
    for index, name in enumerate(QUESTION):
        question = list(question_of(0, 0))
        question[index] = question[index][:2]
        with pytest.raises(ShapeError, match=f"{name} has shape .2,.*expected .3,"):
            box.post(0, *question)
    assert box.asked() == []


def test_a_bell_remembers_that_it_rang_forgets_it_when_it_was_heard_and_never_blocks():
    bell = Bell()
    assert not bell.wait(0.0)
    for _ in range(3):
        bell.ring()
    assert bell.wait(TIMEOUT_S)
    assert not bell.wait(0.0)
    for _ in range(100_000):  # more than a pipe holds
        bell.ring()
    assert bell.wait(TIMEOUT_S)


def test_a_wait_ends_when_the_other_side_hangs_up():
    box, doorbell = make_box()
    box.post(0, *question_of(0, 0))
    for listen in (lambda: box.wait(0, TIMEOUT_S), lambda: doorbell.wait(TIMEOUT_S)):
        ours, theirs = multiprocessing.Pipe()
        box.hang_up_with(ours.fileno())
        doorbell.hang_up_with(ours.fileno())
        theirs.close()
        with pytest.raises(Closed, match="is gone, or wants it to stop"):
            listen()
        ours.close()


@pytest.mark.process
def test_a_successor_of_a_killed_server_finds_the_open_questions():
    """The first server is killed between reading and answering; nothing is lost."""
    box, doorbell = make_box()
    rounds = 20
    for life, program in enumerate((programs.read_questions_and_die, programs.add_up)):
        server = SPAWN.Process(target=program, args=(box, doorbell, 2 * rounds), daemon=True)
        server.start()
        if life == 0:
            for group in (0, 1):
                box.post(group, *question_of(group, 0))
            server.join(TIMEOUT_S)
            assert server.exitcode == -signal.SIGKILL
            assert box.asked() == [0, 1]
    for number in range(rounds):
        for group in (0, 1):
            assert box.wait(group, TIMEOUT_S)
            expected = question_of(group, number)[0].sum((1, 2, 3, 4), np.int64)
            np.testing.assert_array_equal(box.letter(group)["action"], expected)
            if number + 1 < rounds:
                box.post(group, *question_of(group, number + 1))
    server.join(TIMEOUT_S)
    assert server.exitcode == 0


@pytest.mark.process
def test_a_successor_of_a_killed_worker_waits_for_the_last_answer():
    box, doorbell = make_box()
    worker = SPAWN.Process(target=programs.ask_and_die, args=(box, question_of(0, 5)), daemon=True)
    worker.start()
    worker.join(TIMEOUT_S)
    assert worker.exitcode == -signal.SIGKILL
    assert box.asked() == [0]
    assert doorbell.wait(TIMEOUT_S)
    np.testing.assert_array_equal(box.letter(0)["stacks"], question_of(0, 5)[0])
    assert not box.wait(0, 0.0)
    box.answer(0)
    box.post(0, *question_of(0, 6))
    np.testing.assert_array_equal(box.letter(0)["stacks"], question_of(0, 6)[0])
