"""What a crash leaves of the files of a run: a disk that forgets what was not synced.

The idea is SQLite's (its test6.c): what was not synced when the power goes may be there, or not, or
in part, or in another order. Here the real file system shows what the process sees, and
`ForgetfulDisk` notes beside it what it may rely on: bytes of a file after `sync`, names in a folder
after `sync_folder`.
"""

import contextlib
import os
from pathlib import Path

from ritornello.core.files import Disk

SECTOR_BYTES = 512
Files = dict[Path, bytes]  # relative path -> content
FOLDER = -1  # stands for the inode of any folder: only its name can be lost


class ForgetfulDisk(Disk):
    """The real disk, and what a power cut would leave of it. Use within `with`."""

    def __init__(self, root):
        """Take everything that is in `root` now as being safely on the disk."""
        self._root = root
        self._pins = {}  # inode -> descriptor: its number is not given away again
        self._synced = {}  # inode -> content at its last sync
        self._names = {}  # path -> inode, at the last sync of its folder
        for path, inode in self._present_names().items():
            self._names[path] = inode
            if inode != FOLDER:
                self._remember(path)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for descriptor in self._pins.values():
            os.close(descriptor)
        self._pins = {}

    def sync(self, path):
        super().sync(path)
        self._remember(path)

    def sync_folder(self, path):
        super().sync_folder(path)
        kept = {name: inode for name, inode in self._names.items() if name.parent != path}
        now = {n: inode for n, inode in self._present_names().items() if n.parent == path}
        self._names = {**kept, **now}

    def after_kill(self):
        """Return what the system has been given: all of it survives the end of the process."""
        contents = _contents(self._present_names())
        return {path.relative_to(self._root): data for path, data in contents.items()}

    def after_power_cut(self, chance=None):
        """Return what is on the disk after a power cut.

        Args:
          chance: decides about all bytes and names that were not synced; None: not one of them
            was lucky, and the disk has only what it must have.
        """
        now = self._present_names()
        content = {now[path]: data for path, data in _contents(now).items()}
        left = {}
        lost_folders = set()
        for path in sorted({*self._names, *now}):  # a folder comes before what is in it
            before, after = self._names.get(path), now.get(path)
            survives = (
                before if before == after or chance is None else chance.choice([before, after])
            )
            if path.parent in lost_folders or survives is None:
                lost_folders.add(path)
            elif survives != FOLDER:
                synced = self._synced.get(survives, b"")
                given = content.get(survives, synced)
                left[path.relative_to(self._root)] = _lucky_part(synced, given, chance)
        return left

    def _present_names(self):
        names = {}
        for path in self._root.rglob("*"):
            # The thread that writes status.json may rename its temporary file meanwhile.
            with contextlib.suppress(FileNotFoundError):
                names[path] = FOLDER if path.is_dir() else path.stat().st_ino
        return names

    def _remember(self, path):
        inode = path.stat().st_ino
        if inode not in self._pins:
            self._pins[inode] = os.open(path, os.O_RDONLY)
        self._synced[inode] = path.read_bytes()


def _contents(names):
    """Return path -> content of those files that are still there; see `_present_names`."""
    contents = {}
    for path, inode in names.items():
        if inode != FOLDER:
            with contextlib.suppress(FileNotFoundError):
                contents[path] = path.read_bytes()
    return contents


def _lucky_part(synced, given, chance):
    """Return what a power cut leaves of a file: its synced content and some of the rest."""
    if chance is None or synced == given:
        return synced
    kind = chance.choice(("synced", "all", "truncated", "sectors"))
    if kind == "synced":
        return synced
    if kind == "all":
        return given
    if kind == "truncated":
        return given[: chance.randint(min(len(synced), len(given)), len(given))]
    # The length was written, but only some sectors of the content: the others are as they were.
    mixed = bytearray(synced[: len(given)].ljust(len(given), b"\0"))
    for start in range(0, len(given), SECTOR_BYTES):
        if chance.random() < 0.5:
            mixed[start : start + SECTOR_BYTES] = given[start : start + SECTOR_BYTES]
    return bytes(mixed)


def write_files(root, files):
    """Make `root` hold exactly these files."""
    for path, content in files.items():
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
