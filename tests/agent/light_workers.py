"""Workers and a server that need neither torch nor an environment, so that they start at once.

They keep the protocol of agent/acting/worker.py and agent/acting/inference_server.py, and have the
trouble that their config names. Used in the place of the real ones where a pool's doings are
tested, not theirs.
"""

import os
import signal
import sys
import time
import traceback
from dataclasses import dataclass

import numpy as np

from ritornello.core.errors import Closed
from ritornello.core.process_death import ignore_interrupts
from ritornello.core.spec import EnvSpec
from ritornello.transport.channel import WorkerEnd, WorkerStats
from ritornello.transport.lifeline import Phase
from tests.troubles import crash, fork_and_die, hang_in_c, hang_in_python

NBYTES = 64
BLOCKS_BEFORE = 5  # that a worker hands over before its trouble
SPEC = EnvSpec("Light-v0", (4,), "float32", 1, ("A", "B"), 1)
TROUBLES = {
    "hang in python": hang_in_python,
    "hang in c": hang_in_c,
    "crash": crash,
    "fork": fork_and_die,
}


@dataclass(frozen=True)
class LightSchema:
    """What a pool asks of an UnrollSchema."""

    nbytes: int = NBYTES


@dataclass(frozen=True)
class LightConfig:
    """What a pool asks of a WorkerConfig."""

    worker_id: int
    life: int = 0
    fault_plan: tuple = ()
    num_envs: int = 3
    trouble: str = ""  # in the first life; "fail" in all of them, and from the first block on
    env_spec: EnvSpec = SPEC
    feature_count: int = 0
    state_count: int = 0

    def schema(self):
        return LightSchema()


@dataclass(frozen=True)
class LightServerConfig:
    """What a pool asks of a ServerConfig."""

    life: int = 0
    fault_plan: tuple = ()


def life_and_number(records):
    """Which life of a worker wrote a block, and as which of its blocks."""
    life, number = records[0, :16].view(np.int64).tolist()
    return life, number


def light_worker(config, ring, board, mailbox, connection, lifeline):
    ignore_interrupts()
    lifeline.hold()
    end = WorkerEnd(ring, connection)
    beat = lifeline.pulse.beat
    try:
        number = 0
        while True:
            beat(Phase.WAITING)
            slot = end.wait_for_slot(1.0)
            if slot is None:
                continue
            beat(Phase.STEPPING)
            if config.trouble == "fail":
                raise ValueError(f"a mistake in step(), seen by process {os.getpid()}")
            if number == BLOCKS_BEFORE and config.life == 0 and config.trouble:
                TROUBLES[config.trouble]()
            if mailbox is not None:
                ask(mailbox, beat)
            end.ring.block(slot)[0, :16].view(np.int64)[:] = (config.life, number)
            beat(Phase.SENDING)
            end.send_ready(slot, (), WorkerStats(steps=1))
            number += 1
            time.sleep(0.005)  # an environment takes its time, too
    except Closed:
        pass
    except BaseException:
        end.send_failed(traceback.format_exc())
        sys.exit(1)


def ask(mailbox, beat):
    """Have actions chosen for the first group."""
    count = mailbox.group_sizes[0]
    while not mailbox.wait(0, 1.0):  # as a successor: for the answer to the one before
        beat(Phase.ASKING)
    mailbox.post(
        0,
        np.zeros((count, 1, 4), np.float32),
        np.zeros(count, bool),
        np.zeros(count, np.int64),
        np.zeros(count, np.float32),
        np.zeros(count, np.int64),
        None,
    )
    beat(Phase.ASKING)
    while not mailbox.wait(0, 1.0):
        beat(Phase.ASKING)
    beat(Phase.STEPPING)


def light_server(config, mailboxes, doorbell, board, connection, lifeline):
    ignore_interrupts()
    lifeline.hold()
    doorbell.hang_up_with(connection.fileno())
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        while True:
            lifeline.pulse.beat(Phase.IDLE)
            doorbell.wait(0.0 if any(box.asked() for box in mailboxes) else 1.0)
            lifeline.pulse.beat(Phase.ANSWERING)
            for box in mailboxes:
                for group in box.asked():
                    box.letter(group)["version"][...] = config.life
                    box.answer(group)
    except Closed:
        connection.close()
