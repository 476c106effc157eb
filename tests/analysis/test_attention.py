import json

import imageio.v3 as iio
import numpy as np
import pytest

from ritornello.analysis.attention import drawn, main
from ritornello.analysis.films import LEGEND_HEIGHT
from tests.analysis.agents import write_agent


@pytest.mark.slow
def test_a_film_of_the_maps_is_written(tmp_path):
    folder = write_agent(tmp_path / "agent", "--model=attention", env="PongNoFrameskip-v4")
    output = tmp_path / "film"
    arguments = [f"--load_model_url={folder}", f"--output={output}", "--start=3", "--steps=4"]
    assert main(arguments) == 0
    maps = np.load(output / "maps.npz")["maps"]
    assert maps.shape == (4, 4, 11, 11)
    np.testing.assert_allclose(maps.sum((2, 3)), 1.0, atol=1e-5)
    assert not np.allclose(maps[0], maps[3], atol=1e-5)
    film = np.stack(list(iio.imiter(output / "film.mp4", plugin="pyav")))
    assert film.shape == (4, 440, 320 + 4 + 320, 3)
    settings = json.loads((output / "settings.json").read_text())
    assert (settings["heads"], settings["cells"]) == (4, [11, 11])
    assert len(json.loads((output / "actions.json").read_text())["actions"]) == 7


def test_a_head_lights_up_what_it_looks_at():
    frame = np.full((20, 30, 3), 100, np.uint8)
    heat = np.zeros((3, 4, 6), np.float32)
    heat[0, 0, 0] = heat[1, 3, 5] = 1.0  # the third looks nowhere
    picture = drawn(frame, heat)
    assert picture.shape == (40 + LEGEND_HEIGHT, 60 + 4 + 60, 3)
    legend, picture = picture[40:], picture[:40]
    assert len({tuple(legend[10, 41 * head + 8]) for head in range(3)}) == 3
    together, panels = picture[:, :60], picture[:, 64:]
    # All heads: the first is blue at the top left, the second orange at the bottom right.
    assert together[2, 2].argmax() == 2
    assert together[37, 57].argmax() == 0
    assert (together[20, 30] == 100).all()
    # One panel each, dark elsewhere; an empty place where there is no fourth head.
    assert panels[2, 1, 0] == 100
    assert panels[15, 15, 0] == 20
    assert panels[18, 58, 0] == 100
    assert (panels[22:40, :30] == 20).all()
    assert (panels[20:, 30:] == 0).all()
