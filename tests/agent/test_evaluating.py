import json
import multiprocessing
import os
import threading
from dataclasses import replace
from datetime import datetime
from shutil import copytree
from types import SimpleNamespace

import pytest
import torch

from ritornello.agent.acting.acting_model import FlatWeights
from ritornello.agent.run import evaluating
from ritornello.agent.run.evaluating import MAX_FAILURES, Following, InTurn
from ritornello.agent.run.tally import new_tally
from ritornello.agent.stored.best_evaluated import BEST, best_score, keep, set_later_aside
from ritornello.agent.stored.model_file import load_model
from ritornello.agent.stored.run_folder import RunFolder
from ritornello.agent.testing import evaluation
from ritornello.agent.testing.evaluation import (
    Evaluation,
    Order,
    evaluation_blueprint,
    snapshot_layout,
)
from ritornello.core.errors import CheckpointError, ConfigError
from ritornello.core.files import Disk, using
from ritornello.flags.environment import EnvironmentFlags
from ritornello.metrics.record import check_declared
from ritornello.transport.weights import WeightBoard
from tests.agent.light_followers import light_follower
from tests.agent.runs import BOTH_GAMES, COUNTING, make_blueprint
from tests.deadlines import wait_until

PONG = "PongNoFrameskip-v4"


def nothing():
    pass


def order(updates=7, **changes):
    return replace(Order(updates, 10 * updates, False, None, {"games": 3}), **changes)


def evaluated(tmp_path, what, seed=1, **flags):
    """Rows and end of an evaluation of a learner's first weights."""
    blueprint = make_blueprint(evaluate_every_steps=100, evaluation_games=3, **flags)
    learner = replace(blueprint, flags=blueprint.flags.model_copy(update={"seed": seed})).learner()
    played = Evaluation(evaluation_blueprint(blueprint), tmp_path)
    snapshot_layout(blueprint).pack(learner.model, played.block)
    rows = []
    done = played.play(what, rows.append, nothing)
    return rows, done, learner.model


def test_the_same_weights_play_the_same_games_with_starts_of_their_own(tmp_path):
    rows, done, _ = evaluated(tmp_path, order(best=1e9))
    assert [(row.policy, row.games) for row in rows] == [("sampled", 3), ("greedy", 3)]
    assert rows[0].distinct_games == 3
    assert rows[0].standard_error > 0
    assert rows[0].min <= rows[0].mean <= rows[0].max
    assert (rows[0].updates, rows[0].agent_steps, rows[0].game) == (7, 70, COUNTING)
    assert done.scores == {row.policy: row.mean for row in rows}
    assert not done.is_best
    assert not (tmp_path / BEST).exists()
    assert evaluated(tmp_path, order(best=1e9))[:2] == (rows, done)
    assert evaluated(tmp_path, order(updates=8, best=1e9))[0][0].mean_length != rows[0].mean_length


def test_each_of_several_games_is_played_by_both_policies(tmp_path):
    rows, done, _ = evaluated(tmp_path, order(), env=BOTH_GAMES)
    assert [(row.game, row.policy) for row in rows] == [
        (game, policy) for policy in ("sampled", "greedy") for game in BOTH_GAMES.split(",")
    ]
    means = [row.mean for row in rows if row.policy == "sampled"]
    assert done.scores["sampled"] == pytest.approx(sum(means) / 2)


def test_the_best_model_is_kept_with_the_very_weights_that_played(tmp_path):
    rows, done, model = evaluated(tmp_path, order())
    assert done.is_best
    assert not done.problem
    shipped = load_model(tmp_path / BEST)
    for name, tensor in model.state_dict().items():
        assert torch.equal(shipped.state["learner"]["model"][name], tensor), name
    assert shipped.state["tally"] == {"agent_steps": 70, "updates": 7}
    facts = json.loads((tmp_path / BEST / "model.json").read_text())
    assert facts["games"] == 3
    assert facts["test"]["mean"] == rows[0].mean
    assert best_score(tmp_path) == rows[0].mean
    evaluated(tmp_path, order(updates=9, best=1e9))
    assert load_model(tmp_path / BEST).state["tally"]["updates"] == 7
    evaluated(tmp_path, order(updates=9, best=-1e9), seed=2)
    assert load_model(tmp_path / BEST).state["tally"]["updates"] == 9
    assert sorted(path.name for path in tmp_path.iterdir()) == [BEST]


class Copying(Disk):
    """Copies a folder before each change of a name in it, as a kill at that moment leaves it."""

    def __init__(self, folder, copies):
        self.folder, self.copies = folder, copies

    def replace(self, source, target):
        copytree(self.folder, self.copies / str(len(list(self.copies.iterdir()))))
        super().replace(source, target)


def test_a_kill_while_the_best_model_is_replaced_leaves_the_old_or_the_new_one(tmp_path):
    run, copies = tmp_path / "run", tmp_path / "copies"
    copies.mkdir()
    spec = make_blueprint().env_spec.to_dict()
    with using(Copying(run, copies)):
        for n in (1.0, 2.0):
            facts = {"env_spec": spec, "agent_steps": 10, "updates": int(n)}
            keep(run, {"weight": torch.full((2,), n)}, {"lr": n}, facts, n)
    found = [best_score(copies / str(left)) for left in range(6)]
    assert found == [None, 1.0, 1.0, 1.0, 2.0, 2.0]
    for left in range(4, 6):
        best = load_model(copies / str(left) / BEST)
        assert best.state["flags"] == {"lr": 2.0}
        assert best.state["learner"]["model"]["weight"].tolist() == [2.0, 2.0]


def test_rules_come_from_the_preset_and_what_the_network_needs_does_not():
    assert set(evaluation.PRESET_RULES) < set(EnvironmentFlags.model_fields)
    blueprint = make_blueprint(env=PONG, evaluation_preset="sticky", noop_threshold=7)
    rules = evaluation_blueprint(blueprint).flags
    assert rules.repeat_action_probability == 0.25
    assert rules.max_episode_frames == 108_000
    assert not rules.fire_reset
    assert rules.noop_threshold == 7
    assert rules.action_set == blueprint.flags.action_set != "all"  # the network has six actions
    assert evaluation_blueprint(make_blueprint()).flags == make_blueprint().flags


@pytest.mark.parametrize(
    ("name", "said"), [("stick", "did you mean sticky"), ("elite", "nothing of how games are")]
)
def test_a_preset_without_rules_is_refused(name, said):
    with pytest.raises(ConfigError, match=said):
        evaluation_blueprint(make_blueprint(evaluation_preset=name))


def test_a_film_is_there_whole_or_not_at_all(tmp_path):
    rows, done, _ = evaluated(tmp_path, order(is_filmed=True), env="CartPole-v1")
    assert not done.problem
    assert [row.film for row in rows] == ["films/update_00000007.mp4", ""]
    assert (tmp_path / rows[0].film).stat().st_size > 1000
    (tmp_path / "films" / ".update_00000008.mp4").write_bytes(b"half")
    made = in_turn(tmp_path)  # a session that comes after one that was killed
    made.close()
    assert [path.name for path in (tmp_path / "films").iterdir()] == ["update_00000007.mp4"]


@pytest.mark.parametrize(
    ("env", "said"),
    [
        (COUNTING, "no more films are made"),
        ("CartPole-v1", "1 of 1 games of CartPole-v1 are not over after 2 steps"),
    ],
)
def test_a_film_that_cannot_be_made_costs_no_evaluation(tmp_path, monkeypatch, env, said):
    monkeypatch.setattr(evaluation, "MAX_FILM_STEPS", 2)
    rows, done, _ = evaluated(tmp_path, order(is_filmed=True), env=env)
    assert [(row.games, row.film) for row in rows] == [(3, ""), (3, "")]
    assert said in done.problem
    assert not list(tmp_path.glob("films/*"))


class FakeRun:
    """What an evaluation needs of a run; rows are kept instead of written."""

    def __init__(self, folder, blueprint, state=None, steps=0):
        self.blueprint, self.flags = blueprint, blueprint.flags
        self.folder = RunFolder(folder)
        self.rows = []
        self.status = SimpleNamespace(evaluation=self.rows.append)
        self.stop = SimpleNamespace(requested=False)
        self.tally = new_tally(blueprint)
        self.tally.agent_steps = steps
        self.learner = blueprint.learner()
        self.saved = {"evaluation": state}.get
        self.more_state = {}


def in_turn(tmp_path, state=None, steps=0, **flags):
    blueprint = make_blueprint(
        reproducible=True, evaluate_every_steps=100, evaluation_games=2, **flags
    )
    return InTurn(FakeRun(tmp_path, blueprint, state, steps))


def look(made, updates, steps):
    made._run.tally.updates, made._run.tally.agent_steps = updates, steps
    made.look()


def test_an_evaluation_falls_due_once_in_each_so_many_steps(tmp_path):
    made = in_turn(tmp_path)
    for updates, steps in enumerate((0, 99, 100, 150, 199, 310, 399, 400)):
        look(made, updates, steps)
    assert [row["agent_steps"] for row in made._run.rows[::2]] == [100, 310, 400]
    made.request()
    look(made, 9, 401)
    look(made, 10, 402)
    assert [row["agent_steps"] for row in made._run.rows[::2]] == [100, 310, 400, 401]
    values = made.values()
    assert values["evaluation/agent_steps"] == 401
    assert values["evaluation/score"] == values["evaluation/return_sampled"]
    assert values["evaluation/score_best"] == max(
        row["mean"] for row in made._run.rows if row["policy"] == "sampled"
    )
    assert made.values() == {}
    for name in values:
        check_declared(name)


def test_a_best_model_that_is_not_kept_is_not_to_be_beaten(tmp_path, monkeypatch):
    scores = iter([100.0] * 2 + [90.0] * 2)
    monkeypatch.setattr(evaluation, "score_of", lambda reports: next(scores))
    made = in_turn(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(evaluation, "keep", _full)
        look(made, 1, 100)
    assert "evaluation/score_best" not in made.values()
    look(made, 2, 200)
    assert made.values()["evaluation/score_best"] == 90
    assert best_score(tmp_path) == 90


def _full(*arguments):
    raise OSError("No space left on device")


def test_what_a_user_interrupts_is_played_after_the_resume(tmp_path):
    made = in_turn(tmp_path)
    look(made, 1, 100)
    made._run.stop.requested = True
    look(made, 2, 200)
    assert len(made._run.rows) == 2
    state = made.state_dict()
    assert state["looked_at"] == 100
    resumed = in_turn(tmp_path, state, steps=200)
    assert resumed.values() == state["news"]  # no record had them yet
    look(resumed, 2, 200)
    straight = in_turn(tmp_path, steps=150)
    look(straight, 2, 200)
    assert resumed._run.rows == straight._run.rows
    assert len(resumed._run.rows) == 2


def test_a_killed_run_has_the_score_to_beat_of_its_checkpoint(tmp_path, monkeypatch):
    """The best model of the folder is of an update that the resumed run has not made yet."""
    scores = {100: 100.0, 250: 90.0, 300: 120.0}
    monkeypatch.setattr(evaluation, "score_of", lambda reports: scores[reports[0].agent_steps])
    killed = in_turn(tmp_path)
    look(killed, 10, 100)
    killed.values()
    state = killed.state_dict()  # the checkpoint of update 20

    def goes_on(made):
        seen = []
        for updates in (25, 30):
            look(made, updates, 10 * updates)
            seen.append(made.values())
        return seen

    undisturbed = goes_on(killed)
    assert [values["evaluation/score_best"] for values in undisturbed] == [100, 120]
    played_again = in_turn(tmp_path, state, steps=200)  # also the update of the folder's model
    assert goes_on(played_again) == undisturbed
    assert set_later_aside(tmp_path, 20, datetime(2026, 11, 22)) is not None
    resumed = in_turn(tmp_path, state, steps=200)
    assert goes_on(resumed) == undisturbed
    assert best_score(tmp_path) == 120
    of_before = {name: part for name, part in state.items() if name != "best"}
    assert in_turn(tmp_path, of_before)._best == 120  # what the folder says


def test_a_run_whose_best_model_is_set_aside_keeps_the_best_of_those_that_follow(
    tmp_path, monkeypatch, caplog
):
    """The checkpoint's best score is of a model that a later one, now cut, had replaced."""
    caplog.set_level("INFO")
    scores = {100: 100.0, 300: 60.0, 400: 50.0, 500: 70.0, 600: 65.0, 700: 110.0}
    monkeypatch.setattr(evaluation, "score_of", lambda reports: scores[reports[0].agent_steps])
    first = in_turn(tmp_path / "run")
    look(first, 10, 100)
    state = first.state_dict()

    def goes_on(made, *of_updates):
        kept = []
        for updates in of_updates:
            look(made, updates, 10 * updates)
            kept.append(best_score(made._folder))
        return kept

    gone = in_turn(tmp_path / "gone", state, steps=200)
    assert goes_on(gone, 30, 40) == [60, 60]
    assert gone.values()["evaluation/score_best"] == 100
    assert "the best so far" not in caplog.text.split("evaluated at 300")[1]
    resumed = in_turn(tmp_path / "gone", gone.state_dict(), steps=400)
    assert goes_on(resumed, 50, 60, 70) == [70, 70, 110]
    assert resumed.values()["evaluation/score_best"] == 110
    assert (
        "evaluated at 700 agent steps: sampled actions 110, greedy actions 110, the best so far"
        in caplog.text
    )


@pytest.mark.parametrize("error", [ValueError("a mistake in step()"), SystemExit(0)])
def test_an_environment_that_fails_or_leaves_ends_no_run(tmp_path, monkeypatch, caplog, error):
    def fail(*arguments):
        raise error

    monkeypatch.setattr(evaluation, "play_games", fail)
    made = in_turn(tmp_path)
    for updates in (1, 2):
        look(made, updates, 100 * updates)
    assert made._run.rows == []
    assert sum("there are no more evaluations in this session" in m for m in caplog.messages) == 1


def test_what_a_checkpoint_holds_of_it_is_checked(tmp_path):
    made = in_turn(tmp_path)
    look(made, 1, 100)
    state = made.state_dict()
    for change in (
        {"looked_at": -1}, {"count": 1.5}, {"news": {"loss/total": 1.0}},
        {"news": {"evaluation/score": float("nan")}}, {"best": float("nan")},
    ):  # fmt: skip
        with pytest.raises(CheckpointError, match=r"\['evaluation'\]"):
            in_turn(tmp_path, state | change)


@pytest.mark.parametrize("error", [BrokenPipeError(32, "Broken pipe"), EOFError("no more")])
def test_the_broken_pipe_of_an_environment_is_no_end_of_the_trainer(tmp_path, monkeypatch, error):
    def fail(*arguments, **more):
        raise error

    blueprint, (ours, end) = make_blueprint(), multiprocessing.Pipe()
    monkeypatch.setattr(evaluation, "ignore_interrupts", nothing)
    monkeypatch.setattr(evaluation, "give_way", lambda niceness: None)
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    monkeypatch.setattr(evaluation, "play_games", fail)
    lifeline = SimpleNamespace(hold=nothing, pulse=SimpleNamespace(beat=lambda phase: None))
    board = WeightBoard(snapshot_layout(blueprint).nbytes)
    with board.write(7) as block:
        snapshot_layout(blueprint).pack(blueprint.learner().model, block)
    ours.send(order())
    with pytest.raises(SystemExit):
        evaluation.follower_main(blueprint, tmp_path, board, end, lifeline)
    assert type(error).__name__ in ours.recv().traceback
    board.close()


class Followed:
    """A Following with a light process, looked at until something holds."""

    def __init__(self, folder, state=None, steps=0, **flags):
        blueprint = make_blueprint(evaluate_every_steps=100, **flags)
        self.folder, self.run = folder, FakeRun(folder, blueprint, state, steps)
        self.made = Following(self.run)
        self.made._tasks = ("Test-v0",)

    def trouble(self, text):
        # Put there at once: the process may be reading it.
        (self.folder / "new").write_text(text)
        os.replace(self.folder / "new", self.folder / "trouble")

    def fall_due(self):
        look(self.made, self.run.tally.updates + 1, self.run.tally.agent_steps + 100)

    def until(self, condition):
        wait_until(lambda: self.made.look() or condition())

    def finish(self, updates, steps):
        self.run.tally.updates, self.run.tally.agent_steps = updates, steps
        self.made.finish()

    def played(self):
        return [row["updates"] for row in self.run.rows]


@pytest.fixture
def follow(tmp_path, monkeypatch):
    monkeypatch.setattr(evaluating, "follower_main", light_follower)
    made = []

    def make(**flags):
        made.append(Followed(tmp_path, **flags))
        return made[-1]

    yield make
    for each in made:
        each.made.close()


@pytest.mark.process
def test_it_is_asked_only_while_it_rests(follow):
    followed = follow()
    followed.trouble("is slow")
    for _ in range(4):
        followed.fall_due()
    (row,) = followed.made.rows()
    assert (row.part, row.life) == ("evaluation", 0)
    followed.trouble("")
    followed.until(lambda: followed.played() == [1, 4])  # what fell due meanwhile is one
    followed.made.request()  # these weights have played
    for _ in range(20):
        followed.made.look()
    followed.fall_due()
    followed.until(lambda: followed.played() == [1, 4, 5])
    values = followed.made.values()
    assert values["evaluation/score"] == 5
    assert values["evaluation/score_best"] == 1  # the light process calls the first one the best
    for name in values:
        check_declared(name)


@pytest.mark.process
def test_the_last_one_that_is_due_is_played_to_its_end(follow, caplog):
    caplog.set_level("INFO")
    followed = follow()
    followed.trouble("is slow")
    for _ in range(3):
        followed.fall_due()  # the second and third while the first is played
    threading.Timer(0.5, followed.trouble, [""]).start()
    followed.finish(3, 300)
    assert followed.played() == [1, 3]
    assert caplog.text.count("played to its end; Ctrl-C skips it") == 1
    followed.finish(3, 300)  # nothing is due any more
    followed.finish(4, 350)
    assert followed.played() == [1, 3]
    followed.finish(5, 400)  # due, and nobody had looked
    assert followed.played() == [1, 3, 5]


@pytest.mark.process
def test_what_a_stop_leaves_unplayed_is_played_after_the_resume(follow):
    followed = follow()
    followed.fall_due()
    followed.until(lambda: followed.played() == [1])
    followed.trouble("is slow")
    followed.fall_due()
    state = followed.run.more_state["evaluation"]()
    assert (state["looked_at"], state["count"]) == (100, 1)
    followed.made.close()
    followed.trouble("")
    resumed = follow(state=state, steps=200)
    resumed.run.tally.updates = 2
    resumed.until(lambda: resumed.played() == [2])
    assert resumed.run.more_state["evaluation"]()["looked_at"] == 200
    resumed.finish(3, 250)
    assert resumed.played() == [2]


@pytest.mark.process
@pytest.mark.parametrize(
    "trouble", ["is slow", *(pytest.param(t, marks=pytest.mark.slow) for t in ("dies", "hangs"))]
)
def test_the_last_one_is_not_waited_for_in_vain(follow, trouble):
    followed = follow(worker_timeout=1.0)
    followed.trouble(trouble)
    followed.fall_due()
    followed.run.stop.requested = trouble == "is slow"  # Ctrl-C
    followed.finish(1, 100)
    assert followed.played() == []


@pytest.mark.slow
@pytest.mark.process
def test_a_death_is_reported_and_mended_and_counts_for_nothing(follow, caplog):
    followed = follow()
    followed.fall_due()
    followed.until(lambda: followed.played() == [1])
    followed.trouble("dies")
    followed.fall_due()
    followed.until(lambda: followed.made.values()["evaluation/lost"] == 1)
    assert "killed by signal 9" in caplog.text
    assert "the evaluation at 200 agent steps is lost; the next one starts another" in caplog.text
    followed.trouble("")
    followed.fall_due()
    followed.until(lambda: followed.played() == [1, 3])
    assert followed.made.rows()[0].life == 1


@pytest.mark.process
@pytest.mark.slow
def test_after_failures_in_a_row_it_is_switched_off_and_training_goes_on(follow, caplog):
    followed = follow()
    followed.trouble("fails")
    for number in range(1, MAX_FAILURES + 1):
        followed.fall_due()
        followed.until(lambda n=number: followed.made.values()["evaluation/lost"] == n)
    assert followed.made.is_off
    assert followed.made.request().startswith("refused: evaluations have failed")
    assert caplog.text.count("a mistake in step()") == MAX_FAILURES
    assert caplog.text.count("there are no more evaluations in this session") == 1
    followed.trouble("")
    followed.fall_due()
    followed.until(lambda: followed.made.rows()[0].pid is None)


@pytest.mark.process
@pytest.mark.slow
def test_the_real_process_plays_the_games_that_this_thread_would(tmp_path):
    (tmp_path / "process").mkdir()
    (tmp_path / "thread").mkdir()
    blueprint = make_blueprint(evaluate_every_steps=100, evaluation_games=2)
    run = FakeRun(tmp_path / "process", blueprint)
    made, model = Following(run), run.learner.model
    try:
        wait_until(lambda: look(made, 1, 100) or made._news.get("evaluation/score"))
    finally:
        made.close()
    turn = in_turn(tmp_path / "thread")
    look(turn, 1, 100)
    assert run.rows == turn._run.rows
    kept = [load_model(tmp_path / name / BEST).state["learner"] for name in ("process", "thread")]
    for name, tensor in model.state_dict().items():
        assert torch.equal(kept[0]["model"][name], tensor)
        assert torch.equal(kept[1]["model"][name], tensor)
    assert FlatWeights(model).nbytes == made._board.nbytes
