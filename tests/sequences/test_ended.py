"""A training that came to its own end is done, however its process and our file ended."""

import signal

import pytest

from ritornello.sequences.folder import SequenceFolder
from ritornello.sequences.plan import parse_plan
from ritornello.sequences.runner import Interrupts, run_sequence
from tests.integration.commands import HANGS_S

pytestmark = [pytest.mark.process, pytest.mark.timeout(HANGS_S)]

# Stands in for main.py, deaf to SIGINT: it comes to its own end once it has been sent one, writes
# what the flag `says` as its reason (or nothing), and leaves with the status `code`. As main.py
# does, it refuses to go on with a run that has done its steps. As a test it plays until told.
FAKE_MAIN = """
import json, pathlib, signal, sys
arguments = dict(a[2:].partition("=")[::2] for a in sys.argv[1:])
here = pathlib.Path(arguments["results_dir"])
flags = json.loads(pathlib.Path(arguments["multi_train_overrides"]).read_text())
if arguments["op_mode"] == "train_w_load":
    sys.exit("it has 1000 agent steps already")
run = here / "Test-v0_20240101-000000"
if arguments["op_mode"] == "train":
    (run / "checkpoints").mkdir(parents=True, exist_ok=True)
    (run / "flags.json").write_text(json.dumps({"environment_max_steps": 1000}))
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
(here / "ready").write_text("")
if flags.get("waits", True):
    signal.sigwait([signal.SIGINT])
if arguments["op_mode"] == "train":
    updates = flags.get("updates", 30)
    counters = {"agent_steps": flags["steps"], "frames": 0, "updates": updates, "episodes": 1}
    (run / "metrics.jsonl").write_text(json.dumps({**counters, "wall_s": 1, "values": {}}) + "\\n")
    if updates:
        (run / "checkpoints" / "update_000000030.pt").write_text("")
    if flags["says"]:
        summary = {"reason": flags["says"], "updates": updates}
        (run / "summary.json").write_text(json.dumps(summary))
sys.exit(flags["code"])
"""


@pytest.fixture(autouse=True)
def _fake_main(use_main):
    use_main(FAKE_MAIN)


def begin(tmp_path, code, says="", steps=1000, **more):
    flags = {"code": code, "says": says, "steps": steps, **more}
    plan = parse_plan({"base": flags}, default_name="test", where="test")
    return SequenceFolder.create(tmp_path / "results", plan, [])


def run_stopped(folder):
    """Run a sequence, ask it to stop when its run is in its last seconds; return its status."""
    interrupts = Interrupts()

    def stop_once_ready(run, seconds):
        if list(folder.path.glob("*/ready")) and not interrupts.stop:
            interrupts.note(signal.SIGTERM)

    run_sequence(folder, interrupts, stop_once_ready)
    return SequenceFolder.open(folder.path).runs[0].status


def starts(folder):
    log = folder.path / folder.runs[0].name / "output.log"
    return log.read_text().count("$ ") if log.exists() else 0


@pytest.mark.parametrize(
    ("code", "says", "steps", "status"),
    [
        pytest.param(0, "steps", 1000, "done", id="it ended as if nobody had asked"),
        pytest.param(130, "interrupted", 1000, "done", id="interrupted after its last step"),
        pytest.param(-9, "", 1000, "done", id="killed before it could say so"),
        pytest.param(130, "interrupted", 999, "stopped", id="interrupted"),
    ],
)
def test_a_training_that_ends_by_itself_while_it_is_stopped_is_done(
    tmp_path, code, says, steps, status
):
    assert run_stopped(begin(tmp_path, code, says, steps)) == status


@pytest.mark.parametrize(("steps", "status"), [(999, "stopped"), (1000, "done")])
def test_a_training_that_others_stop_is_no_failure(tmp_path, steps, status):
    folder = begin(tmp_path, 130, "interrupted", steps, waits=False)
    run_sequence(folder, Interrupts())
    assert SequenceFolder.open(folder.path).runs[0].status == status


def test_a_training_that_made_no_update_has_failed_and_is_tried_again(tmp_path):
    folder = begin(tmp_path, 1, "steps", waits=False, updates=0)
    run_sequence(folder, Interrupts())
    again = SequenceFolder.open(folder.path)
    assert again.runs[0].status == "failed"
    run_sequence(again, Interrupts())
    assert starts(folder) == 2


def test_a_resume_starts_nothing_for_a_training_that_had_ended(tmp_path):
    """As after a kill between the end of the run and the update of the sequence's state."""
    folder = begin(tmp_path, 0, "steps", waits=False)
    run_sequence(folder, Interrupts())
    folder.update(0, status="running", seconds=0.0)
    again = SequenceFolder.open(folder.path)
    run_sequence(again, Interrupts())
    (run,) = SequenceFolder.open(folder.path).runs
    assert (run.status, run.seconds) == ("done", 1.0), "the time is that of its last record"
    assert starts(folder) == 1


def test_a_test_that_is_stopped_is_played_again_though_it_left_well(tmp_path):
    folder = begin(tmp_path, 0, op_mode="test")
    assert run_stopped(folder) == "stopped"
