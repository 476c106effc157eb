"""The commands with which one goes on from a run, as they can be copied into a terminal."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

from ritornello.core.project import as_typed, main_command
from ritornello.flags.options import Flags
from ritornello.flags.parts import ALGORITHMS, NETWORKS, REPLAY
from ritornello.replay.parameters import types_of_modules
from ritornello.wrappers.env_kwargs import holds_text
from ritornello.wrappers.trusted_modules import module_of


def next_command(mode: str, folder: Path, flags: Flags) -> str:
    """Return the command that resumes or tests a run.

    It is of several lines: a terminal of 80 columns would break one where a shell does not go on.

    Args:
      mode: what the command does, a value of --op_mode.
      folder: the run folder.
      flags: those of the run.
    """
    command = "test" if mode == "test" else "resume"
    items = [f"--{command}={as_typed(folder)}", *typed_again(flags, mode)]
    return " \\\n  ".join([main_command(), *map(shlex.quote, items)])


def typed_again(flags: Flags, mode: str) -> list[str]:
    """Return `--name=value` of the flags that the next command on a run has to repeat.

    It reads the run's flags from a file, which may name no module and give no texts to environments
    (wrappers/trusted_modules.py).

    Args:
      flags: those of the run.
      mode: what the command does, a value of --op_mode.
    """
    named = {"env": flags.env, NETWORKS.flag: flags.model}
    if mode != "test":  # which learns nothing
        named[ALGORITHMS.flag] = flags.algorithm
        named[REPLAY] = ",".join(types_of_modules(flags.replay_parameters))
    again = [name for name, parts in named.items() if any(map(module_of, parts.split(",")))]
    again += ["env_kwargs"] * holds_text(flags.env_kwargs)
    values = flags.to_json()
    values[REPLAY] = json.dumps(values[REPLAY])
    return [f"--{name}={values[name]}" for name in again]
