from __future__ import annotations

import csv
from pathlib import Path

import pytest

from ritornello.agent.stored.run_folder import RunFolder
from ritornello.agent.testing.score_table import Game, Life, ScoreTable
from ritornello.analysis.tested_sequence import (
    GAMES_TABLE,
    SCORES_PAGE,
    PlayedGroup,
    kept,
    read_groups,
    write_scores,
)
from ritornello.sequences.folder import SequenceFolder
from ritornello.sequences.plan import is_test, parse_plan

PONG, DEMON, CARNIVAL = (f"{n}NoFrameskip-v4" for n in ("Pong", "DemonAttack", "Carnival"))


def game(points: float) -> Game:
    """A game of two lives, the first without a point."""
    return Game(0, points, 30, 120, "ab", (Life(0.0, 10), Life(points, 20)))


@pytest.fixture(scope="module")
def tested(tmp_path_factory: pytest.TempPathFactory) -> SequenceFolder:
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
    folder = SequenceFolder.create(tmp_path_factory.mktemp("results"), plan, [])
    for run in folder.runs:
        if is_test(run.flags):
            continue
        made = RunFolder.create(folder.path / run.name, run.flags["env"])
        is_new = run.group == "new"
        last = {DEMON: 1000.0, CARNIVAL: 400.0} if not is_new else {DEMON: 500.0, CARNIVAL: 40.0}
        with ScoreTable(made.path, 1, "sampled") as table:
            for env, points in {**last, PONG: -20.0 + 40 * is_new}.items():
                table.add("update_000000009", 200, env, [game(7.0)])  # one update earlier
                table.add("step_000000000200", 200, env, [game(points * run.seed)])
                table.add("step_000000000100", 100, env, [game(7.0)])
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
    write_scores(tested)
    with (tested.path / GAMES_TABLE).open(newline="") as file:
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
    write_scores(tested)
    games, lives = (tested.path / SCORES_PAGE).read_text().split("\n\nforgetting: ")
    assert "per whole game of the last checkpoint" in games
    assert "| configuration | DemonAttack | Carnival | Pong |" in games
    assert "| old games | 1,500.0 (1,000.0 to 2,000.0) | 600.0 (400.0 to 800.0) | -30.0" in games
    assert "| new | 750.0 (500.0 to 1,000.0) |" in games
    assert "30 % |" in games.splitlines()[-1]
    assert "(2 games)" in games, "Carnival has no human score"
    assert "| old games | 750.0" in lives


def test_a_sequence_without_tests_has_no_page(tmp_path: Path) -> None:
    plan = parse_plan({"base": {"env": PONG}}, default_name="plain", where="here")
    folder = SequenceFolder.create(tmp_path, plan, [])
    write_scores(folder)
    assert not (folder.path / SCORES_PAGE).exists()
    assert not (folder.path / GAMES_TABLE).exists()
