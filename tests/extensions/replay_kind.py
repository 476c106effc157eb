"""A replay kind of one's own: its type is tests.extensions.replay_kind:recent."""

from typing import ClassVar

import numpy as np

from ritornello.replay.keys import Key, positive
from ritornello.replay.registry import register
from ritornello.replay.sampler import Candidates, Sampler


class Recent(Sampler):
    """Draw young unrolls more often: the chance halves every `half_life` unrolls of age."""

    about = "any, the younger the likelier"
    keys: ClassVar = {
        "half_life": Key("number > 0", 100.0, "Unrolls after which the chance is halved.", positive)
    }

    def __init__(self, half_life):
        self.half_life = half_life

    def propose(self, contents, n, progress, rng):
        ids = np.array([entry.item.id for entry in contents.entries])  # numbered as they came
        chances = 0.5 ** ((ids.max() - ids) / self.half_life)
        return Candidates(rng.choice(len(ids), n, p=chances / chances.sum()))


register("recent", Recent)
