"""Programs that tests of run folders start as processes of their own."""

import multiprocessing

from ritornello.agent.stored.run_folder import RunFolder
from ritornello.core.errors import ConfigError

SPAWN = multiprocessing.get_context("spawn")


def wait_to_be_told(connection):
    """A worker: it does nothing until its pipe is closed."""
    connection.send("here")
    connection.poll(None)


def hold_the_lock(folder, connection, has_worker=False):
    """Take the lock of a folder, say so (or why not), and keep it until told to let go.

    With a worker, as a training has one, it says who that is instead.
    """
    try:
        with RunFolder(folder).lock():
            said = "mine"
            if has_worker:
                mine, theirs = SPAWN.Pipe()
                worker = SPAWN.Process(target=wait_to_be_told, args=(theirs,))
                worker.start()
                assert mine.recv() == "here"
                said = worker.pid
            connection.send(said)
            connection.recv()
    except ConfigError as error:
        connection.send(str(error))
