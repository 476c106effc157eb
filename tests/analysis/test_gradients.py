from __future__ import annotations

import csv
import json

import pytest

from ritornello.analysis import gradients
from ritornello.analysis.gradients import (
    Measurement,
    heat_maps,
    main,
    measured_now,
    recorded,
)
from tests.analysis.agents import write_agent

VALUES = {
    "gradient/torso_net.linear1/norm": 3.0,
    "gradient/torso_net.linear1/zero_fraction": 0.25,
    "gradient/policy_head/norm": 4.0,
    "grad/norm_before_clip": 5.0,
    "loss/total": 1.0,
}


@pytest.fixture(scope="module")
def agent(tmp_path_factory):
    flags = ("--r_f_steps=4", "--batch_size=4")
    return str(write_agent(tmp_path_factory.mktemp("agent"), *flags, seed=1))


def write_records(folder, count=3):
    folder.mkdir()
    lines = [
        {
            "agent_steps": 100 * n,
            "frames": 400 * n,
            "updates": n,
            "episodes": 0,
            "wall_s": float(n),
            "values": {**VALUES, "gradient/policy_head/norm": float(n)},
        }
        for n in range(1, count + 1)
    ]
    lines.append({**lines[-1], "values": {"loss/total": 1.0}})  # a record without an update
    (folder / "metrics.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n")
    return folder


def test_what_a_run_recorded_is_drawn_and_written(tmp_path):
    folder = write_records(tmp_path / "run")
    assert [m.agent_steps for m in recorded(folder)] == [100, 200, 300]
    assert main([f"--load_model_url={folder}"]) == 0
    with (folder / "analysis" / "gradients.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["norm"] for row in rows if row["layer"] == "policy_head"] == ["1", "2", "3"]
    assert rows[0]["update_ratio"] == ""
    assert (folder / "analysis" / "gradients.png").read_bytes().startswith(b"\x89PNG")


def test_other_agents_are_measured_on_new_games(agent, tmp_path):
    one = measured_now(agent, batches=2)
    assert one.agent_steps == 1000
    layers = {"torso_net.linear1", "torso_net.linear2", "policy_head", "value_head.linear"}
    assert set(one.values) == layers
    for values in one.values.values():
        assert values["norm"] > values["mean_abs"] > 0
        assert 0 <= values["zero_fraction"] < 0.5
        assert "update_ratio" not in values, "a model folder has no optimiser"
    assert measured_now(agent, batches=2) == one, "nothing is left of a measurement"
    assert measured_now(agent, batches=2, seed=5) != one
    assert main([f"--load_model_url={agent}", "--batches=1", f"--output={tmp_path}"]) == 0
    assert len((tmp_path / "gradients.csv").read_text().splitlines()) == 5


def test_each_batch_meets_the_same_network(agent, monkeypatch):
    once, of_new_games = measured_now(agent, batches=1), gradients._batches

    def the_first_twice(*arguments):
        (batch,) = of_new_games(*arguments[:-1], 1)
        return [batch, batch]

    monkeypatch.setattr(gradients, "_batches", the_first_twice)
    for layer, values in measured_now(agent, batches=2).values.items():
        assert values == pytest.approx(once.values[layer], rel=1e-5), layer


@pytest.mark.parametrize("count", [1, 3])
def test_a_figure_has_a_panel_for_each_quantity_that_is_known(count):
    layers = {name: {"norm": 2.0, "zero_fraction": 0.5} for name in ("torso_net.a", "heads.b")}
    figure = heat_maps([Measurement(100 * n, layers) for n in range(count)], "of a run")
    panels = [axes for axes in figure.axes if axes.get_title(loc="left")]
    assert [axes.get_title(loc="left") for axes in panels] == ["log10 norm", "zero_fraction"]
    assert [label.get_text() for label in panels[0].get_yticklabels()] == ["a", "heads.b"]
    assert [len(axes.images) for axes in panels] == [1, 1]
