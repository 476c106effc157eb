"""Masses by position, and which position a number between 0 and their sum hits, in O(log n)."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Masses = NDArray[np.float64]
Positions = NDArray[np.intp]


class SumTree:
    """Non-negative masses at positions 0, 1, 2, ...; a position that was never set has mass 0.

    A binary tree in an array: node 1 is the root, the children of node i are 2i and 2i + 1, and the
    leaves are the positions. Each inner node is exactly the floating-point sum of its two children,
    so the tree is a function of its leaves alone, and a resume finds the same positions.
    """

    def __init__(self, masses: ArrayLike = ()) -> None:
        """Hold these masses, [n], at the positions from 0 on."""
        leaves = np.asarray(masses, np.float64)
        self._leaf_count = 1
        self._nodes: Masses = np.zeros(2)
        self._grow(len(leaves), leaves)

    @property
    def total(self) -> float:
        """The sum of all masses."""
        return float(self._nodes[1])

    def __getitem__(self, positions: ArrayLike) -> Masses:
        """Return the masses at some positions that have been set."""
        return np.asarray(self._nodes[self._leaf_count + np.asarray(positions, np.intp)])

    def set(self, position: int, mass: float) -> None:
        """Give one position a mass."""
        if position >= self._leaf_count:
            self._grow(position + 1, self._nodes[self._leaf_count :])
        nodes, node = self._nodes, self._leaf_count + position
        nodes[node] = mass
        while node > 1:
            node //= 2
            nodes[node] = nodes[2 * node] + nodes[2 * node + 1]

    def set_many(self, positions: ArrayLike, masses: ArrayLike) -> None:
        """Set the masses [k] of positions [k] that have one; of equal positions the last counts."""
        changed = self._leaf_count + np.asarray(positions, np.intp)
        self._nodes[changed] = masses
        while len(changed) and changed[0] > 1:  # all are of one level
            changed = np.unique(changed // 2)
            self._nodes[changed] = self._nodes[2 * changed] + self._nodes[2 * changed + 1]

    def find(self, targets: ArrayLike) -> Positions:
        """Return the position that each target hits, [k] -> [k]; none of them has mass 0.

        Targets lie between 0 and `total`. Position i is hit by the targets from the sum of the
        masses before it to the sum with its own. A target that rounding has put beyond the end hits
        the last position that has a mass.

        Raises:
          ValueError: if all masses are 0.
        """
        if not self.total > 0:
            raise ValueError("nothing can be found: all masses are 0.")
        left_over = np.array(targets, np.float64)
        node = np.ones(left_over.shape, np.intp)
        for _ in range(self._leaf_count.bit_length() - 1):
            left = self._nodes[2 * node]
            goes_right = (left_over >= left) & (self._nodes[2 * node + 1] > 0)
            left_over -= left * goes_right
            node = 2 * node + goes_right
        return node - self._leaf_count

    def _grow(self, count: int, leaves: Masses) -> None:
        """Make room for `count` positions, of which the first are `leaves`."""
        while self._leaf_count < count:
            self._leaf_count *= 2
        nodes = np.zeros(2 * self._leaf_count)
        nodes[self._leaf_count : self._leaf_count + len(leaves)] = leaves
        level = self._leaf_count
        while level > 1:
            below = nodes[level : 2 * level]
            level //= 2
            nodes[level : 2 * level] = below[::2] + below[1::2]
        self._nodes = nodes
