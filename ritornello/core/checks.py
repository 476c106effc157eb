"""Checks at the doors of the program: they fail early and say expected, got and where."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ritornello.core.errors import ShapeError


def check_array(
    name: str, array: np.ndarray, shape: Sequence[int], dtype: np.dtype | str, where: str = ""
) -> None:
    """Raise ShapeError unless `array` has exactly this shape and dtype.

    Args:
      name: what the array is called in messages.
      array: the array to check.
      shape: expected shape.
      dtype: expected dtype.
      where: where the array came from, e.g. "unroll of worker 3, env 1, seq 118".
    """
    origin = f": {where}" if where else ""
    if tuple(array.shape) != tuple(shape):
        raise ShapeError(f"{name} has shape {tuple(array.shape)}, expected {tuple(shape)}{origin}.")
    if array.dtype != np.dtype(dtype):
        raise ShapeError(f"{name} has dtype {array.dtype}, expected {np.dtype(dtype)}{origin}.")


def check_finite(name: str, array: np.ndarray, where: str = "") -> None:
    """Raise ShapeError if a float array holds NaN or infinity; names the first bad index."""
    if np.issubdtype(array.dtype, np.floating) and not np.isfinite(array).all():
        index = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
        origin = f": {where}" if where else ""
        raise ShapeError(
            f"{name}{list(index)} is {array[index]}, expected a finite number{origin}."
        )
