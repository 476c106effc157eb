import json
import shutil

import numpy as np
import pytest
import torch

from ritornello.agent.session import prepare
from ritornello.agent.stored.checkpoint import load
from ritornello.agent.stored.checkpoint_writer import CheckpointWriter
from ritornello.analysis import features
from ritornello.analysis.features import game_points, main, pca
from ritornello.analysis.playing import load_agent
from ritornello.core.errors import ConfigError
from tests.agent.runs import QUEUE_AND_STANDARD, QUIET
from tests.analysis.agents import write_agent


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_pca_finds_the_axes_of_variance():
    flat = draw(200, 2) * torch.tensor([5.0, 1.0])
    rotation, _ = torch.linalg.qr(draw(6, 6, seed=1))
    points, variance_share = pca(flat @ rotation[:2] + 7)
    centred = flat - flat.mean(0)
    shares = centred.square().sum(0) / centred.square().sum()
    torch.testing.assert_close(variance_share, shares, atol=0.01, rtol=0)
    # Distances in the plane are what they were.
    apart = [torch.cdist(points, points) for points in (points, flat)]
    torch.testing.assert_close(*apart, atol=5e-3, rtol=1e-4)


@pytest.mark.parametrize("shape", [(7, 1), (1, 7), (1, 1)])
def test_one_feature_or_one_point_has_a_plane_too(shape):
    values = draw(*shape)
    points, variance_share = pca(values)
    assert points.shape == (shape[0], 2)
    torch.testing.assert_close(points[:, 0].abs(), (values - values.mean(0))[:, 0].abs())
    torch.testing.assert_close(points[:, 1], torch.zeros(shape[0]))
    assert variance_share.tolist() == pytest.approx([float(shape[0] > 1), 0.0])


def test_a_game_is_mapped_with_what_is_known_of_it(tmp_path):
    agent = load_agent(str(write_agent(tmp_path / "agent")))
    points = game_points(agent, 45)
    assert points.features.shape == (45, 256)
    assert points.age_unit == "agent steps"
    age, distance = points.colours["age"], points.colours["distance"]
    assert sorted(set(age)) == [0, 4, 8, 12, 16, 20]
    assert (distance[age == 0] == 0).all()
    assert (distance[age > 0] > 0).all()
    torch.testing.assert_close(
        agent.model.heads(points.features).value,
        torch.from_numpy(points.colours["value"]).float(),
    )


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A run whose checkpoint has the contents of its replay."""
    results = tmp_path_factory.mktemp("results")
    small = ["--env=CartPole-v1", "--seed=0", "--worker_count=1", "--envs_per_worker=2"]
    small += ["--device=cpu", "--r_f_steps=5", "--batch_size=4", "--environment_max_steps=400"]
    small += ["--reproducible=True", f"--replay_parameters={json.dumps(QUEUE_AND_STANDARD)}"]
    flags = [*QUIET, *small, f"--results_dir={results}"]
    assert prepare(flags).run() == 0
    (folder,) = results.iterdir()
    return folder


def test_a_replay_is_mapped_with_the_age_of_its_unrolls(saved, tmp_path, monkeypatch):
    monkeypatch.setattr(features, "POINTS", 12)
    output = tmp_path / "out"
    arguments = [f"--load_model_url={saved}", "--of=replay", f"--output={output}"]
    assert main([*arguments, "--buffer=standard"]) == 0
    data = np.load(output / "features_replay.npz")
    assert data["features"].shape == (12, 256)
    assert 0 <= data["age"].min() < data["age"].max() <= load(saved).updates
    assert data["age"][0] > data["age"][-1] == data["age"].min()
    assert (data["distance"] > 0).all()
    assert data["pca"].shape == (12, 2)
    facts = json.loads((output / "features_replay.json").read_text())
    assert facts["age_unit"] == "updates"
    assert (output / "features_replay.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(ConfigError, match=r"--buffer=elite: expected one that.*standard \(40"):
        main([*arguments, "--buffer=elite"])


def test_weights_and_replay_are_of_one_checkpoint_also_of_a_run_that_trains(saved, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(saved, run)
    agent, checkpoint = load_agent(str(run)), load(run)
    state = {**checkpoint.state, "tally": {"agent_steps": 9000, "updates": 900}}
    writer = CheckpointWriter(run / "checkpoints")
    writer.save(state, updates=900, agent_steps=9000, replay=checkpoint.load_replay())
    ages = features.replay_points(agent, 12, "standard").colours["age"]
    assert ages.max() <= checkpoint.updates


def test_what_has_no_replay_is_refused(tmp_path):
    folder = write_agent(tmp_path / "agent")
    with pytest.raises(ConfigError, match="model folder, which holds no replay"):
        main([f"--load_model_url={folder}", "--of=replay"])
