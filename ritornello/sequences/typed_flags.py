"""What is typed behind multi_train.py: unknown options, and flags in which the runs differ."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NoReturn

from ritornello.core.errors import ConfigError
from ritornello.core.plain_data import shown_text
from ritornello.flags.options import Flags
from ritornello.flags.parsing import named_values
from ritornello.sequences.plan import is_test, source_of


def refuse(unknown: Sequence[str], own: Collection[str]) -> NoReturn:
    """Raise ConfigError about arguments that neither multi_train.py nor main.py knows.

    Args:
      unknown: the arguments.
      own: names of the options of multi_train.py.
    """
    for name in (item[2:].partition("=")[0] for item in unknown if item.startswith("--")):
        near = difflib.get_close_matches(name, [*own, *Flags.model_fields], 1)
        if set(own).intersection(near):
            raise ConfigError(f"unknown option --{shown_text(name)}; did you mean --{near[0]}?")
    named_values(unknown)  # what main.py would say
    raise ConfigError(f"unknown options: {shown_text(' '.join(unknown))}")


def check_not_overridden(runs: Sequence[Any], typed: Mapping[str, str], where: str) -> None:
    """Raise ConfigError if a typed flag, which wins, is one that tells the runs from each other.

    Their names would promise what no run has, and runs would be compared that do not differ.

    Args:
      runs: planned runs, or the states of runs (`sequences.folder.RunState`).
      typed: flag -> text of what was typed, result of `sequences.foreign.check_typed`.
      where: the file that has the runs, for messages.
    """
    trained = [run for run in runs if not is_test(run.flags)]  # a test says little by itself
    for name, text in typed.items():
        differs = any(run.flags.get(name) != trained[0].flags.get(name) for run in trained)
        is_in_a_name = any(f" {name}=" in f" {run.group}" for run in runs)
        is_of_others = name == "load_model_url" and any(source_of(run.flags) for run in runs)
        if differs or is_in_a_name or is_of_others:
            raise ConfigError(
                f"--{name}={shown_text(text)} would hold for every run, but the runs of {where} "
                f"are told from each other by their {name}: leave it out, or change the file."
            )
