from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from research.queue.curve_file import export_curve
from research.queue.plan import PlannedRun
from research.queue.store import Store
from ritornello.analysis.runs import find_runs
from tests.analysis.builders import write_run, write_run_of_games

PONG, BREAKOUT = "PongNoFrameskip-v4", "BreakoutNoFrameskip-v4"
RUN = PlannedRun("first", "lr", PONG, 1, 1000, {})


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
