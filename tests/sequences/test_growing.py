"""A sequence that was begun gets the groups and seeds that its file has got since."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

from ritornello import multi_train
from ritornello.core.errors import ConfigError
from ritornello.sequences.folder import SequenceFolder
from ritornello.sequences.growing import further_runs
from ritornello.sequences.plan import Plan, parse_plan

BEGUN = {
    "name": "mine",
    "base": {"env": "CartPole-v1"},
    "runs": [{"name": "a", "flags": {"lr": 0.01}}, {"name": "b", "flags": {"lr": 0.02}}],
}


def plan_of(data: dict[str, Any]) -> Plan:
    return parse_plan(data, default_name="p", where="mine.yaml")


def begun(tmp_path: Path, data: dict[str, Any], *typed: str) -> SequenceFolder:
    return SequenceFolder.create(tmp_path, plan_of(data), typed)


def further(folder: SequenceFolder, data: dict[str, Any]) -> list[tuple[str, int]]:
    return [(run.group, run.seed) for run in further_runs(folder, plan_of(data), "mine.yaml")]


def test_what_the_file_has_besides_is_added_in_its_order(tmp_path: Path) -> None:
    folder = begun(tmp_path, BEGUN)
    assert further(folder, BEGUN) == []
    more = {**BEGUN, "seeds": [1, 2], "runs": [{"name": "new"}, *BEGUN["runs"]]}
    assert further(folder, more) == [("new", 1), ("new", 2), ("a", 2), ("b", 2)]
    folder.add(further_runs(folder, plan_of(more), "mine.yaml"))
    folder.save()
    assert SequenceFolder.open(folder.path).runs == folder.runs
    assert folder.runs[2].name == "003_new_seed1"
    assert folder.runs[2].status == "waiting"
    assert further(folder, more) == []


def test_what_the_file_does_not_have_any_more_stays(tmp_path: Path) -> None:
    folder = begun(tmp_path, BEGUN)
    assert further(folder, {**BEGUN, "seeds": [2], "runs": BEGUN["runs"][:1]}) == [("a", 2)]
    assert [run.group for run in folder.runs] == ["a", "b"]


def test_a_run_may_start_from_one_that_there_was(tmp_path: Path) -> None:
    folder = begun(tmp_path, BEGUN)
    later = {"name": "later", "flags": {"load_model_url": {"run": "a"}}}
    more = {**BEGUN, "runs": [*BEGUN["runs"], later]}
    folder.add(further_runs(folder, plan_of(more), "mine.yaml"))
    assert folder.source(folder.runs[2]) == folder.runs[0]


@pytest.mark.parametrize(
    ("data", "now", "message"),
    [
        (BEGUN, {**BEGUN, "name": "other"}, "is the sequence 'other', expected 'mine'"),
        (
            BEGUN,
            {**BEGUN, "base": {"env": "CartPole-v1", "gamma": 0.9}},
            "001_a_seed1 was begun with gamma left out, and the file has 0.9",
        ),
        (
            BEGUN,
            {**BEGUN, "base": {"env": "Acrobot-v1"}},
            "begun with env 'CartPole-v1', and the file has 'Acrobot-v1'",
        ),
        (BEGUN, {**BEGUN, "base": {}}, "env 'CartPole-v1', and the file has left out"),
    ],
)
def test_what_is_there_is_not_changed(
    tmp_path: Path, data: dict[str, Any], now: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        further(begun(tmp_path, data), now)


def test_what_was_typed_at_the_beginning_must_not_make_the_new_groups_alike(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("name: mine\nruns: [{name: a}]\n")
    folder = begun(tmp_path, {"name": "mine", "runs": [{"name": "a"}]}, "--lr=0.1")
    file.write_text("name: mine\nruns: [{name: a}, {name: b, flags: {lr: 0.2}}]\n")
    assert multi_train.main([f"--resume={folder.path}", f"--sequence={file}"]) == 2
    assert "--lr=0.1 would hold for every run" in capsys.readouterr().err
    assert len(SequenceFolder.open(folder.path).runs) == 1


def test_a_search_gets_no_sequence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "tuning.json").write_text("{}")
    assert multi_train.main([f"--resume={tmp_path}", "--sequence=smoke"]) == 2
    assert "is the folder of a search" in capsys.readouterr().err


def test_a_full_disk_is_told_and_leaves_the_sequence_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("name: mine\nruns: [{name: a}, {name: b}]\n")
    folder = begun(tmp_path, {"name": "mine", "runs": [{"name": "a"}]})

    def full(path: Path, data: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr("ritornello.sequences.folder.write_json", full)
    assert multi_train.main([f"--resume={folder.path}", f"--sequence={file}"]) == 1
    assert "No space left on device" in (said := capsys.readouterr().err)
    assert "What was done is kept; --resume goes on." in said
    assert [run.group for run in SequenceFolder.open(folder.path).runs] == ["a"]
