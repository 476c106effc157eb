from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

from research.queue.plan import SHIPPED_QUEUE, load_queue
from research.tests.conftest import entry
from ritornello.core.errors import ConfigError
from ritornello.wrappers.extra_worlds import is_installed, world_of


def queue_of(path: Path, *entries: Any) -> Path:
    file = path / "queue.yaml"
    file.write_text(yaml.safe_dump(list(entries), sort_keys=False))
    return file


def test_runs_come_by_priority_then_seed_then_game_then_arm(tmp_path: Path) -> None:
    late = entry("late", priority=20)
    games = ["CartPole-v1", "Acrobot-v1"]
    arms: dict[str, Any] = {"b": {}, "a": {"lr": 0.1}}
    early = entry("early", priority=3, seeds=[2, 1], games=games, arms=arms, flags={"gamma": 0.9})
    runs = load_queue(queue_of(tmp_path, late, early)).runs
    assert [run.name for run in runs] == [
        "early/b_CartPole-v1_seed2",
        "early/a_CartPole-v1_seed2",
        "early/b_Acrobot-v1_seed2",
        "early/a_Acrobot-v1_seed2",
        "early/b_CartPole-v1_seed1",
        "early/a_CartPole-v1_seed1",
        "early/b_Acrobot-v1_seed1",
        "early/a_Acrobot-v1_seed1",
        "late/default_CartPole-v1_seed1",
    ]
    assert runs[1].arguments() == [
        "--gamma=0.9",
        "--lr=0.1",
        "--env=CartPole-v1",
        "--seed=2",
        "--environment_max_steps=1000",
    ]


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"name": "../elsewhere"}, "name"),
        ({"name": "trainer.json"}, "name: trainer.json is a file of the queue's own"),
        ({"priority": "soon"}, "priority"),
        ({"games": ["CartPole-v1", "CartPole-v1"]}, "twice"),
        ({"games": ["CartPole-v1", "six,"]}, "--env="),
        ({"seeds": [-1]}, "seeds.0"),
        ({"seeds": [1, 1]}, "twice"),
        ({"steps": 0}, "steps"),
        ({"arms": {"a_b": {}}}, "arms.a_b"),
        ({"arms": {"a": {}, "A": {}}}, "capitals"),
        ({"arms": {"a": {"seed": 3}}}, "a sets seed"),
        ({"flags": {"env": "x"}}, "flags sets env"),
        ({"flags": {"entropy": 1}}, "unknown option --entropy"),
        ({"arms": {"high": {"lr": -1}}}, "high: --lr=-1"),
        ({"arms": {"a": {"replay_parameters": [{"type": "heap"}]}}}, "heap"),
        ({"seed": 3}, "seed: Extra inputs"),
        ({"flags": {"run_name": "x"}}, "sets --run_name: the queue resumes a run in its folder"),
        ({"flags": {"stop_at_mean_return": 18}}, "sets --stop_at_mean_return: a run is done when"),
    ],
)
def test_a_mistake_is_named_with_its_place(
    tmp_path: Path, changes: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(ConfigError, match="queue.yaml") as caught:
        load_queue(queue_of(tmp_path, {**entry(), **changes}))
    assert complaint in str(caught.value)


def test_all_mistakes_are_told_at_once(tmp_path: Path) -> None:
    wrong = queue_of(tmp_path, entry("a", steps=0), entry("b", seeds=[]), entry("c"), entry("C"), 7)
    with pytest.raises(ConfigError) as caught:
        load_queue(wrong)
    text = str(caught.value)
    for part in ("a: steps", "b: seeds", "c: two experiments", "entry 5"):
        assert part in text


SHIPPED = {(run.experiment, run.arm, run.env): run for run in load_queue(SHIPPED_QUEUE).runs}


@pytest.mark.parametrize("key", sorted(SHIPPED), ids="-".join)
def test_every_run_of_the_shipped_queue_can_be_prepared(
    key: tuple[str, str, str], tmp_path: Path
) -> None:
    from ritornello.agent.session import prepare
    from ritornello.flags.earlier import modern

    run = SHIPPED[key]
    world = world_of(run.env)
    if world is not None and not is_installed(world):
        pytest.skip(f"needs {world.package}: {world.install}")
    if run.flags.get("multiprocessing_backend") == "ray" and find_spec("ray") is None:
        pytest.skip("Ray is not installed here: pip install -e '.[ray]'")
    # Memory for the buffers is a matter of the machine: compressed, it is not asked for.
    session = prepare(
        [*run.arguments(), f"--results_dir={tmp_path}", "--use_replay_compression=True"]
    )
    flags = session.blueprint.flags
    assert (flags.env, flags.seed, flags.environment_max_steps) == (run.env, run.seed, run.steps)
    for name, value in modern(run.flags).items():
        if name not in ("replay_parameters", "algorithm_kwargs", "optimizer_decay"):
            assert getattr(flags, name) == value
    assert list(tmp_path.iterdir()) == []
