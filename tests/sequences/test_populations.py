"""Runs at the same time, and agents that share their replay: begun together, hurt by nobody."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ritornello import multi_train
from ritornello.analysis.population import page, populations, write_population
from ritornello.core.errors import ConfigError
from ritornello.sequences.folder import RunState, SequenceFolder
from ritornello.sequences.plan import parse_plan
from ritornello.sequences.populations import AGENT_SEEDS
from ritornello.sequences.runner import Interrupts, run_sequence
from tests.integration.commands import HANGS_S

# Stands in for main.py. The environment id says what it does; it waits for others by their files.
FAKE_MAIN = """
import json, pathlib, signal, sys, time
arguments = dict(a[2:].partition("=")[::2] for a in sys.argv[1:])
flags = json.loads(pathlib.Path(arguments["multi_train_overrides"]).read_text())
print("arguments:", json.dumps(arguments), flush=True)
what, _, number = flags.get("run_as", "ok 1").partition(" ")
here = pathlib.Path(arguments["results_dir"])
resumed = arguments["op_mode"] == "train_w_load"
run = pathlib.Path(arguments.get("load_model_url", here / "Test-v0_20240101-000000"))
(run / "checkpoints").mkdir(parents=True, exist_ok=True)
(run / "flags.json").write_text(json.dumps(flags))
(run / "run.json").write_text("{}")
(run / "checkpoints" / "update_000000010.pt").write_text("")
with open(run / "metrics.jsonl", "a") as file:
    for steps in (100, 200):
        values = {"episode/return_mean": steps / 10, "episode/return_best": 30.0}
        values["share/foreign_drawn_fraction"] = 0.66
        values["share/agent_0/trusted_fraction"] = 0.25
        values["share/agent_0/lost"] = 12
        file.write(json.dumps({"agent_steps": steps, "frames": steps, "updates": steps,
            "episodes": 1, "wall_s": steps, "values": values}) + "\\n")
(here / "begun").write_text("")
if "share_replay_in" in arguments:
    pathlib.Path(arguments["share_replay_in"]).mkdir(exist_ok=True)
if what == "fail" and not resumed:
    sys.exit("this one fails")
if what == "together" and not resumed:
    ends = time.monotonic() + 120
    while len(list(here.parent.glob("*_seed" + here.name[-1] + "/begun"))) < int(number):
        if time.monotonic() > ends:
            sys.exit("the others did not begin")
        time.sleep(0.01)
if what == "wait" and not resumed:
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    (here / "ready").write_text("")
    signal.sigwait([signal.SIGINT])
    (run / "checkpoints" / "update_000000030.pt").write_text("clean")
    sys.exit(130)
"""


@pytest.fixture(autouse=True)
def _fake_main(use_main: Callable[[str], None]) -> None:
    use_main(FAKE_MAIN)


def begin(tmp_path: Path, *doings: str, **more: Any) -> SequenceFolder:
    runs = [{"name": f"r{n}", "flags": {"run_as": doing}} for n, doing in enumerate(doings)]
    plan = parse_plan({"runs": runs, **more}, default_name="test", where="test")
    return SequenceFolder.create(tmp_path / "results", plan, [])


def statuses(folder: SequenceFolder) -> list[str]:
    saved = SequenceFolder.open(folder.path)
    assert saved.runs == folder.runs, "the file and the memory disagree"
    assert saved.at_once == folder.at_once
    return [run.status for run in saved.runs]


def arguments_of(folder: SequenceFolder, index: int) -> list[dict[str, str]]:
    text = (folder.path / folder.runs[index].name / "output.log").read_text()
    return [json.loads(found) for found in re.findall(r"^arguments: (.*)$", text, re.MULTILINE)]


def parsed(**data: Any) -> Any:
    return parse_plan(data, default_name="p", where="here")


# --- plans -------------------------------------------------------------------------------------


def test_the_groups_are_the_agents_of_a_population_for_each_seed() -> None:
    plan = parsed(seeds=[1, 2], share_replay=True, grid={"lr": [0.1, 0.2, 0.3]})
    assert plan.at_once == 3
    assert [(run.seed, run.agent) for run in plan.runs] == [
        (s, a) for s in (1, 2) for a in range(3)
    ]
    # Agents with one seed would begin with the same weights and play the same games.
    seeds = [run.flags["seed"] for run in plan.runs]
    assert seeds == [s + a * AGENT_SEEDS for s in (1, 2) for a in range(3)]


def test_some_runs_share_and_the_others_are_alone() -> None:
    plan = parsed(
        share_replay=["a"],
        runs=[{"name": "a"}, {"name": "b"}],
        grid={"lr": [0.1, 0.2]},
        test={"test_episode_count": 1},
    )
    agents = {run.group: run.agent for run in plan.runs}
    assert agents == {
        **{"a lr=0.1": 0, "b lr=0.1": None, "a lr=0.2": 1, "b lr=0.2": None},
        **{f"test {run} lr={lr}": None for run in "ab" for lr in (0.1, 0.2)},
    }


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"at_once": 0}, "at_once is 0, expected a number from 1 to 64"),
        ({"at_once": True}, "at_once is True"),
        ({"share_replay": "yes"}, "share_replay is 'yes', expected true, false or a list"),
        ({"share_replay": []}, r"share_replay is \[\]"),
        ({"share_replay": ["x"], "runs": [{"name": "a"}]}, "names 'x', but the runs are a"),
        ({"share_replay": True}, "a population of 1 agents"),
        ({"share_replay": True, "grid": {"lr": [n / 99 for n in range(65)]}}, "65 agents"),
        (
            {"share_replay": True, "at_once": 2, "grid": {"lr": [1, 2, 3]}},
            "the 3 agents .* write 3",
        ),
        ({"share_replay": True, "grid": {"env": ["A-v0", "B-v0"]}}, "env is 'A-v0' in .*'B-v0' in"),
        ({"share_replay": True, "grid": {"r_f_steps": [10, 20]}}, "r_f_steps is 10 in"),
        (
            {"share_replay": True, "grid": {"repeat_action_probability": [0.0, 0.25]}},
            "the same games in the same way, but repeat_action_probability",
        ),
    ],
)
def test_what_cannot_be_a_population_is_refused_before_anything_begins(
    data: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        parsed(**data)


IN_ONE_POPULATION = [
    pytest.param(
        ["a", "b"],
        [{"name": "a"}, {"name": "b", "flags": {"load_model_url": {"run": "a"}}}],
        id="directly",
    ),
    pytest.param(
        ["a", "b"],
        [
            {"name": "a"},
            {"name": "between", "flags": {"load_model_url": {"run": "a"}}},
            {"name": "b", "flags": {"load_model_url": {"run": "between"}}},
        ],
        id="through a third run",
    ),
]


@pytest.mark.parametrize(("agents", "runs"), IN_ONE_POPULATION)
def test_an_agent_that_would_wait_for_one_of_its_own_population_is_refused(
    agents: list[str], runs: list[dict[str, Any]]
) -> None:
    with pytest.raises(ConfigError, match="'b' starts from the agent 'a'.* share_replay"):
        parsed(share_replay=agents, runs=runs)


def test_all_agents_may_start_from_a_run_outside_of_their_population() -> None:
    start = {"flags": {"load_model_url": {"run": "first"}}}
    runs = [{"name": "first"}, {"name": "a", **start}, {"name": "b", **start}]
    assert parsed(share_replay=["a", "b"], runs=runs).at_once == 2


# --- runs at the same time ---------------------------------------------------------------------


@pytest.mark.process
@pytest.mark.timeout(HANGS_S)
def test_so_many_runs_are_under_way_at_the_same_time_and_no_more(tmp_path: Path) -> None:
    folder = begin(tmp_path, *["together 2"] * 2, *["ok"] * 3, at_once=2)
    most = [0]

    def watch(run: RunState, seconds: float) -> None:
        most[0] = max(most[0], sum(each.status == "running" for each in folder.runs))

    run_sequence(folder, Interrupts(), watch)
    assert statuses(folder) == ["done"] * 5
    assert most == [2]
    numbers = {a["agent_number"] for n in range(5) for a in arguments_of(folder, n)}
    assert numbers == {"0", "1"}
    assert all(a["agent_count"] == "2" for n in range(5) for a in arguments_of(folder, n))
    assert not any("share_replay_in" in a for n in range(5) for a in arguments_of(folder, n))


@pytest.mark.process
@pytest.mark.timeout(HANGS_S)
def test_a_run_waits_for_its_source_that_is_under_way_and_others_begin_meanwhile(
    tmp_path: Path,
) -> None:
    runs = [
        {"name": "first", "flags": {"run_as": "together 2"}},
        {"name": "second", "flags": {"load_model_url": {"run": "first"}}},
        {"name": "third", "flags": {"run_as": "together 2"}},
    ]
    plan = parsed(runs=runs, at_once=2)
    folder = SequenceFolder.create(tmp_path / "results", plan, [])
    run_sequence(folder, Interrupts())
    assert statuses(folder) == ["done"] * 3


@pytest.mark.process
@pytest.mark.timeout(HANGS_S)
def test_the_agents_of_a_seed_run_together_and_those_of_the_next_seed_after_them(
    tmp_path: Path,
) -> None:
    folder = begin(tmp_path, *["together 3"] * 3, seeds=[1, 2], share_replay=True)
    order: list[int] = []

    def watch(run: RunState, seconds: float) -> None:
        seeds = {each.seed for each in folder.runs if each.status == "running"}
        assert len(seeds) <= 1
        order.extend(seeds)

    run_sequence(folder, Interrupts(), watch)
    assert statuses(folder) == ["done"] * 6
    assert order == sorted(order)
    for index, run in enumerate(folder.runs):
        (arguments,) = arguments_of(folder, index)
        assert arguments["share_replay_in"] == str(folder.path / f"exchange_seed{run.seed}")
        assert arguments["agent_number"] == str(run.agent)
        assert arguments["agent_count"] == "3"
    assert not list(folder.path.glob("exchange_*"))  # all is done, so nobody needs it


@pytest.mark.process
@pytest.mark.timeout(HANGS_S)
def test_an_agent_that_fails_hurts_no_other_and_a_resume_starts_it_alone(tmp_path: Path) -> None:
    doings = ("together 3", "fail", "together 3", "ok")
    folder = begin(tmp_path, *doings, share_replay=["r0", "r1", "r2"])
    run_sequence(folder, Interrupts())
    assert statuses(folder) == ["done", "failed", "done", "done"]
    assert [run.agent for run in folder.runs] == [0, 1, 2, None]
    assert list(folder.path.glob("exchange_seed1"))  # it is not over, though one alone is done
    again = SequenceFolder.open(folder.path)
    run_sequence(again, Interrupts())
    assert statuses(again) == ["done"] * 4
    assert not list(folder.path.glob("exchange_*"))
    assert [len(arguments_of(again, n)) for n in range(4)] == [1, 2, 1, 1]
    first, second = arguments_of(again, 1)
    assert second["op_mode"] == "train_w_load"
    for name in ("agent_number", "agent_count", "share_replay_in"):
        assert first[name] == second[name]


@pytest.mark.parametrize(("agents", "runs"), IN_ONE_POPULATION)
@pytest.mark.timeout(HANGS_S)
def test_runs_that_wait_for_each_other_end_the_sequence_instead_of_going_round(
    tmp_path: Path, agents: list[str], runs: list[dict[str, Any]]
) -> None:
    """No plan and no file gets so far; but a folder may be made by hand."""
    groups = [(run["name"], run.get("flags", {})) for run in runs]
    states = [
        RunState(
            f"{n:03d}_{name}_seed1", name, 1, flags, agents.index(name) if name in agents else None
        )
        for n, (name, flags) in enumerate(groups, start=1)
    ]
    folder = SequenceFolder(tmp_path, "by hand", states, [], 2)
    with pytest.raises(ConfigError, match="wait for each other: .*_a_seed1.*_b_seed1"):
        run_sequence(folder, Interrupts())


def run_interrupted(folder: SequenceFolder, times: int) -> None:
    """Run a sequence; press Ctrl-C so many times as soon as all agents of a seed wait for it."""
    interrupts = Interrupts()
    told = {run.seed for run in folder.runs if run.status in ("skipped", "stopped")}

    def interrupt_once_ready(run: RunState, seconds: float) -> None:
        ready = len(list(folder.path.glob(f"*_seed{run.seed}/ready")))
        if ready == 3 and run.seed not in told and run.status == "running":
            told.add(run.seed)
            for _ in range(times):
                interrupts.note(signal.SIGINT)
            if times == 1:
                interrupts._last_s = -float("inf")  # the next one comes much later

    run_sequence(folder, interrupts, interrupt_once_ready)


@pytest.mark.process
@pytest.mark.timeout(HANGS_S)
def test_if_the_disk_fails_the_sequence_what_is_under_way_saves_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = begin(tmp_path, *["wait"] * 2, at_once=2)

    def fail_once_ready(run: RunState, seconds: float) -> None:
        if len(list(folder.path.glob("*/ready"))) == 2:
            raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        run_sequence(folder, Interrupts(), fail_once_ready)
    assert len(list(folder.path.glob("*/*/checkpoints/update_000000030.pt"))) == 2


# --- files of others ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data["runs"][1].update(agent=0), "two runs of seed 1 are agent 0"),
        (lambda data: data.update(at_once=2), "seed 1 has 3 agents, but at_once is 2"),
        (lambda data: data.update(at_once=10**6), "at_once"),
        (lambda data: data["runs"][0].update(agent=64), "agent"),
        (lambda data: data["runs"][0].update(agent="../x"), "agent"),
        (
            lambda data: data["runs"][1]["flags"].update(load_model_url={"run": "r0"}),
            "002_r1_seed1 starts from the agent 001_r0_seed1.* share_replay",
        ),
    ],
)
def test_a_sequence_that_multi_train_never_wrote_is_refused(
    tmp_path: Path, change: Any, message: str
) -> None:
    folder = begin(tmp_path, "ok", "ok", "ok", share_replay=True)
    path = folder.path / "sequence.json"
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))
    with pytest.raises(ConfigError, match=message):
        SequenceFolder.open(folder.path)


def test_a_saved_agent_that_starts_from_another_through_a_third_run_is_refused(
    tmp_path: Path,
) -> None:
    folder = begin(tmp_path, "ok", "ok", "ok", share_replay=["r0", "r2"])
    for index, source in ((1, "r0"), (2, "r1")):
        folder.update(index, flags={"load_model_url": {"run": source}})
    with pytest.raises(ConfigError, match="003_r2_seed1 starts from the agent 001_r0_seed1"):
        SequenceFolder.open(folder.path)


def test_an_exchange_that_leads_elsewhere_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = begin(tmp_path, "ok", "ok", share_replay=True)
    (tmp_path / "elsewhere").mkdir()
    (folder.path / "exchange_seed1").symlink_to(tmp_path / "elsewhere")
    assert multi_train.main([f"--resume={folder.path}"]) == 2
    assert "exchange_seed1 is a link that leads out" in capsys.readouterr().err


@pytest.mark.parametrize("flag", ["share_replay_in=/tmp/x", "agent_number=1", "agent_count=3"])
def test_who_is_which_agent_is_decided_by_the_sequence(
    tmp_path: Path, flag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert multi_train.main(["--sequence=smoke", f"--results_dir={tmp_path}", f"--{flag}"]) == 2
    assert flag.partition("=")[0] in capsys.readouterr().err
    name, _, value = flag.partition("=")
    mine = tmp_path / "mine.yaml"
    mine.write_text(f"base: {{env: CartPole-v1, {name}: {value}}}\n")
    assert multi_train.main([f"--sequence={mine}", f"--results_dir={tmp_path}"]) == 2
    assert "which no file may" in capsys.readouterr().err


def test_how_many_run_at_once_can_be_typed_but_not_of_a_population(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    common = ["--dry_run", f"--results_dir={tmp_path}"]
    assert multi_train.main(["--sequence=smoke", "--at_once=2", *common]) == 0
    assert multi_train.main(["--sequence=smoke", "--at_once=0", *common]) == 2
    assert "--at_once=0: expected 1 to 64" in capsys.readouterr().err
    assert multi_train.main(["--sequence=population", "--at_once=2", *common]) == 2
    assert "the 3 agents of this sequence share their replay" in capsys.readouterr().err
    assert multi_train.main(["--sequence=population", *common]) == 0
    assert "agent 2 of a population" in capsys.readouterr().out


# --- the table ---------------------------------------------------------------------------------


@pytest.mark.process
@pytest.mark.timeout(HANGS_S)
def test_the_table_has_a_row_for_each_agent_whatever_became_of_it(tmp_path: Path) -> None:
    folder = begin(tmp_path, "ok", "ok", "fail", seeds=[1, 2], share_replay=True)
    run_sequence(folder, Interrupts())
    (folder.path / folder.runs[1].name / "Test-v0_20240101-000000" / "metrics.jsonl").write_text(
        "{"
    )
    assert write_population(folder)
    text = (folder.path / "population.md").read_text()
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert len(rows) == 2 * (2 + 3)
    assert "| 0: r0 | done | 200 | 20.00 | 30.0 | 0.66 | 0.25 | - | - | - | - | 12 | - |" in rows
    assert "| 1: r1 | done | 0 | - | - | - | - | - | - | - | - | - | - |" in rows
    assert (folder.path / "population.png").stat().st_size > 5000
    assert text == page(folder, populations(folder))


def test_a_sequence_without_a_population_has_no_such_table(tmp_path: Path) -> None:
    folder = begin(tmp_path, "ok", at_once=2)
    assert not write_population(folder)
    assert not list(folder.path.glob("population*"))
