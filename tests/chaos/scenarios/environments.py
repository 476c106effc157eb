"""Environments that raise, hang, die, leak processes, lie about shapes, or give no numbers."""

from __future__ import annotations

import random
import signal
from typing import Any

from tests.chaos.bad_environments import IN_RESET
from tests.chaos.catalogue import Plan, fault
from tests.chaos.configurations import draw_configuration
from tests.chaos.history import Expected
from tests.chaos.scenarios.deaths import NOTICE_LIMIT_S, TIMEOUT_S
from tests.chaos.stage import Begun, Stage

RAISING = ("raise_in_step", "raise_in_reset", "raise_in_constructor", "no_memory", "interrupt")
DYING = ("leave", "leave_at_once", "segfault")
HANGING = ("hang_in_step", "hang_in_reset", "hang_in_constructor", "hang_deaf", "spin")
LEAKING = ("leak_process", "leak_session", "ignore_signals", "raise_in_close", "chatter")
SHAPES = (
    "four_values", "short_observation", "scalar_observation", "long_observation",
    "text_observation", "no_observation", "shape_reset", "no_reward", "array_reward",
)  # fmt: skip
NUMBERS = (
    "nan_observation", "inf_observation", "huge_observation", "nan_reset", "nan_reward",
    "inf_reward", "huge_reward",
)  # fmt: skip
ALWAYS = 1_000_000
MAX_RESTARTS = 2


def _draw(behaviours: tuple[str, ...], *times: int, kinds: tuple[str, ...] = ()) -> Any:
    def draw(rng: random.Random) -> Plan:
        return {
            "configuration": draw_configuration(rng, *(kinds or ("workers", "serial")), ours=True),
            "behaviour": rng.choice(behaviours),
            "times": rng.choice(times),
            "after": rng.choice((0, 1, 50, 300)),
            "resumed": rng.random() < 0.5,
            "ending": rng.choice(("SIGINT", "SIGTERM", "SIGKILL")),
        }

    return draw


def _begin(stage: Stage, plan: Plan, *flags: str) -> Begun:
    marks = stage.folder / "marks"
    marks.mkdir()
    if plan["resumed"]:
        stage.copy_template()
    environment = {
        "CHAOS_FOLDER": str(marks),
        "CHAOS_BEHAVIOUR": plan["behaviour"],
        "CHAOS_TIMES": str(plan["times"]),
        "CHAOS_AFTER": str(plan["after"]),
    }
    start = stage.resume if plan["resumed"] else stage.train
    begun = start(*flags, environment=environment)
    stage.inject(f"an environment told to {plan['behaviour']}, {plan['times']} times")
    return begun


def _happens_in_trial(plan: Plan) -> bool:
    """Whether it hits the environment that the program itself makes, resets and steps once."""
    return bool(plan["after"] <= (0 if plan["behaviour"] in IN_RESET else 1))


def _fails_with_its_words(stage: Stage, begun: Begun) -> None:
    """Expect one cause, and the environment's own traceback."""
    interrupts = ".interrupt" in stage.injected[0].replace("told to ", ".")
    statuses = (1, 2, 130) if interrupts else (1, 2)
    expected = Expected(statuses=statuses, saved=False, traceback=True)
    stage.end(begun, expected, 120.0)
    stage.finale()


@fault("environment-raises", _draw(RAISING + DYING, 1, 2, ALWAYS))
def environment_raises(stage: Stage, plan: Plan) -> None:
    """Raise or die in an environment: its worker is replaced; too often, and the run ends."""
    begun = _begin(stage, plan, f"--max_worker_restarts={MAX_RESTARTS}")
    at_start = plan["behaviour"] == "raise_in_constructor"
    in_program = stage.configuration.reproducible or _happens_in_trial(plan)
    if plan["times"] == ALWAYS or in_program or at_start:
        if plan["behaviour"] in ("leave_at_once", "segfault") and in_program:
            statuses = (0,) if plan["behaviour"] == "leave_at_once" else (-11,)
            expected = Expected(statuses=statuses, saved=False, leaves_temporaries=True, quiet=True,
                                traceback=True)  # fmt: skip
            stage.end(begun, expected, 120.0)
            stage.finale()
        else:
            _fails_with_its_words(stage, begun)
        return
    stage.wait_logged(begun, r"worker \d", NOTICE_LIMIT_S)
    stage.wait_progress(begun)
    begun.running.send(signal.SIGINT)
    stage.end(begun, Expected(statuses=(130,), traceback=True, says=r"worker \d"))
    stage.finale()


@fault("environment-hangs", _draw(HANGING, 1, 1, 2, ALWAYS, kinds=("workers",)))
def environment_hangs(stage: Stage, plan: Plan) -> None:
    """Hang in an environment: it is named, its worker replaced; SIGINT ends it in any case."""
    begun = _begin(stage, plan, *stage.machine.flag("worker_timeout", TIMEOUT_S))
    if not stage.wait_logged(begun, r"worker \d|has not come back", NOTICE_LIMIT_S):
        text = f"no message within {NOTICE_LIMIT_S:.0f} s about an environment that hangs"
        stage.break_promise("alive", text)
    is_trial = "run folder" not in begun.running.terminal.text()  # nothing has been begun
    if plan["times"] != ALWAYS and not stage.violations and not is_trial:
        stage.wait_progress(begun)
    is_deaf = plan["behaviour"] == "hang_deaf"  # it ignores SIGTERM, in the program's own process
    with_sigterm = plan["ending"] == "SIGTERM" and not (is_deaf and is_trial)
    begun.running.send(signal.SIGTERM if with_sigterm else signal.SIGINT)
    # If every worker was lost too often, the run may have ended by itself.
    statuses = (1, 130) if plan["times"] == ALWAYS else (130,)
    stage.end(begun, Expected(statuses=statuses, saved=False, traceback=True))
    stage.finale()


@fault("environment-leaks", _draw(LEAKING, ALWAYS))
def environment_leaks(stage: Stage, plan: Plan) -> None:
    """Environments with processes of their own, deaf to signals, loud, or failing when closed."""
    begun = _begin(stage, plan)
    stage.wait_progress(begun)
    number = getattr(signal, plan["ending"])
    begun.running.send(number)
    if number == signal.SIGKILL:
        expected = Expected(statuses=(-9,), saved=False, leaves_temporaries=True, quiet=True)
    else:
        own = plan["behaviour"] == "raise_in_close"
        expected = Expected(statuses=(130,), traceback=own)
    stage.end(begun, expected)
    stage.finale()


@fault("environment-lies", _draw(SHAPES, 1, ALWAYS))
def environment_lies(stage: Stage, plan: Plan) -> None:
    """Return another shape or type than was declared: one message; nothing is learned from it."""
    begun = _begin(stage, plan, f"--max_worker_restarts={MAX_RESTARTS}")
    in_program = stage.configuration.reproducible or _happens_in_trial(plan)
    if plan["times"] == ALWAYS or in_program:
        _fails_with_its_words(stage, begun)
        return
    if not stage.wait_logged(begun, r"(?i)observation|reward|worker \d", NOTICE_LIMIT_S):
        stage.break_promise(
            "said", f"no message about an environment that does {plan['behaviour']}"
        )
    stage.wait_progress(begun)
    begun.running.send(signal.SIGINT)
    stage.end(begun, Expected(statuses=(130,), traceback=True))
    stage.finale()


@fault("environment-no-numbers", _draw(NUMBERS, 1, 3, ALWAYS))
def environment_no_numbers(stage: Stage, plan: Plan) -> None:
    """Return numbers that are not finite, or absurd: nothing that is saved is poisoned by them."""
    begun = _begin(stage, plan, f"--max_worker_restarts={MAX_RESTARTS}")
    noticed = stage.wait_logged(
        begun, r"(?i)finite|nan|observation|reward|worker \d", NOTICE_LIMIT_S
    )
    if not noticed:
        stage.break_promise(
            "said", f"no message about an environment that does {plan['behaviour']}"
        )
    stage.wait_progress(begun, 20, NOTICE_LIMIT_S)
    begun.running.send(signal.SIGINT)
    # To go on without what is not finite is as right as to end with its cause.
    expected = Expected(statuses=(1, 2, 130), saved=False, traceback=True)
    stage.end(begun, expected)
    stage.finale()
