import csv
import errno
import io
import json
import math
import shlex
import shutil
import signal
import threading
import time
from pathlib import Path

import gymnasium
import pytest
from gymnasium.envs.registration import EnvSpec
from rich.console import Console

from ritornello import multi_train
from ritornello.analysis.compare_sequence import compare_sequence, summary, write_report
from ritornello.analysis.runs import read_runs
from ritornello.core import faults
from ritornello.core.errors import ConfigError
from ritornello.core.project import sequence_command
from ritornello.flags.options import Flags
from ritornello.metrics.curve import curve_of
from ritornello.metrics.run_files import read_records
from ritornello.sequences import runner
from ritornello.sequences import terminal as terminal_of_sequences
from ritornello.sequences.folder import SequenceFolder
from ritornello.sequences.plan import load_plan, parse_plan, shipped_plans, source_of
from ritornello.sequences.runner import Interrupts, run_sequence
from ritornello.wrappers import trusted_modules
from tests import faulty
from tests.deadlines import wait_until
from tests.integration.commands import HANGS_S
from tests.troubled import lives


@pytest.fixture
def fake_main(false_trainer, monkeypatch):
    for env in ("Ok-v0", "Fail-v0"):
        monkeypatch.setitem(gymnasium.registry, env, EnvSpec(env))
    return false_trainer


def begin(tmp_path, *envs, seeds=(1,), **grid):
    runs = [{"name": f"{n}-{env}", "flags": {"env": env}} for n, env in enumerate(envs)]
    data = {"base": {"lr": 0.01}, "seeds": list(seeds), "runs": runs, "grid": grid}
    plan = parse_plan(data, default_name="test", where="test")
    return SequenceFolder.create(tmp_path / "results", plan, ["--debug=True"])


def statuses(folder):
    saved = SequenceFolder.open(folder.path)
    assert saved.runs == folder.runs, "the file and the memory disagree"
    return [run.status for run in saved.runs]


def output_of(folder, index):
    return (folder.path / folder.runs[index].name / "output.log").read_text()


def test_a_plan_expands_to_seeds_then_points_of_the_grid_then_runs():
    plan = parse_plan(
        {
            "base": {"env": "E", "lr": 1},
            "seeds": [1, 2],
            "runs": [{"name": "a", "flags": {"lr": 2}}, {"name": "b"}],
            "grid": {"gamma": [0.9, 0.99]},
        },
        default_name="p",
        where="here",
    )
    expected = [
        (group, seed, lr, gamma)
        for seed in (1, 2)
        for group, lr, gamma in [
            ("a gamma=0.9", 2, 0.9),
            ("b gamma=0.9", 1, 0.9),
            ("a gamma=0.99", 2, 0.99),
            ("b gamma=0.99", 1, 0.99),
        ]
    ]
    assert [(r.group, r.seed, r.flags["lr"], r.flags["gamma"]) for r in plan.runs] == expected
    assert all(run.flags["seed"] == run.seed for run in plan.runs)


def test_a_flag_of_a_sequence_has_one_value_whatever_it_is_called():
    data = {
        "base": {"env": "E", "environment_max_steps": 1, "unroll-length": 7},
        "runs": [{"name": "a", "flags": {"max_steps": 2}}],
        "grid": {"environment_max_steps": [3]},
        "test": {"num_episodes": 4},
    }
    trained, tested = parse_plan(data, default_name="p", where="here").runs
    assert trained.flags == {"env": "E", "environment_max_steps": 3, "r_f_steps": 7, "seed": 1}
    assert tested.flags["test_episode_count"] == 4


def test_long_values_of_a_grid_are_cut_only_where_that_tells_them_apart():
    like, other = ("queue:4:0.5,standard:1000:0.5", "queue:4:0.5,standard:2000:0.5"), "queue:8:1.0,"
    data = {"grid": {"replay": [*like, other + "elite:1000:0.0"]}}
    groups = [run.group for run in parse_plan(data, default_name="p", where="here").runs]
    assert groups == [*(f"replay={each}" for each in like), "replay=queue:8:1.0,elite:100..."]
    data["grid"]["replay"] += like[:1]
    with pytest.raises(ConfigError, match="two groups named 'replay=queue:4"):
        parse_plan(data, default_name="p", where="here")


FIRST = {"name": "first"}
TEST_OF_FIRST = {"name": "t", "flags": {"op_mode": "test", "load_model_url": {"run": "first"}}}
ON_FROM_A = {"op_mode": "train_w_load", "load_model_url": {"run": "a"}}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"bse": {}}, "unknown key bse; did you mean base"),
        ({"runs": [{"name": "a", "flag": {}}]}, r"unknown key runs\[0\].flag; did you mean flags"),
        ({"runs": [{"name": "a", "bse": {}}]}, r"runs\[0\].bse$"),
        ({"runs": ["a"]}, r"runs\[0\] is 'a': expected keys with values"),
        (None, "its content is None: expected keys with values"),  # of an empty file
        ({"base": {"lr": 1, "max_steps": 2, "max-steps": 3}}, "'max_steps' and 'max-steps', which"),
        ({"seeds": []}, r"seeds is \[\]: expected at least 1 item$"),
        ({"grid": {"lr": 0.1}}, r"grid.lr is 0.1: expected a list, as in \[0.1\]$"),
        ({"name": ""}, "name is '': expected at least 1 character$"),
        ({"runs": [{"name": "b", "flags": {"load_model_url": {"rum": "a"}}}]}, "a path or {run"),
        ({"runs": [FIRST, {"name": "b", "flags": {"load_model_url": {"run": "fist"}}}]}, "n first"),
        ({"runs": [{"name": "b", "flags": ON_FROM_A}, {"name": "a"}]}, "'b' starts from 'a', but"),
        (
            {
                "runs": [
                    FIRST,
                    TEST_OF_FIRST,
                    {"name": "b", "flags": {"load_model_url": {"run": "t"}}},
                ]
            },
            "'b' starts from 't', which only tests",
        ),
        (
            {
                "runs": [FIRST, {"name": "b", "flags": {"load_model_url": {"run": "test first"}}}],
                "test": {},
            },
            "'b' starts from 'test first', which only tests",
        ),
        (
            {"runs": [{"name": "a"}, {"name": "b", "flags": ON_FROM_A}]},
            "'b' goes on from 'a'.*expected save_replay: true there, or load_replay: false in 'b'",
        ),
    ],
)
def test_a_malformed_plan_is_refused_by_the_key_that_is_wrong(data, message):
    with pytest.raises(ConfigError, match=message):
        parse_plan(data, default_name="p", where="here")


@pytest.mark.parametrize("name", sorted(shipped_plans()))
def test_every_run_of_every_shipped_sequence_has_valid_flags(name):
    for run in load_plan(name).runs:
        source = source_of(run.flags)
        Flags(**{**run.flags, **({"load_model_url": "some"} if source else {})})


def test_a_run_that_is_a_test_is_not_tested():
    data = {"runs": [FIRST, TEST_OF_FIRST], "test": {}}
    plan = parse_plan(data, default_name="p", where="here")
    assert [run.group for run in plan.runs] == ["first", "test first", "t"]


def test_a_run_starts_from_that_of_its_seed_and_its_point_in_the_grid():
    plan = parse_plan(
        {
            "seeds": [1, 2],
            "runs": [
                {"name": "first"},
                {"name": "second", "flags": {"load_model_url": {"run": "first"}}},
            ],
            "grid": {"lr": [0.1, 0.2]},
            "test": {"env": "A", "greedy": True},
        },
        default_name="p",
        where="here",
    )
    groups = [run.group for run in plan.runs if run.seed == 2]
    assert groups == [
        *("first lr=0.1", "test first lr=0.1", "second lr=0.1", "test second lr=0.1"),
        *("first lr=0.2", "test first lr=0.2", "second lr=0.2", "test second lr=0.2"),
    ]
    by_group = {run.group: run.flags for run in plan.runs if run.seed == 2}
    assert source_of(by_group["first lr=0.2"]) is None
    assert source_of(by_group["second lr=0.2"]) == "first lr=0.2"
    assert by_group["test second lr=0.1"] == {
        **{"op_mode": "test", "test_all_checkpoints": True, "env": "A", "greedy": True},
        **{"load_model_url": {"run": "second lr=0.1"}, "seed": 2},
    }


@pytest.mark.process
def test_a_later_run_waits_for_the_run_it_starts_from_and_gets_its_folder(tmp_path, fake_main):
    data = {
        "base": {"lr": 0.01},
        "seeds": [1, 2],
        "runs": [
            {"name": "first", "flags": {"env": "Fail-v0"}},
            {"name": "then", "flags": {"env": "Ok-v0", "load_model_url": {"run": "first"}}},
        ],
        "test": {"env": "Ok-v0"},
    }
    plan = parse_plan(data, default_name="test", where="test")
    folder = SequenceFolder.create(tmp_path / "results", plan, [])
    run_sequence(folder, Interrupts())
    assert statuses(folder) == ["failed", "waiting", "waiting", "waiting"] * 2
    fake_main.write_text(fake_main.read_text().replace("Fail-v0", "Never-v0"))
    run_sequence(folder, Interrupts())
    assert statuses(folder) == ["done"] * 8
    assert [run.group for run in folder.runs[:4]] == ["first", "test first", "then", "test then"]
    for index, source in ((1, 0), (2, 0), (3, 2), (6, 4)):
        path = folder.path / folder.runs[index].name / "overrides.json"
        (made,) = folder.run_folders(folder.runs[source])
        assert json.loads(path.read_text())["load_model_url"] == str(made.path)
    assert '"op_mode": "test"' in output_of(folder, 1)
    assert '"op_mode": "train"' in output_of(folder, 2), "it begins anew, from those weights"
    # Tests are no runs to compare.
    assert [s.group for s, _ in compare_sequence(folder).runs] == ["first", "then"] * 2


def test_a_run_that_goes_on_from_another_resumes_it_in_a_folder_of_its_own(tmp_path, fake_main):
    then = {"env": "Wait-v0", "load_replay": False, **ON_FROM_A}
    data = {"runs": [{"name": "a", "flags": {"env": "Ok-v0"}}, {"name": "then", "flags": then}]}
    plan = parse_plan(data, default_name="test", where="test")
    folder = SequenceFolder.create(tmp_path / "results", plan, [])
    begun = runner.command(folder, folder.runs[1])
    assert begun[2:4] == ["--op_mode=train_w_load", "--new_run_folder=True"]
    assert not any(item.startswith("--load_model_url") for item in begun)
    made = folder.path / folder.runs[1].name / "made"
    (made / "checkpoints").mkdir(parents=True)
    (made / "checkpoints" / "update_000000030.pt").write_text("")
    resumed = runner.command(folder, folder.runs[1])
    # What it left out is the replay of the other run, and not its own.
    own = ["--op_mode=train_w_load", f"--load_model_url={made}", "--load_replay=True"]
    assert resumed[2:5] == own


@pytest.mark.process
def test_an_interrupt_stops_the_sequence_and_resume_goes_on_with_the_checkpoint(
    tmp_path, fake_main, monkeypatch, capsys
):
    folder = begin(tmp_path, "Ok-v0", "Wait-v0", "Ok-v0")
    interrupts = Interrupts()

    def interrupt_once_ready(run, seconds):
        if list(folder.path.glob("*/*/ready")) and not interrupts.stop:
            interrupts.note(signal.SIGINT)
            interrupts.note(signal.SIGINT)  # as `timeout` forwards it

    run_sequence(folder, interrupts, interrupt_once_ready)
    assert statuses(folder) == ["done", "stopped", "waiting"]
    assert list(folder.path.glob("002_*/*/checkpoints/update_000000030.pt")), "no clean save"
    with monkeypatch.context() as patch:
        patch.setattr(multi_train, "run_sequence", lambda *_: None)
        assert multi_train._run(terminal_of_sequences.Terminal(), folder) == 130
    said = capsys.readouterr().out
    assert "stopped: 002_" in said
    assert "003_" not in said, "a run that was not begun has no output.log"

    reopened = SequenceFolder.open(folder.path)
    run_sequence(reopened, Interrupts())
    assert statuses(reopened) == ["done", "done", "done"]
    assert '"op_mode": "train_w_load"' in output_of(reopened, 1)
    assert output_of(reopened, 0).count("arguments:") == 1, "a run that was done was run again"
    # Steps 400 and 500 were recorded twice: before the interrupt, and after going back to 300.
    (made,) = reopened.run_folders(reopened.runs[1])
    curve = curve_of(read_records(made.path))
    assert curve.agent_steps.tolist() == [100.0 * n for n in range(1, 11)]


@pytest.mark.process
def test_nothing_is_begun_after_a_run_that_others_stopped_as_at_the_end_of_a_job(
    tmp_path, fake_main, capsys
):
    folder = begin(tmp_path, "Job-v0", "Ok-v0")
    assert multi_train.main([f"--resume={folder.path}"]) == 130
    assert [run.status for run in SequenceFolder.open(folder.path).runs] == ["stopped", "waiting"]
    said = capsys.readouterr().out
    assert "stopped: 001_" in said
    assert f"To go on: {sequence_command()} --resume={folder.path}" in said
    assert multi_train.main([f"--resume={folder.path}"]) == 0
    assert '"op_mode": "train_w_load"' in output_of(folder, 0)


@pytest.mark.process
@pytest.mark.timeout(100)
@pytest.mark.parametrize("cause", ["patience", "second interrupt", "second while a failure ends"])
def test_a_run_that_ignores_the_interrupt_is_killed_with_its_children(
    tmp_path, fake_main, monkeypatch, cause
):
    fake_main.write_text(
        "import os, pathlib, signal, sys\n"
        "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "read_end, write_end = os.pipe()\n"
        "child = os.fork()\n"
        "if child:\n"
        "    (given,) = [a for a in sys.argv if a.startswith('--results_dir=')]\n"
        "    run = pathlib.Path(given.partition('=')[2])\n"
        "    (run / 'ready').write_text(str(child))\n"
        "os.read(read_end, 1)\n"  # for ever: this process holds the other end itself
    )
    monkeypatch.setattr(runner, "GRACE_S", 0.1 if cause == "patience" else 1e6)
    folder = begin(tmp_path, "Deaf-v0")
    now = time.monotonic
    interrupts = Interrupts()
    grandchildren: list[int] = []

    def interrupt_again():
        monkeypatch.setattr("time.monotonic", lambda: now() + 2.0)
        interrupts.note(signal.SIGTERM)

    def interrupt_once_ready(run, seconds):
        for path in folder.path.glob("*/ready"):
            if not interrupts.stop and path.read_text():
                grandchildren.append(int(path.read_text()))
                interrupts.note(signal.SIGINT)
                if cause == "second interrupt":
                    interrupt_again()
                elif cause != "patience":
                    threading.Timer(0.5, interrupt_again).start()
                    raise OSError("no space left")

    if cause.endswith("a failure ends"):
        with pytest.raises(OSError, match="no space"):
            run_sequence(folder, interrupts, interrupt_once_ready)
    else:
        run_sequence(folder, interrupts, interrupt_once_ready)
        assert statuses(folder) == ["stopped"]
        assert folder.runs[0].exit_code == -signal.SIGKILL
    (grandchild,) = grandchildren
    wait_until(lambda: not lives(grandchild), "the child of the run lives on")


@pytest.mark.process
def test_runs_at_once_save_together_when_the_sequence_fails(tmp_path, fake_main):
    fake_main.write_text(
        "import pathlib, signal, sys, threading\n"
        "(given,) = [a for a in sys.argv if a.startswith('--results_dir=')]\n"
        "run = pathlib.Path(given.partition('=')[2])\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])\n"
        "(run / 'ready').write_text('')\n"
        "signal.sigwait([signal.SIGINT])\n"
        "(run / 'asked').write_text('')\n"
        "for _ in range(100):\n"
        "    if len(list(run.parent.glob('*/asked'))) == 2:\n"
        "        (run / 'together').write_text('')\n"
        "        break\n"
        "    threading.Event().wait(0.1)\n"
    )
    folder = begin(tmp_path, "Wait-v0", "Wait-v0")
    folder.at_once = 2
    failures = [OSError("no space left")]

    def fail_once_both_are_ready(run, seconds):
        if failures and len(list(folder.path.glob("*/ready"))) == 2:
            raise failures.pop()

    with pytest.raises(OSError, match="no space"):
        run_sequence(folder, Interrupts(), fail_once_both_are_ready)
    assert len(list(folder.path.glob("*/together"))) == 2


@pytest.mark.process
@pytest.mark.parametrize("nth", [1, 2, 3, 4])
def test_a_sequence_goes_on_while_its_state_cannot_be_written(tmp_path, fake_main, nth):
    folder = begin(tmp_path, "Ok-v0", "Ok-v0")
    full = {"at": "file.replace", "file": "sequence.json", "nth": nth, "do": "enospc"}
    with faults.loaded(faulty.Plan(faulty.parse_plan(json.dumps(full)))):
        run_sequence(folder, Interrupts())
    assert statuses(folder) == ["done", "done"]


@pytest.mark.process
def test_a_state_that_is_not_written_in_the_end_is_told(tmp_path, fake_main, capsys):
    folder = begin(tmp_path, "Ok-v0", "Ok-v0")
    full = {"at": "file.replace", "file": "sequence.json", "nth": 2, "do": "enospc"}
    with faults.loaded(faulty.Plan(faulty.parse_plan(json.dumps({**full, "for_ever": True})))):
        assert multi_train.main([f"--resume={folder.path}"]) == 1
    assert f"{folder.path / 'sequence.json'}. What was done is kept" in capsys.readouterr().err
    assert output_of(folder, 1).count("arguments:") == 1


@pytest.mark.process
def test_groups_are_compared_at_equal_steps_and_written_down(tmp_path, fake_main):
    folder = begin(tmp_path, "Ok-v0", seeds=(1, 2, 3), lr=[0.01, 0.02])
    run_sequence(folder, Interrupts())
    # One run got less far than the others: all are compared where it ended.
    (short,) = folder.path.glob("001_*/*/metrics.jsonl")
    short.write_text("".join(short.read_text().splitlines(keepends=True)[:8]))
    comparison = compare_sequence(folder)
    write_report(folder, comparison)
    (game,) = comparison.games
    assert (game.env, game.at_steps) == ("Ok-v0", 800)
    assert "left out" not in summary(comparison)
    assert {row.label: row.scores for row in game.rows} == {
        "0-Ok-v0 lr=0.01": pytest.approx((9.0, 10.0, 11.0)),
        "0-Ok-v0 lr=0.02": pytest.approx((17.0, 18.0, 19.0)),
    }
    markdown = (folder.path / "table.md").read_text()
    assert markdown.index("| 0-Ok-v0 lr=0.02 | 3 |") < markdown.index("| 0-Ok-v0 lr=0.01 | 3 |"), (
        "the best comes first"
    )
    assert "| 0-Ok-v0 lr=0.01 | 3/3 | - |" in markdown
    lines = list(csv.DictReader((folder.path / "table.csv").read_text().splitlines()))
    assert len(lines) == 6
    assert math.isclose(float(lines[0]["score"]), 9.0)
    late = short.read_text().splitlines(keepends=True)[-1]  # the only record, after all others
    short.write_text(late.replace('"agent_steps": 800', '"agent_steps": 900000'))
    assert "1 left out: table.md says why." in summary(compare_sequence(folder))
    assert math.isclose(float(lines[1]["final_mean_return_100"]), 0.02 * 1000 + 1)
    assert (folder.path / "comparison.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.process
def test_a_run_whose_folder_is_gone_is_done_again_with_its_test(tmp_path, fake_main):
    data = {"base": {"env": "Ok-v0", "lr": 0.01}, "seeds": [1, 2]}
    data["test"] = {"env": "Ok-v0"}
    folder = SequenceFolder.create(tmp_path, parse_plan(data, default_name="x", where="x"), [])
    run_sequence(folder, Interrupts())
    shutil.rmtree(folder.path / folder.runs[0].name)
    reopened = SequenceFolder.open(folder.path)
    assert [run.status for run in reopened.runs] == ["waiting", "waiting", "done", "done"]
    run_sequence(reopened, Interrupts())
    assert statuses(reopened) == ["done"] * 4
    assert output_of(reopened, 1).count("arguments:") == 2, "the test beside the new run"


def test_a_sequence_is_compared_where_nothing_can_be_written(tmp_path, capsys):
    folder = begin(tmp_path, "Ok-v0")
    (folder.path / "table.md").mkdir()
    assert multi_train.main([f"--report={folder.path}"]) == 1
    said = capsys.readouterr()
    assert "0/1" in said.out
    assert f"Is a directory: {folder.path / 'table.md'}." in said.err


def test_nothing_is_begun_where_there_is_no_room(tmp_path, monkeypatch, capsys):
    def full(*given):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    assert multi_train.main(["--sequence=smoke", f"--results_dir={tmp_path}"]) == 2
    assert "No space left on device), so nothing is begun" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.process
def test_groups_whose_names_make_one_name_of_a_file_are_compared(tmp_path, fake_main):
    data = {"base": {"env": "Ok-v0", "lr": 0.01}, "runs": [{"name": "α"}, {"name": "β"}]}
    plan = parse_plan(data, default_name="test", where="test")
    folder = SequenceFolder.create(tmp_path / "results", plan, [])
    run_sequence(folder, Interrupts())
    (game,) = compare_sequence(folder).games
    assert sorted(row.label for row in game.rows) == ["α", "β"]


@pytest.mark.process
def test_the_program_runs_resumes_and_reports(tmp_path, fake_main, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    # Runs are started in this folder, too; a long path is no message that may be cut.
    sequence, results = Path("mine.yaml"), Path("out", "a" * 100, "b" * 100)
    sequence.write_text("base: {lr: 0.01}\ngrid: {env: [Ok-v0, Fail-v0]}\n")
    given = [f"--results_dir={results}", "--gamma=0.5", f"--sequence={sequence}"]
    typed = ["--r_f_steps=7", "--replay=queue:100:1"]
    assert multi_train.main([*given, "--dry_run", "--", *typed]) == 0
    assert "--gamma=0.5 --r_f_steps=7 --replay=queue:100:1" in capsys.readouterr().out
    assert not results.exists()
    assert multi_train.main(given) == 1
    (made,) = results.iterdir()
    assert made.name.startswith("mine_")
    shown = capsys.readouterr().out
    assert "failed" in shown
    assert f"To go on: {sequence_command()} --resume={made}" in shown
    fake_main.write_text(fake_main.read_text().replace("Fail-v0", "Never-v0"))
    assert multi_train.main([f"--resume={made}"]) == 0
    assert multi_train.main([f"--report={made}"]) == 0


@pytest.mark.process
@pytest.mark.parametrize(
    ("place", "is_file"),
    [("", True), ("run.lock", False), ("output.log", False), ("overrides.json", False)],
)
def test_what_lies_in_the_place_of_a_file_of_one_run_fails_that_run_alone(
    tmp_path, fake_main, capsys, place, is_file
):
    folder = begin(tmp_path, "Ok-v0", "Ok-v0")
    path = folder.path / folder.runs[0].name / place
    path.parent.mkdir(exist_ok=True)
    path.write_text("") if is_file else path.mkdir()
    assert multi_train.main([f"--resume={folder.path}"]) == 1
    runs = SequenceFolder.open(folder.path).runs
    assert [run.status for run in runs] == ["failed", "done"]
    (told,) = (line for line in capsys.readouterr().out.splitlines() if " 1/2 " in line)
    assert str(path) in told


@pytest.mark.process
def test_what_another_process_did_just_before_a_resume_is_not_overwritten(
    tmp_path, fake_main, monkeypatch
):
    folder, claim = begin(tmp_path, "Ok-v0"), SequenceFolder.claim

    def claim_when_the_other_ends(resumed):
        monkeypatch.setattr(SequenceFolder, "claim", claim)
        run_sequence(folder, Interrupts())
        claim(resumed)

    monkeypatch.setattr(SequenceFolder, "claim", claim_when_the_other_ends)
    done_by_the_other = folder.runs
    assert multi_train.main([f"--resume={folder.path}"]) == 0
    assert SequenceFolder.open(folder.path).runs == done_by_the_other
    assert folder.lock.acquire()
    folder.lock.release()


def test_a_misspelt_environment_is_found_before_the_first_run(tmp_path, capsys):
    plan = tmp_path / "mine.yaml"
    plan.write_text("grid: {env: [CartPole-v1, 'PongNoFrameskip-v4,BreakoutNoFrameskp-v4']}\n")
    assert multi_train.main([f"--sequence={plan}", "--dry_run"]) == 2
    error = capsys.readouterr().err
    for said in ("BreakoutNoFrameskp-v4", "BreakoutNoFrameskip-v4", "(in "):
        assert said in error


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (["--sequence=smoke", "--dryrun"], "did you mean --dry_run?"),
        (["--sequence=smoke", "--", "--dry_run"], "--dry_run is no flag of a run: write it before"),
        (["--sequence=smoke", "--gama=0.9"], "did you mean --gamma?"),
        (["--sequnce=smoke"], "did you mean --sequence?"),
        (["--sequence=smoke", "--tune=search.yaml"], "give one of --list, --sequence"),
        (["--seed=1"], "give one of --list, --sequence"),
        (["--tune=a.yaml", "--at_once=2"], "are one after the other: leave --at_once out"),
        (["smoke"], "'smoke' is not an option"),
        *(([f"--{name}="], f"--{name} needs a value") for name in ("resume", "sequence", "tune")),
        (["--report="], "--report needs a value"),
        (["--sequence=smoke", "--resume="], "--resume needs a value"),
        (["--sequence=smoke", "--results_dir="], "--results_dir needs a value"),
        (["--sequence=smoke", "--preset="], "--preset needs a value"),
        (["--sequence=rates"], "did you mean rates.yaml?"),
        (["--sequence=smoky"], "did you mean smoke?"),
    ],
)
def test_what_neither_this_program_nor_main_knows_is_refused_with_what_is_near(
    typed, said, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rates.yaml").touch()
    assert multi_train.main(typed) == 2
    (error,) = capsys.readouterr().err.splitlines()
    assert said in error


@pytest.mark.process
def test_the_command_that_goes_on_has_what_no_file_may_say(
    tmp_path, fake_main, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    module = "tests.extensions.own_network:wide"
    Path("mine.yaml").write_text(f"base: {{env: Fail-v0, model: '{module}'}}\n")
    typed = [f"--model={module}", "--trust_env_module=True", "--gamma=0.5"]
    assert multi_train.main(["--sequence=mine.yaml", *typed]) == 1
    _, _, command = capsys.readouterr().out.partition(f"To go on: {sequence_command()} ")
    given = shlex.split(command)
    assert given[1:] == typed[:2]
    monkeypatch.setattr(trusted_modules, "_trusted", set())  # as in another process
    assert multi_train.main(given) == 1
    assert f"To go on: {sequence_command()} {command}" in capsys.readouterr().out


@pytest.mark.process
@pytest.mark.parametrize("is_typed", [True, False])
def test_the_command_that_goes_on_may_read_the_weights_that_the_first_one_read(
    tmp_path, fake_main, monkeypatch, capsys, is_typed
):
    monkeypatch.chdir(tmp_path)
    base = "" if is_typed else ", load_model_url: results/mine"
    Path("mine.yaml").write_text(f"base: {{env: Fail-v0{base}}}\n")
    typed = ["--load=results/mine"] if is_typed else []
    assert multi_train.main(["--sequence=mine.yaml", *typed]) == 1
    _, _, command = capsys.readouterr().out.partition(f"To go on: {sequence_command()} ")
    given = shlex.split(command)
    assert given[1:] == ["--trust_files=True"]
    assert multi_train.main(given) == 1
    assert f"To go on: {sequence_command()} {command}" in capsys.readouterr().out


class Frozen(io.StringIO):
    """A terminal that takes nothing (Ctrl-S), until it is let go."""

    def __init__(self):
        super().__init__()
        self.go = threading.Event()

    def write(self, text):
        self.go.wait(HANGS_S)
        return len(text)


@pytest.mark.process
def test_no_run_waits_for_a_terminal_or_ends_with_it(tmp_path, fake_main, monkeypatch):
    file = Frozen()
    monkeypatch.setattr(
        terminal_of_sequences, "Console", lambda **given: Console(file=file, force_terminal=False)
    )
    monkeypatch.setattr(terminal_of_sequences, "LINE_INTERVAL_S", 0.0)
    monkeypatch.setattr(terminal_of_sequences, "TERMINAL_GRACE_S", 0.1)
    sequence = tmp_path / "mine.yaml"
    sequence.write_text("base: {lr: 0.01, env: Ok-v0}\nseeds: [1, 2]\n")
    assert multi_train.main([f"--sequence={sequence}", f"--results_dir={tmp_path / 'out'}"]) == 0
    assert not file.go.is_set()
    file.go.set()
    (made,) = (tmp_path / "out").iterdir()
    assert statuses(SequenceFolder.open(made)) == ["done", "done"]
    assert (made / "table.md").exists()


def test_a_run_that_waits_for_its_earlier_process_is_told_once_a_minute(tmp_path, capsys):
    folder = begin(tmp_path, "Ok-v0")
    show = terminal_of_sequences.Progress(terminal_of_sequences.Terminal(), folder)
    status = "waiting: process 4121, since noon of an earlier multi_train.py is at "
    for looks in range(4):
        show(folder.runs[0].model_copy(update={"status": status}), 0.5 * looks)
    (line,) = capsys.readouterr().out.splitlines()
    assert "multi_train.py is at 1/1 0-Ok-v0, seed 1" in line


@pytest.mark.process
def test_groups_and_seeds_that_a_file_has_got_are_run_behind_those_that_are_done(
    tmp_path, fake_main, capsys
):
    sequence = tmp_path / "mine.yaml"
    sequence.write_text("base: {env: Ok-v0, lr: 0.01}\nruns: [{name: a}]\n")
    results = tmp_path / "out"
    given = [f"--sequence={sequence}", f"--results_dir={results}", "--gamma=0.9"]
    assert multi_train.main(given) == 0
    (made,) = results.iterdir()
    before = SequenceFolder.open(made).runs
    sequence.write_text(
        "base: {env: Ok-v0, lr: 0.01}\nseeds: [1, 2]\nruns: [{name: a}, {name: b}]\n"
    )
    resumed = [f"--resume={made}", f"--sequence={sequence}"]
    assert multi_train.main([*resumed, "--dry_run"]) == 0
    assert SequenceFolder.open(made).runs == before, "it is only shown"
    assert multi_train.main(resumed) == 0
    folder = SequenceFolder.open(made)
    assert folder.runs[:1] == before, "what is done was not done again"
    assert [(run.name, run.status) for run in folder.runs[1:]] == [
        *(("002_b_seed1", "done"), ("003_a_seed2", "done"), ("004_b_seed2", "done")),
    ]
    assert '"gamma": "0.9"' in output_of(folder, 3), "as what was typed for those before"
    capsys.readouterr()
    assert multi_train.main([*resumed, "--max_steps=9"]) == 0, "there is nothing more to add"
    flag = "--environment_max_steps=9"
    told = f"done already: 4 runs; {flag} is not kept, for no run is left to do"
    assert told in capsys.readouterr().out.splitlines()
    assert len(SequenceFolder.open(made).runs) == 4
    assert multi_train.main([*resumed, "--dry_run"]) == 0
    assert capsys.readouterr().out == f"{made}: no run is left to do\n"
    sequence.write_text(sequence.read_text().replace("[1, 2]", "[1, 2, 3]"))
    assert multi_train.main([*resumed, "--max_steps=8"]) == 0
    told = "done already: 4 runs; --gamma=0.9 --environment_max_steps=8 is for the others"
    assert told in capsys.readouterr().out.splitlines()
    commands = [run.about.command.partition(" -- ")[2] for run in read_runs(made)]
    assert commands == ["--gamma=0.9"] * 4 + ["--gamma=0.9 --environment_max_steps=8"] * 2
    sequence.write_text(sequence.read_text().replace("[1, 2, 3]", "[1, 2, 3, 4]"))
    assert multi_train.main(resumed) == 0
    told = "done already: 6 runs; --gamma=0.9 --environment_max_steps=8 is for the others"
    assert told in capsys.readouterr().out.splitlines(), "what is kept is said at each resume"


DIFFER = [
    ("grid: {lr: [0.0007]}", "--lr=0.003"),
    ("grid: {unroll-length: [10]}", "--r_f_steps=40"),
    ("runs: [{name: a}]\ntest: {test_episode_count: 1}", "--load_model_url=models/pong"),
    ("seeds: [1, 2]", "--seed=3"),
    ("seeds: [1]", "--seed=3"),
]
ALIKE = [("base: {lr: 0.1}\nseeds: [1, 2]", "--lr=0.003")]


@pytest.mark.parametrize(("text", "typed"), [*DIFFER, *ALIKE])
def test_only_a_flag_that_all_runs_have_alike_can_be_typed(tmp_path, capsys, text, typed):
    file = tmp_path / "mine.yaml"
    file.write_text(text)
    is_refused = (text, typed) in DIFFER
    assert multi_train.main([f"--sequence={file}", "--dry_run", typed]) == (2 if is_refused else 0)
    if is_refused:
        (error,) = capsys.readouterr().err.splitlines()
        name = typed[2:].partition("=")[0]
        assert f"{file} are told from each other by their {name}: leave it out" in error
