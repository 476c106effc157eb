"""Every single file operation of a run fails in turn, and no run is lost.

SQLite's method: for n = 1, 2, ... until the run passes untouched, the n-th operation on a file
fails, or the process dies there, or the power goes. Then the run is resumed, goes
on for some more steps, and must become what it would have been: weights, optimiser, replay,
counters, records and scores, to the bit.
"""

import random
import shutil
from dataclasses import dataclass
from fnmatch import fnmatch

import pytest

from tests.exact.disks import ForgetfulDisk, write_files
from tests.exact.runs import (
    MORE_STEPS,
    PERIOD,
    STEPS,
    difference,
    newest_checkpoint,
    one_process,
    only_run,
    product,
    resume,
    train,
)
from tests.faulty import Fault

pytestmark = [
    pytest.mark.usefixtures("one_process"),
    # A file whose last bytes the disk refuses complains once more when it is thrown away.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
__all__ = ["one_process"]

FILE = ("file.*",)
SPACE = ("file.open", "file.write", "file.sync", "file.replace", "file.link")  # what takes room


@dataclass(frozen=True)
class Trouble:
    """One way in which the n-th operation goes wrong."""

    at: tuple[str, ...]
    do: str
    number: float = 0.0
    for_ever: bool = False
    powers_off: bool = False  # what was not synced is lost
    lucky: bool = False  # some of what was not synced survives all the same

    def lines(self, nth):
        return [Fault(self.at, self.do, self.number, nth=nth, for_ever=self.for_ever)]

    def leave(self, nth):
        """Return what the disk holds after a deadly fault."""
        if not self.powers_off:
            return ForgetfulDisk.after_kill
        chance = random.Random(nth) if self.lucky else None
        return lambda disk: disk.after_power_cut(chance)


TROUBLES = {
    "the disk is full once": Trouble(SPACE, "enospc"),
    "the disk is full from then on": Trouble(SPACE, "enospc", for_ever=True),
    "an operation fails": Trouble(FILE, "eio"),
    "the process is killed": Trouble(FILE, "kill"),
    "the process is killed within a write": Trouble(("file.write",), "torn", 7),
    "the power goes, nothing else was written": Trouble(FILE, "kill", powers_off=True),
    "the power goes, anything may be written": Trouble(FILE, "kill", powers_off=True, lucky=True),
}


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """What a run that nothing happens to produces, until MORE_STEPS."""
    results = tmp_path_factory.mktemp("reference")
    assert train(results, f"--environment_max_steps={MORE_STEPS}").status == 0
    return product(only_run(results))


@pytest.fixture(scope="module")
def new_run(tmp_path_factory):
    """A run until STEPS to which nothing happens."""
    outcome = train(tmp_path_factory.mktemp("short"))
    assert outcome.status == 0
    assert outcome.updates > 2 * PERIOD
    return outcome


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """The files of a run that was killed two updates after its second checkpoint."""
    lines = [Fault(("learner.step",), "kill", nth=2 * PERIOD + 2)]
    return train(tmp_path_factory.mktemp("killed"), lines=lines).plan.left


def chosen(outcome, trouble, stride):
    """The operations to hurt: each, or one in `stride`; the first and the last always."""
    hits = outcome.plan.hits.items()
    count = sum(n for point, n in hits if any(fnmatch(point, pattern) for pattern in trouble.at))
    return sorted({*range(1, count + 1, stride), count})


UNTIL_STEPS = f"--environment_max_steps={STEPS}"
# Fast: some operations of the three troubles that differ most.
FAST = ("the disk is full once", "the process is killed", "the power goes, anything may be written")
CASES = [
    *((200, name) for name in FAST),
    *(pytest.param(1, name, marks=pytest.mark.slow) for name in TROUBLES),
]


@pytest.mark.parametrize(("stride", "name"), CASES)
@pytest.mark.timeout(3600)
def test_a_run_whose_nth_file_operation_fails_becomes_what_it_would_have_been(
    tmp_path, expected, new_run, name, stride
):
    trouble = TROUBLES[name]
    lost = []
    for nth in chosen(new_run, trouble, stride):
        results = tmp_path / str(nth)
        results.mkdir()
        outcome = train(results, lines=trouble.lines(nth), leave=trouble.leave(nth))
        found = judge(results, outcome, new_run.updates, expected)
        if found:
            lost.append(f"operation {nth}, {where(outcome)}: {found}")
        shutil.rmtree(results)
    assert not lost, f"{len(lost)} of these lose something:\n" + "\n".join(lost)


@pytest.mark.parametrize(("stride", "name"), CASES)
@pytest.mark.timeout(3600)
def test_a_resume_whose_nth_file_operation_fails_can_be_resumed_again(
    tmp_path, expected, killed, name, stride
):
    """And until it has made an update of its own it changes no byte of a checkpoint."""
    trouble = TROUBLES[name]
    lost = []
    whole = tmp_path / "whole"
    write_files(whole, killed)
    resumed = resume(whole, UNTIL_STEPS)
    for nth in chosen(resumed, trouble, stride):
        results = tmp_path / str(nth)
        write_files(results, killed)
        before = checkpoints(results)
        outcome = resume(results, UNTIL_STEPS, lines=trouble.lines(nth), leave=trouble.leave(nth))
        found = judge(results, outcome, resumed.updates, expected, before)
        if found:
            lost.append(f"operation {nth}, {where(outcome)}: {found}")
        shutil.rmtree(results)
    assert not lost, f"{len(lost)} of these lose something:\n" + "\n".join(lost)


@pytest.mark.parametrize(
    ("point", "do"),
    [("replay.insert", "eio"), ("replay.sample", "kill"), ("learner.step", "raise")],
)
def test_a_resume_that_fails_before_its_first_update_changes_no_checkpoint(
    tmp_path, expected, killed, point, do
):
    write_files(tmp_path, killed)
    before = checkpoints(tmp_path)
    outcome = resume(tmp_path, lines=[Fault((point,), do)])
    assert outcome.status == (None if do == "kill" else 1)
    assert checkpoints(tmp_path) == before
    assert resume(tmp_path).status == 0
    assert difference(expected, product(only_run(tmp_path))) == ""


def checkpoints(results):
    """Return name -> content of the files that a run goes on from."""
    files = results.glob("*/checkpoints/[!.]*")
    return {path.name: path.read_bytes() for path in files}


def where(outcome):
    firing = outcome.plan.fired[0]
    return f"{firing.point} {firing.path.name if firing.path else ''}".strip()


def judge(results, outcome, updates, expected, before=None):
    """Resume a run that was hurt; return what it lost, or nothing.

    Args:
      results: its folder of results.
      outcome: of the session that was hurt.
      updates: that this session makes if nothing happens to it.
      expected: what the run should have produced in the end.
      before: the checkpoints before this session, if it was not the first.
    """
    found = judge_session(results, outcome, updates, before)
    if found or not newest_checkpoint(results):
        return found  # hurt before its first checkpoint: there is nothing to go on from
    again = resume(results)
    if again.escaped is not None:
        return f"cannot be resumed: {again.escaped!r:.200}"
    if again.status != 0:
        return f"resuming it ends with status {again.status}"
    run = only_run(results)
    left_over = [path.name for path in run.rglob("*.tmp")]
    return f"left behind: {left_over}" if left_over else difference(expected, product(run))


def judge_session(results, outcome, updates, before):
    """Return what is wrong with how a session that was hurt ended, or nothing."""
    if not outcome.plan.fired:
        return "nothing was hurt: the run took another course"
    if outcome.escaped is not None:
        return f"a traceback: {outcome.escaped!r:.200}"
    crashed = outcome.plan.left is not None
    if crashed:
        shutil.rmtree(results)
        results.mkdir()
        write_files(results, outcome.plan.left)
    elif outcome.status not in (0, 1, 2):
        return f"exit status {outcome.status}"
    elif 0 < outcome.updates < updates:
        return f"a disk that fails ended the training after {outcome.updates} updates"
    if outcome.updates == 0 and before is not None and checkpoints(results) != before:
        return "a session that made no update changed the checkpoints"
    fault = outcome.plan.fired[0].fault
    # A save in progress may be lost; and where the disk failed once, that of one period.
    least = outcome.updates - (1 if crashed else 2) * PERIOD + (2 * PERIOD if before else 0)
    saved = newest_checkpoint(results)
    if not fault.for_ever and saved < least:
        return f"{outcome.updates} updates were made, the newest checkpoint is of {saved}"
    return ""
