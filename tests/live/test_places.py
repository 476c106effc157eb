import os

import pytest

from ritornello.analysis.places import NotThereError, ResultsFolder
from tests.live.builders import make_run

HOSTILE = (
    "", "..", "../outside", "run/../run", "/etc", "run\0", "./run", "link", "link/run",
    "no_such_run", "x" * 5000, "%2e%2e", "notes",
)  # fmt: skip


@pytest.fixture
def results(tmp_path):
    make_run(tmp_path / "outside_of_it", "secret")
    root = tmp_path / "results"
    make_run(root, "run")
    make_run(root, "sequence/001_a_seed1/Pong_1")
    (root / "notes").mkdir()
    (root / "link").symlink_to(tmp_path / "outside_of_it", target_is_directory=True)
    (root / "linked_run").symlink_to(tmp_path / "outside_of_it" / "secret")
    (tmp_path / "outside").write_text("secret", encoding="utf-8")
    return ResultsFolder(root)


def test_runs_are_found_at_any_depth_and_never_through_a_link(results):
    assert results.runs() == ["run", "sequence/001_a_seed1/Pong_1"]
    assert results.folder("sequence/001_a_seed1/Pong_1").is_dir()


@pytest.mark.parametrize("name", HOSTILE)
def test_no_name_leads_out_of_the_folder(results, name):
    with pytest.raises(NotThereError):
        results.folder(name)
    with pytest.raises(NotThereError):
        results.open("run", name)
    assert results.json("run", name) == {}
    assert results.listing(name, "films") == []


def test_a_link_in_a_run_is_not_followed_and_a_pipe_not_waited_for(results):
    run = results.folder("run")
    (run / "summary.json").symlink_to(run / "flags.json")
    (run / "films").symlink_to(results.root.parent, target_is_directory=True)
    os.mkfifo(run / "train.log")
    for name in ("summary.json", "films/outside", "train.log", "checkpoints"):
        with pytest.raises(NotThereError):
            results.open("run", name)
    assert results.listing("run", "films") == []
    with results.open("run", "flags.json") as file:
        assert file.read(1) == b"{"


def test_a_file_that_vanishes_hides_no_other_of_the_listing(results, monkeypatch):
    films = results.folder("run") / "films"
    films.mkdir()
    (films / "a.mp4").touch()
    monkeypatch.setattr(os, "listdir", lambda path: ["gone.mp4", "a.mp4"])
    assert [name for name, _ in results.listing("run", "films")] == ["a.mp4"]


def test_the_folder_of_one_run_shows_that_run_alone(results):
    make_run(results.root, "other")
    alone = ResultsFolder(results.root / "run")
    assert alone.runs() == ["run"]
    alone.folder("run")
    with pytest.raises(NotThereError):
        alone.folder("other")
