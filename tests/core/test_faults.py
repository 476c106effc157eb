from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ritornello.core import faults
from tests.faulty import InjectedFault, Plan, parse_plan
from tests.house import ROOT


def test_the_nth_passage_is_hit_and_no_other_and_none_without_a_plan() -> None:
    plan = Plan(parse_plan('{"at": "file.s*", "file": "*.pt", "nth": 3, "do": "raise"}'))
    with faults.loaded(plan):
        for passage in range(1, 6):
            faults.at("file.write", Path("a.pt"))
            faults.at("file.sync", Path("a.replay"))
            if passage == 3:
                with pytest.raises(InjectedFault, match="file.sync"):
                    faults.at("file.sync", Path("a.pt"))
            else:
                faults.at("file.sync", Path("a.pt"))
    assert plan.hits == {"file.write": 5, "file.sync": 10}
    assert [firing.point for firing in plan.fired] == ["file.sync"]
    faults.at("file.sync", Path("a.pt"))
    assert plan.hits["file.sync"] == 10


TEAR = """
import sys
from pathlib import Path
from ritornello.core import faults, files
from tests.faulty import Plan, parse_plan
with faults.loaded(Plan(parse_plan(sys.argv[1]))):
    with files.disk().open(Path(sys.argv[2])) as file:
        file.write(b"first")
        file.flush()
        file.write(b"second")
        file.flush()
    print("not reached")
"""


@pytest.mark.process
@pytest.mark.parametrize(("do", "left"), [("torn 3", b"firstsec"), ("kill", b"first")])
def test_a_torn_write_leaves_its_first_bytes_and_a_dead_process(
    tmp_path: Path, do: str, left: bytes
) -> None:
    path = tmp_path / "torn"
    line = json.dumps({"at": "file.write", "file": "torn", "nth": 2, "do": do})
    result = subprocess.run(
        [sys.executable, "-c", TEAR, line, str(path)],
        env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, check=False,
    )  # fmt: skip
    assert result.returncode == -signal.SIGKILL, result.stderr
    assert result.stdout == b""
    assert path.read_bytes() == left
