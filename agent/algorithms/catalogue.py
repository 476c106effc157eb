"""What `--algorithm` chooses from: each algorithm is one class, registered by its name.

The class is an `Algorithm` (agent/algorithms/base.py); impala.py has the one that is shipped. One
of your own is registered in a module of yours, and found by `--algorithm=<module>:<name>`
(docs/your_own.md). No torch is imported here: the flags are checked with ALGORITHMS.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from agent.extensions import Registry

if TYPE_CHECKING:
    from agent.algorithms.base import Algorithm

ALGORITHMS: Registry[type[Algorithm]] = Registry(
    "algorithm", "algorithm", {"impala": "agent.algorithms.impala"}
)
Kind = TypeVar("Kind", bound="type[Algorithm]")


def register_algorithm(name: str) -> Callable[[Kind], Kind]:
    """Return a decorator that makes a class an algorithm of `--algorithm=<its module>:<name>`."""

    def keep(kind: Kind) -> Kind:
        ALGORITHMS.add(name, kind, kind.__module__)
        return kind

    return keep
