from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ritornello.core import faults
from ritornello.core.errors import ConfigError
from ritornello.core.faults import InjectedFault, Plan, parse_plan, plan_text
from tests.house import ROOT


def plan(*lines: dict[str, object]) -> Plan:
    return Plan(parse_plan(json.dumps(lines)))


def test_without_a_plan_a_point_does_nothing_and_even_its_name_is_not_looked_at() -> None:
    faults.at("file.write")
    faults.at("no such point")


def test_an_undeclared_point_is_refused_while_a_plan_is_loaded() -> None:
    with faults.loaded(plan()), pytest.raises(KeyError, match="no such point"):
        faults.at("no such point")
    faults.at("no such point")  # and after the block no plan is loaded


def test_the_nth_passage_is_hit_and_no_other() -> None:
    with faults.loaded(plan({"at": "file.sync", "nth": 3, "do": "raise"})) as loaded:
        for passage in range(1, 6):
            faults.at("file.write")
            if passage == 3:
                with pytest.raises(InjectedFault, match="file.sync"):
                    faults.at("file.sync")
            else:
                faults.at("file.sync")
    assert loaded.hits == {"file.write": 5, "file.sync": 5}
    assert [firing.point for firing in loaded.fired] == ["file.sync"]


def test_for_ever_goes_on_from_the_nth() -> None:
    with faults.loaded(plan({"at": "file.*", "nth": 2, "do": "eio", "for_ever": True})):
        faults.at("file.open")
        for _ in range(3):
            with pytest.raises(OSError, match="Input/output error"):
                faults.at("file.write")


def test_a_pattern_counts_all_its_points_together_and_a_file_pattern_only_its_files() -> None:
    wanted = {"at": ["file.open", "file.s*"], "file": "*.pt", "nth": 3, "do": "enospc"}
    with faults.loaded(plan(wanted)):
        faults.at("file.open", Path("a/x.pt"))
        faults.at("file.write", Path("a/x.pt"))
        faults.at("file.open", Path("a/x.replay"))
        faults.at("file.sync", Path("a/x.pt"))
        with pytest.raises(OSError, match="No space left") as caught:
            faults.at("file.sync_folder", Path("a/y.pt"))
    assert caught.value.errno == errno.ENOSPC


def test_a_signal_arrives() -> None:
    arrived: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: arrived.append(number))
    try:
        with faults.loaded(plan({"at": "file.open", "do": "sigterm"})):
            faults.at("file.open")
    finally:
        signal.signal(signal.SIGTERM, before)
    assert arrived == [signal.SIGTERM]


TEAR = """
import sys
from pathlib import Path
from ritornello.core import faults, files
faults.load(faults.Plan(faults.parse_plan(sys.argv[1])))
with files.disk().open(Path(sys.argv[2])) as file:
    file.write(b"first")
    file.flush()
    file.write(b"second")
    file.flush()
print("not reached")
"""


@pytest.mark.process
@pytest.mark.parametrize(
    ("do", "left"), [("torn 3", b"firstsec"), ("torn 0", b"first"), ("kill", b"first")]
)
def test_a_torn_write_leaves_its_first_bytes_and_a_dead_process(
    tmp_path: Path, do: str, left: bytes
) -> None:
    path = tmp_path / "torn"
    line = json.dumps({"at": "file.write", "file": "torn", "nth": 2, "do": do})
    result = subprocess.run(
        [sys.executable, "-c", TEAR, line, str(path)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        check=False,
    )
    assert result.returncode == -signal.SIGKILL, result.stderr
    assert result.stdout == b""
    assert path.read_bytes() == left


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("/does/not/exist.json", "exist.json' cannot be read"),
        ("[3]", "a fault is 3"),
        ('{"at": "file.open"}', "a fault is"),
        ('{"at": "file.open", "do": "kill", "when": 3}', "when"),
        ('{"at": "file.opened", "do": "kill"}', "file.opened"),
        ('{"at": [3], "do": "kill"}', "a fault is"),
        ('{"at": [], "do": "kill"}', "a fault is"),
        ('{"at": "*", "do": "explode"}', "explode"),
        ('{"at": "file.write", "do": "torn"}', "torn <bytes>"),
        ('{"at": "*", "do": "torn 3"}', "for file.write torn"),
        ('{"at": "*", "do": "kill", "nth": 0}', "a fault is"),
        ('{"at": "*", "do": "kill", "nth": "3"}', "a fault is"),
    ],
)
def test_a_plan_that_makes_no_sense_is_one_readable_message(text: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        plan_text(text)


def test_a_plan_may_be_a_file_and_bytes_that_are_no_text_are_said_so(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text('[{"at": "file.open", "do": "kill"}]', encoding="utf-8")
    assert parse_plan(plan_text(str(path))) == parse_plan('{"at": "file.open", "do": "kill"}')
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="cannot be read"):
        plan_text(str(path))
