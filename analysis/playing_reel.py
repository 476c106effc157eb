"""Moments of a game and maps of them, kept until all are seen; then drawn with one scale for all.

Colours that were scaled frame by frame would flicker, and make a calm frame look like a tense one.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from analysis.playing import Moment

# Peaks above this quantile of all peaks of a film are shown at full colour.
FULL_COLOUR_QUANTILE = 0.9
MOST_COVER = 0.8  # of a pixel by a colour; what is below stays visible


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
      frame: [H, W, 3] uint8.
      colour: [H, W, 3] float32 in [0, 1], black where the frame shall stay as it is.
    """
    strongest = colour.max(-1, keepdims=True)
    hue = colour / strongest.clip(min=np.finfo(np.float32).tiny)
    cover = MOST_COVER * strongest
    blended: np.ndarray = frame * (1 - cover) + 255 * hue * cover
    rounded: np.ndarray = blended.round().astype(np.uint8)
    return rounded
