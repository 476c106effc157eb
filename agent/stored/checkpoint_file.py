"""One file of a checkpoint: written whole or not at all, read with suspicion, never executed.

What comes in is a tree of agent/stored/checkpoint_tree.py; what goes out is a file that
`torch.load(weights_only=True)` can read. agent/stored/checkpoint_writer.py says which files there
are.

A file may come from a stranger. So before anything is made of it: every entry of the archive must
be stored as it is (a compressed one could expand without end), its directory must be where every
reader finds it, checksums must be right (torch writes them, but does not look at them), the tree
must hold nothing but plain types, each of them once, and no tensor may claim more numbers than it
stores.
"""

from __future__ import annotations

import errno
import mmap
import os
import pickle
import struct
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from ritornello.agent.stored.checkpoint_tree import decode
from ritornello.core import faults
from ritornello.core.atomic_file import atomic_path
from ritornello.core.errors import CheckpointError, first_line
from ritornello.core.files import disk

FORMAT_VERSION = 1
# What the system says of no bytes, but of who reads, or of a disk that is away: rights, tickets of
# network disks, limits. A run that went on from an older file would set this one aside.
REFUSALS = {
    getattr(errno, name, -1)
    for name in (
        *("EACCES", "EPERM", "EKEYEXPIRED", "EKEYREVOKED", "EKEYREJECTED", "ENOKEY"),
        *("ESTALE", "ETIMEDOUT", "EHOSTDOWN", "EHOSTUNREACH", "ENOTCONN"),
        *("EMFILE", "ENFILE", "ENOMEM"),
    )
}
ARCHIVE = b"PK"  # the first bytes of an archive
# The last bytes of an archive: where its directory starts, a mark, where this begins (of archives
# beyond 4 GB); a mark, where the directory starts, the length of a comment.
_END = struct.Struct("<48xQ4s4xQ4x4s12xIH")


class DamagedFile(CheckpointError):
    """A file whose bytes are not those that were written, or that no run can go on from."""


def write_tree(path: Path, tree: Mapping[str, Any], *, verify: bool = False) -> None:
    """Write an encoded tree to `path`; it replaces the old file once it is complete on the disk.

    With `verify`, the new file is read back and its checksums compared before it takes its place.

    Raises:
      CheckpointError: if the disk is full or refuses. `path` is as it was then, and nothing is left
        beside it.
    """
    try:
        with atomic_path(path) as temporary:
            with disk().open(temporary) as file:
                torch.save({"format_version": FORMAT_VERSION, "state": tree}, file)
            if verify:
                _check_archive(temporary)
    except (OSError, RuntimeError, ValueError, zipfile.BadZipFile) as error:
        cause = _os_error(error)
        if cause is not None and cause.errno in (errno.ENOSPC, errno.EDQUOT):
            raise CheckpointError(
                f"the disk is full: {path.name} could not be written in {path.parent.resolve()}. "
                "Nothing has changed there: free some space (--keep_checkpoints and --save_replay "
                "decide how much is needed)."
            ) from error
        reason = first_line(error) if cause is None else cause.strerror or str(cause)
        raise CheckpointError(
            f"Could not write {path}: {reason}. The checkpoint before it is intact."
        ) from error


def read_tree(path: Path) -> dict[str, Any]:
    """Return the tree in a file, decoded and on the CPU.

    Raises:
      DamagedFile: if the file is missing, damaged, or not one of ours.
      CheckpointError: if the file is of another format version, or may not be read.
    """
    try:
        faults.at("file.read", path)
        if not path.exists():
            raise FileNotFoundError(path)
        if not path.is_file():  # opening a pipe would wait for somebody to write
            raise ValueError("it is not a file")
        check_claims(path)
        _check_archive(path)
        data = torch.load(path, map_location="cpu", weights_only=True)
        if type(data) is not dict or not {"format_version", "state"} <= data.keys():
            raise ValueError("it has no format version and state")
        version = data["format_version"]
        if type(version) is not int:
            raise ValueError(f"its format version is a {type(version).__name__}")
        if version != FORMAT_VERSION:
            raise CheckpointError(
                f"{path} has format version {version}, this program reads version "
                f"{FORMAT_VERSION}. Use the commit that wrote it (source.commit in the run's "
                "run.json)."
            )
        decoded = decode(data["state"])
        if type(decoded) is not dict:
            raise ValueError(f"its state is a {type(decoded).__name__}")
    except FileNotFoundError as error:
        raise DamagedFile(f"{path} is missing.") from error
    except CheckpointError:
        raise
    except pickle.UnpicklingError as error:
        raise DamagedFile(
            f"{path} is damaged or not a checkpoint of ours: it holds more than tensors and plain "
            "types, and is not read. (A model.tar of TorchBeast: "
            "python -m ritornello.agent.torchbeast.)"
        ) from error
    except Exception as error:  # nobody lists what the bytes of a stranger can make a reader raise
        refusal = _refusal(error)
        if refusal is not None:
            raise CheckpointError(
                f"{path} may not be read: {refusal}. It need not be damaged: once that is mended, "
                "give the same command again."
            ) from error
        raise DamagedFile(
            f"{path} is damaged or not a checkpoint of ours: {first_line(error)}."
        ) from error
    return decoded


def _check_archive(path: Path) -> None:
    """Raise ValueError if a checksum of an archive is wrong."""
    with zipfile.ZipFile(path) as archive:
        broken = archive.testzip()
    if broken is not None:
        raise ValueError(f"wrong checksum of {broken}")


def check_sizes(archive: zipfile.ZipFile, path: Path) -> None:
    """Raise ValueError if torch would read other entries than these, or more than they hold.

    torch writes no compressed entry, but reads such entries all the same.
    """
    entries, size, start = archive.infolist(), path.stat().st_size, archive.start_dir
    if size < _END.size:
        raise ValueError("it is an archive of nothing")
    # Several entries may also claim the same bytes, to be read over and over.
    if (
        any(entry.compress_type != zipfile.ZIP_STORED for entry in entries)
        or sum(entry.file_size for entry in entries) > size
    ):
        raise ValueError("its entries would expand to more than it holds")
    # zipfile takes the directory right before the end, torch one that lies where the end says.
    with path.open("rb") as file:
        file.seek(-_END.size, os.SEEK_END)
        start_64, mark_64, end_64, *end = _END.unpack(file.read())
    if end != [b"PK\5\6", min(start, 2**32 - 1), 0] or (
        mark_64 == b"PK\6\7" and (start_64, end_64) != (start, size - _END.size)
    ):
        raise ValueError("its directory is not where its end says")


def check_claims(path: Path) -> None:
    """Raise an error if a file of torch's asks for far more memory than it has bytes.

    Raises:
      UnpicklingError: if it asks for a bytearray, which torch makes of any size. Its name stands
        between the ends of two lines of the pickle.
      ValueError: if `check_sizes` refuses it.
    """
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        is_archive = content[: len(ARCHIVE)] == ARCHIVE  # else of old: nothing is compressed
        if content.find(b"\nbytearray\n") >= 0:
            raise pickle.UnpicklingError("it asks for a bytearray")
    if is_archive:
        with zipfile.ZipFile(path) as archive:
            check_sizes(archive, path)


def _refusal(error: BaseException) -> str | None:
    """Return why the system refuses to read, in words; None if the bytes are to blame."""
    if isinstance(error, MemoryError) or "DefaultCPUAllocator" in str(error):  # of torch
        return "there is not enough memory"
    cause = _os_error(error)
    return cause.strerror if cause is not None and cause.errno in REFUSALS else None


def _os_error(error: BaseException) -> OSError | None:
    """Return the error of the system; torch reports a failed write as a wrong position."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError):
            return cause
        cause = cause.__cause__ or cause.__context__
    return None
