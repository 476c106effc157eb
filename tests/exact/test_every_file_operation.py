"""Every single file operation of a run fails in turn, and no run is lost.

SQLite's method: for n = 1, 2, ... until the run passes untouched, the n-th operation on a file
fails, or the process dies there, or the power goes. Then the run is resumed, goes
on for some more steps, and must become what it would have been: weights, optimiser, replay,
counters, records and scores, to the bit.

A line of a failure's report is a plan of faults that repeats it (core/faults.py).
"""

import json
import random
import shutil
from dataclasses import dataclass
from fnmatch import fnmatch

import pytest

from core.faults import Fault
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

    def replay(self, nth):
        """Return the plan as a command line would have it."""
        do = f"{self.do} {self.number:g}" if self.do == "torn" else self.do
        more = {"for_ever": True} if self.for_ever else {}
        return json.dumps({"at": list(self.at), "nth": nth, "do": do, **more})


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
def reference(tmp_path_factory):
    """What a run that nothing happens to produces, and the operations of a shorter one."""
    outcomes = []
    for name, steps in (("long", MORE_STEPS), ("short", STEPS)):
        results = tmp_path_factory.mktemp(name)
        outcomes.append(train(results, f"--environment_max_steps={steps}"))
        assert outcomes[-1].status == 0
        if name == "long":
            expected = product(only_run(results))
    long, short = outcomes
    assert 2 * PERIOD < short.updates < long.updates
    return expected, short.plan.hits


def operations(hits, at):
    return sum(n for point, n in hits.items() if any(fnmatch(point, pattern) for pattern in at))


def chosen(count, stride):
    """Every operation, or one in `stride`: the first and the last always."""
    return sorted({*range(1, count + 1, stride), count})


@pytest.mark.parametrize("name", TROUBLES)
@pytest.mark.parametrize("stride", [25, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.timeout(1800)
def test_a_run_whose_nth_file_operation_fails_becomes_what_it_would_have_been(
    tmp_path, reference, name, stride
):
    expected, hits = reference
    trouble = TROUBLES[name]
    lost = {}
    for nth in chosen(operations(hits, trouble.at), stride):
        results = tmp_path / str(nth)
        results.mkdir()
        outcome = train(results, lines=trouble.lines(nth), leave=trouble.leave(nth))
        found = judge(results, outcome, trouble, expected)
        if found:
            lost[nth] = f"{trouble.replay(nth)} at {where(outcome)}: {found}"
        shutil.rmtree(results)
    assert not lost, f"{len(lost)} of these lose something:\n" + "\n".join(lost.values())


def where(outcome):
    firing = outcome.plan.fired[0]
    return f"{firing.point} {firing.path.name if firing.path else ''}".strip()


def judge(results, outcome, trouble, expected):
    """Resume a run that was hurt; return what it lost, or nothing."""
    if not outcome.plan.fired:
        return "nothing was hurt: the run took another course"
    if outcome.escaped is not None:
        return f"a traceback: {outcome.escaped!r:.200}"
    if outcome.plan.left is not None:
        shutil.rmtree(results)
        results.mkdir()
        write_files(results, outcome.plan.left)
    elif outcome.status not in (0, 1, 2):
        return f"exit status {outcome.status}"
    saved = newest_checkpoint(results)
    # A save in progress may be lost; and where the disk failed once, that of one period.
    periods = 1 if outcome.plan.left is not None else 2
    if not trouble.for_ever and saved < outcome.updates - periods * PERIOD:
        return f"{outcome.updates} updates were made, the newest checkpoint is of {saved}"
    if saved == 0:
        return ""  # it was hurt before its first checkpoint: there is nothing to go on from
    again = resume(results)
    if again.escaped is not None:
        return f"cannot be resumed: {again.escaped!r:.200}"
    if again.status != 0:
        return f"resuming it ends with status {again.status}"
    return compare(only_run(results), expected)


def compare(run, expected):
    """Return how a finished run differs from the reference, or nothing."""
    left_over = [path.name for path in run.rglob("*.tmp")]
    if left_over:
        return f"left behind: {left_over}"
    return difference(expected, product(run))
