"""Replay of several games: each has its own part of every buffer but the queue."""

import numpy as np
import pytest

from ritornello.core.errors import CheckpointError
from ritornello.replay.item import Item
from ritornello.replay.newest import NewestUnrolls
from ritornello.replay.scoring import Evaluation
from tests.replay.builders import (
    SCHEMA,
    attentive,
    context,
    elite,
    evaluate_as_stored,
    make_manager,
    make_record,
    queries_of,
    queue,
    seq_of,
    standard,
)

NEAREST = {"elite_sampling_strategy": 1, "lambda_batch_multiplier": 20}


def insert(manager, *seqs, game, env_id=0):
    for seq in seqs:
        record = make_record(seq, env_id=env_id, task_id=game)
        assert manager.insert(record, update=seq, timeout_s=0)


def game_of_record(record):
    return int(SCHEMA.view(record, "task_id"))


def game_of(draw):
    return game_of_record(draw.record)


def held(manager, name):
    (buffer,) = (buffer for buffer in manager.buffers if buffer.name == name)
    return [seq_of(item.record()) for item in buffer.items]


def test_a_game_that_is_not_played_has_no_part_and_the_others_have_all_of_it():
    manager = make_manager([queue(4, 0.5), standard(8, 0.5)], 4, task_shares=(3, 0, 1))
    assert [buffer.name for buffer in manager.buffers] == ["queue", "standard_0", "standard_2"]
    insert(manager, *range(6), game=2)
    assert held(manager, "standard_2") == [4, 5]  # a quarter of 8
    alone = make_manager([queue(4, 0.5), standard(8, 0.5)], 4, task_shares=(0, 1))
    insert(alone, *range(10, 14), game=1)
    assert held(alone, "standard_1") == [10, 11, 12, 13]
    assert [game_of(draw) for draw in alone.sample(context(), 0)] == [1] * 4


def test_a_buffer_that_is_not_per_game_keeps_what_was_played_of_a_game_before():
    parameters = [queue(9, 0.5), standard(8, 0.5, reservoir=True, per_game=False)]
    before = make_manager(parameters, 4, task_shares=(1, 0))
    assert [(buffer.name, buffer.task) for buffer in before.buffers][1] == ("standard", None)
    insert(before, *range(4), game=0)
    after = make_manager(parameters, 4, task_shares=(0, 1))
    after.load_state_dict(before.state_dict(contents=True))
    insert(after, *range(4, 8), game=1)
    assert held(after, "standard") == list(range(8))
    drawn = [draw for _ in range(20) if (draws := after.sample(context(), 0)) for draw in draws]
    assert {game_of(draw) for draw in drawn if not draw.is_online} == {0, 1}
    apart = make_manager([queue(4, 0.5), standard(8, 0.5)], 4, task_shares=(1, 0))
    with pytest.raises(CheckpointError, match="with per_game off"):
        after.load_state_dict(apart.state_dict(contents=True))


def test_distances_are_compared_only_within_a_game():
    manager = make_manager([queue(90, 0.5), elite(80, 0.5, **NEAREST)], 8, task_shares=(1, 1))
    insert(manager, *range(20), game=0)
    insert(manager, *range(20, 40), game=1)

    def evaluate(records, rows, queries):  # what is farther from 12 has drifted farther
        stored = evaluate_as_stored(records, rows, queries)
        drift = [abs(seq_of(record) - 12) for record in records]
        return Evaluation(stored.features + np.reshape(drift, (-1, 1, 1)), stored.params)

    draws = [seq_of(d.record) for d in manager.sample(context(evaluate=evaluate), 0)][4:]
    # All of game 0 are nearer than any of game 1, and yet each gives its half.
    assert draws[0] == 12
    assert draws[1] in (11, 13)
    assert draws[2:] == [20, 21]


def test_the_present_states_of_a_game_are_no_queries_of_another():
    manager = make_manager([queue(90, 0.5), attentive(80, 0.5, **NEAREST)], 8, task_shares=(1, 1))
    insert(manager, *range(40, 60), game=0)  # 40 to 59, and at last 0, where it is now
    insert(manager, 0, game=0)
    insert(manager, *range(20), game=1, env_id=1)
    insert(manager, 50, game=1, env_id=1)
    draws = [seq_of(d.record) for d in manager.sample(context(), 0)][4:]
    # Of all queries, 50 of game 1 would be the nearest to most of game 0.
    assert draws == [0, 40, 50, 19]


def test_the_games_share_the_queries():
    manager = make_manager([queue(900, 0.5), attentive(800, 0.5)], 8, task_shares=(1, 1, 1))
    for game in range(3):
        for env_id in range(20):
            insert(manager, 100 * game + env_id, game=game, env_id=100 * game + env_id)
    insert(manager, 90, game=0, env_id=10)
    queries = [queries_of(buffer) for buffer in manager.buffers[1:]]
    assert manager.sample(context(), 0) is not None
    # A third of 32 each; environment 10 has been heard of again since it came in tenth.
    assert queries == [[11, *range(12, 20), 90], list(range(110, 120)), list(range(210, 220))]


def test_an_environment_that_is_gone_is_compared_with_no_longer():
    newest = NewestUnrolls([None])
    record = make_record(0)
    for i in range(3):
        newest.keep(Item(i, record, "none", 0, 0), (0, i), 0)
    # After a resume there is one environment.
    for i, left in ((3, [1, 2, 3]), (1001, [1, 2, 1001]), (1003, [1003])):
        newest.keep(Item(i, record, "none", 0, 0), (0, 0), 0)
        assert [item.id for item in newest.of(None)] == left


def test_the_queries_of_a_game_and_those_of_all_games_survive_a_checkpoint():
    newest, items = NewestUnrolls([None, 0, 1]), {}
    for seq in (*range(16), 0, 15, 8):  # 10 of the 16 environments are among the newest of all
        record = make_record(seq, env_id=seq, task_id=seq % 2)
        item = Item(len(items), record, "none", 0, 0)
        items[item.id] = item
        newest.keep(item, (0, seq), seq % 2)
    resumed = NewestUnrolls([None, 0, 1])
    resumed.load_state(newest.state(), items, SCHEMA)
    for task in (None, 0, 1):
        assert resumed.of(task) == newest.of(task)
