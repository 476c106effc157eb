"""What multi_train.py shows of a sequence under way, on a terminal that may be slow or gone."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Iterator
from statistics import fmean
from typing import Any

from rich.console import Console
from rich.markup import escape

from ritornello.core.plain_data import shown_text
from ritornello.metrics.curve import RETURN
from ritornello.metrics.output_thread import OutputThread
from ritornello.metrics.text import duration, same_decimals
from ritornello.sequences.folder import RunState, SequenceFolder

LINE_INTERVAL_S = 60.0  # between lines on a run where there is no terminal
TERMINAL_CAPACITY = 1000  # lines that wait for a terminal that is not read
TERMINAL_GRACE_S = 2.0  # for it to take them at the end


class Terminal:
    """Prints to the user. In the background, nobody waits for it, and it may fail."""

    def __init__(self) -> None:
        """Print everything at once, until `in_background`."""
        self.console = Console(emoji=False)  # queue:100:1 is no emoji
        self._status = self.console.status("")
        self._thread: OutputThread | None = None

    @contextlib.contextmanager
    def in_background(self) -> Iterator[None]:
        """Print on a thread of its own in the block, and end that in time."""
        self._thread = OutputThread("the terminal", TERMINAL_CAPACITY)
        try:
            yield
        finally:
            self.end_live()
            self._thread.close(TERMINAL_GRACE_S)

    def print(self, *parts: Any, **options: Any) -> None:
        """Call `Console.print`."""
        self._do(functools.partial(self.console.print, *parts, **options))

    def plainly(self, text: str) -> None:
        """Print a line in which nothing is markup."""
        self.print(text, markup=False, highlight=False, soft_wrap=True)

    def live(self, text: str) -> None:
        """Show a text in place of the one before, until `end_live`."""
        self._do(functools.partial(self._status.update, escape(text)))
        self._do(self._status.start)

    def end_live(self) -> None:
        """Remove the text that changes."""
        self._do(self._status.stop)

    def _do(self, action: Callable[[], object]) -> None:
        if self._thread is None:
            action()
        else:
            self._thread.submit(action)


class Progress:
    """Shows how far the present run is: a line that changes while it runs, and stays at its end.

    If the terminal cannot change a line, a lasting one is printed each minute.
    """

    def __init__(self, terminal: Terminal, folder: SequenceFolder) -> None:
        """Show nothing; calls do."""
        self._terminal = terminal
        self._folder = folder
        self._began_at = time.monotonic()
        self._next_line_at: dict[str, float] = {}  # by the name of the run
        self._living: dict[str, str] = {}  # the lines of the runs that are under way

    def __call__(self, run: RunState, seconds: float) -> None:
        """Show how far a run is that has taken `seconds`."""
        waits = run.status.startswith("waiting: ")  # for its process of an earlier attempt
        goes_on = waits or run.status == "running"
        first_line_at = self._began_at + (0.0 if waits else LINE_INTERVAL_S)
        next_line_at = self._next_line_at.get(run.name, first_line_at)
        self._living.pop(run.name, None)
        if self._terminal.console.is_interactive and goes_on:
            wait = run.status if waits else ""
            self._living[run.name] = wait + line_on(self._folder, run, seconds)
            lines = "\n".join(self._living.values())
            self._terminal.live(f"{lines}  (Ctrl-C saves and stops)")
        elif not goes_on or time.monotonic() >= next_line_at:
            self._next_line_at[run.name] = time.monotonic() + LINE_INTERVAL_S
            self._terminal.plainly(f"{run.status:8}{line_on(self._folder, run, seconds)}")


def line_on(folder: SequenceFolder, run: RunState, seconds: float) -> str:
    """Return a line on a run that has taken `seconds`, and on how long the others will take."""
    number = next(n for n, each in enumerate(folder.runs, start=1) if each.name == run.name)
    record = folder.newest_record(run)
    group = shown_text(run.group)
    line = f"{number}/{len(folder.runs)} {group}, seed {run.seed}: {duration(seconds)}"
    if record is not None:
        line += f", {record.agent_steps:,} steps"
        if RETURN in record.values:
            line += f", return {same_decimals([record.values[RETURN]])[0]}"
    if folder.at_once > 1:
        return line
    is_running = run.status == "running"
    done = [each.seconds for each in folder.runs if each.status == "done"]
    if done:
        ahead = folder.runs[number - 1 if is_running else number :]
        waiting = sum(each.status != "done" for each in ahead)
        to_go = fmean(done) * waiting - (seconds if is_running else 0.0)
        line += f"; about {duration(max(0.0, to_go))} to go"
    return line
