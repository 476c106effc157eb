import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ritornello.agent.learning.feed import Feed, restack, stale_frames
from ritornello.core.spec import CHOICE, NUMBERS, ActionPart, ActionSpec, EnvSpec
from ritornello.core.unroll import UnrollSchema
from ritornello.replay.item import Draw, Item
from tests.agent.builders import make_batch, make_spec, packed


def restack_loops(frames, first, depth):
    """Row by row: walk back from the newest frame, and stop at the row that starts an episode."""
    rows, size = first.shape
    stacks = np.zeros((rows, size, depth, *frames.shape[2:]), frames.dtype)
    for b in range(size):
        for t in range(rows):
            for back in range(depth):
                stacks[t, b, depth - 1 - back] = frames[t + depth - 1 - back, b]
                if t - back >= 0 and first[t - back, b]:
                    break
    return stacks.reshape(rows, size, depth * frames.shape[2], *frames.shape[3:])


@given(
    st.integers(1, 12),
    st.integers(2, 6).flatmap(
        lambda rows: st.lists(
            st.lists(st.booleans(), min_size=rows, max_size=rows), min_size=1, max_size=3
        )
    ),
)
def test_stacks_equal_the_plain_loop_and_never_reach_over_a_reset(depth, columns):
    first = np.array(columns).T  # [T+1, B]
    rows, size = first.shape
    draw = np.random.default_rng(0)
    frames = draw.integers(1, 255, (rows + depth - 1, size, 1, 2, 3), np.uint8)
    # Frames from before row 0 are cut by the environment itself if row 0 starts an episode.
    frames[: depth - 1, first[0]] = 0
    obs = restack(torch.from_numpy(frames), depth).numpy()
    stale = stale_frames(torch.from_numpy(first), depth).numpy()
    obs.reshape(rows, size, depth, 1, 2, 3)[stale] = 0
    np.testing.assert_array_equal(obs, restack_loops(frames, first, depth))


def make_draws(schema, count, first=None):
    records = schema.allocate(count)
    unroll = schema.unroll(records)
    draw = np.random.default_rng(1)
    unroll.frames[...] = draw.integers(1, 255, unroll.frames.shape)
    unroll.first[...] = False if first is None else first
    unroll.action[...] = draw.integers(0, 3, unroll.action.shape)
    for name in ("reward", "behaviour_params", "behaviour_value"):
        getattr(unroll, name)[...] = draw.standard_normal(getattr(unroll, name).shape)
    unroll.terminated[...] = draw.random(unroll.terminated.shape) < 0.5
    unroll.last_action[...] = 2 - np.arange(count) % 3
    unroll.last_reward[...] = np.arange(count) + 0.5
    if unroll.state is not None:
        unroll.state[...] = draw.standard_normal(unroll.state.shape)
    for name in ("worker_id", "seq", "task_id"):
        getattr(unroll, name)[...] = 0
    unroll.env_id[...] = np.arange(count)
    unroll.version[...] = 10 + np.arange(count)
    return [
        Draw(Item(i, r, "none", 10 + i, 20 + i), i % 2, r, i % 2 == 0, weight=1 / (1 + i))
        for i, r in enumerate(records)
    ]


def test_a_batch_has_every_field_of_every_draw_in_its_column():
    spec = EnvSpec("x", (1, 4, 5), "uint8", 3, ("a", "b", "c"), 4)
    schema = UnrollSchema(spec, 6)
    draws = make_draws(schema, 4)
    batch = Feed(schema, torch.device("cpu")).compose(draws, update=30)
    assert batch.obs.shape == (7, 4, 3, 4, 5)
    for b, draw in enumerate(draws):
        unroll = schema.unroll(draw.record)
        for name in ("action", "reward", "terminated", "behaviour_params", "first"):
            np.testing.assert_array_equal(getattr(batch, name)[:, b].numpy(), getattr(unroll, name))
    assert batch.version.tolist() == [10, 11, 12, 13]
    assert batch.age.tolist() == [10, 9, 8, 7]
    assert batch.source.tolist() == [0, 1, 0, 1]
    assert batch.is_online.tolist() == [True, False, True, False]
    torch.testing.assert_close(batch.weight, 1 / torch.arange(1.0, 5))


@pytest.mark.parametrize(
    "actions",
    [
        3,
        ActionSpec((ActionPart(CHOICE, 3), ActionPart(CHOICE, 2))),
        ActionSpec((ActionPart(NUMBERS, 1),)),
    ],
)
@pytest.mark.parametrize("masked", [False, True])
def test_actions_of_every_kind_and_their_masks_keep_their_shape_as_bytes(actions, masked):
    spec = make_spec(actions=actions, masked=masked)
    batch = make_batch(spec, state_count=2)
    unpacked = packed(batch, spec).unpacked().tensors()
    assert unpacked.keys() == batch.tensors().keys()
    for name, tensor in unpacked.items():
        torch.testing.assert_close(getattr(batch, name), tensor, rtol=0, atol=0)


@pytest.mark.gpu
def test_on_a_gpu_a_batch_is_that_of_the_cpu():
    schema = UnrollSchema(EnvSpec("x", (1, 4, 5), "uint8", 3, ("a", "b", "c"), 4), 6)
    first = np.zeros((4, 7), bool)
    first[1, 3] = True
    draws = make_draws(schema, 4, first)
    here = Feed(schema, torch.device("cpu")).compose(draws, update=30)
    there = Feed(schema, torch.device("cuda")).compose(draws, update=30).unpacked()
    for name, tensor in here.tensors().items():
        assert getattr(there, name).device.type == "cuda"
        torch.testing.assert_close(getattr(there, name).cpu(), tensor, rtol=0, atol=0)


@pytest.mark.gpu
def test_on_a_gpu_a_batch_is_not_overwritten_while_it_is_learned_from():
    schema = UnrollSchema(EnvSpec("x", (1, 4, 5), "uint8", 3, ("a", "b", "c"), 4), 6)
    feed = Feed(schema, torch.device("cuda"))
    batch = feed.compose(make_draws(schema, 4), update=30)
    expected = batch.packed.cpu()
    torch.cuda._sleep(2_000_000_000)  # cycles: about a second, in which the learner is busy
    learned = batch.packed.clone()
    del batch
    others = [feed.compose(make_draws(schema, 4), update=30) for _ in range(3)]
    with torch.cuda.stream(feed._stream):  # where the next batches are written, without waiting
        for other in others:
            other.packed.fill_(7)
    assert torch.equal(learned.cpu(), expected)


@pytest.mark.parametrize("env", ["PongNoFrameskip-v4", "BreakoutNoFrameskip-v4"])
def test_stacks_of_the_batch_are_the_ones_that_the_agent_saw(env):
    """Real games: rebuild the stacks of many unrolls and compare with what the actor was shown."""
    from ritornello.agent.acting.worker import WorkerBody
    from tests.agent.runs import make_blueprint
    from tests.agent.test_rollout import make_board

    blueprint = make_blueprint(
        env, r_f_steps=20, envs_per_worker=2, max_episode_frames=200, model="resnet",
        frame_scale_resolution=(42, 42),
    )  # fmt: skip
    body = WorkerBody(blueprint.workers()[0], make_board(blueprint))
    seen = []
    actor = body.rollout._lanes[0].actor.actor
    act = actor.act
    actor.act = lambda shown: (seen.append(shown.stacks.copy()), act(shown))[1]
    feed = Feed(blueprint.schema, torch.device("cpu"))
    resets = 0
    for _ in range(8):
        seen.clear()
        block = blueprint.schema.allocate(2)
        body.collect(block)
        draws = [Draw(Item(0, r, "none", 0, 0), 0, r, True) for r in block]
        batch = feed.compose(draws, 0)
        resets += int(batch.first.sum())
        shown = np.stack(seen).reshape(20, 2, 4, 42, 42)
        np.testing.assert_array_equal(batch.obs[:-1].numpy(), shown)
    assert resets > 4
    body.close()
