"""Moving pictures: MP4 files that grow frame by frame, and the layout of their frames.

A frame is an RGB picture `[H, W, 3]` uint8. Libraries are imported when a film is made.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from ritornello.core.errors import PlatformError
from ritornello.core.plain_data import shown_text


class FilmError(PlatformError):
    """A film cannot be written: no room, no library, or pictures of another kind."""


class Film:
    """An MP4 file that grows frame by frame under a hidden name, and gets its own after `with`.

    A file that has this name stays until then, and if an error cuts the film short. If the film
    cannot be written, FilmError is raised, and the part that was written is removed.
    """

    def __init__(self, path: Path, frames_per_s: float) -> None:
        """Prepare a film; its folder and file, an .mp4, are made on entering `with`."""
        self._path = path
        self._hidden = path.with_name(f".{path.name}")
        self._rate = frames_per_s
        self._writer: Any = None

    def __enter__(self) -> Film:
        with self._told():
            import imageio.v3 as iio  # lazily: only films need it

            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._hidden.unlink(missing_ok=True)  # of a killed process, or a link of somebody's
            self._writer = iio.imopen(self._hidden, "w", plugin="pyav")
            self._writer.init_video_stream("libx264", fps=self._rate)
        return self

    def add(self, frame: np.ndarray) -> None:
        """Append a frame, cut to even sizes as the codec wants them; all must be of one size."""
        with self._told():
            height, width = (size // 2 * 2 for size in frame.shape[:2])
            self._writer.write_frame(np.ascontiguousarray(frame[:height, :width]))

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if error is not None:
            self._give_up()
        elif self._writer is not None:
            with self._told():
                self._writer.close()
                os.replace(self._hidden, self._path)

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Turn an exception of the libraries, of whatever type, into a FilmError."""
        try:
            yield
        except Exception as error:
            self._give_up()
            told = shown_text(f"{type(error).__name__}: {' '.join(str(error).split())}")
            raise FilmError(f"the film {self._path} cannot be written: {told}.") from error

    def _give_up(self) -> None:
        writer, self._writer = self._writer, None
        if writer is None:
            return  # whatever has this name is not of this film
        with suppress(Exception):
            writer._video_stream = None  # what cannot be written is not tried again
            writer.close()
        with suppress(OSError):
            self._hidden.unlink(missing_ok=True)


def enlarged(picture: np.ndarray, factor: int) -> np.ndarray:
    """Return a picture [H, W, ...] with each pixel `factor` times as high and wide."""
    return picture.repeat(factor, axis=0).repeat(factor, axis=1)


def side_by_side(pictures: Sequence[np.ndarray], gap: int = 4) -> np.ndarray:
    """Return pictures [H, W, 3] uint8 of any sizes in one row, aligned at the top.

    Between them are `gap` black pixels; lower pictures are filled up with black.
    """
    height = max(picture.shape[0] for picture in pictures)
    padded = [
        np.pad(picture, ((0, height - picture.shape[0]), (0, gap), (0, 0))) for picture in pictures
    ]
    row: np.ndarray = np.concatenate(padded, axis=1)
    return row[:, : row.shape[1] - gap]
