import pytest

from ritornello.agent.testing.score_table import (
    GAME_COLUMNS,
    SCORES,
    SCORES_PER_LIFE,
    Game,
    Life,
    mean_human_normalised,
    report_stem,
    score_table,
    summarise,
)
from ritornello.core.errors import ConfigError

A, B = "PongNoFrameskip-v4", "BreakoutNoFrameskip-v4"


def games(count):
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


def test_an_interrupted_table_goes_on_where_it_was(tmp_path):
    with score_table(tmp_path, 2, "sampled") as table:
        table.add("a", 10, A, games(2))
        whole = (tmp_path / SCORES).read_text()
        table.add("a", 10, B, games(2))
        with pytest.raises(ConfigError, match="one such test at a time"):
            score_table(tmp_path, 2, "sampled").__enter__()
    expected = [(tmp_path / name).read_bytes() for name in (SCORES, SCORES_PER_LIFE)]
    with score_table(tmp_path, 2, "sampled") as again:
        assert again.has("a", 10, A)
        assert again.has("a", 10, B)
        assert not again.has("a", 11, A), "other weights under the same name"
    (tmp_path / SCORES).write_text(whole)  # killed between the two files
    with score_table(tmp_path, 2, "sampled") as again:
        assert not again.has("a", 10, B)
        again.add("a", 10, B, games(2))
    assert [(tmp_path / name).read_bytes() for name in (SCORES, SCORES_PER_LIFE)] == expected


def test_another_kind_of_test_is_refused_before_anything_is_lost(tmp_path):
    with score_table(tmp_path, 3, "sampled") as table:
        table.add("a", 10, A, games(3))
    before = (tmp_path / SCORES).read_text()
    for episodes, policy, told in (
        (3, "greedy", "3 games with sampled .* 3 with greedy.*--greedy=False"),
        (5, "sampled", "5 with sampled.*--test_episode_count=3"),
    ):
        with pytest.raises(ConfigError, match=told), score_table(tmp_path, episodes, policy):
            pass
    with score_table(tmp_path, 2, "sampled") as table:
        assert table.has("a", 10, A), "more games than asked for are fine"
    assert (tmp_path / SCORES).read_text() == before


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"model,score\na,1\n", "another table: expected the columns model_id,.*model,s"),
        (b"{head},note\na,20,A,1,1.5,0,1,4,1,sampled,ab,mine\n", "another table: .*,note"),
        (b"{head}\na,20\n", "is damaged"),
        (b"{head}\n\xff\n", "is not text in UTF-8"),
    ],
)
def test_a_table_that_is_not_ours_is_refused_and_stays(tmp_path, content, told):
    content = content.replace(b"{head}", ",".join(GAME_COLUMNS).encode())
    (tmp_path / SCORES).write_bytes(content)
    with pytest.raises(ConfigError, match=told), score_table(tmp_path, 2, "sampled"):
        pass
    assert (tmp_path / SCORES).read_bytes() == content


def report(env, points):
    return summarise([Game(0, points, 1, 4, "a", (Life(points, 1),))], env, "c", 1, False)


def test_any_name_of_a_checkpoint_gives_names_of_files(tmp_path):
    names = ("a" * 245, "a" * 244 + "b", "é" * 120, "." + "x" * 230)
    envs = ["AirRaidNoFrameskip-v4"] * 30
    stems = {report_stem(name, envs, "greedy (rules 01234567)", "other rules") for name in names}
    assert len(stems) == len(names)
    for stem in stems:
        (tmp_path / f"{stem}_episode100000_{envs[0]}.mp4.tmp").touch()
    assert report_stem("best", [A], "sampled") == f"test_best_{A}_sampled"


def test_the_mean_over_games_is_of_those_with_human_scores():
    pong = report(A, 49.9)  # random -20.7, human 14.6: (49.9 + 20.7) / 35.3 = 2
    breakout = report(B, 1.7)  # as random
    carnival = report("CarnivalNoFrameskip-v4", 5000.0)
    assert carnival.human_normalised is None
    assert mean_human_normalised([pong, carnival, breakout]) == pytest.approx(1.0)
    assert mean_human_normalised([carnival]) is None


def test_returns_of_any_size_are_shown_with_three_digits():
    games = [Game(0, points, 1, 4, "a", (Life(points, 1),)) for points in (0.0011, 0.0023)]
    small = summarise(games, "Small-v0", "c", 1, False).lines()[1]
    assert small == "  return  mean 0.00170  median 0.00170  std 0.00060  min 0.00110  max 0.00230"
    assert "  mean 21.00  median 21.00  " in report(A, 21.0).lines()[1]
