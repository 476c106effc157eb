"""Where one scenario is played: what it can do to a run, and wait for."""

from __future__ import annotations

import contextlib
import re
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.chaos import kernel
from tests.chaos.configurations import Configuration
from tests.chaos.folder import added_log, last_record, run_folders, take_snapshot
from tests.chaos.history import Expected, Session
from tests.chaos.machine import Machine
from tests.chaos.sessions import (
    EXIT_LIMIT_S,
    START_LIMIT_S,
    Begun,
    Cancelled,
    Sessions,
    Stuck,
)
from tests.chaos.spawner import Spawner

__all__ = ["EXIT_LIMIT_S", "START_LIMIT_S", "Begun", "Cancelled", "Stage", "Stuck"]

SLOW_POLL_S = 0.1  # for what takes the processor to look at
MORE_STEPS = 1200  # that a resume has to train at the end: 60 updates


class Stage(Sessions):
    """One scenario's place. Used by one thread."""

    def __init__(
        self,
        folder: Path,
        spawner: Spawner,
        machine: Machine,
        configuration: Configuration,
        template: Callable[[Configuration], Path],
        cancelled: threading.Event,
    ) -> None:
        """Make the folder; start nothing.

        Args:
          folder: of the scenario, does not exist.
          spawner: of the lane.
          machine: what is possible.
          configuration: of the training.
          template: returns a finished run folder of a configuration, to be copied.
          cancelled: set when the harness has to end.
        """
        super().__init__(folder, spawner, configuration, cancelled)
        self.results = folder / "results"
        self.results.mkdir()
        self.machine = machine
        self.injected: list[str] = []  # the faults that were really injected
        self.finale_expected = Expected()
        self.finale_flags: tuple[str, ...] = ()
        self.had_finale = False
        self._template = template
        self._mounted: list[Path] = []

    def inject(self, text: str) -> None:
        """Note that a fault was injected."""
        self.injected.append(text)

    # --- runs --------------------------------------------------------------------------------

    def train(self, *flags: str, **how: Any) -> Begun:
        """Start a new run. `how`: see `begin`."""
        given = (f"--results_dir={self.results}", *self.configuration.flags, *flags)
        return self.begin("main.py", given, None, **how)

    def resume(self, *flags: str, **how: Any) -> Begun:
        """Start a session that resumes the run."""
        assert self.run is not None
        given = (
            "--op_mode=train_w_load", f"--load_model_url={self.run}",
            *self.configuration.resume_flags, *flags,
        )  # fmt: skip
        return self.begin("main.py", given, self.run, **how)

    def resume_for(self, expected: Expected, *flags: str) -> Session:
        """Resume the run for 60 updates more, to the end of the session."""
        return self.end(self.resume(self.more_steps(), *flags), expected, START_LIMIT_S)

    def more_steps(self) -> str:
        """Return the flag that lets a session end by itself after 60 updates."""
        return f"--environment_max_steps={self.done_steps() + MORE_STEPS}"

    def copy_template(self) -> Path:
        """Put a finished run with several checkpoints into the results folder; return it."""
        source = self._template(self.configuration)
        self.run = self.results / source.name
        self.copy_template_to(self.run)
        return self.run

    def copy_template_to(self, path: Path) -> None:
        """Put a copy of the finished run somewhere."""
        shutil.copytree(self._template(self.configuration), path, symlinks=True)

    def find_run(self) -> Path | None:
        """Return the run folder, once the program has made it."""
        if self.run is None:
            made = run_folders(self.results)
            self.run = made[-1] if made else None
        return self.run

    def done_steps(self) -> int:
        """Return the agent steps of the sound checkpoints of the run, 0 without one."""
        assert self.run is not None
        return max((each.agent_steps or 0 for each in take_snapshot(self.run).sound), default=0)

    def has_checkpoint(self) -> bool:
        """Whether the run can be resumed at all."""
        path = self.find_run()
        return path is not None and any((path / "checkpoints").glob("update_*.pt"))

    def updates(self) -> int:
        """Return the updates of the last record of the run, 0 before there is one."""
        path = self.find_run()
        record = None if path is None else last_record(path / "metrics.jsonl")
        return 0 if record is None else int(record["updates"])

    # --- waiting -----------------------------------------------------------------------------

    def wait_updates(self, begun: Begun, more: int, limit_s: float = START_LIMIT_S) -> bool:
        """Wait until this many updates more are on record than at this session's start."""
        start = begun.before.resumes_from if begun.before is not None else 0
        return self.wait_total(begun, start + more, limit_s)

    def wait_progress(self, begun: Begun, more: int = 20, limit_s: float = START_LIMIT_S) -> bool:
        """Wait until this many updates more are on record than now."""
        self.wait("the log", lambda: self._has_begun(begun), limit_s, running=begun.running)
        return self.wait_total(begun, self.updates() + more, limit_s)

    def wait_total(self, begun: Begun, updates: int, limit_s: float = START_LIMIT_S) -> bool:
        """Wait until a record of this session says so many updates, all sessions together."""

        def is_there() -> bool:
            return self._has_begun(begun) and self.updates() >= updates

        return self.wait(f"update {updates}", is_there, limit_s, running=begun.running)

    def wait_over(self, begun: Begun, limit_s: float) -> bool:
        """Wait until a program has ended; return False if it goes on."""
        with contextlib.suppress(Stuck):
            return self.wait("the end", lambda: begun.running.is_over, limit_s)
        return False

    def wait_logged(self, begun: Begun, pattern: str, limit_s: float) -> bool:
        """Wait until a line of this session's log, or of what it printed, matches a pattern."""
        expression = re.compile(pattern)

        def is_there() -> bool:
            path = self.find_run()
            log = "" if path is None else added_log(begun.before, path)
            return expression.search(log + begun.running.terminal.text()) is not None

        with contextlib.suppress(Stuck):
            return self.wait(pattern, is_there, limit_s, running=begun.running, poll_s=SLOW_POLL_S)
        return False

    def _has_begun(self, begun: Begun) -> bool:
        """Whether a session has got to its log: by then, records of a lost time are gone."""
        path = self.find_run()
        if begun.before is None or path is None:
            return path is not None
        return len(added_log(begun.before, path)) > 0

    # --- ending ------------------------------------------------------------------------------

    def stop(self, begun: Begun, number: int, expected: Expected | None = None) -> Session:
        """Send one signal and expect a clean end with a saved checkpoint."""
        begun.running.send(number)
        return self.end(begun, expected or Expected(statuses=(130,)))

    def finale(self) -> None:
        """Resume the run with nothing wrong any more: it must train on and end with 0."""
        self.had_finale = True
        path = self.find_run()
        if path is None:
            return
        before = take_snapshot(path)
        if not before.sound:
            # What is refused leaves everything as it was, left-overs of a kill included.
            refused = Expected(statuses=(2,), saved=False, journals=False, leaves_temporaries=True)
            self.end(self.resume(*self.finale_flags), refused)
            return
        session = self.resume_for(self.finale_expected, *self.finale_flags)
        if session.status != 0:
            last = session.output.strip().splitlines()[-1:]
            self.break_promise("resumes", f"the last resume ended with {session.status}: {last}")
        elif session.after is not None and session.after.newest <= before.resumes_from:
            text = f"the last resume did not get beyond update {before.resumes_from}"
            self.break_promise("resumes", text)

    def close(self) -> None:
        """End every session that is still there, and take mounts away."""
        super().close()
        for path in reversed(self._mounted):
            with contextlib.suppress(OSError, shutil.Error):
                if self.violations:  # what was found there is evidence
                    shutil.copytree(path, path.with_name(f"{path.name}_kept"), symlinks=True)
            with contextlib.suppress(OSError):
                kernel.unmount(path)
        self._mounted = []

    # --- small file systems ------------------------------------------------------------------

    def mount(self, path: Path, options: str) -> None:
        """Mount a small file system for this scenario."""
        path.mkdir(parents=True, exist_ok=True)
        kernel.mount_tmpfs(path, options)
        self._mounted.append(path)
