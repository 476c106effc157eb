import itertools

import numpy as np
import pytest
import torch

from ritornello.agent.acting.actor import Actor, Observation
from ritornello.agent.acting.worker import WorkerBody
from ritornello.agent.pools.serial_pool import SerialPool
from ritornello.transport.weights import WeightBoard
from tests.agent.builders import batch_of, heads_of, make_small_model, make_spec
from tests.agent.runs import BOTH_GAMES, make_blueprint
from tests.fakes import CountingEnv
from tests.tolerances import rounding

LSTM = {"use_lstm": True, "lstm_size": 7}  # with all extra inputs, see --use_last_action
EXTRAS = {"use_last_action": True, "use_last_reward": True}
REACH = "tests.worlds:tests/Reach-v0"  # its state follows from actions of real numbers
GAMES = {"env": BOTH_GAMES, "use_task_id": True}


def close(expected):
    """Tolerances for what one network computes of one row and of many, which it sums otherwise."""
    size = max(1.0, float(np.abs(expected).max()))
    return {"rtol": 0, "atol": rounding(torch.float32, 32, size)}


def make_board(blueprint, version=0):
    board = WeightBoard(blueprint.acting_weights.nbytes)
    with board.write(version) as block:
        blueprint.acting_weights.pack(blueprint.learner().model, block)
    return board


def collect(blueprint, blocks):
    """The first `blocks` blocks of worker 0, as unrolls [blocks][E]."""
    records, episodes, steps = collect_records(blueprint, blocks)
    return [[blueprint.schema.unroll(r) for r in block] for block in records], episodes, steps


def collect_records(blueprint, blocks):
    """The same as records [blocks] of [E, nbytes]."""
    board = make_board(blueprint)
    body = WorkerBody(blueprint.workers()[0], board)
    collected, episodes, steps = [], [], 0
    for _ in range(blocks):
        block = blueprint.schema.allocate(blueprint.choices.envs_per_worker)
        ended, stats = body.collect(block)
        collected.append(block)
        episodes += ended
        steps += stats.steps
    body.close()
    return collected, episodes, steps


def test_an_unroll_goes_on_where_the_one_before_of_the_same_environment_ended():
    blocks, _, _ = collect(make_blueprint(), 6)
    for unroll in blocks[0]:
        assert unroll.first[0]
        assert (unroll.last_action, unroll.last_reward) == (0, 0)
        assert unroll.state is None
    for earlier, later in itertools.pairwise(blocks):
        for before, after in zip(earlier, later, strict=True):
            assert int(after.seq) == int(before.seq) + 1
            np.testing.assert_array_equal(before.frames[-1], after.frames[0])
            assert before.first[-1] == after.first[0]
            assert after.last_action == before.action[-1]
            assert after.last_reward == before.reward[-1]


def check_recomputed(blueprint, blocks):
    """From what unrolls hold, the model computes what the actor computed; T rows of each."""
    model, resets = blueprint.learner().model, 0
    for records in blocks:
        batch, unroll = batch_of(blueprint.schema, records), blueprint.schema.unroll(records)
        with torch.no_grad():
            heads = heads_of(model, batch)
        params, values = heads.params[:-1].transpose(0, 1), heads.value[:-1].T
        np.testing.assert_allclose(unroll.behaviour_params, params, **close(params.numpy()))
        np.testing.assert_allclose(unroll.behaviour_value, values, **close(values.numpy()))
        resets += int(batch.first[1:-1].sum())
    return resets


def check_states(blueprint, blocks):
    """The memory at the end of an unroll, by the model, is the one at the start of the next."""
    model = blueprint.learner().model
    for records, following in itertools.pairwise(blocks):
        batch = batch_of(blueprint.schema, records)
        steps = batch.inputs()._replace(
            obs=batch.obs[:-1], first=batch.first[:-1], last_action=batch.last_action[:-1],
            last_reward=batch.last_reward[:-1],
        )  # fmt: skip
        with torch.no_grad():
            _, state = model.hidden(model.torso(steps.obs), steps, batch.state)
        stored = blueprint.schema.unroll(following).state
        assert np.abs(stored).max() > 0.01
        np.testing.assert_allclose(stored, state.numpy(), **close(state.numpy()))


@pytest.mark.parametrize("model", [{}, EXTRAS, LSTM, {**LSTM, **GAMES}], ids=str)
def test_the_learner_recomputes_the_logits_and_values_that_acted(model):
    """With resets in the middle of unrolls."""
    blueprint = make_blueprint(**model)
    blocks, _, _ = collect_records(blueprint, 8)
    assert check_recomputed(blueprint, blocks) > 10


def test_memory_goes_over_the_borders_of_unrolls_and_ends_at_a_reset():
    blueprint = make_blueprint(**LSTM, **GAMES)
    assert blueprint.schema.state_count == 2 * 7
    blocks, _, _ = collect_records(blueprint, 8)
    assert not blueprint.schema.unroll(blocks[0]).state.any()
    check_states(blueprint, blocks)


def test_unrolls_and_games_say_which_game_they_are_of():
    """The second game pays the negative of what the first one pays."""
    blueprint = make_blueprint(env=BOTH_GAMES, envs_per_worker=5)
    tasks = blueprint.workers()[0].tasks
    assert sorted(set(tasks)) == [0, 1]
    blocks, episodes, _ = collect_records(blueprint, 8)
    unroll = blueprint.schema.unroll(np.stack(blocks))
    assert unroll.task_id.tolist() == [list(tasks)] * 8
    for env, task in enumerate(tasks):
        reward = unroll.reward[:, env]
        assert reward.any()
        assert (reward <= 0 if task else reward >= 0).all()
    assert {end.task_id for end in episodes} == {0, 1}
    for end in episodes:
        assert end.task_id == tasks[end.env_id]
        assert end.return_raw * (-1) ** end.task_id > 0


def check_rows(blocks, envs, min_rows):
    """The counting environment says in each observation which one it is, and what was done."""
    rows_seen = resets_seen = ends_seen = 0
    for env in range(envs):
        unrolls = [block[env] for block in blocks]
        frames = np.concatenate([u.frames[:-1] for u in unrolls])
        first = np.concatenate([u.first[:-1] for u in unrolls])
        action = np.concatenate([u.action for u in unrolls])
        reward = np.concatenate([u.reward for u in unrolls])
        terminated = np.concatenate([u.terminated for u in unrolls])
        for t in range(len(action) - 1):
            seed, count, _ = CountingEnv.decode(frames[t])
            next_seed, next_count, previous_action = CountingEnv.decode(frames[t + 1])
            length, terminates = CountingEnv.plan(seed)
            rows_seen += 1
            if first[t + 1]:  # the reset row: row t is the true last observation
                resets_seen += 1
                assert count == length
                assert (next_count, previous_action) == (0, -1)
                assert next_seed != seed
                assert (reward[t], terminated[t]) == (0.0, False)
            else:
                assert (next_seed, next_count, previous_action) == (seed, count + 1, action[t])
                assert reward[t] == count
                assert terminated[t] == (next_count == length and terminates)
                ends_seen += terminated[t]
    assert rows_seen > min_rows
    assert resets_seen > min_rows / 20
    assert 0 < ends_seen < resets_seen  # some episodes were truncated


def test_each_row_holds_what_the_environment_showed_and_got():
    blocks, _, _ = collect(make_blueprint(), 8)
    check_rows(blocks, 3, min_rows=100)


def test_games_are_reported_once_and_reset_rows_are_no_steps():
    blocks, episodes, steps = collect(make_blueprint(), 8)
    resets = sum(int(u.first[1:].sum()) for block in blocks for u in block)
    assert steps == 8 * 5 * 3 - resets
    ended = sum(e.length_steps for e in episodes)
    assert steps - 3 * 12 < ended <= steps  # the rest is the unfinished games
    for episode in episodes:
        # The rewards of CountingEnv are 0, 1, 2, ..., so a return tells the length.
        n = episode.length_steps
        assert episode.return_raw == n * (n - 1) / 2


@pytest.mark.parametrize("model", [{}, LSTM, {**LSTM, **GAMES}, {"env": REACH}], ids=str)
def test_a_serial_pool_goes_on_exactly_where_its_state_was_taken(model):
    blueprint = make_blueprint(reproducible=True, worker_count=2, **model)
    board = make_board(blueprint)
    pool = SerialPool(blueprint.workers(), board)
    pool.start()
    for _ in range(5):
        pool.poll(0.0)
    state = pool.state_dict()
    expected = [pool.poll(0.0)[0].records for _ in range(4)]
    pool.stop(0.0)

    restored = SerialPool(blueprint.workers(life=1), board)  # with other games of its own
    restored.start()
    restored.load_state_dict(state)
    for records in expected:
        np.testing.assert_array_equal(restored.poll(0.0)[0].records, records)
    restored.stop(0.0)


@pytest.mark.parametrize("greedy", [False, True])
def test_actions_are_drawn_from_the_policy(greedy):
    """Chi-square of 6 000 draws of a fixed distribution; greedy takes the mode only."""
    from scipy.stats import chisquare

    model, logits = make_small_model(make_spec(actions=4)), torch.tensor([0.0, 1.0, -1.0, 0.5])
    with torch.no_grad():
        model.policy_head.weight.zero_()
        model.policy_head.bias.copy_(logits)
    actor = Actor(model, seed=7, with_features=False, greedy=greedy)
    shown = Observation.at_start(np.zeros((6000, 1, 6), np.float32))
    counts = np.bincount(actor.act(shown).action, minlength=4)
    if greedy:
        assert counts.tolist() == [0, 6000, 0, 0]
    else:
        assert chisquare(counts, 6000 * logits.softmax(0).numpy()).pvalue > 1e-3
