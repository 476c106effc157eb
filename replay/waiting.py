"""What a batch waits for, in words for the log."""

from __future__ import annotations

from collections.abc import Sequence

from ritornello.replay.buffer import Buffer
from ritornello.replay.newest import NewestUnrolls
from ritornello.replay.pace import Pace


def what_is_missing(
    buffers: Sequence[Buffer],
    collected: Sequence[int],
    wanted: Sequence[int],
    newest: NewestUnrolls,
    pace: Pace | None,
) -> str:
    """Return what a batch waits for; empty if nothing.

    Args:
      buffers: all of the run.
      collected: items of the batch that each of them, if it is a queue, has already given.
      wanted: draws of the batch from each of them.
      newest: what is played now, which some buffers compare with.
      pace: how many draws are allowed; None: any number.
    """
    parts = []
    for source, buffer in enumerate(buffers):
        if buffer.consumes:
            here, enough = collected[source] + len(buffer), wanted[source]
        else:
            here, enough = len(buffer), buffer.min_size
        if here >= enough and not buffer.consumes and not newest.suffice(buffer):
            here, enough = 0, 1  # of its own
        if here < enough:
            of_game = "" if buffer.task is None else f" of game {buffer.task}"
            parts.append(f"{buffer.name} has {here} of {enough} unrolls{of_game}")
    if not parts and pace is not None and not pace.allows_batch():
        parts.append(f"at most {pace.draws_per_unroll:g} draws per unroll are allowed")
    return ", ".join(parts)
