from fractions import Fraction
from typing import get_args

import numpy as np
import pytest

from ritornello.agent.run.experience import Experience, Serial
from ritornello.core.errors import CheckpointError
from ritornello.core.unroll import UnrollSchema
from ritornello.replay.mixing import DiscardingStrategy
from ritornello.replay.scoring import Evaluation, scored_rows
from tests.agent.builders import make_spec
from tests.replay.builders import (
    ALL_KINDS,
    SCHEMA,
    SCHEMA_WITHOUT_FEATURES,
    attentive,
    context,
    elite,
    evaluate_as_stored,
    make_manager,
    make_record,
    queue,
    seq_of,
    standard,
)

VECTORS = make_spec(obs_shape=(4,), actions=2)


def insert(manager, *seqs, **header):
    for seq in seqs:
        assert manager.insert(make_record(seq, **header), update=seq, timeout_s=0)


def sample_seqs(manager, given_context=None):
    draws = manager.sample(given_context or context(), timeout_s=0)
    return None if draws is None else [seq_of(draw.record) for draw in draws]


@pytest.mark.parametrize("strategy", get_args(DiscardingStrategy))
def test_without_a_queue_the_workers_wait_for_the_learner_whatever_a_full_queue_would_do(strategy):
    manager = make_manager(
        [standard(100)], 4, max_draws_per_unroll=1.0, discarding_strategy=strategy
    )
    came = 0
    while came < 50 and manager.insert(make_record(came), update=0, timeout_s=0):
        came += 1
    assert came < 20
    assert sample_seqs(manager)


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_a_draw_is_the_unroll_that_was_inserted(codec):
    manager = make_manager([queue(4, 0.5), standard(4, 0.5)], 4, codec=codec)
    record = make_record(5, version=3)
    manager.insert(record, update=9, timeout_s=0)
    expected = record.copy()
    record[:] = 0  # the slot of a ring is written again as soon as insert returns
    insert(manager, 6)
    draws = manager.sample(context(), 0)
    assert [draw.is_online for draw in draws] == [True, True, False, False]
    assert [draw.source for draw in draws] == [0, 0, 1, 1]
    np.testing.assert_array_equal(draws[0].record, expected)
    assert (draws[0].item.version, draws[0].item.inserted_at_update) == (3, 9)
    assert not draws[0].record.flags.writeable


def test_an_unroll_that_had_to_wait_comes_in_at_the_update_of_its_insertion():
    manager = make_manager([queue(1)], 1)
    assert manager.insert(make_record(0), update=3, timeout_s=0)
    assert not manager.insert(make_record(1), update=3, timeout_s=0)
    manager.sample(context(update=5), 0)  # meanwhile two updates were made
    manager.insert(make_record(1), update=3, timeout_s=0)
    (draw,) = manager.sample(context(update=5), 0)
    assert draw.item.inserted_at_update == 5


def test_in_warm_up_a_full_queue_drops_its_oldest_so_that_the_others_can_fill():
    manager = make_manager([queue(2, 0.5), standard(10, 0.5)], 4, fill_in_factor=0.8)
    insert(manager, *range(7))
    assert manager.missing() == "standard has 7 of 8 unrolls"
    assert sample_seqs(manager) is None
    insert(manager, 7)
    assert manager.missing() == ""
    assert not manager.insert(make_record(8), 0, timeout_s=0)  # now the learner can go on
    assert sample_seqs(manager)[:2] == [6, 7]
    stats = manager.stats()
    assert (stats["replay/queue/dropped"], stats["replay/queue/dropped_while_filling"]) == (0, 6)


@pytest.mark.parametrize(
    ("strategy", "kept"),
    [("keep_latest", [4, 5, 6, 7]), ("keep_oldest", [0, 1, 2, 3]), ("alternating", [2, 3, 4, 6])],
)
def test_a_discarding_strategy_decides_what_a_full_queue_keeps(strategy, kept):
    manager = make_manager(
        [queue(4, 0.5), standard(10, 0.5)], 8, fill_in_factor=0, discarding_strategy=strategy
    )
    insert(manager, *range(8))
    assert sample_seqs(manager)[:4] == kept
    stats = manager.stats()
    assert stats["replay/queue/dropped"] == 4
    assert stats["replay/standard/fill"] == 0.8  # the other buffers get everything


def online(manager, batches):
    sizes = []
    for _ in range(batches):
        draws = manager.sample(context(), 0)
        assert len(draws) == manager.batch_size
        sizes.append(sum(draw.is_online for draw in draws))
    return sizes


def test_a_run_goes_on_with_the_changed_share_draw_by_draw():
    def make():
        return make_manager([queue(80, 0.5), standard(80, 0.5)], 7)

    straight = make()
    insert(straight, *range(80))
    straight.set_replay_share(Fraction(2, 3))
    online(straight, 4)
    state = straight.state_dict(contents=True)
    after = [sample_seqs(straight) for _ in range(8)]
    resumed = make()
    resumed.load_state_dict(state)
    resumed.set_replay_share(Fraction(2, 3))  # as the settings of the checkpoint say it again
    assert [sample_seqs(resumed) for _ in range(8)] == after
    untouched = make()
    untouched.load_state_dict({**state, "mixer": {**state["mixer"], "share": None}})
    assert [sample_seqs(untouched) for _ in range(8)] != after, "the wrong way, for contrast"


class Model:
    """Says that features are now those of `present`; remembers what it was asked."""

    def __init__(self, present=0.0):
        self.present = present
        self.calls = []

    def __call__(self, records, rows, queries):
        self.calls.append(([seq_of(record) for record in records], rows.tolist()))
        stored = evaluate_as_stored(records, rows, queries)
        return Evaluation(
            np.full_like(stored.features, self.present), stored.params, stored.queries
        )


def test_elite_draws_what_the_model_still_sees_as_it_was():
    manager = make_manager(
        [queue(40, 0.5), elite(40, 0.5, elite_sampling_strategy=1, lambda_batch_multiplier=20)], 4
    )
    insert(manager, *range(30))
    # Stored features of unroll s are all s; now they are all 12: nearest are 12, then 11 and 13.
    assert sample_seqs(manager, context(evaluate=Model(12))) == [0, 1, 12, 11]


def test_a_score_stride_scores_fewer_rows_and_always_the_last():
    model = Model()
    manager = make_manager([queue(40, 0.5), elite(40, 0.5, score_stride=3)], 4)
    insert(manager, *range(20))
    sample_seqs(manager, context(evaluate=model))
    assert model.calls[0][1] == [0, 3]
    assert scored_rows(20, 8).tolist() == [3, 11, 19]
    assert scored_rows(1, 8).tolist() == [0]
    assert scored_rows(20, 1).tolist() == list(range(20))
    assert scored_rows(20, 8).strides[0] > 0  # torch indexes with no other


def test_attentive_draws_what_is_near_the_newest_unrolls_of_the_environments():
    manager = make_manager(
        [
            queue(90, 0.5),
            attentive(90, 0.5, lambda_batch_multiplier=40, elite_sampling_strategy=1),
        ],
        8,
    )
    insert(manager, *range(30))  # environment 0, newest 29
    insert(manager, *range(30, 40), env_id=1)  # newest 39
    manager.sample(context(), 0)
    calls = []

    def evaluate(records, rows, queries):
        calls.append((len(records), rows.tolist(), len(queries)))
        return evaluate_as_stored(records, rows, queries)

    drawn = sample_seqs(manager, context(evaluate=evaluate))[4:]
    assert sorted(drawn[:2]) == [29, 39]
    assert set(drawn[2:]) <= {28, 30, 38}
    # The newest are among the candidates, so that they need no evaluation of their own.
    assert calls == [(40, [0, 1, 2, 3], 0)]


def test_elite_insertion_drops_what_the_model_sees_differently_now():
    manager = make_manager(
        [queue(1, 0.5), standard(10, 0.5, insert_strategy="elite_insertion")],
        2,
        fill_in_factor=1.0,
    )
    insert(manager, *range(10))
    # Stored features are the numbers 0 to 9; now all are 0: 9 has moved farthest, then 8.
    sample_seqs(manager, context(evaluate=Model(0)))
    insert(manager, 10)
    sample_seqs(manager, context(evaluate=Model(10)))  # from now on 0 is the farthest
    insert(manager, 11)
    held = manager.state_dict(contents=True)["contents"]["buffers"][1]["ids"]
    assert sorted(held) == [1, 2, 3, 4, 5, 6, 7, 8, 10, 11]


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_a_state_with_contents_goes_on_bit_for_bit(codec):
    def make():
        return make_manager(ALL_KINDS, 7, codec=codec, fill_in_factor=0.2, max_draws_per_unroll=50)

    def run(manager, first, count):
        seen = []
        for seq in range(first, first + count):
            manager.insert(make_record(seq, env_id=seq % 3), seq, timeout_s=0)
            seen.append(sample_seqs(manager, context(progress=0.3, update=seq, evaluate=Model(9))))
        return seen

    straight = make()
    before = run(straight, 0, 31)
    state = straight.state_dict(contents=True)
    after = run(straight, 31, 40)  # must not change the state that was taken
    assert sum(batch is not None for batch in before) > 5
    resumed = make()
    resumed.load_state_dict(state)
    assert run(resumed, 31, 40) == after
    assert resumed.stats() == straight.stats()


def test_a_state_without_contents_keeps_counters_and_fills_up_again():
    manager = make_manager([queue(8, 0.5), standard(8, 0.5)], 4, fill_in_factor=0.5)
    insert(manager, 0, 1, 2, 3)
    manager.sample(context(), 0)
    resumed = make_manager([queue(8, 0.5), standard(8, 0.5)], 4, fill_in_factor=0.5, seed=9)
    resumed.load_state_dict(manager.state_dict(contents=False))
    assert resumed.stats()["replay/draws_per_unroll"] == 1
    assert resumed.stats()["replay/standard/draws"] == 2
    assert resumed.stats()["replay/queue/draws"] == 2
    assert resumed.stats()["replay/standard/fill"] == 0
    assert resumed.buffers[1].counts.offered == 0, "a reservoir would hardly take anything in"
    assert resumed.missing() == "queue has 0 of 2 unrolls, standard has 0 of 4 unrolls"
    insert(resumed, 4, 5, 6, 7)
    assert sample_seqs(resumed)[:2] == [4, 5]


def test_a_state_of_other_buffers_or_another_schema_is_refused():
    state = make_manager([queue(8)], 4).state_dict(contents=True)
    with pytest.raises(CheckpointError, match="standard"):
        make_manager([queue(8, 0.5), standard(8, 0.5)], 4).load_state_dict(state)
    with pytest.raises(CheckpointError, match="without replay contents"):
        make_manager([queue(8)], 4, schema=SCHEMA_WITHOUT_FEATURES).load_state_dict(state)


def test_unrolls_of_another_length_are_refused_also_where_padding_makes_them_as_large():
    """The further steps were never played, and would be learned from as if they were."""
    short, longer = (UnrollSchema(VECTORS, unroll_length=steps) for steps in (20, 23))
    assert short.nbytes == longer.nbytes
    state = make_manager([queue(8)], 4, schema=short).state_dict(contents=True)
    with pytest.raises(CheckpointError, match=r"20 steps.*this run's have 23"):
        make_manager([queue(8)], 4, schema=longer).load_state_dict(state)
    del state["contents"]["items"]["unroll_length"]  # as in a file of an earlier version
    make_manager([queue(8)], 4, schema=short).load_state_dict(state)


def test_contents_that_do_not_fit_cost_the_contents_and_not_the_counters(caplog):
    """A resume with a smaller buffer: what plays on has to know what was drawn before."""
    manager = make_manager([queue(8, 0.5), standard(8, 0.5)], 4, fill_in_factor=0.5)
    insert(manager, *range(8))
    manager.sample(context(), 0)
    smaller = make_manager([queue(8, 0.5), standard(4, 0.5)], 4, fill_in_factor=0.5, seed=9)
    side = Experience(None, smaller, None)
    side.load_state_dict(
        {"replay": manager.state_dict(contents=False)}, manager.state_dict(contents=True)
    )
    assert "Going on with empty buffers" in caplog.text
    assert smaller.stats()["replay/unrolls"] == 0
    for name in ("replay/standard/draws", "replay/draws_per_unroll"):
        assert smaller.stats()[name] == manager.stats()[name] > 0


@pytest.mark.parametrize("kind", [Experience, Serial])
def test_a_resume_leaves_behind_what_no_update_can_be_made_of(kind):
    """Else it ends as the session before it did; an exact one has to."""
    schema = UnrollSchema(SCHEMA.env_spec, unroll_length=4, state_count=2)
    options = {"schema": schema, "max_draws_per_unroll": 0.1}
    manager, resumed = (make_manager([standard(16)], 4, **options) for _ in range(2))
    bad = {1: ("reward", np.nan), 2: ("frames", np.nan), 3: ("frames", np.inf)}
    bad |= {4: ("state", np.inf), 5: ("behaviour_params", np.nan)}
    for seq in range(8):
        record = make_record(seq, schema=schema)
        name, value = bad.get(seq, ("reward", np.inf))  # which clipping makes a 1 of
        schema.view(record, name).flat[-1] = value
        manager.insert(record, 0, timeout_s=0)
    saved = {"replay": manager.state_dict(contents=False)}
    kind(None, resumed, None).load_state_dict(saved, manager.state_dict(contents=True))
    left = {item.id for item in resumed.buffers[0].items}
    assert left == ({0, 6, 7} if kind is Experience else set(range(8)))
