"""Run folders and sessions as a healthy run would leave them, for tests of the checker."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from tests.chaos.folder import take_snapshot
from tests.chaos.history import Expected, Session

STEPS_PER_UPDATE = 20


def write_run(
    path: Path, updates: int, *, checkpoints: tuple[int, ...], games: int = 3, summary: bool = True
) -> Path:
    """Write a run folder with a record for each update; more of an existing one's future."""
    (path / "checkpoints").mkdir(parents=True, exist_ok=True)
    done = len((path / "metrics.jsonl").read_text().splitlines()) if updates_of(path) else 0
    with (path / "metrics.jsonl").open("a") as file:
        for update in range(done + 1, updates + 1):
            file.write(json.dumps(record(update)) + "\n")
    for update in checkpoints:
        write_checkpoint(path, update)
    (path / "checkpoints" / "latest").write_text(f"update_{max(checkpoints):09d}.pt\n")
    (path / "Scores.txt").write_text("".join(f"20,0,{n},1.0\n" for n in range(games)))
    if summary:
        data = {"updates": updates, "episodes": games, "reason": "steps"}
        (path / "summary.json").write_text(json.dumps(data))
    return path


def updates_of(path: Path) -> bool:
    """Whether a run folder has records already."""
    return (path / "metrics.jsonl").exists()


def record(update: int) -> dict[str, Any]:
    """Return the record of an update."""
    return {
        "agent_steps": update * STEPS_PER_UPDATE,
        "frames": update * STEPS_PER_UPDATE,
        "updates": update,
        "episodes": min(3, update),
        "wall_s": update / 10,
        "values": {"loss/policy": 0.5},
    }


def write_checkpoint(path: Path, update: int, weight: float = 0.5) -> Path:
    """Write a checkpoint of an update, with weights of this value."""
    state = {
        "learner": {"model": {"weight": torch.full((4,), weight)}},
        "tally": {
            "updates": update,
            "agent_steps": update * STEPS_PER_UPDATE,
            "wall_s": update / 10,
        },
    }
    file = path / "checkpoints" / f"update_{update:09d}.pt"
    torch.save({"format_version": 1, "state": state}, file)
    return file


def session(path: Path | None, number: int = 1, **changes: Any) -> Session:
    """Return a session that ended well and left the run folder as it is now."""
    facts: dict[str, Any] = {
        "number": number,
        "arguments": (),
        "expected": Expected(),
        "save_period": 10,
        "reproducible": True,
        "resumed": False,
        "status": 0,
        "seconds": 10.0,
        "output": "run folder\nall agent steps are done\n",
        "log": "",
        "before": None,
        "after": None if path is None else take_snapshot(path),
    }
    return Session(**(facts | changes))
