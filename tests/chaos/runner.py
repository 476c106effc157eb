"""Plays scenarios side by side, each lane with a zygote of its own, and says how each went."""

from __future__ import annotations

import contextlib
import json
import shutil
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.chaos.catalogue import Fault, Plan
from tests.chaos.configurations import Configuration, from_plan
from tests.chaos.history import COSTLY, Violation
from tests.chaos.machine import Machine
from tests.chaos.schedule import Scenario
from tests.chaos.spawner import Spawner, ZygoteDied
from tests.chaos.stage import Cancelled, Stage, Stuck
from tests.chaos.templates import Templates

# held: every promise was kept; missed: the moment did not come, nothing was injected;
# error: the harness itself failed.
VERDICTS = ("held", "LOST", "broken", "missed", "skipped", "error")
BAD = ("LOST", "broken", "error")


@dataclass(frozen=True)
class Outcome:
    """How one scenario went."""

    number: int
    fault: str
    plan: Plan
    verdict: str
    injected: tuple[str, ...] = ()
    statuses: tuple[int | None, ...] = ()  # of the sessions, in order
    violations: tuple[Violation, ...] = ()
    seconds: float = 0.0
    note: str = ""
    folder: str = ""  # kept if something was wrong

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        broken = [{"promise": each.promise, "text": each.text} for each in self.violations]
        return {**vars(self), "violations": broken}


@dataclass
class Lane:
    """Plays one scenario after the other. One thread."""

    folder: Path
    machine: Machine
    templates: Templates
    cancelled: threading.Event
    spawner: Spawner | None = None

    def play(self, scenario: Scenario, fault: Fault) -> Outcome:
        """Play a scenario to its end, whatever happens in it.

        Raises:
          Cancelled: the harness has to end.
        """
        reason = self.machine.missing(fault.needs)
        if reason:
            return Outcome(scenario.number, scenario.fault, scenario.plan, "skipped", note=reason)
        began_s = time.monotonic()
        note = ""
        path = self.folder / f"{scenario.number:04}_{scenario.fault}"
        shutil.rmtree(path, ignore_errors=True)
        stage: Stage | None = None
        try:
            stage = self.make_stage(path, from_plan(scenario.plan["configuration"]))
            _play(stage, fault, scenario.plan)
        except Cancelled:
            shutil.rmtree(path, ignore_errors=True)  # half a scenario says nothing
            raise
        except Exception as error:
            note = f"{type(error).__name__}: {error}"
            with contextlib.suppress(OSError):
                (path / "harness_error.txt").write_text(traceback.format_exc())
            if isinstance(error, ZygoteDied):
                self.close()
        finally:
            if stage is not None:
                stage.close()
        return _judge(scenario, stage, time.monotonic() - began_s, note, path)

    def make_stage(self, path: Path, configuration: Configuration) -> Stage:
        """Return an empty stage; starts the zygote if there is none."""
        if self.spawner is None:
            self.spawner = Spawner()
            self.spawner.wait_ready()

        def template(wanted: Configuration) -> Path:
            return self.templates.get(wanted, self.make_stage)

        return Stage(path, self.spawner, self.machine, configuration, template, self.cancelled)

    def close(self) -> None:
        """End the zygote and whatever it has started."""
        spawner, self.spawner = self.spawner, None
        if spawner is not None:
            spawner.close()


def _play(stage: Stage, fault: Fault, plan: Plan) -> None:
    try:
        fault.play(stage, plan)
    except Stuck as stuck:
        stage.break_promise("alive", str(stuck))
        stage.give_up()
        if not stage.had_finale:
            with contextlib.suppress(Stuck):
                stage.finale()


def _judge(
    scenario: Scenario, stage: Stage | None, seconds: float, note: str, path: Path
) -> Outcome:
    violations = tuple(dict.fromkeys(stage.violations)) if stage is not None else ()
    if any(each.promise in COSTLY for each in violations):
        verdict = "LOST"
    elif violations:
        verdict = "broken"
    elif note:
        verdict = "error"
    elif stage is not None and not stage.injected:
        verdict = "missed"
    else:
        verdict = "held"
    outcome = Outcome(
        number=scenario.number,
        fault=scenario.fault,
        plan=scenario.plan,
        verdict=verdict,
        injected=() if stage is None else tuple(stage.injected),
        statuses=() if stage is None else tuple(each.status for each in stage.sessions),
        violations=violations,
        seconds=round(seconds, 1),
        note=note,
        folder=str(path) if verdict in BAD else "",
    )
    if verdict in BAD:
        text = json.dumps(outcome.to_json(), indent=2, default=str)
        with contextlib.suppress(OSError):
            (path / "outcome.json").write_text(text)
    else:
        shutil.rmtree(path, ignore_errors=True)
    return outcome


@dataclass
class Crew:
    """The lanes, and what they share."""

    lanes: list[Lane]
    cancelled: threading.Event
    report: Callable[[Outcome], None]
    _lock: threading.Lock = field(default_factory=threading.Lock)
    failure: BaseException | None = None

    def work(self, scenarios: Iterator[tuple[Scenario, Fault]]) -> None:
        """Play scenarios until there are no more, or the harness is told to end."""
        threads = [
            threading.Thread(target=self._work_in, args=(lane, scenarios)) for lane in self.lanes
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():
                thread.join(0.2)  # in pieces, so that a signal is handled meanwhile
        if self.failure is not None:
            raise self.failure

    def _work_in(self, lane: Lane, scenarios: Iterator[tuple[Scenario, Fault]]) -> None:
        try:
            while not self.cancelled.is_set():
                with self._lock:
                    entry = next(scenarios, None)
                if entry is None:
                    return
                outcome = lane.play(*entry)
                with self._lock:
                    self.report(outcome)
        except Cancelled:
            return
        except BaseException as error:
            self.failure = error
            self.cancelled.set()
        finally:
            lane.close()
