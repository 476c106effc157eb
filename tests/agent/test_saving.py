import pytest

import ritornello.agent.run.saving
import ritornello.agent.stored.checkpoint
from ritornello.agent.learning.learner import Learner
from ritornello.agent.run.trainer import Trainer
from ritornello.agent.stored.checkpoint import CheckpointWriter, load
from ritornello.agent.stored.run_folder import RunFolder
from tests.agent.runs import Noted, make_blueprint


def trainer_of(folder, checkpoint=None, sink=None, **flags):
    values = {"reproducible": True, "environment_max_steps": 300, "save_model_period": 4}
    return Trainer(make_blueprint(**{**values, **flags}), folder, sink or Noted(), checkpoint)


@pytest.fixture
def folder(tmp_path):
    return RunFolder.create(tmp_path, "Test-v0")


def test_nothing_is_saved_once_the_learner_has_failed(folder, monkeypatch):
    step = Learner.step

    def fails_at_six(learner, batch, progress):
        if learner.version == 6:
            learner.model.get_parameter("value_head.linear.weight").data.fill_(1e9)
            raise RuntimeError("this state cannot go on")
        return step(learner, batch, progress)

    monkeypatch.setattr(Learner, "step", fails_at_six)
    with pytest.raises(RuntimeError, match="cannot go on"):
        trainer_of(folder).run()
    assert load(folder.path).state["tally"]["updates"] == 4


def test_another_failure_leaves_the_newest_state(folder, monkeypatch):
    """A pool that breaks says nothing against the weights."""
    trainer = trainer_of(folder)
    poll, polled = trainer._experience.pool.poll, []

    def breaks(timeout_s):
        polled.append(1)
        if len(polled) == 12:
            raise OSError("the environments are gone")
        return poll(timeout_s)

    monkeypatch.setattr(trainer._experience.pool, "poll", breaks)
    with pytest.raises(OSError, match="are gone"):
        trainer.run()
    assert load(folder.path).state["tally"]["updates"] == trainer._tally.updates > 4


def test_records_and_games_are_on_the_disk_before_the_checkpoint_is(folder, monkeypatch):
    sink, saved = Noted(), []
    save = CheckpointWriter.save

    def note(writer, state, *, updates, **more):
        saved.append((updates, sink.flushed_at[-1]))
        return save(writer, state, updates=updates, **more)

    monkeypatch.setattr(CheckpointWriter, "save", note)
    trainer_of(folder, sink=sink).run()
    assert len(saved) > 3
    assert all(updates == flushed for updates, flushed in saved)


def test_weights_are_saved_although_the_files_of_the_run_do_not_answer(folder, caplog):
    """And the log says once that their history may lag behind."""
    answers = iter([True, False, False, True, False])
    flags = {"reproducible": True, "environment_max_steps": 300, "save_model_period": 4}
    flush = lambda: next(answers, True)  # noqa: E731
    summary = Trainer(make_blueprint(**flags), folder, Noted(), flush=flush).run()
    assert next(answers, None) is None
    assert load(folder.path).state["tally"]["updates"] == summary.updates
    said = [line for line in caplog.messages if "do not answer" in line]
    assert [line.split("update ")[1].split()[0] for line in said] == ["8", "20"]


class Scored:
    """Hands out a mean return for each update, and learns who was saved by which."""

    def __init__(self, monkeypatch, means, note=lambda updates: None):
        self.saved = []
        save_best = CheckpointWriter.save_best

        def save(writer, state, *, score):
            self.saved.append((state["tally"]["updates"], score))
            note(state["tally"]["updates"])
            return save_best(writer, state, score=score)

        monkeypatch.setattr(CheckpointWriter, "save_best", save)
        monkeypatch.setattr(
            ritornello.agent.run.saving.Saving,
            "_present_score",
            lambda saving: means(saving._tally.updates),
        )


def test_best_holds_the_weights_of_the_moment_that_earned_its_score(folder, monkeypatch):
    means = {4: None, 8: 10.0, 12: 30.0, 16: 20.0, 20: 29.0}
    scored = Scored(monkeypatch, lambda updates: means.get(updates, 5.0))
    trainer_of(folder).run()
    assert scored.saved == [(8, 10.0), (12, 30.0)]
    best = load(folder.checkpoints / "best.pt")
    assert best.state["tally"]["updates"] == 12
    assert best.score == 30.0
