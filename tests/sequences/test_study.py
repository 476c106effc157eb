"""The study of a search is Optuna's, in a file that outlives every process."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

pytest.importorskip("optuna", reason="Optuna is not installed (extra tune)")

from ritornello.core.errors import ConfigError
from ritornello.sequences.study import OptunaStudy, StudyError
from ritornello.sequences.tuning import parse_tuning
from tests.deadlines import HANGS_S
from tests.house import ROOT

SEARCH = {
    "base": {"env": "CartPole-v1", "environment_max_steps": 1000},
    "search": {
        "lr": {"from": 0.001, "to": 0.1, "log": True},
        "r_f_steps": {"from": 10, "to": 40, "step": 10},
        "batch_size": {"choose": [8, 16]},
    },
    "prune": {"every": 100, "after_steps": 200, "after_trials": 2},
}
TUNING = parse_tuning(SEARCH, "test")

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def test_a_trial_that_was_running_is_given_out_again_with_the_same_values(tmp_path):
    first = OptunaStudy(tmp_path, TUNING).next()
    again = OptunaStudy(tmp_path, TUNING).next()
    assert (again.number, again.values) == (first.number, first.values)
    again.end("complete", 1.5)
    study = OptunaStudy(tmp_path, TUNING)
    (over,) = study.finished()
    assert (over.state, over.value, over.values) == ("complete", 1.5, first.values)
    second = study.next()
    assert second.number == 1
    assert second.values != first.values


def test_values_are_within_their_ranges(tmp_path):
    study = OptunaStudy(tmp_path, TUNING)
    for _ in range(12):
        trial = study.next()
        assert set(trial.values) == set(TUNING.search)
        assert all(TUNING.search[n].contains(v) for n, v in trial.values.items())
        assert trial.values["r_f_steps"] % 10 == 0
        trial.end("failed")
    assert {trial.state for trial in study.finished()} == {"failed"}


def test_what_is_below_the_median_is_hopeless_once_enough_is_known(tmp_path):
    study = OptunaStudy(tmp_path, TUNING)
    for worth in (10.0, 20.0):
        trial = study.next()
        assert not any(trial.is_hopeless(worth, steps) for steps in (100, 200, 300))
        trial.end("complete", worth)
    bad = study.next()
    assert not bad.is_hopeless(1.0, 100)  # every trial may have these
    assert bad.is_hopeless(1.0, 300)
    assert not bad.is_hopeless(1.0, 300)  # it is noted already
    bad.end("pruned")
    good = study.next()
    assert not good.is_hopeless(30.0, 300)
    assert [trial.state for trial in study.finished()] == ["complete", "complete", "pruned"]


def test_a_file_of_another_search_is_refused(tmp_path):
    OptunaStudy(tmp_path, TUNING).next()
    other = parse_tuning({**SEARCH, "search": {"lr": {"from": 0.5, "to": 0.6}}}, "test")
    with pytest.raises((ConfigError, StudyError)):
        OptunaStudy(tmp_path, other).next()


def test_a_damaged_file_is_one_message(tmp_path):
    (tmp_path / "study.db").write_bytes(b"SQLite format 3\0" + b"\xff" * 5000)
    with pytest.raises(StudyError, match=r"study\.db"):
        OptunaStudy(tmp_path, TUNING)


def test_a_link_in_the_place_of_the_file_is_refused(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "study.db").symlink_to(tmp_path / "elsewhere" / "study.db")
    with pytest.raises(ConfigError, match="a link or no file"):
        OptunaStudy(tmp_path, TUNING)
    assert not list((tmp_path / "elsewhere").iterdir())


@pytest.mark.slow
@pytest.mark.process
def test_a_search_over_cartpole_is_done_and_resumed(tmp_path):
    search = {
        "name": "pole",
        "base": {
            "env": "CartPole-v1", "environment_max_steps": 4000, "worker_count": 1,
            "tensorboard": False, "charts": False, "log_interval_s": 0.2,
        },
        "search": {"lr": {"from": 0.0001, "to": 0.01, "log": True}},
        "trials": 2,
    }  # fmt: skip
    path = tmp_path / "pole.yaml"
    path.write_text(json.dumps(search))

    def run(*arguments):
        return subprocess.run(
            [sys.executable, "multi_train.py", *arguments],
            cwd=ROOT, env=dict(os.environ), capture_output=True, text=True, timeout=HANGS_S,
            check=False,
        )  # fmt: skip

    done = run(f"--tune={path}", f"--results_dir={tmp_path}")
    assert done.returncode == 0, done.stderr
    (folder,) = tmp_path.glob("pole_*")
    assert json.loads((folder / "best.json").read_text())["env"] == "CartPole-v1"
    assert (folder / "trials.md").read_text().count("| complete |") == 2
    file = folder / "tuning.json"
    saved = json.loads(file.read_text())
    saved["search"]["trials"] = 3
    file.write_text(json.dumps(saved))
    again = run(f"--resume={folder}")
    assert again.returncode == 0, again.stderr
    assert (folder / "trials.md").read_text().count("| complete |") == 3
