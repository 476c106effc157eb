import json
import re
from dataclasses import asdict, fields, replace
from html.parser import HTMLParser

import pytest

from ritornello.agent.testing.score_table import Report
from ritornello.analysis import __main__ as program
from ritornello.analysis import report
from ritornello.analysis.comparison import compare, game_table
from ritornello.analysis.report import FILE, main
from ritornello.analysis.runs import find_runs
from ritornello.core.errors import ConfigError
from ritornello.metrics.run_files import read_records
from tests.analysis.builders import write_run, write_sequence
from tests.live.builders import write_records

PONG, BREAKOUT = "PongNoFrameskip-v4", "BreakoutNoFrameskip-v4"
HOSTILE = "</td></table><script>alert(1)</script><img src=x onerror=alert(2)>\u202e'\""
MP4 = b"\x00\x00\x00\x18ftypisom" + b"film" * 10


class Page(HTMLParser):
    """Elements, addresses and text of a page, as a browser would take it."""

    def __init__(self, content):
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.sources: list[str] = []
        self.text = ""
        self.feed(content)
        self.close()
        assert "default-src 'none'" in content
        assert not {"script", "iframe", "object", "form"} & set(self.tags)
        assert all(re.match("data:(image|video)/", source) for source in self.sources)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        for name, value in attrs:
            assert not name.startswith("on")
            assert name != "href"
            self.sources += [str(value)] if name == "src" else []

    def handle_data(self, data):
        self.text += data if self.tags and self.tags[-1] != "style" else ""


def page_of(place):
    assert main([str(place)]) == 0
    return Page((place / FILE).read_text(encoding="utf-8"))


def complete_run(folder, **flags):
    """Write a run that has all that a run can have."""
    write_run(folder, seed=7, slope=0.02, lr=0.5, **flags)
    more = {
        "loss/policy": 0.5,
        "system/energy_j": 100.0,
        "system/cpu_percent": 60.0,
        "system/own_cpu_share": 0.6,
        "throughput/agent_steps_per_s": 20.0,
    }
    records = read_records(folder)
    write_records(folder, [replace(each, values={**each.values, **more}) for each in records])
    (folder / "summary.json").write_text(json.dumps({"reason": "steps", "best_mean_return": 27.5}))
    info = json.loads((folder / "run.json").read_text())
    info |= {"started": "2026-01-01T00:00:00", "version": "0.1", "versions": {"torch": "2.13"}}
    info["control"] = [
        {"command": "set", "values": {"lr_factor": 0.5}, "result": "done: so", "updates": 11}
    ]
    info["resumed"] = [{**info, "command_line": ["main.py", "--load_model_url=x y"]}]
    (folder / "run.json").write_text(json.dumps(info))
    finding = {"agent_steps": 400, "name": "policy/entropy", "message": "is low", "advice": "raise"}
    (folder / "findings.jsonl").write_text(json.dumps(finding) + "\n")
    (folder / "evaluations.csv").write_text(
        "time,agent_steps,updates,game,policy,games,mean,standard_error\n"
        "1,500,5,Pong,sampled,5,3.25,0.5\n2,1000,9,Pong,sampled,5,4.75,0.5\n"
    )
    numbers = {field.name: 0 for field in fields(Report)}
    names = {"env": PONG, "checkpoint": "update_9.pt", "policy": "greedy"}
    test = Report(**{**numbers, **names, "mean": 18.25})
    (folder / "test_update_9_Pong_greedy.json").write_text(json.dumps(asdict(test)))
    (folder / "films").mkdir()
    (folder / "films" / "update_00000009.mp4").write_bytes(MP4)
    (folder / "films" / ".update_00000012.mp4").write_bytes(MP4[:1])  # it is being made
    (folder / "train.log").write_text("12:00 INFO begun\n12:01 DEBUG detail\n12:02 INFO done\n")
    return folder


def test_the_page_of_a_run_says_what_was_run_and_how_it_went(tmp_path, capsys):
    run = complete_run(tmp_path / "my run", avg_buff_size=50)
    page = page_of(run)
    out, err = capsys.readouterr()
    assert out.startswith(f"written: {run / FILE} (")
    assert err == ""
    assert "update_00000012" not in (run / FILE).read_text("utf-8")
    for said in (
        *("steps", "1,000", PONG, "2026-01-01T00:00:00", "0123456789ab", "27"),
        *("torch 2.13", "Abacus, 2 cores", "main.py '--load_model_url=x y'", "lr_factor"),
        "done: so",
        *("policy/entropy", "is low", "raise", "4.75", "update_9.pt", "18.25", "greedy"),
        *("12:02 INFO done", "27.5", "energy per million agent steps", "kJ", "100 %"),
        f"python main.py --env={PONG} --seed=7",
        f"--resume='{run}'",
        f"python -m ritornello.analysis compare '--runs={run}'",
        f"python -m ritornello.analysis report '{run}'",
    ):
        assert said in page.text, said
    assert "12:01 DEBUG" not in page.text
    kinds = [source.partition(";")[0] for source in page.sources]
    assert kinds == ["data:image/png"] * 2 + ["data:video/mp4"], "evaluations, overview, a film"


def test_a_run_that_was_killed_has_a_page(tmp_path):
    (tmp_path / "flags.json").write_text(json.dumps({"env": PONG, "seed": 1, "no_such_flag": 3}))
    text = page_of(tmp_path).text
    for said in ("has not written a record", "no flag of this version", "was not tested"):
        assert said in text
    (tmp_path / "flags.json").write_bytes(b"[" * 9000)
    assert "flags.json is damaged" in page_of(tmp_path).text


def test_what_was_typed_within_quotes_is_one_line_of_the_command(tmp_path):
    run = complete_run(tmp_path / "run")
    info = json.loads((run / "run.json").read_text())
    info["command_line"] = ["main.py", "--run_note=this && that"]
    (run / "run.json").write_text(json.dumps(info))
    assert "python main.py '--run_note=this && that' --seed=7\n" in page_of(run).text


def test_nothing_that_a_file_holds_acts_in_the_page(tmp_path):
    run = complete_run(tmp_path / "run")
    replaced = json.dumps(HOSTILE)[1:-1]
    for name in ("run.json", "flags.json", "findings.jsonl", "summary.json"):
        path = run / name
        for value in ("Abacus", "done: so", "is low", "raise", "steps", "begun", "2.13", "0.1"):
            path.write_text(path.read_text().replace(f'"{value}"', f'"{replaced}"'))
    flags = json.loads((run / "flags.json").read_text())
    flags |= {"lr": HOSTILE, HOSTILE: [HOSTILE], "seed": "1; rm -rf ~"}
    (run / "flags.json").write_text(json.dumps(flags))
    (run / "train.log").write_text(f"12:00 INFO {HOSTILE}\n")
    (run / "evaluations.csv").write_text(f"time,{HOSTILE}\n1,{HOSTILE}\n")
    (run / "films" / "<img src=x onerror=alert(3)>.mp4").write_bytes(MP4)
    page = page_of(run)
    assert page.text.count("<script>alert(1)</script>") >= 8
    assert "\u202e" not in (run / FILE).read_text(encoding="utf-8")
    assert "--seed=<seed>" in page.text, "nobody should paste such a seed into a shell"
    assert "--seed=1; rm" not in page.text


def test_no_line_of_a_log_ends_its_block(tmp_path):
    run = complete_run(tmp_path / "run")
    lines = ["begun", "```", "# forged", "## forged", "</code></pre>"]
    (run / "train.log").write_text("\n".join([*lines, ""]))
    page = page_of(run)
    assert "\n".join(lines[1:]) in page.text
    assert page.tags.count("h1") == 1, "the title"


@pytest.mark.parametrize("name", ["flags.json", "metrics.jsonl"])
def test_nothing_outside_of_the_folder_gets_into_the_page(tmp_path, name):
    (tmp_path / "private").write_text("a secret word\n" * 3)
    run = write_run(tmp_path / "run", seed=1)
    (run / name).unlink(missing_ok=True)
    (run / name).symlink_to(tmp_path / "private")
    with pytest.raises(ConfigError, match="leads out of the folder"):
        main([str(run)])
    (run / name).unlink()
    for link in ("film.mp4", "train.log", "findings.jsonl"):
        (run / link).symlink_to(tmp_path / "private")
    (run / "run.json").touch()
    page = page_of(run)
    assert not any("video" in source for source in page.sources)
    assert "secret" not in page.text


def test_the_page_of_a_sequence_has_the_tables_of_the_comparison(tmp_path, capsys):
    groups = [
        (f"{g} env={env}", env, s)
        for g, s in (("a", 0.01), ("<b>", 0.02))
        for env in (PONG, BREAKOUT)
    ]
    folder = write_sequence(tmp_path / "sequence", groups)
    (folder / "001_run_seed1" / "made" / "films").mkdir()
    (folder / "001_run_seed1" / "made" / "films" / "x.mp4").write_bytes(MP4)
    page = page_of(folder)
    assert capsys.readouterr().err == ""
    for game in compare(find_runs([str(folder)])[0]):
        _, rows = game_table(game)
        for cell in (cell for row in rows for cell in row):
            assert cell in page.text
    for said in (
        *("2/2", "008_run_seed2"),
        "python multi_train.py --sequence=mine.yaml -- --lr=0.1",
        f"python multi_train.py --resume={folder}",
        f"python -m ritornello.analysis compare --sequence_folder={folder}",
    ):
        assert said in page.text, said
    kinds = [source.partition(";")[0] for source in page.sources]
    assert kinds == ["data:image/png"] * 3 + ["data:video/mp4"], "two games, profiles, a film"


def test_groups_without_a_game_in_common_have_their_curves(tmp_path, capsys):
    folder = write_sequence(tmp_path / "sequence", [("a", PONG, 0.01), ("b", BREAKOUT, 0.02)])
    assert [source[:14] for source in page_of(folder).sources] == ["data:image/png"] * 2
    assert capsys.readouterr().err == ""


def test_a_part_that_cannot_be_shown_is_a_failure(tmp_path, monkeypatch, capsys):
    def broken(_):
        raise OSError("no picture")

    run = write_run(tmp_path / "run", seed=1)
    monkeypatch.setattr(report, "run_figures", broken)
    assert main([str(run)]) == 1
    assert capsys.readouterr().err == "cannot be shown: Figures: no picture\n"
    assert "This cannot be shown: no picture" in (run / FILE).read_text(encoding="utf-8")


def test_what_is_no_run_is_one_message(tmp_path, monkeypatch, capsys):
    assert program.main(["report", str(tmp_path)]) == 2
    assert "is no run and no sequence. Expected a folder with" in capsys.readouterr().err
    run = write_run(tmp_path / "run", seed=1, records=1)
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(report, "report", None)  # it is tried before anything is read or drawn
    for output, expected in (("file/page.html", "cannot be written"), ("run", "is a folder")):
        with pytest.raises(ConfigError, match=expected):
            main([str(run), f"--output={tmp_path}/{output}"])
