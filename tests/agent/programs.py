"""Programs that tests of run folders start as processes of their own."""

from __future__ import annotations

import multiprocessing
import sys
from pathlib import Path
from typing import Any

from ritornello.agent.stored.run_folder import RunFolder
from ritornello.core.errors import ConfigError


def hold_the_lock(folder: Path, connection: Any) -> None:
    """Take the lock of a folder, say so (or why not), and keep it until told to let go."""
    try:
        with RunFolder(folder).lock():
            connection.send("mine")
            connection.recv()
    except ConfigError as error:
        connection.send(str(error))


def wait_to_be_told(connection: Any) -> None:
    """A worker: it does nothing until its pipe is closed."""
    connection.send("here")
    connection.poll(None)


def hold_the_lock_with_a_worker(folder: Path, connection: Any) -> None:
    """Take the lock of a folder and start a worker, as a training does; say who it is."""
    with RunFolder(folder).lock():
        mine, theirs = multiprocessing.get_context("spawn").Pipe()
        worker = multiprocessing.get_context("spawn").Process(
            target=wait_to_be_told, args=(theirs,)
        )
        worker.start()
        assert mine.recv() == "here"
        connection.send(worker.pid)
        connection.recv()
        sys.exit()
