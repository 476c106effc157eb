import pytest
import torch

from agent.tally import Tally
from core.episode import EpisodeEnd
from transport.channel import WorkerStats


def game(value, steps=10):
    return EpisodeEnd(0, value, steps, steps * 4)


def busy_tally():
    tally = Tally(action_repeat=4, window=3)
    tally.book_block(WorkerStats(steps=100, total_s=10.0, env_s=5.0, act_s=2.0, wait_s=3.0))
    for value in (1.0, 2.0, 3.0, 4.0):
        tally.book_game(game(value))
    for value in (0.5, 1.5):
        tally.book_update({"loss/total": torch.tensor(value)})
    return tally


def test_a_record_has_counters_means_and_shares_of_the_workers_time():
    record = busy_tally().record({"workers/alive": 2.0})
    assert (record.agent_steps, record.frames, record.updates, record.episodes) == (100, 400, 2, 4)
    values = record.values
    assert values["loss/total"] == 1.0
    assert values["episode/return_raw"] == 2.5  # of this interval
    assert values["episode/return_mean_100"] == 3.0  # of the window of 3
    assert values["workers/env_fraction"] == 0.5
    assert values["workers/act_fraction"] == 0.2
    assert values["ring/wait_fraction"] == pytest.approx(0.3)
    assert values["workers/alive"] == 2.0
    assert values["throughput/frames_per_s"] == 4 * values["throughput/agent_steps_per_s"]


def test_an_update_that_has_no_value_for_a_metric_does_not_spoil_its_mean():
    tally = Tally(1, 3)
    for value in (1.0, float("nan"), 3.0):
        tally.book_update({"replay/standard/drawn_age_updates": torch.tensor(value)})
    assert tally.record({}).values["replay/standard/drawn_age_updates"] == 2.0
    tally.book_update({"replay/standard/drawn_age_updates": torch.tensor(float("nan"))})
    assert "replay/standard/drawn_age_updates" not in tally.record({}).values


def test_a_metric_is_averaged_over_the_updates_that_reported_it():
    tally = Tally(1, 3)
    tally.book_update(
        {"loss/total": torch.tensor(1.0), "vtrace/masked_fraction": torch.tensor(0.5)}
    )
    tally.book_update({"loss/total": torch.tensor(3.0)})
    values = tally.record({}).values
    assert (values["loss/total"], values["vtrace/masked_fraction"]) == (2.0, 0.5)


def test_the_next_record_starts_from_nothing_but_counters_and_window():
    tally = busy_tally()
    tally.record({})
    assert not tally.has_news
    record = tally.record({})
    assert record.updates == 2
    assert "loss/total" not in record.values
    assert "episode/return_raw" not in record.values
    assert record.values["episode/return_mean_100"] == 3.0


def test_a_restored_tally_continues_counters_window_best_and_time():
    tally = busy_tally()
    tally._wall_before_s = 1000.0
    restored = Tally(4, 3)
    restored.load_state_dict(tally.state_dict())
    assert restored.counters().agent_steps == 100
    assert restored.counters().episodes == 4
    assert restored.wall_s >= 1000.0
    assert (restored.games.mean, restored.games.best, restored.games.best_mean) == (3.0, 4.0, 3.0)


def test_taking_a_state_does_not_tie_it_to_the_tally():
    tally = busy_tally()
    state = tally.state_dict()
    tally.book_game(game(9.0))
    assert state["games"]["count"] == 4
    assert 9.0 not in state["games"]["window"]
