import itertools

import numpy as np
import pytest

from agent.pool import SerialPool
from agent.worker import WorkerBody
from tests.agent.runs import make_blueprint
from tests.fakes import CountingEnv
from transport.weights import WeightBoard


def make_board(blueprint, version=0):
    board = WeightBoard(blueprint.acting_weights.nbytes)
    with board.write(version) as block:
        blueprint.acting_weights.pack(blueprint.learner().model, block)
    return board


def collect(blueprint, blocks):
    """The first `blocks` blocks of worker 0, as unrolls [blocks][E]."""
    board = make_board(blueprint)
    body = WorkerBody(blueprint.workers()[0], board)
    collected, episodes, steps = [], [], 0
    for _ in range(blocks):
        block = blueprint.schema.allocate(blueprint.choices.envs_per_worker)
        _, ended, stats = body.collect(block)
        collected.append([blueprint.schema.unroll(record) for record in block])
        episodes += ended
        steps += stats.steps
    body.close()
    return collected, episodes, steps


def test_row_T_of_unroll_n_equals_row_0_of_unroll_n_plus_1_of_the_same_environment():
    blocks, _, _ = collect(make_blueprint(), 6)
    for earlier, later in itertools.pairwise(blocks):
        for before, after in zip(earlier, later, strict=True):
            assert int(after.seq) == int(before.seq) + 1
            np.testing.assert_array_equal(before.frames[-1], after.frames[0])
            assert before.first[-1] == after.first[0]


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


def test_an_unroll_is_written_completely():
    blueprint = make_blueprint(debug=True)  # debug poisons each block and checks it afterwards
    blocks, _, _ = collect(blueprint, 2)
    for block in blocks:
        for unroll in block:
            blueprint.schema.check(unroll)


def test_the_recorded_logits_and_values_are_those_of_the_weights_of_that_version():
    import torch

    blueprint = make_blueprint()
    learner = blueprint.learner()
    blocks, _, _ = collect(blueprint, 2)
    unroll = blocks[1][2]
    with torch.no_grad():
        heads = learner.model(torch.from_numpy(unroll.frames[:-1].copy()))
    np.testing.assert_allclose(heads.params.numpy(), unroll.behaviour_params, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(heads.value.numpy(), unroll.behaviour_value, rtol=1e-5, atol=1e-6)


def test_a_serial_pool_goes_on_exactly_where_its_state_was_taken():
    blueprint = make_blueprint(reproducible=True, worker_count=2)
    board = make_board(blueprint)
    pool = SerialPool(blueprint.workers(), board)
    pool.start()
    for _ in range(5):
        pool.poll(0.0)
    state = pool.state_dict()
    expected = [pool.poll(0.0)[0].records for _ in range(4)]
    pool.stop(0.0)

    restored = SerialPool(blueprint.workers(), board)
    restored.start()
    restored.load_state_dict(state)
    for records in expected:
        np.testing.assert_array_equal(restored.poll(0.0)[0].records, records)
    restored.stop(0.0)


@pytest.mark.parametrize("greedy", [False, True])
def test_actions_are_drawn_from_the_policy(greedy):
    """Chi-square of 6 000 draws of a fixed distribution; greedy takes the mode only."""
    import torch
    from scipy.stats import chisquare

    from agent.acting import Actor
    from agent.models.base import Heads

    logits = torch.tensor([0.0, 1.0, -1.0, 0.5])

    class Fixed:
        def torso(self, obs):
            return obs

        def heads(self, features, task_id):
            n = features.shape[0]
            zeros = torch.zeros(n)
            return Heads(logits.expand(n, 4).clone(), zeros, zeros)

    actor = Actor(Fixed(), seed=7, with_features=False, greedy=greedy)
    actions = actor.act(np.zeros((6000, 1, 2), np.float32)).action
    counts = np.bincount(actions, minlength=4)
    if greedy:
        assert counts.tolist() == [0, 6000, 0, 0]
    else:
        assert chisquare(counts, 6000 * logits.softmax(0).numpy()).pvalue > 1e-3
