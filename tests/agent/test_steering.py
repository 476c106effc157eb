"""A run that is steered while it goes on: paused, saved, changed, stopped."""

import contextlib
import json
import signal
import threading
import time
from fractions import Fraction

import pytest

from ritornello.agent.run.control_file import write_command
from ritornello.agent.run.run import Run
from ritornello.agent.run.status import Status
from ritornello.agent.run.trainer import Trainer
from ritornello.agent.stored.checkpoint import load
from ritornello.agent.stored.run_folder import RunFolder
from ritornello.core.stop_signals import Answer, StopSignals
from ritornello.metrics.output_thread import OutputThread
from ritornello.replay.manager import ReplayManager
from tests.agent.runs import Noted, make_blueprint
from tests.agent.test_trainer import in_turn
from tests.deadlines import HANGS_S, wait_until

ENDLESS = 10**9  # agent steps: what ends the run is what the test is about
PAUSE_S = 1.5
PLAYED = {"environment_max_steps": ENDLESS, "log_interval_s": 0.2, "lr_schedule": "constant"}


def state_of(folder):
    """What status.json says of its control; empty while no commands are taken."""
    with contextlib.suppress(FileNotFoundError):
        status = json.loads((folder / "status.json").read_text("utf-8"))
        return {**status["control"], "state": status["state"]} if status.get("control") else {}
    return {}


class AtOnce(OutputThread):
    """Writes on the thread that asks for it."""

    def __init__(self):
        """Start no thread."""

    def submit(self, action, patience_s=0.0):
        action()
        return True


def stop_run(folder):
    """Let a run end; it may be gone before anybody reads its answer."""
    write_command(folder, "stop")


def tell(folder, name, values=None):
    """Write a command as the page does, and wait for its answer."""
    identity = write_command(folder, name, values)
    answers = []

    def is_answered():
        said = state_of(folder).get("acknowledged", [])
        answers[:] = [each for each in said if each["id"] == identity]
        return bool(answers)

    wait_until(is_answered)
    return answers[0]["result"]


class Person(threading.Thread):
    """Does something to a run while it goes on, and stops it at the end whatever happens."""

    def __init__(self, folder, does, stop):
        super().__init__(daemon=True)
        self.folder, self.does, self.stop = folder, does, stop
        self.error = None

    def run(self):
        try:
            wait_until(lambda: bool(state_of(self.folder)))
            self.does(self.folder)
        except BaseException as error:
            self.error = error
            self.stop.handle(signal.SIGINT)


def steered(folder, does, *, checkpoint=None, sink=None, stop=None, experience=in_turn, **flags):
    stop, sink = stop or StopSignals(), sink or Noted()
    stop.answer = Answer.NOTE
    folder.write_run_info(["main.py"])
    blueprint = make_blueprint(**{**PLAYED, **flags})
    status = Status(folder.path, AtOnce())
    run = Run(blueprint, folder, checkpoint, stop=stop, experience=experience, status=status)
    trainer = Trainer(run, sink)
    person = Person(folder.path, does, stop)
    person.start()
    summary = trainer.run()
    person.join(HANGS_S)
    if person.error is not None:
        raise person.error
    return summary, sink


def records_of_updates(sink):
    """On a busy machine a second may pass without an update, and its record has no losses."""
    return [record for record in sink.records if "optimiser/lr" in record.values]


def wait_for_updates(sink, more):
    count = len(records_of_updates(sink)) + more
    wait_until(lambda: len(records_of_updates(sink)) >= count)


@pytest.fixture
def folder(tmp_path):
    return RunFolder.create(tmp_path, "Test-v0")


def test_a_pause_stops_learning_and_the_clock_and_ctrl_c_ends_it_with_a_save(folder):
    lengths, stop = [], StopSignals()

    def person(run):
        tell(run, "pause")
        began = time.monotonic()
        checkpoints = len(list(folder.checkpoints.glob("update_*.pt")))
        first = tell(run, "save")
        time.sleep(PAUSE_S)
        assert state_of(run)["state"] == "paused"
        assert tell(run, "save") == first  # the same update: nothing was learned
        assert len(list(folder.checkpoints.glob("update_*.pt"))) <= checkpoints + 1
        lengths.append(time.monotonic() - began)
        tell(run, "continue")
        tell(run, "pause")
        stop.handle(signal.SIGINT)

    began = time.monotonic()
    summary, sink = steered(folder, person, stop=stop)
    assert summary.reason == "interrupted"
    assert lengths[0] >= PAUSE_S
    assert summary.wall_s <= time.monotonic() - began - lengths[0]
    assert sink.records[-1].wall_s == pytest.approx(summary.wall_s, abs=5.0)
    assert load(folder.path).state["tally"]["updates"] == summary.updates
    assert not state_of(folder.path)  # nobody takes commands any more


def test_changed_settings_count_at_once_are_noted_and_go_on_after_a_resume(folder, monkeypatch):
    sink, shares, took = Noted(), [], ReplayManager.sample
    settings = {"lr_factor": 0.5, "entropy_factor": 0.0, "replay_share": 0.75}

    def sample(manager, *arguments):
        draws = took(manager, *arguments)
        if draws is not None:
            shares.append(Fraction(sum(not draw.is_online for draw in draws), len(draws)))
        return draws

    def person(run):
        wait_for_updates(sink, 1)
        tell(run, "set", settings)
        wait_for_updates(sink, 3)  # the first of them may be of updates before
        stop_run(run)

    monkeypatch.setattr(ReplayManager, "sample", sample)
    steered(folder, person, sink=sink)
    first, *_, last = [record.values for record in records_of_updates(sink)]
    assert last["optimiser/lr"] == pytest.approx(first["optimiser/lr"] / 2)
    assert first["loss/entropy"] != 0
    assert last["loss/entropy"] == 0
    assert (shares[0], shares[-1]) == (Fraction(1, 2), Fraction(3, 4))
    checkpoint = load(folder.path)
    assert checkpoint.state["control"] == {"settings": settings}
    assert checkpoint.state["replay"]["mixer"]["share"] == [3, 4]
    (session,) = folder.sessions()
    assert [note["command"] for note in session["control"]] == ["set", "stop"]
    assert session["control"][0]["values"] == settings
    assert session["control"][0]["updates"] > 0

    resumed = Noted()
    shares.clear()

    def comes_back(run):
        wait_for_updates(resumed, 1)
        assert tell(run, "set", {"replay_share": 0.5}).startswith("done")
        stop_run(run)

    steered(folder, comes_back, checkpoint=checkpoint, sink=resumed)
    after = records_of_updates(resumed)[0].values
    assert after["optimiser/lr"] == pytest.approx(first["optimiser/lr"] / 2)
    assert after["loss/entropy"] == 0
    assert shares[0] == Fraction(3, 4)
    state = load(folder.path).state
    assert "replay_share" not in state["control"]["settings"]
    assert state["replay"]["mixer"]["share"] is None
    assert [len(each["control"]) for each in folder.sessions()] == [2, 2]


@pytest.mark.process
@pytest.mark.slow
def test_workers_that_wait_in_a_pause_are_not_taken_for_hung(folder):
    sink = Noted()

    def person(run):
        wait_until(lambda: bool(sink.records))
        tell(run, "pause")
        time.sleep(10.0)  # three times --worker_timeout
        tell(run, "continue")
        count = len(sink.records)
        wait_until(lambda: len(sink.records) >= count + 2)
        stop_run(run)

    steered(folder, person, sink=sink, experience=None, worker_timeout=3.0)
    assert sink.records[-1].values["workers/hung"] == 0
    assert sink.records[-1].values["workers/restarts"] == 0
