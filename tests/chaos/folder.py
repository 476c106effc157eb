"""What a run folder holds at one moment, read by nothing but the documented formats.

The reader is the harness's own: a fault in the project's reader must not hide from it.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import warnings
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

REGULAR = re.compile(r"update_(\d+)\.pt")
TEMPORARY = re.compile(r"^\..*(tmp|part).*$|\.(tmp|part)$")


@dataclass(frozen=True)
class CheckpointFile:
    """One .pt file. `updates` is None for those that are not named by updates (best, step_...)."""

    name: str
    updates: int | None
    digest: str
    damage: str  # why it cannot be loaded; "" if it can
    not_finite: str  # the first tensor that is not finite; "" if all are
    agent_steps: int | None  # that its counters say, if they could be found
    format_version: Any = None
    wall_s: float = math.inf  # seconds of training that its counters say, if they could be found


@dataclass(frozen=True)
class Snapshot:
    """A run folder at one moment."""

    path: Path
    checkpoints: tuple[CheckpointFile, ...]
    digests: dict[str, str]  # of every file in checkpoints/, by name
    record_lines: tuple[str, ...]  # of metrics.jsonl, complete lines only
    records: tuple[dict[str, Any], ...]  # of those that can be parsed
    scores: tuple[str, ...]  # complete lines of Scores.txt
    summary: dict[str, Any] | None
    temporaries: tuple[str, ...]
    log_bytes: int  # length of train.log
    latest: str = ""  # what the file of that name holds

    @property
    def sound(self) -> list[CheckpointFile]:
        """The regular checkpoints that can be loaded and are finite, newest first."""
        good = [
            each
            for each in self.checkpoints
            if each.updates is not None and not each.damage and not each.not_finite
        ]
        return sorted(good, key=lambda each: -(each.updates or 0))

    @property
    def newest(self) -> int:
        """Updates of the newest sound checkpoint, 0 if there is none."""
        return self.sound[0].updates or 0 if self.sound else 0

    @property
    def resumed(self) -> CheckpointFile | None:
        """The checkpoint that a resume begins with: what `latest` names, if sound."""
        named = [each for each in self.sound if each.name == self.latest]
        return next(iter(named + self.sound), None)

    @property
    def resumes_from(self) -> int:
        """Updates of the checkpoint that a resume begins with, 0 if there is none."""
        return (self.resumed.updates or 0) if self.resumed else 0

    @property
    def last_update(self) -> int:
        """Updates of the last record, 0 if there is none."""
        return int(self.records[-1]["updates"]) if self.records else 0


def take_snapshot(path: Path) -> Snapshot:
    """Read a run folder. Files that vanish meanwhile are passed over."""
    folder = path / "checkpoints"
    digests: dict[str, str] = {}
    checkpoints = []
    for file in sorted(folder.iterdir()) if folder.is_dir() else []:
        try:
            content = file.read_bytes()
        except OSError:
            digests[file.name] = "unreadable"
            continue
        digests[file.name] = hashlib.sha256(content).hexdigest()
        if file.suffix == ".pt":
            checkpoints.append(_checkpoint(file, digests[file.name]))
    lines = _lines(path / "metrics.jsonl")
    return Snapshot(
        path=path,
        checkpoints=tuple(checkpoints),
        digests=digests,
        record_lines=tuple(lines),
        records=tuple(_records(lines)),
        scores=tuple(_lines(path / "Scores.txt")),
        summary=_json(path / "summary.json"),
        temporaries=tuple(sorted(_temporaries(path))),
        log_bytes=_size(path / "train.log"),
        latest="".join(_lines(folder / "latest")[:1]),
    )


def run_folders(results: Path) -> list[Path]:
    """Return the run folders below a results folder, oldest first."""
    return sorted(
        (flags.parent for flags in results.glob("**/checkpoints") if flags.is_dir()),
        key=lambda path: path.stat().st_ctime_ns,
    )


def added_log(before: Snapshot | None, path: Path) -> str:
    """Return what was added to train.log since a snapshot."""
    try:
        data = (path / "train.log").read_bytes()
    except OSError:
        return ""
    return data[before.log_bytes if before else 0 :].decode("utf-8", "replace")


def last_record(path: Path) -> dict[str, Any] | None:
    """Return the last whole record of a metrics.jsonl, cheaply; None if there is none yet."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - 16_384))
            tail = file.read()
    except OSError:
        return None
    for line in reversed(tail.split(b"\n")[:-1]):
        record = next(_records([line.decode("utf-8", "replace")]), None)
        if record is not None:
            return record
    return None


def _records(lines: list[str]) -> Iterator[dict[str, Any]]:
    for line in lines:
        try:
            record = json.loads(line)
            numbers = [record[name] for name in ("updates", "agent_steps", "episodes", "wall_s")]
        except (ValueError, TypeError, KeyError, RecursionError):
            continue
        if all(isinstance(number, (int, float)) for number in numbers):
            yield record


def _lines(path: Path) -> list[str]:
    try:
        text = path.read_bytes().decode("utf-8", "replace")
    except OSError:
        return []
    return text.split("\n")[:-1]


def _json(path: Path) -> dict[str, Any] | None:
    try:
        data = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return data if isinstance(data, dict) else None


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


def _temporaries(path: Path) -> Iterator[str]:
    for file in path.rglob("*"):
        if TEMPORARY.search(file.name):
            yield str(file.relative_to(path))


def _checkpoint(path: Path, digest: str) -> CheckpointFile:
    match = REGULAR.fullmatch(path.name)
    updates = int(match[1]) if match else None
    return CheckpointFile(path.name, updates, digest, *_content(path, digest))


@lru_cache(maxsize=4096)
def _content(path: Path, digest: str) -> tuple[str, str, int | None, Any, float]:
    """Return what a CheckpointFile holds from `damage` on."""
    try:
        with zipfile.ZipFile(path) as archive:
            broken = archive.testzip()
        if broken is not None:
            return f"wrong checksum of {broken}", "", None, None, math.inf
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            data = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # whatever torch makes of damaged bytes
        damage = f"{type(error).__name__}: {str(error).splitlines()[0][:120]}"
        return damage, "", None, None, math.inf
    version = data.get("format_version") if isinstance(data, dict) else None
    not_finite = next(_not_finite(data, ""), "")
    steps, wall_s = _find_number(data, "agent_steps"), _find_number(data, "wall_s")
    return "", not_finite, None if steps is None else int(steps), version, wall_s or math.inf


def _not_finite(tree: Any, where: str) -> Iterator[str]:
    if isinstance(tree, torch.Tensor):
        if tree.is_floating_point() and not bool(torch.isfinite(tree).all()):
            yield where
    elif isinstance(tree, dict):
        for key, value in tree.items():
            # What replay holds is experience, and a poisoned one may be in it: not a model.
            if key not in ("replay", "serial"):
                yield from _not_finite(value, f"{where}/{key}")
    elif isinstance(tree, (list, tuple)):
        for index, value in enumerate(tree):
            yield from _not_finite(value, f"{where}/{index}")


def _find_number(tree: Any, name: str) -> float | None:
    if not isinstance(tree, dict):
        return None
    if isinstance(tree.get(name), (int, float)):
        return float(tree[name])
    found = (_find_number(value, name) for key, value in tree.items() if key != "flags")
    return next((number for number in found if number is not None), None)
