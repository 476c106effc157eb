from __future__ import annotations

import json
import os
import shutil
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import pytest

from ritornello.agent.testing.score_table import Report
from ritornello.analysis import __main__ as program
from ritornello.analysis.comparison import compare, game_table
from ritornello.analysis.report import FILE, main
from ritornello.analysis.runs import find_runs
from ritornello.core.errors import ConfigError
from tests.analysis.builders import write_run, write_sequence
from tests.analysis.page import Page

PONG, BREAKOUT = "PongNoFrameskip-v4", "BreakoutNoFrameskip-v4"
HOSTILE = "</td></table><script>alert(1)</script><img src=x onerror=alert(2)>\u202e'\""
MP4 = b"\x00\x00\x00\x18ftypisom" + b"film" * 10


def page_of(place: Path, *options: str) -> Page:
    assert main([str(place), *options]) == 0
    return Page((place / FILE).read_text(encoding="utf-8")).check()


def kinds_of(page: Page) -> list[str]:
    """What films of a page are embedded as, in their order; figures apart."""
    kinds = [src.partition(";")[0] for src in page.addresses("src")]
    return [kind for kind in kinds if kind != "data:image/png"]


def complete_run(folder: Path, **flags: object) -> Path:
    """Write a run that has all that a run can have."""
    write_run(folder, seed=7, slope=0.02, lr=0.5, **flags)
    records = [json.loads(x) for x in (folder / "metrics.jsonl").read_text().splitlines()]
    for number, each in enumerate(records):
        each["values"] |= {
            "loss/policy": 0.5,
            "system/energy_j": 100.0,
            "system/cpu_percent": 60.0,
            "system/own_cpu_share": 0.6,
            "throughput/agent_steps_per_s": 20.0 + number,
        }
    (folder / "metrics.jsonl").write_text("".join(json.dumps(each) + "\n" for each in records))
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
    (folder / "train.log").write_text("12:00 INFO begun\n12:01 DEBUG detail\n12:02 INFO done\n")
    return folder


def test_the_page_of_a_run_says_what_was_run_and_how_it_went(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = complete_run(tmp_path / "my run")
    page = page_of(run)
    out, err = capsys.readouterr()
    assert out.startswith(f"written: {run / FILE} (")
    assert err == ""
    assert "cannot be shown" not in page.text
    for said in (
        *("came to its end: steps", "1,000", PONG, "2026-01-01T00:00:00", "0123456789ab"),
        *("torch 2.13", "Abacus, 2 cores", "main.py --load_model_url=x y", "lr_factor", "done: so"),
        *("policy/entropy", "is low", "raise", "4.75", "update_9.pt", "18.25", "greedy"),
        *("12:02 INFO done", "27.5", "energy per million agent steps", "kJ", "100 %"),
        f"python main.py --env={PONG} --seed=7",
        f"--load_model_url='{run}'",
        f"python -m ritornello.analysis compare '--runs={run}'",
        f"python -m ritornello.analysis report '{run}'",
    ):
        assert said in page.text, said
    assert "12:01 DEBUG" not in page.text
    # Of the flags lr differs from its default; all of them are there, folded.
    assert page.text.count("batch_size") >= 1
    pictures = [src for src in page.addresses("src") if src.startswith("data:image/png")]
    assert len(pictures) == 2, "evaluations and the overview"
    assert sum(src.startswith("data:video/mp4") for src in page.addresses("src")) == 1
    # The curve: 7 + 0.02 * steps, at the first tenth (100 steps) and at the end; its area.
    for number in ("9.0", "27.0", "17.1"):
        assert number in page.text


def test_a_run_under_way_an_old_one_and_a_killed_one_have_pages(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    going = write_run(tmp_path / "going", seed=1, finished=False)
    status = {"format": 1, "state": "training", "host": "another machine", "pid": 1}
    (going / "status.json").write_text(json.dumps(status))
    assert "is training" in page_of(going).text

    old = write_run(tmp_path / "old", seed=1, finished=False, no_such_flag=3)
    text = page_of(old).text
    for said in ("neither a status nor a summary", "no flag of this version", "was not tested"):
        assert said in text
    assert capsys.readouterr().err == ""

    killed = tmp_path / "killed"
    killed.mkdir()
    (killed / "flags.json").write_text(json.dumps({"env": PONG, "seed": 1}))
    text = page_of(killed).text
    assert "The run has not written a record." in text
    assert "Learning curve: the run has not written a record" in capsys.readouterr().err


def test_an_old_run_gets_the_findings_that_its_records_say(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", seed=1, records=100, end=1_000_000)
    lines = [json.loads(x) for x in (run / "metrics.jsonl").read_text().splitlines()]
    for number, each in enumerate(lines):
        each["updates"] = 100 * number
        each["values"]["policy/entropy_fraction"] = 0.0
    (run / "metrics.jsonl").write_text("".join(json.dumps(each) + "\n" for each in lines))
    assert "policy/entropy_fraction0 (healthy: 0.05 to 0.98)" in page_of(run).text
    (run / "findings.jsonl").write_text("")  # this version looked, and found nothing
    assert "No metric left its healthy range." in page_of(run).text


def test_nothing_that_a_file_holds_acts_in_the_page(tmp_path: Path) -> None:
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
    (run / "films" / "<img src=x onerror=alert(3)>.mp4").write_bytes(b"\x00" * 3 + MP4)
    (run / "films" / "b\u202e.mp4").write_bytes(MP4)
    test = {"env": HOSTILE, "checkpoint": HOSTILE, "games": {HOSTILE: HOSTILE}}
    (run / "test_x.json").write_text(json.dumps(test))
    page = page_of(run)
    assert "script" not in page.tags
    assert page.text.count("<script>alert(1)</script>") >= 8
    assert "\u202e" not in (run / FILE).read_text(encoding="utf-8")
    assert "--seed=<seed>" in page.text, "nobody should paste such a seed into a shell"
    assert "--seed=1; rm" not in page.text


def test_nothing_outside_of_the_folder_gets_into_the_page(tmp_path: Path) -> None:
    secret = tmp_path / "private"
    secret.mkdir()
    (secret / "key").write_text("a secret word\n" * 3)
    (secret / "film.mp4").write_bytes(MP4)
    (secret / "flags.json").write_text(json.dumps({"env": "a secret word", "seed": 1}))
    run = write_run(tmp_path / "run", seed=1, records=1)
    for name in ("train.log", "findings.jsonl", "evaluations.csv", "test_x.json", "run.json"):
        (run / name).unlink(missing_ok=True)
        (run / name).symlink_to(secret / "key")
    (run / "flags.json").unlink()
    (run / "flags.json").symlink_to(secret / "flags.json")
    (run / "films").symlink_to(secret)
    (run / "analysis").mkdir()
    (run / "analysis" / "film.mp4").symlink_to(secret / "film.mp4")
    (run / FILE).symlink_to(secret / "key")
    assert main([str(run)]) == 0
    assert not (run / FILE).is_symlink()
    assert (secret / "key").read_text() == "a secret word\n" * 3, "a link is not written through"
    page = Page((run / FILE).read_text(encoding="utf-8")).check()
    assert "a secret word" not in page.text
    assert "There are no films." in page.text
    assert "is a link" in page.text


def test_flags_of_another_file_are_neither_in_tables_nor_in_figures(tmp_path: Path) -> None:
    (tmp_path / "private.json").write_text(json.dumps({"env": "a secret word", "seed": 1}))
    run = write_run(tmp_path / "run", seed=1)
    assert page_of(run).addresses("src") != []
    (run / "flags.json").unlink()
    (run / "flags.json").symlink_to(tmp_path / "private.json")
    page = page_of(run)
    assert "a secret word" not in page.text
    assert page.addresses("src") == [], "a figure shows the names of the games"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no named pipes")
def test_pipes_keep_nobody_waiting(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", seed=1, records=1)
    for name in ("train.log", "findings.jsonl", "evaluations.csv", "run.json", "status.json"):
        (run / name).unlink(missing_ok=True)
        os.mkfifo(run / name)
    assert "no regular file" in page_of(run).text


GARBAGE = [
    b"",
    b"{",
    b"[]",
    b"null",
    b'"text"',
    b"\x00\xff\xfe",
    b"[" * 3000,
    b"{}\n" * 3,
    b"1e999",
]
TYPES: list[Any] = [None, 0, "text", [], [[]], {}, [{}], {"a": {"b": [None]}}, 1e300, True]


def test_whatever_has_become_of_one_file_the_others_are_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Drawing takes its time, and is tried with the records that are damaged below.
    monkeypatch.setattr("ritornello.analysis.report_run.figures", lambda place: None)
    run = complete_run(tmp_path / "run")
    names = ("flags.json", "run.json", "summary.json", "findings.jsonl", "evaluations.csv")
    names = (*names, "test_update_9_Pong_greedy.json", "status.json", "train.log", "metrics.jsonl")
    for name in names:
        good = (run / name).read_bytes() if (run / name).exists() else b""
        for bad in (*GARBAGE, good[: len(good) // 2], good[::-1]):
            (run / name).write_bytes(bad)
            page = page_of(run)
            if name != "train.log":
                assert "12:02 INFO done" in page.text, (name, bad)
            if name != "metrics.jsonl":
                assert "energy per million agent steps" in page.text, (name, bad)
        (run / name).unlink()
        page_of(run)
        (run / name).write_bytes(good)


def test_values_of_any_type_are_shown_or_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ritornello.analysis.report_run.figures", lambda place: None)
    run = complete_run(tmp_path / "run")
    for name in ("flags.json", "run.json", "summary.json", "test_update_9_Pong_greedy.json"):
        good = json.loads((run / name).read_text())
        for bad in TYPES:
            (run / name).write_text(json.dumps(dict.fromkeys(good, bad)))
            assert "12:02 INFO done" in page_of(run).text, (name, bad)
        (run / name).write_text(json.dumps(good))


def test_damaged_records_are_drawn_as_far_as_they_go(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", seed=1)
    lines = (run / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    huge = json.dumps(
        {**json.loads(lines[3]), "values": {"loss/total": 1e30, "loss/policy": -1e30}}
    )
    (run / "metrics.jsonl").write_bytes(
        b"".join([*lines[:4], b"\xff\x00 damaged\n", huge.encode() + b"\n", *lines[4:], b'{"half'])
    )
    assert "data:image/png" in "".join(page_of(run).addresses("src"))
    flags = json.loads((run / "flags.json").read_text())
    (run / "flags.json").write_text(json.dumps({**flags, "env": ",".join([PONG] * 5000)}))
    assert "more than 60 games" in page_of(run).text


def test_films_are_embedded_while_there_is_room_and_linked_else(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", seed=1, records=1)
    films = run / "films"
    films.mkdir()
    for number, name in enumerate(("old.mp4", "a b#?.mp4", "new.gif")):
        content = b"GIF89a" + b"\x00" * 394_000 if name.endswith("gif") else MP4 * 8000
        (films / name).write_bytes(content)  # 0.4 MB
        os.utime(films / name, (1000 + number, 1000 + number))
    page = page_of(run, "--embed_films=0.9")
    assert kinds_of(page) == ["data:image/gif", "data:video/mp4"], "the newest first"
    assert [x for x in page.addresses("href") if "films" in x] == ["./films/old.mp4"]
    page = page_of(run, "--embed_films=0")
    assert kinds_of(page) == []
    assert "./films/a%20b%23%3F.mp4" in page.addresses("href")
    (films / "old.mp4").write_bytes(b"<html><script>alert(1)</script>")
    page = page_of(run)
    assert "films/old.mp4 cannot be shown: its content is no film" in page.text
    elsewhere = tmp_path / "elsewhere" / "page.html"
    assert main([str(run), f"--output={elsewhere}", "--embed_films=0"]) == 0
    page = Page(elsewhere.read_text(encoding="utf-8")).check()
    assert "./../run/films/new.gif" in page.addresses("href")


def test_the_page_of_a_sequence_has_the_tables_of_the_comparison(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
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
    assert "cannot be shown" not in page.text
    for game in compare(find_runs([str(folder)])[0]):
        _, rows = game_table(game)
        for cell in (cell for row in rows for cell in row):
            assert cell in page.text
    for said in (
        *("a env=PongNoFrameskip-v4", "2/2", "100.0 [100.0, 100.0] %", "008_run_seed2"),
        "python multi_train.py --sequence=mine -- --lr=0.1",
        f"python multi_train.py --resume={folder}",
        f"python -m ritornello.analysis compare --sequence_folder={folder}",
    ):
        assert said in page.text, said
    kinds = [src.partition(";")[0] for src in page.addresses("src")]
    assert kinds == ["data:image/png"] * 3 + ["data:video/mp4"], "two games, profiles, a film"


def test_a_sequence_that_has_hardly_begun_and_a_damaged_one_have_pages(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_sequence(tmp_path / "sequence", [("a", PONG, 0.1), ("b", PONG, 0.2)])
    (folder / "001_run_seed1" / "made" / "flags.json").write_text("{")
    (folder / "002_run_seed1" / "made" / "metrics.jsonl").write_text("damaged")
    text = page_of(folder).text
    assert "cannot be read" in text
    assert "no game was finished" in text
    for made in folder.glob("*/made"):
        shutil.rmtree(made)
    assert "No run has finished a game yet." in page_of(folder).text
    (folder / "sequence.json").write_text("{")
    capsys.readouterr()
    assert "This cannot be shown" in page_of(folder).text
    assert "Progress: " in capsys.readouterr().err


def test_what_is_no_run_is_one_message(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(["report", str(tmp_path)]) == 2
    assert "is no run and no sequence. Expected a folder with" in capsys.readouterr().err
    assert program.main(["report", "/nowhere\x1b[31m"]) == 2
    assert "\x1b" not in capsys.readouterr().err
    run = write_run(tmp_path / "run", seed=1, records=1)
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be written: .* Give another place"):
        main([str(run), f"--output={tmp_path}/file/page.html"])
    for bad in ("-1", "much", "nan", "1e9"):
        with pytest.raises(SystemExit):
            main([str(run), f"--embed_films={bad}"])
        assert "no number of megabytes" in capsys.readouterr().err


def test_the_page_is_whole_or_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = write_run(tmp_path / "run", seed=1, records=1)
    page_of(run)
    before = (run / FILE).read_bytes()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("ritornello.core.files.Disk.replace", full)
    with pytest.raises(ConfigError, match="No space left on device"):
        main([str(run)])
    assert (run / FILE).read_bytes() == before
    assert [path.name for path in run.glob(".*.tmp")] == []
