"""A search: Optuna chooses, trials are runs of a sequence, and a killed one goes on."""

import errno
import json

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec

pytest.importorskip("optuna", reason="Optuna is not installed (extra tune)")

import optuna

from ritornello import multi_train
from ritornello.core.errors import ConfigError
from ritornello.core.file_lock import FileLock
from ritornello.core.project import sequence_command
from ritornello.flags.parsing import parse
from ritornello.metrics.curve import Curve
from ritornello.metrics.run_files import last_record
from ritornello.sequences import runner, tuner
from ritornello.sequences.folder import RUN_LOCK_FILE, SequenceFolder, is_tuning
from ritornello.sequences.runner import Interrupts
from ritornello.sequences.search import Search, load_search
from ritornello.sequences.tuner import Tuner, create_folder

pytestmark = [
    pytest.mark.process,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning"),
]
BASE = {"env": "CartPole-v1", "environment_max_steps": 1000}
SEARCH = {
    "name": "false",
    "base": BASE,
    "search": {"lr": {"from": 0.1, "to": 0.9}},
    "trials": 2,
    "prune": {"every": 100, "after_steps": 200, "after_trials": 2},
}


@pytest.fixture(autouse=True)
def _false_trainer(false_trainer, monkeypatch):
    monkeypatch.setattr(tuner, "LOOK_S", 0.0)


def load(tmp_path, **changes):
    path = tmp_path / "search.yaml"
    path.write_text(json.dumps({**SEARCH, **changes}))
    return load_search(path)


def begun(tmp_path, **changes):
    return create_folder(tmp_path / "results", load(tmp_path, **changes), [])


def work(folder, interrupts=None, kind=Tuner):
    search = load_search(folder.path / tuner.TUNING_FILE)
    return kind(folder, search, interrupts or Interrupts(), lambda line: None).work()


def study(folder):
    url = f"sqlite:///{folder.path / 'study.db'}"
    return optuna.load_study(study_name="tuning", storage=url).trials


def starts(folder, run=0):
    log = (folder.path / folder.runs[run].name / "output.log").read_text()
    return [line.split("--op_mode=")[1].split()[0] for line in log.splitlines() if "$ " in line]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"serch": {}}, "did you mean search"),
        (
            {"search": {"lr": {"form": 0.1, "to": 0.9}}},
            "unknown key search.lr.form; did you mean from",
        ),
        ({"prune": {"evry": 1}}, "unknown key prune.evry; did you mean every.$"),
        ({"prune": {"every": "x"}}, "prune.every is 'x': expected a valid integer$"),
        ({"prune": True}, r"prune is True: expected keys with values \(key: value\) or False$"),
        (
            {"search": {"lr": {"choose": []}}},
            r"search.lr.choose is \[\]: expected at least 1 item$",
        ),
        (
            {"search": {"lr": {"from": 0.1, "to": 0.5, "choose": [0.3]}}},
            r"search.lr: expected \{from: number, to: number\} or \{choose",
        ),
        ({"search": {"lr": {"choose": [0.3], "log": True}}}, "search.lr: expected"),
        ({"search": {"r_f_steps": {"from": 1, "to": 4, "step": 0}}}, "step > 0"),
        ({"search": {"env": {"choose": ["a"]}}}, "base or in search"),
        (
            {"search": {"max_steps": {"choose": [1]}}},
            "environment_max_steps: a flag is in base or in search",
        ),
        ({"base": {**BASE, "seed": 1}}, "seed: a flag is in base or in search"),
        *(
            ({"base": {**BASE, "load_model_url": url}}, "load_model_url is .*, expected a path: ")
            for url in ({"run": "a"}, {"rum": 1})
        ),
        (
            {"search": {"load_model_url": {"choose": ["models/pong", {"run": "a"}]}}},
            "load_model_url is {'run': 'a'}, expected a path: a search has no other run",
        ),
        ({"base": {**BASE, "op_mode": "test"}}, "sets op_mode, but trials are trained: remove it"),
        ({"search": {"op_mode": {"choose": ["test"]}}}, "sets op_mode, but trials are trained"),
        *(
            ({"search": {"lr": {"from": 1, "to": 3, "step": step}}}, "step of at most 2, got")
            for step in (5, 2.5)
        ),
        ({"base": {}}, "expected steps"),
        ({"trials": 1001, "seeds": [1, 2]}, "trials x seeds are 2,002 runs"),
    ],
)
def test_what_makes_no_sense_is_told_with_its_key(tmp_path, changes, message):
    with pytest.raises(ConfigError, match=message):
        load(tmp_path, **changes)


def test_flags_of_a_search_have_the_names_that_they_have_elsewhere(tmp_path):
    search = load(
        tmp_path, base={"env": "E", "max_steps": 9}, search={"unroll-length": {"choose": [4]}}
    )
    assert search.last_step == 9
    assert search.extremes()[0].flags == {"env": "E", "environment_max_steps": 9, "r_f_steps": 4}


def test_numbers_of_a_search_may_be_written_as_those_of_flags(tmp_path):
    path = tmp_path / "search.yaml"
    path.write_text(
        "{base: {environment_max_steps: 1e5}, prune: {every: 1e3}, "
        "search: {lr: {from: 1e-4, to: 1e-2, log: true}}}"  # for YAML these are texts
    )
    search = load_search(path)
    assert (search.last_step, search.every) == (100_000, 1000)
    drawn = search.search["lr"].distribution(optuna)
    assert (drawn.low, drawn.high, drawn.log) == (1e-4, 1e-2, True)


@pytest.mark.parametrize(
    "range_", [{"from": 4, "to": 8.0}, {"from": 4, "to": 8, "step": 0.5}, {"from": 4, "to": 7.0}]
)
def test_fractions_of_a_whole_flag_are_refused_before_the_first_trial(tmp_path, capsys, range_):
    path = tmp_path / "search.yaml"
    path.write_text(json.dumps({**SEARCH, "search": {"batch_size": range_}}))
    given = [f"--tune={path}", f"--results_dir={tmp_path / 'results'}"]
    assert multi_train.main(given) == 2
    assert "batch_size" in capsys.readouterr().err
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize(("low", "last"), [(1, 4), (0.1, 3.1)])
def test_a_step_that_misses_the_end_of_its_range_ends_before_it(tmp_path, low, last):
    range_ = load(tmp_path, search={"lr": {"from": low, "to": 5, "step": 3}}).search["lr"]
    assert range_.distribution(optuna).high == last


def test_a_search_trains_each_of_its_seeds_once(tmp_path):
    assert load(tmp_path, seeds=[2, 1, 2]).seeds == [2, 1]


@pytest.mark.parametrize("name", ["what?", "a%3Fb", "a#b", "{x}", "a+b c"])
def test_the_study_lies_in_the_folder_whatever_that_is_called(tmp_path, name):
    folder = create_folder(tmp_path / name, load(tmp_path), [])
    Tuner(folder, load_search(folder.path / tuner.TUNING_FILE), Interrupts(), print)
    assert (folder.path / "study.db").is_file()


def test_a_fraction_as_a_step_between_whole_bounds_makes_fractions(tmp_path):
    range_ = load(tmp_path, search={"gamma": {"from": 0, "to": 1, "step": 0.25}}).search["gamma"]
    drawn = range_.distribution(optuna)
    assert (drawn.low, drawn.high, drawn.step) == (0.0, 1.0, 0.25)


def test_the_worth_of_a_run_that_ended_early_is_that_it_stayed_where_it_was(tmp_path):
    search = load(tmp_path)
    steps = np.array([100.0, 200.0])
    curve = Curve(steps, steps, np.array([10.0, 20.0]), None)
    assert search.worth(curve, 200) == pytest.approx((100 * 10 + 100 * 15) / 200)
    assert search.worth(curve, 1000) == pytest.approx((100 * 10 + 100 * 15 + 800 * 20) / 1000)
    assert load(tmp_path, objective="return").worth(curve, 150) == 15


def test_trials_are_run_ranked_and_written_down(tmp_path):
    search = {
        "lr": {"from": 0.1, "to": 0.9},
        "r_f_steps": {"from": 10, "to": 40, "step": 10},
        "replay_parameters": {"choose": [[{"type": "queue"}], [{"type": "elite"}]]},
    }
    folder = begun(tmp_path, trials=4, search=search, seeds=[1, 2], prune=False)
    assert is_tuning(folder.path)
    assert work(folder)
    over = study(folder)
    assert [trial.state.name for trial in over] == ["COMPLETE"] * 4
    assert {trial.params["r_f_steps"] % 10 for trial in over} == {0}
    assert [run.group for run in folder.runs[:3]] == ["trial_0000", "trial_0000", "trial_0001"]
    best = json.loads((folder.path / "best.json").read_text())
    assert best["lr"] == max(trial.params["lr"] for trial in over)
    assert best["replay_parameters"] in ([{"type": "queue"}], [{"type": "elite"}])
    assert "seed" not in best
    assert (folder.path / "trials.md").read_text().count("| complete |") == 4


def test_one_that_was_killed_before_its_first_trial_goes_on(tmp_path):
    assert work(SequenceFolder.open(begun(tmp_path).path))


def test_a_trial_that_was_killed_before_it_was_asked_for_every_flag_is_none(tmp_path):
    folder = begun(tmp_path, prune=False)
    url = f"sqlite:///{folder.path / 'study.db'}"
    optuna.create_study(study_name="tuning", storage=url, direction="maximize").ask()
    assert work(folder)
    assert [(trial.state.name, set(trial.params)) for trial in study(folder)] == [
        ("FAIL", set()),
        ("COMPLETE", {"lr"}),
    ]
    assert {run.group for run in folder.runs} == {"trial_0001"}


def test_the_runs_of_another_study_are_never_taken_for_those_of_a_trial(tmp_path):
    folder = begun(tmp_path, trials=3)
    assert work(folder)
    (folder.path / "study.db").unlink()
    changed = {**SEARCH, "sampler_seed": 1}  # as a search that was resumed draws anew
    (folder.path / tuner.TUNING_FILE).write_text(json.dumps(changed))
    with pytest.raises(tuner.TuningFailed, match="not that of the runs in.*trial_0000 has other"):
        work(SequenceFolder.open(folder.path))


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"search": {"gamma": {"from": 0.1, "to": 0.9}}}, "changes search, which must stay"),
        ({"search": {"lr": {"choose": [0.1, 0.2]}}}, "changes search, which must stay"),
        ({"seeds": [1, 2], "objective": "return"}, "changes objective and seeds, which"),
    ],
)
def test_a_search_of_which_trials_could_not_be_compared_is_not_gone_on_with(
    tmp_path, changes, told
):
    folder = begun(tmp_path, trials=1)
    assert work(folder)
    changed = {**SEARCH, "trials": 2, "prune": False, "about": "x", **changes}
    (folder.path / tuner.TUNING_FILE).write_text(json.dumps(changed))
    with pytest.raises(ConfigError, match=told):
        work(SequenceFolder.open(folder.path))
    assert len(study(folder)) == 1


def test_an_error_of_our_own_is_not_told_as_one_of_the_study(tmp_path, monkeypatch):
    def fail(*given):
        raise ValueError("ours")

    folder = begun(tmp_path)
    monkeypatch.setattr(tuner, "run_sequence", fail)
    with pytest.raises(ValueError, match="ours"):
        work(folder)


@pytest.mark.parametrize(
    ("env", "why"),
    [
        ("Fail-v0", "read 001_trial_0000_seed1/output.log"),
        ("Few-v0", "read 001_trial_0000_seed1/output.log"),
        ("Endless-v0", "no game was over"),
    ],
)
def test_a_trial_that_failed_is_told_with_the_reason(tmp_path, env, why):
    folder, lines = begun(tmp_path, trials=1, base={**BASE, "env": env}), []
    search = load_search(folder.path / tuner.TUNING_FILE)
    assert Tuner(folder, search, Interrupts(), lines.append).work()
    assert lines[-1] == f"trial 0: fail, {why}"


def test_a_trial_below_the_median_is_ended_early(tmp_path, monkeypatch):
    folder = begun(tmp_path, trials=2)
    monkeypatch.setattr(Search, "worth", lambda *given: (50.0, 60.0, 1.0)[len(folder.runs) - 1])
    assert work(folder)
    # The third run waits for a signal at half-time, as one that is going on does.
    flags = Search.flags
    monkeypatch.setattr(Search, "flags", lambda *given: {**flags(*given), "env": "Wait-v0"})
    (folder.path / tuner.TUNING_FILE).write_text(json.dumps({**SEARCH, "trials": 3}))
    assert work(folder)
    assert [trial.state.name for trial in study(folder)] == ["COMPLETE", "COMPLETE", "PRUNED"]
    assert folder.runs[2].status == "stopped"


def test_ctrl_c_saves_and_resume_goes_on_with_the_same_trial(tmp_path):
    folder = begun(tmp_path, trials=1, base={**BASE, "env": "Wait-v0"}, prune=False)
    interrupts = Interrupts()

    class Stopping(Tuner):
        def _look(self, *given):
            curve = self._curve(self._folder.runs[0])
            if (curve.agent_steps >= 500).any() and not interrupts.stop:
                interrupts.note(2)

    assert not work(folder, interrupts, Stopping)
    (before,) = study(folder)
    assert before.state.name == "RUNNING"
    again = SequenceFolder.open(folder.path)
    assert again.runs[0].status == "stopped"
    assert work(again)
    (after,) = study(folder)
    assert (after.state.name, after.params) == ("COMPLETE", before.params)
    assert starts(folder) == ["train", "train_w_load"]


def test_a_trial_that_others_stop_as_at_the_end_of_a_job_is_gone_on_with(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.setitem(gymnasium.registry, "Job-v0", EnvSpec("Job-v0"))
    folder = begun(tmp_path, base={**BASE, "env": "Job-v0"}, trials=1, prune=False).path
    assert multi_train.main([f"--resume={folder}"]) == 130
    assert f"\nsaved. To go on: {sequence_command()} --resume={folder}\n" in capsys.readouterr().out
    again = SequenceFolder.open(folder)
    assert [trial.state.name for trial in study(again)] == ["RUNNING"]
    assert work(again)
    assert [trial.state.name for trial in study(again)] == ["COMPLETE"]
    assert starts(again) == ["train", "train_w_load"]


def test_a_trial_whose_earlier_process_does_not_end_is_no_failure(tmp_path, monkeypatch):
    monkeypatch.setattr(runner, "ORPHAN_WAIT_S", 0.0)
    folder = begun(tmp_path, trials=1)
    path = folder.path / "001_trial_0000_seed1"
    path.mkdir()
    lock = FileLock(path / RUN_LOCK_FILE)
    assert lock.acquire()
    assert not work(folder)
    lock.release()
    assert work(SequenceFolder.open(folder.path))
    assert [trial.state.name for trial in study(folder)] == ["COMPLETE"]


def choices(*given):
    return optuna.distributions.CategoricalDistribution([json.dumps(each) for each in given])


@pytest.mark.parametrize("state", ["RUNNING", "COMPLETE", "FAIL"])
@pytest.mark.parametrize(
    "values",
    [
        {"lr": optuna.distributions.FloatDistribution(1e8, 1e9), "load_model_url": choices("m")},
        {
            "lr": optuna.distributions.FloatDistribution(0.1, 0.9),
            "load_model_url": choices("/home/victim/run"),
        },
        {"gamma": optuna.distributions.FloatDistribution(0.1, 0.9)},
    ],
)
def test_a_study_has_no_values_that_its_search_cannot_have(tmp_path, capsys, values, state):
    search = {**SEARCH["search"], "load_model_url": {"choose": ["m"]}}
    folder = begun(tmp_path, search=search, prune=False)
    url = f"sqlite:///{folder.path / 'study.db'}"
    theirs = optuna.create_study(study_name="tuning", storage=url, direction="maximize")
    trial = theirs.ask(values)
    if state != "RUNNING":
        value = 1.0 if state == "COMPLETE" else None
        theirs.tell(trial, value, state=optuna.trial.TrialState[state])
    assert multi_train.main([f"--resume={folder.path}", "--trust_files=True"]) == 1
    error = capsys.readouterr().err
    assert "study.db cannot be used: " in error
    assert "put back a sound copy, or begin anew" in error
    assert not list(folder.path.glob("*_trial_*"))


@pytest.mark.parametrize(("signals", "told"), [(1, "saved. "), (2, "ended without saving. ")])
def test_who_leaves_at_once_is_not_told_that_all_is_saved(
    tmp_path, monkeypatch, capsys, signals, told
):
    def stop(tuner):
        tuner._interrupts.count = signals
        return False

    monkeypatch.setattr(Tuner, "work", stop)
    assert multi_train.main([f"--resume={begun(tmp_path).path}"]) == 130
    assert f"\n{told}To go on: " in capsys.readouterr().out


def test_a_curve_is_read_again_only_where_it_is_compared(tmp_path, monkeypatch):
    folder = begun(tmp_path, trials=1, base={**BASE, "env": "Wait-v0"})
    monkeypatch.setattr(runner, "POLL_S", 0.02)
    interrupts, looks, read = Interrupts(), [], []

    class Looking(Tuner):
        def _look(self, trial, before, run, seconds):
            super()._look(trial, before, run, seconds)
            made = self._folder.run_folders(run)
            record = last_record(made[-1].path) if made else None
            if record is not None and record.agent_steps == 500:  # waits for a signal
                looks.append(1)
            if len(looks) == 20:
                interrupts.note(2)

        def _curve(self, run):
            read.append(1)
            return super()._curve(run)

    assert not work(folder, interrupts, Looking)
    assert len(looks) >= 20
    assert 1 <= len(read) <= 5
    assert sorted(study(folder)[0].intermediate_values) == [100, 200, 300, 400, 500]


def test_steps_that_no_run_can_reach_as_typed_are_not_part_of_its_value(tmp_path):
    arguments = ["--max_steps=5e2", "--gamma=0.9", "--trust_env_module=True"]
    folder = create_folder(tmp_path / "results", load(tmp_path, trials=1), arguments)
    assert work(folder)
    (trial,) = study(folder)
    lr = trial.params["lr"]
    steps = np.array([0, *range(100, 501, 100)])
    area = np.trapezoid(np.maximum(steps, 100) * lr + 1, steps) / 500
    assert trial.value == pytest.approx(area)
    assert "at 500 agent steps" in (folder.path / "trials.md").read_text()
    folder.arguments.append("--gamma=0.5")  # by a resume; the trial did not have it
    assert work(folder)
    options = parse([f"--flags_file={folder.path / 'best.json'}"])
    assert (options.environment_max_steps, options.gamma, options.lr) == (500, 0.9, lr)


def test_the_program_tunes_resumes_and_refuses(tmp_path, capsys):
    path = tmp_path / "search.yaml"
    path.write_text(json.dumps(SEARCH))
    given = [f"--tune={path}", f"--results_dir={tmp_path / 'results'}"]
    assert multi_train.main([*given, "--dry_run"]) == 0
    assert multi_train.main([*given, "--lr=0.5"]) == 2
    assert "told from each other by their lr" in capsys.readouterr().err
    assert not (tmp_path / "results").exists()
    assert multi_train.main(given) == 0
    (folder,) = (tmp_path / "results").iterdir()
    file = folder / tuner.TUNING_FILE
    file.write_text(json.dumps({**json.loads(file.read_text()), "trials": 3}))
    assert multi_train.main([f"--resume={folder}", "--sequence=smoke"]) == 2
    assert multi_train.main([f"--resume={folder}"]) == 0
    assert len(study(SequenceFolder.open(folder))) == 3
    file.write_text(json.dumps({**json.loads(file.read_text()), "trials": 4}))
    capsys.readouterr()
    assert multi_train.main([f"--resume={folder}", "--max_steps=500"]) == 2
    assert "tuning.json or --max_steps changes steps, which must" in capsys.readouterr().err
    assert multi_train.main([f"--resume={folder}", "--max_steps=2000"]) == 0, "none was kept"
    assert len(study(SequenceFolder.open(folder))) == 4
    for base in ({"env": "evil:Env-v0"}, {"load_model_url": "/etc"}, {"results_dir": "/"}):
        file.write_text(json.dumps({**SEARCH, "base": {**BASE, **base}}))
        assert multi_train.main([f"--resume={folder}"]) == 2
    (folder / "study.db").write_bytes(b"SQLite format 3\0" + b"\xff" * 5000)
    file.write_text(json.dumps({**SEARCH, "trials": 9}))
    assert multi_train.main([f"--resume={folder}"]) == 1
    error = capsys.readouterr().err
    assert "study.db cannot be used" in error
    assert "put back a sound copy, or begin anew" in error


def test_a_disk_that_is_full_between_two_trials_ends_with_the_command_that_goes_on(
    tmp_path, monkeypatch, capsys
):
    def full(*given):
        raise OSError(errno.ENOSPC, "No space left on device", "trials.md")

    folder = begun(tmp_path).path
    monkeypatch.setattr(tuner, "write_text", full)
    assert multi_train.main([f"--resume={folder}"]) == 1
    error = capsys.readouterr().err
    assert "No space left on device: trials.md. What was done is kept. To go on: " in error
    assert f" --resume={folder}\n" in error


def test_a_study_that_cannot_be_written_is_told_with_the_cause(tmp_path):
    folder = begun(tmp_path)
    url = f"sqlite:///file:{folder.path / 'study.db'}"
    optuna.create_study(study_name="tuning", storage=f"{url}?uri=true")
    locked = optuna.load_study(study_name="tuning", storage=f"{url}?mode=ro&uri=true")
    with pytest.raises(tuner.TuningFailed, match="readonly database"), tuner._told():
        locked.ask()
