"""The faults that can be injected: each has a name, draws its own plan, and plays it on a stage.

A plan is plain data, drawn from the scenario's random numbers alone, so that a seed and a number
give the same plan on every machine. `tests/chaos/scenarios/` fills the catalogue.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.chaos.stage import Stage

Plan = dict[str, Any]
Draw = Callable[[random.Random], Plan]
Play = Callable[["Stage", Plan], None]


@dataclass(frozen=True)
class Fault:
    """One kind of fault."""

    name: str
    about: str
    draw: Draw
    play: Play
    needs: tuple[str, ...] = ()  # abilities of the machine, see machine.py


CATALOGUE: dict[str, Fault] = {}


def fault(name: str, draw: Draw, *, needs: tuple[str, ...] = ()) -> Callable[[Play], Play]:
    """Enter a function into the catalogue; its docstring says what is done."""

    def enter(play: Play) -> Play:
        assert name not in CATALOGUE, name
        about = " ".join((play.__doc__ or "").split())
        CATALOGUE[name] = Fault(name, about, draw, play, needs)
        return play

    return enter


def all_faults() -> dict[str, Fault]:
    """Return the whole catalogue."""
    from tests.chaos import scenarios

    scenarios.load()
    return CATALOGUE
