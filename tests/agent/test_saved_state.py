"""Saved states: what this program saves is gone on from, and all else is refused in one message."""

from __future__ import annotations

import copy
import math
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from ritornello.agent.assembly import Blueprint
from ritornello.agent.learning.feed import Feed
from ritornello.agent.learning.learner import Learner
from ritornello.agent.learning.scorer import Scorer
from ritornello.agent.pools.serial_pool import SerialPool
from ritornello.agent.run.experience import Moment, Serial
from ritornello.agent.run.resume_checks import check_session
from ritornello.agent.run.tally import Tally
from ritornello.agent.stored.checkpoint import Checkpoint, CheckpointWriter, load
from ritornello.agent.stored.checkpoint_file import write_tree
from ritornello.agent.stored.checkpoint_tree import encode
from ritornello.agent.stored.model_file import check_weights
from ritornello.core.errors import CheckpointError, ConfigError, PlatformError
from ritornello.core.saved_state import StateError, restoring, within
from ritornello.core.spec import EnvSpec
from ritornello.transport.weights import WeightBoard
from tests.agent.runs import BOTH_GAMES, make_blueprint


class Saved(NamedTuple):
    """What one save writes, as trees."""

    state: dict[str, Any]
    contents: dict[str, Any]

    def __repr__(self) -> str:  # a failing example is shown with its arguments
        return "Saved(...)"


EVERY_BUFFER = [
    {"type": "queue", "capacity": 6, "sample_ratio": 0.25},
    {"type": "standard", "capacity": 10, "sample_ratio": 0.25},
    {"type": "attentive", "capacity": 8, "sample_ratio": 0.25},
    {"type": "elite", "capacity": 8, "sample_ratio": 0.125},
    {"type": "prioritised", "capacity": 8, "sample_ratio": 0.125},
]


def blueprint_of_everything(**values: Any) -> Blueprint:
    """Two games, memory, every kind of buffer, and games that can be put back where they were."""
    return make_blueprint(
        BOTH_GAMES, reproducible=True, worker_count=2, envs_per_worker=2, use_lstm=True,
        lstm_size=4, batch_size=8, training_fill_in_factor=0.01, replay_parameters=EVERY_BUFFER,
        **values,
    )  # fmt: skip


@contextmanager
def parts(blueprint: Blueprint) -> Iterator[tuple[Learner, Tally, Serial]]:
    """What a checkpoint is restored into."""
    learner, spec = blueprint.learner(), blueprint.env_spec
    board = WeightBoard(blueprint.acting_weights.nbytes)
    with board.write(0) as block:
        blueprint.acting_weights.pack(learner.model, block)
    tally = Tally(spec.action_repeat, 5, spec.tasks)
    feed = Feed(blueprint.schema, torch.device("cpu"))
    scorer = Scorer(
        blueprint.acting_model()[0], blueprint.acting_weights, board, blueprint.schema,
        torch.device("cpu"),
    )  # fmt: skip
    pool = SerialPool(blueprint.workers(), board)
    experience = Serial(pool, blueprint.replay(), feed, scorer.evaluate)
    try:
        yield learner, tally, experience
    finally:
        experience.close()
        board.close()


@pytest.fixture(scope="module")
def blueprint() -> Blueprint:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ritornello.wrappers.trusted_modules._trusted", {"tests.fakes"})
        return blueprint_of_everything(op_mode="train_w_load", load_model_url="here")


@pytest.fixture(scope="module")
def saved(blueprint: Blueprint) -> Saved:
    """The state of a run that has played and learned a little, and the contents of its buffers."""
    with (
        pytest.MonkeyPatch.context() as patch,
        parts(blueprint) as (learner, tally, experience),
    ):
        patch.setattr("ritornello.wrappers.trusted_modules._trusted", {"tests.fakes"})
        # Every parameter has had a gradient, as after an update.
        for parameter in learner.model.parameters():
            parameter.grad = torch.ones_like(parameter)
        learner.optimiser.step()
        experience.start()
        for _ in range(60):  # unrolls in every buffer, and a few batches
            experience.next_batch()
            for news in experience.news():
                tally.book_block(news.stats)
                for episode in news.episodes:
                    tally.book_game(episode)
        state = {
            "flags": blueprint.flags.to_json(),
            "env_spec": blueprint.env_spec.to_dict(),
            "learner": learner.state_dict(),
            "tally": tally.state_dict(),
            **experience.state_dict(),
        }
        return Saved(copy.deepcopy(state), copy.deepcopy(experience.replay_contents()))


def restored(checkpoint: Checkpoint, blueprint: Blueprint) -> None:
    """Go on from a checkpoint as a session does: every check, every loader, a few steps."""
    checkpoint.check_spec(blueprint.env_spec)
    check_weights(checkpoint, blueprint.learner().model)
    checkpoint = check_session(checkpoint, blueprint)
    contents = checkpoint.load_replay()
    with parts(blueprint) as (learner, tally, experience):
        with restoring("the run"):
            with within("learner"):
                learner.load_state_dict(checkpoint.state["learner"])
            with within("tally"):
                tally.load_state_dict(checkpoint.state["tally"])
            experience.load_state_dict(checkpoint.state, contents)
        experience.start()
        experience.advance(Moment(update=1))
        for _ in range(3):
            experience.next_batch()


def written(folder: Path, state: Mapping[str, Any], contents: Mapping[str, Any]) -> Path:
    """Write a state as a stranger can: with right checksums, whatever it holds."""
    path = folder / "update_000000001.pt"
    more = {"has_replay": True, "replay_file": "update_000000001.replay"}
    write_tree(path, encode({**more, **state}))
    write_tree(path.with_suffix(".replay"), encode(contents))
    return path


def test_what_this_program_saves_goes_through(
    tmp_path: Path, blueprint: Blueprint, saved: Saved
) -> None:
    state, contents = saved
    path = CheckpointWriter(tmp_path).save(state, updates=1, agent_steps=1, replay=contents)
    restored(load(path), blueprint)


# --- states that somebody has changed ------------------------------------------------------------

STRANGE: list[Any] = [
    None, True, -1, 0, 1, 2**40, 2**70, -(2**70), 0.5, math.nan, math.inf, "", "x" * 300, "lz4",
    "\x1b[2J", [], {}, (), [None], {"a": 1}, {0: 0}, [[1, 2], [3]], b"\xff" * 9,
    np.zeros(0, np.int64), np.arange(3), np.zeros((2, 2), np.float32), np.ones(7, np.uint8),
    np.array(5), torch.zeros(3), torch.ones(2, 2, dtype=torch.int64), torch.tensor(math.nan),
    torch.zeros(0), torch.zeros(3, dtype=torch.uint8),
]  # fmt: skip


def places(tree: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a tree, the leaves included, the root not."""
    children: list[tuple[Any, Any]] = []
    if isinstance(tree, dict):
        children = list(tree.items())
    elif isinstance(tree, (list, tuple)):
        children = list(enumerate(tree))
    for key, child in children:
        yield (*path, key)
        yield from places(child, (*path, key))


def changed(tree: Any, path: tuple[Any, ...], change: Callable[[Any], Any]) -> Any:
    """A copy of a tree with another value at a place; DROP leaves the place out."""
    key, *rest = path
    value = changed(tree[key], tuple(rest), change) if rest else change(tree[key])
    if isinstance(tree, dict):
        return {
            k: value if k == key else v for k, v in tree.items() if k != key or value is not DROP
        }
    items = [value if n == key else v for n, v in enumerate(tree) if n != key or value is not DROP]
    return type(tree)(items)


DROP = object()


def bent(value: Any, number: int) -> Any:
    """A value that is nearly the same."""
    if isinstance(value, bool) or value is None:
        return not value
    if isinstance(value, (int, float)):
        return value + (number % 7) - 3
    if isinstance(value, str):
        return value[:-1] + chr(65 + number % 26)
    if isinstance(value, (list, tuple)):
        items = [*value, *value[:1]] if number % 2 else list(value)[::-1]
        return type(value)(items)
    if isinstance(value, dict):
        return {**value, "more": number}
    if isinstance(value, torch.Tensor):
        return torch.from_numpy(np.array(bent(value.numpy(), number)))
    if isinstance(value, bytes):
        return value[1:]
    array = np.array(value)
    if not array.size:
        return array.reshape(0, 1)
    flat = array.reshape(-1).copy()
    if number % 3 == 0:
        flat = np.concatenate([flat, flat[:1]])
    elif array.dtype.kind in "iu":
        flat[number % flat.size] ^= 1 << (number % (8 * flat.itemsize - 1))
    else:
        flat = flat.astype(np.float64)
    return flat if number % 3 == 0 or flat.shape != array.shape else flat.reshape(array.shape)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32))
@example(seed=399)  # a buffer's name with such a character
@example(seed=5080773)  # an environment's name with a character that is not printable
def test_a_changed_state_is_gone_on_from_or_refused_with_a_message(
    seed: int,
    tmp_path: Path,
    blueprint: Blueprint,
    saved: Saved,
) -> None:
    chance = random.Random(seed)
    trees = dict(zip(("state", "contents"), saved, strict=True))
    for _ in range(chance.randint(1, 2)):
        name = chance.choice(sorted(trees))
        # Of many unrolls that are alike, a few are enough.
        where = [p for p in places(trees[name]) if p[-2:-1] != ("payloads",) or p[-1] < 3]
        changes = {
            "drop": lambda _: DROP,
            "strange": lambda _: chance.choice(STRANGE),
            "bend": lambda old: bent(old, chance.randrange(10**6)),
        }
        how = chance.choice(sorted(changes))
        trees[name] = changed(trees[name], chance.choice(where), changes[how])
    file = written(tmp_path, trees["state"], trees["contents"])
    message = ""
    try:
        restored(load(file), blueprint)
    except PlatformError as error:  # an environment may refuse what it is to play again
        message = str(error)
    assert message.replace("\n", "").isprintable()
    assert len(message) < 3000


@pytest.mark.parametrize(
    ("path", "value", "told"),
    [
        (("learner", "optimiser", "state", 0, "step"), None, r"\['optimiser'\]\['state'\]\[0\]"),
        (("learner", "optimiser", "state", 0, "exp_avg"), torch.ones(9), r"\['exp_avg'\]"),
        (("tally", "updates"), -1, r"\['tally'\]\['updates'\].*got -1"),
        (("tally", "games", "tasks", 1, "window"), "x", r"\['tasks'\]\[1\]\['window'\]"),
        (("tally", "steps_of_games"), [1.0], "the steps of each game"),
        (("serial", "pool", "turn"), 7, "a turn below 2"),
        (("serial", "pool", "rollouts", 0, "first"), np.zeros(9, np.uint8), r"\['first'\]"),
        (("serial", "pool", "rollouts", 1, "last_action"), np.full(2, 99), r"\['last_action'\]"),
        (
            ("serial", "pool", "rollouts", 1, "env", "parts", 0, "actions", 0),
            [99],
            r"\['actions'\]",
        ),
        (("serial", "pool", "rollouts", 1, "actor", "state"), torch.ones(2, 3), r"\['actor'\]"),
        (("serial", "waiting"), [3], r"\['waiting'\]\[0\]"),
        (("env_spec", "action_meanings"), [], r"\['action_meanings'\]"),
        (("flags", "optimizer"), np.zeros(3), r"\['flags'\]"),
        (("contents", "mixer", "rng", "bit_generator"), "MT19937", r"\['mixer'\]\['rng'\]"),
        (("contents", "mixer", "share"), [3, 2], "share of replay"),
        (("contents", "mixer", "quotas", "carry"), [10**9, 0, -(10**9)] * 3, "less than a batch"),
        (("contents", "mixer", "wanted"), [9] * 9, r"\['wanted'\]"),
        (("contents", "counters", "next_id"), 0, "a number"),
        (("contents", "contents", "items", "codecs", 0), "zip", r"\['items'\]|replay codec"),
        (("contents", "contents", "items", "payloads", 0), np.zeros(9, np.uint8), "bytes"),
        (("contents", "contents", "buffers", 1, "ids"), np.arange(900, 903), r"\['buffers'\]\[1\]"),
        (("contents", "contents", "newest", 0), [0, 0, 10**6], r"\['newest'\]"),
        (("contents", "contents", "collected"), [], "for each buffer"),
        (("contents", "contents", "buffers", 7, "priorities"), np.ones(99), r"\['priorities'\]"),
        (("contents", "contents", "buffers", 7, "priorities"), np.full(4, np.nan), "above 0"),
        (("contents", "contents", "buffers", 7, "highest_priority"), math.nan, "finite number"),
    ],
)
def test_the_message_names_the_place(
    tmp_path: Path, blueprint: Blueprint, saved: Saved, path: tuple[Any, ...], value: Any, told: str
) -> None:
    trees = saved._asdict()
    tree, *rest = path if path[0] == "contents" else ("state", *path)
    trees[tree] = changed(trees[tree], tuple(rest), lambda _: value)
    file = written(tmp_path, trees["state"], trees["contents"])
    with pytest.raises((CheckpointError, ConfigError), match=told) as refused:
        restored(load(file), blueprint)
    is_of_contents = isinstance(refused.value, CheckpointError) and tree == "contents"
    assert not is_of_contents or "--load_replay=False" in str(refused.value)


def test_a_file_with_weights_alone_can_be_tested_but_not_resumed(
    tmp_path: Path, blueprint: Blueprint, saved: Saved
) -> None:
    state = {name: saved[0][name] for name in ("flags", "env_spec", "learner", "tally")}
    path = CheckpointWriter(tmp_path).save(state, updates=1, agent_steps=1)
    with pytest.raises(CheckpointError, match="there is nothing to resume"):
        check_session(load(path), blueprint)


def test_values_are_shown_short_and_without_what_a_terminal_would_obey() -> None:
    with pytest.raises(StateError, match="env_id") as told:
        EnvSpec.from_dict({"env_id": ["\x1b[2J" * 1000]})
    with pytest.raises(StateError, match="frame_dtype") as more:
        EnvSpec.from_dict({"env_id": "A", "frame_shape": [1], "frame_dtype": "\x1b[2J" * 1000,
            "frames_stacked": 1, "action_meanings": ["up"], "action_repeat": 1})  # fmt: skip
    for error in (told, more):
        assert str(error.value).isprintable()
        assert len(str(error.value)) < 300
