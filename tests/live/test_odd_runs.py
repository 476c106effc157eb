"""One odd run must not take the others from the page, whatever its name and its files hold."""

import json
import os

import pytest

from tests.live.builders import make_run
from tests.live.client import Browser

HALF = "\ud800"  # half a character: JSON can name it, UTF-8 has no bytes for it


@pytest.fixture
def results(tmp_path):
    """A folder of a good run beside odd ones, whose own name is no UTF-8."""
    root = tmp_path / os.fsdecode(b"results\xff")
    make_run(root, "good")
    make_run(root, os.fsdecode(b"bad\xff_1"))
    make_run(root, "nan", lr=float("nan"), worker_count=float("inf"))
    halves = make_run(root, "halves")
    record = json.loads((halves / "metrics.jsonl").read_text().splitlines()[-1])
    record |= {"agent_steps": 99_999, "values": {f"loss/{HALF}": 1.5}}
    with (halves / "metrics.jsonl").open("a") as file:
        file.write(json.dumps(record) + "\n")
    (halves / "findings.jsonl").write_text(json.dumps({"name": HALF, "advice": HALF}) + "\n")
    return root


@pytest.fixture
def browser(results):
    return Browser(results).enter()


def strict(text):
    """Read JSON as a browser does, which knows no NaN."""

    def refuse(word):
        raise AssertionError(f"a browser cannot read {word}")

    return json.loads(text, parse_constant=refuse)


def test_the_list_has_the_good_run_beside_the_odd_ones(browser):
    answer = browser.get("/api/runs")
    assert answer.status_code == 200
    found = {each["run"]: each for each in strict(answer.text)["runs"]}
    assert found.keys() == {"good", "bad\udcff_1", "nan", "halves"}
    assert found["nan"]["flags"]["lr"] is None
    assert found["good"]["flags"]["seed"] == 1
