"""Terminals that are closed, full, frozen or gone: they can neither stop nor slow a training."""

from __future__ import annotations

import random
import signal
from typing import Any

from tests.chaos.catalogue import Plan, fault
from tests.chaos.configurations import draw_configuration
from tests.chaos.history import Expected
from tests.chaos.stage import Begun, Stage

CTRL_C, CTRL_S, HANG_UP_S = b"\x03", b"\x13", 3.0
MUCH = 40  # updates more that a training makes while its terminal is of no use


def _draw(**choices: Any) -> Any:
    def draw(rng: random.Random) -> Plan:
        plan = {
            "configuration": draw_configuration(rng, "workers", "workers", "serial"),
            "resumed": rng.random() < 0.5,
            "ending": rng.choice(("SIGINT", "SIGTERM", "steps")),
            "updates": rng.randint(1, 60),
        }
        return plan | {name: rng.choice(values) for name, values in choices.items()}

    return draw


def _begin(stage: Stage, plan: Plan, **how: Any) -> Begun:
    done = 0
    if plan["resumed"]:
        stage.copy_template()
        done = stage.done_steps()
    start = stage.resume if plan["resumed"] else stage.train
    # To its own end: long enough to print for more than the five seconds between two lines.
    flags = (f"--environment_max_steps={done + 16_000}",) if plan["ending"] == "steps" else ()
    return start(*flags, **how)


def _goes_on_and_ends(stage: Stage, plan: Plan, begun: Begun) -> None:
    if plan["ending"] == "steps":
        stage.end(begun, Expected(statuses=(0,), quiet=True), 2 * 60.0)
    else:
        stage.wait_progress(begun, MUCH)
        begun.running.send(getattr(signal, plan["ending"]))
        stage.end(begun, Expected(statuses=(130,), quiet=True))
    stage.finale()


@fault("closed-pipe", _draw(lines=(0, 1, 1, 5, 9)))
def closed_pipe(stage: Stage, plan: Plan) -> None:
    """Print into a pipe whose reader leaves after some lines, as `| head -1` does."""
    begun = _begin(stage, plan, terminal="pipe", lines=plan["lines"])
    stage.inject(f"output closed after {plan['lines']} lines")
    _goes_on_and_ends(stage, plan, begun)


@fault("full-terminal", _draw())
def full_terminal(stage: Stage, plan: Plan) -> None:
    """Print to a device that is always full."""
    begun = _begin(stage, plan, terminal="full")
    stage.inject("output to /dev/full")
    _goes_on_and_ends(stage, plan, begun)


@fault("no-output", _draw())
def no_output(stage: Stage, plan: Plan) -> None:
    """Start with standard output closed, as `>&-` in a shell."""
    begun = _begin(stage, plan, terminal="closed", anew=True)
    stage.inject("standard output closed at the start")
    _goes_on_and_ends(stage, plan, begun)


@fault("frozen-terminal", _draw(how=("unread", "ctrl-s"), then=("signal", "ctrl-c", "ctrl-c")))
def frozen_terminal(stage: Stage, plan: Plan) -> None:
    """Freeze the terminal (nobody reads it, or Ctrl-S); training goes on, and Ctrl-C ends it."""
    begun = _begin(stage, plan, terminal="pty")
    if stage.wait_updates(begun, plan["updates"]):
        if plan["how"] == "ctrl-s":
            begun.running.terminal.type(CTRL_S)
        else:
            begun.running.terminal.freeze()
        stage.inject(f"terminal frozen ({plan['how']})")
    if plan["then"] == "ctrl-c" and plan["ending"] != "steps":
        # Long enough for what is printed to fill the terminal's buffer.
        stage.wait_progress(begun, 10 * MUCH)
        begun.running.terminal.type(CTRL_C)
        stage.end(begun, Expected(statuses=(130,), quiet=True))
        stage.finale()
    else:
        _goes_on_and_ends(stage, plan, begun)


@fault("terminal-gone", _draw(ignored=(False, False, True)))
def terminal_gone(stage: Stage, plan: Plan) -> None:
    """Close the terminal: SIGHUP ends the run well, and where it is ignored the run goes on."""
    ignored = ("SIGHUP",) if plan["ignored"] else ()
    begun = _begin(stage, plan, terminal="pty", ignored_signals=ignored)
    if stage.wait_updates(begun, plan["updates"]):
        begun.running.terminal.leave()
        stage.inject(f"terminal closed, SIGHUP {'ignored' if ignored else 'not ignored'}")
    if ignored:
        _goes_on_and_ends(stage, plan, begun)
    else:
        statuses = (0, 130) if plan["ending"] == "steps" else (130,)
        stage.end(begun, Expected(statuses=statuses, quiet=True))
        stage.finale()
