from __future__ import annotations

from pathlib import Path

import pytest

from analysis.runs import find_runs
from core.errors import ConfigError
from experiments.curve_file import export_curve
from experiments.plan import PlannedRun
from experiments.store import Store
from tests.analysis.builders import write_run

PONG = "PongNoFrameskip-v4"
RUN = PlannedRun("first", "lr", PONG, 1, 1000, {})


def test_a_store_whose_path_is_no_plain_name_has_curves_too(tmp_path: Path) -> None:
    store, results = Store(tmp_path / "a=b [1]" / "store"), tmp_path / "a=b [1]" / "results"
    write_run(store.folder(RUN) / "Pong_1", seed=1)
    (path,) = export_curve(RUN, store, results)
    assert path == results / "first" / f"lr_{PONG}_seed1.csv"
    (run,), _ = find_runs([str(tmp_path / "a=b*" / "results")])
    assert run.about.label == "lr"
    assert run.curve.agent_steps[-1] == 1000


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
