"""A program that a test of run folders starts as a process of its own."""

import multiprocessing

from ritornello.agent.stored.run_folder import RunFolder

SPAWN = multiprocessing.get_context("spawn")


def wait_to_be_told(connection):
    """A worker: it does nothing until its pipe is closed."""
    connection.send("here")
    connection.poll(None)


def hold_the_lock(folder, connection):
    """Take the lock of a folder, say the number of a worker, and keep it until told to let go."""
    with RunFolder(folder).lock():
        mine, theirs = SPAWN.Pipe()
        worker = SPAWN.Process(target=wait_to_be_told, args=(theirs,))
        worker.start()
        assert mine.recv() == "here"
        connection.send(worker.pid)
        connection.recv()
