import os
from dataclasses import asdict
from datetime import datetime

import pytest

from ritornello.agent.run.trainer import Trainer
from ritornello.agent.session import prepare
from ritornello.agent.stored.checkpoint import load
from ritornello.agent.stored.checkpoint_writer import CheckpointWriter
from ritornello.agent.stored.run_folder import RunFolder
from ritornello.agent.stored.run_rewind import check_not_saved_since, take_back
from ritornello.agent.testing.score_table import Game, Life, report_stem, summarise
from ritornello.core.atomic_file import write_json
from ritornello.core.errors import ConfigError
from ritornello.metrics.run_files import read_records
from tests.agent.runs import COUNTING, QUIET
from tests.agent.states import state_at

NOW = datetime(2026, 11, 22, 13, 45)
CUT = "cut_20261122-134500"


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def run_with(folder, updates, best):
    """A run with checkpoints of these updates, replay contents, milestones, and a best one."""
    run = RunFolder(folder)
    writer = CheckpointWriter(run.checkpoints, keep_last=9, milestone_steps=1500)
    for n in updates:
        writer.save(state_at(n), updates=n, agent_steps=100 * n, replay={"n": n})
    writer.save_best(state_at(best), score=float(best))
    return run


def taken_back(run, url):
    return take_back(run, load(url), NOW)


def test_later_checkpoints_are_set_aside_with_their_replay_and_milestones(tmp_path):
    run = run_with(tmp_path, [10, 20, 30, 40], best=30)
    notes = taken_back(run, run.checkpoints / "update_000000020.pt")
    assert names(run.checkpoints) == [
        CUT, "step_000000002000.pt",
        "update_000000010.pt", "update_000000010.replay",
        "update_000000020.pt", "update_000000020.replay",
    ]  # fmt: skip
    assert names(run.checkpoints / CUT) == [
        "best.pt", "step_000000003000.pt",
        "update_000000030.pt", "update_000000030.replay",
        "update_000000040.pt", "update_000000040.replay",
    ]  # fmt: skip
    (said,) = notes
    assert said.startswith("4 later checkpoints (")
    assert str(run.checkpoints / CUT) in said
    # Neither a plain resume nor damage leads into the former future now.
    assert load(run.path).state["updates"] == 20
    (run.checkpoints / "update_000000020.pt").write_bytes(b"damaged")
    assert load(run.path).state["updates"] == 10
    assert load(run.checkpoints / CUT / "update_000000040.pt").load_replay()["n"] == 40


@pytest.mark.parametrize("name", ["best.pt", "step_000000003000.pt"])
def test_a_best_or_a_milestone_that_is_gone_on_from_becomes_the_latest(tmp_path, name):
    run = run_with(tmp_path, [10, 20, 30, 40], best=30)
    (run.checkpoints / "update_000000030.pt").unlink()
    taken_back(run, run.checkpoints / name)
    assert (run.checkpoints / name).exists()
    assert "update_000000040.pt" not in names(run.checkpoints)
    assert load(run.path).path.name == "update_000000030.pt"


def save_more(run, *updates):
    """What another session does that keeps one checkpoint."""
    writer = CheckpointWriter(run.checkpoints, keep_last=1)
    for n in updates:
        writer.save(state_at(n), updates=n, agent_steps=100 * n)


@pytest.mark.parametrize(
    ("name", "meanwhile"),
    [
        ("", lambda run: save_more(run, 5000)),
        ("checkpoints", lambda run: taken_back(run, run.checkpoints / "update_000000010.pt")),
        ("checkpoints/update_000000020.pt", lambda run: save_more(run, 5000)),
    ],
)
def test_what_another_session_saved_while_this_one_started_is_not_set_aside(
    tmp_path, name, meanwhile
):
    run = run_with(tmp_path, [10, 20], best=10)
    checkpoint = load(run.path / name)
    check_not_saved_since(checkpoint)
    meanwhile(run)
    with pytest.raises(ConfigError, match=r"saved to by another session .* the same command again"):
        check_not_saved_since(checkpoint)


def cut_short(monkeypatch, run, *, moves):
    """Take a run back to update 20 on a disk that is full after a number of moves."""
    replace, left = os.replace, [moves]

    def fail(source, target):
        left[0] -= 1
        if left[0] < 0:
            raise OSError(28, "No space left on device", str(target))
        replace(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", fail)
        with pytest.raises(ConfigError, match=r"cannot take .* back .*No space left"):
            taken_back(run, run.checkpoints / "update_000000020.pt")


def test_a_move_that_is_cut_short_is_finished_by_the_next_one(tmp_path, monkeypatch):
    run = run_with(tmp_path, [10, 20, 30, 40], best=10)
    cut_short(monkeypatch, run, moves=1)
    left_newest = load(run.path)
    assert left_newest.load_replay()["n"] == left_newest.state["updates"] == 30
    taken_back(run, run.checkpoints / "update_000000020.pt")
    assert names(run.checkpoints)[-4:] == [
        f"update_0000000{n}0.{x}" for n in "12" for x in ("pt", "replay")
    ]


MODELS = {"step_000000002000": 2000, "step_000000003000": 3000, "best": 2000}
KINDS = ("csv", "json", "mp4")


def write_tests(folder):
    """Write the files of a test of each of MODELS, and one that is none."""
    games = [Game(0, 1.0, 5, 5, "a", (Life(1.0, 5),))]
    for model, steps in MODELS.items():
        stem = report_stem(model, ["Pong"], "sampled")
        for kind in KINDS:
            (folder / f"{stem}.{kind}").write_text(kind)
        report = summarise(games, "Pong", f"{folder}/checkpoints/{model}.pt", steps, greedy=False)
        write_json(folder / f"{stem}.json", asdict(report))
    (folder / "test_notes.json").write_text("{}")


def test_tests_of_later_weights_are_set_aside(tmp_path, monkeypatch):
    run = run_with(tmp_path, [10, 20, 30], best=30)
    write_tests(run.path)  # that of best.pt of update 30, which needed no new step
    cut_short(monkeypatch, run, moves=5)  # the last is of the first file of a test
    notes = taken_back(run, run.path)  # which goes on from what is left
    assert "films and files of tests of later weights are *.cut now: 5" in "".join(notes)
    stems = {model: f"test_{model}_Pong_sampled" for model in MODELS}
    later = [f"{stems[model]}.{kind}" for model in ("best", "step_000000003000") for kind in KINDS]
    assert {path.name for path in run.path.glob("test_*")} == {
        *(f"{name}.20261122-134500.cut" for name in later),
        *(f"{stems['step_000000002000']}.{kind}" for kind in KINDS),
        "test_notes.json",
    }


def test_films_of_later_updates_are_set_aside(tmp_path):
    run = run_with(tmp_path, [10, 20, 30], best=10)
    (run.path / "films").mkdir()
    for name in ("update_00000020", "update_00000021", "mine"):
        (run.path / "films" / f"{name}.mp4").write_bytes(b"film")
    notes = taken_back(run, run.checkpoints / "update_000000020.pt")
    assert notes[-1] == "films and files of tests of later weights are *.cut now: 1"
    assert names(run.path / "films") == [
        "mine.mp4", "update_00000020.mp4", "update_00000021.mp4.20261122-134500.cut",
    ]  # fmt: skip


SMALL = (
    f"--env={COUNTING}", "--seed=1", "--reproducible=True", "--precision=fp32",
    "--r_f_steps=5", "--batch_size=4", "--worker_count=1", "--envs_per_worker=3",
    "--feature_out_layer_size=16", "--save_model_period=5", "--keep_checkpoints=9",
    "--learner_thread_count=1",
)  # fmt: skip


def session(*flags):
    return prepare([*QUIET, *flags]).run()


def test_a_run_that_is_resumed_from_an_older_checkpoint_keeps_and_says_what_it_cuts(
    tmp_path, monkeypatch
):
    assert session(*SMALL, f"--results_dir={tmp_path}", "--environment_max_steps=600") == 0
    (folder,) = tmp_path.iterdir()
    run = RunFolder(folder)
    numbers = [int(path.stem[7:]) for path in sorted(run.checkpoints.glob("update_*.pt"))]
    old, last = numbers[1], numbers[-1]
    whole = run.metrics_file.read_text("utf-8")
    assert run.summary_file.exists()
    summaries, begin = [], Trainer.run
    monkeypatch.setattr(
        Trainer, "run", lambda own: summaries.append(run.summary_file.exists()) or begin(own)
    )
    resume = ("--op_mode=train_w_load", "--environment_max_steps=700")
    url = run.checkpoints / f"update_{old:09d}.pt"
    assert session(*resume, f"--load_model_url={url}") == 0
    assert summaries == [False], "the summary of a session does not outlive it"
    log = run.log_file.read_text("utf-8")
    assert f"lines about what came after update {old}" in log
    assert f"{last - old} of metrics.jsonl" in log
    assert "later checkpoints (" in log
    (aside,) = folder.glob("metrics.jsonl.*.cut")
    kept = run.metrics_file.read_text("utf-8")
    assert kept.startswith(whole.removesuffix(aside.read_text("utf-8")))
    assert [record.updates for record in read_records(folder)] == list(
        range(1, kept.count("\n") + 1)
    )
    assert not list(folder.rglob(".*"))
    assert load(folder).state["tally"]["updates"] == kept.count("\n")


def test_a_session_that_read_before_another_one_saved_is_refused_and_changes_nothing(tmp_path):
    assert session(*SMALL, f"--results_dir={tmp_path}", "--environment_max_steps=300") == 0
    (folder,) = tmp_path.iterdir()
    resume = ("--op_mode=train_w_load", f"--load_model_url={folder}")
    late = prepare([*QUIET, *resume, "--environment_max_steps=500"])
    assert session(*resume, "--environment_max_steps=400") == 0
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    with pytest.raises(ConfigError, match="saved to by another session"):
        late.run()
    # Even the log is as it was, but for the name of who holds the lock.
    after = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert [path.name for path in before if after.get(path) != before[path]] in ([], ["lock"])
    assert after.keys() == before.keys()


def test_what_is_played_again_leaves_the_table_of_evaluations(tmp_path):
    """An evaluation that was not over at the save is still due: the resumed run plays it."""
    run = RunFolder(tmp_path)
    state = state_at(20) | {"evaluation": {"looked_at": 1500}}
    CheckpointWriter(run.checkpoints).save(state, updates=20, agent_steps=2000)
    head, *rows = "time,agent_steps,updates,game", "1,1500,15,Pong", "2,2000,20,Pong"
    (tmp_path / "evaluations.csv").write_text("\n".join([head, *rows, ""]))
    taken_back(run, run.path)
    assert (tmp_path / "evaluations.csv").read_text() == f"{head}\n{rows[0]}\n"
