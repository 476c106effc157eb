"""What a stranger's files ask for: no code of his runs, nothing outside his folder is touched."""

import json
import sys
import uuid

import pytest

from ritornello.agent.session import prepare
from ritornello.agent.stored.checkpoint_writer import CheckpointWriter
from ritornello.agent.stored.model_file import save_model
from ritornello.core.errors import CheckpointError, ConfigError
from tests.agent.runs import make_blueprint, saved_state

PAYLOAD = """
import gymnasium, pathlib
pathlib.Path({mark!r}).touch()
from tests.fakes import CountingEnv
gymnasium.registry.pop("Evil-v0", None)
gymnasium.register(id="Evil-v0", entry_point=CountingEnv, disable_env_checker=True)
"""


class Stranger:
    """A module on Python's path that leaves a mark when it is imported, and its environment."""

    def __init__(self, folder):
        # A name of its own in each test: specs of environments are kept for the whole process.
        self.module = f"stranger_{uuid.uuid4().hex}"
        self.env = f"{self.module}:Evil-v0"
        self._mark = folder / "the_code_of_a_stranger_ran"
        (folder / f"{self.module}.py").write_text(PAYLOAD.format(mark=str(self._mark)))

    @property
    def ran(self):
        """Whether the code of the module was run."""
        return self._mark.exists() or self.module in sys.modules


@pytest.fixture
def stranger(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    return Stranger(tmp_path)


TYPED = "tests.fakes:tests/Counting-v0"


def of_stranger(folder, kind, flags_env, spec_env):
    """A run folder or model folder that is sound but for the environments that it names."""
    blueprint = make_blueprint(seed=1)
    spec = {**blueprint.env_spec.to_dict(), "env_id": spec_env}
    flags = {**blueprint.flags.to_json(), "env": flags_env}
    flags["trust_env_module"] = True  # as if that could help
    if kind == "model":
        facts = {"env_spec": spec, "agent_steps": 1, "updates": 1}
        save_model(folder, blueprint.learner().model.state_dict(), flags, facts)
        return folder
    state = saved_state(blueprint, flags=flags, env_spec=spec)
    CheckpointWriter(folder / "checkpoints").save(state, updates=1, agent_steps=1)
    return folder


@pytest.mark.parametrize("mode", ["test", "train", "train_w_load"])
@pytest.mark.parametrize(
    ("kind", "flags_env", "spec_env"),
    [
        ("model", "EVIL", "EVIL"), ("run", "EVIL", "EVIL"), ("run", TYPED, "EVIL"),
        ("run", "EVIL", TYPED), ("run", f"{TYPED},EVIL", f"{TYPED},EVIL"),
    ],
)  # fmt: skip
def test_an_environment_that_a_file_names_is_not_imported(
    tmp_path, stranger, mode, kind, flags_env, spec_env
):
    named = [text.replace("EVIL", stranger.env) for text in (flags_env, spec_env)]
    url = of_stranger(tmp_path / "folder", kind, *named)
    argv = [f"--op_mode={mode}", f"--load_model_url={url}", f"--results_dir={tmp_path / 'r'}"]
    if (flags_env, spec_env) == (TYPED, "EVIL") and mode != "train_w_load":
        prepare(argv)  # another game of that shape: its name is only shown
    elif (flags_env, spec_env) == (TYPED, "EVIL"):
        with pytest.raises(CheckpointError, match=r"is of a run of stranger_.*the same games"):
            prepare(argv)
    else:
        with pytest.raises(ConfigError, match=r"import the module 'stranger_.*--env=<mod"):
            prepare(argv)
    assert not stranger.ran


def test_a_typed_environment_does_not_open_the_door_for_the_one_in_the_file(tmp_path, stranger):
    """The spec in the checkpoint says what the model looks like: its own games are not made."""
    url = of_stranger(tmp_path / "folder", "run", stranger.env, stranger.env)
    argv = ["--op_mode=test", f"--load_model_url={url}", f"--results_dir={tmp_path / 'r'}"]
    assert prepare([*argv, f"--env={TYPED}", "--test_episode_count=1"]).run() == 0
    assert not stranger.ran


@pytest.mark.parametrize("how", ["--env=EVIL", "--trust_env_module=True"])
def test_what_was_typed_is_imported(tmp_path, stranger, how):
    url = of_stranger(tmp_path / "folder", "run", stranger.env, stranger.env)
    session = prepare(
        ["--op_mode=train_w_load", f"--load_model_url={url}", how.replace("EVIL", stranger.env)]
    )
    assert session.blueprint.flags.env == stranger.env
    assert stranger.ran


@pytest.mark.parametrize("given", [{}, {"trust_env_module": True}])
def test_a_sequence_cannot_name_a_module_either(tmp_path, stranger, given):
    overrides = tmp_path / "overrides.json"
    overrides.write_text(json.dumps({**given, "env": stranger.env}))
    with pytest.raises(
        ConfigError, match="only the command line may" if given else "from the sequence"
    ):
        prepare([f"--multi_train_overrides={overrides}"])
    assert not stranger.ran
    if "trust_env_module" not in given:
        prepare([f"--multi_train_overrides={overrides}", "--trust_env_module=True"])
        assert stranger.ran
