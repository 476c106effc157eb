"""Large results folders and long runs: how much is read, which no busy machine changes.

How long it takes is measured by hand (docs/live.md); here the work is counted.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import psutil
import pytest

from ritornello.analysis.places import ResultsFolder
from ritornello.live.overview import SAMPLE_BYTES, SPARK_POINTS, Overview
from ritornello.metrics.run_files import TAIL_BYTES
from tests.live.builders import NAMES, make_run, record

RUNS = 300
DAY = 24 * 3600 // 5  # records of a run of a day, one every five seconds
LARGE = 8_500_000  # bytes
FILES_OF_A_RUN = 8  # metrics, flags, status, summary, lock, and some room
SMALL_FILES = 100_000  # bytes of them, in the tests of this file
PEAK, PEAK_AT = 1e6, 12_345

only_linux = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="only Linux counts the bytes that are read"
)


def bytes_read(work: Callable[[], Any]) -> int:
    """Return how many bytes this process reads from files while it does something."""
    before = psutil.Process().io_counters().read_chars
    work()
    return int(psutil.Process().io_counters().read_chars - before)


@pytest.fixture(scope="module")
def day(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a run of 24 hours, with one peak that a chart must not lose."""
    folder = tmp_path_factory.mktemp("day")
    text = record(1, more=12).to_json()
    data = json.loads(text)
    with (folder / "metrics.jsonl").open("w", encoding="utf-8") as file:
        for number in range(1, DAY + 1):
            data |= {"agent_steps": 100 * number, "updates": number, "wall_s": 5.0 * number}
            data["values"][NAMES[0]] = PEAK if number == PEAK_AT else number % 10
            file.write(json.dumps(data) + "\n")
    assert (folder / "metrics.jsonl").stat().st_size > LARGE
    return folder / "metrics.jsonl"


@pytest.fixture
def many(tmp_path: Path, day: Path) -> Path:
    results = tmp_path / "results"
    for number in range(RUNS):
        folder = make_run(results, f"group{number % 7}/run{number:03d}", 1, seed=number)
        (folder / "metrics.jsonl").unlink()
        os.link(day, folder / "metrics.jsonl")  # 300 days of training in the room of one
    return results


@only_linux
def test_of_300_long_runs_only_the_edges_are_read(
    many: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[tuple[str, str]] = []
    opens = ResultsFolder.open

    def noted(self: ResultsFolder, run: str, name: str) -> BinaryIO:
        opened.append((run, name))
        return opens(self, run, name)

    monkeypatch.setattr(ResultsFolder, "open", noted)
    overview = Overview(ResultsFolder(many))
    found: list[dict[str, Any]] = []
    read = bytes_read(lambda: found.extend(overview.runs()))
    assert len(found) == RUNS
    assert all(run["agent_steps"] == 100 * DAY for run in found)
    assert len(opened) <= RUNS * FILES_OF_A_RUN
    allowed = RUNS * ((SPARK_POINTS + 1) * SAMPLE_BYTES + TAIL_BYTES + SMALL_FILES)
    assert read <= allowed < RUNS * LARGE / 10, "a tenth of the files"

    opened.clear()
    assert len(overview.runs()) == RUNS
    assert opened == [], "nothing has changed, so nothing is read"
    flags = many / "group0" / "run007" / "flags.json"
    flags.write_text(json.dumps({**json.loads(flags.read_text()), "seed": 99}), encoding="utf-8")
    (changed,) = [run for run in overview.runs() if run["name"] == "run007"]
    assert changed["flags"]["seed"] == 99
    assert {run for run, _ in opened} == {"group0/run007"}
