"""Arrays of several shapes and types side by side in one block of bytes."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

ALIGNMENT_BYTES = 64  # one cache line, so that fields of two blocks never share one


def aligned(nbytes: int) -> int:
    """Return the offset after `nbytes` bytes at which the next field may begin."""
    return -(-nbytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


@dataclass(frozen=True)
class Field:
    """Where one array lies in a block."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype
    offset: int  # bytes, a multiple of ALIGNMENT_BYTES

    @cached_property  # asked for at each view
    def nbytes(self) -> int:
        """Size of the array in bytes, without what follows to the next field."""
        return math.prod(self.shape) * self.dtype.itemsize

    def view(self, blocks: np.ndarray) -> np.ndarray:
        """Return the array in blocks `[..., bytes]` uint8 as a view `[..., *shape]`."""
        leading = blocks.shape[:-1]
        flat = blocks[..., self.offset : self.offset + self.nbytes]
        # view() needs a contiguous last axis only, so a row of blocks can stay where it is.
        typed = flat.view(self.dtype) if self.nbytes else np.empty((*leading, 0), self.dtype)
        return typed.reshape((*leading, *self.shape))


def lay_out(table: Iterable[tuple[str, tuple[int, ...], str]]) -> tuple[dict[str, Field], int]:
    """Lay out arrays one after the other, each at an aligned offset.

    `table` has the name, shape and dtype of each array.

    Returns:
      name -> its field, and the number of bytes of the whole block.
    """
    fields: dict[str, Field] = {}
    nbytes = 0
    for name, shape, dtype in table:
        fields[name] = Field(name, shape, np.dtype(dtype), nbytes)
        nbytes += aligned(fields[name].nbytes)
    return fields, nbytes
