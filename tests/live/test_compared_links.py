"""A comparison of the page reads nothing through a link, although its readers would follow one."""

import json

import pytest

from tests.live.builders import make_run, record
from tests.live.client import Browser

SECRET = "a-secret-word"
SECRET_SCORE = 777.25
ROUTES = ("compare", "compare.png")


@pytest.fixture
def private(tmp_path):
    """A run elsewhere, whose flags, sessions and scores are nobody's business."""
    some = [record(n, score=SECRET_SCORE) for n in range(1, 21)]
    folder = make_run(tmp_path / "private", "Pong_1", some, api_key=SECRET)
    said = json.loads((folder / "run.json").read_text())
    said |= {"command_line": ["main.py", f"--api_key={SECRET}"], "machine": {"cpu": SECRET}}
    (folder / "run.json").write_text(json.dumps(said))
    return folder


@pytest.fixture
def results(tmp_path):
    root = tmp_path / "results"
    make_run(root, "hostile", api_key="x")
    make_run(root, "other", api_key="y")
    return root


def refused(results):
    """Fail unless each route refuses to compare the hostile run, and tells nothing."""
    browser = Browser(results).enter()
    for route in ROUTES:
        for more in ({}, {"apart": "1"}):
            ask = {"run": ["hostile", "other"], **more}
            answer = browser.get(f"/api/{route}", params=ask)
            assert answer.status_code == 422, route
            assert SECRET not in answer.text
            assert str(SECRET_SCORE) not in answer.text
            assert "hostile" in answer.json()["error"]


@pytest.mark.parametrize("name", ["flags.json", "run.json", "metrics.jsonl"])
def test_no_file_of_a_compared_run_is_read_through_a_link(results, private, name):
    (results / "hostile" / name).unlink()
    (results / "hostile" / name).symlink_to(private / name)
    refused(results)


def test_a_run_that_calls_itself_a_sequence_leads_nowhere(results, private):
    name = "001_run_seed1"
    runs = [{"name": name, "group": "a", "seed": 1, "flags": {}, "status": "done"}]
    state = {"format_version": 1, "name": "mine", "arguments": [], "runs": runs}
    (results / "hostile" / "sequence.json").write_text(json.dumps(state))
    (results / "hostile" / name).symlink_to(private.parent)
    refused(results)
