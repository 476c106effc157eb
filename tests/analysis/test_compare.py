import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from ritornello.analysis.compare import main
from ritornello.analysis.comparison import compare, over_games, page
from ritornello.analysis.runs import MAX_ROWS, find_runs
from ritornello.analysis.statistics import difference
from ritornello.core.errors import ConfigError
from ritornello.metrics.run_files import read_records
from tests.analysis.builders import write_run, write_sequence
from tests.house import ROOT
from tests.live.builders import make_run, record, write_records

PONG, BREAKOUT = "PongNoFrameskip-v4", "BreakoutNoFrameskip-v4"


@pytest.fixture
def two_games(tmp_path):
    groups = [
        (f"{name} env={env}", env, slope)
        for name, slope in (("queue", 0.01), ("elite 1", 0.02))
        for env in (PONG, BREAKOUT)
    ]
    return write_sequence(tmp_path / "sequence", groups)


def test_scores_are_taken_at_equal_steps_and_at_equal_time(tmp_path):
    # The fast one passes 500 steps after 25 s; the slow one has made 250 steps by then.
    write_run(tmp_path / "fast", seed=1, slope=0.1, end=500, steps_per_s=20)
    write_run(tmp_path / "slow", seed=2, slope=0.2, end=1000, steps_per_s=10)
    runs, _ = find_runs([f"fast={tmp_path}/fast", f"slow={tmp_path}/slow"])
    (game,) = compare(runs)
    assert (game.at_steps, game.at_seconds) == (500, 25.0)
    assert [row.label for row in game.rows] == ["slow", "fast"], "the best comes first"
    slow, fast = game.rows
    assert slow.scores == pytest.approx((0.2 * 500 + 2,))
    assert slow.by_time == pytest.approx((0.2 * 250 + 2,))
    assert fast.scores == fast.by_time == pytest.approx((0.1 * 500 + 1,))
    (game,) = compare(runs, at_steps=300)
    assert game.at_seconds == 15.0
    assert game.rows[0].scores == pytest.approx((62.0,))


def test_returns_between_which_no_line_can_be_drawn_are_none(tmp_path, capsys):
    for seed in (1, 2):
        file = write_run(tmp_path / f"{seed}", seed=seed) / "metrics.jsonl"
        whole, *changed = file.read_text().splitlines()
        for number, line in enumerate(changed):
            record = json.loads(line)
            odd = {"episode/return_mean": (-1) ** number * 1.7e308} if number % 3 else {}
            changed[number] = json.dumps({**record, "values": {**record["values"], **odd}})
        file.write_text("\n".join([whole, *changed, ""]))
    assert main([f"--runs=a={tmp_path}/1,a={tmp_path}/2", "--at_steps=450"]) == 0
    assert "451.5 (451.0 to 452.0)" in capsys.readouterr().out


def test_a_run_that_had_no_score_yet_at_equal_time_has_none_and_is_named(tmp_path):
    """The fast one ends after 1 s; the slow one has its first score after 2 s."""
    write_run(tmp_path / "fast", seed=1, end=100, steps_per_s=100)
    write_run(tmp_path / "slow", seed=2, end=100, records=5, steps_per_s=10)
    runs, _ = find_runs([f"fast={tmp_path}/fast", f"slow={tmp_path}/slow"])
    games = compare(runs)
    slow, fast = games[0].rows
    assert (fast.by_time, slow.by_time) == ((101.0,), ())
    text = page(games)
    assert "slow: no score at equal time, 1.0 s" in text
    assert "--log_interval_s=" not in text  # which it may have had
    (line,) = (line for line in text.splitlines() if line.startswith("| slow | 1 |"))
    assert "| - |" in line
    assert "nan" not in text
    assert all(np.isfinite(run.curve.mean_return).all() for run in (*fast.runs, *slow.runs))


def test_seeds_that_are_not_of_one_configuration_are_named(tmp_path):
    for seed, pixels in enumerate((True, "each", "each")):
        write_run(tmp_path / f"run{seed}", seed=seed, normalise_pixels=pixels)
    for number, found in enumerate(("run*", "run[12]")):
        runs, _ = find_runs([f"plain={tmp_path}/{found}"])
        text = page(compare(runs))
        said = "* plain: its runs differ in normalise_pixels\n" in text
        assert said == (number == 0), found
        output = f"--output={tmp_path / str(number)}"
        for places in (f"plain={tmp_path}/{found}", f"{tmp_path / str(number)}"):
            assert main([f"--runs={places}", output]) == 0
            assert (tmp_path / str(number) / "table.md").read_text() == text, places


def test_a_csv_that_was_sent_puts_nothing_into_a_page_but_one_line_of_text(tmp_path):
    for seed, pixels in enumerate((True, "each")):
        write_run(tmp_path / f"run{seed}", seed=seed, normalise_pixels=pixels)
    assert main([f"--runs=plain={tmp_path}/run*", f"--output={tmp_path / 'sent'}"]) == 0
    for csv in (tmp_path / "sent").glob("*.csv"):
        csv.write_text(csv.read_text().replace("normalise_pixels", r"\u001b[31mred\n# title"))
    runs, _ = find_runs([f"{tmp_path / 'sent'}"])
    text = page(compare(runs))
    assert "its runs differ in " in text
    assert "\x1b" not in text
    assert "\n# title" not in text


def test_runs_that_did_not_get_there_are_left_out_and_named(tmp_path):
    write_run(tmp_path / "a", seed=1)
    write_run(tmp_path / "b", seed=2, end=300, finished=False)
    runs, _ = find_runs([str(tmp_path)])
    (game,) = compare(runs)
    assert game.at_steps == 1000, "a run that is under way does not shorten the comparison"
    assert [run.about.seed for run in game.rows[0].runs] == [1]
    assert game.left_out == (
        f"{runs[1].source}: queue, seed 2: it has scores from 30 to 300 agent steps, but runs are "
        "compared at 1,000, where the shortest ends. Train it longer, or give --at_steps.",
    )
    assert "## Left out" in page([game])
    assert compare([runs[1]])[0].at_steps == 300, "better than nothing"
    (game,) = compare(runs, at_steps=200)
    assert len(game.rows[0].runs) == 2
    for nobody_is_there in (2000, 5):  # after the last end, and before the first game ended
        with pytest.raises(ConfigError, match="no run of Pong.* from 100 to 1,000 agent steps"):
            compare(runs, at_steps=nobody_is_there)


@pytest.mark.parametrize("words", [["--resume=base"], ["--op_mode", "train_w_load"]])
def test_the_past_of_a_run_that_goes_on_from_another_is_not_made_up(tmp_path, capsys, words):
    write_run(tmp_path / "base", seed=1, end=600)
    late = write_run(tmp_path / "late", seed=2, records=2)  # with the weights of a model folder
    fork = write_run(tmp_path / "fork", seed=3)
    records = [replace(each, updates=9) for each in read_records(fork) if each.agent_steps > 500]
    write_records(fork, records)
    for folder in (late, fork):
        info = json.loads((folder / "run.json").read_text())
        info["command_line"] = ["main.py", *words]
        (folder / "run.json").write_text(json.dumps(info))
    runs, out = f"a={tmp_path}/[blf]*", tmp_path / "out"
    assert main([f"--runs={runs}", "--at_steps=600", f"--output={out}"]) == 0
    assert "Left out" not in capsys.readouterr().out
    for places in (runs, str(out)):
        assert main([f"--runs={places}", "--area_to=600"]) == 0
        table, left_out = capsys.readouterr().out.split("## Left out")
        assert "| a | 2 |" in table
        assert "a, seed 3: it goes on from another run and begins at 600 agent steps" in left_out
    with pytest.raises(ConfigError, match="no run of .* it goes on from another run"):
        main([f"--runs={fork}", "--area_to=700"])
    (run,), _ = find_runs([str(fork)])
    curve = replace(run.curve, agent_steps=100 * run.curve.agent_steps)  # of 100,000 steps
    long = replace(run, curve=replace(curve, agent_steps=np.r_[600.0, curve.agent_steps[1:]]))
    assert compare([long], 90_000, by_area=True)[0].left_out == (), "what is missing is nothing"


def test_runs_without_common_steps_are_told_so(tmp_path):
    """Groups of a sequence of which one goes on from the other."""
    for seed, end in ((1, 600), (2, 650)):
        write_run(tmp_path / f"first{seed}", seed=seed, end=end)
        more = write_run(tmp_path / f"more{seed}", seed=seed, end=1300, records=26)
        write_records(more, [each for each in read_records(more) if each.agent_steps >= end])
    runs, _ = find_runs([f"{x}={tmp_path}/{x}*" for x in ("first", "more")])
    (game,) = compare(runs)
    (note,) = game.left_out
    assert note.endswith(
        "more, seed 2: it has scores from 650 to 1,300 agent steps, but runs are compared at 600, "
        "where the shortest ends. There are no steps at which all of them have scores: leave some "
        "out, or give --at_steps."
    )


def test_over_games_counts_only_configurations_that_have_them_all(two_games, tmp_path):
    runs, _ = find_runs([str(two_games), f"only pong={write_run(tmp_path / 'p', seed=1)}"])
    scores = {game.env: {r.label: r.scores for r in game.rows} for game in compare(runs)}
    whole = over_games(scores)
    assert list(whole) == ["elite 1", "queue"]
    # queue at 1000 steps scores 11 and 12 in both games; of the four normalised scores the lowest
    # and the highest are left out.
    pong = [(x + 20.7) / 35.3 for x in (11, 12)]
    breakout = [(x - 1.7) / 28.8 for x in (11, 12)]
    middle = sorted(pong + breakout)[1:3]
    assert whole["queue"].value == pytest.approx(sum(middle) / 2)
    assert over_games({PONG: scores[PONG]}) == {}, "one game is no mean over games"


def test_the_files_make_the_same_table_as_the_runs(two_games, tmp_path, capsys):
    output = tmp_path / "docs"
    assert main([f"--sequence_folder={two_games}", f"--output={output}"]) == 0
    first = (output / "table.md").read_text()
    shown = capsys.readouterr().out
    assert shown == f"{first}written to {output}: table.md, curves.png, 8 CSV files\n"
    assert (output / "curves.png").read_bytes().startswith(b"\x89PNG")
    names = sorted(path.name for path in output.glob("*.csv"))
    assert len(names) == 8
    assert names[0] == f"elite-1_{BREAKOUT}_seed1.csv"
    assert all(len(p.read_text().splitlines()) <= MAX_ROWS + 2 for p in output.glob("*.csv"))
    contents = [(output / name).read_text() for name in names]
    assert main([f"--runs={output}", f"--output={output}"]) == 0
    assert (output / "table.md").read_text() == first
    assert [(output / name).read_text() for name in names] == contents
    # elite 1: 21 and 22 points at 1000 steps, mean 21.5; (21.5 + 20.7) / 35.3 = 119.5 %.
    assert "| elite 1 | 2 | 21.5 (21.0 to 22.0) | 119.5 (118.1 to 121.0) % |" in first
    assert "Human-normalised, over games" in first
    assert first.count("`python multi_train.py --sequence=mine.yaml -- --lr=0.1`") == 1


@pytest.mark.process
def test_a_comparison_needs_no_torch(tmp_path):
    folder = write_run(tmp_path / "a", seed=1)
    code = (
        "import sys; from ritornello.analysis.__main__ import main; "
        f"assert main(['compare', '--runs={folder}', '--output={tmp_path}/out']) == 0; "
        "assert 'torch' not in sys.modules"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr


def test_runs_are_scored_game_by_game_and_the_best_comes_first(tmp_path):
    for seed in (2, 1):
        write_run(tmp_path / f"low{seed}", seed=seed, slope=0.1)
        write_run(tmp_path / f"high{seed}", seed=seed, slope=0.2)
        write_run(tmp_path / f"other{seed}", seed=seed, slope=-0.1, env=BREAKOUT)
    runs, _ = find_runs([f"{x}={tmp_path}/{x}*" for x in ("low", "high", "other")])
    breakout, pong = compare(runs, 500, by_area=True)
    assert (breakout.env, pong.env) == (BREAKOUT, PONG)
    assert [row.label for row in pong.rows] == ["high", "low"]
    # The line begins with its first record, at 100 steps: 100 * 30 + 400 * 60 at slope 0.2.
    assert pong.rows[0].scores == pytest.approx([(100 * 20 + 400 * 60) / 500 + s for s in (1, 2)])


def test_the_table_gives_differences_to_a_configuration(tmp_path):
    for seed in (1, 2, 3):
        write_run(tmp_path / f"a{seed}", seed=seed, slope=0.2, env=BREAKOUT)
        write_run(tmp_path / f"b{seed}", seed=3 * seed, slope=0.1, env=BREAKOUT)
    runs, notes = find_runs([f"{x}={tmp_path}/{x}*" for x in "ab"])
    games = compare(runs, 1000, by_area=True)
    text = page(games, notes, against="b")
    assert "| mean return over 0 to 1,000 agent steps |" in text
    a, b = (row.scores for row in games[0].rows)
    shown = difference(a, b)
    assert shown.low is not None
    assert f"| {shown.value:,.1f} [{shown.low:,.1f}, {shown.high:,.1f}] |" in text
    output = tmp_path / "output"
    with pytest.raises(ConfigError, match="has no such configuration; there are 'a', 'b'"):
        main([f"--runs=a={tmp_path}/a*,b={tmp_path}/b*", "--against=c", f"--output={output}"])
    assert not output.exists(), "no folder and no file of an answer that is refused"


def test_the_files_of_long_runs_say_of_every_score_what_the_runs_say(tmp_path, capsys):
    noise = np.random.default_rng(1).normal(0, 2, (4, 900))
    for seed, deviations in enumerate(noise):
        scores = 25 - 25 * np.exp(-np.arange(900) / 400) + deviations
        records = [record(n, score=score) for n, score in enumerate(scores.tolist(), 1)]
        make_run(tmp_path / "runs", f"{seed % 2}_{seed}", records, seed=seed)
    runs = ",".join(f"{x}={tmp_path}/runs/{x}_*" for x in "01")
    for options in ([], ["--at_steps=43210"], ["--area_to=54321"]):
        output = tmp_path / f"out{len(list(tmp_path.iterdir()))}"
        for asked in (options, ["--to_score=10"], ["--profiles", *options]):
            pages = []
            for places in (runs, output):
                written = [f"--output={output}"] if asked is options and places == runs else []
                assert main([f"--runs={places}", *asked, *written]) == 0
                pages.append(capsys.readouterr().out.partition("written to")[0])
            assert pages[0] == pages[1], asked


def test_scores_of_every_size_are_told_apart(tmp_path, capsys):
    """As FrozenLake has them, and the rewards of a stock exchange."""
    for label, scores in (
        ("high", (0.74, 0.75, 0.76, 0.77, 0.78)),
        ("low", (0.65, 0.66, 0.67, 0.68, 0.69)),
        ("more", (4.8e-5,) * 5),
        ("less", (1.2e-5,) * 5),
    ):
        for seed, score in enumerate(scores):
            records = [record(n, score=score) for n in range(1, 4)]
            make_run(tmp_path, f"{label}{seed}", records, seed=seed)

    def said(*options):
        labels = options[0].split(",")
        places = ",".join(f"{label}={tmp_path}/{label}*" for label in labels)
        assert main([f"--runs={places}", *options[1:]]) == 0
        return capsys.readouterr().out

    text = said("high,low", "--against=high")
    for shown in ("| high | 5 | 0.760 [0.743, 0.777] |", "| -0.090 [-0.113, -0.067] |"):
        assert shown in text, text
    assert "seed0.csv | 0.740 | 0.740 |" in text
    assert "score 0.660" in said("high,low", "--to_score=0.66")
    text = said("more,less", "--profiles", f"--output={tmp_path}/out")
    assert "| more |  | 100.0 [100.0, 100.0] % |" in text
    assert "| more | 5 | 4.80e-05 [" in text
    for label, score in (("more", "4.8e-05"), ("less", "1.2e-05")):
        assert f",{score}\n" in (tmp_path / f"out/{label}_{PONG}_seed0.csv").read_text()


def test_scores_at_a_moment_and_areas_are_not_asked_for_together():
    with pytest.raises(ConfigError, match="leave --at_steps out"):
        main(["--runs=x", "--area_to=9", "--at_steps=5"])
