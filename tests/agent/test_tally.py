import pytest
import torch

from ritornello.agent.learning.learner import UpdateMetrics
from ritornello.agent.run.tally import Tally
from ritornello.agent.testing.human_scores import anchors
from ritornello.core.episode import EpisodeEnd
from ritornello.core.errors import CheckpointError
from ritornello.core.saved_state import StateError
from ritornello.metrics.record import check_declared
from ritornello.transport.channel import WorkerStats


def updated(name, value):
    return UpdateMetrics((name,), torch.tensor([value]), {})


def game(value, steps=10):
    return EpisodeEnd(0, value, steps, steps * 4)


def busy_tally():
    tally = Tally(action_repeat=4, window=3)
    tally.book_block(WorkerStats(steps=100, total_s=10.0, env_s=5.0, act_s=2.0, wait_s=3.0))
    for value in (1.0, 2.0, 3.0, 4.0):
        tally.book_game(game(value))
    for value in (0.5, 1.5):
        tally.book_update(updated("loss/total", value))
    return tally


def test_a_record_has_counters_means_and_shares_of_the_workers_time():
    record = busy_tally().record({"workers/alive": 2.0})
    assert (record.agent_steps, record.frames, record.updates, record.episodes) == (100, 400, 2, 4)
    values = record.values
    assert values["loss/total"] == 1.0
    assert values["episode/return_raw"] == 2.5  # of this interval
    assert values["episode/return_mean"] == 3.0  # of the window of 3
    assert values["workers/env_fraction"] == 0.5
    assert values["workers/act_fraction"] == 0.2
    assert values["ring/wait_fraction"] == pytest.approx(0.3)
    assert values["workers/alive"] == 2.0
    assert values["throughput/frames_per_s"] == 4 * values["throughput/agent_steps_per_s"]


def test_an_update_that_has_no_value_for_a_metric_does_not_spoil_its_mean():
    tally = Tally(1, 3)
    for value in (1.0, float("nan"), 3.0):
        tally.book_update(updated("replay/standard/drawn_age_updates", value))
    assert tally.record({}).values["replay/standard/drawn_age_updates"] == 2.0
    tally.book_update(updated("replay/standard/drawn_age_updates", float("nan")))
    assert "replay/standard/drawn_age_updates" not in tally.record({}).values


def test_whatever_is_counted_is_news_until_it_is_in_a_record():
    tally = busy_tally()
    tally.record({})
    restored = Tally(4, 3)
    restored.load_state_dict(tally.state_dict())
    for each in (tally, restored):
        for book, what in (
            (each.book_block, WorkerStats(steps=1)),
            (each.book_game, game(1.0)),
            (each.book_update, updated("loss/total", 1.0)),
        ):
            assert not each.has_news
            book(what)
            assert each.has_news
            each.record({})


def test_no_second_counts_before_the_first_update_of_a_session(monkeypatch):
    now = 100.0
    monkeypatch.setattr("ritornello.agent.run.tally.time.monotonic", lambda: now)
    tally = Tally(4, 3)
    for before in (0.0, 7.0):
        for _ in range(2):  # workers start and replay fills, with a pause
            now += 10
            tally.rest(1.0)
            assert tally.book_game(game(1.0)).wall_s == tally.record({}).wall_s == before
        tally.book_update(updated("loss/total", 1.0))
        now += 9
        tally.book_update(updated("loss/total", 1.0))
        tally.rest(2.0)
        assert tally.wall_s == before + 7
        state, tally = tally.state_dict(), Tally(4, 3)
        tally.load_state_dict(state)


def test_the_best_mean_of_other_windows_is_no_best_of_these():
    longer = Tally(4, 100)
    longer.load_state_dict(busy_tally().state_dict())
    assert (longer.games.mean, longer.games.full_mean, longer.games.best_mean) == (3.0, None, None)
    several = Tally(4, 2, (PONG, INVADERS))
    for task, value in ((0, 1.0), (0, 2.0), (1, 300.0), (1, 500.0)):
        play(several, task, value)
    again = Tally(4, 100, (PONG, INVADERS))
    again.load_state_dict(several.state_dict())
    assert again.games.full_mean is again.games.best_mean is None


PONG, CARNIVAL, INVADERS = (f"{x}NoFrameskip-v4" for x in ("Pong", "Carnival", "SpaceInvaders"))


def play(tally, task, *returns):
    for value in returns:
        tally.book_game(
            EpisodeEnd(0, value, length_steps=10 + task, length_frames=40, task_id=task)
        )


def human(game, score):
    random, of_humans = anchors()[game]
    return (score - random) / (of_humans - random)


def test_each_of_several_games_has_values_of_its_own_under_declared_names():
    tally = Tally(4, 2, (PONG, CARNIVAL))
    play(tally, 1, 100.0, 300.0, 500.0)
    assert tally.games.read() == {
        "episode/count_0": 0.0,
        "episode/count_1": 3.0,
        "episode/return_mean_1": 400.0,  # of the last 2
        "episode/return_best_1": 500.0,
        "episode/length_steps_1": 11.0,
    }
    play(tally, 0, -21.0)
    record = tally.record({})
    assert record.episodes == 4
    assert record.values["episode/return_mean_0"] == -21.0
    assert "episode/length_steps_1" not in record.values  # none ended meanwhile
    for name in record.values:
        check_declared(name)


def test_the_score_is_the_mean_over_the_games_with_human_marks_once_each_was_played():
    tally = Tally(4, 2, (PONG, CARNIVAL, INVADERS))
    play(tally, 0, 10.0, 12.0)
    play(tally, 1, 99999.0)  # no marks are known of Carnival
    assert tally.games.mean is None
    play(tally, 2, 400.0)
    score = (human("pong", 11.0) + human("space_invaders", 400.0)) / 2
    assert tally.games.mean == pytest.approx(score)
    assert tally.record({}).values["episode/score_mean"] == pytest.approx(score)
    assert tally.games.best_mean is None  # one window is not full
    play(tally, 2, 400.0)
    assert tally.games.best_mean == pytest.approx(score)
    play(tally, 0, -21.0)
    assert tally.games.best_mean == pytest.approx(score)
    assert tally.games.mean < score


def test_a_game_that_is_not_played_does_not_keep_the_score_waiting():
    tally = Tally(4, 1, (PONG, CARNIVAL, INVADERS), environments=[0, 0, 4])
    assert tally.games.mean is None
    play(tally, 2, 400.0)
    assert tally.games.mean == tally.games.best_mean == human("space_invaders", 400.0)
    unknown = Tally(1, 1, (PONG, CARNIVAL, "tests/Counting-v0"), environments=[0, 1, 1])
    play(unknown, 1, 100.0)
    play(unknown, 2, 4.0)
    assert unknown.games.mean == 52.0, "of games without human marks: the mean of the returns"


def test_the_best_score_of_other_games_is_no_best_of_these():
    first = Tally(4, 1, (PONG, INVADERS), environments=[2, 0])
    play(first, 0, 21.0)
    assert first.games.best_mean == human("pong", 21.0)
    second = Tally(4, 1, (PONG, INVADERS), environments=[0, 2])  # a resume with other shares
    second.load_state_dict(first.state_dict())
    assert second.games.best_mean is None
    play(second, 1, 400.0)
    assert second.games.best_mean == human("space_invaders", 400.0)


def test_agent_steps_are_divided_among_the_games_by_the_environments_that_play_them():
    tally = Tally(4, 1, (PONG, INVADERS), environments=[3, 1])
    tally.book_block(WorkerStats(steps=80))
    alone = Tally(4, 1, (PONG, INVADERS), environments=[0, 2])  # a resume with other shares
    alone.load_state_dict(tally.state_dict())
    alone.book_block(WorkerStats(steps=40))
    for books, steps in ((tally, (60, 20)), (alone, (60, 60))):
        values = books.record({}).values
        assert (values["episode/agent_steps_0"], values["episode/agent_steps_1"]) == steps
        assert books.agent_steps == sum(steps)
    older = tally.state_dict()
    del older["steps_of_games"]
    alone.load_state_dict(older)
    assert alone.record({}).values["episode/agent_steps_1"] == 80
    assert "episode/agent_steps_0" not in busy_tally().record({}).values


def test_frames_of_earlier_sessions_stay_what_they_were():
    tally = busy_tally()  # 100 steps of 4 frames
    resumed = Tally(action_repeat=2, window=3)
    resumed.load_state_dict(tally.state_dict())
    resumed.book_block(WorkerStats(steps=10))
    assert resumed.counters().frames == 420
    older = tally.state_dict()
    del older["frames"]
    resumed.load_state_dict(older)
    assert resumed.counters().frames == 200


@pytest.mark.parametrize("steps", [[60.0], [1.0, 2.0, 3.0], [-1.0, 61.0], [float("nan"), 60.0]])
def test_a_checkpoint_with_steps_that_no_such_run_has_is_refused(steps):
    tally = Tally(4, 1, (PONG, INVADERS))
    tally.book_block(WorkerStats(steps=60))
    state = tally.state_dict()
    with pytest.raises(StateError, match=r"state\['steps_of_games'\]"):
        tally.load_state_dict({**state, "steps_of_games": steps})


def test_a_restored_tally_goes_on_with_each_game():
    tally = Tally(4, 2, (PONG, INVADERS))
    play(tally, 0, 1.0, 2.0)
    play(tally, 1, 300.0, 500.0)
    tally._wall_before_s = 1000.0
    restored = Tally(4, 2, (PONG, INVADERS))
    restored.load_state_dict(tally.state_dict())
    assert restored.counters().episodes == restored.games.count == 4
    assert restored.wall_s >= 1000.0
    assert restored.games.best_mean == tally.games.best_mean is not None
    assert restored.games.read() == tally.games.read()  # what no record has told yet goes along
    with pytest.raises(CheckpointError, match="2 games, expected 3"):
        Tally(4, 2, (PONG, INVADERS, CARNIVAL)).load_state_dict(tally.state_dict())
    with pytest.raises(CheckpointError, match="1 games, expected 2"):
        Tally(4, 2, (PONG, INVADERS)).load_state_dict(Tally(4, 2).state_dict())
