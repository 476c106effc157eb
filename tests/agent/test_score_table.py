from __future__ import annotations

import csv
from pathlib import Path

import pytest

from ritornello.agent.testing.score_table import (
    SCORES,
    SCORES_PER_LIFE,
    SHARED_COLUMNS,
    Game,
    Life,
    Report,
    ScoreTable,
    mean_human_normalised,
    summarise,
)
from ritornello.core.errors import ConfigError

A, B = "PongNoFrameskip-v4", "BreakoutNoFrameskip-v4"


def games(count: int) -> list[Game]:
    """Games of 1, 2, 3 ... lives, the k-th of which brings k points in k steps."""
    return [
        Game(
            number,
            float(sum(range(1, number + 2))),
            sum(range(1, number + 2)),
            4 * sum(range(1, number + 2)),
            f"{number:04x}",
            tuple(Life(float(k), k) for k in range(1, number + 2)),
        )
        for number in range(count)
    ]


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_a_game_is_a_row_and_each_of_its_lives_one_of_the_other_file(tmp_path: Path) -> None:
    table = ScoreTable(tmp_path, 3, "sampled")
    table.add("step_000000001000", 1000, A, games(3), "sampled")
    for name in (SCORES, SCORES_PER_LIFE):
        heading = (tmp_path / name).read_text().splitlines()[0]
        assert heading.startswith("model_id,model_steps,env,episode_steps,episode_return,")
        assert tuple(heading.split(",")[:5]) == SHARED_COLUMNS
    whole, lives = rows(tmp_path / SCORES), rows(tmp_path / SCORES_PER_LIFE)
    assert [float(row["episode_return"]) for row in whole] == [1, 3, 6]
    assert [row["lives"] for row in whole] == ["1", "2", "3"]
    assert [(row["game"], row["life"], row["episode_return"]) for row in lives] == [
        *(("0", "1", "1.0"), ("1", "1", "1.0"), ("1", "2", "2.0")),
        *(("2", "1", "1.0"), ("2", "2", "2.0"), ("2", "3", "3.0")),
    ]
    for row in whole:
        own = [life for life in lives if life["game"] == row["game"]]
        for column in ("episode_steps", "episode_return"):
            assert sum(float(life[column]) for life in own) == float(row[column])


def test_an_interrupted_table_goes_on_where_it_was(tmp_path: Path) -> None:
    table = ScoreTable(tmp_path, 2, "sampled")
    table.add("a", 10, A, games(2), "sampled")
    table.add("a", 10, B, games(2), "sampled")
    whole = (tmp_path / SCORES).read_bytes()
    lives = (tmp_path / SCORES_PER_LIFE).read_bytes()
    again = ScoreTable(tmp_path, 2, "sampled")
    assert (tmp_path / SCORES).read_bytes() == whole
    assert (tmp_path / SCORES_PER_LIFE).read_bytes() == lives
    assert again.has("a", 10, A)
    assert again.has("a", 10, B)
    assert not again.has("a", 11, A), "other weights under the same name"
    assert not again.has("b", 10, A)


@pytest.mark.parametrize("name", [SCORES, SCORES_PER_LIFE])
def test_a_table_takes_the_place_of_a_link_and_follows_none(name: str, tmp_path: Path) -> None:
    ScoreTable(tmp_path, 2, "sampled").add("a", 10, A, games(2), "sampled")
    before = (tmp_path / name).read_text()
    (tmp_path / name).rename(tmp_path / "victim")
    (tmp_path / name).symlink_to(tmp_path / "victim")
    again = ScoreTable(tmp_path, 2, "sampled")
    assert again.has("a", 10, A), "a link is read"
    again.add("b", 20, A, games(2), "sampled")
    assert (tmp_path / "victim").read_text() == before
    assert (tmp_path / name).read_text().startswith(before)


@pytest.mark.parametrize("left", ["half of the games", "lives only"])
def test_what_a_killed_test_left_behind_is_played_again(left: str, tmp_path: Path) -> None:
    table = ScoreTable(tmp_path, 2, "sampled")
    table.add("a", 10, A, games(2), "sampled")
    whole = (tmp_path / SCORES).read_text()
    table.add("b", 20, A, games(2), "sampled")
    expected = [(tmp_path / name).read_bytes() for name in (SCORES, SCORES_PER_LIFE)]
    text = (tmp_path / SCORES).read_text()
    last = len(text.splitlines(keepends=True)[-1])
    (tmp_path / SCORES).write_text(whole if left == "lives only" else text[:-last])
    again = ScoreTable(tmp_path, 2, "sampled")
    assert again.has("a", 10, A)
    assert not again.has("b", 20, A)
    again.add("b", 20, A, games(2), "sampled")
    assert [(tmp_path / name).read_bytes() for name in (SCORES, SCORES_PER_LIFE)] == expected


def test_another_kind_of_test_is_refused_before_anything_is_lost(tmp_path: Path) -> None:
    ScoreTable(tmp_path, 3, "sampled").add("a", 10, A, games(3), "sampled")
    before = (tmp_path / SCORES).read_text()
    with pytest.raises(ConfigError, match="3 games with sampled .* 3 with greedy.*--greedy=False"):
        ScoreTable(tmp_path, 3, "greedy")
    with pytest.raises(ConfigError, match="5 with sampled.*--test_episode_count=3"):
        ScoreTable(tmp_path, 5, "sampled")
    assert ScoreTable(tmp_path, 2, "sampled").has("a", 10, A), "more games than asked for are fine"
    assert (tmp_path / SCORES).read_text() == before


def test_a_table_of_somebody_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / SCORES).write_text("model,score\na,1\n")
    with pytest.raises(ConfigError, match="another table: expected the columns model_id,.*model,s"):
        ScoreTable(tmp_path, 2, "sampled")
    assert (tmp_path / SCORES).read_text() == "model,score\na,1\n"


ROW = "a,20,PongNoFrameskip-v4,3,3.0,0,{games},12,2,{policy},0001"


@pytest.mark.parametrize(
    "line",
    [
        "a,20",
        ROW.format(games="one", policy="sampled"),
        ROW.format(games="9" * 5000, policy="sampled"),
        ROW.format(games="-1", policy="sampled"),
        ROW.format(games="1", policy="sleepy"),
        ROW.format(games="1", policy="sampled").replace("3.0", "three"),
        ROW.format(games="1", policy="sampled") + ",9,9",
        "\0\0\0",
        '"',  # a cell that is not closed would take all that follows into it
        "x" * 200_000,
    ],
    ids=lambda line: line[:60],
)
def test_what_is_no_row_of_the_table_is_passed_over(line: str, tmp_path: Path) -> None:
    table = ScoreTable(tmp_path, 2, "sampled")
    for model in ("a", "b"):
        table.add(model, 10, A, games(2), "sampled")
    for name in (SCORES, SCORES_PER_LIFE):
        head, *others = (tmp_path / name).read_text().splitlines(keepends=True)
        (tmp_path / name).write_text(f"{head}{line}\n{''.join(others)}")
    again = ScoreTable(tmp_path, 2, "sampled")
    assert again.has("a", 10, A)
    assert again.has("b", 10, A)
    assert not again.has("a", 20, A)
    again.add("c", 10, A, games(2), "sampled")
    assert len(rows(tmp_path / SCORES)) == 6
    assert len(rows(tmp_path / SCORES_PER_LIFE)) == 9


@pytest.mark.parametrize("name", [SCORES, SCORES_PER_LIFE])
def test_what_is_no_text_is_refused_and_both_files_stay(name: str, tmp_path: Path) -> None:
    ScoreTable(tmp_path, 2, "sampled").add("a", 10, A, games(2), "sampled")
    with (tmp_path / SCORES).open("ab") as file:
        file.write(b"half of a row")
    (tmp_path / name).write_bytes((tmp_path / name).read_bytes() + b"\xff\n")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(ConfigError, match=f"the table .*{name}.* is not text in UTF-8"):
        ScoreTable(tmp_path, 2, "sampled")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def report(env: str, points: float) -> Report:
    return summarise([Game(0, points, 1, 4, "a", (Life(points, 1),))], env, "c", 1, False)


def test_the_mean_over_games_is_of_those_with_human_scores() -> None:
    pong = report(A, 49.9)  # random -20.7, human 14.6: (49.9 + 20.7) / 35.3 = 2
    breakout = report(B, 1.7)  # as random
    carnival = report("CarnivalNoFrameskip-v4", 5000.0)
    assert carnival.human_normalised is None
    assert mean_human_normalised([pong, carnival, breakout]) == pytest.approx(1.0)
    assert mean_human_normalised([carnival]) is None


def test_a_report_tells_lives_apart_only_where_there_are_several() -> None:
    many = summarise(games(3), A, "c", 1, greedy=False)
    assert (many.lives, many.mean_per_life) == (6, pytest.approx(10 / 6))
    assert "  per life  mean 1.67 over 6 lives" in many.lines()
    assert not any("per life" in line for line in report(A, 1.0).lines())
