"""Two things at once: two runs of one folder, and a second fault while the first is handled."""

from __future__ import annotations

import random
import signal
from typing import Any

from tests.chaos.catalogue import Plan, fault
from tests.chaos.configurations import draw_configuration
from tests.chaos.history import Expected
from tests.chaos.moments import draw_moment, reach
from tests.chaos.scenarios.deaths import begin, roles, wait_workers
from tests.chaos.stage import Stage

KILLED = Expected(statuses=(-9,), saved=False, leaves_temporaries=True, quiet=True)
REFUSED = Expected(statuses=(2,), saved=False, says=r"\b{pid}\b")


def _draw(*kinds: str, phase: str = "training", ours: bool = False, **choices: Any) -> Any:
    def draw(rng: random.Random) -> Plan:
        plan = {
            "configuration": draw_configuration(rng, *kinds, ours=ours),
            "moment": draw_moment(rng, phase),
            "resumed": True,
            "gap_s": round(rng.uniform(0.0, 0.6), 3),
        }
        return plan | {name: rng.choice(values) for name, values in choices.items()}

    return draw


def _refused(pid: int) -> Expected:
    return Expected(statuses=(2,), saved=False, says=rf"\b{pid}\b")


@fault("two-runs", _draw("workers", "serial", "replay", then=("end", "kill", "stop-and-kill")))
def two_runs(stage: Stage, plan: Plan) -> None:
    """Resume a run that is being trained: refused, with the other's pid; free after its end."""
    stage.copy_template()
    stage.watch_writers()
    first = stage.resume()
    if not reach(stage, first, plan["moment"]):
        return
    second = stage.resume(shares_folder=True)
    stage.inject("a second resume of the same folder")
    refused = _refused(first.running.pid)
    if not stage.wait_over(second, 60.0):
        stage.break_promise("single", "two sessions train in one folder")
        second.running.send(signal.SIGKILL)
        refused = KILLED
    stage.end(second, refused)
    if plan["then"] == "end":
        stage.stop(first, signal.SIGINT)
    else:
        if plan["then"] == "stop-and-kill":
            first.running.send(signal.SIGSTOP)
            stage.pause(0.5)
        first.running.send(signal.SIGKILL)
        stage.end(first, KILLED)
    stage.finale()


@fault("two-starts", _draw("workers", "serial"))
def two_starts(stage: Stage, plan: Plan) -> None:
    """Resume a run twice in the same moment: one trains, the other is refused."""
    stage.copy_template()
    stage.watch_writers()
    both = [stage.resume(shares_folder=True)]
    stage.pause(plan["gap_s"])
    both.append(stage.resume(shares_folder=True))
    stage.inject(f"two resumes, {plan['gap_s']} s apart")
    stage.wait("the end of one", lambda: any(each.running.is_over for each in both), 60.0)
    over = [each for each in both if each.running.is_over]
    for each in over:
        other = next(one for one in both if one is not each)
        stage.end(each, _refused(other.running.pid))
    for each in both:
        if each not in over:
            stage.wait_progress(each)
            stage.stop(each, signal.SIGINT)
    stage.finale()


@fault(
    "kill-while-saving-at-end", _draw(phase="training", second=("SIGKILL", "SIGTERM", "SIGSTOP"))
)
def kill_while_stopping(stage: Stage, plan: Plan) -> None:
    """Ask a run to stop, and kill, hurry or stop it while it saves and takes leave."""
    stage.copy_template()
    begun = stage.resume()
    if not reach(stage, begun, plan["moment"]):
        return
    begun.running.send(signal.SIGINT)
    stage.pause(plan["gap_s"])
    number = getattr(signal, plan["second"])
    if begun.running.send(number):
        stage.inject(f"SIGINT, then {plan['second']} after {plan['gap_s']} s")
    if plan["second"] == "SIGSTOP":
        stage.pause(2.0)
        begun.running.send(signal.SIGCONT)
        stage.end(begun, Expected(statuses=(130,)))
    else:
        statuses = (130, -9) if plan["second"] == "SIGKILL" else (130,)
        expected = Expected(statuses=statuses, saved=False, leaves_temporaries=True, quiet=True)
        stage.end(begun, expected)
    stage.finale()


@fault("kill-while-resuming", _draw(phase="start", times=(2, 3, 4)))
def kill_while_resuming(stage: Stage, plan: Plan) -> None:
    """Kill a resume while it starts, again and again: nothing of the run is lost."""
    stage.copy_template()
    for _ in range(plan["times"]):
        begun = stage.resume()
        if reach(stage, begun, plan["moment"]):
            begun.running.send(signal.SIGKILL)
            stage.inject("SIGKILL to a resume that starts")
        stage.end(begun, KILLED)
    stage.finale()


@fault(
    "kill-worker-again", _draw("workers", phase="training", ours=True, second=("SIGKILL", "SIGINT"))
)
def kill_worker_again(stage: Stage, plan: Plan) -> None:
    """Kill a worker; kill its successor while that starts, or ask the run to stop."""
    begun = begin(stage, plan)
    if reach(stage, begun, plan["moment"]) and wait_workers(stage, begun, 2):
        first = roles(stage, begun)[0][0]
        before = {child.pid for child in begun.running.children()}
        begun.running.send(signal.SIGKILL, to=first.pid)
        stage.inject("SIGKILL to a worker")
        stage.pause(plan["gap_s"])
        if plan["second"] == "SIGKILL":
            new = [child for child in begun.running.children() if child.pid not in before]
            for child in new:
                begun.running.send(signal.SIGKILL, to=child.pid)
                stage.inject("SIGKILL to its successor")
            stage.wait_progress(begun)
    stage.stop(begun, signal.SIGINT)
    stage.finale()


@fault(
    "stop-worker-and-ask",
    _draw("workers", "server", phase="training", ours=True, whom=("worker", "all")),
)
def stop_worker_and_ask(stage: Stage, plan: Plan) -> None:
    """Stop workers for good and ask the run to end at once: it ends within its limits."""
    begun = begin(stage, plan)
    if reach(stage, begun, plan["moment"]) and wait_workers(stage, begun, 2):
        children = roles(stage, begun)[0]
        children = begun.running.children() if plan["whom"] == "all" else children[:1]
        for child in children:
            begun.running.send(signal.SIGSTOP, to=child.pid)
        stage.inject(f"SIGSTOP to {len(children)} processes, then SIGINT")
    stage.stop(begun, signal.SIGINT)
    stage.finale()
