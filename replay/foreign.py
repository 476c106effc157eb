"""Unrolls of other agents: which buffers take them.

They are kept and drawn like any others, but they are never new: a queue takes none, nor does a
buffer that hands on each unroll a number of times. No insert waits for them or because of them, and
they do not count for the pace.
"""

from __future__ import annotations

from collections.abc import Sequence

from ritornello.replay.buffer import Buffer


def takers_of_foreign(buffers: Sequence[Buffer], task: int) -> list[Buffer]:
    """Return the buffers that hold unrolls of other agents of this game.

    Args:
      buffers: all buffers.
      task: number of the game.
    """
    return [
        buffer for buffer in buffers if not buffer.sets_the_pace and buffer.task in (None, task)
    ]
