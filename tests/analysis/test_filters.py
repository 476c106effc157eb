from __future__ import annotations

import csv
from types import SimpleNamespace

import pytest
import torch

from ritornello.analysis import filters, filters_images
from ritornello.analysis.filters import (
    checkpoint_files,
    load_training,
    main,
)
from ritornello.analysis.filters_images import preferred_images
from ritornello.analysis.playing import load_agent
from tests.agent.builders import make_small_model, make_spec
from tests.analysis.agents import write_agent

PONG = "PongNoFrameskip-v4"


@pytest.fixture(scope="module")
def agents(tmp_path_factory):
    """Two Pong agents of one kind with other weights, and one of another kind."""
    folder = tmp_path_factory.mktemp("agents")
    return [
        write_agent(folder / "one", env=PONG, seed=1, agent_steps=100),
        write_agent(folder / "two", env=PONG, seed=2, agent_steps=300),
        write_agent(folder / "nature", "--model=nature", env=PONG, seed=3),
    ]


def rows_of(folder):
    with (folder / "filters.csv").open() as file:
        return list(csv.DictReader(file))


@pytest.fixture(autouse=True)
def short_play(monkeypatch):
    monkeypatch.setattr(filters, "STRIDE", 1)
    monkeypatch.setattr(filters, "OBSERVATIONS", 16)
    monkeypatch.setattr(filters_images, "STEPS", 2)


def test_an_agent_is_itself_and_not_another(agents, tmp_path):
    one, two, nature = map(str, agents)
    others = f"--with={one},{two},{nature}"
    assert main([f"--load_model_url={one}", others, f"--output={tmp_path}"]) == 0
    rows = rows_of(tmp_path)
    by_pair = {(row["other"], row["layer"]): row for row in rows}
    for layer in ("convs.0", "convs.2"):
        same, other = by_pair[one, layer], by_pair[two, layer]
        assert float(same["default_distance"]) == 0
        assert float(same["optimal_distance"]) == pytest.approx(0, abs=1e-9)
        assert float(same["cka"]) == pytest.approx(1, abs=1e-5)
        assert float(other["default_distance"]) > float(other["optimal_distance"]) > 0.1
        # These are random networks too.
        baseline = by_pair[filters.BASELINE, layer]
        ratio = float(other["default_distance"]) / float(baseline["default_distance"])
        assert ratio == pytest.approx(1, abs=0.1)
        assert by_pair[nature, layer]["default_distance"] == "", "other shapes: activations alone"
        assert 0 < float(by_pair[nature, layer]["cka"]) < 1
    assert float(by_pair[one, "features"]["cka"]) == pytest.approx(1, abs=1e-5)
    assert by_pair[one, "features"]["default_distance"] == ""
    for name in ("distances", "cka", "cka_layers", "first_layer", "preferred_convs.0"):
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG"), name


def test_stacks_that_reach_over_a_reset_are_not_shown(agents, monkeypatch):
    resets = {0: [True] * 8, 5: [True] + [False] * 7}

    def play_three_ways(agent, envs, *, seed):
        for number in range(100):
            first = torch.tensor(resets.get(number, [False] * 8))
            obs = torch.full((8, 1), number) * 10 + torch.arange(8)[:, None]
            tasks = torch.zeros(8, dtype=torch.int64)
            yield SimpleNamespace(inputs=SimpleNamespace(obs=obs, first=first, task_id=tasks))

    monkeypatch.setattr(filters, "play_many", play_three_ways)
    seen = filters.played_observations(load_agent(str(agents[0])), 44).obs.flatten().tolist()
    # A stack is 4 frames: whole from the 4th on, and of environment 0 again from its 9th on.
    every = [10 * number + env for number in range(3, 10) for env in range(8)]
    assert seen == [x for x in every if x not in (50, 60, 70)][:44]


def test_checkpoints_are_those_of_the_whole_training(tmp_path):
    folder = tmp_path / "run" / "checkpoints"
    folder.mkdir(parents=True)
    for name in ("update_000000007.pt", "update_000000009.pt"):
        (folder / name).touch()
    assert names(checkpoint_files(str(tmp_path / "run"), 10)) == [
        "update_000000007.pt",
        "update_000000009.pt",
    ]
    for steps in range(1, 8):
        (folder / f"step_{steps:012d}.pt").touch()
    kept = names(checkpoint_files(str(tmp_path / "run"), 4))
    assert kept == [
        "step_000000000001.pt",
        "step_000000000003.pt",
        "step_000000000006.pt",
        "update_000000009.pt",
    ]
    # A milestone that is the latest checkpoint by another name is not taken twice.
    (folder / "step_000000000007.pt").unlink()
    (folder / "step_000000000007.pt").hardlink_to(folder / "update_000000009.pt")
    assert len(checkpoint_files(str(tmp_path / "run"), 100)) == 7
    assert checkpoint_files(str(folder / "update_000000007.pt"), 4) == [
        str(folder / "update_000000007.pt")
    ]


def names(paths):
    return [path.rsplit("/", 1)[1] for path in paths]


def test_each_checkpoint_meets_the_one_of_as_many_steps(agents, monkeypatch):
    from rich.progress import Progress

    one, two = load_agent(str(agents[0])), load_agent(str(agents[1]))
    monkeypatch.setattr(
        filters, "checkpoint_files", lambda url, limit: list(map(str, agents[1::-1]))
    )
    with Progress(disable=True) as progress:
        training = load_training("somewhere", 10, progress)
    assert [agent.agent_steps for agent in training] == [100, 300]
    pairs = list(filters._pairs([one, two], {"other": training}))
    met = [(agent.agent_steps, name, steps) for agent, _, name, steps in pairs]
    assert met == [(0, filters.BASELINE, 0), (100, "other", 100), (300, "other", 300)]
    pairs = list(filters._pairs([one, two], {}))[1:]
    assert [(agent.agent_steps, steps) for agent, _, _, steps in pairs] == [(100, 300), (300, 300)]


@pytest.mark.parametrize("normalise", [False, True, "each", "rare"])
def test_preferred_images_excite_their_own_filter(normalise):
    spec = make_spec((2, 36, 36), stacked=2)
    model = make_small_model(spec, name="impala_shallow", normalise_pixels=normalise)
    if normalise:
        model.observe(torch.randint(0, 128, (8, 2, 36, 36), dtype=torch.uint8))
    model.requires_grad_(False)
    conv = model.torso_net.convs[0]
    images = preferred_images(model, conv, steps=30, count=5)
    noise = preferred_images(model, conv, steps=0, count=5)
    assert images.shape == (5, 2, 36, 36)
    assert 0 <= images.min() < images.max() <= 255

    def excitement(pixels):
        return conv(pixels.round().to(torch.uint8)).mean((2, 3))[:, :5]

    own, before = excitement(images).diagonal(), excitement(noise).diagonal()
    assert (own > before + 0.1).all()
    assert (excitement(images).argmax(0) == torch.arange(5)).all(), "nobody else's image does more"
    assert not conv._forward_hooks
