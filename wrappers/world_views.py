"""What the agent is shown of worlds whose observations are no plain vector or image."""

from __future__ import annotations

from typing import Any

import cv2
import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete

from ritornello.core.errors import ConfigError
from ritornello.core.plain_data import shown

# Of MiniGrid's encoding of a cell, with some room: 11 kinds of objects, 6 colours, and a state (of
# a door, or the direction of an agent). A number beyond is an error rather than another cell.
CELL_VALUES = (12, 6, 4)

SCREEN_HEIGHT, SCREEN_WIDTH = 72, 128  # in pixels, as Sample Factory learns ViZDoom


class SymbolsAsVector(gymnasium.ObservationWrapper):
    """Shows MiniGrid as a vector: zeros with a one for each property of each cell in sight.

    MiniGrid shows `image` [h, w, 3], which is no picture but three numbers for each cell, the
    agent's `direction`, and the `mission` as a text. The text is left out: in all of its own levels
    but those of several missions it says the same each time. Environments that show anything else
    (those of a wrapper of MiniGrid's, say) are passed on as they are.
    """

    def __init__(self, env: gymnasium.Env) -> None:
        """Wrap an environment of MiniGrid or BabyAI."""
        super().__init__(env)
        seen = env.observation_space
        parts = seen.spaces if isinstance(seen, Dict) else {}
        image, direction = parts.get("image"), parts.get("direction")
        self._is_symbolic = isinstance(image, Box) and isinstance(direction, Discrete)
        if not self._is_symbolic:
            return
        assert isinstance(image, Box)
        assert isinstance(direction, Discrete)
        self._shape = image.shape
        self._directions = int(direction.n)
        cells = int(np.prod(self._shape[:-1]))
        width = cells * sum(CELL_VALUES) + self._directions
        self.observation_space = Box(0.0, 1.0, (width,), np.float32)

    def observation(self, observation: Any) -> Any:
        """Return float32 zeros and ones, [h * w * 22 + 4].

        Raises:
          ConfigError: if a cell holds what this program does not know.
        """
        if not self._is_symbolic:
            return observation
        cells = np.asarray(observation["image"]).reshape(-1, len(CELL_VALUES))
        parts = []
        for values, count in zip(cells.T, CELL_VALUES, strict=True):
            if values.max(initial=0) >= count:
                raise ConfigError(
                    f"a cell of MiniGrid holds {shown(int(values.max()))}, expected less than "
                    f"{count}: another version of the package than extra minigrid names?"
                )
            parts.append(np.eye(count, dtype=np.float32)[values])
        direction = np.zeros(self._directions, np.float32)
        direction[int(observation["direction"])] = 1
        return np.concatenate([np.concatenate(parts, axis=1).reshape(-1), direction])


class Screens(gymnasium.ObservationWrapper):
    """Shows ViZDoom's screen, scaled down, as one image.

    Its other observations (variables of the game, sound, texts on the screen) are left out: what a
    scenario needs of them is drawn on its screen. Environments without a screen are passed on as
    they are.
    """

    def __init__(self, env: gymnasium.Env) -> None:
        """Wrap an environment of ViZDoom."""
        super().__init__(env)
        seen = env.observation_space
        screen = seen.spaces.get("screen") if isinstance(seen, Dict) else None
        self._has_screen = isinstance(screen, Box) and len(screen.shape) == 3
        if self._has_screen:
            assert isinstance(screen, Box)
            channels = screen.shape[2]
            self.observation_space = Box(0, 255, (SCREEN_HEIGHT, SCREEN_WIDTH, channels), np.uint8)

    def observation(self, observation: Any) -> Any:
        """Return uint8 [72, 128, C], each pixel the mean over the area that it stands for."""
        if not self._has_screen:
            return observation
        size = (SCREEN_WIDTH, SCREEN_HEIGHT)
        scaled = cv2.resize(observation["screen"], size, interpolation=cv2.INTER_AREA)
        return scaled.reshape(self.observation_space.shape)
