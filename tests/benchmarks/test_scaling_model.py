"""The model of a run with many workers: it finds what it was made from, and predicts by it."""

import json
import subprocess
import sys

import pytest

from benchmarks.bench_scaling import verdict
from benchmarks.scaling.model import LINK_SHARE, SENT, Costs, check, fit
from benchmarks.scaling.projection import learners, project
from tests.integration.commands import HANGS_S, ROOT

COSTS = {
    "consumer": Costs(at_rest=2.0, block=0.25, message=0.0, version=0.1),
    "gateway": Costs(at_rest=6.0, block=0.9, message=0.8, version=1.5),
    "hosts": Costs(at_rest=10.0, block=0.35, message=0.4, version=2.0),
    "daemons": Costs(at_rest=25.0, block=0.0, message=0.2, version=3.0),
}
PARTS = {
    "kind": "parts",
    "seal_ms": 0.35,
    "open_ms": 0.9,
    "wire_kb": 25.0,
    "block_kb": 1367.0,
    "weights_mb": 1.5,
    "gradient_mb": 7.0,
    "steps_per_block": 160,
    "acting_us_per_step": 500.0,
    "learning_us_per_step": 200.0,
    "cpus": 2,
}


def point(kind, blocks, messages, versions=0.0, hosts=1, **values):
    cores = {name: costs.cores(hosts, blocks, messages, versions) for name, costs in COSTS.items()}
    return {
        "kind": kind,
        "backend": "ray",
        "workers": 2,
        "hosts": hosts,
        "versions_per_s": versions,
        "pace": 0.0,
        "link_mbit": 0.0,
        "blocks_per_s": blocks,
        "cluster/messages_per_s": messages,
        "cores": {**cores, "workers": 0.7, "other": 0.0},
        **values,
    }


NATIVE = {
    **point("transport", 1000.0, 0.0),
    "backend": "native",
    "cpu_ms_per_block": {"consumer": 0.25, "workers": 0.3},
}
LINES = [
    PARTS,
    NATIVE,
    point("transport", 400.0, 100.0),
    point("transport", 0.4, 0.4),
    point("transport", 0.4, 0.4, versions=10.0),
    point("transport", 10.0, 10.0),
    point("transport", 60.0, 40.0, versions=5.0),
]


def test_the_constants_are_those_that_the_points_were_made_with():
    model = fit(LINES)
    for name in SENT:
        found, wanted = model.costs[name], COSTS[name]
        for term in ("at_rest", "block", "message", "version"):
            assert getattr(found, term) == pytest.approx(getattr(wanted, term), abs=1e-6), name
    assert (model.acting_us, model.native_block_ms, model.turn_ms) == (500.0, 0.25, 10.0)


def test_no_cost_is_below_zero_however_points_are_disturbed():
    lines = [dict(line) for line in LINES]
    lines[2] = {**lines[2], "cores": dict.fromkeys(lines[2]["cores"], 1e-4)}
    for costs in fit(lines).costs.values():
        assert min(costs.at_rest, costs.block, costs.message, costs.version) >= 0


def test_without_the_parts_there_is_no_model():
    with pytest.raises(SystemExit, match="--kinds=parts,transport"):
        fit([line for line in LINES if line["kind"] != "parts"])


def test_workers_play_as_fast_as_they_can_or_as_the_cores_let_them():
    model = fit(LINES)
    block_ms = 500.0 * 160 / 1000
    assert model.played("native", 1, 1, 0.0) == pytest.approx(1000 / block_ms)
    full = model.played("native", 8, 1, 0.0)  # eight workers, two cores
    assert full * (block_ms + 0.25) / 1000 + 0.002 == pytest.approx(2.0)
    assert model.busy("native", 1, 1.0, 10.0) - model.busy("native", 1, 1.0, 0.0) == (
        pytest.approx(10 * 0.1 / 1000)
    )
    with_ray = model.played("ray", 8, 1, 5.0)
    assert model.busy("ray", 1, with_ray, 5.0) == pytest.approx(2.0)
    assert with_ray < full


def test_messages_bring_one_block_at_least_and_eight_at_most():
    model = fit(LINES)  # a host is asked again after 10 ms
    assert model.messages(1, 5.0) == 5.0
    assert model.messages(1, 400.0) == pytest.approx(100.0)
    assert model.messages(1, 4000.0) == pytest.approx(500.0)
    assert model.messages(10, 400.0) == 400.0  # of ten hosts, each of which has 40


def test_a_link_is_filled_by_bytes_and_a_gateway_by_blocks():
    model = fit(LINES)
    assert model.link_blocks(8.0, 0.0) == pytest.approx(1000 * LINK_SHARE / 25.0)
    assert model.link_blocks(8.0, 5.0) == pytest.approx(0.8 * 1000 * LINK_SHARE / 25.0)
    beside_weights = 1000 * LINK_SHARE - 0.05 * 1500  # a version of 1.5 MB every 20 s
    assert model.link_blocks(8.0, 0.05) == pytest.approx(beside_weights / 25.0)
    assert model.gateway_blocks() == pytest.approx(1000 / (0.9 + 0.8 / 8))
    assert model.link_blocks(1e6, 0.0) == model.gateway_blocks()


def test_errors_are_those_of_points_that_the_model_was_not_made_from():
    model = fit(LINES)
    paced = point("nodes", 20.0, 20.0, versions=2.0, hosts=4, workers=10, pace=2.0)
    link = point("link", 30.0, 10.0, link_mbit=8.0)
    checked = check(model, [*LINES, paced, link])
    assert [line["kind"] for line in checked] == ["nodes", "link"]
    assert checked[0]["error"] == pytest.approx(0.0, abs=1e-3)
    assert checked[1]["error"] == pytest.approx(1000 * LINK_SHARE / 25.0 / 30.0 - 1, abs=1e-3)


def test_the_projection_names_what_is_full_first():
    model = fit(LINES)
    rows = {(row["workers"], row["environment"]): row for row in project(model)}
    thousand = rows[1_000, "this game"]
    assert thousand["steps_per_s"] == 2_000_000
    assert thousand["learner machines like this"] == 400
    assert thousand["gateways"] == 13  # 12,500 blocks of 1.0 ms
    assert thousand["limits_first"] == "learner machines like this"
    two, four, *_ = learners(model)
    assert two["sum_ms"] == pytest.approx(7e6 / 1.175e9 * 1e3 + 0.1, abs=0.01)
    assert four["speed"] > two["speed"] > 1.0


def test_pairs_of_trainings_are_judged_by_their_medians():
    def run(backend, speed, cpu):
        return {
            "kind": "training",
            "backend": backend,
            "agent_steps_per_s": speed,
            "cpu_s_per_1000_steps": cpu,
        }

    native = [run("native", 1000.0, 1.0)] * 3
    slow = [run("ray", 700.0, 1.3), run("ray", 900.0, 1.1), run("ray", 950.0, 1.05)]
    mixed = [line for pair in zip(native, slow, strict=True) for line in pair]
    assert verdict(mixed)["is_met"]
    assert (verdict(mixed)["cpu_ratio"], verdict(mixed)["speed_ratio"]) == (1.1, 0.9)
    assert not verdict([*native, *[run("ray", 700.0, 1.0)] * 3])["is_met"]
    assert not verdict([*native, *[run("ray", 1000.0, 1.3)] * 3])["is_met"]
    assert verdict([{"kind": "rollout", "backend": "ray"}]) is None


def test_the_program_prints_tables_and_a_line(tmp_path):
    file = tmp_path / "points.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in LINES), "utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.scaling.model", str(file)],
        cwd=ROOT, capture_output=True, text=True, timeout=HANGS_S, check=True,
    )  # fmt: skip
    assert "What it means for more workers" in done.stdout
    line = json.loads(done.stdout.splitlines()[-1])
    assert line["gateway_blocks_per_s"] == pytest.approx(1000.0)


RESULTS = ROOT / "docs" / "results" / "performance"


def test_the_document_says_what_its_files_say():
    lines = [
        json.loads(line)
        for line in (RESULTS / "scaling_xeon.jsonl").read_text("utf-8").splitlines()
    ]
    committed = json.loads((RESULTS / "scaling_model.json").read_text("utf-8"))
    model = fit(lines)
    assert committed["checked"] == check(model, lines)
    assert committed["projection"] == project(model)
    assert committed["learners"] == learners(model)
    text = " ".join((ROOT / "docs" / "scaling.md").read_text("utf-8").split())
    judged = verdict(lines)
    assert f"Ray takes {judged['cpu_ratio']} times the processor time" in text
    assert f"has {judged['speed_ratio']:.2f} times the speed" in text
    for point in lines:
        if point["kind"] == "training":
            assert f"| {point['agent_steps_per_s']:.0f} |" in text
            assert f"| {point['cpu_s_per_1000_steps']:.3f} |" in text
    assert f"The gateway**, at {model.gateway_blocks() * 160 / 1000:.0f},000 steps/s" in text
    largest = max(committed["checked"], key=lambda line: abs(line["error"]))
    assert f"**{100 * largest['error']:.0f} %**" in text
