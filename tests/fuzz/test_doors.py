"""Every place at which the program reads something: honoured, or refused in one message.

`FUZZ_TIMES=50 python -m pytest tests/fuzz` tries 50 times as many.
"""

import contextlib
import io
import json
import os
import shutil

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ritornello.agent.run import training
from ritornello.agent.session import prepare
from ritornello.agent.stored.checkpoint import load
from ritornello.core.errors import ConfigError
from ritornello.flags.options import Flags
from ritornello.flags.parsing import parse
from ritornello.main import main
from ritornello.replay.parameters import make_buffers, normal_form, parse_replay_parameters
from ritornello.sequences.folder import STATE_FILE, SequenceFolder
from ritornello.sequences.plan import load_plan
from tests.fuzz.strategies import (
    NASTY_TEXTS,
    damaged_bytes,
    damaged_text,
    damaged_tree,
    honoured_or_refused,
    nasty,
)

TIMES = int(os.environ.get("FUZZ_TIMES", "1"))
WITH_FOLDER = (HealthCheck.function_scoped_fixture,)

BUFFERS = [
    {"type": "queue", "capacity": 4, "sample_ratio": 0.5},
    {"type": "standard", "capacity": 100, "sample_ratio": 0.2, "reservoir": True},
    {"type": "elite", "capacity": 50, "sample_ratio": 0.2, "dist_function": "ln_norm", "p": 2},
    {"type": "attentive", "capacity": 9, "sample_ratio": 0.1},
]
PLAN = {
    "name": "fuzz",
    "about": "a plan",
    "base": {"env": "CartPole-v1", "replay_parameters": BUFFERS},
    "seeds": [1, 2],
    "runs": [{"name": "a"}, {"name": "b", "flags": {"lr": 0.1, "load_model_url": {"run": "a"}}}],
    "grid": {"gamma": [0.9, 0.99]},
    "test": {"test_episode_count": 3},
}
QUIET = ("--basic_verbose=False", "--tensorboard=False", "--charts=False")
SMALL = (
    *("--env=CartPole-v1", "--reproducible=True", "--seed=1", "--r_f_steps=5", "--batch_size=2"),
    *("--envs_per_worker=2", "--feature_out_layer_size=8", "--learner_thread_count=1", *QUIET),
    '--replay_parameters=[{"type": "queue", "capacity": 2, "sample_ratio": 1}]',
)


values = st.one_of(
    st.sampled_from(
        ("True", "False", "1", "50", "0.5", "-1", "1e30", "nan", "none", "auto", "84,84")
    ),
    st.sampled_from(NASTY_TEXTS),
    damaged_tree(BUFFERS).map(json.dumps),
)
arguments = st.one_of(
    st.builds("--{}={}".format, st.sampled_from(list(Flags.model_fields)), values),
    st.builds(
        "--{}={}".format, st.sampled_from(list(Flags.model_fields)).flatmap(damaged_text), values
    ),
    values,
)


@settings(max_examples=100 * TIMES)
@given(
    argv=st.lists(arguments, max_size=6),
    stored=st.one_of(st.none(), damaged_tree({"lr": 0.1, "batch_size": 4, "env": "CartPole-v1"})),
    family=st.sampled_from(("atari", "vector", "several-games")),
)
def test_command_lines(argv, stored, family):
    with honoured_or_refused():
        flags = parse(argv, lambda *_: stored or {}, lambda *_: family)
        assert Flags(**json.loads(json.dumps(flags.to_json()))) == flags


@settings(max_examples=100 * TIMES)
@given(
    value=st.one_of(
        damaged_tree(BUFFERS), damaged_tree(BUFFERS).map(json.dumps).flatmap(damaged_text)
    )
)
def test_replay_parameters(value):
    with honoured_or_refused():
        configs = parse_replay_parameters(value)
        assert parse_replay_parameters(json.loads(json.dumps(normal_form(configs)))) == configs
        make_buffers(configs, 0.5)


@settings(max_examples=50 * TIMES, suppress_health_check=WITH_FOLDER)
@given(text=st.one_of(damaged_tree(PLAN).map(yaml.safe_dump), damaged_text(yaml.safe_dump(PLAN))))
def test_plans_of_sequences(text, tmp_path):
    path = tmp_path / "plan.yaml"
    path.write_text(text, encoding="utf-8", errors="replace")
    with honoured_or_refused(tmp_path):
        folder = SequenceFolder.create(tmp_path / "results", load_plan(str(path)), [])
        # As text, because a value may be NaN, which is not equal to itself: the run refuses it.
        assert repr(SequenceFolder.open(folder.path).runs) == repr(folder.runs)


@settings(max_examples=50 * TIMES, suppress_health_check=WITH_FOLDER)
@given(data=st.data())
def test_saved_sequences(data, tmp_path):
    path = tmp_path / "plan.yaml"
    path.write_text(yaml.safe_dump(PLAN))
    folder = SequenceFolder.create(tmp_path / "results", load_plan(str(path)), [])
    saved = (folder.path / STATE_FILE).read_text("utf-8")
    tree = damaged_tree(json.loads(saved)).map(json.dumps)
    text = data.draw(st.one_of(tree, damaged_text(saved)))
    (folder.path / STATE_FILE).write_text(text, encoding="utf-8", errors="replace")
    with honoured_or_refused(tmp_path):
        SequenceFolder.open(folder.path)
    shutil.rmtree(folder.path)


@pytest.fixture(scope="module")
def sound_run(tmp_path_factory):
    """The folder of a short run of CartPole."""
    results = tmp_path_factory.mktemp("runs")
    with quietly():
        argv = [*SMALL, f"--results_dir={results}", "--environment_max_steps=60"]
        assert prepare([*argv, "--save_replay=True"]).run() == 0
    (run,) = results.iterdir()
    return run


@contextlib.contextmanager
def quietly():
    """Keep what is printed, and leave torch's settings, which are for the whole process."""
    said = io.StringIO()
    with (
        contextlib.redirect_stdout(said),
        contextlib.redirect_stderr(said),
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(training, "_set_up_torch", lambda *_: None)
        yield said


@settings(max_examples=60 * TIMES, suppress_health_check=WITH_FOLDER)
@given(data=st.data())
def test_bytes_of_checkpoints(data, sound_run, tmp_path):
    folder = tmp_path / "checkpoints"
    shutil.copytree(sound_run / "checkpoints", folder, dirs_exist_ok=True)
    victim = data.draw(st.sampled_from(sorted(folder.glob("update_*"))))
    victim.write_bytes(data.draw(damaged_bytes(victim.read_bytes())))
    with honoured_or_refused(tmp_path):
        load(data.draw(st.sampled_from((victim, tmp_path)))).load_replay()


@settings(max_examples=8 * TIMES, suppress_health_check=WITH_FOLDER)
@given(data=st.data())
def test_files_of_run_folders(data, sound_run, tmp_path):
    run = tmp_path / "run"
    shutil.rmtree(run, ignore_errors=True)
    shutil.copytree(sound_run, run)
    names = ("flags.json", "run.json", "metrics.jsonl", "summary.json")
    victim = run / data.draw(st.sampled_from(names))
    content = victim.read_bytes()
    victim.unlink()
    kind = data.draw(st.sampled_from(("gone", "folder", "bytes", "text", "nasty")))
    if kind == "folder":
        victim.mkdir()
    elif kind == "bytes":
        victim.write_bytes(data.draw(damaged_bytes(content)))
    elif kind != "gone":
        text = damaged_text(content.decode()) if kind == "text" else nasty.map(str)
        victim.write_text(data.draw(text), encoding="utf-8", errors="replace")
    argv = ["--op_mode=train_w_load", f"--load_model_url={run}", "--environment_max_steps=75"]
    with honoured_or_refused(tmp_path), quietly() as said:
        status = main([*argv, *QUIET])
        assert status in (0, 1, 2), status
        assert "Traceback" not in said.getvalue(), said.getvalue()[-2000:]
        if status == 2:
            raise ConfigError(" ".join(said.getvalue().split())[:5000])
