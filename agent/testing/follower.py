"""The process that evaluates: it plays whole games with weights that the trainer hands over.

    trainer                                     follower
    weights into the board, then an Order ────► copies the weights, plays
    Row, Row, ..., Done ◄─────────────────────  tells each row when its games are over

It starts at the priority of the trainer, and plays at one that leaves it a twentieth of a busy
machine. It is asked only while it rests, so nothing ever queues.
Messages are small: each fits into the pipe at once, and neither side waits in a send. The end of
the pipe is the wish to leave. agent/run/evaluating.py starts, asks, watches and ends it.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
import traceback
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path

import torch

from ritornello.agent.assembly import Blueprint
from ritornello.agent.machine import EVALUATION_SHARE, cpu_count, give_way, niceness_of_share
from ritornello.agent.testing.evaluation import Evaluation, Order
from ritornello.core.process_death import ignore_interrupts
from ritornello.transport.channel import last_words
from ritornello.transport.lifeline import LifelineEnd, Phase
from ritornello.transport.weights import WeightBoard
from ritornello.wrappers.trusted_modules import trust_kwargs, trust_modules_of

LOOK_S = 1.0  # how often a resting follower shows that it lives


@dataclass(frozen=True)
class FollowerConfig:
    """All that the process needs to know; plain and picklable, so that spawn can carry it."""

    blueprint: Blueprint  # the rules of the games
    folder: Path  # of the run


def follower_main(
    config: FollowerConfig, end: Connection, board: WeightBoard, lifeline: LifelineEnd
) -> None:
    """Entry point of the process. Returns when the trainer has hung up."""
    ignore_interrupts()
    lifeline.hold()
    flags = config.blueprint.flags
    for names in (flags.env, flags.model):  # the trainer's process has checked them
        trust_modules_of(names)
    trust_kwargs(flags.env_kwargs)
    os.environ["SDL_VIDEODRIVER"] = "dummy"  # films are made, and no window is opened
    torch.set_num_threads(1)
    beat = lifeline.pulse.beat
    try:
        evaluation = Evaluation(config.blueprint, config.folder)
        give_way(niceness_of_share(EVALUATION_SHARE * cpu_count()))
        while True:
            beat(Phase.RESTING)
            if end.poll(LOOK_S):
                order: Order = end.recv()
                began_s = time.monotonic()
                beat(Phase.PLAYING)
                if board.read_if_newer(order.updates - 1, evaluation.block) != order.updates:
                    raise RuntimeError(f"the board does not hold the weights of {order.updates}")
                done = evaluation.play(order, end.send, lambda: beat(Phase.PLAYING))
                end.send(replace(done, seconds=time.monotonic() - began_s))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        pass  # the trainer has hung up, or is gone
    except BaseException as error:
        with contextlib.suppress(OSError):
            end.send(last_words("".join(traceback.format_exception(error))))
        sys.exit(1)
    finally:
        end.close()
