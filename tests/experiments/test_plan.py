from __future__ import annotations

import datetime
import os
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from experiments.plan import SHIPPED_QUEUE, load_queue
from ritornello.core.errors import ConfigError
from ritornello.flags.parsing import parse
from ritornello.wrappers.extra_worlds import is_installed, world_of
from tests.experiments.conftest import entry

DATE = datetime.date(2026, 1, 1)
GAMES = ("Breakout", "Seaquest", "SpaceInvaders", "DemonAttack")
FOUR_GAMES = ",".join(f"{name}NoFrameskip-v4" for name in GAMES)


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
        ({"name": "a b"}, "name"),
        ({"name": ".."}, "name"),
        ({"name": ""}, "name"),
        ({"name": 3}, "name"),
        ({"name": "queue.lock"}, "name"),
        ({"name": "Trainer.Lock"}, "name"),
        ({"name": "trainer.json"}, "name: trainer.json is a file of the queue's own"),
        ({"name": "index.csv"}, "name"),
        ({"question": " "}, "question"),
        ({"what_counts": None}, "what_counts"),
        ({"priority": "soon"}, "priority"),
        ({"games": []}, "games"),
        ({"games": ["CartPole-v1", "CartPole-v1"]}, "twice"),
        ({"games": ["Pong v5"]}, "games.0"),
        ({"games": ["CartPole-v1", "six,"]}, "--env="),
        ({"seeds": []}, "seeds"),
        ({"seeds": [True]}, "seeds.0"),
        ({"seeds": [-1]}, "seeds.0"),
        ({"seeds": [1, 1]}, "twice"),
        ({"steps": 0}, "steps"),
        ({"steps": "many"}, "steps"),
        ({"arms": {}}, "arms"),
        ({"arms": {"a/b": {}}}, "arms.a/b"),
        ({"arms": {"a_b": {}}}, "arms.a_b"),
        ({"arms": {"a": {}, "A": {}}}, "capitals"),
        ({"arms": {"a": {"seed": 3}}}, "a sets seed"),
        ({"flags": {"env": "x"}}, "flags sets env"),
        ({"flags": {"savedir": "x"}}, "flags sets savedir"),
        ({"flags": {"entropy": 1}}, "unknown option --entropy"),
        ({"arms": {"high": {"lr": -1}}}, "high: --lr=-1"),
        ({"arms": {"a": {"replay_parameters": [{"type": "heap"}]}}}, "heap"),
        ({"seed": 3}, "seed: Extra inputs"),
        ({"flags": {"run_name": "x"}}, "sets --run_name: the queue resumes a run in its folder"),
        ({"arms": {"a": {"xpid": "x"}}}, "first, a: sets --run_name"),
        ({"flags": {"stop_at_mean_return": 18}}, "sets --stop_at_mean_return: a run is done when"),
        ({"flags": {"lr": DATE}}, "flags: lr holds datetime.date(2026, 1, 1)"),
        ({"arms": {"a": {"replay_parameters": [{"type": DATE}]}}}, "a: replay_parameters holds"),
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


@pytest.mark.parametrize(
    "games",
    [
        ("ALE/Pong-v5", "ALE-Pong-v5"),
        ("CartPole-v1", "cartpole-v1"),
        (f"{FOUR_GAMES},AsterixNoFrameskip-v4", f"{FOUR_GAMES},AssaultNoFrameskip-v4"),
    ],
)
@pytest.mark.parametrize("kind", ["runs", "sequences"])
def test_two_games_that_would_share_a_run_folder_are_refused_by_their_names(
    tmp_path: Path, games: tuple[str, str], kind: str
) -> None:
    queued = entry(seeds=[1, 2], arms={"a": {}, "b": {}}, games=list(games))
    if kind == "sequences":
        queued = {key: queued[key] for key in ("name", "question", "what_counts", "priority")}
        queued |= {"sequence": "population_claim", "games": list(games)}
    with pytest.raises(ConfigError, match="run folder") as caught:
        load_queue(queue_of(tmp_path, queued))
    lines = str(caught.value).splitlines()[1:]
    assert len(lines) == 1, lines  # not one for each arm and seed
    assert all(repr(game) in lines[0] for game in games)


def test_a_flag_of_null_is_sent_as_no_value(tmp_path: Path) -> None:
    flags = {"entropy_end_weight": None, "charts": False}
    (run,) = load_queue(queue_of(tmp_path, entry(flags=flags))).runs
    assert run.arguments()[:2] == ["--entropy_end_weight=null", "--charts=False"]
    assert parse(run.arguments()).entropy_end_weight is None


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "expected a list"),
        ("name: x", "expected a list"),
        ("- [", "not valid YAML"),
        ("- {name: a, name: b}", "given twice"),
        ("- !!python/object/apply:os.system ['true']", "not valid YAML"),
        ("\x00", "not valid YAML"),
        ("- {lr: 2026-13-01}", "not valid YAML"),
    ],
)
def test_what_is_no_queue_is_one_readable_message(
    tmp_path: Path, text: str, complaint: str
) -> None:
    file = tmp_path / "queue.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=complaint):
        load_queue(file)


HUGE = "0x" + "f" * 5000  # Python writes no number of so many digits
# Each list names the one before it nine times: a few bytes for 43 million texts.
BOMB = "".join(f"- &{b} [{', '.join([f'*{a}'] * 9)}]\n" for a, b in pairwise("abcdefghi"))


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        (f"seeds: [{HUGE}]", "seeds.0: "),
        (f"seeds: [{2**63}]", "seeds.0: "),
        (f"steps: {HUGE}", "steps: "),
        (f"steps: -{HUGE}", "steps: "),
        (f"question: {HUGE}", "question: Input should be a valid string, got <a int that is too"),
        (f"question: [{HUGE}]", "question: Input should be a valid string, got "),
        (f"name: {HUGE}", "name: "),
        (f"games: [{HUGE}]", "games.0: "),
        (f"flags: {{lr: {HUGE}}}", "flags: lr holds a whole number"),
        (f"arms: {{a: {{lr: {HUGE}}}}}", "a: lr holds a whole number"),
        (f"? {HUGE}\n  : 1", "Keys should be strings"),
        ("question: *i", "question: Input should be a valid string, got [["),
        ("games: *i", "games.0: "),
        ("priority: *i", "priority: "),
        ("x: *i", "x: Extra inputs"),
        ('question: ["\\e[31m"]', r"got ['\x1b[31m']"),
        ('"\\e[31mx": 1', r"\x1b[31mx: Extra inputs"),
    ],
)
def test_what_cannot_be_shown_whole_is_named_in_a_short_line(
    tmp_path: Path, line: str, complaint: str
) -> None:
    file = tmp_path / "queue.yaml"
    key = line.partition(":")[0]
    queued = yaml.safe_dump({name: part for name, part in entry().items() if name != key})
    text = "".join(f"  {each}\n" for each in [*queued.splitlines(), line])
    file.write_text("- &a [x]\n" + BOMB + "-\n" + text)
    with pytest.raises(ConfigError, match="queue.yaml") as caught:
        load_queue(file)
    said = str(caught.value)
    assert complaint in said
    assert len(said) < 5000
    assert all(part.isprintable() for part in said.splitlines())


def test_a_queue_that_is_a_pipe_keeps_nobody_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "queue.yaml")
    with pytest.raises(ConfigError, match="not a regular file.*--queue="):
        load_queue(tmp_path / "queue.yaml")


def test_a_file_that_is_not_there_or_is_no_text(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read the queue .*nowhere.*--queue="):
        load_queue(tmp_path / "nowhere.yaml")
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\xfa")
    with pytest.raises(ConfigError, match=r"not text in UTF-8.*--queue="):
        load_queue(tmp_path / "binary.yaml")


SHIPPED = {(run.experiment, run.arm, run.env): run for run in load_queue(SHIPPED_QUEUE).runs}


@pytest.mark.parametrize("key", sorted(SHIPPED), ids="-".join)
def test_every_run_of_the_shipped_queue_can_be_prepared(
    key: tuple[str, str, str], tmp_path: Path
) -> None:
    from ritornello.agent.session import prepare

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
    for name, value in run.flags.items():
        if name != "replay_parameters":
            assert getattr(flags, name) == value
    assert list(tmp_path.iterdir()) == []
