import logging
import threading
from types import SimpleNamespace

import pytest

from ritornello.core.episode import EpisodeEnd
from ritornello.metrics.output_thread import BackgroundHandler, BackgroundSink, OutputThread
from ritornello.metrics.record import Record
from tests.deadlines import HANGS_S


class Frozen:
    """Something that is written to and does not answer, until it is let go."""

    def __init__(self):
        self.go = threading.Event()
        self.entered = threading.Event()

    def __call__(self):
        self.entered.set()
        assert self.go.wait(HANGS_S)


class Taker:
    """A sink that notes what it gets, and fails while `error` is set."""

    def __init__(self, error=None):
        self.got, self.error, self.closed = [], error, 0

    def write(self, record):
        if self.error is not None:
            raise self.error
        self.got.append(record.updates)

    def episode(self, end, at):
        self.got.append(end.return_raw)

    def flush(self):
        self.got.append("flush")

    def close(self):
        self.closed += 1


@pytest.fixture
def thread():
    thread = OutputThread("the tests", capacity=3)
    yield thread
    assert thread.close(HANGS_S)


def test_nobody_waits_for_a_write_that_hangs_and_what_finds_no_room_is_counted(thread):
    frozen = Frozen()
    assert thread.submit(frozen)
    assert frozen.entered.wait(HANGS_S)
    assert all(thread.submit(lambda: None) for _ in range(3))
    assert not thread.submit(lambda: None)
    assert thread.dropped == 1
    assert not thread.flush(0.01)  # returns, rather than wait
    assert not thread.close(0.01)
    frozen.go.set()


def test_a_sink_that_gives_up_is_left_alone_after_one_failure_which_is_said_once(thread, caplog):
    taker = Taker(BrokenPipeError("nobody reads"))
    sink = BackgroundSink(taker, thread, gives_up=True)
    for updates in range(3):
        sink.write(Record(updates=updates))
        assert thread.flush(HANGS_S)
        taker.error = None
    assert taker.got == []
    said = [line for line in caplog.messages if "cannot be written to" in line]
    assert said == [
        "the tests cannot be written to (nobody reads): training goes on, it is left alone from "
        "now on"
    ]


def test_another_sink_is_tried_again_and_how_often_it_failed_is_said_at_the_end(thread, caplog):
    taker = Taker(OSError(28, "No space left on device"))
    sink = BackgroundSink(taker, thread, gives_up=False)
    sink.write(Record(updates=1))
    assert thread.flush(HANGS_S)
    taker.error = None
    sink.write(Record(updates=2))
    sink.episode(EpisodeEnd(env_id=0, return_raw=7.0, length_steps=1, length_frames=4), Record())
    assert thread.flush(HANGS_S)
    assert taker.got == [2, 7.0]
    sink.close()
    assert thread.flush(HANGS_S)
    assert taker.closed == 1
    assert "writes that failed: 1; records or games may be missing" in caplog.text


def test_a_sink_needs_no_method_but_write(thread, caplog):
    taken = []
    sink = BackgroundSink(SimpleNamespace(write=taken.append), thread, gives_up=True)
    sink.episode(EpisodeEnd(env_id=0, return_raw=7.0, length_steps=1, length_frames=4), Record())
    sink.flush()
    sink.write(Record())
    assert thread.flush(HANGS_S)  # there is room for three
    sink.close()
    assert thread.flush(HANGS_S)
    assert (taken, caplog.text) == ([Record()], "")


def test_the_log_waits_for_no_terminal_and_has_its_words_of_the_moment(thread):
    lines = []

    class Shown(logging.Handler):
        def emit(self, record):
            lines.append(record.getMessage())

    frozen = Frozen()
    thread.submit(frozen)
    handler = BackgroundHandler(Shown(), thread, gives_up=True)
    values = [1]
    handler.handle(logging.LogRecord("x", logging.INFO, "f", 1, "values %s", (values,), None))
    values.append(2)
    frozen.go.set()
    assert thread.flush(HANGS_S)
    assert lines == ["values [1]"]
