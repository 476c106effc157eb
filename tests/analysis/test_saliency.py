import json

import imageio.v3 as iio
import numpy as np
import pytest

from ritornello.analysis.saliency import Perturbation, main
from ritornello.core.errors import ConfigError
from tests.analysis.agents import write_agent
from tests.house import ROOT

PONG = f"--load_model_url={ROOT / 'models' / 'pong'}"


def film_of(folder, *options, status=0):
    """Run the command; return (frames of the film, raw maps, settings)."""
    assert main([PONG, f"--output={folder}", *options]) == status
    maps = dict(np.load(folder / "maps.npz"))
    settings = json.loads((folder / "settings.json").read_text())
    film = np.stack(list(iio.imiter(folder / "film.mp4", plugin="pyav")))
    return film, maps, settings


def test_a_film_and_its_maps_are_written(tmp_path):
    film, maps, settings = film_of(tmp_path, "--start=30", "--steps=6", "--density=12")
    assert film.shape == (6, 440, 320, 3)
    assert maps["policy"].shape == maps["value"].shape == (6, 7, 7)
    assert maps["logits"].shape == (6, 6)
    assert (maps["policy"].max((1, 2)) > 0).all()
    assert settings["start"] == 30
    assert settings["frames"] == 6
    assert settings["density_pixels"] == 12
    assert settings["radius_pixels"] == 5.0
    assert settings["agent_steps"] == 451882
    assert len(json.loads((tmp_path / "actions.json").read_text())["actions"]) == 36
    assert iio.imread(tmp_path / "still.png").shape == (440, 320, 3)


def test_another_agent_is_asked_about_the_same_states(tmp_path):
    options = ["--density=12", "--start=30"]
    film_of(tmp_path / "pong", "--steps=4", *options)
    actions = tmp_path / "pong" / "actions.json"
    fresh = write_agent(tmp_path / "fresh", env="PongNoFrameskip-v4")
    # As long as there are actions, not the 20 seconds that are the default.
    output = tmp_path / "fresh film"
    arguments = [f"--load_model_url={fresh}", f"--actions={actions}", f"--output={output}"]
    assert main([*arguments, *options]) == 0
    ours, theirs = (np.load(tmp_path / name / "maps.npz") for name in ("pong", "fresh film"))
    assert ours["action"].tolist() == theirs["action"].tolist()
    # A trained network's maps are not those of random weights.
    similar = [
        np.corrcoef(a.ravel(), b.ravel())[0, 1]
        for a, b in zip(ours["policy"], theirs["policy"], strict=True)
    ]
    assert np.mean(similar) < 0.8
    assert json.loads((output / "settings.json").read_text())["actions_replayed"] is True
    with pytest.raises(ConfigError, match="there are 34 actions"):
        main([*arguments, "--start=34"])


def test_ctrl_c_keeps_what_is_there(tmp_path, monkeypatch, capsys):
    asked = Perturbation.maps
    calls: list[int] = []

    def maps(self, *arguments):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return asked(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Perturbation, "maps", maps)
    film, arrays, settings = film_of(tmp_path, "--density=12", status=130)
    assert len(film) == len(arrays["policy"]) == settings["frames"] == 2
    assert "writing what is there" in capsys.readouterr().err
