from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from ritornello.agent.stored.run_folder import RunFolder
from ritornello.agent.testing.score_table import Game, Life, ScoreTable
from ritornello.flags.options import Flags
from ritornello.flags.presets import PRESETS
from ritornello.sequences.folder import SequenceFolder
from ritornello.sequences.plan import goes_on, is_test, load_plan, parse_plan, source_of
from ritornello.sequences.scores import (
    GAMES_TABLE,
    SCORES_PAGE,
    PlayedGroup,
    kept,
    read_groups,
    write_games,
    write_scores,
)

PONG, DEMON, CARNIVAL = (f"{n}NoFrameskip-v4" for n in ("Pong", "DemonAttack", "Carnival"))


def game(points: float) -> Game:
    """A game of two lives, the first without a point."""
    return Game(0, points, 30, 120, "ab", (Life(0.0, 10), Life(points, 20)))


@pytest.fixture
def tested(tmp_path: Path) -> SequenceFolder:
    """Two seeds of two runs; the second one starts from the first and forgets most of it."""
    data = {
        "seeds": [1, 2],
        "runs": [
            {
                "name": "old games",  # it knows a third game and does not play it
                "flags": {"env": f"{DEMON},{CARNIVAL},{PONG}", "env_shares": [1, 1, 0]},
            },
            {"name": "new", "flags": {"env": PONG, "load_model_url": {"run": "old games"}}},
        ],
        "test": {},
    }
    plan = parse_plan(data, default_name="forgetting", where="here")
    folder = SequenceFolder.create(tmp_path, plan, [])
    for run in folder.runs:
        if is_test(run.flags):
            continue
        made = RunFolder.create(folder.path / run.name, run.flags["env"])
        table = ScoreTable(made.path, 1, "sampled")
        is_new = run.group == "new"
        last = {DEMON: 1000.0, CARNIVAL: 400.0} if not is_new else {DEMON: 500.0, CARNIVAL: 40.0}
        for env, points in {**last, PONG: -20.0 + 40 * is_new}.items():
            table.add("update_000000009", 200, env, [game(7.0)], "sampled")  # one update earlier
            table.add("step_000000000200", 200, env, [game(points * run.seed)], "sampled")
            table.add("step_000000000100", 100, env, [game(7.0)], "sampled")
    return folder


def test_the_last_checkpoint_of_each_seed_counts(tested: SequenceFolder) -> None:
    old, new = read_groups(tested, "scores.csv")
    assert (old.group, new.group) == ("old games", "new")
    assert dict(old.returns) == {DEMON: [1000, 2000], CARNIVAL: [400, 800], PONG: [-20, -40]}
    assert dict(new.returns) == {DEMON: [500, 1000], CARNIVAL: [40, 80], PONG: [20, 40]}
    assert old.own_envs == (DEMON, CARNIVAL)
    per_life, _ = read_groups(tested, "scores_per_life.csv")
    assert dict(per_life.returns) == {DEMON: [500, 1000], CARNIVAL: [200, 400], PONG: [-10, -20]}


def test_what_is_kept_is_the_mean_share_of_the_old_games(tested: SequenceFolder) -> None:
    old, new = read_groups(tested, "scores.csv")
    assert kept(new, old) == pytest.approx((0.5 + 0.1) / 2)
    assert kept(old, None) is None
    below_zero = PlayedGroup("x", {PONG: [-21.0]}, None, (PONG,))
    assert kept(new, below_zero) is None, "there is no share of a score below zero"


def test_the_table_has_each_game_of_the_last_checkpoints(tested: SequenceFolder) -> None:
    path = write_games(tested)
    assert path == tested.path / GAMES_TABLE
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * 2 * 3  # groups, seeds, games
    assert {int(row["model_steps"]) for row in rows} == {200}
    found = {(row["group"], row["env"], row["seed"]): float(row["return_raw"]) for row in rows}
    assert found["old games", DEMON, "2"] == 2000
    assert found["new", PONG, "1"] == 20
    assert {row["length_steps"] for row in rows} == {"30"}


def test_the_page_has_a_row_per_configuration_and_both_kinds_of_returns(
    tested: SequenceFolder,
) -> None:
    assert write_scores(tested) == tested.path / SCORES_PAGE
    games, lives = (tested.path / SCORES_PAGE).read_text().split("\n\nforgetting: ")
    assert "per whole game of the last checkpoint" in games
    assert "| configuration | DemonAttack | Carnival | Pong |" in games
    assert "| old games | 1,500.0 (1,000.0 to 2,000.0) | 600.0 (400.0 to 800.0) | -30.0" in games
    assert "| new | 750.0 (500.0 to 1,000.0) |" in games
    assert "30 % |" in games.splitlines()[-1]
    assert "(2 games)" in games, "Carnival has no human score"
    assert "| old games | 750.0" in lives


@pytest.mark.parametrize(
    "line",
    [
        pytest.param("x" * (csv.field_size_limit() + 1), id="a cell that is too long"),
        pytest.param('step_000000000200,200,"' + PONG, id="a quote that is not closed"),
    ],
)
def test_a_damaged_row_costs_only_itself(tested: SequenceFolder, line: str) -> None:
    expected = read_groups(tested, "scores.csv")
    for table in tested.path.glob("*/*/scores.csv"):
        head, *rows = table.read_text().splitlines()
        table.write_text("\n".join([head, line, *rows, ""]))
    assert read_groups(tested, "scores.csv") == expected


def test_a_sequence_without_tests_has_no_page(tmp_path: Path) -> None:
    plan = parse_plan({"base": {"env": PONG}}, default_name="plain", where="here")
    folder = SequenceFolder.create(tmp_path, plan, [])
    assert write_scores(folder) is None
    assert write_games(folder) is None
    assert not (folder.path / SCORES_PAGE).exists()


# --- the shipped experiments -------------------------------------------------------------------


def test_popart_is_compared_at_equal_steps_per_game_and_nothing_else_differs() -> None:
    runs = {run.group: run.flags for run in load_plan("single_multi_popart").runs if run.seed == 1}
    flags = {group: Flags(**f) for group, f in runs.items() if not is_test(f)}
    per_game = {f.environment_max_steps // len(f.env.split(",")) for f in flags.values()}
    assert per_game == {1_000_000}
    assert [(f.use_popart, f.clip_rewards) for f in flags.values()] == [
        *[(False, True)] * 3,
        (True, False),
    ]
    may_differ = {
        *("env", "environment_max_steps", "save_model_every_nsteps", "use_popart", "clip_rewards"),
    }
    values = [json.loads(json.dumps(f.to_json())) for f in flags.values()]
    for other in values[1:]:
        assert {name for name in other if other[name] != values[0][name]} <= may_differ


def test_every_continued_run_of_forgetting_starts_from_the_three_games_and_all_are_tested() -> None:
    plan = load_plan("forgetting")
    runs = {run.group: run.flags for run in plan.runs if run.seed == 1}
    trained = [group for group, flags in runs.items() if not is_test(flags)]
    assert trained[0] == "three games"
    assert {source_of(runs[group]) for group in trained[1:]} == {"three games"}
    assert len({Flags(**{**runs[g], "load_model_url": "x"}).env for g in trained[1:4]}) == 1
    tests = [flags for flags in runs.values() if is_test(flags)]
    assert [source_of(flags) for flags in tests] == trained
    assert {len(flags["env"].split(",")) for flags in tests} == {4}
    new = {g: runs[g].get("batch_size", 8) * _queue_share(runs[g]) for g in trained[1:]}
    assert set(new.values()) == {4}, "equal steps must be equal updates"


def test_the_pairs_of_the_small_forgetting_differ_in_clear_alone_at_equal_updates() -> None:
    runs = {run.group: run.flags for run in load_plan("forgetting_small").runs if run.seed == 1}
    flags = {g: Flags(**{**f, "load_model_url": "x"}) for g, f in runs.items() if not is_test(f)}
    old = "then Pong and a little of the old, "
    with_it, without = flags[f"{old}CLEAR"].to_json(), flags[f"{old}replay"].to_json()
    assert {name for name in with_it if with_it[name] != without[name]} == {
        *("use_policy_cloning_loss", "use_value_cloning_loss")
    }
    continued = [group for group in flags if group != "two games"]
    assert {source_of(runs[group]) for group in continued} == {"two games"}
    assert {flags[g].batch_size * _queue_share(runs[g]) for g in continued} == {4}
    of_pong = [flags[g].environment_max_steps * _last_share(flags[g]) for g in continued]
    assert of_pong == pytest.approx([300_000] * len(continued), rel=1e-3)


def test_the_groups_of_forgetting_replay_differ_in_the_replay_and_in_clear_alone() -> None:
    runs = {run.group: run.flags for run in load_plan("forgetting_replay").runs if run.seed == 1}
    flags = {
        group: Flags(**{**of_run, "load_model_url": "x"}).to_json()
        for group, of_run in runs.items()
        if goes_on(of_run)
    }
    of_pong, of_all, clear = (
        flags[f"then Pong, replay of {x}"] for x in ("Pong", "all", "all, CLEAR")
    )
    assert {name for name in of_all if of_all[name] != of_pong[name]} == {"load_replay"}
    assert {name for name in of_all if of_all[name] != clear[name]} == {
        name for name in PRESETS["clear"].flags if "cloning_loss" in name and "use_" in name
    }
    trust = flags["then Pong, replay of all, trust region"]
    assert {name for name in of_all if of_all[name] != trust[name]} == {"use_kl_mask"}
    before = Flags(**runs["two games"]).to_json()
    assert before["replay_parameters"] == of_all["replay_parameters"]
    assert before["save_replay"]
    assert (before["env_shares"], of_all["env_shares"]) == ([1, 1, 0], [0, 0, 1])


def _last_share(flags: Flags) -> float:
    return flags.env_shares[-1] / sum(flags.env_shares)


@pytest.mark.parametrize("name", ["forgetting", "forgetting_small", "forgetting_replay"])
def test_clear_in_forgetting_is_the_preset(name: str) -> None:
    runs = {run.group: run.flags for run in load_plan(name).runs if not is_test(run.flags)}
    with_clear = [group for group in runs if group.endswith("CLEAR")]
    assert with_clear
    for group in with_clear:
        flags = Flags(**{**runs[group], "load_model_url": "x"}).to_json()
        preset = Flags(**PRESETS["clear"].flags).to_json()
        if name != "forgetting_replay":  # their replay has no part of what is not played
            assert not preset["replay_parameters"][1].pop("per_game")
        for flag in PRESETS["clear"].flags:
            assert flags[flag] == preset[flag], flag


def _queue_share(flags: dict) -> float:
    return flags["replay_parameters"][0]["sample_ratio"]
