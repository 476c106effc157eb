"""The run folders of a run of a sequence, of which the last one counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from ritornello.metrics.curve import RETURN, curve_of
from ritornello.metrics.record import Record
from ritornello.metrics.run_files import read_records
from ritornello.sequences.folder import SequenceFolder
from ritornello.sequences.plan import parse_plan
from ritornello.sequences.progress import line_on

EARLIER, LATER = "Ok-v0_20260101-110000", "Ok-v0_20260101-120000"


@pytest.fixture
def begun(tmp_path: Path) -> SequenceFolder:
    data = {
        "runs": [
            {"name": "a", "flags": {"env": "Ok-v0"}},
            {"name": "b", "flags": {"env": "Ok-v0", "load_model_url": {"run": "a"}}},
        ]
    }
    plan = parse_plan(data, default_name="test", where="here")
    return SequenceFolder.create(tmp_path, plan, [])


def made(folder: SequenceFolder, name: str, last_steps: int, checkpoints: int) -> Path:
    """Make a run folder whose records end at some agent steps."""
    run = folder.path / folder.runs[0].name / name
    (run / "checkpoints").mkdir(parents=True)
    for number in range(checkpoints):
        (run / "checkpoints" / f"update_{number:09d}.pt").write_text("weights")
    steps = range(100, last_steps + 1, 100)
    records = (Record(agent_steps=n, wall_s=n, values={RETURN: float(n)}) for n in steps)
    (run / "metrics.jsonl").write_text("".join(f"{each.to_json()}\n" for each in records))
    return run


def test_a_run_that_was_begun_anew_counts_though_the_clock_went_back(begun: SequenceFolder) -> None:
    aborted = made(begun, LATER, 200, checkpoints=0)
    anew = made(begun, EARLIER, 900, checkpoints=2)
    first, second = begun.runs
    folders = begun.run_folders(first)
    assert [each.path for each in folders] == [aborted, anew]
    assert begun.resolved_flags(second)["load_model_url"] == str(anew)
    assert "900 agent steps" in line_on(begun, first, 1.0)
    curve = curve_of(record for each in folders for record in read_records(each.path))
    assert curve is not None
    assert curve.agent_steps[-1] == 900


@pytest.mark.parametrize("checkpoints", [0, 1])
def test_folders_that_are_alike_are_told_by_their_time(
    begun: SequenceFolder, checkpoints: int
) -> None:
    later = made(begun, LATER, 200, checkpoints)
    earlier = made(begun, EARLIER, 900, checkpoints)
    assert [each.path for each in begun.run_folders(begun.runs[0])] == [earlier, later]
