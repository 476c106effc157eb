import numpy as np
import pytest

from ritornello.analysis.compare import main
from ritornello.analysis.comparison import GameComparison, Row
from ritornello.analysis.profiles import (
    MAX_PAIRED,
    improvement_table,
    profiles_figure,
    profiles_page,
)
from ritornello.analysis.profiles import scored_of as scored_of_games
from ritornello.core.errors import ConfigError
from tests.analysis.builders import write_run

PONG, BREAKOUT, POLE = "PongNoFrameskip-v4", "BreakoutNoFrameskip-v4", "CartPole-v1"
SCORES = {
    PONG: {"low": [-20.7, -20.7], "high": [14.6, 14.6]},
    BREAKOUT: {"low": [1.7, 1.7], "high": [30.5, 30.5]},
}


def scored_of(scores):
    return scored_of_games(
        [
            GameComparison(env, 1.0, tuple(Row(x, (), tuple(y)) for x, y in of.items()), ())
            for env, of in sorted(scores.items())
        ]
    )


def test_games_are_put_on_one_scale_and_the_best_comes_first():
    scored = scored_of(SCORES)
    assert scored.unit == "human-normalised score"
    assert list(scored.raw) == ["high", "low"]
    assert scored.scaled["high"] == [[pytest.approx(1.0)] * 2] * 2
    axes = profiles_figure(scored).axes[0]
    for line, score in zip(axes.lines, (1.0, 0.0), strict=True):
        levels, share = line.get_data()
        assert levels[0] < 0.0
        assert levels[-1] > 1.0
        np.testing.assert_array_equal(share, (levels < score).astype(float))


def test_one_game_keeps_its_own_scale():
    text = profiles_page(scored_of({POLE: {"a": [100.0, 200.0, 300.0], "b": [50.0, 60.0]}}), "it")
    assert "## As raw return" in text
    assert "| a | 3 | 200.0 (100.0 to 300.0) |" in text
    assert "| a |  | 100.0 % |" in text
    assert "| b | 0.0 % |  |" in text


def test_what_cannot_be_compared_is_said():
    scored = scored_of({**SCORES, POLE: {"low": [1.0], "high": [0.5], "third": [9.0]}})
    assert list(scored.raw) == ["high", "low"]
    text = profiles_page(scored, "return", ["a run that is damaged"])
    for note in (
        "a run that is damaged",
        "third: it has no run in one",
        f"{POLE}: it has no human",
    ):
        assert f"* {note}" in text
    # Pairs of all three games: won in two, lost in one; one run of a game, so no interval.
    assert "| high |  | 66.7 % |" in text
    assert "| high | 4 | 100.0 % |" in text
    unknown = scored_of({POLE: {"a": [1.0]}, "Acrobot-v1": {"a": [2.0]}})
    assert unknown.scaled == {}
    assert profiles_figure(unknown) is None
    with pytest.raises(ConfigError, match="no configuration has runs in all games"):
        scored_of({POLE: {"a": [1.0]}, PONG: {"b": [2.0]}})


def test_pairs_are_the_complement_of_each_other_and_their_number_is_bounded():
    rng = np.random.default_rng(0)
    raw = {f"c{n}": [rng.normal(n / 4, 1.0, 6).tolist()] for n in range(3)}
    headings, rows = improvement_table(raw)
    assert headings == ["better than", "c0", "c1", "c2"]
    shown = [[float(cell.split(" ")[0]) if cell else 50.0 for cell in row[1:]] for row in rows]
    np.testing.assert_allclose(np.array(shown) + np.array(shown).T, 100.0, atol=0.11)
    low, high = (float(x.strip("[],")) for x in rows[0][2].split(" ")[1:3])
    back = [float(x.strip("[],")) for x in rows[1][1].split(" ")[1:3]]
    assert back == pytest.approx([100 - high, 100 - low], abs=0.11)
    many = {f"c{n}": [[float(n)]] for n in range(MAX_PAIRED + 5)}
    assert len(improvement_table(many)[1]) == MAX_PAIRED


def test_the_command_writes_the_page_and_the_figure(tmp_path, capsys):
    for env in (PONG, BREAKOUT):
        for seed in (1, 2):
            write_run(tmp_path / f"a{env}{seed}", seed=seed, env=env, slope=0.02)
            write_run(tmp_path / f"b{env}{seed}", seed=seed, env=env, slope=0.01)
    write_run(tmp_path / "short", seed=3, env=PONG, slope=0.02, end=400, finished=False)
    out = tmp_path / "out"
    places = ",".join([f"a={tmp_path}/a*", f"b={tmp_path}/b*", f"a={tmp_path}/short"])
    assert main([f"--runs={places}", "--profiles", f"--output={out}"]) == 0
    text = (out / "profiles.md").read_text()
    assert text in capsys.readouterr().out
    assert "| a |  | 100.0 % |" in text
    assert "short: a, seed 3: it has scores from 40 to 400 agent steps" in text
    assert (out / "profiles.png").read_bytes().startswith(b"\x89PNG")
    assert len(list(out.glob("*.csv"))) == 8, "short was left out"
    assert main([f"--runs={places}", "--profiles", "--area_to=400"]) == 0
    assert "mean raw return over the agent steps from 0 on" in capsys.readouterr().out
