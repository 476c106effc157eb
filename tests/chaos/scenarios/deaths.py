"""Processes that are killed, crash or are stopped: workers, the inference server, the learner."""

from __future__ import annotations

import random
import signal
from typing import Any

import psutil

from tests.chaos.bad_environments import marked_processes
from tests.chaos.catalogue import Plan, fault
from tests.chaos.configurations import draw_configuration
from tests.chaos.history import Expected
from tests.chaos.moments import draw_moment, reach, request_for
from tests.chaos.stage import SLOW_POLL_S, Begun, Stage

# SIGKILL is also what the system sends when memory is short.
DEADLY = ("SIGKILL", "SIGKILL", "SIGSEGV", "SIGABRT", "SIGBUS")
CRASHES = ("SIGSEGV", "SIGABRT", "SIGBUS")  # the process leaves word of where it was: it is shown
TIMEOUT_S = 15  # --worker_timeout of these runs
NOTICE_LIMIT_S = 60.0  # until a message about a process that stands still
ENDINGS = ("SIGINT", "SIGTERM")


def _draw(*kinds: str, **choices: Any) -> Any:
    def draw(rng: random.Random) -> Plan:
        plan = {
            "configuration": draw_configuration(rng, *kinds, ours=True),
            "moment": draw_moment(rng, rng.choice(("start", "training", "training", "saving"))),
            "resumed": rng.random() < 0.5,
            "ending": rng.choice(ENDINGS),
        }
        return plan | {name: rng.choice(values) for name, values in choices.items()}

    return draw


def begin(stage: Stage, plan: Plan) -> Begun:
    """Start or resume a run whose environments leave a mark in each process."""
    marks = stage.folder / "marks"
    marks.mkdir()
    if plan["resumed"]:
        stage.copy_template()
    start = stage.resume if plan["resumed"] else stage.train
    return start(
        *stage.machine.flag("worker_timeout", TIMEOUT_S),
        environment={"CHAOS_FOLDER": str(marks)},
        **request_for(plan["moment"]),
    )


def roles(stage: Stage, begun: Begun) -> tuple[list[psutil.Process], list[psutil.Process]]:
    """Return (workers, servers): both are children of Python's spawn, only workers play."""
    players = marked_processes(stage.folder / "marks")
    children = begun.running.children()
    workers = [child for child in children if child.pid in players]
    return workers, [child for child in children if child.pid not in players]


def wait_workers(stage: Stage, begun: Begun, count: int = 1) -> bool:
    """Wait until so many workers have made their environments."""
    return stage.wait(
        "workers",
        lambda: len(roles(stage, begun)[0]) >= count,
        running=begun.running,
        poll_s=SLOW_POLL_S,
    )


def goes_on_and_ends(stage: Stage, begun: Begun, ending: str, says: str = "") -> None:
    """Expect a message, if a fault was injected; then progress and a clean end.

    Unrolls that were under way when a process died are progress too, so the message is awaited
    first: who stops the run before anybody looked for the process is told nothing about it.
    """
    crashed = any(text.startswith(CRASHES) for text in stage.injected)
    says = says if stage.injected else ""
    if says:
        expect_message(stage, begun, says)
    stage.wait_progress(begun)
    expected = Expected(statuses=(130,), says=says, traceback=crashed)
    stage.stop(begun, getattr(signal, ending), expected)
    stage.finale()


@fault("kill-worker", _draw("workers", "replay", deadly=DEADLY, count=(1, 1, 2)))
def kill_worker(stage: Stage, plan: Plan) -> None:
    """Kill one worker or all: each is replaced, its cause is named, training goes on."""
    begun = begin(stage, plan)
    if reach(stage, begun, plan["moment"]) and wait_workers(stage, begun, plan["count"]):
        for worker in roles(stage, begun)[0][: plan["count"]]:
            begun.running.send(getattr(signal, plan["deadly"]), to=worker.pid)
            stage.inject(f"{plan['deadly']} to a worker in {plan['moment']['phase']}")
    goes_on_and_ends(stage, begun, plan["ending"], rf"worker \d.*{_cause(plan['deadly'])}")


@fault("stop-worker", _draw("workers", deadly=("SIGSTOP",), count=(1, 2), seconds=(0.5, 2.0, 4.0)))
def stop_worker(stage: Stage, plan: Plan) -> None:
    """Stop workers for some seconds, shorter than anybody would call hanging; training goes on."""
    begun = begin(stage, plan)
    if reach(stage, begun, plan["moment"]) and wait_workers(stage, begun, plan["count"]):
        _stop_and_continue(stage, begun, roles(stage, begun)[0][: plan["count"]], plan["seconds"])
    goes_on_and_ends(stage, begun, plan["ending"])


@fault("hang-worker", _draw("workers", count=(1, 1, 2)))
def hang_worker(stage: Stage, plan: Plan) -> None:
    """Stop workers for good: they are noticed, named and replaced."""
    begun = begin(stage, plan)
    if reach(stage, begun, plan["moment"]) and wait_workers(stage, begun, plan["count"]):
        for worker in roles(stage, begun)[0][: plan["count"]]:
            begun.running.send(signal.SIGSTOP, to=worker.pid)
            stage.inject(f"SIGSTOP for good to a worker in {plan['moment']['phase']}")
    goes_on_and_ends(stage, begun, plan["ending"], r"worker \d")


@fault("kill-server", _draw("server", deadly=DEADLY))
def kill_server(stage: Stage, plan: Plan) -> None:
    """Kill the inference server: it is replaced, its cause is named, training goes on."""
    begun = begin(stage, plan)
    if reach(stage, begun, plan["moment"]) and wait_workers(stage, begun, 2):
        for server in roles(stage, begun)[1][:1]:
            begun.running.send(getattr(signal, plan["deadly"]), to=server.pid)
            stage.inject(f"{plan['deadly']} to the server in {plan['moment']['phase']}")
    goes_on_and_ends(stage, begun, plan["ending"], rf"server.*{_cause(plan['deadly'])}")


@fault("stop-server", _draw("server", seconds=(0.5, 2.0, 4.0)))
def stop_server(stage: Stage, plan: Plan) -> None:
    """Stop the inference server for some seconds; training goes on."""
    begun = begin(stage, plan)
    if reach(stage, begun, plan["moment"]) and wait_workers(stage, begun, 2):
        _stop_and_continue(stage, begun, roles(stage, begun)[1][:1], plan["seconds"])
    goes_on_and_ends(stage, begun, plan["ending"])


@fault("hang-server", _draw("server"))
def hang_server(stage: Stage, plan: Plan) -> None:
    """Stop the inference server for good: it is noticed, named and replaced."""
    begun = begin(stage, plan)
    if reach(stage, begun, plan["moment"]) and wait_workers(stage, begun, 2):
        for server in roles(stage, begun)[1][:1]:
            begun.running.send(signal.SIGSTOP, to=server.pid)
            stage.inject("SIGSTOP for good to the server")
    goes_on_and_ends(stage, begun, plan["ending"], "server")


@fault("kill-learner", _draw(deadly=(*DEADLY, "SIGQUIT"), times=(1, 1, 2, 3), group=(False, True)))
def kill_learner(stage: Stage, plan: Plan) -> None:
    """Kill the learner, or everything at once as a power cut does, one to three times in a row."""
    begun = begin(stage, plan)
    for time in range(plan["times"]):
        if not reach(stage, begun, plan["moment"]):
            break
        number = getattr(signal, plan["deadly"])
        begun.running.send(number, group=plan["group"])
        whom = "everything" if plan["group"] else "the learner"
        stage.inject(f"{plan['deadly']} to {whom} in {plan['moment']['phase']}")
        stage.end(
            begun,
            Expected(statuses=(-int(number),), saved=False, leaves_temporaries=True, quiet=True,
                     traceback=plan["deadly"] != "SIGKILL"),
        )  # fmt: skip
        path = stage.find_run()
        if path is None or not stage.has_checkpoint():
            break  # nothing can be expected before the first save
        if time + 1 < plan["times"]:
            begun = stage.resume(environment={"CHAOS_FOLDER": str(stage.folder / "marks")})
    stage.finale()


@fault(
    "stop-learner", _draw("workers", "server", seconds=(0.5, 3.0), then=("CONT", "KILL", "TERM"))
)
def stop_learner(stage: Stage, plan: Plan) -> None:
    """Stop the learner; then let it go on, or kill it, or ask it to end."""
    begun = begin(stage, plan)
    if not reach(stage, begun, plan["moment"]):
        return
    begun.running.send(signal.SIGSTOP)
    stage.inject(f"SIGSTOP to the learner, then {plan['then']}")
    stage.pause(plan["seconds"])
    if plan["then"] == "KILL":
        begun.running.send(signal.SIGKILL)
        expected = Expected(statuses=(-9,), saved=False, leaves_temporaries=True, quiet=True)
        stage.end(begun, expected)
        stage.finale()
        return
    if plan["then"] == "TERM":
        begun.running.send(signal.SIGTERM)
    begun.running.send(signal.SIGCONT)
    if plan["then"] == "TERM":
        stage.end(begun, Expected(statuses=(130,)))
        stage.finale()
    else:
        goes_on_and_ends(stage, begun, plan["ending"])


def expect_message(stage: Stage, begun: Begun, pattern: str) -> None:
    """Wait for a line in the log that names a process which stands still."""
    if not stage.wait_logged(begun, pattern, NOTICE_LIMIT_S):
        text = f"no message about {pattern!r} within {NOTICE_LIMIT_S:.0f} s"
        stage.break_promise("alive", text)


def _cause(name: str) -> str:
    """Return a pattern for the cause of a death: the signal's number or its name."""
    return rf"(\b{int(getattr(signal, name))}\b|{name})"


def _stop_and_continue(
    stage: Stage, begun: Begun, processes: list[psutil.Process], seconds: float
) -> None:
    for process in processes:
        begun.running.send(signal.SIGSTOP, to=process.pid)
        stage.inject(f"SIGSTOP to pid {process.pid} for {seconds} s")
    try:
        stage.pause(seconds)
    finally:
        for process in processes:
            begun.running.send(signal.SIGCONT, to=process.pid)
