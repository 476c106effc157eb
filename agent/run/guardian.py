"""The guardian: with --auto_restart=N, a small process that resumes a learner that died.

    python main.py --auto_restart=3 ...
      guardian (this file; imports nothing that is large)
        └─ python main.py ...                   the learner, in a session of its own
        └─ python main.py --op_mode=train_w_load --load_model_url=<its run folder> ...

| the learner | the guardian |
|---|---|
| ends with status 0, 2 or 130 | ends with the same |
| was killed by SIGKILL (also the kernel's, for memory), SIGSEGV, ... | resumes it |
| fails (status 1), but has saved a newer checkpoint than it began with | resumes it |
| dies in one of these ways after its run came to its end and was saved | ends with 0, or 130 |
| fails without having come any further: it would fail again | ends with status 1 |

To resume is to go on from the newest good checkpoint or, if none was saved yet, to start anew. It
waits a little longer before each restart, and gives up after N of them. SIGINT, SIGTERM and SIGHUP
go to the learner, which then saves and ends, and is not resumed. If the guardian is killed, the
learner gets SIGTERM (core/process_death.py).
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType

from ritornello.agent.stored.checkpoint_folder import newest_update
from ritornello.core.process_death import environment_for_child
from ritornello.core.project import MAIN_PROGRAM
from ritornello.core.run_layout import SUMMARY
from ritornello.core.standard_error import say
from ritornello.core.stop_signals import INTERRUPTED, SIGNALS, StopSignals, handled_by
from ritornello.flags.former_names import ALIASES

FLAG = "auto_restart"
REPORT = "VTRACE_GUARDIAN"  # environment variable: the descriptor to which a learner reports
# The first is what the workers of the learner that died may take to leave.
FIRST_DELAY_S, MAX_DELAY_S = 5.0, 300.0
STEADY_S = 600.0  # after so long a session the next delay is the first again
KILLED = 128  # and the number of the signal: the status of a group whose first learner was killed
MAX_DIGITS = 9  # of a count on the command line
LOOK_S = 1.0
# Of a learner's command line that a resume says otherwise.
REPLACED = ("op_mode", "load_model_url", "new_run_folder", "run_name", "training_seconds")

_report_to: int | None = None  # of this process, if it is a guarded learner


def restarts_wanted(argv: Sequence[str]) -> int:
    """Return how often the learner of this command line is to be resumed; 0 without a guardian.

    It is a matter of this command line alone: not of a checkpoint, a preset or a sequence. To be
    called once, at the start: a learner that is guarded already learns here where to report.
    """
    global _report_to
    descriptor = os.environ.pop(REPORT, "")
    if descriptor.isdecimal():
        _report_to = int(descriptor)
        with contextlib.suppress(OSError):
            os.set_inheritable(_report_to, False)
        return 0
    return count_wanted(argv, FLAG)


def report_descriptor() -> tuple[str, int] | None:
    """Return the environment variable and the descriptor that let a child report instead."""
    return None if _report_to is None else (REPORT, _report_to)


def report_run_folder(path: Path | str, updates: int = -1) -> None:
    """Tell the guardian, if there is one, which folder this learner writes to, and from where on.

    Args:
      path: folder of the run. It says nothing any more of how an earlier session ended.
      updates: of the checkpoint that this session goes on from; -1 if it begins.
    """
    if _report_to is not None:
        line = b"%d %s\n" % (updates, os.fsencode(Path(path).resolve()))
        with contextlib.suppress(OSError):  # killed: then this process is about to end, too
            os.write(_report_to, line)


class Guardian:
    """Runs a learner until it ends in a way that is an end. Used by the main thread, once."""

    def __init__(
        self, argv: Sequence[str], max_restarts: int, stop: StopSignals | None = None
    ) -> None:
        """Start nothing.

        Args:
          argv: the command line without the program's name.
          max_restarts: how often a learner is started again.
          stop: what counts the signals of this process, if something does.
        """
        self._stop = stop
        self._argv = list(argv)
        self._max_restarts = max_restarts
        self._asked_to_stop = threading.Event()
        self._learner: subprocess.Popen[bytes] | None = None
        self._folder: Path | None = None
        self._began_at: int | None = None  # update; None: the last learner did not come so far

    def run(self) -> int:
        """Return the exit status of the last learner, or 128 and the number of its signal."""
        began, restarts, in_a_row = time.monotonic(), 0, 0
        with self._signals_passed_on():
            while True:
                session = time.monotonic()
                status = self._run_learner(self._command(session - began))
                reason = self._reason_to_restart(status)
                end = None if reason is None else self._end_of_run()
                if end is not None:
                    say(f"{reason}; its run had ended by then and is saved: nothing is resumed")
                    return end
                if reason is not None and restarts >= self._max_restarts:
                    say(f"{reason}; it was restarted {restarts} times (--{FLAG}): giving up")
                    reason = None
                if reason is not None:
                    restarts += 1
                    in_a_row = 0 if time.monotonic() - session >= STEADY_S else in_a_row + 1
                    delay_s = min(MAX_DELAY_S, FIRST_DELAY_S * 2 ** min(max(0, in_a_row - 1), 10))
                    what = (
                        "starting anew" if self._newest_update() < 0 else f"resuming {self._folder}"
                    )
                    which = f"restart {restarts} of {self._max_restarts}"
                    say(f"{reason}; {what} in {delay_s:g} s ({which})")
                if reason is None or self._asked_to_stop.wait(delay_s):
                    return status if status >= 0 else 128 - status

    def _run_learner(self, command: list[str]) -> int:
        """Return the exit status of a learner, negative if it was killed by a signal."""
        reading, writing = os.pipe()
        os.set_blocking(reading, False)
        try:
            # A session of its own: the terminal sends Ctrl-C to every process in its group, and a
            # learner must get exactly one, from us.
            self._learner = subprocess.Popen(
                command,
                env={**environment_for_child(), REPORT: str(writing)},
                pass_fds=(writing,),
                start_new_session=True,
            )
            if self._asked_to_stop.is_set():  # in the moment before there was anybody to tell
                self._learner.send_signal(signal.SIGTERM)
            while True:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    return self._learner.wait(LOOK_S)
        finally:
            self._began_at = None
            with contextlib.suppress(OSError):  # it has said nothing
                updates, _, path = os.read(reading, 65536).splitlines()[-1].partition(b" ")
                self._began_at, self._folder = int(updates), Path(os.fsdecode(path))
            os.close(reading)
            os.close(writing)

    def _reason_to_restart(self, status: int) -> str | None:
        """Return how the learner ended, if that is a reason to start it again."""
        if self._asked_to_stop.is_set():
            return None
        number = -status if status < 0 else status - KILLED
        if number > 0 and number not in SIGNALS:
            with contextlib.suppress(ValueError):
                return f"the learner was killed by signal {number} ({signal.Signals(number).name})"
            return f"the learner was killed by signal {number}"
        began_at = self._began_at
        if status == 1 and began_at is not None and self._newest_update() > began_at:
            return "the learner failed, later than the last time"
        return None

    def _end_of_run(self) -> int | None:
        """Return the exit status that the last learner was about to end with; None if none yet.

        The summary is of a session of this guardian: each removes it before it reports its folder.
        """
        if self._folder is None:
            return None
        try:
            reason = json.loads((self._folder / SUMMARY).read_bytes())["reason"]
        except (OSError, ValueError, LookupError, TypeError):
            return None
        return INTERRUPTED if reason == "interrupted" else 0

    def _newest_update(self) -> int:
        """Return the update of the newest checkpoint, or -1 if there is none."""
        return -1 if self._folder is None else newest_update(self._folder)

    def _command(self, passed_s: float) -> list[str]:
        """Return the command line of the next learner.

        Args:
          passed_s: time since the first one was started, which counts for --training_seconds.
        """
        if self._newest_update() < 0:
            return [sys.executable, str(MAIN_PROGRAM), *self._argv]
        flags = [
            f"--{name}={value}" for name, value in flag_pairs(self._argv) if name not in REPLACED
        ]
        seconds = dict(flag_pairs(self._argv)).get("training_seconds")
        if seconds is not None:
            with contextlib.suppress(ValueError):
                left_s = max(1.0, float(seconds) - passed_s)
                flags.append(f"--training_seconds={left_s:.1f}")
        resume = ["--op_mode=train_w_load", f"--load_model_url={self._folder}"]
        return [sys.executable, str(MAIN_PROGRAM), *flags, *resume]

    @contextlib.contextmanager
    def _signals_passed_on(self) -> Iterator[None]:
        """Give the learner every signal that asks to end, but for the one that nohup ignores."""

        def pass_on(number: int, frame: FrameType | None) -> None:
            self._asked_to_stop.set()
            if self._stop is not None:  # or its listener takes this process for one that hangs
                self._stop.note_passed_on(number)
            if self._learner is not None:
                self._learner.send_signal(number)

        with handled_by(pass_on):
            yield


def count_wanted(argv: Sequence[str], flag: str) -> int:
    """Return the number that the command line of a training gives to a flag; 0 if it gives none.

    It is 0 for a test, and where only a help text or the version is asked for. What is wrong with a
    value is said by whoever checks all flags.
    """
    if any(item.startswith(("-h", "--help", "--version")) for item in argv):
        return 0
    values = dict(flag_pairs(argv))
    wanted = values.get(flag, "")
    is_count = wanted.isdecimal() and len(wanted) <= MAX_DIGITS
    return int(wanted) if is_count and values.get("op_mode", "train") != "test" else 0


def flag_pairs(argv: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield (name, value) of each flag, written --name=value or --name value."""
    items = iter(argv)
    for item in items:
        name, equals, value = item.removeprefix("--").partition("=")
        name = name.replace("-", "_")
        yield ALIASES.get(name, name), value if equals else next(items, "")
