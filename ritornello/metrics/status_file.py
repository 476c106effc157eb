"""status.json: how a run is at this moment, for whoever looks from outside. Format and reader.

The file is replaced at once with each record, so a reader finds a whole one or none. It decides
nothing: no session goes on from it. So it is not forced to the disk, and after a power cut it may
be missing or empty. A run that was killed cannot say so. `read_status` therefore looks whether the
process that wrote the file still lives. docs/run_folder.md has the keys.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil

from ritornello.core.atomic_file import TEMPORARY_SUFFIX
from ritornello.core.errors import ConfigError
from ritornello.core.plain_data import parse_json, read_text
from ritornello.core.process_death import is_same_process, start_of
from ritornello.core.run_layout import STATUS

FORMAT = 1
OVER = ("ended", "failed")  # states after which nothing comes
DIED = "died"  # what a reader finds; no run writes it
MAX_FILE_BYTES = 20_000_000


def identity() -> dict[str, Any]:
    """Return what tells this process from all others: keys of the file."""
    return {
        "pid": os.getpid(),
        "pid_started": psutil.Process().create_time(),
        "pid_start": start_of(os.getpid()),
        "host": platform.node(),
    }


def write_status(path: Path, status: Mapping[str, Any]) -> None:
    """Put a new file in the place of the old one; a reader sees one of them whole.

    Raises:
      OSError: if it cannot be written; the old one is as it was then.
      ValueError: if a number in it is not finite.
    """
    text = json.dumps(status, allow_nan=False, ensure_ascii=False)
    # A session that goes on in this folder removes what is left of one that was killed here.
    temporary = path.with_name(f".{path.name}.{os.getpid()}{TEMPORARY_SUFFIX}")
    temporary.unlink(missing_ok=True)  # whoever left one, and whatever it links to
    try:
        temporary.write_text(text + "\n", encoding="utf-8")
        os.replace(temporary, path)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)  # of one that failed


def read_status(folder: Path) -> dict[str, Any] | None:
    """Return what a run says of itself; None if it says nothing that can be read.

    If its process is gone without having said so, "state" is `DIED`. Of a process on another
    machine that cannot be known; there "time" says how old the words are.

    Args:
      folder: folder of the run.
    """
    path = folder / STATUS
    try:
        if not path.is_file():  # opening a pipe would wait for somebody to write
            return None
        status = parse_json(read_text(path, "the file", MAX_FILE_BYTES), str(path))
    except (ConfigError, OSError):
        return None
    if not isinstance(status, dict) or status.get("format") != FORMAT:
        return None
    is_here = status.get("host") == platform.node()
    if status.get("state") not in OVER and is_here:
        pid, start, started = (status.get(key) for key in ("pid", "pid_start", "pid_started"))
        if not isinstance(started, (int, float)) or not is_same_process(pid, start, started):
            status["state"] = DIED
    return status
