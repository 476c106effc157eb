"""The command: train, resume or test.

    python main.py                          train on Pong
    python main.py --resume=results/<run>   resume
    python main.py --test=results/<run>     play whole games
    python main.py --test=models/pong       the shipped agent
    python main.py --help                   what matters first

Exit status: 0 done, 1 the run failed or made no update, 2 the command cannot be honoured (nothing
was started), 130 interrupted (after a clean save; a second Ctrl-C leaves without one).

Ctrl-C, SIGTERM, SIGHUP and SIGUSR1 are answered from the first lines on (core/stop_signals.py), and
wait while the interpreter starts itself anew.
"""

from __future__ import annotations

import signal

if __name__ == "__main__":
    # The first thing of all: until there is a handler, signals wait. They are let through below.
    signals = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)

from ritornello.core.this_python import check_python

if __name__ == "__main__":
    check_python()

import contextlib
import faulthandler
import os
import sys
from typing import NoReturn

from ritornello.agent.learners.place import ALONE_HERE, Place, learners_wanted
from ritornello.core.command_line import printable, reader_may_leave, show_what_can_be_shown
from ritornello.core.leaving import leave
from ritornello.core.process_death import end_with_starter, mark_own_children
from ritornello.core.process_settings import restart_with_settings
from ritornello.core.stop_signals import StopSignals, let_through
from ritornello.core.version import VERSION


def main(argv: list[str], stop: StopSignals | None = None, place: Place | None = None) -> int:
    """Run one command; return the exit status.

    Args:
      argv: the command line without the program's name.
      stop: requests of the user to stop; None: there are none.
      place: which of several learners this process is; None: the only one.
    """
    place = place or ALONE_HERE
    if "--version" in argv:
        print(f"ritornello {VERSION}")
        return 0
    from ritornello.core.errors import CheckpointError, ConfigError, PlatformError, of_the_system

    try:
        wanted = help_for(argv)
        if wanted is not None:
            with reader_may_leave():
                print(wanted, end="")
            return 0
        check_names(argv)
        if place.speaks:
            announce("loading PyTorch and the environments ...")
        from ritornello.agent.session import prepare

        return prepare(argv, place).run(stop)
    except (ConfigError, CheckpointError) as error:
        return refuse(error, argv, place)
    except PlatformError as error:
        if place.speaks:
            text = printable(str(error))
            print(f"error: the run could not be started: {text}", file=sys.stderr)
        return 1
    except (OSError, RuntimeError) as error:
        said = of_the_system(error)
        if isinstance(said, RuntimeError):
            raise
        text = printable(explain(said) if isinstance(said, OSError) else str(said))
        print(f"error: the run could not be started: {text}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:  # signals have handlers of their own: it is from somebody's code
        print("interrupted: what was tried out or played raised KeyboardInterrupt", file=sys.stderr)
        return 130


def refuse(error: Exception, argv: list[str], place: Place) -> int:
    """Report why nothing is begun; return the exit status.

    All mistakes are found before a run begins; a run reports its own failures.
    """
    from ritornello.core.errors import RunIsDone
    from ritornello.flags.names import RESUME_OR_START, flag_of

    names = {flag_of(item[2:].partition("=")[0]) for item in argv}
    is_done = isinstance(error, RunIsDone) and RESUME_OR_START in names  # a job that repeats
    if place.speaks or not place.is_launched:  # learner 0 says the same
        for line in printable(str(error)).splitlines():
            print(line if is_done or line.startswith(" ") else f"error: {line}", file=sys.stderr)
    return 0 if is_done else 2


def check_names(argv: list[str]) -> None:
    """Raise ConfigError for names that are no flags, before anything that takes long is loaded."""
    from ritornello.flags.names import named_values

    named_values(argv)


def announce(text: str) -> None:
    """Print a text on a terminal that takes it at once; do not wait for a frozen one."""
    import select

    with contextlib.suppress(OSError, ValueError):  # closed, or not Unix
        if sys.stdout is not None and sys.stdout.isatty():
            _, ready, _ = select.select([], [sys.stdout], [], 0)
            if ready:
                print(text, flush=True)


def help_for(argv: list[str]) -> str | None:
    """Return the help that a command line asks for, as wide as the terminal has room; or None."""
    import shutil

    from ritornello.flags.names import topic_of

    topic = topic_of(argv)
    if topic is None:
        return None
    from ritornello.flags.help import help_text

    columns = shutil.get_terminal_size((80, 24)).columns
    return help_text(topic, 100 if columns >= 100 else 80)


def explain(error: OSError) -> str:
    """Return the meaning of an error of the system, and what to do if that is known."""
    import errno

    advice = {
        errno.EMFILE: "raise the limit of open files (ulimit -n 1024)",
        errno.ENFILE: "the system has no more open files to give",
        errno.ENOSPC: "the disk is full: make room, or give another --results_dir",
        errno.EROFS: "give a folder that may be written to, e.g. --results_dir=/tmp/results",
        errno.EACCES: "give a folder that may be written to, e.g. --results_dir=/tmp/results",
    }
    hint = advice.get(error.errno or 0)
    return f"{error}{f'; {hint}' if hint else ''}"


def show_where_it_crashes() -> None:
    """Let Python print a stack if a library, or somebody's environment, crashes in C."""
    with contextlib.suppress(OSError, ValueError, RuntimeError, AttributeError):  # closed output
        faulthandler.enable()


def place_among_learners() -> Place:
    """Return which of several learners this process is; exit if the variables make no sense."""
    from ritornello.core.errors import ConfigError

    try:
        return Place.taken_from(os.environ)
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        leave(2)


def run_as_program() -> NoReturn:
    """Do what the command line says, and exit with the status."""
    show_where_it_crashes()
    mark_own_children()
    restart_with_settings()
    end_with_starter()
    show_what_can_be_shown()
    argv = sys.argv[1:]
    place = place_among_learners()
    count = learners_wanted(argv) if place.world_size == 1 else 1
    if count > 1:
        from ritornello.agent.run.launcher import Launcher

        leave(Launcher(argv, count).run())
    stop_signals = StopSignals()
    stop_signals.install()
    let_through()
    leave(main(argv, stop_signals, place))


if __name__ == "__main__":
    run_as_program()
