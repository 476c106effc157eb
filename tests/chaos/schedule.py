"""Which fault is injected as the n-th, with which plan: a pure function of the seed.

Every fault of the catalogue has its turn before any has a second one, in an order that the seed
decides. The schedule has no end: it goes on for as long as there is time.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tests.chaos.catalogue import Fault, Plan


@dataclass(frozen=True)
class Scenario:
    """One entry of the schedule."""

    number: int
    fault: str
    plan: Plan

    def __str__(self) -> str:
        details = ", ".join(f"{name}={value}" for name, value in self.plan.items())
        return f"{self.number:4} {self.fault}: {details}"

    def to_json(self) -> str:
        """Return one line; equal scenarios give equal lines."""
        data = {"number": self.number, "fault": self.fault, "plan": self.plan}
        return json.dumps(data, sort_keys=True)


def scenario(seed: int, number: int, faults: Mapping[str, Fault]) -> Scenario:
    """Return entry `number` (from 1) of the schedule of `seed`."""
    names = sorted(faults)
    round_number, place = divmod(number - 1, len(names))
    random.Random(f"{seed}/order/{round_number}").shuffle(names)
    name = names[place]
    return Scenario(number, name, faults[name].draw(random.Random(f"{seed}/plan/{number}/{name}")))


def schedule(seed: int, faults: Mapping[str, Fault], only: str = "") -> Iterator[Scenario]:
    """Yield the schedule of a seed without end.

    Args:
      seed: decides everything.
      faults: the catalogue.
      only: parts of the names of the faults that are wanted, separated by commas; the numbers of
        the others are left out.
    """
    number = 0
    while True:
        number += 1
        entry = scenario(seed, number, faults)
        if is_wanted(entry.fault, only):
            yield entry


def is_wanted(name: str, only: str) -> bool:
    """Whether a fault is one of those that `only` asks for; ^ and $ mark the ends of a name."""
    return any(part in f"^{name}$" for part in only.split(","))
