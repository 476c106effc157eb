import json

import pytest
import torch

from ritornello.agent.session import prepare
from ritornello.agent.stored.checkpoint import load
from ritornello.agent.stored.checkpoint_writer import CheckpointWriter
from ritornello.agent.stored.model_file import ShippedModel, save_model
from ritornello.agent.testing import whole_games
from ritornello.core.errors import CheckpointError, ConfigError
from ritornello.core.stop_signals import INTERRUPTED
from tests.agent.runs import QUIET, make_blueprint, saved_state, states_at_start
from tests.wrappers.lying import BlankEnv, edit, registered

SHIPPED_STEPS = 5000


@pytest.fixture
def model_folder(tmp_path):
    """A model folder whose flags ask for fewer steps than its model was trained for."""
    blueprint = make_blueprint(reproducible=True, environment_max_steps=60, seed=11)
    learner = blueprint.learner()
    with torch.no_grad():
        for tensor in learner.model.state_dict().values():
            tensor.add_(0.25)  # nothing that an initialisation would draw
    facts = {"env_spec": blueprint.env_spec.to_dict(), "agent_steps": SHIPPED_STEPS, "updates": 90}
    folder = tmp_path / "models" / "counting"
    save_model(folder, learner.model.state_dict(), blueprint.flags.to_json(), facts)
    return folder


def prepared(folder, mode, *flags):
    results = folder.parent.parent / "results"
    return prepare(
        [f"--op_mode={mode}", f"--load_model_url={folder}", f"--results_dir={results}", *flags]
    )


def tree(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_model_folder_is_tested_with_its_own_flags_and_nothing_is_written_into_it(
    model_folder, capsys
):
    before = tree(model_folder)
    tested = prepared(model_folder, "test", "--test_episode_count=3", "--greedy=True")
    assert isinstance(tested.checkpoint, ShippedModel)
    assert tested.blueprint.flags.env == "tests.fakes:tests/Counting-v0"
    assert tested.blueprint.flags.seed == 11
    assert tested.run() == 0
    assert tree(model_folder) == before
    results = model_folder.parent.parent / "results" / "counting"
    (written,) = results.glob("test_model_*_greedy.json")
    report = json.loads(written.read_text("utf-8"))
    assert (report["episodes"], report["policy"]) == (3, "greedy")
    assert report["agent_steps"] == SHIPPED_STEPS
    assert str(model_folder) in capsys.readouterr().out


def test_training_from_a_model_folder_is_a_new_run_with_those_weights(model_folder, monkeypatch):
    starts = states_at_start(monkeypatch)
    before = tree(model_folder)
    training = prepared(model_folder, "train_w_load", *QUIET)
    assert isinstance(training.checkpoint, ShippedModel)
    shipped = training.checkpoint.state["learner"]["model"]
    assert training.run() == 0

    (start,) = starts
    learner, tally = start["learner"], start["tally"]
    for name, tensor in shipped.items():
        assert torch.equal(learner["model"][name], tensor), name
    assert learner["version"] == tally["updates"] == tally["agent_steps"] == 0
    assert tally["games"]["count"] == 0
    assert learner["optimiser"]["state"] == {}
    assert tree(model_folder) == before
    (run,) = (model_folder.parent.parent / "results").iterdir()
    assert 60 <= load(run).agent_steps < SHIPPED_STEPS
    assert "trained for 5,000 agent steps" in (run / "train.log").read_text("utf-8")


@pytest.mark.parametrize("mode", ["train", "train_w_load"])
def test_a_new_run_from_a_model_folder_has_a_seed_of_its_own(model_folder, mode):
    assert prepared(model_folder, mode, *QUIET).blueprint.flags.seed != 11
    assert prepared(model_folder, mode, "--seed=11", *QUIET).blueprint.flags.seed == 11


def test_a_damaged_model_folder_is_found_before_anything_is_made(model_folder):
    path = model_folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    for mode in ("test", "train_w_load"):
        with pytest.raises(CheckpointError, match="model.safetensors is damaged"):
            prepared(model_folder, mode)
    assert [item.name for item in model_folder.parent.parent.iterdir()] == ["models"]


def test_flags_that_change_the_network_are_refused_with_the_shapes(model_folder):
    with pytest.raises(CheckpointError, match=r"linear1.bias: expected \(8,\), got \(16,\)"):
        prepared(model_folder, "test", "--feature_out_layer_size=8")
    path = model_folder / "flags.json"
    path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), "gamma": 7}), "utf-8")
    with pytest.raises(ConfigError, match="--gamma=7"):
        prepared(model_folder, "test")


def test_an_environment_that_is_edited_and_registered_anew_is_learned_as_it_is_now():
    with registered(BlankEnv) as config:
        argv = [f"--env={config.env_id}", *QUIET]
        was = prepare(argv).blueprint.env_spec
        for edited in ({"actions": 4}, {"numbers": 1}, {"numbers": 6}, {"masks": True}):
            edit(config, **edited)
            spec = prepare(argv).blueprint.env_spec
            assert spec != was
            assert spec.frame_shape == (edited.get("numbers", 4),)
            assert spec.action_count == edited.get("actions", 2)
            assert spec.has_action_mask == edited.get("masks", False)


def test_an_interrupted_test_ends_with_130_and_says_so(model_folder, monkeypatch, capsys):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(whole_games.Lives, "take", interrupt)
    tested = prepared(model_folder, "test", "--test_episode_count=9")
    assert tested.run() == INTERRUPTED
    assert capsys.readouterr().err == "interrupted before the first game was over\n"
    assert not list(tested._test_folder().glob("test_*.json"))


def progress_of(session):
    return session.checkpoint.agent_steps / session.blueprint.schedule_steps


def test_schedules_do_not_jump_when_a_resume_goes_on_for_longer(tmp_path):
    """The learning rate, the entropy weight and replay follow this share."""
    steps = 3_000_000  # more than the least that a schedule takes
    blueprint = make_blueprint(environment_max_steps=steps)
    state = saved_state(blueprint, agent_steps=steps, updates=9)
    run = tmp_path / "results" / "run"
    CheckpointWriter(run / "checkpoints").save(state, updates=9, agent_steps=steps)

    def resumed(*flags):
        return prepare(["--op_mode=train_w_load", f"--load_model_url={run}", *flags])

    longer = f"--environment_max_steps={2 * steps}"
    assert progress_of(resumed(longer)) == 1.0
    (note,) = resumed(longer).checkpoint.notes
    assert "3,000,000" in note
    assert "6,000,000" in note
    for given in ("--lr_scheduler_steps=0", f"--lr_scheduler_steps={2 * steps}"):
        assert progress_of(resumed(longer, given)) == 0.5

    # What a second session saves is what a third one goes on with.
    state["flags"] = resumed(longer).blueprint.flags.to_json()
    CheckpointWriter(run / "checkpoints").save(state, updates=10, agent_steps=steps)
    assert progress_of(resumed(f"--environment_max_steps={4 * steps}")) == 1.0


def test_a_run_for_which_the_system_has_no_thread_left_says_what_to_do(model_folder, monkeypatch):
    session = prepared(model_folder, "train")

    def refuse(*given, **named):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("ritornello.agent.run.training.Run", refuse)
    assert session.run() == 1
    (log,) = (model_folder.parent.parent / "results").glob("*/train.log")
    (line,) = (line for line in log.read_text("utf-8").splitlines() if "the run failed" in line)
    assert "no more threads" in line
    assert "ulimit -u" in line
