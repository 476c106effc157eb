"""An environment that draws what no film can show; its first picture is a good one."""

from typing import ClassVar

import gymnasium
import numpy as np

from tests.fakes import CountingEnv

RGBA = "tests/pictures-rgba-v0"


class DrawingEnv(CountingEnv):
    """Draws one black picture, and then pictures with a fourth channel."""

    metadata: ClassVar = {"render_modes": ["rgb_array"], "render_fps": 4}

    def __init__(self, render_mode=None):
        super().__init__(render_mode)
        self._channels = 3

    def render(self):
        picture = np.zeros((32, 32, self._channels), np.uint8)
        self._channels = 4
        return picture


gymnasium.register(RGBA, entry_point=DrawingEnv)
