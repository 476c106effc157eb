"""A replay kind is one class and one registration, in a file of one's own."""

import importlib
import json
import sys
import uuid
from typing import ClassVar

import numpy as np
import pytest

from ritornello.core.errors import ConfigError
from ritornello.flags.options import Flags
from ritornello.flags.parsing import check_values, parse
from ritornello.replay.buffer import Buffer
from ritornello.replay.keys import Key
from ritornello.replay.parameters import (
    buffer_names,
    make_buffers,
    normal_form,
    parse_replay_parameters,
)
from ritornello.replay.registry import KINDS, register
from ritornello.replay.removers import Oldest
from ritornello.replay.sampler import Sampler
from ritornello.replay.samplers import LeastDrawn
from ritornello.replay.several_games import split_by_task
from ritornello.sequences.checks import check_runs, check_typed
from ritornello.sequences.plan import PlannedRun
from tests.replay.builders import make_item, queue

RECENT = "tests.extensions.replay_kind:recent"


@pytest.fixture
def kinds(monkeypatch):
    """The registry, put back afterwards."""
    before = dict(KINDS)
    yield KINDS
    KINDS.clear()
    KINDS.update(before)


@pytest.fixture
def recent(kinds):
    """The example, registered."""
    module = importlib.import_module("tests.extensions.replay_kind")
    register("recent", module.Recent)
    return module.Recent


def given(**more):
    return [queue(2, 0.5), {"type": "recent", "capacity": 50, "sample_ratio": 0.5, **more}]


def test_its_keys_checks_and_tables_follow_from_the_class(recent):
    configs = parse_replay_parameters(given(half_life=7, reservoir=True))
    assert make_buffers(configs, 0)[1].sampler.half_life == 7.0
    assert make_buffers(parse_replay_parameters(given()), 0)[1].sampler.half_life == 100.0
    normal = normal_form(configs)
    assert normal[1] == {**given()[1], "half_life": 7.0, "reservoir": True}
    assert parse_replay_parameters(json.dumps(normal)) == configs
    with pytest.raises(
        ConfigError, match="half_life of replay buffer 2 is -1, expected number > 0"
    ):
        parse_replay_parameters(given(half_life=-1))
    with pytest.raises(ConfigError, match="did you mean half_life"):
        parse_replay_parameters(given(halflife=3))
    with pytest.raises(ConfigError, match="queue, which has no half_life"):
        parse_replay_parameters([{**queue(2), "half_life": 3}])
    with pytest.raises(ConfigError, match="circular, recent, or"):
        parse_replay_parameters([{**queue(2), "type": "ancient"}])


def test_a_type_may_name_the_module_of_a_kind(recent):
    configs = parse_replay_parameters(given(type=RECENT, half_life=7))
    assert [buffer.name for buffer in make_buffers(configs, 0)] == ["queue", "recent"]
    normal = normal_form(configs)
    assert (normal[1]["type"], normal[1]["half_life"]) == (RECENT, 7.0)
    assert parse_replay_parameters(normal) == configs
    parts = split_by_task(configs, (1, 1))
    assert buffer_names(parts) == ["queue", "recent_0", "recent_1"]
    two = parse_replay_parameters(
        [queue(2, 0.5), *[{**given(type=RECENT)[1], "sample_ratio": 0.25}] * 2]
    )
    assert buffer_names(two) == ["queue", "recent", "recent_2"]
    for other in (
        "elsewhere:recent",
        "ritornello.replay.samplers:standard",
        "ritornello.replay.samplers:queue",
    ):
        with pytest.raises(ConfigError, match=f"is '{other}', expected .*or <module>:<name>"):
            parse_replay_parameters(given(type=other))


def test_it_draws_as_it_says(recent):
    buffer, rng = Buffer("recent", 3, recent(half_life=1.0), Oldest()), np.random.default_rng(0)
    for item_id in range(3):
        buffer.insert(make_item(item_id), rng)
    drawn = [item.id for item in buffer.propose(7000, 0.0, rng).items]
    assert np.bincount(drawn) / 7000 == pytest.approx([1 / 7, 2 / 7, 4 / 7], abs=0.03)


class Picky(Sampler):
    keys: ClassVar = {"span": Key("number > 0", 1.0, "Of age.", lambda value: value / (value > 0))}

    def __init__(self, span):
        self.least = {1.0: 1, 2.0: 0}[span]


@pytest.mark.parametrize(
    ("span", "told"),
    [
        (0, "span of replay buffer 2 is 0, expected number > 0.*raised ZeroDivisionError"),
        ("long", "span of replay buffer 2 is 'long', expected number > 0.*raised TypeError"),
        (3, "buffer picky cannot be made: picky raised KeyError.3.0. for .*'span': 3.0"),
    ],
)
def test_a_kind_that_cannot_be_made_of_a_value_is_told_with_it(kinds, span, told):
    register("picky", Picky)
    with pytest.raises(ConfigError, match=told):
        parse_replay_parameters(given(type="picky", span=span))


class Half(Sampler):
    scores = True

    def pool_size(self, n, progress):
        return 1.5 * n


def test_the_number_of_candidates_may_be_a_float():
    buffer, rng = Buffer("half", 9, Half(), Oldest()), np.random.default_rng(0)
    for item_id in range(9):
        buffer.insert(make_item(item_id), rng)
    assert [len(buffer.propose(n, 0.0, rng).items) for n in (2, 4, 8)] == [3, 6, 9]


MODULE = """
from ritornello.replay.registry import register
from ritornello.replay.sampler import Sampler

class Mine(Sampler):
    pass

register("{name}", Mine)
"""


@pytest.fixture
def module(tmp_path, monkeypatch, kinds):
    """A module on Python's path that registers a kind when it is imported."""
    name = f"kinds_{uuid.uuid4().hex}"  # of its own in each test: trust belongs to the process
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / f"{name}.py").write_text(MODULE.format(name="mine"))
    return name


def of(module, name="mine"):
    return json.dumps(given(type=f"{module}:{name}"))


def test_a_type_from_a_file_is_not_imported_and_one_that_was_typed_is(module, kinds):
    stored = {"env": "CartPole-v1", "replay_parameters": json.loads(of(module))}
    command = ["--op_mode=train_w_load", "--load_model_url=x"]
    expected = (
        f"replay_parameters is '{module}:mine', from x: .*"
        '"type": "<module>:<name>" in --replay_parameters yourself'
    )
    with pytest.raises(ConfigError, match=expected):
        parse(command, lambda *_: stored)
    with pytest.raises(ConfigError, match=f"replay_parameters is '{module}:mine'"):
        Flags(**stored)  # whoever reads flags past the command line
    assert module not in sys.modules
    assert parse(["--op_mode=test", "--load_model_url=x"], lambda *_: stored)
    assert module not in sys.modules
    flags = parse([*command, f"--replay_parameters={of(module)}"], lambda *_: stored)
    assert flags.replay_parameters[1]["type"] == f"{module}:mine"
    assert kinds["mine"].__module__ == module


def test_a_sequence_and_a_flags_file_may_not_name_a_kind_of_a_module(module, tmp_path):
    overrides, file = tmp_path / "overrides.json", tmp_path / "flags.json"
    for path, flag in ((overrides, "multi_train_overrides"), (file, "flags_file")):
        path.write_text(json.dumps({"replay_parameters": json.loads(of(module))}))
        with pytest.raises(ConfigError, match=f"replay_parameters is '{module}:mine', from"):
            parse([f"--{flag}={path}"])
    assert module not in sys.modules
    parse([f"--multi_train_overrides={overrides}", "--trust_env_module=True"])
    assert module in sys.modules


@pytest.mark.parametrize("typed", ["--trust_env_module=True", "--replay_parameters=OF"])
def test_a_plan_may_name_a_kind_that_was_typed_as_well(module, typed):
    flags = {"replay_parameters": json.loads(of(module))}
    run = PlannedRun("mine", 1, flags)
    with pytest.raises(ConfigError, match=f"replay_parameters is '{module}:mine', from plan.yaml"):
        check_runs([run], {}, "plan.yaml")
    check_typed([typed.replace("OF", of(module))])
    check_runs([run], {}, "plan.yaml")
    assert [line.split(":")[0] for line in check_values({**flags, "lr": "much"})] == ["--lr=much"]
    assert module not in sys.modules


class Nameless(Sampler):
    """Nothing is wrong with it but what a test says."""


class Consuming(Nameless):
    consumes = True


class Turning(Nameless):
    takes_turns = True


class Colliding(Nameless):
    keys: ClassVar = {"capacity": LeastDrawn.keys["alfa_annealing_factor"]}


class Unbuildable(Nameless):
    keys: ClassVar = {"speed": LeastDrawn.keys["alfa_annealing_factor"]}


@pytest.mark.parametrize(
    ("name", "sampler"),
    [
        ("my kind", Nameless),
        ("elite", Nameless),
        ("mine", Consuming),
        ("mine", Turning),
        ("mine", object),
        ("mine", Colliding),
        ("mine", Unbuildable),
    ],
)
def test_what_cannot_be_a_kind_is_refused_when_it_is_registered(kinds, name, sampler):
    before = dict(kinds)
    with pytest.raises(ConfigError, match="kind of replay"):
        register(name, sampler)
    assert kinds == before
