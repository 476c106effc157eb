import logging
import threading
import warnings
from contextlib import closing

import pytest

from ritornello.agent.run import reporting
from ritornello.agent.run.reporting import Reporting
from ritornello.agent.stored.run_folder import RunFolder
from ritornello.core.errors import ConfigError
from ritornello.core.kept_settings import settings_kept
from ritornello.flags.parts import SINKS
from ritornello.metrics.record import Record
from tests.agent.runs import make_blueprint
from tests.deadlines import HANGS_S


@pytest.fixture
def folder(tmp_path):
    return RunFolder.create(tmp_path, "Test-v0")


def test_a_sink_that_hangs_holds_up_no_file_and_its_loss_is_said_once(folder, monkeypatch):
    go = threading.Event()

    class Hanging:
        def write(self, record):
            go.wait(HANGS_S)

        def episode(self, end, at):
            """Games are of no interest."""

        def flush(self):
            """Nothing waits."""

        def close(self):
            """Nothing is open."""

    monkeypatch.setattr(reporting, "OWN_CAPACITY", 3)
    monkeypatch.setattr(reporting, "OWN_GRACE_S", 0.1)
    SINKS.add("hanging", lambda path: Hanging(), __name__)
    blueprint = make_blueprint(sink=f"{__name__}:hanging", basic_verbose=False)
    with closing(Reporting(folder, blueprint)) as reports:
        sink = reports.open_sinks()
        for number in range(9):
            sink.write(Record(updates=number))
        assert reports.flush(), "the files of the run waited for the sink"
        assert folder.metrics_file.read_text("utf-8").count("updates") == 9
    go.set()
    (said,) = [x for x in folder.log_file.read_text("utf-8").splitlines() if "did not take" in x]
    assert f"the sink {__name__}:hanging did not take all that was written: 11" in said


@pytest.mark.parametrize("console", [True, False])
def test_the_log_gets_everything_and_the_console_what_was_asked_for(folder, capfd, console):
    blueprint = make_blueprint(console=console)
    mine = logging.getLogger("tests")
    with closing(Reporting(folder, blueprint)) as reports:
        reports.open_sinks().write(Record(updates=1))
        mine.debug("a detail")
        mine.error("all is lost")
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn("from a library", stacklevel=1)
    mine.error("after the end")
    shown, text = capfd.readouterr(), folder.log_file.read_text("utf-8")
    assert ("all is lost" in shown.err) == console
    assert "a detail" not in shown.out + shown.err
    for expected in ("a detail", "all is lost", "from a library", "MainProcess/MainThread"):
        assert expected in text
    assert "after the end" not in text
    assert "did not take" not in text, "nothing was lost"


def _filtered():
    for name in ("agent.run.reporting", "agent.run.training"):
        logging.getLogger(f"ritornello.{name}").addFilter(lambda record: False)


DEEDS = {
    "filters": _filtered,
    "levels": lambda: [handler.setLevel(100) for handler in logging.root.handlers],
    "no handlers": lambda: logging.root.handlers.clear(),
    "disabled": lambda: logging.disable(logging.CRITICAL),
    "records": lambda: logging.setLogRecordFactory(lambda *given, **named: 1 / 0),
}


@pytest.mark.parametrize("deed", DEEDS)
def test_why_a_run_failed_is_said_whatever_was_made_of_logging(folder, capfd, deed):
    with closing(Reporting(folder, make_blueprint(console=True))) as reports:
        reports.open_sinks()
        with settings_kept():  # for the other tests
            DEEDS[deed]()
            reports.fail(ConfigError("the simulator is gone"), is_known=True)
    assert "the run failed: the simulator is gone" in capfd.readouterr().err
    log = folder.log_file.read_text("utf-8")
    assert "the run failed: the simulator is gone" in log
    assert "Traceback" not in log.split("DEBUG")[0]
