"""No evaluation during training; the kinds of it are imported only if flags ask for one.

Next to read: agent/run/evaluating.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from ritornello.agent.assembly import Blueprint
from ritornello.agent.pools.worker_pool import ProcessRow
from ritornello.agent.run.status_files import StatusFiles


class NoEvaluating:
    """Evaluates nothing, and is what the others are: what the trainer knows of them."""

    is_on = False  # whether it ever evaluates

    def look(self, updates: int, agent_steps: int, model: nn.Module) -> None:
        """Do what is due. Called after each update, and at other times as well, often.

        Args:
          updates: that the weights have.
          agent_steps: of the run so far.
          model: the learner's; it is only read.
        """

    def finish(self, updates: int, agent_steps: int, model: nn.Module) -> None:
        """Play to its end what is due, unless the user wants to stop; arguments as for `look`."""

    def request(self) -> str:
        """Wish for an evaluation now, besides those that fall due; return what becomes of it."""
        return "refused: this run plays no test games; --evaluate_every_steps lets it"

    def values(self) -> dict[str, float]:
        """Return the metrics that are new since the last call."""
        return {}

    def rows(self) -> list[ProcessRow]:
        """Return a row for the process that plays, if there is one."""
        return []

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint must hold of it; {} if nothing."""
        return {}

    def close(self) -> None:
        """End what runs, and leave nothing behind. May be called twice."""


def make_evaluating(
    blueprint: Blueprint,
    folder: Path,
    files: StatusFiles | None,
    *,
    state: Mapping[str, Any] | None,
    **more: Any,
) -> NoEvaluating:
    """Return what evaluates as the flags ask for; arguments as for `Scheduled`."""
    flags = blueprint.flags
    if not flags.evaluate_every_steps or not blueprint.place.speaks:  # one of several learners does
        return NoEvaluating()
    if flags.reproducible:
        from ritornello.agent.run.evaluating import InTurn

        return InTurn(blueprint, folder, files, state=state, **more)
    from ritornello.agent.run.following import Following

    return Following(blueprint, folder, files, state=None, **more)
