"""Environments that draw what no film can show; their first picture is a good one."""

from __future__ import annotations

from typing import ClassVar

import gymnasium
import numpy as np

from tests.fakes import CountingEnv


class DrawingEnv(CountingEnv):
    """Draws `pictures` black pictures, and then what it was made with."""

    metadata: ClassVar = {"render_modes": ["rgb_array"], "render_fps": 4}

    def __init__(self, later=None, pictures=1, render_mode=None):
        super().__init__(render_mode)
        self._later, self._left = later, pictures

    def render(self):
        self._left -= 1
        return np.zeros((32, 32, 3), np.uint8) if self._left >= 0 else self._later


LATER = {
    "tests/pictures-rgba-v0": np.zeros((32, 32, 4), np.uint8),
    "tests/pictures-none-v0": None,
}
IDS = tuple(LATER)

for _name, _later in LATER.items():
    gymnasium.register(_name, entry_point=DrawingEnv, kwargs={"later": _later})
