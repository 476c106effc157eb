"""What is lost on its way to a terminal or a disk is said where it can be read."""

import logging
import threading
from contextlib import closing

import pytest

from agent.run import reporting
from agent.run.reporting import Reporting
from agent.stored.run_folder import RunFolder
from metrics.record import Record
from tests.agent.runs import make_blueprint
from tests.deadlines import HANGS_S


class Frozen(logging.Handler):
    """A terminal that is not read (Ctrl-S), until it is let go."""

    def __init__(self):
        super().__init__()
        self.go = threading.Event()

    def emit(self, record):
        self.go.wait(HANGS_S)


@pytest.fixture
def folder(tmp_path):
    return RunFolder.create(tmp_path, "Test-v0")


def test_what_a_frozen_terminal_did_not_take_is_said_once_in_the_log_of_the_run(
    folder, monkeypatch
):
    frozen = Frozen()
    monkeypatch.setattr(reporting, "_console_handler", lambda console: frozen)
    monkeypatch.setattr(reporting, "TERMINAL_CAPACITY", 4)
    monkeypatch.setattr(reporting, "TERMINAL_GRACE_S", 0.1)
    with closing(Reporting(folder, make_blueprint(basic_verbose=True).flags)) as reports:
        sink = reports.open_sinks()
        for number in range(20):
            logging.getLogger("tests").info("message %d", number)
        sink.write(Record(updates=1))
    frozen.go.set()
    lines = folder.log_file.read_text("utf-8").splitlines()
    assert sum("message" in line and "INFO" in line for line in lines) == 20
    (said,) = [line for line in lines if "did not take all" in line]
    assert "the terminal did not take all that was written: 2" in said  # twenty-odd
    assert folder.metrics_file.read_text("utf-8").count("updates") == 1


def test_nothing_is_said_where_nothing_was_lost(folder):
    with closing(Reporting(folder, make_blueprint(basic_verbose=True).flags)) as reports:
        reports.open_sinks().write(Record(updates=1))
        logging.getLogger("tests").info("a message")
    assert "did not take" not in folder.log_file.read_text("utf-8")
