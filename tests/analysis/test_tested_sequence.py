import csv
from pathlib import Path

import numpy as np
import pytest

from ritornello.agent.stored.run_folder import RunFolder
from ritornello.agent.testing.score_table import Game, Life, score_table
from ritornello.analysis.compare_scores import Checkpoint, Table
from ritornello.analysis.compare_sequence import GAMES_TABLE, SCORES_PAGE, kept, write_scores
from ritornello.core.atomic_file import write_json
from ritornello.flags.options import Flags
from ritornello.sequences.folder import SequenceFolder
from ritornello.sequences.plan import is_test, parse_plan

PONG, DEMON, CARNIVAL = (f"{n}NoFrameskip-v4" for n in ("Pong", "DemonAttack", "Carnival"))


def game(points):
    """A game of two lives, the first without a point."""
    return Game(0, points, 30, 120, "ab", (Life(0.0, 10), Life(points, 20)))


@pytest.fixture(scope="module")
def tested(tmp_path_factory):
    """Two seeds of two runs; the second one starts from the first and forgets most of it."""
    data = {
        "seeds": [1, 2],
        "runs": [
            {
                "name": "old games",  # it knows a third game and does not play it
                "flags": {"env": f"{DEMON},{CARNIVAL},{PONG}", "env_shares": "1,1,0"},
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
        flags = {name: run.flags[name] for name in run.flags if name != "load_model_url"}
        write_json(made.flags_file, Flags(**flags).to_json())
        is_new = run.group == "new"
        last = {DEMON: 1000.0, CARNIVAL: 400.0} if not is_new else {DEMON: 500.0, CARNIVAL: 40.0}
        with score_table(made.path, 1, "sampled") as table:
            for env, points in {**last, PONG: 10.0 + 10 * is_new}.items():
                table.add("update_000000009", 200, env, [game(7.0)])  # one update earlier
                table.add("step_000000000200", 200, env, [game(points * run.seed)])
                table.add("step_000000000100", 100, env, [game(7.0)])
    return folder


def test_what_is_kept_is_the_mean_share_of_the_old_games():
    def tables(**means):
        games = {"demon": DEMON, "carnival": CARNIVAL, "pong": PONG}
        return [
            Table("x", games[name], (Checkpoint(1, np.array([m]), np.array([1.0])),), Path(), False)
            for name, m in means.items()
        ]

    old, new = tables(demon=1000, carnival=400, pong=-20), tables(demon=500, carnival=40, pong=20)
    assert kept(old, new, [DEMON, CARNIVAL]) == pytest.approx((0.5 + 0.1) / 2)
    assert kept(old, new, [PONG]) is None, "there is no share of a score below zero"


def test_the_table_has_each_game_of_the_last_checkpoints(tested):
    write_scores(tested)
    with (tested.path / GAMES_TABLE).open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * 2 * 3  # groups, seeds, games
    assert {int(row["model_steps"]) for row in rows} == {200}
    found = {(row["group"], row["env"], row["seed"]): float(row["return_raw"]) for row in rows}
    assert found["old games", DEMON, "2"] == 2000
    assert found["new", PONG, "1"] == 20
    assert {row["length_steps"] for row in rows} == {"30"}


def test_the_page_has_a_row_per_configuration_and_both_kinds_of_returns(tested):
    write_scores(tested)
    games, lives = (tested.path / SCORES_PAGE).read_text().split("# forgetting: ")[1:]
    assert "of the games of one checkpoint in test mode" in games
    assert "| old games | 200 | 2 | 2 | 1,500.0 (1,000.0 to 2,000.0) | 30 |" in games
    assert "| new | 200 | 2 | 2 | 750.0 (500.0 to 1,000.0) |" in games
    assert "| new | 30 % |" in games
    assert "| old games | 200 | 2 | 4 | 750.0" in lives


def test_a_sequence_without_tests_has_no_page(tmp_path):
    plan = parse_plan({"base": {"env": PONG}}, default_name="plain", where="here")
    folder = SequenceFolder.create(tmp_path, plan, [])
    write_scores(folder)
    assert not (folder.path / SCORES_PAGE).exists()
    assert not (folder.path / GAMES_TABLE).exists()
