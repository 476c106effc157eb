import shutil
import signal
from pathlib import Path

import numpy as np
import pytest

from ritornello import ConfigError, Interrupted, evaluate, load_agent, read_run, train
from ritornello.agent.testing import whole_games
from tests.library.runs import COUNTING, TINY


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return train(**TINY, results_dir=tmp_path_factory.mktemp("results"))


def test_an_evaluation_returns_its_reports_and_says_nothing(run, capfd):
    reports = evaluate(run.folder, env=COUNTING, test_episode_count=7, seed=1, console=False)
    (report,) = reports.values()
    assert set(reports) == {COUNTING}
    assert (report.episodes, report.policy) == (7, "sampled")
    assert report.min <= report.mean <= report.max
    assert len(list(run.folder.glob("test_*_sampled_seed1.json"))) == 1
    assert capfd.readouterr() == ("", "")
    evaluate(run.folder, env=COUNTING, test_episode_count=2, greedy=True)
    assert "2 games of" in capfd.readouterr().out


def test_ctrl_c_in_an_evaluation_comes_back_with_the_reports(run, monkeypatch):
    finished = []
    lives = whole_games.Lives.take

    def interrupt_at_the_third(self, index):
        finished.append(index)
        if len(finished) == 3:
            signal.raise_signal(signal.SIGINT)
        return lives(self, index)

    monkeypatch.setattr(whole_games.Lives, "take", interrupt_at_the_third)
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(Interrupted, match="2 games") as caught:
        evaluate(run.folder, env=COUNTING, test_episode_count=9, console=False)
    (report,) = caught.value.result.values()
    assert report.episodes == 2
    assert signal.getsignal(signal.SIGINT) == before


@pytest.mark.parametrize("name", ["op_mode", "load", "resume", "test", "test_all_checkpoints"])
def test_what_an_evaluation_decides_itself_cannot_be_given(run, name):
    with pytest.raises(ConfigError, match="cannot be given to evaluate"):
        evaluate(run.folder, **{name: "x"})


def test_a_table_has_a_column_per_metric_and_nan_where_there_is_no_value(run):
    table = read_run(run.folder)
    counts = {len(column) for column in table.values()}
    assert counts == {run.updates}
    assert table["updates"].tolist() == list(range(1, run.updates + 1))
    rows = table.rows()
    assert len(rows) == run.updates
    assert all(np.isfinite(list(row.values())).all() for row in rows)
    assert rows[-1]["loss/total"] == table["loss/total"][-1]
    assert len(table.games.returns) == run.episodes
    assert table.flags["env"] == COUNTING
    assert table.summary["reason"] == "steps"
    assert table.evaluations == []
    assert set(dict(table)) == set(table.columns)
    assert 1 not in table
    assert table.get(None) is None
    with pytest.raises(KeyError, match="loss/totl is not recorded. did you mean loss/total"):
        table["loss/totl"]


@pytest.mark.parametrize("function", [evaluate, load_agent, read_run])
@pytest.mark.parametrize("path", [None, 3, "", b"run", "a\0b", ["results/run"]])
def test_what_is_no_path_is_told(function, path):
    with pytest.raises(ConfigError, match="the path is .*, expected text or a pathlib.Path"):
        function(path)


@pytest.mark.parametrize("function", [evaluate, load_agent, read_run])
def test_what_train_returns_is_no_path_but_has_one(run, function):
    with pytest.raises(ConfigError, match=r"the path is Summary.*, or its \.folder"):
        function(run)


def test_a_path_may_begin_at_the_home_folder(run, monkeypatch):
    monkeypatch.setenv("HOME", str(run.folder.parent))
    home = Path("~") / run.folder.name
    assert read_run(home).folder == run.folder
    assert load_agent(home, env=COUNTING).agent_steps == run.agent_steps


def test_flags_that_cannot_be_read_are_an_error_of_ours(run, tmp_path):
    shutil.copy(run.folder / "metrics.jsonl", tmp_path)
    (tmp_path / "flags.json").write_text("{")
    with pytest.raises(ConfigError, match=r"flags\.json is not valid JSON"):
        _ = read_run(tmp_path).flags


@pytest.mark.parametrize("name", ["", "nothing", "a" * 5000])
def test_a_folder_without_a_run_is_told(tmp_path, name):
    with pytest.raises(ConfigError, match="expected a run folder"):
        read_run(tmp_path / name)
