"""Processes in the place of the one that evaluates: they answer at once, or are in trouble."""

import os
import signal
import sys

from ritornello.agent.testing.evaluation import Done, Row
from ritornello.core.process_death import ignore_interrupts
from ritornello.transport.channel import Failed
from ritornello.transport.lifeline import Phase


def light_follower(blueprint, folder, board, end, lifeline):
    """Do what the file `trouble` in the run folder says at the next order; else answer."""
    ignore_interrupts()
    lifeline.hold()
    try:
        while True:
            lifeline.pulse.beat(Phase.RESTING)
            if not end.poll(0.2):
                continue
            order = end.recv()
            lifeline.pulse.beat(Phase.PLAYING)
            file = folder / "trouble"
            trouble = file.read_text() if file.exists() else ""
            if trouble == "dies":
                end.send(row(order))  # half an evaluation
                os.kill(os.getpid(), signal.SIGKILL)
            if trouble == "hangs":
                os.kill(os.getpid(), signal.SIGSTOP)
            if trouble == "fails":
                end.send(Failed("ValueError: a mistake in step()"))
                sys.exit(1)
            if trouble == "is slow":
                while file.exists() and file.read_text() == trouble:
                    lifeline.pulse.beat(Phase.PLAYING)
                    end.poll(0.05)
            end.send(row(order))
            score = float(order.updates)
            end.send(Done(order.updates, order.agent_steps, {"sampled": score}, order.best is None))
    except (EOFError, OSError):
        pass


def row(order):
    mean = float(order.updates)
    return Row(
        order.agent_steps, order.updates, "Test-v0", "sampled", 5, mean, 0.5, mean, mean, 9.0, 5, ""
    )
