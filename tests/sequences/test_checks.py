"""A folder or a plan of a stranger runs nothing of his, and writes nothing outside of itself."""

import json
from typing import Any

import pytest

from ritornello import multi_train
from ritornello.analysis.run_facts import default_flags
from ritornello.core.errors import ConfigError
from ritornello.sequences.folder import STATE_FILE, SequenceFolder
from ritornello.sequences.plan import MAX_RUNS, parse_plan

RUN = {"name": "001_a_seed1", "group": "a", "seed": 1, "flags": {"env": "CartPole-v1"}}


pytestmark = pytest.mark.usefixtures("false_trainer")


def given(tmp_path, **changes):
    """Return the folder of a sequence as somebody may have sent it."""
    folder = tmp_path / "given"
    folder.mkdir()
    data = {"format_version": 1, "name": "theirs", "arguments": [], "runs": [RUN], **changes}
    (folder / STATE_FILE).write_text(json.dumps(data))
    return folder


def run(**changes):
    return {"runs": [{**RUN, **changes}]}


def with_flags(**flags):
    return run(flags={**RUN["flags"], **flags})


HOSTILE: list[dict[str, Any]] = [
    *(run(name=name) for name in ("../escaped", "/tmp/escaped", "", "001_a_seed1\n")),
    *({"arguments": [argument]} for argument in ("--results_dir=/tmp", "--trust_env_module=True")),
    *({"arguments": [argument]} for argument in ("--load_model_url=/etc", "--env=evil:Pong-v0")),
    with_flags(trust_env_module=True),
    *(with_flags(load_model_url=url) for url in ("001_a_seed1/../../victim", "~/a", "hf:a/b")),
    with_flags(load_model_url={"run": "nobody"}),
    with_flags(model="given.evil:net"),
    with_flags(algorithm="given.evil:learn"),
    with_flags(replay_parameters=[{"type": "evil:kind", "capacity": 1, "sample_ratio": 1}]),
    {"runs": [RUN, RUN]},
    run(command=["rm", "-rf", "/"]),
    run(status="[/]"),
]


@pytest.mark.parametrize("changes", HOSTILE, ids=lambda changes: json.dumps(changes)[:60])
def test_a_hostile_sequence_is_refused_with_one_message_and_nothing_happens(
    tmp_path, capsys, monkeypatch, changes
):
    folder = given(tmp_path, **changes)
    monkeypatch.chdir(folder)  # from where every path that is relative may seem to be inside
    before = sorted(tmp_path.rglob("*"))
    assert multi_train.main([f"--resume={folder}"]) == 2
    assert capsys.readouterr().err.startswith("multi_train.py: ")
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.process
@pytest.mark.parametrize(
    ("changes", "typed"),
    [
        ({}, "--gamma=0.9"),
        (with_flags(env="mine:Ok-v0"), "--trust_env_module=True"),
        (with_flags(env="mine:Ok-v0"), "--env=mine:Ok-v0"),
        (with_flags(load_model_url="/etc"), "--trust_files=True"),
    ],
)
def test_a_sequence_is_run_once_what_it_asks_for_was_typed(tmp_path, changes, typed):
    folder = given(tmp_path, **changes)
    multi_train.main([f"--resume={folder}", typed])
    assert len(list(folder.glob("*/*/metrics.jsonl"))) == 1


@pytest.mark.parametrize("place", ["001_a_seed1", "001_a_seed1/output.log"])
def test_a_link_that_leads_out_of_the_folder_is_refused(tmp_path, place):
    folder = given(tmp_path)
    (tmp_path / "victim").mkdir()
    link = folder / place
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(tmp_path / "victim")
    assert multi_train.main([f"--resume={folder}"]) == 2
    assert not list((tmp_path / "victim").iterdir())


@pytest.mark.parametrize("typed", ["--op_mode=test", "--no_such=1", "--preset=no-such"])
def test_what_cannot_be_given_to_runs_is_refused_before_a_folder_is_made(tmp_path, typed):
    results = tmp_path / "out"
    assert multi_train.main(["--sequence=smoke", f"--results_dir={results}", "--", typed]) == 2
    assert not results.exists()


BEGUN = {"name": "mine", "runs": [{"name": "a", "flags": {"lr": 0.01}}, {"name": "b"}]}


def plan_of(data):
    return parse_plan(data, default_name="p", where="mine.yaml")


@pytest.mark.parametrize(
    ("now", "message"),
    [({**BEGUN, "name": "other"}, "expected 'mine'"), ({**BEGUN, "base": {"gamma": 1}}, "gamma")],
)
def test_a_run_that_is_there_is_not_changed(tmp_path, now, message):
    folder = SequenceFolder.create(tmp_path, plan_of(BEGUN), [])
    with pytest.raises(ConfigError, match=message):
        folder.grow(plan_of(now), "mine.yaml")


def test_the_largest_sequence_with_every_flag_can_be_resumed_and_does_not_grow(tmp_path):
    base = {name: value for name, value in default_flags().items() if name != "seed"}
    data = {"base": base, "seeds": list(range(MAX_RUNS // 2)), "test": {}}
    folder = SequenceFolder.create(tmp_path, plan_of(data), [])
    again = SequenceFolder.open(folder.path)
    assert len(again.runs) == MAX_RUNS
    with pytest.raises(ConfigError, match="would have 2,002 runs, expected at most 2,000"):
        again.grow(plan_of({**data, "seeds": [MAX_RUNS]}), "mine.yaml")
    with pytest.raises(ConfigError, match="mine.yaml makes 2,002 runs"):
        plan_of({**data, "seeds": list(range(MAX_RUNS // 2 + 1))})


@pytest.mark.parametrize(
    "changes",
    [
        {"runs": [{"name": "a" * 295}], "grid": {"lr": [0.01]}},
        {"runs": [{"name": "a" * 296}], "test": {}},
    ],
)
def test_a_group_with_a_name_that_is_too_long_is_refused_before_there_is_a_folder(changes):
    with pytest.raises(ConfigError, match="has 30[0-9] characters, expected at most 300"):
        plan_of({"base": {"env": "CartPole-v1"}, **changes})
