import gc

import imageio.v3 as iio
import numpy as np
import pytest

from ritornello.metrics.film import Film, FilmError


def moving_square(count):
    frames = []
    for number in range(count):
        frame = np.full((48, 64, 3), 40, np.uint8)
        frame[8:24, number : number + 16] = (230, 40, 40)
        frames.append(frame)
    return frames


def write(path, frames):
    with Film(path, 15.0) as film:
        for frame in frames:
            film.add(frame)
    return path


def test_a_film_shows_its_frames_in_order(tmp_path):
    frames = moving_square(12)
    film = write(tmp_path / "new" / "film.mp4", frames)
    shown = list(iio.imiter(film, plugin="pyav"))
    assert len(shown) == 12
    for got, expected in zip(shown, frames, strict=True):
        assert np.abs(got.astype(int) - expected).mean() < 6  # the codec loses a little
    assert iio.immeta(film, plugin="pyav")["fps"] == 15.0


@pytest.mark.parametrize(
    "frame",
    [None, np.zeros((32, 32, 4), np.uint8), np.zeros((1, 1, 3), np.uint8), np.zeros(3, np.uint8)],
    ids=["none", "transparent", "tiny", "line"],
)
def test_what_is_no_picture_is_told_as_one_kind_of_error_and_leaves_no_film(tmp_path, frame):
    with pytest.raises(FilmError, match=r"film\.mp4 cannot be written: \w+Error"):
        write(tmp_path / "film.mp4", [*moving_square(2), frame])
    assert list(tmp_path.iterdir()) == []
    gc.collect()  # a destructor that tries once more would be told here


def test_a_film_that_an_error_cuts_short_replaces_none(tmp_path):
    path = write(tmp_path / "film.mp4", moving_square(2))
    before = path.read_bytes()

    def interrupted():
        with Film(path, 15.0) as film:
            film.add(moving_square(1)[0])
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    gc.collect()
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
