"""Run folders of somebody else, made to run code or to reach out of their folder."""

from __future__ import annotations

import json
import os
import pickle
import random
from pathlib import Path
from typing import Any

import torch

from tests.chaos.catalogue import Plan, fault
from tests.chaos.configurations import draw_configuration
from tests.chaos.folder import take_snapshot
from tests.chaos.history import Expected
from tests.chaos.stage import START_LIMIT_S, Stage

REFUSED = Expected(statuses=(2,), saved=False)
# It leaves a file behind if it is imported; what it registers would even work.
EVIL_MODULE = """
import pathlib
import gymnasium
pathlib.Path({trace!r}).write_text("code of a stranger ran")
gymnasium.register("Evil-v0", entry_point="gymnasium.envs.classic_control.cartpole:CartPoleEnv")
"""


class _Payload:
    """Unpickled without care, this writes a file."""

    def __init__(self, trace: Path) -> None:
        self._trace = trace

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.write_text, (self._trace, "code of a stranger ran")


def _draw(**choices: Any) -> Any:
    def draw(rng: random.Random) -> Plan:
        drawn = {name: rng.choice(values) for name, values in choices.items()}
        return {"configuration": draw_configuration(rng, "serial", "workers"), **drawn}

    return draw


def _trace(stage: Stage) -> Path:
    return stage.folder / "trace_of_a_stranger"


def _put_module(stage: Stage) -> str:
    """Put a module where it could be imported; return the environment that it registers."""
    (stage.folder / "evil_stranger.py").write_text(EVIL_MODULE.format(trace=str(_trace(stage))))
    return "evil_stranger:Evil-v0"


def _with_modules(stage: Stage) -> dict[str, Any]:
    """Return how a program is started that can import modules of the scenario's folder."""
    return {"anew": True, "environment": {"PYTHONPATH": str(stage.folder)}}


def _expect_no_trace(stage: Stage) -> None:
    if _trace(stage).exists():
        stage.break_promise("safe", "code out of a file of the run folder was run")


def _resume_or_test(stage: Stage, plan: Plan, expected: Expected) -> None:
    how = _with_modules(stage)
    if plan["mode"] == "resume":
        stage.end(stage.resume(stage.more_steps(), **how), expected, START_LIMIT_S)
        return
    arguments = ("--op_mode=test", f"--load_model_url={stage.run}", "--test_episode_count=2")
    arguments += (f"--results_dir={stage.results}",)
    begun = stage.begin("main.py", arguments, stage.run, **how)
    stage.end(begun, expected, START_LIMIT_S)


@fault("pickled-code", _draw(where=("pt", "pt-zip", "replay", "best"), mode=("resume", "test")))
def pickled_code(stage: Stage, plan: Plan) -> None:
    """Put a pickle that runs code in the place of a checkpoint: it never runs."""
    run = stage.copy_template()
    newest = take_snapshot(run).sound[0].name
    name = {"replay": newest.replace(".pt", ".replay"), "best": "best.pt"}.get(
        plan["where"], newest
    )
    path = run / "checkpoints" / name
    payload = _Payload(_trace(stage))
    if plan["where"] == "pt-zip":
        torch.save({"format_version": 1, "state": payload}, path)
    else:
        path.write_bytes(pickle.dumps({"format_version": 1, "state": payload}))
    stage.inject(f"pickled code as {name}")
    # Passed over or refused, both are right; a hole in the replay contents may end it as well.
    says = name if plan["where"].startswith("pt") else ""
    expected = Expected(statuses=(0, 1, 2), saved=False, says=says, keeps_period=False)
    _resume_or_test(stage, plan, expected)
    _expect_no_trace(stage)


@fault(
    "environment-of-a-stranger", _draw(where=("pt", "flags.json", "both"), mode=("resume", "test"))
)
def environment_of_a_stranger(stage: Stage, plan: Plan) -> None:
    """Name a module as the environment in files of the run: it is not imported."""
    run = stage.copy_template()
    env = _put_module(stage)
    if plan["where"] in ("pt", "both"):
        for path in (run / "checkpoints").glob("*.pt"):
            data = torch.load(path, weights_only=True)
            data["state"]["flags"]["env"] = env
            data["state"]["env_spec"]["env_id"] = env
            torch.save(data, path)
    if plan["where"] in ("flags.json", "both"):
        flags = json.loads((run / "flags.json").read_text())
        (run / "flags.json").write_text(json.dumps({**flags, "env": env}))
    stage.inject(f"a module as environment in {plan['where']}")
    # flags.json alone need not be read at all.
    statuses = (0, 2) if plan["where"] == "flags.json" else (2,)
    _resume_or_test(stage, plan, Expected(statuses=statuses, saved=False))
    _expect_no_trace(stage)


@fault("latest-elsewhere", _draw(how=("absolute", "relative", "link")))
def latest_elsewhere(stage: Stage, plan: Plan) -> None:
    """Let `latest` point into another run: that one is neither read nor written."""
    victim = stage.copy_template()
    stage.run = victim.with_name("attacker")
    os.rename(victim, stage.run)
    other = stage.run.with_name("victim")
    stage.copy_template_to(other)
    before = take_snapshot(other)
    target = sorted((other / "checkpoints").glob("update_*.pt"))[-1]
    path = stage.run / "checkpoints" / "latest"
    if plan["how"] == "absolute":
        path.write_text(f"{target}\n")
    elif plan["how"] == "relative":
        path.write_text(f"../../victim/checkpoints/{target.name}\n")
    else:
        path.unlink()
        path.symlink_to(target)
    stage.inject(f"latest leads elsewhere ({plan['how']})")
    stage.resume_for(Expected(statuses=(0, 2), saved=False))
    after = take_snapshot(other)
    if (before.digests, before.record_lines) != (after.digests, after.record_lines):
        stage.break_promise("safe", "the run that `latest` led to was changed")
    if stage.sessions[-1].status == 0:
        stage.finale()


@fault("sequence-of-a-stranger", _draw(what=("name", "absolute", "arguments", "group", "deep")))
def sequence_of_a_stranger(stage: Stage, plan: Plan) -> None:
    """Resume a sequence whose file leads out of its folder or names code: it is refused."""
    folder = stage.results / "shared"
    folder.mkdir()
    env = _put_module(stage)
    outside = stage.folder / "ESCAPED"
    run: dict[str, Any] = {"name": "001_a_seed1", "group": "a", "seed": 1}
    run["flags"] = {"env": "CartPole-v1", "environment_max_steps": 500}
    arguments: list[str] = ["--worker_count=1", "--envs_per_worker=2", "--charts=False"]
    if plan["what"] == "name":
        run["name"] = "../../ESCAPED"
    elif plan["what"] == "absolute":
        run["name"] = str(outside)
    elif plan["what"] == "arguments":
        arguments.append(f"--env={env}")
    elif plan["what"] == "group":
        run["group"] = "[/]"
        run["name"] = "../../ESCAPED"
    else:
        run["flags"]["env"] = env
    data = {"format_version": 1, "name": "shared", "arguments": arguments, "runs": [run]}
    (folder / "sequence.json").write_text(json.dumps(data))
    stage.inject(f"a sequence of a stranger: {plan['what']}")
    arguments_of_resume = (f"--resume={folder}",)
    begun = stage.begin(
        "multi_train.py", arguments_of_resume, None, shares_folder=True, **_with_modules(stage)
    )
    stage.end(begun, REFUSED, 120.0)
    _expect_no_trace(stage)
    if outside.exists():
        stage.break_promise("safe", "a run was made outside of the sequence's folder")
