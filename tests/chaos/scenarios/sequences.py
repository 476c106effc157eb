"""multi_train.py, killed, stopped and told to stop; then it is resumed and every run is done."""

from __future__ import annotations

import json
import random
import signal
import time
from pathlib import Path
from typing import Any

from tests.chaos.catalogue import Plan, fault
from tests.chaos.configurations import SMALL, draw_configuration
from tests.chaos.folder import last_record, run_folders
from tests.chaos.history import Expected
from tests.chaos.stage import Stage

SEQUENCE_LIMIT_S = 240.0  # two runs, each in a new interpreter
PLAN = """
name: chaos
seeds: [1]
base: {{env: CartPole-v1, environment_max_steps: 3000, save_model_period: {period}}}
runs:
  - {{name: a, flags: {{lr: 0.001}}}}
  - {{name: b, flags: {{lr: 0.0007}}}}
"""
HOW = (
    ("SIGKILL",), ("SIGSEGV",), ("SIGINT",), ("SIGINT", "SIGINT"), ("SIGTERM",), ("SIGHUP",),
    ("SIGSTOP", "SIGCONT"), ("SIGTERM", "SIGKILL"),
)  # fmt: skip


def _draw(rng: random.Random) -> Plan:
    return {
        "configuration": draw_configuration(rng, "serial"),
        "signals": list(rng.choice(HOW)),
        "updates": rng.randint(0, 60),
        "gap_s": round(rng.uniform(0.05, 1.5), 2),
        "wait_s": rng.choice((0.0, 0.0, 0.5, 3.0)),  # before it is resumed
    }


@fault("stop-sequence", _draw)
def stop_sequence(stage: Stage, plan: Plan) -> None:
    """Send signals to multi_train.py in its first run; a resume finishes both runs, once each."""
    sequence = stage.folder / "chaos.yaml"
    sequence.write_text(PLAN.format(period=stage.configuration.save_period))
    stage.watch_writers()
    flags = [f for f in SMALL if "seed" not in f] + ["--reproducible=True"]
    begun = stage.begin(
        "multi_train.py",
        (f"--sequence={sequence}", f"--results_dir={stage.results}", "--", *flags),
        None,
        anew=True,
        shares_folder=True,
    )

    def is_training() -> bool:
        made = run_folders(stage.results)
        record = last_record(made[-1] / "metrics.jsonl") if made else None
        return record is not None and record["updates"] >= plan["updates"]

    if stage.wait("the first run", is_training, running=begun.running):
        for number, name in enumerate(plan["signals"]):
            if number:
                stage.pause(plan["gap_s"])
            if begun.running.send(getattr(signal, name)):
                stage.inject(f"{name} to multi_train.py")
    names = plan["signals"]
    killed = next((n for n in names if n in ("SIGKILL", "SIGSEGV")), None)
    if killed is not None:
        # Its child may go on to its end: a resume has to wait for that, or the child is refused.
        statuses = (-int(getattr(signal, killed)), 1, 130)
        expected = Expected(statuses, saved=False, quiet=True, leaves_temporaries=True)
        stage.end(begun, expected, gone_limit_s=None)
    else:
        statuses = (0, 1) if "SIGSTOP" in names else (1,)
        expected = Expected(statuses, saved=False, quiet=True)
        stage.end(begun, expected, SEQUENCE_LIMIT_S)
    stage.pause(plan["wait_s"])
    _resume_until_done(stage)
    stage.check_nothing_left()
    for path in run_folders(stage.results):
        stage.judge_folder(path)


def _resume_until_done(stage: Stage) -> None:
    (folder,) = [path for path in stage.results.iterdir() if path.is_dir()]
    deadline = time.monotonic() + SEQUENCE_LIMIT_S
    status: int | None = 1
    while status != 0 and time.monotonic() < deadline:
        begun = stage.begin(
            "multi_train.py", (f"--resume={folder}",), None, anew=True, shares_folder=True
        )
        expected = Expected(statuses=(0, 1), saved=False, quiet=True)
        status = stage.end(begun, expected, SEQUENCE_LIMIT_S).status
        if status not in (0, 1):
            break
        if status == 1:
            stage.pause(1.0)  # an orphan of the first may still hold the run
    states = [run["status"] for run in _state(folder)["runs"]]
    if status != 0 or states != ["done", "done"]:
        stage.break_promise("resumes", f"the resumed sequence ended with {status}: {states}")


def _state(folder: Path) -> dict[str, Any]:
    data: dict[str, Any] = json.loads((folder / "sequence.json").read_text())
    return data
