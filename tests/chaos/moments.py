"""The moments of a session at which a fault is injected, recognised from outside.

A moment is plain data in a plan: a phase, what to wait for in it, and a delay after that. Where the
program itself can say where it is (named fault points), `point` is the exact kind of moment.
"""

from __future__ import annotations

import contextlib
import random
import time
from typing import Any

from tests.chaos.kernel import FolderWatch
from tests.chaos.sessions import POLL_S, START_LIMIT_S, Begun, Stuck
from tests.chaos.stage import SLOW_POLL_S, Stage

PHASES = ("import", "start", "training", "saving", "finishing", "charts")
# Libraries that the program loads one after the other before it does anything.
LIBRARIES = ("_pydantic_core", "_multiarray_umath", "libtorch_cpu", "libtorch_python")


def draw_moment(rng: random.Random, phase: str) -> dict[str, Any]:
    """Draw a moment in a phase."""
    moment: dict[str, Any] = {"phase": phase, "delay_s": 0.0}
    if phase == "import":
        moment.update(library=rng.choice(LIBRARIES), delay_s=_delay(rng, 0.3))
    elif phase == "start":
        moment.update(sign=rng.choice(("folder", "log", "children")), delay_s=_delay(rng, 1.0))
    elif phase == "training":
        moment.update(updates=rng.randint(1, 120), delay_s=_delay(rng, 0.2))
    elif phase == "saving":
        moment.update(nth=rng.randint(1, 6), delay_s=rng.choice((0.0, 0.0, 0.002, 0.01)))
    elif phase == "finishing":
        moment.update(sign=rng.choice(("temporary", "temporary", "checkpoint")))
    elif phase == "charts":
        moment.update(delay_s=_delay(rng, 1.0))
    return moment


def _delay(rng: random.Random, longest_s: float) -> float:
    return round(rng.uniform(0.0, longest_s), 3)


def request_for(moment: dict[str, Any]) -> dict[str, Any]:
    """Return how the program must be started so that the moment can come (see `Request`)."""
    return {"anew": True} if moment["phase"] == "import" else {}


def flags_for(moment: dict[str, Any], done_steps: int = 0) -> tuple[str, ...]:
    """Return the flags with which the moment comes soon.

    Args:
      moment: to be reached.
      done_steps: agent steps of the checkpoint that the session begins with.
    """
    phase = moment["phase"]
    if phase in ("finishing", "charts"):
        # One save only, the last: the temporary file that appears is that of the end.
        end = (f"--environment_max_steps={done_steps + 1500}", "--save_model_period=1000000")
        return (*end, "--charts=True") if phase == "charts" else end
    return ()


def reach(stage: Stage, begun: Begun, moment: dict[str, Any]) -> bool:
    """Wait for a moment; return False if the program ended before it.

    Raises:
      Stuck: it does not come.
    """
    phase, running = moment["phase"], begun.running
    if phase == "import":
        library = moment["library"]
        come = stage.wait(library, lambda: running.maps(library), running=running)
    elif phase == "start":
        sign = moment["sign"]
        poll_s = SLOW_POLL_S if sign == "children" else POLL_S
        come = stage.wait(
            f"start: {sign}", lambda: _started(stage, begun, sign), running=running, poll_s=poll_s
        )
    elif phase == "training":
        come = stage.wait_updates(begun, moment["updates"])
    elif phase == "saving":
        come = _file_appears(stage, begun, moment["nth"], temporary=True)
    elif phase == "finishing":
        come = _file_appears(stage, begun, 1, temporary=moment["sign"] == "temporary")
    elif phase == "charts":
        come = stage.wait("summary.json", lambda: _has_new_summary(stage, begun), running=running)
    else:
        raise ValueError(f"unknown phase {phase!r}")
    if come and moment["delay_s"]:
        stage.pause(moment["delay_s"])
    return come and not running.is_over


def _started(stage: Stage, begun: Begun, sign: str) -> bool:
    path = stage.find_run()
    if path is None:
        return False
    if sign == "children" and not stage.configuration.reproducible:
        return len(begun.running.children()) > 0
    if sign == "folder" and begun.before is None:
        return True
    with contextlib.suppress(OSError):
        log_bytes = (path / "train.log").stat().st_size
        return log_bytes > (begun.before.log_bytes if begun.before else 0)
    return False


def _has_new_summary(stage: Stage, begun: Begun) -> bool:
    """Whether summary.json is of this session; that of an earlier one may still be there."""
    path = stage.find_run()
    if path is None:
        return False
    with contextlib.suppress(OSError):
        return (path / "summary.json").stat().st_mtime >= begun.running.began_at
    return False


def _file_appears(stage: Stage, begun: Begun, nth: int, *, temporary: bool) -> bool:
    """Wait for the n-th checkpoint that is being written, or is there."""
    if not stage.wait(
        "the run folder", lambda: stage.find_run() is not None, running=begun.running
    ):
        return False
    assert stage.run is not None
    folder = stage.run / "checkpoints"
    stage.wait("the checkpoints folder", folder.is_dir, running=begun.running)
    watch, seen = FolderWatch(folder), 0
    deadline = time.monotonic() + START_LIMIT_S
    try:
        while time.monotonic() < deadline:
            for name in watch.names(0.05):
                is_temporary = not name.endswith(".pt")
                seen += "update_" in name and ".replay" not in name and is_temporary == temporary
                if seen >= nth:
                    return True
            if begun.running.is_over:
                return False
            stage.pause(0.0)
    finally:
        watch.close()
    raise Stuck(f"save {nth} did not come")
