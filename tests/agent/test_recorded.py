"""A recording replays what would be computed. Without a GPU one is played here by hand."""

import copy
import logging
from dataclasses import replace

import pytest
import torch

from ritornello.agent.algorithms.impala import Impala
from ritornello.agent.learning.learner import Learner
from ritornello.agent.learning.recorded import RecordingRunner, Runner, make_runner
from tests.agent.builders import make_batch, make_small_model, make_spec
from tests.agent.learners import CONFIG, make_learner, same, with_bad_reward

PIXELS = make_spec((2, 44, 40))


class ByHand:
    """A recorder: does the work again at each replay, and writes to where it wrote at first."""

    def __init__(self, learner: Learner) -> None:
        self.learner = learner
        self.parameters = list(learner.model.parameters())
        self.recordings = 0
        self.replays = 0

    def __call__(self, work):
        self.recordings += 1
        restore = self.learner.model.value_head.snapshot(self.learner.optimiser)
        made = work()
        restore()  # a recording does nothing yet
        gradient = self.gradient()

        def replay():
            self.replays += 1
            present = [p.grad for p in self.parameters]
            again = work()
            pairs = [(made.metrics, again.metrics), (made.loss.total, again.loss.total)]
            pairs += [(made.loss.errors, again.loss.errors)]
            pairs += zip(gradient, self.gradient(), strict=True)
            for first, now in pairs:
                first.copy_(now)
            for parameter, kept in zip(self.parameters, present, strict=True):
                parameter.grad = kept  # a GPU writes to memory, and knows no parameters

        return replay, made

    def gradient(self):
        return [p.grad for p in self.parameters if p.grad is not None]


def pair(config=CONFIG, spec=None, **model):
    """Return two learners of the same weights, the second of which replays, and its recorder."""
    plain, recording = (
        make_learner(make_small_model(spec, **model), config=config) for _ in range(2)
    )
    recorder = ByHand(recording)
    recording._run = RecordingRunner(recording.model, recorder)
    return plain, recording, recorder


@pytest.mark.parametrize("model", [{}, {"popart": True}, {"use_lstm": True, "lstm_size": 8}])
def test_what_is_replayed_is_what_would_be_computed(model):
    plain, recording, recorder = pair(**model)
    kept = []
    for seed in range(5):
        batch = make_batch(seed=seed, state_count=plain.model.state_count)
        expected, got = (learner.step(batch, 0.1) for learner in (plain, recording))
        kept.append((expected, got))
        assert torch.equal(plain.errors.isnan(), recording.errors.isnan())
        torch.testing.assert_close(plain.errors, recording.errors, equal_nan=True)
    assert (recorder.recordings, recorder.replays) == (1, 4)
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
    for one, two in zip(plain.model.parameters(), recording.model.parameters(), strict=True):
        torch.testing.assert_close(one, two)


def test_nothing_is_recorded_while_pixels_are_observed(monkeypatch):
    monkeypatch.setattr("ritornello.agent.models.pixels.OBSERVED_BATCHES", 3)
    _, learner, recorder = pair(spec=PIXELS, name="impala_shallow")
    for seed in range(3):
        learner.step(make_batch(PIXELS, seed=seed), 0.0)
    assert not recorder.recordings
    assert not learner.model.unsettled()
    learner.step(make_batch(PIXELS, seed=3), 0.0)
    assert (recorder.recordings, recorder.replays) == (1, 1)


def test_another_shape_is_computed_and_recorded_anew_at_its_second_batch():
    _, learner, recorder = pair()
    for size in (4, 4, 4, 3, 4, 3, 3, 3):
        learner.step(make_batch(size=size), 0.0)
    assert (recorder.recordings, recorder.replays) == (2, 6)


def test_new_settings_of_the_algorithm_are_recorded_anew():
    """A user may change the entropy cost of a run that is under way."""
    plain, learner, recorder = pair()
    for cost in (0.01, 0.01, 0.01, 0.5, 0.5):
        for each in (plain, learner):
            each.algorithm.config = replace(each.algorithm.config, entropy_cost=cost)
            metrics = each.step(make_batch(), 0.0)
            if each is plain:
                expected = metrics["loss/entropy"]
        torch.testing.assert_close(metrics["loss/entropy"], expected)
    assert (recorder.recordings, recorder.replays) == (2, 3)


def test_after_other_weights_were_loaded_nothing_old_is_replayed():
    plain, learner, recorder = pair(popart=True)
    for seed in range(3):
        learner.step(make_batch(seed=seed), 0.0)
    plain.load_state_dict(copy.deepcopy(learner.state_dict()))
    learner.load_state_dict(learner.state_dict())
    for seed in range(3, 6):
        for each in (plain, learner):
            each.step(make_batch(seed=seed), 0.0)
    assert recorder.recordings == 2
    assert same(plain.state_dict()["version"], learner.state_dict()["version"])
    for one, two in zip(plain.model.parameters(), learner.model.parameters(), strict=True):
        torch.testing.assert_close(one, two)


def test_a_replayed_update_that_is_not_finite_leaves_no_trace():
    plain, learner, recorder = pair(popart=True)
    for seed in range(3):
        learner.step(make_batch(seed=seed), 0.0)
    before = copy.deepcopy(learner.state_dict())
    with pytest.raises(Exception, match="reward"):
        learner.step(with_bad_reward(make_batch(seed=3)), 0.0)
    assert recorder.replays == 3
    assert same(learner.state_dict(), before)
    assert all(p.grad is None for p in learner.model.parameters())
    plain.load_state_dict(before)
    for each in (plain, learner):
        each.step(make_batch(seed=4), 0.0)
    assert recorder.recordings == 1
    for one, two in zip(plain.model.parameters(), learner.model.parameters(), strict=True):
        torch.testing.assert_close(one, two)


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda: Impala(replace(CONFIG, entropy_end_cost=0.001)), id="progress"),
        pytest.param(lambda: type("Mine", (Impala,), {})(CONFIG), id="subclass"),
    ],
)
def test_a_loss_that_may_depend_on_more_than_tensors_is_computed(make):
    _, learner, recorder = pair()
    learner.algorithm = make()
    for _ in range(4):
        learner.step(make_batch(), 0.0)
    assert not recorder.recordings


def test_what_cannot_be_recorded_is_computed_and_said_once(caplog):
    plain, learner, _ = pair()
    tries = []

    def refuse(work):
        tries.append(work)
        raise RuntimeError("operation not permitted when stream is capturing\nand more")

    learner._run = RecordingRunner(learner.model, refuse)
    with caplog.at_level(logging.WARNING):
        for seed in range(4):
            for each in (plain, learner):
                each.step(make_batch(seed=seed), 0.0)
    assert len(tries) == 1
    (record,) = caplog.records
    assert record.getMessage().endswith("operation not permitted when stream is capturing")
    assert same(plain.state_dict()["model"], learner.state_dict()["model"])


def test_on_a_cpu_nothing_is_recorded():
    assert type(make_runner(make_small_model(), may_record=True)) is Runner


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize(
    "model", [{"name": "impala_shallow"}, {"name": "resnet_light", "popart": True}]
)
def test_on_a_gpu_a_replayed_update_is_the_computed_one(monkeypatch, model, precision, caplog):
    monkeypatch.setattr("ritornello.agent.models.pixels.OBSERVED_BATCHES", 2)
    spec = make_spec((2, 44, 40), actions=3, stacked=2)
    plain, recorded = (
        make_learner(
            make_small_model(spec, **model).to("cuda"), precision=precision, cuda_graph=graph,
            channels_last=True,
        )
        for graph in (False, True)
    )  # fmt: skip
    losses = []
    for seed in range(8):
        batch = make_batch(spec, seed=seed)
        batch = replace(batch, **{name: t.to("cuda") for name, t in vars(batch).items()})
        losses.append([each.step(batch, 0.0)["loss/total"] for each in (plain, recorded)])
    assert not caplog.records
    assert recorded._run._recording is not None
    for expected, got in losses:
        torch.testing.assert_close(got, expected, rtol=0.02, atol=0.02)
    for one, two in zip(plain.model.parameters(), recorded.model.parameters(), strict=True):
        torch.testing.assert_close(one, two, rtol=0.02, atol=2e-3)


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
            batch = replace(batch, **{name: t.to("cuda") for name, t in vars(batch).items()})
            assert learner.step(batch, 0.0)["loss/total"].isfinite()
    assert torch.cuda.current_stream() == stream
    assert len(caplog.records) == 1
    assert learner.version == 4
