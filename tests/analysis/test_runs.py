import json
import math
import os
import shutil
from dataclasses import replace

import numpy as np
import pytest

from ritornello.analysis.comparison import compare
from ritornello.analysis.options import matching, places_in, split_label
from ritornello.analysis.run_facts import own_commands
from ritornello.analysis.runs import HIGHS, MAX_ROWS, find_runs, write_csv
from ritornello.analysis.to_score import arrival
from ritornello.core.errors import ConfigError
from ritornello.metrics.curve import curve_of
from ritornello.metrics.run_files import read_records
from tests.analysis.builders import MIXED, write_run, write_run_of_games, write_sequence
from tests.live import builders as live
from tests.live.builders import write_records


def labels(runs):
    return [run.about.label for run in runs]


def test_runs_are_found_below_a_folder_and_know_what_they_are(tmp_path):
    write_run(tmp_path / "deep" / "a", seed=1)
    write_run(tmp_path / "b", seed=2, finished=False)
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    runs, notes = find_runs([str(tmp_path)])
    second, first = runs
    assert (first.about.seed, second.about.seed, notes) == (1, 2, [])
    assert (first.about.finished, second.about.finished) == (True, False)
    assert first.about.env == "PongNoFrameskip-v4"
    assert first.about.best == 1010.0
    assert first.about.commit == "0123456789ab"
    assert first.about.machine == "Abacus, 2 cores"
    assert first.about.command == "python main.py --env=PongNoFrameskip-v4 --seed=<seed>"
    assert first.curve.agent_steps.tolist() == list(range(100, 1001, 100))
    assert first.curve.at_steps(500) == 501.0


def test_scores_are_not_taken_where_a_run_was_interrupted(tmp_path):
    for seed in (1, 2):
        write_run(tmp_path / str(seed), seed=seed)
    stopped = write_run(tmp_path / "3", seed=3, end=50)
    (stopped / "summary.json").write_text('{"reason": "interrupted"}')
    runs, _ = find_runs([str(tmp_path)])
    (game,) = compare(runs)
    assert game.at_steps == 1000
    assert [note.partition(":")[0] for note in game.left_out] == [str(stopped)]


def test_a_label_may_be_given_and_else_says_what_differs(tmp_path):
    write_run(tmp_path / "a", seed=1)
    write_run(tmp_path / "b", seed=1, replay_parameters=MIXED)
    write_run(tmp_path / "c", seed=1, replay_parameters=MIXED, batch_size=4, charts=True)
    # Other presets of another kind of environment are no difference.
    write_run(tmp_path / "d", seed=1, env="CartPole-v1", batch_size=8, model="mlp")
    runs, _ = find_runs([str(tmp_path)])
    assert labels(runs) == [
        "queue sample_ratio=1.0 batch_size=8",
        "queue sample_ratio=0.5 + standard batch_size=8",
        "queue sample_ratio=0.5 + standard batch_size=4",
        "queue sample_ratio=1.0 batch_size=8",
    ]
    runs, _ = find_runs([f"mine={tmp_path}/a", f"other={tmp_path}/[bd]"])
    assert labels(runs) == ["mine", "other", "other"]
    runs, _ = find_runs([str(tmp_path / "[ac]")], by="batch_size")
    assert labels(runs) == ["batch_size=8", "batch_size=4"]
    by = "batch-size, unroll_length"  # names that --help has
    runs, _ = find_runs([str(tmp_path / "[ac]")], by=by)
    assert labels(runs) == ["batch_size=8 r_f_steps=20", "batch_size=4 r_f_steps=20"]


def test_a_sequence_gives_its_groups_as_labels_over_games(tmp_path):
    pong, breakout = "PongNoFrameskip-v4", "BreakoutNoFrameskip-v4"
    folder = write_sequence(
        tmp_path / "sequence",
        [
            (f"elite 1 env={pong} use_kl_mask=true", pong, 1.0),
            (f"elite 1 env={breakout}", breakout, 1),
        ],
    )
    runs, _ = find_runs([str(folder)])
    assert labels(runs) == ["elite 1 use_kl_mask=true", "elite 1"] * 2
    assert all(run.about.finished for run in runs), "the sequence says so, not the run's summary"
    assert runs[0].about.command == "python multi_train.py --sequence=mine.yaml -- --lr=0.1"
    (folder / "tuning.json").write_text("{}")  # as in the folder of a search
    (run, *_), _ = find_runs([str(folder)])
    assert run.about.command == "python multi_train.py --tune=mine.yaml -- --lr=0.1"
    for name in ("metrics.jsonl", "flags.json"):  # somebody has copied a run over it
        shutil.copy(run.source / name, folder)
    assert labels(find_runs([str(folder)])[0]) == labels(runs)


@pytest.mark.parametrize("records", [10, MAX_ROWS, 3000])
def test_a_curve_is_short_and_keeps_ends_area_and_when_a_score_was_first_reached(tmp_path, records):
    scores = np.random.default_rng(1).normal(0, 2, records) + np.linspace(0, 40, records)
    made = [live.record(n, score=score) for n, score in enumerate(scores.tolist(), 1)]
    (run,), _ = find_runs([f"x={live.make_run(tmp_path, 'a', made)}"])
    curve, whole = run.curve, curve_of(made)
    assert len(curve.agent_steps) <= MAX_ROWS
    assert curve.agent_steps[[0, -1]].tolist() == whole.agent_steps[[0, -1]].tolist()
    end = whole.agent_steps[-1]
    assert curve.area(end) == pytest.approx(whole.area(end), rel=0.02)
    for score in range(1, 40):
        late = arrival(curve, score).agent_steps - arrival(whole, score).agent_steps
        assert abs(late) <= end / HIGHS, score
    if records <= MAX_ROWS:
        assert curve.agent_steps.tolist() == whole.agent_steps.tolist()


def test_a_csv_gives_back_the_run_that_was_written(tmp_path):
    write_run(tmp_path / "a", seed=3, slope=1 / 3)
    # The last two end a line for str.splitlines, and not in a file.
    (run,), _ = find_runs([f"half | half\u2028\x85={tmp_path}/a"])
    path = write_csv(run, tmp_path)
    assert path.name == "half-half_PongNoFrameskip-v4_seed3.csv"
    (back,), _ = find_runs([str(path)])
    assert back.about == run.about
    for name in ("agent_steps", "wall_s", "mean_return"):
        np.testing.assert_array_equal(getattr(back.curve, name), getattr(run.curve, name))
    assert back.curve.best == run.curve.best


@pytest.mark.parametrize(("one", "other"), [("α", "β"), ("λ 1", "μ 1"), ("x" * 100, "x" * 101)])
def test_labels_that_no_file_name_holds_are_told_apart(tmp_path, one, other):
    write_run(tmp_path / "a", seed=1)
    write_run(tmp_path / "b", seed=1)
    runs, _ = find_runs([f"{one}={tmp_path}/a", f"{other}={tmp_path}/b"])
    paths = [write_csv(run, tmp_path) for run in runs]
    assert labels(find_runs(list(map(str, paths)))[0]) == [one, other]
    assert all(path.name.isascii() for path in paths)


def test_what_cannot_be_compared_is_refused_or_noted(tmp_path):
    write_run(tmp_path / "a", seed=1)
    write_run(tmp_path / "b", seed=1)
    with pytest.raises(ConfigError, match="both seed 1 of 'queue'"):
        find_runs([str(tmp_path)])
    with pytest.raises(ConfigError, match="would both be written to"):
        find_runs([f"x y={tmp_path}/a", f"x/y={tmp_path}/b"])
    with pytest.raises(ConfigError, match="holds no run"):
        find_runs([str(tmp_path / "nowhere*")])
    with pytest.raises(ConfigError, match="no flag 'bacth_size'"):
        find_runs([str(tmp_path / "a")], by="bacth_size")
    (tmp_path / "a" / "metrics.jsonl").write_text("")
    _, notes = find_runs([str(tmp_path)])
    assert notes == [f"{tmp_path}/a: no game was finished."]
    with pytest.raises(ConfigError, match="no run has finished a game"):
        find_runs([str(tmp_path / "a")])
    (tmp_path / "b" / "run.json").write_text("[]")
    with pytest.raises(ConfigError, match="flags.json or run.json cannot be read"):
        find_runs([str(tmp_path / "b")])
    (tmp_path / "b" / "flags.json").write_text("{")
    with pytest.raises(ConfigError, match="flags.json or run.json cannot be read"):
        find_runs([str(tmp_path / "b")])


def test_a_game_that_is_only_known_has_no_curve_and_the_other_has_all_steps(tmp_path):
    folder = write_run_of_games(tmp_path / "a", seed=1, shares=(0, 2))
    (run,), _ = find_runs([str(folder)])
    assert run.about.env == "BreakoutNoFrameskip-v4"
    assert run.curve.agent_steps[-1] == 1000


def test_a_resume_with_other_shares_leaves_each_game_the_steps_that_were_played_of_it(tmp_path):
    folder = write_run_of_games(tmp_path / "a", seed=1, shares=(0, 1))
    records = read_records(folder)
    for number, record in enumerate(records):
        pong = min(record.agent_steps, 400) // 2  # the first session played both games
        steps = {"episode/agent_steps_0": pong, "episode/agent_steps_1": record.agent_steps - pong}
        records[number] = replace(record, values={**record.values, **steps})
    write_records(folder, records)
    (pong, breakout), _ = find_runs([str(folder)])
    assert pong.curve.agent_steps.tolist() == [50, 100, 150, 200]
    assert breakout.curve.agent_steps.tolist() == [50, 100, 150, 200, *range(300, 801, 100)]
    assert breakout.curve.at_steps(800) == 2000


def test_a_run_of_several_games_counts_in_each_with_its_share_of_the_steps(tmp_path):
    write_run_of_games(tmp_path / "both", seed=1, shares=(3, 1))
    write_run(tmp_path / "pong", seed=1)
    runs, _ = find_runs([str(tmp_path)])
    pong, breakout, alone = runs
    assert (pong.about.env, breakout.about.env) == ("PongNoFrameskip-v4", "BreakoutNoFrameskip-v4")
    assert pong.curve.agent_steps.tolist() == [75 * n for n in range(1, 11)]
    assert breakout.curve.agent_steps.tolist() == [25 * n for n in range(1, 11)]
    assert pong.curve.at_steps(750) == pytest.approx(100)
    assert breakout.curve.at_steps(250) == pytest.approx(2000)
    assert (pong.about.best, breakout.about.best) == (None, 3000)
    assert pong.curve.wall_s[-1] == alone.curve.wall_s[-1] == 100
    assert "2 games" in pong.about.label
    assert "games" not in alone.about.label
    even, _ = find_runs([f"x={write_run_of_games(tmp_path / 'even', seed=2)}"])
    assert [run.about.label for run in even] == ["x", "x"]
    assert even[1].curve.agent_steps[-1] == 500
    path = write_csv(even[1], tmp_path)
    (back,), _ = find_runs([str(path)])
    np.testing.assert_array_equal(back.curve.mean_return, even[1].curve.mean_return)


def test_seeds_that_differ_in_no_learning_are_one_configuration(tmp_path):
    write_run(tmp_path / "a", seed=1, run_name="a", device="cpu", preset=None, worker_timeout=1.0)
    write_run(tmp_path / "b", seed=2, run_name="b", device="cuda", preset="sticky")
    assert len(set(labels(find_runs([str(tmp_path)])[0]))) == 1
    write_run(tmp_path / "c", seed=3, learner_count=2)  # several learn from as many batches
    assert len(set(labels(find_runs([str(tmp_path)])[0]))) == 2


def test_a_flag_that_is_newer_than_a_run_has_its_default_there(tmp_path):
    before = write_run(tmp_path / "before", seed=1)
    write_run(tmp_path / "usual", seed=2, layer_norm="none")
    write_run(tmp_path / "with", seed=3, layer_norm="all")
    same, _ = find_runs([str(before), str(tmp_path / "usual")])
    assert labels(same) == ["queue"] * 2
    for by in ("label", "layer_norm"):
        found = labels(find_runs([str(tmp_path)], by=by)[0])
        words = [f"layer_norm={value}" for value in ("none", "none", "all")]
        assert found == [word if by != "label" else f"queue {word}" for word in words]


def test_what_lies_among_runs_and_is_none_is_passed_over(tmp_path):
    results = tmp_path / "results=1"  # a sign that also ends labels
    run = write_run(results / "a", seed=1)
    (results / "itself").symlink_to("itself")
    (results / "back").symlink_to(results)
    os.mkfifo(results / "pipe.csv")
    (results / "latin.csv").write_bytes("Größe,Höhe\n1,2\n".encode("latin-1"))
    for place in (results, f"x={results}", f"lr=0.1={run}*"):
        runs, notes = find_runs([str(place)])
        assert ([each.source for each in runs], notes) == ([run], [])
    assert runs[0].about.label == "lr=0.1"
    for name in ("itself", "pipe.csv", "latin.csv"):
        with pytest.raises(ConfigError, match="holds no run"):
            find_runs([str(results / name)])


def test_damaged_flags_are_one_message_and_left_out_among_others(tmp_path):
    bad = write_run(tmp_path / "bad", seed=1)
    own = json.loads((bad / "flags.json").read_text())
    write_run(tmp_path / "a", seed=2)
    for name, value in (("seed", "1"), ("env_shares", [1, 2]), ("replay_parameters", [5])):
        (bad / "flags.json").write_text(json.dumps({**own, name: value}))
        with pytest.raises(ConfigError, match=f"{bad} has metrics.*cannot be read.*{name}"):
            find_runs([str(bad)])
        runs, (note,) = find_runs([str(tmp_path)])
        assert [run.about.seed for run in runs] == [2]
        assert note.startswith(f"{bad} has metrics.jsonl, but its flags.json")


def test_a_damaged_csv_is_named(tmp_path):
    (run,), _ = find_runs([f"x={write_run(tmp_path / 'a', seed=1)}"])
    path = write_csv(run, tmp_path)
    first, rest = path.read_text().split("\n", 1)
    texts = [f"{first}\n{rest}12,13\n", f"{first}\n{rest}12,13,nan\n"]
    texts.append(f"{first}\n{rest}12,13,-1.7e308\n")
    columns = rest.split("\n")[0]
    texts += [f"{first}\n{columns}\n{rows}\n" for rows in ("1,2\n3,4\n5,6", "1,2,3,4,5,6")]
    for name, value in (("label", ""), ("seed", True), ("commit", "\ud800"), ("best", math.nan)):
        texts.append(f"# {json.dumps({**json.loads(first[2:]), name: value})}\n{rest}")
    for text in texts:
        path.write_text(text)
        with pytest.raises(ConfigError, match=rf"{path.name} is damaged \("):
            find_runs([str(path)])


@pytest.mark.parametrize("folder", ["b[1]", "b*"])
def test_a_folder_that_exists_is_no_pattern_wherever_it_stands(tmp_path, folder):
    for each in ("b1", folder):
        (tmp_path / each / "run").mkdir(parents=True)
    assert matching(str(tmp_path / folder)) == [tmp_path / folder]
    assert matching(str(tmp_path / folder / "r*")) == [tmp_path / folder / "run"]
    assert tmp_path / "b1" in matching(str(tmp_path / "b1*"))
    assert matching(str(tmp_path / "none" / "*")) == []


def test_a_comma_within_a_path_that_is_there_ends_no_place(tmp_path):
    odd = tmp_path / "first, then" / "a,b"
    for each in (odd, tmp_path / "c"):
        each.mkdir(parents=True)
    for places in ([f"{odd}"], [f"x={odd}", f"{tmp_path}/c"], ["typo", f"y={tmp_path}/first, t*"]):
        assert places_in(",".join(places)) == places
    wrong = [f"x={tmp_path}/typo", f"y={tmp_path}/c"]
    assert places_in(",".join(wrong)) == wrong, "the second is no end of the first, with a label"
    assert places_in(f",{odd.parent}/*,,") == [f"{odd.parent}/*"]
    assert split_label("x=") == (None, "x="), "an empty place is not the present folder"


def test_the_command_of_a_run_names_no_folder_of_its_machine_however_it_was_resumed():
    started = ["main.py", "--env=CartPole-v1", "--run-name", "a", "--seed=3", "--lr", "0.1"]
    resumed = ["main.py", "--resume=/home/me/a b", "--environment_max_steps=3000"]
    older = ["main.py", "--op_mode=train_w_load", "--load_model_url=/home/me/a", "--gamma=0.9"]
    repeated = ["main.py", "--resume_or_start=/home/me/a", "--env=CartPole-v1"]
    sessions = [{"command_line": line} for line in (started, resumed, older, repeated)]
    assert own_commands(sessions) == [
        "python main.py --env=CartPole-v1 --lr 0.1 --seed=<seed>",
        "python main.py --environment_max_steps=3000 --resume=<run>",
        "python main.py --gamma=0.9 --resume=<run>",
        "python main.py --env=CartPole-v1 --resume=<run>",
    ]
