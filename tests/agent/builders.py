"""Small batches and models for the tests of agent/; nothing here is symmetric on purpose."""

from dataclasses import replace
from functools import cache

import torch

from ritornello.agent.algorithms.batch import Batch
from ritornello.agent.distributions import distribution_of, masked
from ritornello.agent.learning.feed import BatchLayout, Feed, PackedBatch
from ritornello.agent.models.factory import ModelConfig, make_model
from ritornello.core.spec import CHOICE, NUMBERS, ActionPart, ActionSpec, EnvSpec
from ritornello.core.unroll import UnrollSchema
from ritornello.replay.item import Draw, Item

ANY_ACTIONS = {
    "one choice": ActionSpec((ActionPart(CHOICE, 3),)),
    "several choices": ActionSpec((ActionPart(CHOICE, 3), ActionPart(CHOICE, 2))),
    "numbers": ActionSpec((ActionPart(NUMBERS, 2),)),
    "a tuple": ActionSpec((ActionPart(NUMBERS, 2), ActionPart(CHOICE, 4), ActionPart(NUMBERS, 1))),
}


def make_spec(obs_shape=(6,), actions=3, stacked=1, masked=False):
    """A spec of so many actions, or of an `ActionSpec`."""
    is_choice = isinstance(actions, int)
    frame_shape = (obs_shape[0] // stacked, *obs_shape[1:])
    return EnvSpec(
        env_id="Test-v0",
        frame_shape=frame_shape,
        frame_dtype="uint8" if len(obs_shape) == 3 else "float32",
        frames_stacked=stacked,
        action_meanings=(
            tuple(f"ACTION{i}" for i in range(actions)) if is_choice else actions.meanings()
        ),
        action_repeat=1,
        action_parts=() if is_choice else actions.parts,
        has_action_mask=masked,
    )


def make_small_model(spec=None, *, tasks=1, popart=False, seed=0, **config):
    config = {"feature_count": 16, **config}
    spec = spec or make_spec()
    if tasks > 1:
        spec = replace(spec, env_id=",".join(f"Test-v{task}" for task in range(tasks)))
    return make_model(ModelConfig(**config), spec, popart, seed)


def make_batch(spec=None, *, steps=5, size=4, tasks=1, seed=0, state_count=0, **overrides):
    """A random batch; column 0 has a time-limit end, column 1 a termination, column 2 a lost life.

    The first half of the columns is online.
    """
    spec = spec or make_spec()
    draw = torch.Generator().manual_seed(seed)
    if spec.is_image:
        shape = (steps + 1, size, *spec.obs_shape)
        obs = torch.randint(0, 256, shape, dtype=torch.uint8, generator=draw)
    else:
        obs = torch.randn(steps + 1, size, *spec.obs_shape, generator=draw)
    first = torch.zeros(steps + 1, size, dtype=torch.bool)
    terminated = torch.zeros(steps, size, dtype=torch.bool)
    reward = torch.randn(steps, size, generator=draw) * 2
    first[2, 0] = True  # so step 1 of column 0 is a reset row, and step 0 was cut by time
    if size > 2:
        terminated[1, 1] = True
        first[3, 1] = True
        terminated[3, 2] = True
    reward[first[1:]] = 0
    if spec.action_parts:
        rows = torch.randn(steps + 1, size, spec.actions.param_count, generator=draw)
        drawn = distribution_of(spec.actions).sample(rows, draw)
        last_action, action = drawn, drawn[1:]
    else:
        action = torch.randint(0, spec.action_count, (steps, size), generator=draw)
        last_action = torch.cat([torch.arange(size)[None] % spec.action_count, action])
    batch = Batch(
        obs=obs,
        first=first,
        action=action,
        reward=reward,
        last_action=last_action,
        last_reward=torch.cat([torch.arange(size)[None] / 10 - 0.1, reward]),
        terminated=terminated,
        behaviour_params=torch.randn(steps, size, spec.actions.param_count, generator=draw),
        behaviour_value=torch.randn(steps, size, generator=draw),
        state=torch.randn(size, state_count, generator=draw),
        task_id=torch.arange(size) % tasks,
        version=torch.arange(size),
        age=torch.zeros(size, dtype=torch.int64),
        item=torch.arange(size) + 100 * seed,
        source=torch.zeros(size, dtype=torch.int64),
        is_online=torch.arange(size) < (size + 1) // 2,
        weight=torch.ones(size),
    )
    if spec.has_action_mask:
        batch = _with_masks(batch, spec.actions, draw)
    return replace(batch, **overrides)


def _with_masks(batch, actions, draw):
    """The batch in which some of each choice is allowed, and what was done is allowed."""
    shape = (batch.steps + 1, batch.size)
    parts = []
    for part in actions.parts:
        allowed = torch.rand(*shape, part.param_count, generator=draw) < 0.3
        if part.kind == CHOICE:  # and at least one
            one = torch.randint(part.count, shape, generator=draw)
            allowed |= torch.nn.functional.one_hot(one, part.count).bool()
        parts.append(allowed | (part.kind == NUMBERS))
    mask = torch.cat(parts, -1)
    behaviour = masked(batch.behaviour_params, mask[:-1])
    action = distribution_of(actions).sample(behaviour, draw)
    last_action = torch.cat([action[-1:], action])
    return replace(
        batch, action_mask=mask, behaviour_params=behaviour, action=action, last_action=last_action
    )


@cache
def _layout(spec, steps, state_count):
    schema = UnrollSchema(spec, steps, state_count=state_count)
    return schema, BatchLayout(schema)


def packed(batch, spec=None):
    """The same batch as a GPU gets it; of single frames only."""
    schema, layout = _layout(spec or make_spec(), batch.steps, batch.state.shape[1])
    rows = torch.zeros(batch.size, layout.nbytes, dtype=torch.uint8)
    records, end = rows.numpy(), layout.record_nbytes
    unroll = schema.unroll(records[:, :end])
    given = {name: tensor.numpy() for name, tensor in batch.tensors().items()}
    unroll.frames[...] = given["obs"].swapaxes(0, 1).reshape(unroll.frames.shape)
    by_row = ("first", "action", "reward", "terminated", "behaviour_params", "behaviour_value")
    for name in (*by_row, "action_mask"):
        if name in given:
            getattr(unroll, name)[...] = given[name].swapaxes(0, 1)
    unroll.last_action[...], unroll.last_reward[...] = (
        given["last_action"][0],
        given["last_reward"][0],
    )
    unroll.task_id[...], unroll.version[...] = given["task_id"], given["version"]
    if unroll.state is not None:
        unroll.state[...] = given["state"]
    for name, field in layout.of_draw.items():
        field.view(records[:, end:])[...] = given[name]
    return PackedBatch(layout, rows, batch.item)


def batch_of(schema, records):
    """The batch that the feed makes of records, all of them new."""
    draws = [Draw(Item(0, record, "none", 0, 0), 0, record, True) for record in records]
    return Feed(schema, torch.device("cpu")).compose(draws, 0)


def heads_of(model, batch):
    """What the model says of each row of a batch, started from the stored state."""
    hidden, _ = model.hidden(model.torso(batch.obs), batch.inputs(), batch.state)
    return model.heads(hidden, batch.task_id, batch.action_mask)


def sharpened(model, factor=100.0):
    """Make the policy differ clearly from uniform, so that ratios are clipped on both sides."""
    with torch.no_grad():
        model.policy_head.weight *= factor
    return model


def otherwise_at_resets(batch):
    """The batch in which other things happened at the reset rows."""
    rows = batch.reset_row
    assert rows.any()
    return replace(
        batch,
        action=torch.where(rows, (batch.action + 1) % 3, batch.action),
        reward=torch.where(rows, 77.0, batch.reward),
        behaviour_params=torch.where(rows.unsqueeze(-1), 5.0, batch.behaviour_params),
        behaviour_value=torch.where(rows, 99.0, batch.behaviour_value),
    )
