"""The whole learner solves environments of which the best policy and its value are known exactly.

What each test looks for is written as a criterion that says what is wrong. Beside each stands a
learner with one mistake, or without the part that the environment asks for, which must fail it:
those are slow tests.
"""

import numpy as np
import pytest

from ritornello.agent.distributions import CategoricalPolicy
from ritornello.agent.learning.feed import BatchLayout
from ritornello.agent.run.trainer import Trainer
from ritornello.replay.registry import SHIPPED
from tests.fakes import BanditEnv, ChainEnv, CueEnv, DelayedEnv, InfiniteEnv, MirrorEnv
from tests.learning.training import ALL_KINDS, GAMMA, look, train

slow = pytest.mark.slow
IMPACT = {"algorithm": "impact", "kind": "circular"}
# Four batches of 16 unrolls, each used twice.
WIDE = {
    "batch_size": 16,
    "replay_parameters": [{"type": "circular", "capacity": 64, "sample_ratio": 1.0, "uses": 2}],
}
CORRIDOR_KINDS = [kind if kind == "elite" else pytest.param(kind, marks=slow) for kind in ALL_KINDS]


def test_every_kind_of_replay_is_among_those_that_must_learn():
    assert set(ALL_KINDS) == SHIPPED


def in_each_batch(monkeypatch, change):
    """Let every batch be changed before it is learned from: `change` gets arrays by name."""
    unpack = BatchLayout.unpack

    def changed(layout, packed):
        batch = unpack(layout, packed)
        change({name: tensor.numpy() for name, tensor in batch.tensors().items()})
        return batch

    monkeypatch.setattr(BatchLayout, "unpack", changed)


def complaints_about_the_corridor(trainer):
    probabilities, values = look(trainer, [np.eye(5)[:4]])
    found = complaints_about_those_who_walked(trainer)
    for cell, (right, value) in enumerate(zip(probabilities[0, :, 1], values[0], strict=True)):
        best = ChainEnv.optimal_value(GAMMA, cell)
        if right < 0.8:
            found.append(f"goes right in cell {cell} with probability {right:.2f}")
        if abs(value - best) > 0.12:
            found.append(f"value of cell {cell}: {value:.2f}, not {best:.2f}")
    return found


def complaints_about_those_who_walked(trainer):
    """The way takes 4 steps and a reset row; at random it takes 16, and then few games are over."""
    tally = trainer._tally
    is_slow = tally.games.count < 0.14 * tally.agent_steps
    return [f"{tally.games.count} games in {tally.agent_steps} steps"] if is_slow else []


@pytest.mark.parametrize("kind", CORRIDOR_KINDS)
def test_the_way_through_a_corridor_is_learned_with_each_kind_of_replay(tmp_path, kind):
    steps = 9_000 if kind == "queue" else 5_000
    assert not complaints_about_the_corridor(train(tmp_path, "Chain", kind=kind, steps=steps))


@slow
def test_whoever_pairs_actions_with_the_next_observation_does_not_learn_the_way(
    tmp_path, monkeypatch
):
    def shift(arrays):
        for name in ("action", "behaviour_params"):
            arrays[name][...] = np.roll(arrays[name], 1, axis=0)

    in_each_batch(monkeypatch, shift)
    trainer = train(tmp_path, "Chain", kind="standard", steps=5_000)
    assert complaints_about_the_corridor(trainer)


@slow
def test_whoever_never_publishes_new_weights_acts_like_a_beginner(tmp_path, monkeypatch):
    """Off-policy data is corrected for, so what is learned is right, but nobody walks by it."""
    publish = Trainer._publish

    def publish_at_the_start(trainer):
        if not trainer._learner.version:
            publish(trainer)

    monkeypatch.setattr(Trainer, "_publish", publish_at_the_start)
    assert complaints_about_those_who_walked(train(tmp_path, "Chain", kind="standard", steps=4_000))


def test_the_way_through_a_corridor_is_learned_by_impact(tmp_path):
    assert not complaints_about_the_corridor(train(tmp_path, "Chain", steps=5_000, **IMPACT))


@slow
def test_whoever_never_renews_the_target_does_not_learn_the_values(tmp_path):
    trainer = train(tmp_path, "Chain", steps=5_000, impact_target_period=10**6, **IMPACT)
    assert complaints_about_the_corridor(trainer)


def value_of_the_endless_game(trainer):
    return look(trainer, [np.ones((1, 2))])[1].item()


@slow
@pytest.mark.parametrize("flags", [{"kind": "queue"}, IMPACT])
def test_what_comes_after_a_time_limit_is_worth_as_much_as_before(tmp_path, flags):
    trainer = train(tmp_path, "Infinite", steps=5_000, **flags)
    assert value_of_the_endless_game(trainer) == pytest.approx(
        InfiniteEnv.true_value(GAMMA), rel=0.1
    )


@slow
def test_whoever_takes_truncation_for_termination_finds_less(tmp_path, monkeypatch):
    def mistake(arrays):
        arrays["terminated"][:-1] |= arrays["first"][2:]

    in_each_batch(monkeypatch, mistake)
    trainer = train(tmp_path, "Infinite", steps=5_000)
    assert value_of_the_endless_game(trainer) < 0.8 * InfiniteEnv.true_value(GAMMA)


def complaints_about_the_choice(trainer):
    probabilities, values = look(trainer, [np.eye(1 + 2 * DelayedEnv.LENGTH)[:1]])
    found = []
    if probabilities[0, 0, 1] < 0.9:
        found.append(f"chooses the later reward with probability {probabilities[0, 0, 1]:.2f}")
    best = DelayedEnv.optimal_value(GAMMA)
    if abs(values.item() - best) > 0.06:
        found.append(f"value of the start: {values.item():.2f}, not {best:.2f}")
    return found


SHORT = {"r_f_steps": 4, "entropy_loss_weight": 0.02, "steps": 6_500, "batch_size": 16}


@pytest.mark.parametrize(
    "flags", [{"kind": "least_drawn"}, pytest.param({**IMPACT, **WIDE}, marks=slow)]
)
def test_a_reward_beyond_the_end_of_the_unroll_decides(tmp_path, flags):
    assert not complaints_about_the_choice(train(tmp_path, "Delayed", **{**SHORT, **flags}))


@slow
def test_whoever_sees_no_further_than_the_unroll_takes_what_is_paid_at_once(tmp_path, monkeypatch):
    def forget_what_comes_after(arrays):
        arrays["terminated"][-1] = True

    in_each_batch(monkeypatch, forget_what_comes_after)
    trainer = train(tmp_path, "Delayed", kind="least_drawn", **SHORT)
    assert complaints_about_the_choice(trainer)


def complaints_about_the_memory(trainer):
    rows = np.stack([CueEnv.game(0), CueEnv.game(1)], axis=1)
    probabilities, values = look(trainer, rows)
    found = [
        f"knows cue {cue} with probability {probabilities[-1, cue, cue]:.2f}"
        for cue in range(2)
        if probabilities[-1, cue, cue] < 0.9
    ]
    if abs(values[-1].mean() - 1) > 0.25:
        found.append(f"value at the end: {values[-1].mean():.2f}, not 1")
    return found


WITH_MEMORY = {"use_lstm": True, "lstm_size": 16, "r_f_steps": 8, "steps": 6_500}


@pytest.mark.parametrize(
    "flags", [{"kind": "standard"}, pytest.param({**IMPACT, "burn_in_steps": 2}, marks=slow)]
)
def test_with_a_memory_what_was_seen_at_the_start_is_known_at_the_end(tmp_path, flags):
    assert not complaints_about_the_memory(train(tmp_path, "Cue", **WITH_MEMORY, **flags))


@slow
def test_without_one_it_is_not(tmp_path):
    trainer = train(tmp_path, "Cue", kind="standard", steps=3_000)
    assert complaints_about_the_memory(trainer)


ENTROPY_COST = 0.4
# Without PopArt, which would divide the advantages and so make the bonus larger beside them.
BANDIT = {
    "use_popart": False, "entropy_loss_weight": ENTROPY_COST, "lr": 0.005, "batch_size": 16,
    "steps": 10_000,
}  # fmt: skip


def complaints_about_the_odds(trainer):
    probabilities, values = look(trainer, np.ones((1, 1, 1)))
    best = BanditEnv.best_policy(ENTROPY_COST)
    found = [
        f"takes arm {arm} with probability {p:.2f}, not {expected:.2f}"
        for arm, (p, expected) in enumerate(zip(probabilities[0, 0], best, strict=True))
        if abs(p - expected) > 0.08
    ]
    mean = float(best @ np.array(BanditEnv.MEANS))
    if abs(values.item() - mean) > 0.08:
        found.append(f"expects {values.item():.2f}, not {mean:.2f}")
    return found


@slow
@pytest.mark.parametrize("flags", [{"kind": "standard"}, {**IMPACT, **WIDE}])
def test_the_odds_of_a_bandit_are_those_of_the_best_policy_with_entropy(tmp_path, flags):
    assert not complaints_about_the_odds(train(tmp_path, "Bandit", **{**BANDIT, **flags}))


@slow
def test_a_bonus_of_the_wrong_sign_leads_to_other_odds(tmp_path, monkeypatch):
    entropy = CategoricalPolicy.entropy
    monkeypatch.setattr(CategoricalPolicy, "entropy", lambda policy: -entropy(policy))
    wrong = train(tmp_path, "Bandit", kind="standard", **{**BANDIT, "steps": 4_000})
    assert complaints_about_the_odds(wrong)
    assert look(wrong, np.ones((1, 1, 1)))[0].max() > 0.95, "certainty is what it was paid for"


def complaints_about_two_games(trainer):
    found = []
    for task, (prize, sign) in enumerate(((1.0, 1), (MirrorEnv.PRIZE, -1))):
        probabilities, values = look(trainer, [sign * np.eye(5)[:4]], task)
        best = np.array([prize * ChainEnv.optimal_value(GAMMA, cell) for cell in range(4)])
        there = probabilities[0, :, 1 if task == 0 else 0]
        if there.min() < 0.8:
            found.append(f"game {task}: goes there with probability {np.round(there, 2)}")
        if np.abs(values[0] / best - 1).max() > 0.2:
            found.append(f"game {task}: values {np.round(values[0], 2)}, not {np.round(best, 2)}")
    return found


TWO = {"steps": 9_000, "advantage_normalisation": "rms", "batch_size": 16}


@pytest.mark.parametrize(
    "flags", [{"kind": "standard"}, pytest.param({**IMPACT, **WIDE}, marks=slow)]
)
def test_two_games_of_different_scale_are_both_learned(tmp_path, flags):
    trainer = train(tmp_path, "Upright", "Mirror", **{**TWO, **flags})
    assert not complaints_about_two_games(trainer)


@slow
def test_without_popart_they_are_not(tmp_path):
    trainer = train(tmp_path, "Upright", "Mirror", kind="standard", use_popart=False, **TWO)
    assert complaints_about_two_games(trainer)
