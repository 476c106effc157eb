"""Algorithms with which the second learner has bad luck, for tests: --algorithm=<module>:<name>."""

import os
import signal

from ritornello.agent.algorithms.base import register_algorithm
from ritornello.agent.algorithms.impala import Impala

UPDATES = 30  # that are made before


class Unlucky(Impala):
    calls = 0

    def loss(self, model, batch, optimiser=None, progress=0.0):
        self.calls += 1
        if self.group.rank == 1 and self.calls > UPDATES:
            batch = self.bad_luck(batch)
        return super().loss(model, batch, optimiser, progress)

    def bad_luck(self, batch):
        raise NotImplementedError


@register_algorithm("raises")
class Raises(Unlucky):
    def bad_luck(self, batch):
        raise RuntimeError("out of luck")


@register_algorithm("nan")
class NotANumber(Unlucky):
    def bad_luck(self, batch):
        batch.reward.fill_(float("nan"))
        return batch


@register_algorithm("killed")
class Killed(Unlucky):
    def bad_luck(self, batch):
        os.kill(os.getpid(), signal.SIGKILL)


@register_algorithm("stopped")
class Stopped(Unlucky):
    def bad_luck(self, batch):
        os.kill(os.getpid(), signal.SIGSTOP)
        return batch
