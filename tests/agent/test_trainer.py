import contextlib
import json
import tracemalloc
from contextlib import closing
from dataclasses import asdict, replace

import numpy as np
import pytest
import torch

import ritornello.agent.run.recorder
import ritornello.agent.run.trainer
from ritornello.agent.learning.feed import Feed
from ritornello.agent.pools.serial_pool import SerialPool
from ritornello.agent.run.experience import Experience, Moment, Serial, WorkerReport
from ritornello.agent.run.recorder import Recorder
from ritornello.agent.run.run import Run
from ritornello.agent.run.trainer import Trainer
from ritornello.agent.stored.checkpoint import load
from ritornello.agent.stored.run_folder import RunFolder
from ritornello.core.atomic_file import write_json
from ritornello.core.episode import EpisodeEnd
from ritornello.core.errors import WorkerDied
from ritornello.metrics.health import Finding
from ritornello.metrics.record import Record
from ritornello.metrics.run_files import read_records
from ritornello.metrics.sinks import JsonLinesSink
from ritornello.transport.channel import WorkerStats
from tests.agent.runs import Noted, make_blueprint


class EveryRecord:
    """Finds something in each record."""

    def __init__(self, renewal_updates):
        pass

    def add(self, record):
        return [Finding(record.agent_steps, "loss/total", 9.0, "below 1", "it is too large")]


def trained(folder, steps, checkpoint=None):
    blueprint = make_blueprint(reproducible=True, environment_max_steps=steps)
    with closing(JsonLinesSink(folder.metrics_file)) as sink:
        return Trainer(Run(blueprint, folder, checkpoint), sink).run()


def test_findings_are_logged_and_end_up_in_the_summary_also_after_a_resume(
    tmp_path, monkeypatch, caplog
):
    monkeypatch.setattr(ritornello.agent.run.recorder, "Diagnosis", EveryRecord)
    folder = RunFolder.create(tmp_path, "Test-v0")
    summary = trained(folder, 300)
    records = len(folder.metrics_file.read_text("utf-8").splitlines())
    assert records > 0
    assert len(summary.findings) == records
    said = [line for line in caplog.messages if line.startswith("health: ")]
    assert said == ["health: loss/total is 9 (healthy: below 1): it is too large"] * records
    write_json(folder.summary_file, asdict(summary))
    written = json.loads(folder.summary_file.read_text("utf-8"))["findings"]
    assert written[-1]["cause"] == "it is too large"

    caplog.clear()
    resumed = trained(folder, 400, load(folder.path))
    more = len(folder.metrics_file.read_text("utf-8").splitlines()) - records
    assert more > 0
    assert len(resumed.findings) == records + more
    assert sum(line.startswith("health: ") for line in caplog.messages) == more


def test_the_records_of_a_long_run_do_not_fill_the_memory_of_who_goes_on_with_it(tmp_path):
    folder = RunFolder.create(tmp_path, "Test-v0")
    with closing(JsonLinesSink(folder.metrics_file)) as sink:
        for n in range(500):
            values = {f"loss/name_of_a_metric_{n}": float(n) for n in range(50)}
            sink.write(Record(n, n, n, n, float(n), values))
    run = Run(make_blueprint(), folder)
    tracemalloc.start()
    recorder = Recorder(run, Noted(), None)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert not recorder.findings
    size = folder.metrics_file.stat().st_size
    assert peak < size / 4
    first, *_, last = read_records(folder.path)
    assert all(name is same for name, same in zip(first.values, last.values, strict=True))


def test_unrolls_of_another_layout_that_waited_when_it_was_saved_are_left_behind(tmp_path):
    """As those of a checkpoint from before unrolls held the last action and reward."""
    folder = RunFolder.create(tmp_path, "Test-v0")
    trained(folder, 300)
    checkpoint = load(folder.path)
    checkpoint.state["serial"]["waiting"].insert(0, np.zeros(640, np.uint8))
    assert trained(folder, 400, checkpoint).agent_steps >= 400


class InTurn(Serial):
    """Makes experience in the trainer's thread, in a run that is not reproducible otherwise."""

    state_dict = Experience.state_dict


def in_turn(blueprint, board, life):
    pool = SerialPool(blueprint.workers(life=life), board)
    return InTurn(pool, blueprint.replay(), Feed(blueprint.schema, blueprint.choices.device))


def test_what_comes_after_the_last_update_is_in_a_record_too(tmp_path, monkeypatch):
    """A worker has steps and a game to tell of when all have come to rest."""
    late = [WorkerReport(WorkerStats(steps=7), (EpisodeEnd(0, 21.0, 9, 9),))]
    quiesce, reports = InTurn.quiesce, InTurn.reports
    at_rest = []
    monkeypatch.setattr(InTurn, "quiesce", lambda own: quiesce(own) or at_rest.extend(late))
    monkeypatch.setattr(
        InTurn, "reports", lambda own: [*reports(own), *(at_rest.pop() for _ in at_rest[:1])]
    )
    sink, folder = Noted(), RunFolder.create(tmp_path, "Test-v0")
    blueprint = make_blueprint(environment_max_steps=300, log_interval_s=1e-9)
    summary = Trainer(Run(blueprint, folder, experience=in_turn), sink).run()
    *_, before, last = [(record.agent_steps, record.episodes) for record in sink.records]
    assert last == (summary.agent_steps, summary.episodes)
    assert before == (summary.agent_steps - 7, summary.episodes - 1)


def test_what_fills_replay_while_the_clock_stands_still_is_no_part_of_a_speed(tmp_path):
    sink, folder = Noted(), RunFolder.create(tmp_path, "Test-v0")
    blueprint = make_blueprint(environment_max_steps=300, log_interval_s=1e-9)
    Trainer(Run(blueprint, folder, experience=in_turn), sink).run()
    filling = [record for record in sink.records if not record.updates]
    assert filling[-1].agent_steps > 0
    assert not any(record.values.get("throughput/agent_steps_per_s") for record in filling)


def test_saving_and_closing_are_no_part_of_the_time_of_a_run(tmp_path, monkeypatch):
    folder = RunFolder.create(tmp_path, "Test-v0")
    blueprint = make_blueprint(environment_max_steps=300)
    trainer = Trainer(Run(blueprint, folder, experience=in_turn), Noted())

    def take_long(**_):
        trainer._tally.rest(-1000.0)
        trainer._began -= 1000.0

    monkeypatch.setattr(trainer._saving, "at_the_end", take_long)
    summary = trainer.run()
    assert summary.wall_s < 1000
    assert summary.agent_steps_per_s > 0.3


@pytest.mark.parametrize("broken", ["evaluation", "quiesce", "record", "save", "close", "board"])
def test_a_step_of_the_end_that_fails_keeps_no_other_from_being_done(tmp_path, monkeypatch, broken):
    folder = RunFolder.create(tmp_path, "Test-v0")
    blueprint = make_blueprint(environment_max_steps=300, log_interval_s=1000.0)
    sink = Noted()
    trainer = Trainer(Run(blueprint, folder, experience=in_turn), sink)
    made = trainer._experience
    owner, name = {
        "evaluation": (trainer, "_last_evaluation"),
        "quiesce": (made, "quiesce"),
        "record": (trainer._recorder, "write"),
        "save": (trainer._saving, "at_the_end"),
        "close": (made, "close"),
        "board": (trainer._board, "close"),
    }[broken]
    with monkeypatch.context() as patched:
        patched.setattr(owner, name, lambda *args, **kwargs: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            trainer.run()
    updates = trainer._learner.version
    assert updates > 10
    assert [record.updates for record in sink.records] == ([] if broken == "record" else [updates])
    assert folder.has_checkpoint() == (broken != "save")
    if broken != "save":
        assert load(folder.path).state["tally"]["updates"] == updates
    assert (made.pool.alive() == 0) == (broken != "close")
    made.close()


@pytest.mark.parametrize("requested", [True, False])
def test_workers_that_die_of_the_signal_that_stops_the_run_are_no_failure(
    tmp_path, monkeypatch, requested
):
    """As systemd and Slurm send it: to the learner and to all workers."""
    folder, polled = RunFolder.create(tmp_path, "Test-v0"), []
    run = Run(make_blueprint(environment_max_steps=10**6), folder, experience=in_turn)
    poll = run.experience.pool.poll

    def poll_until_killed(timeout_s):
        polled.append(1)
        if len(polled) < 30:
            return poll(timeout_s)
        run.stop.count += requested
        raise WorkerDied("11 of them were killed by signal 15; giving up.")

    monkeypatch.setattr(run.experience.pool, "poll", poll_until_killed)
    if requested:
        assert Trainer(run, Noted()).run().status == 130
    else:
        with pytest.raises(WorkerDied, match="giving up"):
            Trainer(run, Noted()).run()
    assert load(folder.path).updates == run.learner.version > 0


@pytest.mark.parametrize("requested", [True, False])
def test_workers_that_die_in_a_pause_end_the_run_in_it(tmp_path, monkeypatch, requested):
    run = Run(make_blueprint(), RunFolder.create(tmp_path, "Test-v0"), experience=in_turn)
    trainer, rests = Trainer(run, Noted()), []

    def rest():
        rests.append(1)
        run.stop.count += requested or len(rests) > 3
        return 0.0

    def died():
        raise WorkerDied("11 of them were killed by signal 15; giving up.")

    trainer._control.is_paused = True
    monkeypatch.setattr(trainer._control, "rest", rest)
    monkeypatch.setattr(run.experience, "check", died, raising=False)
    with contextlib.nullcontext() if requested else pytest.raises(WorkerDied):
        assert trainer.run().status == 130
    assert len(rests) == 1


def test_no_clock_decides_with_which_weights_a_reproducible_run_acts(tmp_path, monkeypatch):
    """With a GPU, weights that follow others too soon wait; here all of them would."""
    monkeypatch.setattr(ritornello.agent.run.trainer, "PUBLISH_EACH_S", 1e9)
    blueprint = make_blueprint(reproducible=True, environment_max_steps=300)
    run = Run(blueprint, RunFolder.create(tmp_path, "Test-v0"))
    on_gpu = replace(blueprint.choices, device=torch.device("cuda"))
    run.blueprint = replace(blueprint, choices=on_gpu)
    trainer, poll, behind = Trainer(run, Noted()), run.experience.pool.poll, []
    run.blueprint = blueprint

    def poll_and_compare(timeout_s):
        behind.append(run.learner.version - run.board.version)
        return poll(timeout_s)

    monkeypatch.setattr(run.experience.pool, "poll", poll_and_compare)
    assert trainer.run().updates > 10
    assert set(behind) == {0}


def test_a_resumed_run_repeats_no_games_of_workers_that_were_restarted_before(tmp_path):
    """A worker's life goes up with each restart, so those of a later session begin far above."""
    folder = RunFolder.create(tmp_path, "Test-v0")
    restarts = 1000  # of one worker, before the first checkpoint
    trained(folder, 100)
    lives = []

    def experience(blueprint, board, life):
        lives.append(life)
        return in_turn(blueprint, board, life)

    blueprint = make_blueprint(environment_max_steps=200)
    for resumed in (None, load(folder.path)):
        Run(blueprint, folder, resumed, experience=experience)
    assert lives[0] == 0
    assert lives[1] > lives[0] + restarts


def test_batches_of_a_resume_are_for_its_moment_from_the_first_one_on(tmp_path, monkeypatch):
    """Threads make batches of saved replay as soon as they are started."""
    folder = RunFolder.create(tmp_path, "Test-v0")
    trained(folder, 300)
    checkpoint, blueprint = load(folder.path), make_blueprint(environment_max_steps=400)
    run = Run(blueprint, folder, checkpoint, experience=in_turn)
    start, moments = InTurn.start, []
    monkeypatch.setattr(InTurn, "start", lambda own: moments.append(own.moment) or start(own))
    Trainer(run, Noted()).run()
    progress = checkpoint.agent_steps / blueprint.schedule_steps
    assert moments == [Moment(checkpoint.updates, pytest.approx(progress))]


def test_a_resume_stops_at_the_present_mean_return_and_not_at_the_best_one(tmp_path):
    folder = RunFolder.create(tmp_path, "Test-v0")
    trained(folder, 300)
    checkpoint = load(folder.path)
    checkpoint.state["tally"]["games"]["best_mean"] = 1e6
    blueprint = make_blueprint(
        reproducible=True, environment_max_steps=400, stop_at_mean_return=1e5
    )
    with closing(JsonLinesSink(folder.metrics_file)) as sink:
        summary = Trainer(Run(blueprint, folder, checkpoint), sink).run()
    assert (summary.reason, summary.agent_steps >= 400) == ("steps", True)
