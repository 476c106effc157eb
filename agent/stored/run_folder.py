"""The folder of one run: where it is, and what it says about the run.

    results/<env>_<YYYYmmdd-HHMMSS>/        several games: 6games_<some of them>_<time>
      flags.json       every flag with its resolved value
      run.json         commit, versions, hardware, command line: what produced these numbers, in
                       the first session; under "resumed" the same of each later one
      metrics.jsonl    one record per line, appended (metrics/sinks.py)
      status.json      how the run is at this moment
      findings.jsonl, evaluations.csv    a line for each (agent/run/status.py)
      train.log        everything that was logged, down to DEBUG
      checkpoints/     see agent/stored/checkpoint_writer.py
      summary.json     only of a run that ended cleanly: counters, best return, why it ended

`run.json` never holds environment variables: they contain passwords.
"""

from __future__ import annotations

import logging
import os
import platform
import re
import subprocess
from collections.abc import Mapping, Sequence
from datetime import datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil

from ritornello.core.atomic_file import writable_folder, write_json
from ritornello.core.errors import ConfigError
from ritornello.core.file_lock import LOOK_S, FileLock
from ritornello.core.files import disk
from ritornello.core.plain_data import parse_json, read_text, shown, shown_text
from ritornello.core.project import PROJECT_ROOT
from ritornello.core.run_layout import CHECKPOINTS, FLAGS, LOCK, LOG, RECORDS, SESSIONS, SUMMARY
from ritornello.core.saved_state import StateError, item, items
from ritornello.core.spec import game_name
from ritornello.core.version import VERSION
from ritornello.metrics.hardware import usable_cores
from ritornello.metrics.run_files import set_aside

RECORDED_PACKAGES = ("torch", "numpy", "gymnasium", "ale-py", "opencv-python-headless")
MAX_FILE_BYTES = 50_000_000  # of run.json, in which a session takes 2 kB
MAX_NOTES = 1000  # of a session
MAX_GAMES_LENGTH = 60  # of several games in a folder's name; with the time it is 80 at most

log = logging.getLogger(__name__)


class RunFolder:
    """Paths and small JSON files of one run. Not thread-safe, on purpose: one thread reports."""

    def __init__(self, path: Path | str) -> None:
        """Describe an existing folder; `create` makes a new one."""
        self.path = Path(path).absolute()  # an environment may change the working directory
        self.checkpoints = self.path / CHECKPOINTS
        self.flags_file = self.path / FLAGS
        self.run_file = self.path / SESSIONS
        self.metrics_file = self.path / RECORDS
        self.log_file = self.path / LOG
        self.summary_file = self.path / SUMMARY

    @classmethod
    def create(
        cls,
        results: Path | str,
        env_id: str,
        *,
        name: str | None = None,
        now: datetime | None = None,
    ) -> RunFolder:
        """Make `results/<name>` or `results/<env>_<time>`: two runs never share a folder.

        Args:
          results: parent folder, made if missing.
          env_id: environment id, or several with commas; made safe for a file name.
          name: name of the folder. If it is taken, `_2`, `_3`, ... is appended. None: a name from
            `env_id` and `now`.
          now: the time in the name; by default the present time.

        Raises:
          ConfigError: if there is no room or no right to write there, or no such name.
        """
        parent = Path(results)
        stem = name or f"{run_name(env_id)}_{now or datetime.now():%Y%m%d-%H%M%S}"
        writable_folder(parent)  # a full disk is told before there is a folder
        folder = cls(create_exclusively(parent, stem))
        try:
            folder.checkpoints.mkdir()
            for made_in in (parent, folder.path):  # or a power cut could take the folder along
                disk().sync_folder(made_in)
        except OSError as error:
            raise ConfigError(f"Cannot write into {folder.path}: {error.strerror}.") from error
        return folder

    def lock(self, wait_s: float = LOOK_S) -> FileLock:
        """Take the right to write into the folder, before anything in it is touched.

        `wait_s` is the time that another session may take to end, in seconds, or the live page to
        look at the lock: a program that has just killed a session may give it a moment. The caller
        releases the lock.

        Raises:
          ConfigError: if another session has it, or the folder cannot be written to.
        """
        lock = FileLock(self.path / LOCK)
        if not lock.wait(wait_s):
            raise ConfigError(
                f"{self.path} belongs to {lock.holder()}: expected a run folder in which nobody "
                "trains. Stop that process (Ctrl-C, or kill with its number) and try again, or go "
                "on in a folder of its own with --new_run_folder=True."
            )
        return lock

    def read_flags(self) -> dict[str, Any]:
        """Return the flags that the run was started with.

        Raises:
          ValueError: if the file is missing, or holds no JSON object.
        """
        return _read_object(self.flags_file)

    def write_run_info(self, command_line: Sequence[str]) -> None:
        """Add to run.json what a reader needs to know to believe or repeat this session."""
        info: dict[str, Any] = {
            "started": datetime.now().astimezone().isoformat(timespec="seconds"),
            "command_line": list(command_line),
            "version": VERSION,
            "source": describe_source(),
            "versions": describe_versions(),
            "machine": describe_machine(),
        }
        try:
            earlier = self.sessions()
        except ValueError as error:  # the run goes on all the same
            aside = set_aside(self.run_file, datetime.now())
            log.warning("%s It is %s now, and a new one is begun.", error, aside.name)
            earlier = []
        if earlier:
            first, *others = earlier
            info = {**first, "resumed": [*others, info]}
        write_json(self.run_file, info)

    def note(self, what: Mapping[str, Any]) -> None:
        """Add to the newest session in run.json something that a person did to the run.

        Raises:
          ValueError: if the file is not what `write_run_info` wrote.
          OSError: if the file cannot be written.
        """
        info = _read_object(self.run_file)
        later = info.get("resumed")
        session = later[-1] if isinstance(later, list) and later else info
        if not isinstance(session, dict) or not isinstance(session.get("control", []), list):
            raise ValueError(f"{self.run_file} is not what this program wrote.")
        session["control"] = [*session.get("control", []), dict(what)][-MAX_NOTES:]
        write_json(self.run_file, info)

    def sessions(self) -> list[dict[str, Any]]:
        """Return the entry of each session in run.json, the first one first; [] without the file.

        Raises:
          ValueError: if the file is not what `write_run_info` wrote.
        """
        if not self.run_file.exists():
            return []
        first = _read_object(self.run_file)
        try:
            sessions = [first, *items(first, "resumed", dict, default=())]
            for session in sessions:
                item(session, "started", str, default="")
                items(session, "command_line", str, default=())
                for name in ("source", "versions", "machine"):
                    item(session, name, dict, default={})
        except StateError as error:
            raise ValueError(f"{self.run_file} is not what this program wrote: {error}.") from error
        first.pop("resumed", None)
        return sessions

    def session_number(self) -> int:
        """Return the number of the newest session, 1 for the first one."""
        try:
            return max(1, len(self.sessions()))
        except ValueError:
            return 1

    def has_checkpoint(self) -> bool:
        """Whether there is anything to resume from (without loading torch)."""
        return any(self.checkpoints.glob("*.pt"))


def _read_object(path: Path) -> dict[str, Any]:
    try:
        data = parse_json(read_text(path, "the file", MAX_FILE_BYTES), str(path))
    except ConfigError as error:
        raise ValueError(str(error)) from error
    if not isinstance(data, dict):
        raise ValueError(f"{path} holds {shown(data, 50)}, expected a JSON object.")
    return data


def run_name(env_id: str) -> str:
    """Return the environment's part of a run folder's name.

    "AirRaidNoFrameskip-v4,CarnivalNoFrameskip-v4" gives "2games_AirRaid-Carnival"; the names of
    many games are cut off where there is no more room.
    """
    games = env_id.split(",")
    if len(games) == 1:
        return safe_name(env_id)
    text = f"{len(games)}games_" + "-".join(safe_name(game_name(game)) for game in games)
    return text if len(text) <= MAX_GAMES_LENGTH else f"{text[: MAX_GAMES_LENGTH - 3]}..."


def safe_name(text: str) -> str:
    """Return `text` fit for a file name: `ALE/Pong-v5` gives `ALE-Pong-v5`."""
    return re.sub(r"[^A-Za-z0-9._+-]+", "-", text).strip("-.")[:100] or "run"


def create_exclusively(parent: Path, stem: str) -> Path:
    """Make and return `parent/stem`, or `parent/stem_2`, ... if somebody else has it."""
    try:
        parent.mkdir(parents=True, exist_ok=True)
        for number in range(1, 10_000):
            path = parent / (stem if number == 1 else f"{stem}_{number}")
            try:
                path.mkdir()
                return path
            except FileExistsError:
                continue
    except (OSError, ValueError) as error:  # ValueError: a name that no folder can have
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(
            f"Cannot make a run folder in {shown_text(str(parent))}: {reason}. "
            "Give a folder that you may write to, e.g. --results_dir=/tmp/results."
        ) from error
    raise ConfigError(f"{shown_text(str(parent))} holds 10 000 folders named {stem}: clean it up.")


def describe_source() -> dict[str, Any]:
    """Return {commit, dirty} of this source tree; both None outside of a git checkout."""
    top_and_commit = _git("rev-parse", "--show-toplevel", "HEAD")
    if top_and_commit is None or Path(top_and_commit.split("\n")[0]).resolve() != PROJECT_ROOT:
        # The second case: an unpacked copy inside somebody else's repository.
        return {"commit": None, "dirty": None}
    status = _git("status", "--porcelain", "--untracked-files=no")
    return {
        "commit": top_and_commit.split("\n")[1],
        "dirty": None if status is None else bool(status),
    }


def describe_versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that can change results."""
    versions = {"python": platform.python_version()}
    for package in RECORDED_PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return versions


def describe_machine() -> dict[str, Any]:
    """Return the hardware: names, counts, memory in bytes. Starts no CUDA context."""
    import torch  # lazily: multi_train reads run folders and has no use for torch

    gpus = [torch.cuda.get_device_name(n) for n in range(torch.cuda.device_count())]
    return {
        "system": platform.platform(),
        "cpu": cpu_name(),
        "cores_usable": len(usable_cores()),
        "cores_logical": os.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
        "gpus": gpus,
        "cuda": torch.version.cuda,
    }


def _git(*arguments: str) -> str | None:
    try:
        result = subprocess.run(
            ["git", "-C", str(PROJECT_ROOT), *arguments],
            capture_output=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None  # no git, or no repository: the run is as good, only less documented
    return os.fsdecode(result.stdout).strip()  # a folder's name may be no UTF-8


def cpu_name() -> str:
    """Return the name of the processor, as far as the system tells it."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.processor() or "unknown"
    match = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return match.group(1) if match else platform.processor() or "unknown"
