"""The command: train, resume or test.

    python main.py                                                          train on Pong
    python main.py --op_mode=train_w_load --load_model_url=results/<run>    resume
    python main.py --op_mode=test --load_model_url=results/<run>            play whole games
    python main.py --op_mode=test --load_model_url=models/pong              the shipped agent
    python main.py --help                                                   every option

Exit status: 0 done, 1 the run failed, 2 the command cannot be honoured (nothing was started),
130 interrupted (after a clean save).
"""

from __future__ import annotations

import os
import sys

from agent.guardian import Guardian, restarts_wanted
from core.process_death import end_with_starter, mark_own_children


def main(argv: list[str]) -> int:
    """Run one command; return the exit status."""
    from flag_help import help_text

    if "--help" in argv or "-h" in argv:
        print(help_text(), end="")
        return 0
    from core.errors import CheckpointError, ConfigError

    try:
        from agent.session import prepare

        session = prepare(argv)
    except (ConfigError, CheckpointError) as error:
        for line in str(error).splitlines():
            print(f"error: {line}" if not line.startswith(" ") else line, file=sys.stderr)
        return 2
    return session.run()


def restart_with_settings() -> None:
    """Start the interpreter anew with settings that are read only at its start."""
    from core.process_settings import environment_to_restart_with

    environment = environment_to_restart_with()
    if environment is not None:
        os.execve(sys.executable, [sys.executable, *sys.argv], environment)


if __name__ == "__main__":
    mark_own_children()
    restart_with_settings()
    end_with_starter()
    restarts = restarts_wanted(sys.argv[1:])
    if restarts:
        sys.exit(Guardian(sys.argv[1:], restarts).run())
    sys.exit(main(sys.argv[1:]))
