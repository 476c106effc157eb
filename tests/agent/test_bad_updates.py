import errno
import json
import logging
import math
import signal
from contextlib import closing

import pytest
import torch

import ritornello.agent.learning.bad_updates
from ritornello.agent.algorithms.batch import Batch
from ritornello.agent.algorithms.impala import Impala
from ritornello.agent.learning.bad_updates import (
    BadUpdates,
    Culprit,
    NonFiniteUpdate,
    TooManyBadUpdates,
)
from ritornello.agent.learning.learner import Learner
from ritornello.agent.run.run import Run
from ritornello.agent.run.trainer import Trainer
from ritornello.agent.stored.checkpoint import load
from ritornello.agent.stored.run_folder import RunFolder
from ritornello.core.stop_signals import Answer, StopSignals
from ritornello.metrics.sinks import JsonLinesSink
from ritornello.replay.manager import ReplayManager
from tests.agent.builders import make_batch, make_small_model
from tests.agent.learners import CONFIG, same
from tests.agent.runs import make_blueprint


def bad_reward(update, columns=(1,)):
    return NonFiniteUpdate(update, Culprit("reward", "reward[0, 1] is nan", columns=columns))


def note(bad, update, batch=None, columns=(1,)):
    bad.note(bad_reward(update, columns), batch or make_batch(), update)


def kept_in(bad):
    return sorted(path.name for path in bad.folder.iterdir())


def test_the_batch_is_kept_so_that_it_can_be_learned_from_again(tmp_path, caplog):
    bad = BadUpdates(tmp_path, limit=3)
    assert not bad.folder.exists()
    batch = make_batch(state_count=2)
    batch.reward[0, 1] = math.nan
    note(bad, 41, batch)
    (path,) = bad.folder.iterdir()
    assert path == tmp_path / "bad_updates" / "update_000000041.pt"
    kept = torch.load(path, weights_only=True)
    assert same(kept["batch"] | {"reward": 0}, batch.tensors() | {"reward": 0})
    assert kept["batch"]["reward"].isnan().nonzero().tolist() == [[0, 1]]
    assert (kept["update"], kept["culprit"], kept["bad_unrolls"]) == (41, "reward", [1])
    assert kept["unrolls"] == [0, 1, 2, 3]
    (line,) = caplog.messages
    assert kept["message"] in line
    batch = Batch(
        **{name: x for name, x in kept["batch"].items() if name != "state"}, state=torch.empty(4, 0)
    )
    assert Impala(CONFIG).loss(make_small_model(), batch).total.isnan()


def test_so_many_in_a_row_end_the_run_and_the_first_is_named(tmp_path):
    bad = BadUpdates(tmp_path, limit=3)
    note(bad, 7)
    note(bad, 7)
    bad.good()
    bad.note(NonFiniteUpdate(8, Culprit("observation", "obs[2, 0, 1] is nan")), make_batch(), 8)
    note(bad, 8)
    with pytest.raises(TooManyBadUpdates) as caught:
        note(bad, 8)
    assert bad.count == 5
    message = str(caught.value)
    assert message.startswith("3 updates in a row could not be made")
    assert "obs[2, 0, 1] is nan" in message
    assert str(bad.folder / "update_000000008.pt") in message
    # Of a row only the first is kept: the others were met with the same weights.
    assert kept_in(bad) == ["update_000000007.pt", "update_000000008.pt"]


def test_a_handful_of_files_is_kept_and_a_session_makes_no_more(tmp_path):
    for session in (0, 100):
        bad = BadUpdates(tmp_path, limit=2)
        for update in range(session, session + 9):
            note(bad, update)
            bad.good()
        assert kept_in(bad) == [f"update_{session + n:09d}.pt" for n in range(5)]
    # A session that goes on from an older checkpoint: what it makes is not dropped for the others.
    bad = BadUpdates(tmp_path, limit=2)
    note(bad, 50)
    assert "update_000000050.pt" in kept_in(bad)
    assert len(kept_in(bad)) == 5


def test_of_a_large_batch_the_bad_unrolls_are_kept_and_as_many_others_as_fit(tmp_path, monkeypatch):
    batch = make_batch(size=8)
    column = sum(tensor.nbytes for tensor in batch.tensors().values()) // 8
    for room, columns, expected in ((3.5, (6, 2), [0, 2, 6]), (0.1, (6, 2), [6]), (2, (), [0, 1])):
        limit = int(room * column)
        monkeypatch.setattr(ritornello.agent.learning.bad_updates, "MAX_FILE_BYTES", limit)
        bad = BadUpdates(tmp_path, limit=2)
        note(bad, 3, batch, columns)
        path = bad.folder / "update_000000003.pt"
        kept = torch.load(path, weights_only=True)
        assert kept["unrolls"] == expected
        for name, tensor in batch.of_columns(expected).tensors().items():
            assert torch.equal(kept["batch"][name], tensor), name
        # Not the bytes of all of them, of which these are a view.
        assert path.stat().st_size < column * len(expected) + 20_000


def test_a_full_disk_loses_the_file_and_nothing_else(tmp_path, monkeypatch):
    def full(path):
        raise OSError(errno.ENOSPC, "No space left on device")

    bad = BadUpdates(tmp_path, limit=2)
    with monkeypatch.context() as patch:
        patch.setattr(ritornello.agent.learning.bad_updates, "atomic_path", full)
        note(bad, 3)
        assert bad.count == 1
        with pytest.raises(TooManyBadUpdates, match="No space left"):
            note(bad, 3)
    bad.good()
    note(bad, 4)  # there is room again
    assert kept_in(bad) == ["update_000000004.pt"]


def test_a_resumed_run_goes_on_counting(tmp_path):
    bad = BadUpdates(tmp_path, limit=3)
    note(bad, 3)
    note(bad, 3)
    state = json.loads(json.dumps(bad.state_dict()))
    resumed = BadUpdates(tmp_path, limit=3)
    resumed.load_state_dict(state)
    with pytest.raises(TooManyBadUpdates, match=r"reward\[0, 1\] is nan.*update_000000003"):
        note(resumed, 3)
    assert resumed.count == 3

    mended = BadUpdates(tmp_path, limit=3)
    mended.load_state_dict(resumed.state_dict())
    note(mended, 3)  # who resumes a run that ended for it is not turned away at the first
    note(mended, 3)
    with pytest.raises(TooManyBadUpdates, match="^3 updates in a row"):
        note(mended, 3)


def spoil_batches(monkeypatch, is_bad):
    """Give the learner a NaN reward in the batches whose numbers `is_bad` is true of."""
    learn, numbers = Learner.step, iter(range(10**9))

    def step(learner, batch, progress):
        if is_bad(next(numbers)):
            batch.reward[2, 1] = math.nan
        return learn(learner, batch, progress)

    monkeypatch.setattr(Learner, "step", step)


def train(folder, checkpoint=None, stop=None, **flags):
    blueprint = make_blueprint(reproducible=True, use_popart=True, popart_beta=0.5, **flags)
    with closing(JsonLinesSink(folder.metrics_file)) as sink:
        return Trainer(Run(blueprint, folder, checkpoint, stop=stop), sink).run()


def records(folder):
    return [json.loads(line) for line in folder.metrics_file.read_text("utf-8").splitlines()]


def values_of(folder, name):
    return [record["values"][name] for record in records(folder)]


def test_a_bad_batch_is_skipped_and_training_goes_on(tmp_path, monkeypatch, caplog):
    folder = RunFolder.create(tmp_path, "Test-v0")
    spoil_batches(monkeypatch, lambda number: number == 20)
    summary = train(folder, environment_max_steps=800, save_model_period=5)
    assert summary.reason == "steps"
    assert summary.agent_steps >= 800
    assert [record["updates"] for record in records(folder)] == list(range(1, summary.updates + 1))
    assert summary.updates > 40
    assert values_of(folder, "learner/bad_updates") == [0.0] * 20 + [1.0] * (summary.updates - 20)
    (said,) = [line for line in caplog.messages if line.startswith("skipped")]
    assert "reward[2, 1] is nan" in said
    kept = torch.load(folder.path / "bad_updates" / "update_000000020.pt", weights_only=True)
    assert kept["batch"]["reward"][2, 1].isnan()
    state = load(folder.path).state
    assert state["learner"]["version"] == summary.updates
    assert_finite(state["learner"])


def assert_finite(tree):
    if isinstance(tree, torch.Tensor):
        assert tree.isfinite().all()
    elif isinstance(tree, dict):
        for branch in tree.values():
            assert_finite(branch)


def test_a_run_in_which_all_updates_are_bad_ends_with_one_message(tmp_path, monkeypatch, caplog):
    folder = RunFolder.create(tmp_path, "Test-v0")
    with monkeypatch.context() as patch:
        spoil_batches(patch, lambda number: number >= 12)
        with pytest.raises(TooManyBadUpdates, match=r"^4 updates in a row .*reward\[2, 1\] is nan"):
            train(folder, environment_max_steps=100_000, save_model_period=5, max_bad_updates=4)
    state = load(folder.path).state
    assert state["learner"]["version"] in (10, 12)
    assert_finite(state["learner"])
    assert len(list((folder.path / "bad_updates").iterdir())) == 1
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]

    # In a sound environment the run goes on as if nothing had been.
    summary = train(folder, load(folder.path), environment_max_steps=800)
    assert summary.reason == "steps"
    assert summary.updates > 40


ALL_BUFFERS = [
    {"type": "queue", "capacity": 4, "sample_ratio": 0.25},
    {"type": "standard", "capacity": 12, "sample_ratio": 0.25},
    {"type": "elite", "capacity": 12, "sample_ratio": 0.25},
    {"type": "attentive", "capacity": 12, "sample_ratio": 0.25},
]


def spoil_unroll(monkeypatch, schema, number, field):
    """Let one unroll come in with a NaN."""
    insert = ReplayManager.insert

    def insert_spoiled(manager, record, update, timeout_s):
        if int(schema.view(record, "seq")) == number and int(schema.view(record, "env_id")) == 1:
            record = record.copy()
            schema.view(record, field)[...] = math.nan
        return insert(manager, record, update, timeout_s)

    monkeypatch.setattr(ReplayManager, "insert", insert_spoiled)


@pytest.mark.parametrize(
    ("field", "culprit"),
    [("reward", "reward"), ("frames", "observation"), ("behaviour_params", "ratio")],
)
def test_an_unroll_that_is_not_finite_costs_one_update(tmp_path, monkeypatch, field, culprit):
    """It is thrown out of the replay, or small buffers would give it again and again."""
    folder = RunFolder.create(tmp_path, "Test-v0")
    flags = {"replay_parameters": ALL_BUFFERS, "batch_size": 4}
    schema = make_blueprint(reproducible=True, **flags).schema
    spoil_unroll(monkeypatch, schema, 8, field)
    summary = train(folder, environment_max_steps=400, max_bad_updates=2, **flags)
    assert summary.updates > 50
    assert values_of(folder, "learner/bad_updates")[-1] == 1
    (path,) = (folder.path / "bad_updates").iterdir()
    kept = torch.load(path, weights_only=True)
    assert kept["culprit"] == culprit
    assert kept["bad_unrolls"]
    assert len({int(kept["batch"]["item"][column]) for column in kept["bad_unrolls"]}) == 1


def test_a_run_that_ends_after_a_skipped_batch_keeps_all_its_updates(tmp_path, monkeypatch):
    """Nothing has moved since the update before, so that is the state to be saved."""
    folder, stop = RunFolder.create(tmp_path, "Test-v0"), StopSignals()
    stop.answer = Answer.NOTE

    def is_bad(number):
        if number == 12:
            stop.handle(signal.SIGINT)
        return number == 12

    spoil_batches(monkeypatch, is_bad)
    summary = train(folder, stop=stop, environment_max_steps=100_000, save_model_period=5)
    assert (summary.reason, summary.updates) == ("interrupted", 12)
    state = load(folder.path).state
    assert state["learner"]["version"] == 12
    assert state["bad_updates"]["count"] == 1
    assert_finite(state["learner"])
