"""A folder or a plan of a stranger runs nothing of his, and writes nothing outside of itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ritornello import multi_train
from ritornello.core.errors import ConfigError
from ritornello.core.file_lock import FileLock
from ritornello.sequences import runner
from ritornello.sequences.folder import RUN_LOCK_FILE, STATE_FILE, RunState, SequenceFolder
from ritornello.sequences.plan import load_plan, parse_plan
from ritornello.sequences.runner import Interrupts, run_sequence
from tests.deadlines import HANGS_S

# Leaves a trace of every start beside itself, then does what a run does.
TRACER = """
import json, pathlib, sys
pathlib.Path(__file__).with_name("started").open("a").write(" ".join(sys.argv[1:]) + "\\n")
arguments = dict(a[2:].partition("=")[::2] for a in sys.argv[1:])
run = pathlib.Path(arguments["results_dir"]) / "Ok-v0_20240101-000000"
(run / "checkpoints").mkdir(parents=True)
(run / "flags.json").write_text(json.dumps({"env": "Ok-v0", "seed": 1}))
(run / "run.json").write_text("{}")
values = {"episode/return_mean": 1.0, "episode/return_best": 2.0}
for steps in (1, 2):
    record = {"agent_steps": steps, "frames": steps, "updates": steps, "episodes": steps,
              "wall_s": steps, "values": values}
    (run / "metrics.jsonl").open("a").write(json.dumps(record) + "\\n")
"""
RUN = {"name": "001_a_seed1", "group": "a", "seed": 1, "flags": {"env": "Ok-v0"}}


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that exists as soon as any run was started."""
    program = tmp_path / "elsewhere" / "tracer.py"
    program.parent.mkdir()
    program.write_text(TRACER)
    monkeypatch.setattr("ritornello.core.project.MAIN_PROGRAM", program)
    monkeypatch.setattr(runner, "POLL_S", 0.02)
    return program.with_name("started")


def given(tmp_path: Path, **changes: Any) -> Path:
    """Return the folder of a sequence as somebody may have sent it."""
    folder = tmp_path / "given"
    folder.mkdir()
    data = {"format_version": 1, "name": "theirs", "arguments": [], "runs": [RUN], **changes}
    (folder / STATE_FILE).write_text(json.dumps(data))
    return folder


def outside(tmp_path: Path, folder: Path) -> set[str]:
    return {str(path) for path in tmp_path.rglob("*") if not path.is_relative_to(folder)}


def run(**changes: Any) -> dict[str, Any]:
    return {**RUN, **changes}


def with_flags(**flags: Any) -> dict[str, Any]:
    return {"runs": [run(flags={**RUN["flags"], **flags})]}


NAMES = [
    *("../escaped", "/tmp/escaped", "..", ".", "", "a/b", "001_a/../../b_seed1", "001_a_seed1/x"),
    *("sequence.json", "table.md", "001_a_seed1\n", "001_[/]_seed1", "001_\x1b[31m_seed1", "001"),
    *("001_" + "a" * 200 + "_seed1", "001_\u202ea_seed1", "~_seed1", "001_a_seed-1"),
]
HOSTILE: dict[str, dict[str, Any]] = {
    **{f"name {name[:20]!r}": {"runs": [run(name=name)]} for name in NAMES},
    "results_dir in arguments": {"arguments": ["--results_dir=/tmp"]},
    "results-dir in arguments": {"arguments": ["--results-dir", "/tmp"]},
    "overrides in arguments": {"arguments": ["--multi_train_overrides=/etc/passwd"]},
    "trust in arguments": {"arguments": ["--trust_env_module=True"]},
    "faults in arguments": {"arguments": ["--debug_faults=plan.json"]},
    "mode in arguments": {"arguments": ["--op_mode=train_w_load"]},
    "weights in arguments": {"arguments": ["--load_model_url=/etc"]},
    "module in arguments": {"arguments": ["--env=evil:Pong-v0"]},
    "no flag in arguments": {"arguments": ["; rm -rf /"]},
    "unknown flag": {"arguments": ["--no_such_flag=1"]},
    "number as argument": {"arguments": [1]},
    "arguments as text": {"arguments": "--debug=True"},
    "results_dir": with_flags(results_dir="/tmp"),
    "overrides": with_flags(multi_train_overrides="/etc/passwd"),
    "trust": with_flags(trust_env_module=True),
    "faults": with_flags(debug_faults="{}"),
    "resume elsewhere": with_flags(op_mode="train_w_load", load_model_url="/etc"),
    "weights elsewhere": with_flags(load_model_url="/etc"),
    "weights beside": with_flags(load_model_url="../victim"),
    "weights above": with_flags(load_model_url="001_a_seed1/../../../victim"),
    "weights of a mapping": with_flags(load_model_url={"url": "/etc"}),
    "weights of a list": with_flags(load_model_url=["/etc"]),
    "weights of nobody": with_flags(load_model_url={"run": "nobody"}),
    "weights of itself": with_flags(load_model_url={"run": "a"}),
    "module": with_flags(env="given.evil:Pong-v0"),
    "module among games": with_flags(env="CartPole-v1,evil:Pong-v0"),
    "module of a network": with_flags(model="given.evil:net"),
    "module of an algorithm": with_flags(algorithm="given.evil:learn"),
    "two of a name": {"runs": [RUN, RUN]},
    "no runs": {"runs": []},
    "runs as mapping": {"runs": {"a": RUN}},
    "run as list": {"runs": [[1]]},
    "another key": {"runs": [run(command=["rm", "-rf", "/"])]},
    "another key above": {"environment": {"PATH": "/tmp"}},
    "a status": {"runs": [run(status="[/]")]},
    "a seed": {"runs": [run(seed="1")]},
    "a huge seed": {"runs": [run(seed=10**30)]},
    "a group": {"runs": [run(group="")]},
    "a long group": {"runs": [run(group="x" * 10_000)]},
    "a group of numbers": {"runs": [run(group=1)]},
    "flags as list": {"runs": [run(flags=[1])]},
    "deep flags": with_flags(replay_parameters=[[[[[[[[[[[[]]]]]]]]]]]] * 30),
    "nan seconds": {"runs": [run(seconds=float("nan"))]},
    "a version": {"format_version": 2},
    "a version as text": {"format_version": "1"},
    "a name": {"name": {}},
}
# These parse, but a run of them would fail; they are not dangerous.
HARMLESS = {"deep flags"}


@pytest.mark.parametrize("case", [name for name in HOSTILE if name not in HARMLESS])
def test_a_hostile_sequence_is_refused_with_one_message_and_nothing_happens(
    case: str, tmp_path: Path, started: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = given(tmp_path, **HOSTILE[case])
    before = outside(tmp_path, folder)
    assert multi_train.main([f"--resume={folder}"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("multi_train.py: ")
    assert 20 < len(error) < 3000
    assert all(line.isprintable() for line in error.splitlines())
    assert not started.exists()
    assert outside(tmp_path, folder) == before


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b"null", b"\xff\xfe", b"[" * 100_000, b"{", b"9" * 5000, b'{"format_version": 1}'],
    ids=lambda content: str(content[:12]),
)
def test_a_sequence_that_is_no_json_is_refused(
    content: bytes, tmp_path: Path, started: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = given(tmp_path)
    (folder / STATE_FILE).write_bytes(content)
    for wish in ("resume", "report"):
        assert multi_train.main([f"--{wish}={folder}"]) == 2
        assert len(capsys.readouterr().err) < 2000
    assert not started.exists()


def test_the_same_folder_without_harm_in_it_is_run(tmp_path: Path, started: Path) -> None:
    folder = given(tmp_path, arguments=["--debug=True"])
    assert multi_train.main([f"--resume={folder}"]) == 0
    (line,) = started.read_text().splitlines()
    assert f"--results_dir={folder}/001_a_seed1" in line
    assert "--debug=True" in line


@pytest.mark.parametrize("typed", ["--trust_env_module=True", "--env=mine:Ok-v0"])
def test_an_environment_of_a_module_is_run_once_somebody_has_typed_it(
    tmp_path: Path, started: Path, typed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The flag is an addition to main.py that this test does not need.
    if "trust" in typed and "trust_env_module" not in multi_train.Flags.model_fields:
        monkeypatch.setitem(multi_train.Flags.model_fields, "trust_env_module", None)
    folder = given(tmp_path, **with_flags(env="mine:Ok-v0"))
    assert multi_train.main([f"--resume={folder}"]) == 2
    assert not started.exists()
    assert multi_train.main([f"--resume={folder}", "--", typed]) == 0
    assert typed in started.read_text()
    kept = json.loads((folder / STATE_FILE).read_text())["arguments"]
    assert "--trust_env_module=True" not in kept, "trust is for one command"


def test_weights_elsewhere_are_taken_once_the_folder_is_trusted(
    tmp_path: Path, started: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    folder = given(tmp_path, **with_flags(load_model_url=str(elsewhere)))
    assert multi_train.main([f"--resume={folder}"]) == 2
    assert multi_train.main([f"--resume={folder}", "--trust_files"]) == 0
    overrides = json.loads((folder / "001_a_seed1" / "overrides.json").read_text())
    assert overrides["load_model_url"] == str(elsewhere)


def test_weights_are_looked_for_from_where_the_runs_look_for_them(
    tmp_path: Path, started: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run is started in the folder of the program, wherever multi_train.py is called."""
    folder = given(tmp_path, **with_flags(load_model_url="results/victim"))
    monkeypatch.chdir(folder)
    assert multi_train.main([f"--resume={folder}"]) == 2
    assert not started.exists()


@pytest.mark.parametrize(
    "place", ["001_a_seed1", "001_a_seed1/Pong", "001_a_seed1/Pong/checkpoints"]
)
def test_a_link_that_leads_out_of_the_folder_is_refused(
    tmp_path: Path, started: Path, place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    folder = given(tmp_path)
    link = folder / place
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(victim)
    assert multi_train.main([f"--resume={folder}"]) == 2
    assert "leads out of the folder" in capsys.readouterr().err
    assert list(victim.iterdir()) == []
    assert not started.exists()


@pytest.mark.parametrize("name", ["output.log", RUN_LOCK_FILE])
def test_a_link_in_the_place_of_a_file_is_not_written_through(
    tmp_path: Path, started: Path, name: str
) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    folder = given(tmp_path)
    (folder / "001_a_seed1").mkdir()
    (folder / "001_a_seed1" / name).symlink_to(victim)
    assert multi_train.main([f"--resume={folder}"]) != 0
    assert victim.read_text() == "precious"
    assert not started.exists()


def test_a_source_that_claims_to_be_done_but_left_nothing_is_waited_for(
    tmp_path: Path, started: Path
) -> None:
    done = run(status="done")
    then = run(name="002_b_seed1", group="b", flags={"load_model_url": {"run": "a"}})
    folder = given(tmp_path, runs=[done, then])
    assert multi_train.main([f"--resume={folder}"]) == 1
    assert not started.exists()


# --- plans of strangers ------------------------------------------------------------------------

BOMB = "\n".join(
    ["l0: &l0 [x, x, x, x, x, x, x, x, x]"]
    + [f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]" for n in range(1, 12)]
)
MERGES = "\n".join(
    ["m0: &m0 {" + ", ".join(f"k{n}: 1" for n in range(50)) + "}"]
    + [f"m{n}: &m{n} {{<<: [{', '.join([f'*m{n - 1}'] * 9)}]}}" for n in range(1, 12)]
)
PLANS: dict[str, str | bytes] = {
    "not UTF-8": b"name: \xff\xfe\n",
    "binary": bytes(range(256)) * 20,
    "empty": "",
    "a number": "5",
    "binary value": "base: {env: !!binary aGVsbG8=}",
    "a date": "base: {env: 2020-01-01}",
    "a bad date": "base: {env: !!timestamp x}",
    "a bad number": "base: {lr: !!float abc}",
    "a bad int": "base: {seed: !!int ''}",
    "a set": "base: {env: !!set {a, b}}",
    "a long number": "seeds: [" + "9" * 5000 + "]",
    "a big seed": "seeds: [" + "9" * 30 + "]",
    "python": "base: {env: !!python/object/apply:os.system ['touch started']}",
    "nested": "[" * 5000,
    "nested in a flag": "base: {replay_parameters: " + "[" * 200 + "]" * 200 + "}",
    "bomb": BOMB,
    "merges": MERGES,
    "circle": "base: &a {env: [*a]}",
    "number as key": "base: {1: 2}",
    "nothing as key": "base: {null: 2}",
    "a grid of everything": "grid: {"
    + ", ".join(f"{flag}: {list(range(1, 100))}" for flag in ("lr", "gamma", "batch_size", "seed"))
    + "}",
    "many runs": "seeds: " + str(list(range(20_000))),
    "a long name": "name: " + "n" * 5000,
    "a long group": "runs: [{name: " + "g" * 5000 + "}]",
    "a wrong value": "base: {lr: fast}",
    "a wrong mixture": "base: {replay_parameters: [{type: queue}]}",
    "module": "base: {env: 'evil:Pong-v0'}",
    "results_dir": "base: {results_dir: /tmp}",
    "overrides": "base: {multi_train_overrides: /tmp}",
    "trust": "base: {trust_env_module: true}",
    "mode": "base: {op_mode: train_w_load, load_model_url: results/x}",
    "escape in a key": 'base: {"\\e[31mlr": 1}',
    "control character": "base: {env: 'a\x07b'}",
    "tab": "base:\n\t- a",
    "alias of nothing": "base: *nothing",
    "text from right to left": "base: {env: A}\nenv\u202e\nlr: 1",
}


@pytest.mark.parametrize("case", PLANS)
def test_a_plan_that_is_none_or_asks_too_much_is_refused_with_one_message(
    case: str, tmp_path: Path, started: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan, content = tmp_path / "plan.yaml", PLANS[case]
    plan.write_bytes(content if isinstance(content, bytes) else content.encode())
    results = tmp_path / "results"
    assert multi_train.main([f"--sequence={plan}", f"--results_dir={results}"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("multi_train.py: ")
    assert 20 < len(error) < 3000
    assert all(line.isprintable() for line in error.splitlines())
    assert not started.exists()
    assert not results.exists()


@pytest.mark.parametrize("name", ["../../escaped", "/etc/passwd", "..", "a/b", "\u202eevil", "-"])
def test_names_of_a_plan_become_plain_names_of_folders(tmp_path: Path, name: str) -> None:
    plan = parse_plan({"name": name, "runs": [{"name": name}]}, default_name="p", where="here")
    folder = SequenceFolder.create(tmp_path / "results", plan, [])
    assert folder.path.parent == tmp_path / "results"
    (one,) = SequenceFolder.open(folder.path).runs
    assert Path(one.name).name == one.name
    assert one.group == name


def test_a_pipe_in_the_place_of_a_plan_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "plan.yaml")
    with pytest.raises(ConfigError, match="not a regular file"):
        load_plan(str(tmp_path / "plan.yaml"))


# --- what is shown -----------------------------------------------------------------------------

STRANGE = ["[/]", "[red]warm", "$a^{", "a|b", "_hidden", "\\", "Ünïcödé", "a\x1b[31mb", "x" * 300]


def test_whatever_a_group_is_called_it_is_shown_as_it_is(
    tmp_path: Path, started: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [run(name=f"{n:03d}_a_seed1", group=group) for n, group in enumerate(STRANGE, start=100)]
    folder = given(tmp_path, runs=runs, name="[/b] $x$")
    assert multi_train.main([f"--resume={folder}"]) == 0
    shown = capsys.readouterr().out
    assert len(started.read_text().splitlines()) == len(STRANGE)
    for text in ("[/]", "[red]warm", "$a^{", "[/b] $x$"):
        assert text in shown
    assert "\x1b[31mb" not in shown
    table = (folder / "table.md").read_text()
    assert "| a\\|b |" in table
    assert "\x1b" not in table
    assert (folder / "comparison.png").stat().st_size > 1000


def test_a_folder_with_markup_in_its_path_is_shown_as_it_is(
    tmp_path: Path, started: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = tmp_path / "plan.yaml"
    plan.write_text("{about: '[/]', base: {env: CartPole-v1}}")
    results = tmp_path / "r[/b]x"
    assert multi_train.main([f"--sequence={plan}", f"--results_dir={results}"]) == 0
    assert "r[/b]x" in capsys.readouterr().out
    (made,) = results.iterdir()
    assert multi_train.main([f"--report={made}"]) == 0
    assert multi_train.main([f"--sequence={plan}", "--dry_run"]) == 0


@pytest.mark.parametrize(
    "line",
    [
        b"\xff\xfe",
        b'{"values": null, "agent_steps": 3, "wall_s": 3}',
        b'{"values": {"episode/return_mean": "x"}, "agent_steps": 3, "wall_s": 3}',
        b'{"values": {"episode/return_mean": NaN}, "agent_steps": 3, "wall_s": 3}',
        b'{"values": {"episode/return_mean": 1e999}, "agent_steps": 1e999, "wall_s": 3}',
        b'{"values": {}, "agent_steps": null, "wall_s": 3}',
        b'{"values": [], "wall_s": 3}',
        b"[" * 50_000,
        b'{"values": {"episode/return_mean": 1}, "agent_steps": ' + b"9" * 5000 + b"}",
        b"[]",
        b"\0" * 100,
    ],
    ids=lambda line: str(line[:30]),
)
def test_no_line_of_a_journal_can_stop_a_report(tmp_path: Path, started: Path, line: bytes) -> None:
    folder = given(tmp_path)
    assert multi_train.main([f"--resume={folder}"]) == 0
    (journal,) = folder.glob("*/*/metrics.jsonl")
    good = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join([line + b"\n", good[0], line + b"\n", good[1], line]))
    (journal.parent / "scores.csv").write_bytes(
        b"model_id,model_steps,env,episode_steps,episode_return\na,b,c,d,e\n" + line + b"\n"
    )
    assert multi_train.main([f"--report={folder}"]) == 0
    table = (folder / "table.md").read_text()
    assert "| a | 1/1 | - |" in table
    assert "| a | 1 | 1.0 |" in table


# --- two at once -------------------------------------------------------------------------------


def test_a_sequence_is_run_by_one_program_at_a_time(
    tmp_path: Path, started: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = given(tmp_path)
    other = SequenceFolder.open(folder)
    other.claim()
    assert multi_train.main([f"--resume={folder}"]) == 2
    assert f"is being run by another multi_train.py (process {os.getpid()}, since" in (
        capsys.readouterr().err
    )
    assert not started.exists()
    other.lock.release()
    assert multi_train.main([f"--resume={folder}"]) == 0


def test_what_a_killed_program_left_half_written_is_removed(tmp_path: Path, started: Path) -> None:
    folder = given(tmp_path)
    (folder / "001_a_seed1").mkdir()
    left = [folder / ".sequence.json.99.tmp", folder / "001_a_seed1" / ".overrides.json.99.tmp"]
    for path in left:
        path.write_text("{")
    assert multi_train.main([f"--resume={folder}"]) == 0
    assert not any(path.exists() for path in left)


@pytest.mark.process
def test_a_run_that_outlived_its_program_is_waited_for(tmp_path: Path, started: Path) -> None:
    folder = SequenceFolder.open(given(tmp_path))
    path = folder.path / "001_a_seed1"
    path.mkdir()
    lock = FileLock(path / RUN_LOCK_FILE)
    assert lock.acquire()
    # The run of a program that was killed: it has the lock because it was handed the open file.
    orphan = subprocess.Popen(
        [sys.executable, "-c", "import sys; sys.stdin.read()"],
        stdin=subprocess.PIPE,
        pass_fds=(lock.descriptor,),
    )
    lock.name_holder(orphan.pid)
    lock.release()
    looks = []

    def let_go_at_the_third_look(state: RunState, seconds: float) -> None:
        if "waiting:" in state.status:
            looks.append(state.status)
            assert not started.exists(), "two trainers in one folder"
            if len(looks) == 3 and orphan.stdin is not None:
                orphan.stdin.close()

    try:
        run_sequence(folder, Interrupts(), let_go_at_the_third_look)
    finally:
        orphan.kill()
        orphan.wait(timeout=HANGS_S)
    assert len(looks) >= 3
    assert f"process {orphan.pid}" in looks[0]
    assert [state.status for state in folder.runs] == ["done"]


@pytest.mark.process
def test_nobody_waits_for_ever_for_a_run_that_does_not_end(
    tmp_path: Path, started: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "ORPHAN_WAIT_S", 0.5)
    second = run(name="002_b_seed1", group="b")
    folder = SequenceFolder.open(given(tmp_path, runs=[RUN, second]))
    path = folder.path / "001_a_seed1"
    path.mkdir()
    lock = FileLock(path / RUN_LOCK_FILE)
    assert lock.acquire()
    run_sequence(folder, Interrupts())
    assert [state.status for state in folder.runs] == ["waiting", "done"]
    assert len(started.read_text().splitlines()) == 1
    lock.release()
    run_sequence(folder, Interrupts())
    assert [state.status for state in folder.runs] == ["done", "done"]


# --- the command line --------------------------------------------------------------------------


@pytest.mark.parametrize("argv", [[], ["--", "--lr=0.1"], ["--results_dir=x"]], ids=str)
def test_without_a_wish_the_program_prints_its_help_and_starts_nothing(
    argv: list[str], tmp_path: Path, started: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert multi_train.main(argv) == 2
    assert "--sequence" in capsys.readouterr().out
    assert not started.exists()
    assert not (tmp_path / "results").exists()


def test_two_wishes_at_once_are_refused(
    tmp_path: Path, started: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = given(tmp_path)
    assert multi_train.main(["--sequence=smoke", f"--report={folder}"]) == 2
    assert "give one of" in capsys.readouterr().out
    assert multi_train.main(["--sequence=smoke", f"--resume={folder}"]) == 2
    assert "smoke is the sequence 'smoke', expected 'theirs'" in capsys.readouterr().err
    assert not started.exists()


@pytest.mark.parametrize("typed", ["--op_mode=test", "--results_dir=/tmp", "--no_such=1", "lr=1"])
def test_what_cannot_be_given_to_runs_is_refused_before_a_folder_is_made(
    tmp_path: Path, started: Path, typed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    results = tmp_path / "results"
    argv = ["--sequence=smoke", f"--results_dir={results}", "--", typed]
    assert multi_train.main(argv) == 2
    assert typed.lstrip("-").partition("=")[0] in capsys.readouterr().err
    assert not results.exists()


@pytest.mark.parametrize("place", ["/proc/x", "/dev/null", "\0", "a" * 300])
def test_results_that_cannot_be_written_are_one_message(
    tmp_path: Path, started: Path, place: str, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert multi_train.main(["--sequence=smoke", f"--results_dir={place}"]) == 2
    error = capsys.readouterr().err
    assert "Cannot make a run folder" in error
    assert len(error) < 1000


def test_a_disk_that_is_full_ends_with_one_message(
    tmp_path: Path, started: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    def refuse(path: Path, data: object) -> None:
        raise OSError(28, "No space left on device", str(path))

    folder = given(tmp_path)
    monkeypatch.setattr(runner, "write_json", refuse)
    assert multi_train.main([f"--resume={folder}"]) == 1
    error = capsys.readouterr().err
    assert "No space left on device" in error
    assert "--resume goes on" in error
    assert len(error.splitlines()) == 1
