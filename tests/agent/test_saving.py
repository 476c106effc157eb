import errno
import logging
import math
import time
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest

from ritornello.agent.learners.place import Place
from ritornello.agent.learning.learner import Learner
from ritornello.agent.run.run import Run
from ritornello.agent.run.saving import SaveTime, Saving
from ritornello.agent.run.trainer import Trainer
from ritornello.agent.stored.checkpoint import load
from ritornello.agent.stored.checkpoint_writer import CheckpointWriter
from ritornello.agent.stored.run_folder import RunFolder
from ritornello.core import faults
from ritornello.core.errors import CheckpointError
from ritornello.core.stop_signals import StopSignals
from ritornello.metrics.meters import EpisodeMeter
from tests.agent.runs import Noted, make_blueprint
from tests.agent.states import state_at
from tests.faulty import Fault, InjectedFault, Plan


def trainer_of(folder, checkpoint=None, sink=None, **flags):
    values = {"reproducible": True, "environment_max_steps": 300, "save_model_period": 4}
    blueprint = make_blueprint(**{**values, **flags})
    return Trainer(Run(blueprint, folder, checkpoint), sink or Noted())


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


def test_whoever_leaves_once_all_is_saved_reads_what_is_saved(folder):
    """The workers take a while to end, and a second Ctrl-C does not wait for them."""
    trainer = trainer_of(folder)
    summary = trainer.run()
    assert trainer._stop.at_stake.startswith(f"the last checkpoint is update {summary.updates}, ")


def test_a_run_whose_folder_is_moved_or_removed_meanwhile_keeps_its_last_weights(
    folder, tmp_path, monkeypatch, caplog
):
    step = Learner.step

    def moves_at_six(learner, batch, progress):
        if learner.version == 6:
            folder.path.rename(tmp_path / "moved")
        return step(learner, batch, progress)

    monkeypatch.setattr(Learner, "step", moves_at_six)
    trainer = trainer_of(folder)
    trainer.run()
    assert load(folder.path).state["tally"]["updates"] == trainer._tally.updates > 8
    assert load(tmp_path / "moved").state["tally"]["updates"] == 4
    assert f"{folder.checkpoints} is gone" in caplog.text


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
    summary = Trainer(Run(make_blueprint(**flags), folder), Noted(), flush).run()
    assert next(answers, None) is None
    assert load(folder.path).state["tally"]["updates"] == summary.updates
    said = [line for line in caplog.messages if "do not answer" in line]
    assert [line.split("update ")[1].split()[0] for line in said] == ["8", "20"]


def test_a_milestone_that_the_disk_refuses_is_tried_again_with_the_next_regular_save(
    folder, monkeypatch
):
    """Each attempt writes a whole checkpoint until the disk is full."""
    refused, kept, save = [], [], CheckpointWriter.save

    def full_for_a_while(writer, state, *, updates, agent_steps, **more):
        if agent_steps >= 100 and len(refused) < 3:
            refused.append(updates)
            raise CheckpointError("the disk is full.")
        kept.append(updates)
        return save(writer, state, updates=updates, agent_steps=agent_steps, **more)

    monkeypatch.setattr(CheckpointWriter, "save", full_for_a_while)
    trainer_of(folder, save_model_every_nsteps=100, save_model_period=7).run()
    first, *others = refused
    assert first % 7, "the milestone is due between two regular saves"
    assert others == [first - first % 7 + 7, first - first % 7 + 14]
    assert others[-1] + 7 in kept
    assert list(folder.checkpoints.glob("step_*.pt"))


def heir_of(trainer, monkeypatch):
    """What saves in another learner, which has made the same updates."""
    with monkeypatch.context() as patch:
        patch.setattr(Place, "speaks", False)
        return Saving(trainer._run, lambda: True)


def test_a_learner_that_saves_in_place_of_the_first_adds_no_milestone_that_is_there(
    folder, monkeypatch
):
    trainer = trainer_of(folder, environment_max_steps=360, save_model_every_nsteps=100)
    heir, another = heir_of(trainer, monkeypatch), heir_of(trainer, monkeypatch)
    trainer.run()
    milestones = sorted(folder.checkpoints.glob("step_*.pt"))
    assert len(milestones) == 3
    heir.take_over()
    heir.at_the_end(learner_failed=False)
    assert sorted(folder.checkpoints.glob("step_*.pt")) == milestones
    heir._lock.release()
    milestones.pop().unlink()  # the first was killed before it was there
    another.take_over()
    another.at_the_end(learner_failed=False)
    assert len(list(folder.checkpoints.glob("step_*.pt"))) == 3


def test_a_second_learner_that_saves_in_place_of_the_first_leaves_all_as_it_is(folder, monkeypatch):
    trainer = trainer_of(folder, save_model_every_nsteps=100)
    heir, another = heir_of(trainer, monkeypatch), heir_of(trainer, monkeypatch)
    with monkeypatch.context() as patch:
        patch.setattr(Saving, "at_the_end", lambda *_, **__: None)  # the first is killed
        trainer.run()
    heir.take_over()
    heir.at_the_end(learner_failed=False)
    heir._lock.release()
    saved = {path: path.stat().st_mtime_ns for path in folder.checkpoints.iterdir()}
    assert load(folder.path).updates == trainer._tally.updates
    another.take_over()
    another.at_the_end(learner_failed=False)
    assert {path: path.stat().st_mtime_ns for path in folder.checkpoints.iterdir()} == saved


def test_a_disk_that_refuses_one_file_alone_has_that_said_once(folder, monkeypatch, caplog):
    """The other save says nothing of it, although it succeeds in turn."""
    Scored(monkeypatch, float)
    full = Plan([Fault(("file.write",), "enospc", file="*best.pt*", for_ever=True)])
    with faults.loaded(full), pytest.raises(CheckpointError, match=r"best\.pt"):
        trainer_of(folder).run()
    assert full.hits["file.write"] > 5
    assert len([line for line in caplog.messages if "best.pt could not be" in line]) == 1
    assert "works again" not in caplog.text


class Scored:
    """Hands out a mean return for each update, and learns who was saved by which."""

    def __init__(self, monkeypatch, means, note=lambda updates: None):
        self.saved = []
        save_best = CheckpointWriter.save_best

        def save(writer, state, *, score):
            self.saved.append((state["tally"]["updates"], score))
            note(state["tally"]["updates"])
            return save_best(writer, state, score=score)

        look = Saving._save_best

        def look_at_mean(saving):
            mean = means(saving._tally.updates)
            with mock.patch.object(EpisodeMeter, "full_mean", mean):
                return look(saving)

        monkeypatch.setattr(CheckpointWriter, "save_best", save)
        monkeypatch.setattr(Saving, "_save_best", look_at_mean)


def test_best_holds_the_weights_of_the_moment_that_earned_its_score(folder, monkeypatch):
    means = {4: None, 8: 10.0, 12: 30.0, 16: 20.0, 20: 29.0}
    scored = Scored(monkeypatch, lambda updates: means.get(updates, 5.0))
    trainer_of(folder).run()
    assert scored.saved == [(8, 10.0), (12, 30.0)]
    best = load(folder.checkpoints / "best.pt")
    assert best.state["tally"]["updates"] == 12
    assert best.score == 30.0


def test_the_best_over_another_number_of_games_is_set_aside(folder, monkeypatch):
    with monkeypatch.context() as patch:
        Scored(patch, lambda updates: 30.0)
        trainer_of(folder, avg_buff_size=2).run()
    scored = Scored(monkeypatch, lambda updates: 10.0)
    longer = {"environment_max_steps": 600, "avg_buff_size": 3}
    trainer_of(folder, load(folder.path), **longer).run()
    assert [score for _, score in scored.saved] == [10.0]
    assert load(folder.checkpoints / "best.pt").score == 10.0
    (aside,) = folder.checkpoints.glob("best.pt.*.cut")
    trainer_of(folder, load(folder.path), **{**longer, "environment_max_steps": 900}).run()
    assert list(folder.checkpoints.glob("*.cut")) == [aside]


@pytest.mark.parametrize("odd", [-math.inf, math.inf, math.nan])
@pytest.mark.parametrize("others", [5.0, -math.inf])
def test_returns_that_are_not_finite_are_no_best_and_end_no_run(folder, monkeypatch, odd, others):
    add, games = EpisodeMeter.add, []

    def add_odd(meter, episode):
        games.append(odd if len(games) > 2 else others)
        add(meter, replace(episode, return_raw=games[-1]))

    monkeypatch.setattr(EpisodeMeter, "add", add_odd)
    summary = trainer_of(folder, avg_buff_size=2).run()
    assert len(games) > 5
    assert load(folder.path).updates == summary.updates
    assert not (folder.checkpoints / "best.pt").exists()


def test_whoever_is_ended_while_saving_goes_on_from_the_newest_weights_and_some_replay(tmp_path):
    found, nth = [], 0
    while not found or not found[-1].endswith("whole"):
        nth += 1
        folder, plan = tmp_path / str(nth), Plan([Fault(("file.*", "save.*"), "raise", nth=nth)])
        writer = CheckpointWriter(folder, keep_last=1)
        writer.save(state_at(1), updates=1, agent_steps=1, replay_follows=True)
        writer.save_replay(1, {"n": 1})
        writer = CheckpointWriter(folder, keep_last=1)
        end = "whole"
        try:
            with faults.loaded(plan):
                writer.save(state_at(2), updates=2, agent_steps=2, replay_follows=True)
                writer.save_replay(2, {"n": 2})
        except InjectedFault:
            end = "cut"
        CheckpointWriter(folder, keep_last=1)  # by the next session
        checkpoint = load(folder)
        found.append(f"{checkpoint.state['updates']} {checkpoint.load_replay()['n']} {end}")
    assert list(dict.fromkeys(found)) == ["1 1 cut", "2 1 cut", "2 2 cut", "2 2 whole"]


def test_a_disk_that_refuses_replay_alone_still_keeps_the_last_k_weights_and_the_last_replay(
    tmp_path,
):
    """Else the weights, of which each is small enough, fill the disk in the end."""
    writer = CheckpointWriter(tmp_path, keep_last=2)
    full = Plan([Fault(("file.write",), "enospc", file="*.replay*", for_ever=True)])

    def save(n):
        writer.save(state_at(n), updates=n, agent_steps=n, replay_follows=True)
        writer.save_replay(n, {"n": n})

    save(1)
    save(2)
    for n in (3, 4, 5, 6):
        with faults.loaded(full), pytest.raises(CheckpointError, match="the disk is full"):
            save(n)
        assert load(tmp_path).load_replay() == {"n": 2}
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "update_000000002.pt", "update_000000002.replay",
        "update_000000005.pt", "update_000000006.pt",
    ]  # fmt: skip
    save(7)
    assert load(tmp_path).load_replay() == {"n": 7}
    assert sorted(path.stem for path in tmp_path.glob("*.pt"))[0] == "update_000000006"


def test_a_disk_that_does_not_list_its_files_once_replay_is_written_has_refused_a_save(
    tmp_path, monkeypatch
):
    """A run is ended by what is no CheckpointError; this one it tries again."""
    writer = CheckpointWriter(tmp_path)
    writer.save(state_at(1), updates=1, agent_steps=1, replay_follows=True)
    stale = OSError(errno.ESTALE, "Stale file handle")
    monkeypatch.setattr(Path, "iterdir", mock.Mock(side_effect=stale))
    with pytest.raises(CheckpointError, match=r"000001\.replay is not saved: Stale file handle\."):
        writer.save_replay(1, {"n": 1})


def test_replay_that_cannot_be_saved_in_time_is_left_out_and_that_is_said_before(
    monkeypatch, caplog
):
    """A gigabyte at 1 MB/s, at the end of a job of two hours; Slurm says when that is."""
    began = int(time.time())
    monkeypatch.setenv("SLURM_JOB_END_TIME", str(began + 7200))
    stop = StopSignals()
    with caplog.at_level(logging.INFO):
        saving = SaveTime(stop, full_bytes=10**9)
        saving.note(10**5, seconds=1.0)
        assert not caplog.messages
        saving.note(20 * 10**6, seconds=20.0)
    assert "saves the weights first, then replay in 1000.0 s (1.00 GB" in caplog.text
    assert "kills 30 s after SIGTERM" in caplog.text
    monkeypatch.setattr(time, "time", lambda: began + 7200 - 1570)
    assert not stop.requested
    assert saving.fits(1e9)
    monkeypatch.setattr(time, "time", lambda: began + 7200 - 1550)
    assert stop.requested
    monkeypatch.setattr(time, "time", lambda: began + 7200 - 30)
    assert saving.fits(10e6)
    assert not saving.fits(20e6)


@pytest.mark.parametrize("left_s", [30.0, 5.0])
def test_weights_are_saved_before_replay_and_without_it_where_the_job_ends(
    folder, monkeypatch, caplog, left_s
):
    monkeypatch.setattr(StopSignals, "left_s", left_s)
    flags = {"reproducible": False, "save_replay": True, "save_model_period": 1000}
    trainer_of(folder, **flags).run()
    weights, *_ = folder.checkpoints.glob("update_*.pt")
    assert weights.with_suffix(".replay").exists() is (left_s > 10)
    assert ("is not, because the job ends in 5 s" in caplog.text) is (left_s < 10)
    assert load(folder.path).state["has_replay"]
