"""A search with a false trainer and a false study: what is tried, ended, stopped, resumed."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ritornello import multi_train
from ritornello.analysis.area import area
from ritornello.core.errors import ConfigError
from ritornello.flags.parsing import parse
from ritornello.metrics.curve import Curve
from ritornello.sequences import foreign, runner, tuner
from ritornello.sequences.study import Finished
from ritornello.sequences.tuner import Interrupts, Tuner, TuningFailed, TuningFolder, is_tuning
from ritornello.sequences.tuning import parse_tuning

SEARCH = {
    "name": "false",
    "base": {"env": "CartPole-v1", "environment_max_steps": 1000},
    "search": {"lr": {"from": 0.01, "to": 1.0, "log": True}},
    "trials": 3,
    "prune": {"every": 100},
}
ENDED_EARLY = ("pruned", "failed")
FALSE_TRAINER = Path(__file__).with_name("false_trainer.py")


class FalseTrial:
    def __init__(self, study, number, values):
        self.study, self.number, self.values = study, number, values
        self.reported = {}

    def is_hopeless(self, worth, steps):
        self.reported[steps] = worth
        return steps >= self.study.hopeless.get(self.number, np.inf)

    def end(self, state, value=None):
        self.study.before_end()
        self.study.over.append(Finished(self.number, state, value, self.values))
        self.study.running = None


class FalseStudy:
    """Gives out values from a list; what is not ended is given out again."""

    def __init__(self, *values):
        self.values, self.over, self.running = values, [], None
        self.hopeless = {}  # number of a trial -> steps from which on it is
        self.trials = []
        self.before_end = lambda: None

    def finished(self):
        return list(self.over)

    def next(self):
        if self.running is None:
            self.running = FalseTrial(self, len(self.over), self.values[len(self.over)])
            self.trials.append(self.running)
        return self.running


@pytest.fixture(autouse=True)
def _false_trainer(monkeypatch):
    monkeypatch.setattr("ritornello.core.project.MAIN_PROGRAM", FALSE_TRAINER)
    monkeypatch.setattr(runner, "POLL_S", 0.02)
    monkeypatch.setattr(tuner, "LOOK_S", 0.0)


def begun(tmp_path, **changes):
    return TuningFolder.create(tmp_path, parse_tuning({**SEARCH, **changes}, "test"), [])


def worked(folder, study, interrupts=None, show=lambda line: None):
    return Tuner(folder, study, interrupts or Interrupts(), show).work()


def starts(folder, name):
    """How often main.py was started for a run, and in which modes."""
    lines = (folder.path / name / "output.log").read_text().splitlines()
    return [line.partition("--op_mode=")[2].split()[0] for line in lines if line.startswith("$")]


def expected_area(lr, seed=1):
    steps = np.arange(100.0, 1001.0, 100)
    return area(Curve(steps, steps, lr * steps + seed, None), 1000)


@pytest.mark.process
def test_every_trial_is_run_judged_and_listed_best_first(tmp_path):
    folder = begun(tmp_path)
    study = FalseStudy(*({"lr": lr} for lr in (0.1, 0.9, 0.5)))
    assert worked(folder, study)
    assert [trial.state for trial in study.over] == ["complete"] * 3
    got = [trial.value for trial in study.over]
    np.testing.assert_allclose(got, [expected_area(lr) for lr in (0.1, 0.9, 0.5)])
    rows = (folder.path / "trials.md").read_text().splitlines()
    assert [row.split("|")[1].strip() for row in rows if row.startswith("| ")][2:] == [
        "1",
        "2",
        "0",
    ]
    best = parse([f"--flags_file={folder.path / 'best.json'}"])
    assert (best.lr, best.env, best.environment_max_steps) == (0.9, "CartPole-v1", 1000)
    assert sorted(study.trials[0].reported) == list(range(100, 1001, 100))
    overrides = json.loads((folder.path / "trial_0001_seed1" / "overrides.json").read_text())
    assert (overrides["lr"], overrides["seed"]) == (0.9, 1)


@pytest.mark.process
def test_the_value_of_several_seeds_is_their_mean_and_so_is_the_curve(tmp_path):
    folder = begun(tmp_path, trials=1, seeds=[4, 6], objective="return")
    study = FalseStudy({"lr": 0.5})
    assert worked(folder, study)
    assert study.over[0].value == pytest.approx(500 + 5)
    reported = study.trials[0].reported
    assert reported[300] == pytest.approx(150 + 4)
    assert reported[1300] == pytest.approx((504 + 156) / 2)


@pytest.mark.process
def test_a_hopeless_trial_is_ended_and_the_next_one_begins(tmp_path):
    folder = begun(tmp_path, trials=2)
    folder.tuning = replace(folder.tuning, base={**folder.tuning.base, "gamma": 0.6})
    study = FalseStudy({"lr": 0.1}, {"lr": 0.2})
    study.hopeless = {0: 300, 1: 500}
    assert worked(folder, study)
    assert [(trial.state, trial.value) for trial in study.over] == [("pruned", None)] * 2
    summary = next(folder.path.glob("trial_0000*/*/summary.json"))
    assert json.loads(summary.read_text())["reason"] == "interrupted"
    assert not (folder.path / "best.json").exists()


@pytest.mark.process
def test_a_trial_that_fails_is_recorded_and_many_in_a_row_end_the_search(tmp_path, monkeypatch):
    monkeypatch.setattr(tuner, "MAX_FAILURES", 2)
    folder = begun(tmp_path, trials=9)
    folder.tuning = replace(folder.tuning, base={**folder.tuning.base, "gamma": 0.5})
    study = FalseStudy(*({"lr": 0.1},) * 9)
    with pytest.raises(TuningFailed, match="the last 2 trials failed"):
        worked(folder, study)
    assert [trial.state for trial in study.over] == ["failed"] * 2


@pytest.mark.process
def test_a_run_that_failed_after_its_last_step_counts(tmp_path):
    folder = begun(tmp_path, trials=1)
    folder.tuning = replace(folder.tuning, base={**folder.tuning.base, "gamma": 0.7})
    study = FalseStudy({"lr": 0.1})
    assert worked(folder, study)
    assert study.over[0].state == "complete"


@pytest.mark.process
def test_ctrl_c_saves_and_resume_goes_on_with_the_same_trial(tmp_path):
    folder = begun(tmp_path, trials=1)
    folder.tuning = replace(folder.tuning, base={**folder.tuning.base, "gamma": 0.6})
    study, interrupts = FalseStudy({"lr": 0.5}), Interrupts()
    is_hopeless = FalseTrial.is_hopeless

    def stop_at_half_time(trial, worth, steps):
        if steps == 500:
            interrupts.note(2)
        return is_hopeless(trial, worth, steps)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FalseTrial, "is_hopeless", stop_at_half_time)
        assert not worked(folder, study, interrupts)
    assert study.over == []
    assert study.running is not None
    again = TuningFolder.open(folder.path, [])
    assert worked(again, study)
    assert starts(folder, "trial_0000_seed1") == ["train", "train_w_load"]
    assert study.over[0].value == pytest.approx(expected_area(0.5))


@pytest.mark.process
def test_a_search_that_was_killed_after_a_run_does_not_run_it_again(tmp_path):
    folder, study = begun(tmp_path, trials=1), FalseStudy({"lr": 0.5})

    def killed():
        raise SystemError("killed")

    study.before_end = killed
    with pytest.raises(SystemError):
        worked(folder, study)
    study.before_end = lambda: None
    assert worked(TuningFolder.open(folder.path, []), study)
    assert starts(folder, "trial_0000_seed1") == ["train"]
    assert study.over[0].value == pytest.approx(expected_area(0.5))


def test_one_process_works_on_a_search(tmp_path):
    folder = begun(tmp_path)
    folder.claim()
    with pytest.raises(ConfigError, match="being worked on by another"):
        TuningFolder.open(folder.path, []).claim()
    folder.lock.release()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format_version": 2}, "no search of this version"),
        ({"arguments": ["--trust_env_module=True"]}, "no file may give"),
        ({"arguments": ["--env=evil:Env-v0"]}, "code of a module"),
        ({"arguments": ["--results_dir=/"]}, "cannot be given"),
        ({"arguments": "x"}, "a list of texts"),
        (
            {"search": {**SEARCH, "base": {"env": "evil:Env-v0", "environment_max_steps": 999}}},
            "code",
        ),
        (
            {"search": {**SEARCH, "search": {"model": {"choose": ["nature", "evil:net"]}}}},
            "code of a module",
        ),
        ({"search": {**SEARCH, "base": {"trust_env_module": True}}}, "steps is|no file may"),
        ({"search": []}, "expected a mapping"),
    ],
)
def test_a_strangers_folder_asks_for_nothing_that_a_file_may_not(tmp_path, changes, message):
    folder = begun(tmp_path)
    file = folder.path / "tuning.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))
    assert is_tuning(folder.path)
    with pytest.raises(ConfigError, match=message):
        TuningFolder.open(folder.path, [])


@pytest.mark.parametrize("place", ["", "Pong", "Pong/checkpoints"])
def test_a_folder_of_a_trial_that_leads_elsewhere_is_refused(tmp_path, place):
    folder = begun(tmp_path)
    link = folder.path / "trial_0000_seed1" / place
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(tmp_path)
    with pytest.raises(ConfigError, match="is a link that leads out of the folder"):
        TuningFolder.open(folder.path, [], trust_files=True)


def with_weights(place, url):
    """Return what a tuning.json has to say for weights to be taken from a path."""
    base = {**SEARCH["base"], "load_model_url": url}
    search = {**SEARCH["search"], "load_model_url": {"choose": [None, url]}}
    return {
        "arguments": {"arguments": [f"--load_model_url={url}"]},
        "base": {"search": {**SEARCH, "base": base}},
        "search": {"search": {**SEARCH, "search": search}},
    }[place]


@pytest.mark.parametrize("place", ["arguments", "base", "search"])
def test_weights_elsewhere_are_taken_once_the_folder_is_trusted(tmp_path, place):
    folder = begun(tmp_path)
    file = folder.path / "tuning.json"
    saved = json.loads(file.read_text())
    for url in (tmp_path / "victim", folder.path / ".." / "victim", "results/victim"):
        file.write_text(json.dumps({**saved, **with_weights(place, str(url))}))
        with pytest.raises(ConfigError, match="victim.*--trust_files=True"):
            TuningFolder.open(folder.path, [])
        assert TuningFolder.open(folder.path, [], trust_files=True).tuning.name == "false"
    for url in (folder.path / "weights", foreign.SHIPPED_MODELS / "pong"):
        file.write_text(json.dumps({**saved, **with_weights(place, str(url))}))
        assert TuningFolder.open(folder.path, []).tuning.name == "false"


@pytest.mark.parametrize("url", [{"run": "victim"}, ["victim"]])
def test_weights_of_a_search_are_a_path(tmp_path, url):
    folder = begun(tmp_path)
    file = folder.path / "tuning.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **with_weights("base", url)}))
    with pytest.raises(ConfigError, match="expected a path"):
        TuningFolder.open(folder.path, [], trust_files=True)


def test_a_search_that_was_killed_before_it_wrote_its_results_writes_them_when_resumed(tmp_path):
    folder, study = begun(tmp_path, trials=2), FalseStudy()
    study.over = [Finished(0, "complete", 5.0, {"lr": 0.1})]
    folder.write_results(study.over)
    study.over.append(Finished(1, "complete", 7.0, {"lr": 0.9}))
    assert worked(TuningFolder.open(folder.path, []), study)
    assert json.loads((folder.path / "best.json").read_text())["lr"] == 0.9
    assert "0.9" in (folder.path / "trials.md").read_text()


def test_a_search_in_which_nothing_came_to_its_end_names_no_best_flags(
    tmp_path, monkeypatch, capsys
):
    path = tmp_path / "search.yaml"
    path.write_text(json.dumps({**SEARCH, "trials": 2}))
    study = FalseStudy()
    study.over = [Finished(n, state, None, {"lr": 0.1}) for n, state in enumerate(ENDED_EARLY)]
    monkeypatch.setattr(multi_train, "check_optuna", lambda: None)
    monkeypatch.setattr(multi_train, "OptunaStudy", lambda folder, tuning: study)
    assert multi_train.main([f"--tune={path}", f"--results_dir={tmp_path / 'results'}"]) == 1
    said = capsys.readouterr().out
    assert "no trial came to its end" in said
    assert "best.json" not in said


def test_without_optuna_it_is_told_what_to_install(tmp_path, monkeypatch, capsys):
    import sys

    path = tmp_path / "search.yaml"
    path.write_text(json.dumps(SEARCH))
    monkeypatch.setitem(sys.modules, "optuna", None)
    results = tmp_path / "results"
    assert multi_train.main([f"--tune={path}", f"--results_dir={results}"]) == 2
    assert ".[tune]" in capsys.readouterr().err
    assert not results.exists()
    path.write_text(json.dumps({**SEARCH, "search": {"larning_rate": {"choose": [1]}}}))
    assert multi_train.main([f"--tune={path}", f"--results_dir={results}"]) == 2
    assert "larning_rate" in capsys.readouterr().err
    path.write_text(json.dumps({**SEARCH, "search": {"lr": {"from": -1.0, "to": 1.0}}}))
    assert multi_train.main([f"--tune={path}", f"--results_dir={results}"]) == 2
    assert "lr" in capsys.readouterr().err
    shutil.rmtree(results, ignore_errors=True)
