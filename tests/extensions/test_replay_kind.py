"""A replay kind is one class and one registration, in a file of one's own."""

import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from core.errors import ConfigError
from flag_help import help_text
from replay.buffer import Buffer
from replay.kinds import make_buffers, normal_form, parse_replay_parameters
from replay.registry import KINDS, kind_table, parameter_table, register
from replay.removers import Oldest
from replay.sampler import Sampler
from replay.samplers import Fifo, LeastDrawn
from tests.integration.commands import HANGS_S, QUIET, ROOT, SMALL, only_run, records
from tests.replay.builders import make_item, queue

EXAMPLE = Path(__file__).with_name("replay_kind.py")


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
    with pytest.raises(ConfigError, match="least_drawn, recent, custom"):
        parse_replay_parameters([{**queue(2), "type": "ancient"}])
    assert "| `recent` | any, the younger the likelier |" in kind_table()
    assert "| `half_life` | recent | number > 0 | 100 | Unrolls after" in parameter_table()


def test_it_draws_as_it_says(recent):
    buffer, rng = Buffer("recent", 3, recent(half_life=1.0), Oldest()), np.random.default_rng(0)
    for item_id in range(3):
        buffer.insert(make_item(item_id), rng)
    drawn = [item.id for item in buffer.propose(7000, 0.0, rng).items]
    assert np.bincount(drawn) / 7000 == pytest.approx([1 / 7, 2 / 7, 4 / 7], abs=0.03)


@pytest.mark.process
def test_it_trains_by_its_name_without_any_change_to_the_packages(tmp_path):
    """With worker processes, started as a user would; the resume needs it registered as well."""

    def started(program, *flags):
        return subprocess.run(
            [sys.executable, *program, f"--results_dir={tmp_path}", *QUIET, *flags],
            cwd=ROOT, capture_output=True, text=True, timeout=HANGS_S, check=False,
        )  # fmt: skip

    mine, plain = ("-m", "tests.extensions.replay_kind"), ("main.py",)
    parameters = f"--replay_parameters={json.dumps(given(half_life=20))}"
    done = started(mine, *SMALL, parameters, "--environment_max_steps=600", "--save_replay=True")
    assert done.returncode == 0, done.stdout + done.stderr
    folder = only_run(tmp_path)
    flags = json.loads((folder / "flags.json").read_text("utf-8"))
    assert flags["replay_parameters"][1]["half_life"] == 20
    drawn = records(folder)[-1]["values"]["replay/recent/draws"]
    assert drawn > 10

    resume = ("--op_mode=train_w_load", f"--load_model_url={folder}")
    more = "--environment_max_steps=900"
    refused = started(plain, *resume, more)
    assert refused.returncode == 2
    assert "A kind of your own must be registered first" in refused.stderr
    done = started(mine, *resume, more)
    assert done.returncode == 0, done.stdout + done.stderr
    assert records(folder)[-1]["values"]["replay/recent/draws"] > drawn


def test_the_help_text_knows_the_kinds_that_are_registered_before_it():
    code = "import tests.extensions.replay_kind, flag_help; print(flag_help.help_text('replay'))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True,
        timeout=HANGS_S, check=True,
    )  # fmt: skip
    assert "least_drawn|recent|custom" in "".join(done.stdout.split())  # wherever lines break
    assert "least_drawn|custom" in "".join(help_text("replay").split())


def test_the_documentation_shows_it():
    text = (ROOT / "docs" / "replay.md").read_text("utf-8")
    code = EXAMPLE.read_text("utf-8").split('"""\n\n', 1)[1]
    assert f"```python\n{code}```" in text


class Nameless(Sampler):
    """Nothing is wrong with it but what a test says."""


class Consuming(Nameless):
    consumes = True


class Colliding(Nameless):
    keys: ClassVar = {"capacity": LeastDrawn.keys["alfa_annealing_factor"]}


class Unbuildable(Nameless):
    keys: ClassVar = {"speed": LeastDrawn.keys["alfa_annealing_factor"]}


@pytest.mark.parametrize(
    ("name", "sampler", "message"),
    [
        ("my kind", Nameless, "cannot be called 'my kind'"),
        ("Mine", Nameless, "small letters"),
        ("", Nameless, "cannot be called"),
        ("custom", Nameless, "and not custom"),
        ("elite", Nameless, "is replay.samplers.Elite already"),
        ("mine", Consuming, "which is the queue's alone"),
        ("mine", Fifo, "which is the queue's alone"),
        ("mine", object, "expected a subclass of"),
        ("mine", Colliding, "has the keys capacity, which all"),
        ("mine", Unbuildable, "cannot be built from its keys .speed.: .*arguments"),
    ],
)
def test_what_cannot_be_a_kind_is_refused_when_it_is_registered(kinds, name, sampler, message):
    before = dict(kinds)
    with pytest.raises(ConfigError, match=message):
        register(name, sampler)
    assert kinds == before


def test_the_same_class_may_be_registered_again(recent, kinds):
    """As in a notebook, in which a cell is run twice."""
    again = type("Recent", (recent,), {"__module__": recent.__module__, "__qualname__": "Recent"})
    register("recent", again)
    assert kinds["recent"] is again
