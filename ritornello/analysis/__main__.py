"""`python -m ritornello.analysis <command> ...`: finds the command and calls it.

Each command is a module here with a `main(arguments) -> exit status` that reads its own options.
It is imported only when it is asked for: one that needs torch does not slow down one that does not.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

PROGRAM = "python -m ritornello.analysis"
# As of main.py: agents of environments module:Id are looked at by running the code of the module.
TRUST = "--trust_env_module=True"

OWN_RULE = "Expected a command, or a module of your own that has main(arguments) -> exit status."

COMMANDS = (
    *("compare", "report", "saliency", "attention", "actions", "filters", "features", "gradients"),
)
USAGE = f"""usage: {PROGRAM} <command> [options]

  compare    which configuration learned best: table, figure and small CSV files of runs
  report     one HTML page of a run or a sequence: what was run, how it went, figures, films
  saliency   a film of what matters to an agent in each frame, for its policy and its value
  attention  a film of where the heads of an attention agent look
  actions    what agents do: the share of each action over seeds, games and agents
  filters    what the filters of networks see, and how alike their layers are (CKA)
  features   a map of what an agent saw, or of what is in a replay (PCA)
  gradients  the gradient of each layer over training, as heat maps and CSV

{PROGRAM} <command> --help explains a command.
{PROGRAM} <package>.<module> runs a command of your own.
{TRUST} goes with each: it imports the module of an agent's environment module:Id."""


def main(argv: Sequence[str]) -> int:
    """Run one command; return its exit status, or 2 for wrong arguments, 130 after Ctrl-C."""
    try:
        return _run(argv)
    except KeyboardInterrupt as error:
        from ritornello.core.stop_signals import INTERRUPTED

        lost = str(error) or "what was not written yet is lost"
        sys.stderr.write(f"{PROGRAM}: interrupted: {lost}\n")
        return INTERRUPTED


def _run(argv: Sequence[str]) -> int:
    # Imported here, where Ctrl-C is answered already.
    from ritornello.core.command_line import reader_may_leave, with_home
    from ritornello.core.errors import ConfigError, PlatformError
    from ritornello.core.plain_data import shown_text
    from ritornello.wrappers.trusted_modules import trust_every_module
    from ritornello.wrappers.user_code import import_module

    if not argv or argv[0] in ("-h", "--help"):
        with reader_may_leave():
            print(USAGE)
        return 0 if argv else 2
    if TRUST in argv:
        argv = [argument for argument in argv if argument != TRUST]
        trust_every_module()
    command, *arguments = with_home(argv)
    if command not in COMMANDS and "." not in command:
        sys.stderr.write(f"{PROGRAM}: there is no command {command!r}.\n{USAGE}\n")
        return 2
    try:
        module = f"ritornello.analysis.{command}" if command in COMMANDS else command
        if module == command:
            import_module(command, command, flag="command", rule=OWN_RULE)
        run = getattr(importlib.import_module(module), "main", None)
        if run is None:
            raise ConfigError(f"{command} has no function main. {OWN_RULE}")
        return int(run(arguments))
    except PlatformError as error:
        sys.stderr.write(f"{PROGRAM} {command}: {error}\n")
        return 2
    except OSError as error:  # most likely a full disk
        where = "" if error.filename is None else f"{shown_text(str(error.filename))}: "
        reason = f"{where}{error.strerror or error}. A file could not be read or written"
        sys.stderr.write(f"{PROGRAM} {command}: {reason}: mend that, or give another --output.\n")
        return 2


if __name__ == "__main__":
    from ritornello.core.command_line import show_what_can_be_shown
    from ritornello.core.leaving import leave

    show_what_can_be_shown()
    leave(main(sys.argv[1:]))  # a thread of an environment does not keep it
