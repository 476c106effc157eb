"""Whose turn it is: which of the runs that wait are begun next. Next to read: runner.py."""

from __future__ import annotations

from collections.abc import Sequence

from ritornello.core.errors import ConfigError
from ritornello.core.plain_data import shown_text
from ritornello.sequences.folder import RunState, SequenceFolder


def runs_due(folder: SequenceFolder, waiting: Sequence[int], active: Sequence[int]) -> list[int]:
    """Return which of the waiting runs are begun now, or given up; none of them too early.

    Runs begin in their order.

    Raises:
      ConfigError: if nothing is under way, and each that waits does so for another one of them.
    """
    begun: list[int] = []
    for index in waiting:
        under_way = [*active, *begun]
        if len(under_way) >= folder.at_once:
            break
        pending = [folder.runs[n] for n in (*under_way, *waiting)]
        if folder.source(folder.runs[index]) not in pending:  # else it may be done by and by
            begun.append(index)
    if not active and not begun:
        # Neither a plan nor a file can say so; but going round for ever would tell nobody.
        names = ", ".join(folder.runs[index].name for index in waiting)
        raise ConfigError(
            f"{shown_text(str(folder.path))}: these runs wait for each other: {shown_text(names)}. "
            "Write the sequence anew."
        )
    return begun


def can_begin(folder: SequenceFolder, run: RunState) -> bool:
    """Whether the run that this one starts from, if any, has left something to start from."""
    source = folder.source(run)
    return source is None or (source.status == "done" and bool(folder.run_folders(source)))
