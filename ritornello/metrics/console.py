"""The terminal: a calm live panel where there is one, a plain line now and then where there is not.

Takes Records and nothing else, so it shows exactly what the files hold. It is drawn only when a
record comes, at most twice a second: it costs no thread and does not flicker. What it looks like
is in metrics/view.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from rich.console import Console
from rich.live import Live
from rich.text import Text

from ritornello.metrics.record import Record
from ritornello.metrics.sinks import Sink
from ritornello.metrics.view import Goal, View

PANEL_INTERVAL_S = 0.5
LINE_INTERVAL_S = 5.0


class ConsoleSink(Sink):
    """Shows the run on a terminal, or as lines where stdout is a file or a pipe.

    Print other things through `console` while this is open, and they appear above the panel
    (`RichHandler(console=sink.console)` for logging).
    """

    def __init__(
        self,
        goal: Goal,
        console: Console | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Show nothing before the first record.

        Args:
          goal: what the run works towards.
          console: where to; stdout by default.
          clock: seconds, for pacing.
        """
        self.console = console or Console(highlight=False)
        self._view = View(goal)
        self._clock = clock
        self._shown_at: float | None = None
        self._pending = False
        self._live: Live | None = None
        self._closed = False
        self._began = clock()
        self._waited_for = ""  # by the last line on a pipe

    def write(self, record: Record) -> None:
        """Take a record; show it if the last one has been up long enough."""
        if self._closed:
            return
        self._view.add(record)
        self._pending = True
        interval_s = PANEL_INTERVAL_S if self.console.is_terminal else LINE_INTERVAL_S
        if self._shown_at is None or self._clock() - self._shown_at >= interval_s:
            self._show()

    def close(self) -> None:
        """Show the last record, leave it on the screen and give the terminal back. Idempotent."""
        if self._pending:
            self._show()
        if self._live is not None:
            self._live.stop()
            self._live = None
        self._closed = True

    def _show(self) -> None:
        self._shown_at = self._clock()
        self._pending = False
        waits_for = self._view.waits_for()
        waits = f"{waits_for} ({self._clock() - self._began:.0f} s)" if waits_for else ""
        if self.console.is_terminal:
            if self._live is None:
                self._live = Live(console=self.console, auto_refresh=False)
                self._live.start()
            shown = Text(waits) if waits else self._view.panel(self.console.width)
            self._live.update(shown, refresh=True)
            return
        kind = waits_for.split(":")[0]  # of what is waited for: each is said once
        is_new, self._waited_for = kind != self._waited_for, kind
        if is_new or not waits:
            # One line stays one line, however narrow a pipe claims to be.
            self.console.print(waits or self._view.line(), soft_wrap=True, markup=False)
