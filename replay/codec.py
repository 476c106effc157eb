"""How a record is kept in memory: as it is, or compressed.

A record is encoded once, when an unroll arrives, and decoded each time it is drawn, outside the
manager's lock. lz4 lets go of the interpreter lock meanwhile.
"""

from __future__ import annotations

from typing import Protocol

import lz4.frame
import numpy as np
from numpy.typing import NDArray

from ritornello.core.errors import ConfigError
from ritornello.core.unroll import Record

Payload = NDArray[np.uint8]

LZ4_LEVELS = range(-64, 17)  # below 0: faster and larger; 3 and above: slower and smaller


class Codec(Protocol):
    """Encodes records. Stateless, so any thread may use it."""

    @property
    def name(self) -> str:
        """The name in flags and checkpoints."""
        ...

    def encode(self, record: Record) -> Payload:
        """Return a copy of `record` `[nbytes]` that shares no memory with it."""
        ...

    def decode(self, payload: Payload) -> Record:
        """Return the record `[nbytes]`, read-only; it may share memory with the payload."""
        ...

    def decoded_nbytes(self, payload: Payload) -> int:
        """Return how long the record is by what the payload says; -1 if it is no payload."""
        ...


class Plain:
    """Keep the bytes as they are: one memory copy in, none out."""

    name = "none"

    def encode(self, record: Record) -> Payload:
        """Copy the record."""
        return np.array(record, np.uint8, order="C", copy=True)

    def decode(self, payload: Payload) -> Record:
        """Return a read-only view of the payload."""
        return _read_only(payload.view())

    def decoded_nbytes(self, payload: Payload) -> int:
        """Return the length of the payload."""
        return len(payload)


class Lz4:
    """Compress with LZ4: Atari frames get 20 to 50 times smaller, in some 0.1 ms per unroll."""

    name = "lz4"

    def __init__(self, level: int = 0) -> None:
        """Choose the level, 0 is LZ4's own default; ConfigError if lz4 knows no such level."""
        if level not in LZ4_LEVELS:
            raise ConfigError(
                f"lz4 compression level is {level}, expected {LZ4_LEVELS[0]} to {LZ4_LEVELS[-1]}."
            )
        self.level = level

    def encode(self, record: Record) -> Payload:
        """Compress the record."""
        squeezed = lz4.frame.compress(
            np.ascontiguousarray(record), compression_level=self.level, return_bytearray=True
        )
        return np.frombuffer(squeezed, np.uint8)

    def decode(self, payload: Payload) -> Record:
        """Decompress into fresh memory."""
        restored = lz4.frame.decompress(payload, return_bytearray=True)
        return _read_only(np.frombuffer(restored, np.uint8))

    def decoded_nbytes(self, payload: Payload) -> int:
        """Return the length that the header says."""
        try:
            return int(lz4.frame.get_frame_info(payload[:32].tobytes())["content_size"])
        except (RuntimeError, KeyError):
            return -1


def make_codec(name: str, level: int = 0) -> Codec:
    """Return the codec called `name`: none or lz4 (with its compression level).

    Raises:
      ConfigError: if there is no such codec.
    """
    if name == Plain.name:
        return Plain()
    if name == Lz4.name:
        return Lz4(level)
    raise ConfigError(f"replay codec is {name!r}, expected 'none' or 'lz4'.")


def _read_only(array: Record) -> Record:
    array.flags.writeable = False
    return array
