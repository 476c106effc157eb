import copy
import csv
import errno
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ritornello.agent.acting.actor import Observation
from ritornello.agent.stored.checkpoint import Checkpoint, load
from ritornello.agent.stored.checkpoint_writer import CheckpointWriter
from ritornello.agent.testing import evaluator, whole_games
from ritornello.agent.testing.evaluator import evaluate, evaluate_all
from ritornello.agent.testing.player import Player
from ritornello.agent.testing.score_table import SHARED_COLUMNS, Life, report_stem
from ritornello.agent.testing.whole_games import Lives
from ritornello.core.episode import EpisodeEnd
from ritornello.core.errors import ConfigError
from ritornello.wrappers.vector import StepResult
from tests.agent.runs import COUNTING, make_blueprint, saved_state, silent
from tests.worlds import ReachEnv

OWING = "tests.fakes:tests/Owing-v0"  # as COUNTING, with rewards below zero
REACH = "tests.worlds:tests/Reach-v0"
BREAKOUT = "BreakoutNoFrameskip-v4"


def agent(tmp_path, env=COUNTING, **flags):
    """A blueprint, and the checkpoint of its first weights."""
    blueprint = make_blueprint(env, **flags)
    return blueprint, Checkpoint(tmp_path / "some.pt", saved_state(blueprint))


def read_rows(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


class Recorder(Player):
    """Keeps what a model was shown and what it did."""

    seen: list[tuple[Observation, np.ndarray]]

    def step(self, action=None):
        shown = copy.deepcopy(self.observation)
        step = super().step(action)
        self.seen.append((shown, step.action.copy()))
        return step


def test_each_game_of_an_agent_is_played_and_reported_by_itself(tmp_path, monkeypatch):
    Recorder.seen = []
    monkeypatch.setattr(whole_games, "Player", Recorder)
    blueprint, checkpoint = agent(
        tmp_path, f"{COUNTING},{OWING}", test_episode_count=3, use_lstm=True
    )
    lines = []
    counting, owing = evaluate(blueprint, checkpoint, tmp_path, show=lines.append)
    assert (counting.env, owing.env) == (COUNTING, OWING)
    assert counting.mean > 0 > owing.mean
    assert counting.episodes == owing.episodes == 3
    assert any(f"3 games of {OWING}" in line for line in lines)
    stem = "test_some_2games_Counting-Owing_sampled"
    rows = read_rows(tmp_path / f"{stem}.csv")
    assert [row["env"] for row in rows] == [COUNTING] * 3 + [OWING] * 3
    written = json.loads((tmp_path / f"{stem}.json").read_text())
    assert [report["env"] for report in written["games"]] == [COUNTING, OWING]
    assert (written["episodes"], written["agent_steps"]) == (6, 1)
    # The model is told which game it is, when a game begins, and what it did before.
    tasks = [set(observation.task_id.tolist()) for observation, _ in Recorder.seen]
    assert {0} in tasks
    assert {1} in tasks
    starts = [n for n, (seen, _) in enumerate(Recorder.seen) if seen.first.all()]
    assert starts[0] == 0
    assert len(starts) < len(Recorder.seen) / 2, "games begin once, all at the same step seldom"
    for (_, did), (seen, _) in zip(Recorder.seen, Recorder.seen[1:], strict=False):
        if not seen.first.all():
            assert (seen.last_action == did).all()


def test_no_test_overwrites_the_report_of_another(tmp_path):
    for flags, env in (
        ({}, COUNTING),
        ({"greedy": True}, COUNTING),
        ({}, OWING),
        ({"greedy": True}, f"{COUNTING},{OWING}"),
    ):
        blueprint = make_blueprint(f"{COUNTING},{OWING}", test_episode_count=2, **flags)
        checkpoint = Checkpoint(tmp_path / "some.pt", saved_state(blueprint))
        evaluate(blueprint, checkpoint, tmp_path, envs=env.split(","), show=silent)
    reports = [json.loads(path.read_text()) for path in tmp_path.glob("test_some_*.json")]
    assert sorted((report["env"], report["policy"]) for report in reports) == [
        (COUNTING, "greedy"),
        (COUNTING, "sampled"),
        (f"{COUNTING},{OWING}", "greedy"),
        (OWING, "sampled"),
    ]
    assert len(list(tmp_path.glob("test_some_*.csv"))) == 4


def test_fewer_games_or_another_seed_leave_the_report_of_these_weights(tmp_path):
    blueprint, checkpoint = agent(tmp_path, COUNTING, test_episode_count=3, seed=1)
    stem = report_stem("some", [COUNTING], "sampled")

    def test_with(**flags):
        changed = replace(blueprint, flags=blueprint.flags.model_copy(update=flags))
        evaluate(changed, checkpoint, tmp_path, show=silent)
        reports = {path.stem: json.loads(path.read_text()) for path in tmp_path.glob("*.json")}
        return {name: report["episodes"] for name, report in reports.items()}

    assert test_with() == {stem: 3}
    assert test_with(test_episode_count=1) == {stem: 3, f"{stem}_1games": 1}
    assert test_with(seed=2) == {stem: 3, f"{stem}_1games": 1, f"{stem}_seed2": 3}
    film = tmp_path / f"{stem}.mp4"
    film.write_bytes(b"a game of these weights")
    assert test_with(test_episode_count=5)[stem] == 5
    assert film.exists()
    checkpoint.state["tally"]["agent_steps"] += (
        1  # trained on: the report is of weights that are gone
    )
    assert test_with(test_episode_count=2)[stem] == 2
    assert not film.exists()


def test_a_game_that_was_not_trained_is_played_with_the_agents_own_actions(tmp_path):
    pong = make_blueprint("PongNoFrameskip-v4", test_episode_count=1, max_episode_frames=40)
    checkpoint = Checkpoint(tmp_path / "some.pt", saved_state(pong))
    (report,) = evaluate(pong, checkpoint, tmp_path, envs=[BREAKOUT], show=silent)
    assert (report.env, report.episodes) == (BREAKOUT, 1)


def test_a_film_has_the_name_of_the_report_that_it_belongs_to(tmp_path, monkeypatch):
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    monkeypatch.setattr(ReachEnv, "render", lambda env: np.zeros((32, 32, 3), np.uint8))
    monkeypatch.setattr(ReachEnv, "metadata", {"render_modes": ["rgb_array"], "render_fps": 4})
    blueprint, checkpoint = agent(tmp_path, REACH, test_episode_count=2)
    evaluate(blueprint, checkpoint, tmp_path, show=silent)
    shorter, _ = agent(tmp_path, REACH, test_episode_count=1, render=True)
    evaluate(shorter, checkpoint, tmp_path, show=silent)
    (film,) = tmp_path.glob("*.mp4")
    assert film.stem.endswith("_1games")
    assert film.with_suffix(".json").exists()


def test_a_film_that_cannot_be_written_costs_no_games(tmp_path, monkeypatch):
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")

    def draw(env):  # the first picture is a good one
        return np.zeros((32, 32, 4 if env.t else 3), np.uint8)

    monkeypatch.setattr(ReachEnv, "render", draw)
    monkeypatch.setattr(ReachEnv, "metadata", {"render_modes": ["rgb_array"], "render_fps": 4})
    blueprint, checkpoint = agent(tmp_path, REACH, test_episode_count=3, render=True)
    lines = []
    (report,) = evaluate(blueprint, checkpoint, tmp_path, show=lines.append)
    assert report.episodes == 3
    (told,) = [line for line in lines if "the first game is not shown" in line]
    assert "expected a picture [H, W, 3]" in told
    assert not list(tmp_path.glob("*.mp4"))


def stopped_after(monkeypatch, count, error):
    """Let `error` end the games after some of them."""
    play_games = whole_games.play_games

    def stop(blueprint, model, env, wanted, **others):
        yield from play_games(blueprint, model, env, min(wanted, count), **others)
        if wanted > count:
            raise error

    monkeypatch.setattr(evaluator, "play_games", stop)


@pytest.mark.parametrize("does_all", [False, True])
def test_a_folder_that_cannot_be_written_to_is_refused_before_the_first_game(
    tmp_path, monkeypatch, does_all
):
    monkeypatch.setattr(evaluator, "play_games", None)
    blueprint, checkpoint = agent(tmp_path, test_episode_count=3)
    (tmp_path / "file").write_text("in the way")
    test = evaluate_all if does_all else evaluate
    for where in (tmp_path / "file" / "below", Path("/proc/fl/cp")):
        with pytest.raises(ConfigError, match=f"cannot be written to {where} "):
            test(blueprint, checkpoint, where, show=silent)


def test_who_reads_no_more_loses_no_game(tmp_path):
    blueprint, checkpoint = agent(tmp_path, test_episode_count=5)

    def leave(line):
        raise BrokenPipeError

    (report,) = evaluate(blueprint, checkpoint, tmp_path, show=leave)
    assert report.episodes == 5
    (written,) = tmp_path.glob("test_some_*.csv")
    assert len(read_rows(written)) == 5


def test_an_interrupted_test_says_of_how_many_games_it_is_and_replaces_no_whole_one(
    tmp_path, monkeypatch
):
    blueprint, checkpoint = agent(tmp_path, test_episode_count=4)
    evaluate(blueprint, checkpoint, tmp_path, show=silent)
    (whole,) = tmp_path.glob("test_some_*.json")
    before = (whole.read_text(), whole.with_suffix(".csv").read_text())
    stopped_after(monkeypatch, 2, KeyboardInterrupt())
    lines = []
    (report,) = evaluate(blueprint, checkpoint, tmp_path, show=lines.append)
    assert (report.episodes, report.asked) == (2, 4)
    assert any(line.startswith("interrupted after 2 of 4 games") for line in lines)
    assert before == (whole.read_text(), whole.with_suffix(".csv").read_text())
    part = tmp_path / f"{whole.stem}_2games"
    kept = json.loads(part.with_name(f"{part.name}.json").read_text())
    assert (kept["episodes"], kept["asked"]) == (2, 4)
    assert len(read_rows(part.with_name(f"{part.name}.csv"))) == 2


def test_games_that_cannot_be_written_are_shown_and_their_folder_is_named(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOSPC, "No space left on device")  # of a write: it names no file

    monkeypatch.setattr(evaluator, "_write", refuse)
    blueprint, checkpoint = agent(tmp_path, test_episode_count=1)
    lines = []
    with pytest.raises(OSError, match=f"not be written to {tmp_path}: .*No space left"):
        evaluate(blueprint, checkpoint, tmp_path, show=lines.append)
    assert any("mean" in line for line in lines)


def test_games_that_were_over_when_something_fails_are_written(tmp_path, monkeypatch):
    stopped_after(monkeypatch, 2, OSError(errno.EMFILE, "Too many open files"))
    blueprint, checkpoint = agent(tmp_path, test_episode_count=5)
    with pytest.raises(OSError, match="Too many open files"):
        evaluate(blueprint, checkpoint, tmp_path, show=silent)
    (written,) = tmp_path.glob("test_some_*.csv")
    assert len(read_rows(written)) == 2


def test_games_are_whole_and_their_lives_add_up(tmp_path):
    blueprint, checkpoint = agent(tmp_path, BREAKOUT, test_episode_count=2)
    model = evaluator._acting_model(blueprint, checkpoint)
    games = list(whole_games.play_games(blueprint, model, BREAKOUT, 2))
    for game in games:
        assert len(game.lives) == 5
        assert sum(life.return_raw for life in game.lives) == game.return_raw
        assert sum(life.length_steps for life in game.lives) == game.length_steps
        assert min(life.length_steps for life in game.lives) > 5
    assert games[0].fingerprint != games[1].fingerprint


def test_a_game_is_cut_at_each_lost_life_and_at_its_end_however_it_ends():
    lives = Lives(2)

    def step(rewards, lost, first, *over):
        episodes = [EpisodeEnd(index, 0.0, 0, 0) for index in over]
        nothing = np.zeros((2, 1))
        lives.add(StepResult(nothing, np.array(rewards), np.array(lost), np.array(first), episodes))

    no = [False, False]
    step([1, 5], no, no)
    step([2, 0], [True, False], no)  # environment 0 loses a life
    step([4, 7], no, no, 1)  # time cuts the game of environment 1
    assert lives.take(1) == (Life(12.0, 3),)
    step([8, 0], [True, False], [False, True], 0)  # 0 is over by its rules; 1 starts anew
    assert lives.take(0) == (Life(3.0, 2), Life(12.0, 2))
    step([0, 3], [False, True], [True, False], 1)
    assert lives.take(1) == (Life(3.0, 1),), "a reset row is no step"


@pytest.fixture
def run(tmp_path):
    """A run folder with milestones at 100 and 200 agent steps and a last checkpoint at 250."""
    blueprint = make_blueprint(
        f"{COUNTING},{OWING}", test_episode_count=3, test_all_checkpoints=True
    )
    folder = tmp_path / "run" / "checkpoints"
    writer = CheckpointWriter(folder, keep_last=2, milestone_steps=100)
    for updates, steps in ((5, 50), (10, 100), (20, 200), (25, 250)):
        state = {**saved_state(blueprint, agent_steps=steps, updates=updates), "seed": steps}
        for tensor in state["learner"]["model"].values():
            tensor.mul_(1 + updates) if tensor.is_floating_point() else None
        writer.save(state, updates=updates, agent_steps=steps)
    writer.save_best(saved_state(blueprint, agent_steps=200, updates=20), score=1.0)
    return blueprint, tmp_path / "run"


def test_every_checkpoint_is_played_once_in_every_game_oldest_first(run):
    blueprint, folder = run
    evaluate_all(blueprint, load(folder), folder, show=silent)
    rows = read_rows(folder / "scores.csv")
    assert tuple(rows[0])[:5] == SHARED_COLUMNS
    played = list(dict.fromkeys((row["model_id"], row["model_steps"], row["env"]) for row in rows))
    assert played == [
        *(("step_000000000100", "100", env) for env in (COUNTING, OWING)),
        *(("step_000000000200", "200", env) for env in (COUNTING, OWING)),
        *(("update_000000025", "250", env) for env in (COUNTING, OWING)),
    ]
    assert len(rows) == 3 * len(played)
    assert len(read_rows(folder / "scores_per_life.csv")) == len(rows), (
        "a game without lives is one"
    )


@pytest.mark.parametrize("change", [{"skipped_frames": 2}, {"seed": 12345}])
def test_other_games_are_no_rows_of_the_same_table(run, change):
    blueprint, folder = run
    evaluate_all(blueprint, load(folder), folder, show=silent)
    flags = blueprint.flags.model_copy(update=change)
    with pytest.raises(ConfigError, match=r"sampled actions of .* 3 with sampled \(rules \w{8}\)"):
        evaluate_all(replace(blueprint, flags=flags), load(folder), folder, show=silent)


def test_a_checkpoint_of_another_network_is_left_out_by_name_and_once(run):
    blueprint, folder = run
    checkpoint = load(folder)
    narrow = saved_state(
        make_blueprint(f"{COUNTING},{OWING}", feature_out_layer_size=8), agent_steps=120
    )
    other_actions = saved_state(blueprint, agent_steps=140)
    other_actions["env_spec"]["action_meanings"] = ["LEFT", "RIGHT", "UP"]
    writer = CheckpointWriter(folder / "checkpoints", keep_last=9, milestone_steps=1)
    for steps, state in ((120, narrow), (140, other_actions)):
        writer.save(state, updates=steps, agent_steps=steps)
    (folder / "checkpoints" / "step_000000000100.pt").write_bytes(b"half")
    lines = []
    evaluate_all(blueprint, checkpoint, folder, show=lines.append)
    damaged, *left_out = [line for line in lines if line.startswith("left out: ")]
    assert "step_000000000100.pt is damaged" in damaged
    assert len(left_out) == 2, "though two games wait for each"
    assert "step_000000000120.pt holds the weights of another network" in left_out[0]
    assert "step_000000000140.pt was trained on" in left_out[1]
    rows = read_rows(folder / "scores.csv")
    assert {row["model_steps"] for row in rows} == {"200", "250"}
