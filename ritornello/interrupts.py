"""Ctrl-C in an interpreter that goes on: the call saves what it has done, and then raises.

A program answers a second signal by leaving at once (core/stop_signals.py). A notebook must not be
taken down like that, so here every further one raises KeyboardInterrupt instead: saving is cut
short, processes are ended, and the prompt comes back.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any

from ritornello.core.stop_signals import Answer, StopSignals, answer_by


class Interrupted(KeyboardInterrupt):
    """Ctrl-C ended a call, which has kept what it did: `result` is what it would have returned."""

    def __init__(self, text: str, result: Any) -> None:
        """Say in `text` what was kept; `result` is what the call would have returned."""
        super().__init__(text)
        self.result = result


class Interrupts(StopSignals):
    """The signals during one call, and the caller's request to stop. Used as a context.

    Python gives signals to the main thread only; in another thread only `asked` counts.
    """

    def __init__(self, asked: threading.Event | None = None) -> None:
        """Listen to nothing yet. Another thread sets `asked` to stop the call."""
        super().__init__()
        self._asked = asked
        self.number: int | None = None  # of the first signal

    @property
    def requested(self) -> bool:
        """Whether somebody wants the call to stop."""
        return self.count > 0 or (self._asked is not None and self._asked.is_set())

    def install(self) -> None:
        """Handle signals from now on, in the main thread only; `restore` undoes it.

        The descriptor that the system wakes up is left alone: a notebook's event loop owns it.
        """
        if threading.current_thread() is threading.main_thread():
            self._previous = answer_by(self._interrupt)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        """Handle one signal. Called by Python in the main thread."""
        if not self.is_new(number):
            return
        if self.number is None:
            self.number = int(number)
        if self.answer is Answer.NOTE and self.count == 1:
            return
        raise KeyboardInterrupt

    def __enter__(self) -> Interrupts:
        self.install()
        return self

    def __exit__(self, *_: object) -> None:
        self.restore()

    def pass_on(self, text: str, result: Any) -> None:
        """Pass on a signal that came meanwhile, after `restore`; do nothing if none came.

        Ctrl-C becomes `Interrupted` with `text` and `result`. Another signal, such as the SIGTERM
        by which a scheduler ends a script, is sent again to the handler that was there before the
        call.

        Raises:
          Interrupted: if Ctrl-C was pressed.
        """
        if self.number is None:
            return
        if self.number == signal.SIGINT:
            raise Interrupted(text, result)
        signal.raise_signal(self.number)
