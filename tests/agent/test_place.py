import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from ritornello.agent.algorithms.base import Algorithm, register_algorithm
from ritornello.agent.learners.place import Place, learners_wanted
from ritornello.agent.run import launcher
from ritornello.agent.run.checks import check_several
from ritornello.agent.run.launcher import Launcher
from ritornello.core.errors import ConfigError
from ritornello.flags.options import Flags

TORCHRUN = {
    "RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2",
    "MASTER_ADDR": "node-a", "MASTER_PORT": "29500", "TORCHELASTIC_USE_AGENT_STORE": "True",
    "TORCHELASTIC_RESTART_COUNT": "2",
}  # fmt: skip
LEVEL = "TORCH_CPP_LOG_LEVEL"
TWO = Place(0, 2, 0, 2, is_launched=True)


def test_the_variables_of_torchrun_say_the_place_and_are_taken_away():
    environment = {**TORCHRUN, "HOME": "/root"}
    place = Place.taken_from(environment)
    assert place == Place(3, 4, 1, 2, "node-a", 29500, None, True, "2", False)
    assert not place.is_local
    assert not place.speaks
    assert environment == {"HOME": "/root"}


@pytest.mark.parametrize(
    "environment",
    [{}, {"RANK": "0", "WORLD_SIZE": "2"}, {**TORCHRUN, "RANK": "0", "WORLD_SIZE": "1"}],
)
def test_without_them_or_with_one_learner_it_is_alone(environment):
    assert Place.taken_from(environment) == Place()


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"RANK": "4"}, "RANK=4 of WORLD_SIZE=4"),
        ({"LOCAL_RANK": "2"}, "LOCAL_RANK=2 of LOCAL_WORLD_SIZE=2"),
        ({"WORLD_SIZE": "many"}, "WORLD_SIZE is 'many', expected a number"),
        ({"MASTER_PORT": "-1"}, "MASTER_PORT is '-1', expected a number"),
        ({"MASTER_PORT": "99999"}, "MASTER_PORT=99999: expected the port"),
    ],
)
def test_what_makes_no_sense_is_one_sentence(change, text):
    with pytest.raises(ConfigError, match=text):
        Place.taken_from({**TORCHRUN, **change})


@pytest.mark.parametrize(
    ("rank", "lost", "inherits"),
    [(1, [0], True), (2, [0], True), (1, [0, 1], False), (1, [2], False), (1, [], False)],
)
def test_any_other_learner_saves_if_the_first_is_lost(rank, lost, inherits):
    """With learner 0 the store is gone: nobody knows which of the others is left."""
    assert Place(rank, 3, rank, 3).inherits(lost) == inherits
    assert not Place(rank, 3, 0, 1).inherits(lost), "the folder is on another machine"
    assert not Place().inherits(lost)


@pytest.mark.parametrize(
    ("argv", "count"),
    [
        ([], 1),
        (["--learner_count=3"], 3),
        (["--learner-count", "2"], 2),
        (["--learner_count=none"], 1),
        (["--learner_count=0"], 1),
        ([f"--learner_count={'9' * 5000}"], 1),
        (["--learner_count=2", "--op_mode=test"], 1),
        (["--learner_count=2", "--test=models/pong"], 1),
        (["--learner_count=2", "--resume=results/run"], 2),
        (["--learner_count=2", "--no_flag=1"], 1),
        (["--learner_count=2", "--help"], 1),
        (["--learner_count=2", "--version"], 1),
    ],
)
def test_the_command_line_says_how_many_learners_are_started(argv, count):
    assert learners_wanted(argv) == count


@register_algorithm("of_one_learner")
class OfOneLearner(Algorithm):
    pass


@pytest.mark.parametrize(
    ("flags", "place", "text"),
    [
        ({"reproducible": True}, TWO, "--reproducible=True with 2 learners"),
        ({"save_replay": True}, TWO, "--save_replay=True with 2 learners"),
        ({"multiprocessing_backend": "ray"}, TWO, "--multiprocessing_backend=ray with 2 learners"),
        ({"algorithm": f"{__name__}:of_one_learner"}, TWO, "sums_over_learners = True"),
        ({"learner_count": 3}, TWO, "--learner_count=3, but 2 learners were started"),
        ({"learner_count": 2}, Place(), "--learner_count=2, but one learner was started"),
        ({"op_mode": "test", "load_model_url": "x"}, TWO, "a test was started in 2"),
    ],
)
def test_what_several_learners_cannot_do_is_refused(flags, place, text):
    with pytest.raises(ConfigError, match=text):
        check_several(Flags(**flags), place)


@pytest.mark.parametrize(
    ("statuses", "killed", "status"),
    [((-9, 1), [], 1), ((-9, 0), [0], 1), ((1, 1), [], 1), ((0, 0), [], 0)],
)
def test_the_status_of_a_group_is_that_of_its_first_learner(statuses, killed, status):
    group = Launcher([], len(statuses))
    group._learners = [SimpleNamespace(poll=lambda status=status: status) for status in statuses]
    group._killed = killed
    assert group._status() == status


@pytest.mark.parametrize(
    ("statuses", "killed", "text"),
    [
        ((-9, 1), [], "error: learner 0 was killed by SIGKILL; a resume goes on from"),
        ((-9, -9), [1], "killed by SIGKILL; learner 1 did not end, stopped or hanging, and was"),
        ((0, -9), [1], "error: learner 1 did not end, stopped or hanging, and was killed; the run"),
        ((0, -11), [], "error: learner 1 was killed by SIGSEGV; the run is saved"),
        ((0, 1), [], "error: learner 1 ended with status 1; the run is saved"),
    ],
)
def test_a_learner_that_had_to_be_killed_is_named_at_the_end(statuses, killed, text, capsys):
    group = Launcher([], len(statuses))
    group._learners = [SimpleNamespace(poll=lambda status=status: status) for status in statuses]
    group._killed = killed
    assert group._status() == 1
    assert text in capsys.readouterr().err


@pytest.mark.parametrize(("given", "level"), [({}, "ERROR"), ({LEVEL: "INFO"}, "INFO")])
def test_learners_say_no_warnings_of_cpp_unless_the_user_wants_them(monkeypatch, given, level):
    monkeypatch.setattr(os, "environ", given)
    started = []
    monkeypatch.setattr(subprocess, "Popen", lambda *_, env, **more: started.append(env[LEVEL]))
    server = SimpleNamespace(getsockname=lambda: ("", 1), fileno=lambda: 3)
    Launcher([], 2)._start(1, server)
    assert started == [level]


def test_a_learner_that_cannot_be_started_is_told_and_the_others_are_ended(monkeypatch, capsys):
    started = []

    def start(*arguments, **more):
        if started:
            raise OSError(11, "Resource temporarily unavailable")
        started.append(real([sys.executable, "-c", "input()"], stdin=subprocess.PIPE))
        return started[0]

    real = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", start)
    assert Launcher([], 2).run() == 1
    assert "learner 1 could not be started: [Errno 11]" in capsys.readouterr().err
    assert started[0].returncode == -9
    started[0].stdin.close()


class Clocked:
    """A learner that ends at a time of a clock, which goes on while somebody waits for it."""

    pid = -1

    def __init__(self, now, ends_at, status=0):
        self._now, self._ends_at, self._status = now, ends_at, status

    def poll(self):
        return self._status if self._now[0] >= self._ends_at else None

    def wait(self, seconds):
        self._now[0] += seconds


@pytest.mark.parametrize(
    ("ends_at", "stopped_at", "statuses", "waits_until"),
    [
        ((5000.0, 10.0), None, (0, 0), 5000),  # learner 0 plays the last evaluation
        ((5000.0, 10.0), 2000, (0, 0), 2600),
        ((2100.0, 10.0), 2000, (0, 0), 2100),  # and saves
        ((5000.0, 10.0), None, (0, 1), 610),  # the other has failed
        ((10.0, 5000.0), None, (0, 0), 610),
        ((10.0, 5000.0), None, (130, 0), 610),
        ((10.0, 5000.0), None, (1, 0), 15),  # learner 0 has failed, and saved
        ((10.0, 5000.0), None, (-9, 0), 610),  # it was killed: the other saves in its place
    ],
)
def test_a_learner_is_killed_that_does_not_end_but_not_learner_0_at_its_last_evaluation(
    monkeypatch, ends_at, stopped_at, statuses, waits_until
):
    now, group = [1.0], Launcher([], 2)
    monkeypatch.setattr(launcher, "time", SimpleNamespace(monotonic=lambda: now[0]))
    first, other = (Clocked(now, at, ended) for at, ended in zip(ends_at, statuses, strict=True))
    group._learners = [first, other]
    if stopped_at is not None:
        poll = first.poll
        first.poll = lambda: (group._signals.extend([2] * (now[0] >= stopped_at)), poll())[1]
    group._wait()
    assert now[0] == pytest.approx(waits_until, abs=1)
