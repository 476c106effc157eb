import copy
import math
from dataclasses import replace

import pytest
import torch

from ritornello.agent.algorithms.impala import Impala
from ritornello.agent.learning.layer_gradients import LayerGradients, every
from ritornello.agent.stored.checkpoint_tree import encode
from ritornello.metrics.record import check_declared
from tests.agent.builders import make_batch, make_small_model, make_spec
from tests.agent.learners import (
    CONFIG,
    WITH_EVERYTHING,
    fail_to_step,
    learner_and_batch,
    make_learner,
    same,
    snapshot,
    with_bad_reward,
)
from tests.tolerances import rounding


def test_one_step_of_plain_sgd_subtracts_the_rate_times_the_gradient():
    model, batch = make_small_model(), make_batch()
    before = snapshot(model)
    Impala(CONFIG).loss(model, batch).total.backward()
    expected = {n: before[n] - 5e-4 * p.grad for n, p in model.named_parameters()}
    sgd = torch.optim.SGD(model.parameters(), lr=123.0)  # the schedule decides, not this

    make_learner(model, optimiser=sgd, max_grad_norm=math.inf).step(batch, progress=0.5)

    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.detach(), expected[name])
        assert not torch.equal(parameter, before[name])


def test_what_an_environment_says_of_gradients_does_not_matter():
    learner = make_learner(make_small_model())
    with torch.no_grad():  # as torch.set_grad_enabled(False) in its step
        learner.step(make_batch(), progress=0.0)
    assert learner.version == 1


def test_clipping_keeps_the_direction_and_limits_the_norm():
    model, batch = make_small_model(), make_batch()
    before = snapshot(model)
    sgd = torch.optim.SGD(model.parameters(), lr=1.0)
    metrics = make_learner(model, optimiser=sgd, max_grad_norm=0.5).step(batch, progress=0.0)
    assert metrics["grad/norm_before_clip"] > 0.5
    assert metrics["grad/clipped_fraction"] == 1
    moved = torch.cat([(before[n] - p).flatten() for n, p in model.named_parameters()])
    assert moved.norm().item() == pytest.approx(0.5 * 1e-3, rel=1e-3)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("popart", [False, True])
def test_a_learner_fits_one_batch(precision, popart):
    spec = make_spec((2, 36, 36), actions=3, stacked=2)
    model = make_small_model(spec, name="nature", popart=popart)
    learner = make_learner(model, precision=precision, channels_last=True)
    batch = make_batch(spec)
    losses = [learner.step(batch, progress=0.0)["loss/value"].item() for _ in range(25)]
    assert losses[-1] < 0.5 * losses[0]
    assert learner.version == 25
    for parameter in model.parameters():
        assert parameter.dtype == torch.float32
        assert parameter.grad.any()


def test_every_seventh_step_is_shown_to_the_pixel_statistics():
    spec = make_spec((2, 44, 40))
    learner = make_learner(make_small_model(spec, name="impala_shallow", normalise_pixels=True))
    batch = make_batch(spec, steps=20, size=3)
    statistics = learner.model.torso_net.convs[0].statistics
    learner.step(batch, progress=0.0)
    rows = [batch.obs[(7 - column) % 7 :: 7, column] for column in range(3)]
    shown = torch.cat(rows).float()
    torch.testing.assert_close(statistics.mean, shown.mean(0))
    torch.testing.assert_close(statistics.mean_square, shown.square().mean())


def three_game_batch(spec, games, seed):
    return replace(make_batch(spec, size=len(games), seed=seed), task_id=torch.tensor(games))


def test_a_game_that_comes_late_is_observed_too(monkeypatch):
    monkeypatch.setattr("ritornello.agent.models.pixels.OBSERVED_BATCHES", 3)
    spec = make_spec((2, 44, 40))
    learner = make_learner(make_small_model(spec, tasks=3, name="impala_shallow"))
    learner.version = 10_000  # how many updates were made says nothing of what a game has shown

    def learn(*games_of_batches):
        for games in games_of_batches:
            learner.step(three_game_batch(spec, games, seed=learner.version), 0.0)
        return [int(statistics.batches) for statistics in learner.model.game_pixels]

    assert learn(*[[0, 0]] * 5) == [3, 0, 0]
    assert learn([1, 0], [1, 1]) == [3, 2, 0]
    resumed = make_learner(make_small_model(spec, tasks=3, name="impala_shallow", seed=4))
    resumed.load_state_dict(copy.deepcopy(learner.state_dict()))
    learner = resumed
    assert learn([1, 1], [1, 2], [1, 0]) == [3, 3, 1]
    kept = [statistics.mean.clone() for statistics in learner.model.game_pixels]
    assert learn([0, 1], [2, 2]) == [3, 3, 2]
    for before, statistics, moved in zip(
        kept, learner.model.game_pixels, [False, False, True], strict=True
    ):
        assert torch.equal(before, statistics.mean) is not moved


def test_lag_is_counted_in_updates_since_the_weights_that_acted():
    learner = make_learner()
    learner.version = 10
    batch = make_batch(version=torch.tensor([9, 6, 0, 0]))  # columns 0 and 1 are online
    metrics = learner.step(batch, progress=0.0)
    assert metrics["lag/mean_updates"] == 2.5
    assert metrics["lag/max_updates"] == 4
    assert learner.version == 11


def test_a_save_copies_no_weights_and_a_resume_none_of_the_moments():
    learner = make_learner()
    learner.step(make_batch(), 0.0)
    written = encode(learner.state_dict())
    for name, weights in learner.model.state_dict().items():
        assert written["model"][name].data_ptr() == weights.data_ptr()
    moments = learner.optimiser.state_dict()["state"]
    assert (
        written["optimiser"]["state"][0]["exp_avg"].data_ptr() == moments[0]["exp_avg"].data_ptr()
    )

    read = copy.deepcopy(written)
    resumed = make_learner(make_small_model(seed=9))
    resumed.load_state_dict(read)
    moments = resumed.optimiser.state_dict()["state"]
    kept = read["optimiser"]["state"]
    assert moments[0]["exp_avg"].data_ptr() == kept[0]["exp_avg"].data_ptr()


@pytest.mark.parametrize("optimiser", ["adam", "rmsprop", "rmsprop_tf"])
@pytest.mark.parametrize(("model", "batch"), WITH_EVERYTHING)
def test_a_bad_reward_moves_nothing(model, batch, optimiser):
    learner, batch = learner_and_batch(model, batch, optimiser)
    fail_to_step(learner, with_bad_reward(batch))


@pytest.mark.parametrize(("model", "batch"), WITH_EVERYTHING)
def test_a_bad_gradient_moves_nothing(model, batch):
    """The loss is finite, so PopArt has moved to finite statistics before it is found out."""
    learner, batch = learner_and_batch(model, batch)
    learner.model.policy_head.weight.register_hook(lambda g: g * float("inf"))
    fail_to_step(learner, batch)


@pytest.mark.parametrize(("model", "batch"), WITH_EVERYTHING)
def test_an_update_that_fails_in_another_way_moves_nothing_either(model, batch):
    learner, batch = learner_and_batch(model, batch)

    def fail(gradient):
        raise MemoryError("no room for a gradient")

    learner.model.policy_head.weight.register_hook(fail)
    before = copy.deepcopy(learner.state_dict())
    with pytest.raises(MemoryError):
        learner.step(batch, 0.7)
    assert same(before, learner.state_dict())


def test_layers_are_measured_where_it_is_due():
    model, answers = make_small_model(), [False, True, False]
    learner = make_learner(model, gradients_due=lambda: answers.pop(0))
    metrics = [learner.step(make_batch(seed=n), 0.0) for n in range(3)]
    has = ["gradient/policy_head/norm" in of_update for of_update in metrics]
    assert has == [False, True, False]
    layers = {"torso_net.linear1", "torso_net.linear2", "policy_head", "value_head.linear"}
    squares = [metrics[1][f"gradient/{layer}/norm"].item() ** 2 for layer in layers]
    # Clipping comes later: the parts are those of the whole gradient.
    assert sum(squares) == pytest.approx(metrics[1]["grad/norm_before_clip"].item() ** 2, rel=1e-5)
    for name in metrics[1]:
        check_declared(name)


def test_a_layer_says_how_large_its_gradient_and_its_step_are():
    model = make_small_model()
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    model.policy_head.weight.data.fill_(2.0)  # 3 x 16, and 3 biases of 0
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    model.policy_head.weight.grad[0] = 3.0  # of 51 numbers 16 are not 0
    layers = LayerGradients(model)
    model.policy_head.weight.grad.mul_(0.5)  # clipped
    sgd.step()
    metrics = layers.metrics()
    of_head = {q: metrics[f"gradient/policy_head/{q}"].item() for q in ("norm", "mean_abs")}
    assert of_head == pytest.approx({"norm": 12.0, "mean_abs": 48 / 51})
    assert metrics["gradient/policy_head/zero_fraction"].item() == pytest.approx(35 / 51)
    # |0.1 * 1.5| of 16 weights over |2| of 48.
    ratio = metrics["gradient/policy_head/update_ratio"].item()
    assert ratio == pytest.approx(0.15 * 4 / (2 * 48**0.5))
    assert metrics["gradient/torso_net.linear1/zero_fraction"] == 1


def test_every_so_many_seconds_once(monkeypatch):
    times = iter((0.0, 0.0, 0.1, 4.9, 5.0, 5.1, 12.0, 16.9, 17.0))  # first: when it was made
    monkeypatch.setattr("time.monotonic", lambda: next(times))
    due = every(5.0)
    answers = [due() for _ in range(8)]
    monkeypatch.undo()
    assert answers == [True, False, False, True, False, True, False, True]


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_on_a_gpu_an_update_is_that_of_the_cpu(precision):
    batch = make_batch()
    here = make_learner(make_small_model(), precision=precision)
    there = make_learner(make_small_model().to("cuda"), precision=precision)
    there.model.load_state_dict(here.model.state_dict())
    on_gpu = replace(batch, **{name: t.to("cuda") for name, t in batch.tensors().items()})
    expected, got = here.step(batch, 0.0), there.step(on_gpu, 0.0)
    tolerance = 1e-4 if precision == "fp32" else 0.05
    for name in ("loss/total", "loss/policy", "loss/value", "grad/norm_before_clip"):
        torch.testing.assert_close(got[name].cpu(), expected[name], rtol=tolerance, atol=tolerance)


def test_the_size_of_the_weights_is_measured_now_and_then(monkeypatch):
    monkeypatch.setattr("ritornello.agent.learning.learner.WEIGHTS_MEASURED_EACH", 3)
    spec = make_spec((2, 36, 36))
    model = make_small_model(spec, name="nature", popart=True, popart_step_size=0.5)
    learner = make_learner(model, channels_last=True)
    measured = [learner.step(make_batch(spec, seed=n), 0.0).get("weights/norm") for n in range(6)]
    assert [norm is not None for norm in measured] == [False, False, True] * 2
    squares = [
        p.double().square().sum() for n, p in model.named_parameters() if "value_head" not in n
    ]
    expected = torch.stack(squares).sum().sqrt().item()
    assert measured[-1].item() == pytest.approx(expected, rel=rounding(torch.float32, 100))
    assert not measured[-1].requires_grad
    check_declared("weights/norm")
