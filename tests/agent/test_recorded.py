"""A recording replays what would be computed. Without a GPU one is played here by hand."""

import copy
import logging
from dataclasses import replace

import pytest
import torch

from ritornello.agent.algorithms.impact import Impact, ImpactConfig
from ritornello.agent.algorithms.impala import Impala
from ritornello.agent.algorithms.q_lambda import QLambdaConfig
from tests.agent.builders import make_batch, make_small_model, make_spec, packed
from tests.agent.learners import CONFIG, make_learner, same, with_bad_reward

PIXELS = make_spec((2, 44, 40))


class ByHand:
    """A recorder: does the work again at each replay, and writes to where it wrote at first."""

    def __init__(self, learner):
        self.learner = learner
        self.gradients = Counts()
        self.moves = Counts()

    def __call__(self, work):
        learner = self.learner
        moving = [*learner.model.state_dict().values(), *moments(learner.optimiser)]
        moving += [p.grad for p in learner.model.parameters() if p.grad is not None]
        kept = [tensor.clone() for tensor in moving]
        made = work()
        with torch.no_grad():
            for tensor, value in zip(moving, kept, strict=True):
                tensor.copy_(value)  # a recording does nothing yet
        counts = self.moves if made is None else self.gradients
        counts.recordings += 1
        gradients = [p.grad for p in learner.model.parameters()]

        def replay():
            counts.replays += 1
            for parameter, gradient in zip(learner.model.parameters(), gradients, strict=True):
                parameter.grad = gradient  # a step reads the memory that it was recorded with
            again = work()
            if made is not None:
                self.write_over(made, again)

        return replay, made

    def write_over(self, made, again):
        pairs = [(made.loss.total, again.loss.total), (made.loss.errors, again.loss.errors)]
        pairs += [(made.row, again.row), (made.norm, again.norm)]
        pairs += [(made.is_finite, again.is_finite)]
        pairs += [p for p in zip(made.gradients, again.gradients, strict=True) if p[0] is not None]
        for first, now in pairs:
            first.copy_(now)
        made.restores[:] = again.restores
        for parameter in self.learner.model.parameters():
            parameter.grad = None  # a GPU writes to memory, and knows no parameters


class Counts:
    recordings = replays = 0

    def __iter__(self):
        return iter((self.recordings, self.replays))


def moments(optimiser):
    rates = [group["lr"] for group in optimiser.param_groups]
    return rates + [t for state in optimiser.state.values() for t in state.values()]


def pair(config=CONFIG, spec=None, **model):
    """Return two learners of the same weights, the second of which replays, and its recorder."""
    plain, recording = (
        make_learner(make_small_model(spec, **model), config=config) for _ in range(2)
    )
    return plain, recording, recorder_of(recording)


def recorder_of(learner):
    recorder = ByHand(learner)
    learner.record_with(recorder)
    for group in learner.optimiser.param_groups:
        group["lr"] = torch.tensor(group["lr"], dtype=torch.float64)  # as on a GPU
    return recorder


def check_alike(one, other, **tolerances):
    pairs = zip(one.model.parameters(), other.model.parameters(), strict=True)
    for weights, others in pairs:
        torch.testing.assert_close(weights, others, **tolerances)


def step(learner, batch, progress=0.0, spec=None):
    return learner.step(packed(batch, spec), progress)


@pytest.mark.parametrize("model", [{}, {"popart": True}, {"use_lstm": True, "lstm_size": 8}])
def test_what_is_replayed_is_what_would_be_computed(model):
    plain, recording, recorder = pair(**model)
    kept = []
    for seed in range(5):
        batch = make_batch(seed=seed, state_count=plain.model.state_count)
        expected, got = (step(learner, batch, 0.1) for learner in (plain, recording))
        kept.append((expected, got))
        assert torch.equal(plain.errors.isnan(), recording.errors.isnan())
        torch.testing.assert_close(plain.errors, recording.errors, equal_nan=True)
    assert tuple(recorder.gradients) == (1, 4)
    assert tuple(recorder.moves) == (1, 3)
    # Figures of earlier updates are read at the next record, so no replay may change them.
    for expected, got in kept:
        assert list(got) == list(expected)
        for name, value in got.items():
            torch.testing.assert_close(
                value.float(),
                expected[name].float(),
                rtol=1e-4,
                atol=1e-5,
                equal_nan=True,
                msg=name,
            )
    check_alike(plain, recording)


def test_nothing_is_recorded_while_pixels_are_observed(monkeypatch):
    monkeypatch.setattr("ritornello.agent.models.pixels.OBSERVED_BATCHES", 3)
    _, learner, recorder = pair(spec=PIXELS, name="impala_shallow")
    for seed in range(3):
        step(learner, make_batch(PIXELS, seed=seed), spec=PIXELS)
    assert not learner.model.unsettled()
    step(learner, make_batch(PIXELS, seed=3), spec=PIXELS)
    assert not recorder.gradients.recordings
    step(learner, make_batch(PIXELS, seed=4), spec=PIXELS)
    assert tuple(recorder.gradients) == (1, 1)


@pytest.mark.parametrize("played", [(0,), (0, 1)])
def test_images_of_a_game_that_is_not_played_are_not_waited_for(monkeypatch, played):
    monkeypatch.setattr("ritornello.agent.models.pixels.OBSERVED_BATCHES", 3)
    model = make_small_model(PIXELS, tasks=2, name="impala_shallow", normalise_pixels="each")
    learner = make_learner(model, games=played)
    recorder = recorder_of(learner)
    for seed in range(7):
        batch = make_batch(PIXELS, seed=seed)  # all of it is of game 0
        assert not batch.task_id.any()
        step(learner, batch, spec=PIXELS)
    assert list(model.unsettled()) == [1]
    assert recorder.gradients.recordings == len(played) % 2


def test_another_shape_is_computed_and_recorded_anew_at_its_second_batch():
    plain, learner, recorder = pair()
    for seed, size in enumerate((4, 4, 4, 4, 3, 4, 4, 3, 3, 3, 3)):
        for each in (plain, learner):
            step(each, make_batch(size=size, seed=seed))
        check_alike(plain, learner)
    assert recorder.gradients.recordings == 2


def test_new_settings_of_the_algorithm_are_recorded_anew():
    """A user may change the entropy cost of a run that is under way."""
    plain, learner, recorder = pair()
    for cost in (0.01, 0.01, 0.01, 0.5, 0.5):
        for each in (plain, learner):
            each.algorithm.config = replace(each.algorithm.config, entropy_cost=cost)
            metrics = step(each, make_batch())
            if each is plain:
                expected = metrics["loss/entropy"]
        torch.testing.assert_close(metrics["loss/entropy"], expected)
    assert tuple(recorder.gradients) == (2, 3)


def test_after_other_weights_were_loaded_nothing_old_is_replayed():
    plain, learner, recorder = pair(popart=True)
    for seed in range(3):
        step(learner, make_batch(seed=seed))
    plain.load_state_dict(copy.deepcopy(learner.state_dict()))
    learner.load_state_dict(learner.state_dict())
    for seed in range(3, 6):
        for each in (plain, learner):
            step(each, make_batch(seed=seed))
    assert recorder.gradients.recordings == 2
    assert same(plain.state_dict()["version"], learner.state_dict()["version"])
    check_alike(plain, learner)


def test_nothing_is_recorded_before_the_optimiser_has_moments(monkeypatch):
    """PopArt asks for them in Python, so a recording without them would never rescale them."""
    _, learner, recorder = pair(popart=True)
    with pytest.raises(Exception, match="reward"):
        step(learner, with_bad_reward(make_batch()))
    with monkeypatch.context() as patched:
        patched.setattr(learner.algorithm, "loss", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            step(learner, make_batch())
    step(learner, make_batch(seed=1))
    assert not recorder.gradients.recordings
    step(learner, make_batch(seed=2))
    assert tuple(recorder.gradients) == (1, 1)


def test_a_replayed_update_that_is_not_finite_leaves_no_trace():
    plain, learner, recorder = pair(popart=True)
    for seed in range(3):
        step(learner, make_batch(seed=seed))
    before = copy.deepcopy(learner.state_dict())
    with pytest.raises(Exception, match="reward"):
        step(learner, with_bad_reward(make_batch(seed=3)))
    assert recorder.gradients.replays == 3
    assert same(learner.state_dict(), before)
    assert all(p.grad is None for p in learner.model.parameters())
    plain.load_state_dict(before)
    for each in (plain, learner):
        step(each, make_batch(seed=4))
    assert recorder.gradients.recordings == 1
    check_alike(plain, learner)


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda: type("Mine", (Impala,), {})(CONFIG), id="subclass"),
        pytest.param(lambda: Impact(ImpactConfig()), id="impact"),
    ],
)
def test_a_loss_that_may_depend_on_more_than_tensors_is_computed(make):
    _, learner, recorder = pair()
    learner.algorithm = make()
    learner.algorithm.check(learner.model)
    for _ in range(4):
        step(learner, make_batch())
    assert not recorder.gradients.recordings


def test_what_cannot_be_recorded_is_computed_and_said_once(caplog):
    plain, learner, _ = pair()
    tries = []

    def refuse(work):
        tries.append(work)
        raise RuntimeError("operation not permitted when stream is capturing\nand more")

    learner.record_with(refuse)
    with caplog.at_level(logging.WARNING):
        for seed in range(4):
            for each in (plain, learner):
                step(each, make_batch(seed=seed))
    assert len(tries) == 1
    (record,) = caplog.records
    assert record.getMessage().endswith("operation not permitted when stream is capturing")
    assert same(plain.state_dict()["model"], learner.state_dict()["model"])


def test_values_of_actions_are_replayed_and_epsilon_falls():
    plain, learner, recorder = pair(
        QLambdaConfig(reward_transform="none", epsilon_end_share=1.0), action_values=True
    )
    for seed, progress in enumerate((0.0, 0.2, 0.4, 0.6)):
        for each in (plain, learner):
            step(each, make_batch(seed=seed), progress)
        assert same(plain.model.epsilon, learner.model.epsilon)
    assert tuple(recorder.gradients) == (1, 3)
    check_alike(plain, learner)
    before = copy.deepcopy(learner.state_dict())
    with pytest.raises(Exception, match="reward"):
        step(learner, with_bad_reward(make_batch()), 0.8)
    assert recorder.gradients.replays == 4
    assert same(learner.state_dict(), before)


def test_a_falling_entropy_cost_is_replayed():
    plain, learner, recorder = pair(replace(CONFIG, entropy_end_cost=0.0))
    for progress in (0.0, 0.2, 0.4, 0.6, 1.0):
        expected, got = (step(each, make_batch(), progress) for each in (plain, learner))
        torch.testing.assert_close(got["loss/entropy"], expected["loss/entropy"])
    assert got["loss/entropy"] == 0
    assert recorder.gradients.replays == 4


def step_on_gpu(learner, batch, spec=None):
    bytes_of = packed(batch, spec)
    return learner.step(replace(bytes_of, packed=bytes_of.packed.to("cuda")), 0.0)


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize(
    "model",
    [
        {"name": "impala_shallow"},
        {"name": "resnet_light", "popart": True},
        {"name": "impala_shallow", "layer_norm": "all", "action_values": True},
    ],
)
def test_on_a_gpu_a_replayed_update_is_the_computed_one(monkeypatch, model, precision, caplog):
    monkeypatch.setattr("ritornello.agent.models.pixels.OBSERVED_BATCHES", 2)
    spec = PIXELS
    plain, recorded = (
        make_learner(
            make_small_model(spec, **model).to("cuda"), precision=precision, cuda_graph=graph,
            channels_last=True, config=QLambdaConfig() if "action_values" in model else CONFIG,
        )
        for graph in (False, True)
    )  # fmt: skip
    losses = []
    for seed in range(6):  # two computed updates drift apart as well, and after these visibly
        batch = make_batch(spec, seed=seed)
        losses.append([step_on_gpu(each, batch, spec)["loss/total"] for each in (plain, recorded)])
    assert not caplog.records
    assert recorded._compute_packed.recording is not None
    assert recorded._move_weights.recording is not None
    for expected, got in losses:
        torch.testing.assert_close(got, expected, rtol=0.01, atol=0.01)
    check_alike(plain, recorded, rtol=0.02, atol=2e-3)


@pytest.mark.gpu
def test_on_a_gpu_a_loss_that_asks_the_host_is_computed_after_all(caplog):
    class Asking(Impala):
        def is_pure(self):
            return True  # which is not so

        def loss(self, model, batch, optimiser=None, progress=0.0):
            assert batch.reward.sum().item() < 1e9
            return super().loss(model, batch, optimiser, progress)

    learner = make_learner(make_small_model().to("cuda"))
    learner.algorithm = Asking(CONFIG)
    stream = torch.cuda.current_stream()
    with caplog.at_level(logging.WARNING):
        for seed in range(4):
            batch = make_batch(seed=seed)
            assert step_on_gpu(learner, batch)["loss/total"].isfinite()
    assert torch.cuda.current_stream() == stream
    assert len(caplog.records) == 1
    assert learner.version == 4
