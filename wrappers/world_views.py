"""What the agent is shown of worlds whose observations are no plain vector or image.

A view is chosen by the class of the environment and by what it shows, never by its id.
"""

from __future__ import annotations

from typing import Any

import cv2
import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, Space

from ritornello.core.errors import ConfigError
from ritornello.core.plain_data import shown

# Of MiniGrid's encoding of a cell, with some room: 11 kinds of objects, 6 colours, and a state (of
# a door, or the direction of an agent). A number beyond is an error rather than another cell.
CELL_VALUES = (12, 6, 4)
PIXELS = ("RGBImgObsWrapper", "RGBImgPartialObsWrapper")  # of MiniGrid: no cells, but a picture
POSITIONS = "SymbolicObsWrapper"  # of MiniGrid: other numbers than those of a cell

SCREEN_HEIGHT, SCREEN_WIDTH = 72, 128  # in pixels, as Sample Factory learns ViZDoom


def as_shown(env: gymnasium.Env) -> gymnasium.Env:
    """Return an environment as it is learned from, if its world has a view of its own."""
    seen = getattr(env, "observation_space", None)
    parts = seen.spaces if isinstance(seen, Dict) else {}
    if _is_of("minigrid", env) and _is_box(parts.get("image")):
        plain = WithoutTexts(env)
        return plain if wrappers_of(env) & set(PIXELS) else CellsAsVector(plain)
    if _is_of("vizdoom", env) and _is_box(parts.get("screen")):
        return Screens(env)
    return env


def left_out_of(env: gymnasium.Env) -> tuple[str, ...]:
    """Return which parts of an observation a view leaves out."""
    left_out: tuple[str, ...] = ()
    while isinstance(env, gymnasium.Wrapper):
        left_out += env.left_out if isinstance(env, (WithoutTexts, Screens)) else ()
        env = env.env
    return left_out


def wrappers_of(env: gymnasium.Env) -> set[str]:
    """Return the names of the classes of the wrappers around an environment."""
    names = set()
    while isinstance(env, gymnasium.Wrapper):
        names.add(type(env).__name__)
        env = env.env
    return names


def _is_of(package: str, env: gymnasium.Env) -> bool:
    """Whether an environment is of a class of a package, which need not be installed."""
    return any(each.__module__.split(".")[0] == package for each in type(env.unwrapped).__mro__)


def _is_box(space: Any) -> bool:
    return isinstance(space, Box) and len(space.shape) == 3


class WithoutTexts(gymnasium.ObservationWrapper):
    """Shows MiniGrid without its `mission`, a text, unless a wrapper has made numbers of it.

    In all of its own levels but those of several missions it says the same each time.
    """

    def __init__(self, env: gymnasium.Env) -> None:
        """Wrap an environment that shows a Dict."""
        super().__init__(env)
        seen = env.observation_space
        assert isinstance(seen, Dict)
        kept = {name: space for name, space in seen.spaces.items() if not _is_text(space)}
        self.left_out = tuple(name for name in seen.spaces if name not in kept)
        self.observation_space = Dict(kept)

    def observation(self, observation: Any) -> dict[str, Any]:
        """Return the other parts."""
        assert isinstance(self.observation_space, Dict)
        return {name: observation[name] for name in self.observation_space.spaces}


def _is_text(space: Space) -> bool:
    return space.dtype is not None and space.dtype.kind == "U"


class CellsAsVector(gymnasium.ObservationWrapper):
    """Shows MiniGrid as a vector: zeros with a one for each property of each cell in sight.

    MiniGrid shows `image` [h, w, 3], which is no picture but three numbers for each cell, and the
    agent's `direction`. Numbers for each cell that a wrapper has made are shown as they are, and so
    is what a wrapper has added.
    """

    def __init__(self, env: gymnasium.Env) -> None:
        """Wrap an environment of MiniGrid or BabyAI."""
        super().__init__(env)
        assert isinstance(env.observation_space, Dict)
        others = dict(env.observation_space.spaces)
        image = others.pop("image")
        assert isinstance(image, Box)
        is_cells = image.shape[2] == len(CELL_VALUES) and POSITIONS not in wrappers_of(env)
        width = int(np.prod(image.shape))
        if is_cells:
            width = width // len(CELL_VALUES) * sum(CELL_VALUES)
        self._encode = ones_of_cells if is_cells else _flat
        self._directions = 0
        if isinstance(others.get("direction"), Discrete):
            self._directions = int(others.pop("direction").n)  # type: ignore[attr-defined]
        low, high = (0.0, 1.0) if is_cells else (-np.inf, np.inf)
        vector = Box(low, high, (width + self._directions,), np.float32)
        self.observation_space = Dict({"cells": vector, **others}) if others else vector
        self._others = tuple(others)

    def observation(self, observation: Any) -> Any:
        """Return float32 [h * w * 22 + 4] of zeros and ones, beside what else is shown."""
        parts = [self._encode(np.asarray(observation["image"]))]
        if self._directions:
            parts.append(np.eye(self._directions, dtype=np.float32)[observation["direction"]])
        vector = np.concatenate(parts)
        others = {name: observation[name] for name in self._others}
        return {"cells": vector, **others} if others else vector


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
