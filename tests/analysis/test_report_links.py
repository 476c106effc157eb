"""Nothing from outside of the folder gets into a report, whichever part of the folder is a link."""

from __future__ import annotations

import json
from base64 import b64encode
from pathlib import Path

import pytest

from ritornello.analysis.report import FILE, main
from tests.analysis.builders import write_run, write_sequence
from tests.analysis.page import Page

PONG = "PongNoFrameskip-v4"
SECRET = "a secret word"
SECRET_RETURN = 98_765.0
GIF = b"GIF89a" + SECRET.encode() * 3
RUN = "001_run_seed1"


@pytest.fixture
def private(tmp_path: Path) -> Path:
    """A place with a run in it that is nobody's business, named as those of the tests."""
    run = write_run(tmp_path / "private" / "made", seed=1, slope=0.0, api_key=SECRET)
    for name in ("flags.json", "run.json"):
        said = json.loads((run / name).read_text())
        (run / name).write_text(json.dumps({**said, "env": f"{SECRET}-v1", "started": SECRET}))
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    for line in lines:
        line["values"] = {"episode/return_mean": SECRET_RETURN, "system/secret": SECRET_RETURN}
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (run / "Scores.txt").write_text("1,5,1,1,1\n" * 3)
    (run / "evaluations.csv").write_text(
        "time,agent_steps,updates,game,policy,games,mean,standard_error\n"
        f"1,500,5,Pong,sampled,5,{SECRET_RETURN},0.5\n"
    )
    (run / "films").mkdir()
    (run / "films" / "x.gif").write_bytes(GIF)
    state = {"format_version": 1, "name": SECRET, "arguments": [], "runs": [], SECRET: SECRET}
    (run.parent / "sequence.json").write_text(json.dumps(state))
    return run


def replace_by_link(place: Path, target: Path) -> None:
    if place.exists():
        place.rename(place.with_name("moved away"))
    place.symlink_to(target)


def page_of(place: Path) -> Page:
    """Return the page, if nothing of the private run is in it."""
    assert main([str(place)]) == 0
    page = Page((place / FILE).read_text(encoding="utf-8")).check()
    assert SECRET not in page.text
    assert "98,765" not in page.text
    assert "98765" not in page.text
    assert b64encode(GIF).decode() not in page.content
    return page


@pytest.mark.parametrize(
    ("place", "target"),
    [
        (RUN, ""),
        (f"{RUN}/made", "made"),
        *((f"{RUN}/made/{n}", f"made/{n}") for n in ("flags.json", "run.json", "metrics.jsonl")),
        (f"{RUN}/made/films", "made/films"),
        ("sequence.json", "sequence.json"),
    ],
)
def test_nothing_outside_of_the_folder_gets_into_the_page_of_a_sequence(
    tmp_path: Path, private: Path, place: str, target: str
) -> None:
    folder = write_sequence(tmp_path / "sequence", [("a", PONG, 0.01)])
    replace_by_link(folder / place, private.parent / target)
    page = page_of(folder)
    assert ("There are no films." if place.endswith("films") else "is a link") in page.text
    if place != "sequence.json":
        assert "11.0" in page.text or "12.0" in page.text, "the other run has its score"


def test_a_link_within_the_folder_of_a_sequence_is_followed(tmp_path: Path) -> None:
    folder = write_sequence(tmp_path / "sequence", [("a", PONG, 0.01)])
    (folder / RUN).rename(folder / "elsewhere")
    (folder / RUN).symlink_to("elsewhere")
    page = page_of(folder)
    assert "11.0" in page.text
    assert "is a link" not in page.text


@pytest.mark.parametrize("name", ["metrics.jsonl", "evaluations.csv", "Scores.txt"])
def test_no_journal_of_another_run_gets_into_the_page_of_a_run(
    tmp_path: Path, private: Path, name: str
) -> None:
    run = write_run(tmp_path / "run", seed=1, slope=0.01)
    replace_by_link(run / name, private / name)
    page = page_of(run)
    assert f"{name} is a link" in page.text
    assert page.addresses("src") == [], "a figure shows what the file says"
