import pytest

from ritornello.analysis.compare import main
from ritornello.analysis.compare_scores import read_tables, scores_page
from ritornello.core.errors import ConfigError

PONG, BREAKOUT = "PongNoFrameskip-v4", "BreakoutNoFrameskip-v4"
HEAD = "model_id,model_steps,env,episode_steps,episode_return"


def write_table(folder, means, *, games=4, shift=0.0, more="", name="scores.csv"):
    """Write a table of two checkpoints; returns are mean - 1, mean + 1, mean - 1, ..."""
    folder.mkdir(exist_ok=True)
    lines = [HEAD + (f",{more}" if more else "")]
    for steps, factor in ((2000, 1.0), (1000, 0.5)):  # the order of the file does not matter
        for env, mean in means.items():
            for game in range(games):
                returned = factor * mean + shift + (1 if game % 2 else -1)
                lines.append(
                    f"update_{steps},{steps},{env},{100 + game},{returned}" + ",1" * bool(more)
                )
    (folder / name).write_text("\n".join(lines) + "\n")
    return folder


def test_agents_are_compared_by_their_newest_checkpoint(tmp_path):
    one = write_table(tmp_path / "one", {PONG: 10, BREAKOUT: 20})
    two = write_table(tmp_path / "two", {PONG: 14, BREAKOUT: 40}, more="games")
    text = scores_page(read_tables([str(one), f"better={two}/scores.csv"]))
    lines = text.splitlines()
    pong = lines.index(f"## {PONG}")
    # (14 + 20.7) / 35.3 = 98.3 %
    assert lines[pong + 4].startswith("| better | 2,000 | 1 | 4 | 14.0 (13.0 to 15.0) | 102 | 98.3")
    assert lines[pong + 5].startswith("| one | 2,000 | 1 | 4 | 10.0 (9.0 to 11.0) | 102 | 87.0")
    # Mean of 98.3 % and (40 - 1.7) / 28.8 = 133.0 %.
    assert "| better | 115.6" in text
    earlier = scores_page(read_tables([str(one)]), at_steps=1999)
    assert "| one | 1,000 | 1 | 4 | 5.00 (4.00 to 6.00) |" in earlier
    later = write_table(tmp_path / "later", {BREAKOUT: 90})
    other = tmp_path / "other.csv"
    other.write_text((later / "scores.csv").read_text().replace("1000,", "1500,"))
    for places in ([f"same={one}", f"same={other}"], [str(one), str(other)], [str(other)]):
        with pytest.raises(ConfigError, match="other.csv was tested in Breakout.* has 1,500"):
            scores_page(read_tables(places), at_steps=1400)


def test_tables_of_one_label_are_seeds(tmp_path):
    places = [f"mine={write_table(tmp_path / str(n), {PONG: 10}, shift=n)}" for n in (0, 2, 7)]
    text = scores_page(read_tables(places))
    assert "| mine | 2,000 | 3 | 12 | 13.0 (10.0 to 17.0) |" in text
    only = scores_page(read_tables([f"mine={tmp_path}/[027]"]))
    assert only == text, "a pattern is as good"


def test_the_command_writes_page_and_figure(tmp_path, capsys):
    one = write_table(tmp_path / "one", {PONG: 10, BREAKOUT: 20, "CartPole-v1": 30})
    two = write_table(tmp_path / "two", {PONG: 5})
    output = tmp_path / "out"
    assert main([f"--scores={one},{two}", f"--output={output}"]) == 0
    assert (output / "scores.md").read_text() in capsys.readouterr().out
    assert (output / "scores.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(ConfigError, match="leave out what is of trainings"):
        main([f"--scores={one}", f"--runs={one}"])


def test_a_table_counts_once(tmp_path):
    one = write_table(tmp_path / "one", {PONG: 10})
    two = write_table(tmp_path / "two", {PONG: 14})
    (tmp_path / "link").symlink_to(one)
    for places in ([str(one), str(two), f"{tmp_path}/link"], [f"a={one}", f"b={one}"]):
        with pytest.raises(ConfigError, match="scores.csv is given twice"):
            read_tables(places)
    lives = write_table(tmp_path / "lives", {PONG: 3}, more="life", name="scores_per_life.csv")
    with pytest.raises(ConfigError, match="whole games and others single lives"):
        read_tables([f"{lives}/scores_per_life.csv", str(one)])
    (one / "scores.csv").write_text((one / "scores.csv").read_text() + "\n\n")  # by an editor
    assert len(read_tables([str(one), str(two)])) == 2


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a,b\n1,2\n", "is another table: .* got a,b"),
        (HEAD + "\n", "holds no game yet"),
        (f"{HEAD}\nm,1,{PONG},1\n", "scores.csv is damaged"),
        (f"{HEAD}\nm,1,{PONG},1,-1.7e308\n", "scores.csv is damaged .*too large"),
        (f"{HEAD}\nm,1,P\udcffng,1,1\n", "is not text in UTF-8"),
    ],
)
def test_what_is_no_table_is_refused(tmp_path, text, said):
    with pytest.raises(
        ConfigError, match=r"there is no scores.csv.*main.py --test=<run> --test_all"
    ):
        read_tables([str(tmp_path)])
    (tmp_path / "scores.csv").write_text(text, encoding="utf-8", errors="surrogateescape")
    with pytest.raises(ConfigError, match=said):
        read_tables([str(tmp_path)])
