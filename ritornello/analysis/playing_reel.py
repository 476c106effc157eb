"""Moments of a game and maps of them, kept until all are seen; then drawn with one scale for all.

Colours that were scaled frame by frame would flicker, and make a calm frame look like a tense one.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from ritornello.analysis.playing import Moment

# Peaks above this quantile of all peaks of a film are shown at full colour.
FULL_COLOUR_QUANTILE = 0.9
MOST_COVER = 0.8  # of a pixel by a colour; what is below stays visible
Light = tuple[float, float, float]  # of red, green and blue, each in [0, 1]
LEGEND_HEIGHT = 20  # pixels below a picture; even, as films must be
# Light of Okabe and Ito's colours, which everybody can tell apart; blue and yellow together are
# white, and neither is lost on the brown, black and green grounds of many games.
BLUE, YELLOW = (0.0, 0.64, 1.0), (1.0, 0.95, 0.28)
ORANGE, PINK = (1.0, 0.44, 0.0), (1.0, 0.59, 0.82)
WHITE = (1.0, 1.0, 1.0)


class Reel:
    """Moments in the order of the game."""

    def __init__(self) -> None:
        """Start empty."""
        self._frames: list[bytes] = []  # compressed: long films are large
        self._shape: tuple[int, ...] = ()
        self._rows: list[dict[str, Any]] = []

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, moment: Moment, maps: Mapping[str, np.ndarray]) -> None:
        """Keep one moment and the maps of it (name -> array of any shape)."""
        self._shape = moment.frame.shape
        self._frames.append(zlib.compress(moment.frame.tobytes(), 1))
        self._rows.append(
            {
                **maps,
                "logits": moment.heads.params[0].numpy(),
                "value_estimate": np.float32(moment.heads.value[0]),
                "action": moment.action,
                "reward": np.float32(moment.reward),
                "first": moment.first,
                "episode_return": np.float32(moment.episode_return),
            }
        )

    def frame(self, number: int) -> np.ndarray:
        """Return a frame [H, W, 3] uint8."""
        flat = np.frombuffer(zlib.decompress(self._frames[number]), np.uint8)
        return flat.reshape(self._shape)

    def arrays(self) -> dict[str, np.ndarray]:
        """Return everything but the frames, name -> [N, ...]."""
        return {name: np.stack([row[name] for row in self._rows]) for name in self._rows[0]}


def full_colour(maps: np.ndarray) -> float:
    """Return what is shown at full colour: a high quantile of the peaks of maps [N, h, w]."""
    peaks = maps.max((1, 2))
    return float(max(np.quantile(peaks, FULL_COLOUR_QUANTILE), np.finfo(np.float32).tiny))


def tinted(frame: np.ndarray, colour: np.ndarray) -> np.ndarray:
    """Return a frame with light laid over it, the stronger the more it covers.

    Blended rather than added: bright pixels have no room for more.

    Args:
      frame: picture of the game, [H, W, 3] uint8.
      colour: the light, [H, W, 3] float32 in [0, 1]; where it is black, the frame stays as it is.
    """
    strongest = colour.max(-1, keepdims=True)
    hue = colour / strongest.clip(min=np.finfo(np.float32).tiny)
    cover = MOST_COVER * strongest
    blended: np.ndarray = frame * (1 - cover) + 255 * hue * cover
    rounded: np.ndarray = blended.round().astype(np.uint8)
    return rounded


def with_legend(picture: np.ndarray, entries: Mapping[str, Light]) -> np.ndarray:
    """Return a picture with a line below it that says what its colours mean.

    Args:
      picture: the picture, [H, W, 3] uint8.
      entries: meaning -> the light that has it; at least one.

    Returns:
      [H + LEGEND_HEIGHT, W, 3] uint8.
    """
    import cv2  # lazily: only pictures need it

    strip = np.zeros((LEGEND_HEIGHT, picture.shape[1], 3), np.uint8)
    room = strip.shape[1] // len(entries)
    for number, (text, light) in enumerate(entries.items()):
        left = number * room + 4
        strip[5:15, left : left + 10] = np.array(light) * 255
        place = (left + 15, LEGEND_HEIGHT - 6)
        cv2.putText(strip, text, place, cv2.FONT_HERSHEY_SIMPLEX, 0.4, (230, 230, 230), 1)
    return np.concatenate([picture, strip])
