"""Room for checkpoints: without it the queue ends, since each run would be lost at its save."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

from research.queue.plan import PlannedRun
from research.queue.store import Store
from research.queue.trainer_process import Ending

# What a save wants beside its files (agent/stored/checkpoint_file.py, which would load PyTorch).
BYTES_BESIDES = 1_000_000
# A run that failed is taken to need so much if no one like it has saved yet: it is more than most
# do, since a run that is passed over by mistake is worse than a queue that asks for some room.
UNKNOWN_BYTES = 100_000_000
DISK_IS_FULL = "the disk is full"  # so main.py says whose save was refused, also by a quota


class StoreFull(OSError):
    """The store has no room for a checkpoint of a run, which is no failure of that run."""


def check_room(
    run: PlannedRun,
    store: Store,
    alike: Iterable[PlannedRun],
    ending: Ending | None = None,
) -> None:
    """Check that a run can be saved, and has not ended because it could not.

    Args:
      run: run that is to be started, or has failed.
      store: the store, which holds the run folders.
      alike: runs whose checkpoints are as large, itself included.
      ending: how it ended; None: it has not been started.

    Raises:
      StoreFull: if there is no room.
      OSError: if the disk does not say.
    """
    place = store.folder(run) if store.folder(run).exists() else store.path
    free = shutil.disk_usage(place).free
    folders = [folder for each in alike for folder in store.run_folders(each)]
    saved = max((_checkpoint_bytes(folder.checkpoints) for folder in folders), default=0)
    needed = (saved or (UNKNOWN_BYTES if ending else 0)) + BYTES_BESIDES
    is_refused = ending is not None and DISK_IS_FULL in ending.message
    if free >= needed and not is_refused:
        return
    what = f"{place} has no room for a checkpoint of {run.name}: {_mb(free)} are free"
    what += f" ({ending.message})" if ending and is_refused else f", {_mb(needed)} are needed"
    raise StoreFull(
        f"{what}. Make room there, or give another store (--store=<path>), and start the queue "
        "again: no failure was counted"
    )


def _checkpoint_bytes(folder: Path) -> int:
    """Return how large the largest checkpoint in a folder is, with its replay contents."""
    return sum(
        max((path.lstat().st_size for path in folder.glob(pattern)), default=0)
        for pattern in ("*.pt", "*.replay")
    )


def _mb(nbytes: int) -> str:
    return f"{nbytes / 1e6:,.1f} MB"
