"""The door of saved states: what this program saves goes through, and nothing fails behind it."""

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
from ritornello.agent.stored.replay_schema import QuotasState
from ritornello.agent.stored.state_schema import RunState, SpecState, check_part, restoring, section
from ritornello.core.errors import CheckpointError, ConfigError
from ritornello.core.spec import EnvSpec
from ritornello.replay.parameters import parse_replay_parameters
from ritornello.replay.quotas import Quotas
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
            learner.load_state_dict(checkpoint.state["learner"])
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


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
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
    except (CheckpointError, ConfigError) as error:
        message = str(error)
    assert message.replace("\n", "").isprintable()
    assert len(message) < 3000


@pytest.mark.parametrize(
    ("path", "value", "told"),
    [
        (("learner", "optimiser", "state", 0, "step"), None, r"state\['learner'\]\['optimiser'\]"),
        (("tally", "updates"), -1, r"state\['tally'\]\['updates'\].*got -1"),
        (("tally", "games", "tasks", 1, "window"), "x", r"\['tasks'\]\[1\]\['window'\]"),
        (("serial", "pool", "turn"), 7, r"the turn of worker 7 of 2"),
        (("serial", "pool", "rollouts", 0, "first"), np.zeros(9, np.uint8), "for 2 environments"),
        (("serial", "pool", "rollouts", 1, "last_action"), np.full(2, 99), "none of the"),
        (("replay", "mixer", "rng", "bit_generator"), "MT19937", r"\['rng'\]\['bit_generator'\]"),
        (("replay", "mixer", "share"), [3, 2], "share of replay between 0 and 1"),
        (("replay", "mixer", "quotas", "carry"), [10**9, 0, 0, -(10**9)] * 2, "less than a batch"),
        (("flags", "optimizer"), np.zeros(3), r"\['flags'\]\['optimizer'\]"),
        (("env_spec", "action_meanings"), [], r"\['action_meanings'\]"),
    ],
)
def test_the_message_names_the_place(
    tmp_path: Path,
    saved: Saved,
    path: tuple[Any, ...],
    value: Any,
    told: str,
) -> None:
    state, contents = saved
    file = written(tmp_path, changed(state, path, lambda _: value), contents)
    with pytest.raises(
        CheckpointError, match=rf"000001.pt is not what this program saves: .*{told}"
    ):
        load(file)


@pytest.mark.parametrize(
    ("path", "value", "told"),
    [
        (("contents", "items", "record_nbytes"), 7, "expected 7 bytes in unroll 0"),
        (("contents", "items", "codecs", 0), "zip", r"\['codecs'\]\[0\]"),
        (
            ("contents", "buffers", 1, "ids"),
            np.arange(900, 906),
            "each item once|is not there|as many",
        ),
        (("contents", "newest", 0), [0, 0, 10**6], "is not there"),
        (("contents", "buffers", 7, "priorities"), np.ones(99), "a priority above 0"),
        (("contents", "buffers", 7, "priorities"), np.zeros(4), "a priority above 0"),
        (("contents", "buffers", 7, "priorities"), np.full(4, np.nan), "a priority above 0"),
        (("contents", "buffers", 7, "priorities"), np.full(4, np.inf), "a priority above 0"),
        (("contents", "buffers", 7, "highest_priority"), math.nan, "highest_priority"),
        (("counters", "next_id"), 0, "yet to be given"),
        (("contents", "collected"), [], "for each buffer"),
    ],
)
def test_replay_contents_that_do_not_hold_together_are_refused_with_the_way_out(
    tmp_path: Path,
    saved: Saved,
    path: tuple[Any, ...],
    value: Any,
    told: str,
) -> None:
    state, contents = saved
    file = written(tmp_path, state, changed(contents, path, lambda _: value))
    with pytest.raises(CheckpointError, match=rf"({told}).*--load_replay=False"):
        load(file).load_replay()


def test_a_file_with_weights_alone_can_be_tested_but_not_resumed(
    tmp_path: Path, blueprint: Blueprint, saved: Saved
) -> None:
    state = {name: saved[0][name] for name in ("flags", "env_spec", "learner", "tally")}
    path = CheckpointWriter(tmp_path).save(state, updates=1, agent_steps=1)
    with pytest.raises(CheckpointError, match=r"no state\['replay'\]: there is nothing to resume"):
        check_session(load(path), blueprint)
    with pytest.raises(CheckpointError, match=r"no state\['a'\]\['b'\]"):
        section({"a": {"c": 1}}, "a", "b")


def test_values_are_shown_short_and_without_what_a_terminal_would_obey() -> None:
    with pytest.raises(ValueError, match="flags") as told:
        check_part(RunState, {"flags": "\x1b[2J" * 1000})
    assert str(told.value).isprintable()
    assert len(str(told.value)) < 300


def test_a_state_of_any_shares_of_replay_goes_through():
    ratios = (0.2718281, 0.1414213, 0.3141592, 0.1, 0.1725914)
    kinds = ("queue", "standard", "standard", "standard", "standard")
    configs = parse_replay_parameters(
        [
            {"type": kind, "capacity": 1000, "sample_ratio": ratio}
            for kind, ratio in zip(kinds, ratios, strict=True)
        ]
    )
    quotas = Quotas([config.sample_ratio for config in configs], 32)
    quotas.next()
    check_part(QuotasState, quotas.state_dict())


def test_an_environment_may_have_very_many_actions():
    actions = tuple(f"action {n}" for n in range(20_000))
    spec = EnvSpec("Towns-v0", (4,), "float32", 1, actions, 1)
    check_part(SpecState, spec.to_dict())
