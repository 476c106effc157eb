from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from experiments.curve_file import export_curve
from experiments.plan import PlannedRun
from experiments.store import Store
from ritornello.analysis.runs import find_runs
from ritornello.core.errors import ConfigError
from tests.analysis.builders import write_run, write_run_of_games

PONG, BREAKOUT = "PongNoFrameskip-v4", "BreakoutNoFrameskip-v4"
RUN = PlannedRun("first", "lr", PONG, 1, 1000, {})


def test_a_store_whose_path_is_no_plain_name_has_curves_too(tmp_path: Path) -> None:
    store, results = Store(tmp_path / "a=b [1]" / "store"), tmp_path / "a=b [1]" / "results"
    write_run(store.folder(RUN) / "Pong_1", seed=1)
    (path,) = export_curve(RUN, store, results)
    assert path == results / "first" / f"lr_{PONG}_seed1.csv"
    (run,), _ = find_runs([str(tmp_path / "a=b*" / "results")])
    assert run.about.label == "lr"
    assert run.curve.agent_steps[-1] == 1000


def test_a_game_of_a_run_of_several_is_not_taken_for_a_run_of_it_alone(tmp_path: Path) -> None:
    store, results = Store(tmp_path / "store"), tmp_path / "results"
    both = replace(RUN, env=f"{PONG},{BREAKOUT}")
    write_run(store.folder(RUN) / "Pong_1", seed=1)
    write_run_of_games(store.folder(both) / "2games_1", seed=1)
    (alone,) = export_curve(RUN, store, results)
    written = alone.read_bytes()
    pong, breakout = export_curve(both, store, results)
    assert pong == results / "first" / f"lr-2-games_{PONG}_seed1.csv"
    assert breakout == results / "first" / f"lr-2-games_{BREAKOUT}_seed1.csv"
    assert alone.read_bytes() == written
    runs, _ = find_runs([str(results)])
    assert {(run.about.label, run.about.env, run.curve.agent_steps[-1]) for run in runs} == {
        ("lr", PONG, 1000),
        ("lr, 2 games", PONG, 500),
        ("lr, 2 games", BREAKOUT, 500),
    }


def test_a_run_of_several_games_says_so_before_each_has_a_finished_one(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    both = replace(RUN, env=f"{PONG},{BREAKOUT}")
    folder = write_run_of_games(store.folder(both) / "2games_1", seed=1)
    text = (folder / "metrics.jsonl").read_text()
    (folder / "metrics.jsonl").write_text(text.replace("return_mean_1", "other"))
    (path,) = export_curve(both, store, tmp_path / "results")
    assert path.name == f"lr-2-games_{PONG}_seed1.csv"


def test_a_run_without_a_finished_game_has_no_curve(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    assert export_curve(RUN, store, tmp_path / "results") == []
    folder = write_run(store.folder(RUN) / "Pong_1", seed=1)
    first = (folder / "metrics.jsonl").read_text().splitlines()[0]
    (folder / "metrics.jsonl").write_text(first + "\n")
    assert export_curve(RUN, store, tmp_path / "results") == []
    assert not (tmp_path / "results").exists()


def test_a_damaged_run_is_no_run_without_a_curve(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    folder = write_run(store.folder(RUN) / "Pong_1", seed=1)
    (folder / "flags.json").write_text("{")
    with pytest.raises(ConfigError, match="flags.json or run.json cannot be read"):
        export_curve(RUN, store, tmp_path / "results")
