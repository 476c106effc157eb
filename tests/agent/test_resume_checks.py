import errno
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from ritornello.agent.learners.place import Place
from ritornello.agent.run.checks import check_session
from ritornello.agent.session import prepare
from ritornello.agent.stored.checkpoint import load
from ritornello.agent.stored.checkpoint_file import write_tree
from ritornello.agent.stored.checkpoint_tree import encode
from ritornello.core.errors import CheckpointError, ConfigError
from ritornello.core.plain_data import shown_text
from ritornello.core.run_layout import SCORES, SCORES_PER_LIFE
from ritornello.wrappers import trusted_modules
from tests.agent.runs import BOTH_GAMES, COUNTING, QUIET

SMALL = (
    f"--env={COUNTING}", "--reproducible=True", "--environment_max_steps=400", "--seed=1",
    "--precision=fp32", "--r_f_steps=5", "--batch_size=4", "--worker_count=2",
    "--envs_per_worker=2", "--feature_out_layer_size=16", "--save_model_period=5",
    "--learner_thread_count=1", "--training_fill_in_factor=0.01", "--avg_buff_size=5",
    "--normalise_pixels=each", "--use_last_reward=True", *QUIET,
)  # fmt: skip
OTHER_GAME = BOTH_GAMES.split(",")[1]
TABLES = (SCORES, SCORES_PER_LIFE)
RESUME = ("--op_mode=train_w_load", "--environment_max_steps=1000")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The folder of a reproducible run of one game."""
    results = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trusted_modules, "_trusted", {"tests.fakes"})
        patch.setattr("ritornello.agent.run.training._set_up_torch", lambda *_: None)
        assert prepare([*SMALL, f"--results_dir={results}"]).run() == 0
    (run,) = results.iterdir()
    return run


@pytest.fixture
def run(trained, tmp_path):
    """A copy of it, to be changed as a test likes."""
    return Path(shutil.copytree(trained, tmp_path / "run"))


def resumed(folder, *flags):
    return prepare([*RESUME, f"--load_model_url={folder}", *flags])


def refused(folder, *flags, match, kind=ConfigError):
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    with pytest.raises(kind, match=match) as told:
        resumed(folder, *flags)
    assert "\n" not in str(told.value)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def notes(folder, *flags):
    return resumed(folder, *flags).checkpoint.notes


def test_a_run_is_gone_on_from_with_its_own_flags_and_nothing_is_said(run):
    assert notes(run) == ()


def test_another_kind_of_optimiser_is_refused_unless_it_begins_afresh(run):
    refused(run, "--optimizer=rmsprop", match="--optimizer=rmsprop, but .*--optimizer=adam")
    notes(run, "--optimizer=rmsprop", "--load_optimizer_save=False")


@pytest.mark.parametrize("env", [OTHER_GAME, BOTH_GAMES])
@pytest.mark.parametrize("flag", ["--reproducible=False", "--new_run_folder=True"])
def test_other_games_are_refused_also_where_they_look_the_same(run, env, flag):
    refused(
        run,
        f"--env={env}",
        flag,
        match="same games.*--load=.*run, without --resume",
        kind=CheckpointError,
    )


def test_a_run_that_is_done_is_refused_with_a_command_that_can_be_pasted(run):
    moved = run.rename(run.with_name("my run"))
    told = r"408 agent steps already.*--load='.*/my run', without --resume"
    refused(moved, "--environment_max_steps=400", match=told)


def test_a_game_whose_module_has_moved_is_gone_on_with(run):
    moved = "tests.agent.runs:tests/Counting-v0"
    session = resumed(run, f"--env={moved}", "--reproducible=False")
    assert session.blueprint.flags.env == moved


def test_settings_of_the_optimiser_come_from_the_flags_of_the_session(run):
    session = resumed(run, "--adam_eps=0.125")
    learner = session.blueprint.learner()
    learner.load_state_dict(session.checkpoint.state["learner"])
    assert {group["eps"] for group in learner.optimiser.param_groups} == {0.125}
    moments = session.checkpoint.state["learner"]["optimiser"]["state"]
    assert moments
    for number, state in learner.optimiser.state_dict()["state"].items():
        assert torch.equal(state["exp_avg_sq"], moments[number]["exp_avg_sq"])


@pytest.mark.parametrize(
    "flag",
    [
        "--use_popart=False", "--normalise_pixels=rare", "--reward_clipping_method=log",
        "--use_last_reward=raw",
    ],
)  # fmt: skip
def test_what_values_and_pixels_are_measured_in_cannot_be_switched(run, flag):
    refused(run, flag, match=f"{flag}, but .*expected the same")


def test_a_new_run_is_named_as_the_way_only_where_it_is_one(run, tmp_path):
    """Values in units of PopArt cannot be loaded without it either."""
    for flag in ("--use_popart=False", "--reward_clipping_method=log"):
        with pytest.raises(ConfigError) as refusal:
            resumed(run, flag)
        assert ("--load=<this one>" in str(refusal.value)) == (flag != "--use_popart=False")


@pytest.mark.parametrize("flag", ["--worker_count=1", "--envs_per_worker=3"])
def test_other_workers_are_refused_where_games_go_on_where_they_were(run, flag):
    refused(run, flag, match="with other workers, environments or games: expected the same")
    assert "cannot be repeated from here" in notes(run, flag, "--reproducible=False")[0]


@pytest.mark.parametrize("flag", ["--load_replay=False", "--new_run_folder=True"])
def test_another_seed_is_refused_where_random_streams_go_on_where_they_were(run, flag):
    told = "--seed=2, but .*a reproducible run with --seed=1, .*leave --seed out"
    refused(run, "--seed=2", flag, match=told)
    assert notes(run, "--seed=1", "--new_run_folder=True") == ()
    session = resumed(run, "--seed=2", "--reproducible=False")
    assert session.blueprint.flags.seed == 2


def test_a_reproducible_run_whose_seed_is_drawn_goes_on_with_its_own(run):
    assert resumed(run, "--seed=none").blueprint.flags.seed == 1
    state = load(run).state
    for seed, now in ((0, "none"), (None, "none"), (None, "5")):
        flags = {**state["flags"], "seed": seed}
        write_tree(load(run).path, encode({**state, "flags": flags}))
        assert notes(run) == notes(run, f"--seed={now}") == ()


def test_replay_contents_of_one_learner_are_not_lost_to_several(run):
    session = resumed(run, "--reproducible=False")
    two = replace(session.blueprint, place=Place(0, 2, 0, 2))
    with pytest.raises(ConfigError, match="2 are to go on .*--load_replay=False"):
        check_session(session.checkpoint, two)
    flags = two.flags.model_copy(update={"load_replay": False})
    check_session(session.checkpoint, replace(two, flags=flags))


def test_a_checkpoint_of_the_fast_mode_can_become_reproducible_but_it_is_said(run):
    path = load(run).path
    state = {name: part for name, part in load(run).state.items() if name != "serial"}
    write_tree(path, encode(state))
    (said,) = notes(run, "--reproducible=True")
    assert "not of a reproducible run" in said
    assert notes(run, "--reproducible=False") == ()


def test_missing_replay_contents_are_refused_where_the_run_would_not_be_the_same(run):
    load(run).replay_path.unlink()
    refused(run, match="its replay contents are gone: expected .*.replay. --load_replay=False")
    assert "replay contents are left behind" in notes(run, "--load_replay=False")[0]
    notes(run, "--reproducible=False")


def test_damaged_replay_contents_end_no_resume_but_one_that_would_not_be_the_same(run, caplog):
    replay_path = load(run).replay_path
    replay_path.write_bytes(replay_path.read_bytes()[:-100])
    assert resumed(run).run() == 1
    assert ".replay is damaged" in caplog.text
    assert "give --load_replay=False" in caplog.text
    caplog.clear()
    assert resumed(run, "--reproducible=False").run() == 0
    assert "The replay buffers start with the contents of update" in caplog.text


def test_a_best_checkpoint_has_no_replay_contents_and_that_is_said(run):
    (said,) = notes(run / "checkpoints" / "best.pt")
    assert "there are no replay contents" in said


def test_other_buffers_are_refused_there_too(run):
    flag = '--replay_parameters=[{"type":"queue","capacity":4,"sample_ratio":1}]'
    refused(run, flag, match="with the buffers queue, standard, got queue: expected the same")
    notes(run, flag, "--load_replay=False")


@pytest.mark.parametrize(
    "name", ["metrics.jsonl", "checkpoints", "bad_updates", "checkpoints/best.pt", "deep/er/link"]
)
@pytest.mark.parametrize("mode", ["train_w_load", "test"])
def test_a_link_that_leads_out_of_the_run_folder_is_refused(run, tmp_path, name, mode):
    victim, path = tmp_path / "victim", run / name
    victim.mkdir()
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists():
        os.rename(path, victim / path.name)
    path.symlink_to(victim / path.name)
    argv = [f"--op_mode={mode}", "--environment_max_steps=1000", f"--load_model_url={run}"]
    with pytest.raises(ConfigError, match=rf"{path} is a link that leads out of the run folder"):
        prepare(argv)
    if mode == "train_w_load":
        prepare([*argv, "--new_run_folder=True"])


def test_the_link_of_weights_and_biases_to_its_own_log_is_none_that_is_refused(run, tmp_path):
    logs = run / "wandb/offline-run-20261130_082622-s6echebf/logs"
    logs.mkdir(parents=True)
    (logs / "debug-core.log").symlink_to(tmp_path / "core-debug.log")
    argv = ["--environment_max_steps=1000", f"--load_model_url={run}"]
    prepare(["--op_mode=train_w_load", *argv])
    for name in ("wandb/debug.log", "bad_updates"):  # neither itself nor by way of that link
        for target in (tmp_path, logs / "debug-core.log"):
            (run / name).symlink_to(target)
            with pytest.raises(ConfigError, match=f"{name} is a link that leads out of the run"):
                prepare(["--op_mode=train_w_load", *argv])
            (run / name).unlink()


def test_a_full_disk_is_told_before_a_run_goes_on(run, monkeypatch):
    def full(*given):
        raise OSError(errno.ENOSPC, "No space left on device")

    session = resumed(run)
    before = sorted(run.rglob("*"))
    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(ConfigError, match="No space left on device.* make room.*--new_run_folder"):
        session.run()
    assert sorted(run.rglob("*")) == before


@pytest.fixture
def flat(run, tmp_path):
    """A checkpoint that lies in a folder of its own, not in that of a run."""
    folder = tmp_path / "flat"
    folder.mkdir()
    return Path(shutil.copy(load(run).path, folder / "agent.pt"))


@pytest.mark.parametrize(
    "name",
    [*(f"test_agent_Counting_sampled.{kind}" for kind in ("csv", "json", "mp4")), *TABLES,
     "test_\x1b]0;owned\x07"],
)  # fmt: skip
def test_a_link_is_refused_where_a_test_of_a_single_checkpoint_would_write(flat, tmp_path, name):
    (flat.parent / name).symlink_to(tmp_path / "victim")
    argv = [f"--load_model_url={flat}", "--environment_max_steps=1000"]
    with pytest.raises(ConfigError, match=r"is a link that leads out of the folder") as told:
        prepare(["--op_mode=test", *argv])
    assert shown_text(name) in str(told.value)
    assert str(told.value).isprintable()
    prepare(["--op_mode=train", *argv])  # which writes elsewhere
