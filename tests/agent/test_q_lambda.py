from dataclasses import replace

import pytest
import torch

from ritornello.agent.algorithms.q_lambda import QLambda, QLambdaConfig
from ritornello.agent.distributions import FORBIDDEN
from ritornello.agent.run.messages import log_start
from ritornello.agent.session import prepare
from ritornello.agent.stored.run_folder import RunFolder
from ritornello.core.errors import ConfigError
from tests.agent.builders import ANY_ACTIONS, heads_of, make_batch, make_small_model, make_spec
from tests.reference.q_lambda_loops import q_lambda_loss_loops

PLAIN = QLambdaConfig(reward_transform="none", loss_reduction="sum", epsilon=0.3, epsilon_end=0.3)


def make_values_model(spec=None, **config):
    model = make_small_model(spec, action_values=True, **config)
    with torch.no_grad():
        model.policy_head.weight.mul_(100)  # so that actions differ
        model.value_head.linear.weight.mul_(100)
    return model


def hidden_of(model, batch):
    features = model.torso(batch.obs, batch.task_id)
    return model.hidden(features, batch.inputs(), batch.state)[0]


def dueling(model, batch):
    """Q(x, a) [T+1][B][A], written out."""
    with torch.no_grad():
        hidden = hidden_of(model, batch)
        advantages = model.policy_head(hidden)
        values = model.value_head(hidden, batch.task_id).value
    rows = zip(values.flatten().tolist(), advantages.flatten(0, 1).tolist(), strict=True)
    flat = [[v + a - sum(each) / len(each) for a in each] for v, each in rows]
    size = batch.size
    return [flat[t * size : (t + 1) * size] for t in range(batch.steps + 1)]


def check_against_loops(model, batch, **changes):
    config = replace(PLAIN, **changes)
    loss = QLambda(config).loss(model, batch)
    total, errors = q_lambda_loss_loops(config, dueling(model, batch), batch)
    assert loss.total.item() == pytest.approx(total, rel=1e-4)
    torch.testing.assert_close(
        loss.errors, torch.tensor(errors), rtol=1e-4, atol=1e-5, equal_nan=True
    )


@pytest.mark.parametrize("masked", [False, True], ids=["all allowed", "masked"])
@pytest.mark.parametrize("trace", ["sarsa", "peng"])
@pytest.mark.parametrize("memory", [{}, {"use_lstm": True, "lstm_size": 8}], ids=["", "lstm"])
def test_the_loss_equals_the_plain_loops(trace, memory, masked):
    spec = make_spec(masked=masked)
    model = make_values_model(spec, **memory)
    batch = make_batch(spec, steps=7, state_count=model.state_count)
    check_against_loops(model, batch, trace=trace, value_cost=0.7, discount=0.9)


def test_burn_in_weights_of_unrolls_and_signs_of_rewards_count():
    model = make_values_model(use_lstm=True, lstm_size=8)
    weight = torch.tensor([0.5, 2.0, 0.1, 1.5])
    batch = make_batch(steps=7, state_count=model.state_count, weight=weight)
    check_against_loops(model, batch, burn_in_steps=3, reward_transform="abs_one_sign")


def test_each_of_several_games_has_values_of_its_own():
    model = make_values_model(tasks=2)
    check_against_loops(model, make_batch(steps=7, tasks=2))


def test_the_best_action_is_taken_or_any_that_is_allowed():
    spec = make_spec(actions=4, masked=True)
    model = make_values_model(spec)
    batch = make_batch(spec, steps=9)
    model.explore(0.2)
    values = dueling(model, batch)
    heads = heads_of(model, batch)
    chances = heads.params.exp()
    torch.testing.assert_close(chances.sum(-1), torch.ones_like(chances[..., 0]))
    for t, b in ((t, b) for t in range(batch.steps + 1) for b in range(batch.size)):
        allowed = [a for a in range(4) if batch.action_mask[t, b, a]]
        best = max(allowed, key=lambda a: values[t][b][a])
        assert heads.value[t, b].item() == pytest.approx(values[t][b][best], rel=1e-4, abs=1e-5)
        for a in range(4):
            want = 0.2 / len(allowed) + 0.8 * (a == best) if a in allowed else 0.0
            assert chances[t, b, a].item() == pytest.approx(want, rel=1e-4)
    assert ((heads.params == FORBIDDEN) == ~batch.action_mask).all()


def test_only_the_action_that_was_done_has_a_gradient():
    model, batch = make_values_model(), make_batch()
    caught = []
    values_of = model.action_values

    def action_values(*given):
        caught.append(values_of(*given))
        if caught[-1].requires_grad:
            caught[-1].retain_grad()
        return caught[-1]

    model.action_values = action_values
    QLambda(PLAIN).loss(model, batch).total.backward()
    (moved,) = [values.grad for values in caught if values.grad is not None]
    done = torch.nn.functional.one_hot(batch.action, 3).bool()
    assert (moved[done & ~batch.reset_row[..., None]] != 0).all()
    assert (moved[~done | batch.reset_row[..., None]] == 0).all()


def test_epsilon_falls_with_the_training_and_is_saved_with_the_weights():
    model = make_values_model()
    algorithm = QLambda(replace(PLAIN, epsilon=1.0, epsilon_end=0.1, epsilon_end_share=0.5))
    losses = [algorithm.loss(model, make_batch(), None, done) for done in (0.0, 0.25, 0.5, 1.0)]
    seen = [loss.metrics["q/epsilon"].item() for loss in losses]
    assert seen == pytest.approx([1.0, 0.55, 0.1, 0.1])
    assert model.state_dict()["epsilon"].item() == pytest.approx(0.1)
    model.explore(0.0)
    assert heads_of(model, make_batch()).params.isfinite().all()


def test_the_most_probable_action_is_the_best_even_where_all_are_taken_at_random():
    model, batch = make_values_model(), make_batch()
    model.explore(1.0)
    best = torch.tensor(dueling(model, batch)).argmax(-1)
    assert best.unique().numel() > 1
    assert model.distribution.mode(heads_of(model, batch).params).equal(best)


@pytest.mark.parametrize("actions", [x for x in ANY_ACTIONS if x != "one choice"])
def test_other_actions_than_one_choice_are_refused(actions):
    with pytest.raises(ConfigError, match="takes one of several actions"):
        make_values_model(make_spec(actions=ANY_ACTIONS[actions]))


@pytest.mark.parametrize(
    ("made", "message"),
    [
        ({"popart": True}, "use_popart is True, expected False"),
        ({"tasks": 2}, "reward_clipping_method is none, expected another"),
    ],
    ids=["popart", "raw rewards of two games"],
)
def test_what_would_not_learn_is_refused(made, message):
    with pytest.raises(ConfigError, match=message):
        QLambda(PLAIN).check(make_values_model(**made))


def test_an_epsilon_that_rises_is_refused():
    with pytest.raises(ConfigError, match="epsilon_end is 0.4, expected at most epsilon, 0.3"):
        replace(PLAIN, epsilon_end=0.4)


@pytest.mark.parametrize(
    ("argv", "idle"),
    [
        (
            ["--preset=clear,q_lambda", "--gamma=0.9"],
            ["policy_cloning_loss_weight", "value_cloning_loss_weight"],
        ),
        (["--preset=impact", "--vtrace_lambda=0.5"], []),
        (["--preset=q_lambda", "--vtrace-lambda=0.5"], ["vtrace_lambda"]),
        (["--preset=q_lambda,minigrid", "--entropy_end_weight=none"], []),
    ],
    ids=str,
)
def test_a_run_says_which_flags_of_losses_it_does_not_have(argv, idle, tmp_path, caplog):
    caplog.set_level("INFO")
    argv = ["--env=CartPole-v1", *argv]
    log_start(prepare(argv), RunFolder(tmp_path))
    said = [line for line in caplog.messages if line.startswith("no effect")]
    named = ", ".join(f"--{name}" for name in idle)
    assert said == ([f"no effect with --algorithm=q_lambda: {named}"] if idle else [])


@pytest.mark.parametrize(("kind", "is_told"), [("elite", True), ("circular", False)])
def test_a_run_says_that_no_data_are_new_and_earn_the_entropy_bonus(
    kind, is_told, tmp_path, caplog
):
    argv = ["--env=CartPole-v1", "--entropy_on=online", f"--replay={kind}:100:1"]
    log_start(prepare([*argv, "--max_draws_per_unroll=1"]), RunFolder(tmp_path))
    assert any("no entropy bonus" in line for line in caplog.messages) == is_told
