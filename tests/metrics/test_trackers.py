"""Services that collect runs, by false modules: what they are told, and whom they hold up."""

import json
import os
import sys
import types

import pytest

from ritornello.core.errors import ConfigError
from ritornello.metrics import trackers
from ritornello.metrics.record import Record
from ritornello.metrics.trackers import MlflowSink, TrackerError, TrackioSink, WandbSink

FLAGS = {"env": "CartPole-v1", "lr": 0.001, "replay_parameters": [{"type": "queue"}]}
FIRST = Record(agent_steps=100, frames=400, updates=5, values={"loss/total": 0.5})
SECOND = Record(agent_steps=200, frames=800, updates=9, values={"popart/mu_ALE*x": 2.0})


@pytest.fixture
def folder(tmp_path, monkeypatch):
    for name in ("WANDB_PROJECT", "MLFLOW_EXPERIMENT_NAME", "TRACKIO_PROJECT"):
        monkeypatch.setenv(name, "mine")
    path = tmp_path / "CartPole-v1_1"
    path.mkdir()
    (path / "flags.json").write_text(json.dumps(FLAGS))
    return path


@pytest.fixture
def calls(monkeypatch):
    """What the false services were told, in order."""
    told = []

    def note(*what):
        told.append(what)

    wandb_run = types.SimpleNamespace(
        id="w1",
        url="http://nowhere",
        define_metric=lambda name, step_metric: note("axis", name, step_metric),
        log=lambda values: note("log", values),
        finish=lambda: note("finish"),
    )
    wandb = types.SimpleNamespace(
        Settings=lambda **options: options,
        setup=lambda: types.SimpleNamespace(settings=types.SimpleNamespace(mode="online")),
        login=lambda prompt: not prompt,
        init=lambda **options: (note("init", options), wandb_run)[1],
    )

    class Client:
        def get_experiment_by_name(self, name):
            note("asked", name)

        def create_experiment(self, name):
            note("experiment", name)
            return "7"

        def create_run(self, experiment, run_name):
            note("run", experiment, run_name)
            return types.SimpleNamespace(info=types.SimpleNamespace(run_id="m1"))

        def log_batch(self, run, metrics=(), params=()):
            note("batch", run, list(metrics), list(params))

        def update_run(self, run, status):
            note("state", run, status)

        def set_terminated(self, run):
            note("state", run, None)

    trackio_run = types.SimpleNamespace(
        log=lambda values, step: note("log", step, values), finish=lambda: note("finish")
    )
    trackio = types.SimpleNamespace(init=lambda **options: (note("init", options), trackio_run)[1])
    modules = {
        "wandb": wandb,
        "trackio": trackio,
        "mlflow": types.ModuleType("mlflow"),
        "mlflow.tracking": types.SimpleNamespace(MlflowClient=Client),
        "mlflow.entities": types.SimpleNamespace(
            Metric=lambda *parts: parts, Param=lambda *parts: parts
        ),
    }
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setenv("SECRET_TOKEN", "hunter2")
    yield told
    assert "hunter2" not in repr(told)


def used(sink):
    sink.write(FIRST)
    sink.write(SECOND)
    sink.flush()
    sink.close()
    sink.close()


def test_wandb_gets_flags_and_records_and_goes_on_after_a_resume(folder, calls):
    used(WandbSink(folder))
    (_, options), *rest = calls
    assert options["project"] == "mine"
    assert options["name"] == "CartPole-v1_1"
    assert options["config"]["lr"] == 0.001
    assert (options["id"], options["resume"]) == (None, None)
    off = {"x_disable_meta", "x_disable_machine_info", "disable_git", "disable_code"}
    assert {name for name, value in options["settings"].items() if value is True} >= off
    assert options["settings"]["x_save_requirements"] is False
    assert options["settings"]["host"] == "-"
    assert rest[0] == ("axis", "*", "agent_steps")
    assert [what for what, *_ in rest[1:]] == ["log", "log", "finish"]
    assert rest[1][1]["agent_steps"] == 100
    assert rest[1][1]["loss/total"] == 0.5
    calls.clear()
    used(WandbSink(folder))
    assert (calls[0][1]["id"], calls[0][1]["resume"]) == ("w1", "allow")


def test_services_that_begin_at_the_same_time_are_all_known_at_a_resume(folder, calls, monkeypatch):
    begin = WandbSink._begin

    def slowly(sink, *given):
        MlflowSink(folder).write(FIRST)
        return begin(sink, *given)

    monkeypatch.setattr(WandbSink, "_begin", slowly)
    WandbSink(folder).write(FIRST)
    assert json.loads((folder / "trackers.json").read_text()) == {"wandb": "w1", "mlflow": "m1"}


def test_wandb_without_a_key_is_an_error_and_asks_nobody(folder, calls):
    sys.modules["wandb"].login = lambda prompt: False
    sink = WandbSink(folder)
    with pytest.raises(TrackerError, match="wandb login"):
        sink.write(FIRST)
    assert calls == []
    sys.modules["wandb"].setup = lambda: types.SimpleNamespace(
        settings=types.SimpleNamespace(mode="offline")
    )
    sink.write(SECOND)
    assert [what for what, *_ in calls] == ["init", "axis", "log"]


def test_mlflow_gets_parameters_and_metrics_with_names_that_it_takes(folder, calls, monkeypatch):
    monkeypatch.setattr(trackers, "MAX_BATCH", 3)
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "")  # so that it is restored
    monkeypatch.delenv("MLFLOW_DISABLE_TELEMETRY")
    used(MlflowSink(folder))
    assert os.environ["MLFLOW_DISABLE_TELEMETRY"] == "true"
    assert calls[:3] == [("asked", "mine"), ("experiment", "mine"), ("run", "7", "CartPole-v1_1")]
    params = [call for call in calls if call[0] == "batch" and call[3]]
    assert [len(call[3]) for call in params] == [3]
    assert ("replay_parameters", '[{"type": "queue"}]') in params[0][3]
    metrics = [call[2] for call in calls if call[0] == "batch" and call[2]]
    assert {(name, value, step) for name, value, _, step in metrics[0]} >= {
        ("loss/total", 0.5, 100), ("updates", 5, 100),
    }  # fmt: skip
    assert "popart/mu_ALE_x" in {name for name, *_ in metrics[1]}
    assert calls[-1] == ("state", "m1", None)
    calls.clear()
    used(MlflowSink(folder))
    assert calls[0] == ("state", "m1", "RUNNING")
    assert not [call for call in calls if call[0] in ("run", "asked")]


def test_trackio_gets_records_under_one_name(folder, calls):
    used(TrackioSink(folder))
    (_, options), first, _, end = calls
    assert options["project"] == "mine"
    assert options["name"].startswith("CartPole-v1_1-")
    assert not options["embed"]
    assert (first[1], first[2]["loss/total"]) == (100, 0.5)
    assert end == ("finish",)
    name = options["name"]
    assert json.loads((folder / "trackers.json").read_text())["trackio"] == name
    calls.clear()
    used(TrackioSink(folder))
    assert calls[0][1]["name"] == name


def test_a_package_that_is_not_there_is_told_with_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(ConfigError, match="pip install"):
        WandbSink.check_installed()
