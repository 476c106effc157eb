"""What the agent is shown of worlds whose observations are no plain vector or image.

A view is chosen by the class of the environment and by what it shows, never by its id.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cv2
import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Space

from ritornello.core.errors import ConfigError
from ritornello.core.plain_data import shown

# Of MiniGrid's encoding of a cell, with some room: 11 kinds of objects, 6 colours, and a state (of
# a door, or the direction of an agent). A number beyond is an error rather than another cell.
CELL_VALUES = (12, 6, 4)
PIXELS = ("RGBImgObsWrapper", "RGBImgPartialObsWrapper")  # of MiniGrid: no cells, but a picture
POSITIONS = "SymbolicObsWrapper"  # of MiniGrid: other numbers than those of a cell

SCREEN_HEIGHT, SCREEN_WIDTH = 72, 128  # in pixels, as Sample Factory learns ViZDoom


def as_shown(env: gymnasium.Env) -> gymnasium.Env:
    """Return the environment with the view of its world, if that has one."""
    seen = getattr(env, "observation_space", None)
    parts = seen.spaces if isinstance(seen, Dict) else {}
    if _is_of("minigrid", env) and _is_box(parts.get("image")):
        return Grid(env)
    if _is_of("vizdoom", env) and _is_box(parts.get("screen")):
        return Screens(env)
    return env


def left_out_of(env: gymnasium.Env) -> tuple[str, ...]:
    """Return the names of the parts of an observation that a view leaves out."""
    return env.get_wrapper_attr("left_out") if env.has_wrapper_attr("left_out") else ()


def _is_of(package: str, env: gymnasium.Env) -> bool:
    """Whether an environment is of a class of a package, which need not be installed."""
    return any(each.__module__.split(".")[0] == package for each in type(env.unwrapped).__mro__)


def _is_box(space: Any) -> bool:
    return isinstance(space, Box) and len(space.shape) == 3


class Grid(gymnasium.ObservationWrapper):
    """Shows MiniGrid's `image` [h, w, 3], which is no picture but cells, as zeros and ones.

    Numbers for each cell that a wrapper has made are shown as they are, and so are the pixels and
    whatever else a wrapper has added. The `mission` is left out, unless a wrapper has made numbers
    of this text: in all levels but those of several missions it says the same each time.
    """

    def __init__(self, env: gymnasium.Env) -> None:
        """Wrap an environment of MiniGrid or BabyAI."""
        super().__init__(env)
        assert isinstance(env.observation_space, Dict)
        parts = env.observation_space.spaces
        self.left_out = tuple(name for name, one in parts.items() if _is_text(one))
        self._kept = tuple(name for name in parts if name not in self.left_out)
        seen = {name: parts[name] for name in self._kept}
        wrappers = _wrappers_of(env)
        self._encode: Callable[[np.ndarray], np.ndarray] | None = None
        if not wrappers & set(PIXELS):
            image = parts["image"]
            del seen["image"]
            assert isinstance(image, Box)
            is_cells = image.shape[2] == len(CELL_VALUES) and POSITIONS not in wrappers
            self._encode = ones_of_cells if is_cells else _flat
            low, high = (0.0, 1.0) if is_cells else (-np.inf, np.inf)
            seen["cells"] = Box(low, high, self._encode(np.zeros(image.shape, int)).shape)
        self.observation_space = Dict(seen)

    def observation(self, observation: Any) -> dict[str, Any]:
        """Return the parts that are shown; `cells` is float32 [h * w * 22] of zeros and ones."""
        seen = {name: observation[name] for name in self._kept}
        if self._encode is not None:
            seen["cells"] = self._encode(np.asarray(seen.pop("image")))
        return seen


def _wrappers_of(env: gymnasium.Env) -> set[str]:
    """Return the names of the classes of the wrappers around an environment."""
    names = set()
    while isinstance(env, gymnasium.Wrapper):
        names.add(type(env).__name__)
        env = env.env
    return names


def _is_text(space: Space) -> bool:
    return space.dtype is not None and space.dtype.kind == "U"


def _flat(image: np.ndarray) -> np.ndarray:
    return image.reshape(-1).astype(np.float32)


def ones_of_cells(image: np.ndarray) -> np.ndarray:
    """Return float32 zeros and ones [h * w * 22] of cells [h, w, 3].

    Raises:
      ConfigError: if a cell holds what this program does not know.
    """
    parts = []
    for values, count in zip(image.reshape(-1, len(CELL_VALUES)).T, CELL_VALUES, strict=True):
        if values.max(initial=0) >= count:
            raise ConfigError(
                f"a cell of MiniGrid holds {shown(int(values.max()))}, expected less than {count}: "
                "another version of the package than extra minigrid names? If a wrapper of yours "
                "shows pixels, put minigrid.wrappers.ImgObsWrapper around it."
            )
        parts.append(np.eye(count, dtype=np.float32)[values])
    return np.concatenate(parts, axis=1).reshape(-1)


class Screens(gymnasium.ObservationWrapper):
    """Shows ViZDoom's screen, scaled down, as one image.

    Its other observations (variables of the game, sound, texts on the screen) are left out: what a
    scenario needs of them is drawn on its screen.
    """

    def __init__(self, env: gymnasium.Env) -> None:
        """Wrap an environment of ViZDoom that shows a `screen` [H, W, C]."""
        super().__init__(env)
        assert isinstance(env.observation_space, Dict)
        parts = env.observation_space.spaces
        self.left_out = tuple(name for name in parts if name != "screen")
        shape = (SCREEN_HEIGHT, SCREEN_WIDTH, (parts["screen"].shape or ())[2])
        self.observation_space = Box(0, 255, shape, np.uint8)

    def observation(self, observation: Any) -> Any:
        """Return uint8 [72, 128, C], each pixel the mean over the area that it stands for."""
        size = (SCREEN_WIDTH, SCREEN_HEIGHT)
        scaled = cv2.resize(observation["screen"], size, interpolation=cv2.INTER_AREA)
        return scaled.reshape(self.observation_space.shape)
