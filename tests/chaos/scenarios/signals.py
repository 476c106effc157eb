"""Signals that ask a training to stop: once and twice, in every phase of its life."""

from __future__ import annotations

import random
import signal
from typing import Any

from tests.chaos.catalogue import Plan, fault
from tests.chaos.configurations import draw_configuration
from tests.chaos.history import Expected
from tests.chaos.moments import PHASES, draw_moment, flags_for, reach, request_for
from tests.chaos.stage import Stage

ASKING = ("SIGINT", "SIGTERM", "SIGHUP")


def _draw(phase: str, times: int) -> Any:
    def draw(rng: random.Random) -> Plan:
        return {
            "configuration": draw_configuration(rng, "workers", "workers", "server", "serial"),
            "moment": draw_moment(rng, phase),
            "signals": [rng.choice(ASKING) for _ in range(times)],
            "gap_s": round(rng.uniform(0.005, 0.8), 3),
            "group": rng.random() < 0.3,  # as a terminal does: workers get it too
            "resumed": rng.random() < 0.5,
        }

    return draw


def play(stage: Stage, plan: Plan) -> None:
    """Send the signals at the moment; the run is saved unless there were two."""
    moment = plan["moment"]
    done = 0
    if plan["resumed"]:
        stage.copy_template()
        done = stage.done_steps()
    start = stage.resume if plan["resumed"] else stage.train
    begun = start(*flags_for(moment, done), **request_for(moment))
    if reach(stage, begun, moment):
        for number, name in enumerate(plan["signals"]):
            if number:
                stage.pause(plan["gap_s"])
            whom = "its group" if plan["group"] else "it"
            if begun.running.send(getattr(signal, name), group=plan["group"]):
                stage.inject(f"{name} to {whom} in {moment['phase']}")
    is_ending = moment["phase"] in ("finishing", "charts")
    at_once = len(begun.running.signals) > 1
    statuses = (0, 130) if is_ending or not begun.running.signals else (130,)
    expected = Expected(
        statuses=statuses, saved=not at_once, leaves_temporaries=at_once, quiet=at_once
    )
    stage.end(begun, expected)
    stage.finale()


for _phase in PHASES:
    for _times, _word in ((1, "once"), (2, "twice")):
        fault(f"signal-{_word}-in-{_phase}", _draw(_phase, _times))(play)
