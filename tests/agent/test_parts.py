from dataclasses import replace

import pytest
import torch

from ritornello.agent.models.factory import ModelConfig, make_model
from ritornello.agent.models.pixels import PixelStatistics
from ritornello.agent.models.vectors import VectorStatistics
from ritornello.core.errors import ConfigError
from ritornello.core.spec import EnvSpec, ObservationPart
from tests.agent.builders import batch_of
from tests.agent.runs import make_blueprint
from tests.agent.test_rollout import collect_records

PARTS = (
    ObservationPart("numbers", (3,), "float32"),
    ObservationPart("['far']", (2, 9, 7), "float32"),
    ObservationPart("['near']", (3, 40, 50), "uint8"),
)
NBYTES = sum(part.nbytes for part in PARTS)
SPEC = EnvSpec("Parts-v0", (NBYTES,), "uint8", 1, ("0", "1"), 1, (), PARTS)


def frames(count, seed=0, stacked=1):
    """Observations [count, stacked * bytes], their parts random."""
    draw = torch.Generator().manual_seed(seed)
    rows = []
    for part in PARTS:
        shape = (count, stacked, *part.shape)
        if part.dtype == "uint8":
            block = torch.randint(0, 256, shape, dtype=torch.uint8, generator=draw)
        else:
            block = torch.randn(shape, generator=draw) * 3 + 1
        rows.append(block.flatten(2).contiguous().view(torch.uint8))
    return torch.cat(rows, -1).flatten(1)


def changed(obs, part):
    """The same with the first number of one part changed."""
    obs = obs.clone()
    start = sum(p.nbytes for p in PARTS[: PARTS.index(part)])
    obs[:, start : start + 4] ^= 64
    return obs


def test_one_row_has_the_parts_that_it_has_among_others():
    """Also where its bytes are no multiple of those of a number: there a slice cannot be viewed."""
    parts = (PARTS[0], ObservationPart("odd", (1, 33, 33), "uint8"))
    count = sum(part.nbytes for part in parts)
    assert count % 4
    spec = EnvSpec("Odd-v0", (count,), "uint8", 1, ("0", "1"), 1, (), parts)
    torso = make_model(ModelConfig(feature_count=32), spec).torso_net
    obs = torch.randint(0, 63, (3, count), dtype=torch.uint8)
    for row in range(3):
        for one, among in zip(torso.parts(obs[row : row + 1]), torso.parts(obs), strict=True):
            assert torch.equal(one[0], among[row])
    torso.observe(obs[:0])  # of few short unrolls the statistics are shown nothing
    assert [part.shape for part in torso.parts(obs[:0])] == [(0, 3), (0, 1, 33, 33)]


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.name)
def test_every_part_changes_the_features(part):
    model = make_model(ModelConfig(feature_count=32), SPEC)
    obs = frames(4)
    features = model.torso(obs)
    assert features.shape == (4, 32)
    assert not torch.equal(model.torso(changed(obs, part)), features)


def test_each_part_has_statistics_of_its_own():
    model = make_model(ModelConfig(normalise_vectors=True), SPEC)
    found = model.unsettled()
    assert {number: type(statistics) for number, statistics in found.items()} == {
        0: VectorStatistics, 2: PixelStatistics,
    }  # fmt: skip
    obs = frames(50)
    model.observe(obs)
    vector, _, near = model.torso_net.parts(obs)
    torch.testing.assert_close(found[0].mean.float(), vector.mean(0))
    torch.testing.assert_close(found[2].mean, near.float().mean(0))
    kept = [statistics.snapshot() for statistics in found.values()]
    before = model.torso(obs)
    model.observe(frames(50, seed=1))
    assert not torch.equal(model.torso(obs), before)
    for restore in kept:
        restore()
    assert torch.equal(model.torso(obs), before)
    assert make_model(ModelConfig(normalise_pixels=False), SPEC).unsettled() == {}


@pytest.mark.parametrize(
    ("config", "spec", "told"),
    [
        (ModelConfig(name="mlp"), SPEC, "is for vectors.*Give an --env that shows vectors"),
        (ModelConfig(name="attention"), SPEC, "brings a memory that looks at one image"),
        (ModelConfig(name="nature"), SPEC, "needs larger frames"),
        (ModelConfig(), replace(SPEC, env_id="A-v0,B-v0"), "games that show several things"),
    ],
)
def test_what_does_not_fit_is_refused(config, spec, told):
    with pytest.raises(ConfigError, match=told):
        make_model(config, spec)


def test_the_learner_finds_what_was_acted_with_from_the_frames_it_is_handed():
    """Over stacks of frames that are cut at resets."""
    blueprint = make_blueprint(
        env="tests.worlds:tests/Sign-v0", frames_stacked=3, normalise_vectors=True,
        feature_out_layer_size=16,
    )  # fmt: skip
    blocks, _, _ = collect_records(blueprint, 3)
    model = blueprint.learner().model
    for block in blocks:
        batch = batch_of(blueprint.schema, block)
        assert batch.first[1:].any()
        with torch.no_grad():
            params = model.heads(model.torso(batch.obs)).params[:-1]
        torch.testing.assert_close(params, batch.behaviour_params, atol=1e-5, rtol=1e-4)
