"""Faults at points that the program itself names: exact moments, which no look from outside hits.

A plan of faults is given to the run by --debug_faults (core/faults.py says what it may hold); it
needs --debug as well. In these runs the program hurts itself, at the n-th passage of a point.
"""

from __future__ import annotations

import json
import random
import signal
from typing import Any

from tests.chaos.catalogue import Plan, fault
from tests.chaos.configurations import draw_configuration
from tests.chaos.history import Expected
from tests.chaos.stage import START_LIMIT_S, Begun, Stage

FILES = ("file.open", "file.write", "file.sync", "file.replace", "file.sync_folder", "file.unlink")
SAVES = ("save.after_pt", "save.after_latest")
LEARNING = ("replay.insert", "replay.sample", "learner.step", "board.flip")
WORKER = ("channel.send", "channel.receive", "ring.commit")
DEADLY = {"kill": signal.SIGKILL, "segfault": signal.SIGSEGV}
ASKING = ("sigint", "sigterm", "sighup")
FIRED = r"fault at {point}"
NOT_HURT = ("--debug_faults=", "--debug=False")


def _draw(points: tuple[str, ...], actions: tuple[str, ...], most: int, *kinds: str) -> Any:
    def draw(rng: random.Random) -> Plan:
        return {
            "configuration": draw_configuration(rng, *kinds),
            "at": rng.choice(points),
            "do": rng.choice(actions),
            "nth": rng.randint(1, most),
            "resumed": rng.random() < 0.5,
        }

    return draw


def _begin(stage: Stage, plan: Plan, *more: dict[str, Any], **extra: Any) -> Begun:
    if plan["resumed"]:
        stage.copy_template()
    start = stage.resume if plan["resumed"] else stage.train
    faults = [{key: plan[key] for key in ("at", "do", "nth")} | extra, *more]
    begun = start("--debug=True", f"--debug_faults={json.dumps(faults)}")
    stage.finale_flags = NOT_HURT
    stage.inject(" and ".join(f"{each['do']} at {each['at']}" for each in faults))
    return begun


def _expected_of(plan: Plan) -> Expected:
    """Return how a run ends that was killed, or asked to end, at a point."""
    if plan["do"] in DEADLY:
        status = -int(DEADLY[plan["do"]])
        return Expected(statuses=(status,), saved=False, leaves_temporaries=True, quiet=True)
    return Expected(statuses=(130,))


@fault(
    "point-in-file",
    _draw(FILES, (*DEADLY, *ASKING), 60, "serial", "workers", "replay"),
    needs=("fault points",),
)
def in_file(stage: Stage, plan: Plan) -> None:
    """Kill the learner, or ask it to end, in the middle of an operation on a file."""
    stage.end(_begin(stage, plan), _expected_of(plan), START_LIMIT_S)
    stage.finale()


@fault(
    "point-in-save",
    _draw(SAVES, (*DEADLY, *ASKING), 5, "serial", "workers", "replay"),
    needs=("fault points",),
)
def in_save(stage: Stage, plan: Plan) -> None:
    """Kill the learner, or ask it to end, between two steps of a save."""
    stage.end(_begin(stage, plan), _expected_of(plan), START_LIMIT_S)
    stage.finale()


@fault(
    "point-in-learning",
    _draw(LEARNING, (*DEADLY, *ASKING, "raise"), 150, "serial", "workers"),
    needs=("fault points",),
)
def in_learning(stage: Stage, plan: Plan) -> None:
    """Kill, ask or break the learner in the middle of an update, or of what feeds it."""
    expected = _expected_of(plan)
    if plan["do"] == "raise":
        expected = Expected(statuses=(1,), saved=False, traceback=True)
    stage.end(_begin(stage, plan), expected, START_LIMIT_S)
    stage.finale()


@fault(
    "point-disk-error",
    _draw(FILES, ("enospc", "eio"), 60, "workers", "replay"),
    needs=("fault points",),
)
def disk_error(stage: Stage, plan: Plan) -> None:
    """Let one operation on a checkpoint's file fail: one line says so, the next save succeeds."""
    begun = _begin(stage, plan, file="*update_*")
    if stage.wait_logged(begun, FIRED.format(point=plan["at"]), START_LIMIT_S):
        stage.wait_progress(begun, 2 * stage.configuration.save_period)
    stage.stop(begun, signal.SIGINT)
    stage.finale()


@fault(
    "point-in-worker",
    _draw(WORKER, (*DEADLY, "raise"), 60, "workers"),
    needs=("fault points",),
)
def in_worker(stage: Stage, plan: Plan) -> None:
    """Kill or break a worker between two steps of its talk with the learner: it is replaced."""
    begun = _begin(stage, plan, who="worker 0")
    stage.wait_logged(begun, r"worker 0.*(killed|exit code|failed|restart)", START_LIMIT_S)
    stage.wait_progress(begun)
    stage.stop(begun, signal.SIGINT, Expected(statuses=(130,), traceback=True))
    stage.finale()


@fault(
    "point-in-server",
    _draw(("mailbox.answer",), (*DEADLY, "raise"), 200, "server"),
    needs=("fault points",),
)
def in_server(stage: Stage, plan: Plan) -> None:
    """Kill or break the inference server between a question and its answer: it is replaced."""
    begun = _begin(stage, plan, who="server")
    stage.wait_logged(begun, r"server.*(killed|exit code|failed|restart)", START_LIMIT_S)
    stage.wait_progress(begun)
    stage.stop(begun, signal.SIGINT, Expected(statuses=(130,), traceback=True))
    stage.finale()


@fault(
    "point-second-fault",
    _draw((*LEARNING, *SAVES), ASKING, 40, "serial", "workers", "replay"),
    needs=("fault points",),
)
def second_fault(stage: Stage, plan: Plan) -> None:
    """Ask the run to end at a point, and kill it at one of the next operations on a file."""
    killer = {"at": "file.*", "do": "kill", "chance": 0.03, "seed": plan["nth"]}
    begun = _begin(stage, plan, killer)
    expected = Expected(statuses=(130, -9), saved=False, leaves_temporaries=True, quiet=True)
    stage.end(begun, expected, START_LIMIT_S)
    stage.finale()
