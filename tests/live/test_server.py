import json
import shlex
import time

import pytest

from ritornello.analysis.compare import main
from ritornello.analysis.runs import find_runs
from ritornello.live.guard import POST_HEADER
from tests.live.builders import hold, make_run, record, write_records, write_status
from tests.live.client import Browser
from tests.live.test_places import HOSTILE

DAMAGED = (
    b"\xff\n\0\n", b"[" * 9000, b'{"resumed": 3, "findings": [3, {}]}', b'{"a": NaN}\n',
)  # fmt: skip
REPLAY = [{"type": "queue", "capacity": 32, "sample_ratio": 1}]


@pytest.fixture
def results(tmp_path):
    root = tmp_path / "results"
    make_run(root, "run", 30)
    for seed in (1, 2, 3):
        scores = [record(n, score=float(10 * seed + n)) for n in range(1, 40)]
        folder = make_run(
            root, f"sequence/{seed}/Pong", scores, seed=seed, replay_parameters=REPLAY
        )
        (folder / "summary.json").write_text("{}", encoding="utf-8")
    return root


@pytest.fixture
def browser(results):
    return Browser(results).enter()


@pytest.mark.parametrize("route", ["run", "rows", "file"])
@pytest.mark.parametrize("name", HOSTILE)
def test_no_route_leads_out_of_the_folder(browser, results, route, name):
    (results / "link").symlink_to(results / "sequence")
    (results / "run/films").mkdir()
    assert browser.get(f"/api/{route}", params={"run": name, "name": "x.mp4"}).status_code == 404
    if route == "file":
        for odd in (name, f"{name}.mp4", f"films/{name}.mp4", "flags.json", "../outside.mp4"):
            assert browser.get("/api/file", params={"run": "run", "name": odd}).status_code == 404


def test_a_film_is_served_whole_and_in_parts_and_nothing_else_of_a_run(browser, results):
    films = results / "run/films"
    films.mkdir()
    content = bytes(range(256)) * 10
    (films / "a.mp4").write_bytes(content)
    (films / ".c.mp4").write_bytes(b"")  # it is being made
    (films / "a.html").write_text("<script>", encoding="utf-8")
    (films / "b.mp4").symlink_to(results / "run/flags.json")
    ask = {"run": "run", "name": "films/a.mp4"}
    whole = browser.get("/api/file", params=ask)
    assert (whole.status_code, whole.content) == (200, content)
    assert whole.headers["content-type"] == "video/mp4"
    for wanted, part in (("0-9", content[:10]), ("2550-", content[2550:]), ("-5", content[-5:])):
        answer = browser.get("/api/file", params=ask, headers={"range": f"bytes={wanted}"})
        assert (answer.status_code, answer.content) == (206, part), wanted
    for name in ("films/a.html", "films/b.mp4", "flags.json", "films", "films/.."):
        assert browser.get("/api/file", params={"run": "run", "name": name}).status_code == 404
    assert [
        film["name"] for film in browser.get("/api/run", params={"run": "run"}).json()["films"]
    ] == ["films/a.mp4"]


def test_a_run_is_told_with_all_that_its_files_say(browser, results):
    folder = results / "run"
    hold(folder)
    write_status(folder, state="training", workers=[{"number": 0}], control={"settings": {}})
    (folder / "findings.jsonl").write_text(
        '{"name": "a", "advice": "--lr"}\nbroken\n[1]\n{"name": "b"}\n'
    )
    (folder / "evaluations.csv").write_text(
        'time,game,mean,standard error\n1,Pong,2.5,0.1\n1,"Pong,9.5,0.1\n2,Pong,3.5,0.1\nhalf,'
    )
    (folder / "train.log").write_text(
        "12:00 INFO one\n12:00 DEBUG two\n12:01 WARNING three\n", encoding="utf-8"
    )
    said = browser.get("/api/run", params={"run": "run"}).json()
    assert said["state"] == "training"
    assert [each["name"] for each in said["findings"]] == ["b", "a"]
    assert [each["mean"] for each in said["evaluations"]] == ["3.5", "2.5"]
    assert said["log"] == ["12:00 INFO one", "12:01 WARNING three"]
    assert said["session"]["count"] == 1
    assert said["session"]["command"] == "python main.py --env=Pong"
    assert said["newest"]["loss/policy"] == record(30).values["loss/policy"]
    assert said["flags"]["env"] == "PongNoFrameskip-v4"


@pytest.mark.parametrize(
    "name",
    ["findings.jsonl", "evaluations.csv", "train.log", "run.json", "status.json", "summary.json"],
)
@pytest.mark.parametrize("content", DAMAGED)
def test_no_content_of_a_file_stops_the_page_of_a_run(browser, results, name, content):
    (results / "run" / name).write_bytes(content)
    assert browser.get("/api/run", params={"run": "run"}).status_code == 200


@pytest.mark.slow
def test_runs_are_compared_as_the_analysis_does_it(browser, results):
    from ritornello.analysis.comparison import compare, game_table

    runs = [f"sequence/{seed}/Pong" for seed in (1, 2, 3)]
    said = browser.get("/api/compare", params={"run": runs}).json()
    (game,) = compare(find_runs([str(results / run) for run in runs])[0])
    headings, rows = game_table(game)
    assert said["games"][0]["table"] == {"headings": headings, "rows": rows}
    assert said["games"][0]["improvement"] is None  # one configuration
    apart = browser.get("/api/compare", params={"run": runs, "apart": "1"}).json()
    assert len(apart["games"][0]["table"]["rows"]) == 3
    assert apart["games"][0]["improvement"] is None  # of single runs it says nothing
    picture = browser.get("/api/compare.png", params={"run": runs})
    assert picture.content.startswith(b"\x89PNG")


def test_runs_of_all_names_are_told_apart_in_a_command_that_works(browser, results, monkeypatch):
    names = ["a,b", "a=b", "a-b", "a-b 2"]
    for name in names:
        make_run(results, name)
    monkeypatch.chdir(results)
    said = browser.get("/api/compare", params={"run": names, "apart": "1"}).json()
    shown = [row[0] for row in said["games"][0]["table"]["rows"]]
    assert len(set(shown)) == len(names)
    options = shlex.split(said["command"])[4:]
    assert main(options) == 0
    found, _ = find_runs([str(results / "comparison")])
    assert sorted(run.about.label for run in found) == sorted(shown)


@pytest.mark.parametrize("runs", [[], ["no_such"], ["../results"], [f"r{n}" for n in range(100)]])
def test_what_cannot_be_compared_is_one_message(browser, runs):
    for route in ("compare", "compare.png"):
        answer = browser.get(f"/api/{route}", params={"run": runs})
        assert answer.status_code == 422
        assert answer.json()["error"]


@pytest.mark.parametrize("route", ["runs", "run"])
def test_the_page_is_told_what_changes_and_the_time_of_the_server(browser, results, route):
    before_s = time.time()
    said = browser.get(f"/api/{route}", params={"run": "run"}).json()
    assert before_s <= said["now"] <= time.time()
    ask = {"run": "run", "seen": said["seen"]}
    assert browser.get(f"/api/{route}", params=ask).status_code == 204
    write_records(results / "run", [record(31)], append=True)
    assert browser.get(f"/api/{route}", params=ask).json()["seen"] != said["seen"]


def test_a_command_is_written_for_a_run_that_takes_it_and_no_other(browser, results):
    folder = results / "run"

    def send(**command):
        headers = {POST_HEADER: browser.keys.post}
        answer = browser.post("/api/control?run=run", json=command, headers=headers)
        return answer.status_code

    assert send(command="pause") == 409
    hold(folder)
    write_status(folder, state="training", control={"commands": ["pause", "set"]})
    assert send(command="pause") == 202
    (file,) = (folder / "control").glob("*-*.json")
    assert json.loads(file.read_text())["command"] == "pause"
    for wrong in (
        {"command": "rm"},
        {"command": "set", "values": {"lr_factor": 1e9}},
        {"command": "set", "values": [1]},
        {},
    ):
        assert send(**wrong) == 422
    assert send(command="x" * 20_000) == 413
    (folder / "lock").unlink()
    assert send(command="pause") == 409
    assert len(list((folder / "control").glob("*-*.json"))) == 1
