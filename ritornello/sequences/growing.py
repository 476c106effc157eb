"""More groups and more seeds for a sequence that was begun, from its file as it is now.

An experiment often needs two further seeds, or an arm that nobody thought of before. The runs that
there are stay as they are; what the file has besides is added behind them. Next to read: folder.py.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ritornello.core.errors import ConfigError
from ritornello.core.plain_data import shown, shown_text
from ritornello.sequences.folder import SequenceFolder
from ritornello.sequences.plan import Plan, PlannedRun


def further_runs(folder: SequenceFolder, plan: Plan, where: str) -> list[PlannedRun]:
    """Return the runs of a plan which a sequence that was begun does not have yet.

    Args:
      folder: the sequence.
      plan: what its file says now.
      where: the file, for messages.

    Raises:
      ConfigError: if it is the file of another sequence, or changes a run that there is.
    """
    begun = {(run.group, run.seed): run for run in folder.runs}
    if plan.name != folder.name:
        raise ConfigError(
            f"{where} is the sequence {shown(plan.name)}, expected {shown(folder.name)}, of which "
            f"{shown_text(str(folder.path))} is the folder."
        )
    for run in plan.runs:
        there = begun.get((run.group, run.seed))
        if there is not None and (change := _first_change(there.flags, run.flags)):
            raise ConfigError(
                f"{where}: {there.name} was begun with {change}. The runs that there are stay as "
                "they are: give what is changed a name of its own, or begin a new sequence."
            )
    return [run for run in plan.runs if (run.group, run.seed) not in begun]


def _first_change(there: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Return the first flag that differs, in words; "" if none does."""
    now = json.loads(json.dumps(now))  # as sequence.json has them
    for name in sorted({*there, *now}):
        if there.get(name) != now.get(name) or (name in there) != (name in now):
            return f"{name} {_value(there, name)}, and the file has {_value(now, name)}"
    return ""


def _value(flags: Mapping[str, Any], name: str) -> str:
    return shown(flags[name]) if name in flags else "left out"
