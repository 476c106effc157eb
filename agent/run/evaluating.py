"""Evaluation during training: when it is due, who plays it, and what comes of it.

The trainer has one of three (`agent.run.no_evaluation.make_evaluating`), and asks it after each
update:

* `NoEvaluating`: none is wanted.
* `InTurn`: in a reproducible run the trainer's thread plays, after the update at which an
  evaluation falls due. A run that is resumed goes on exactly; an evaluation that the user
  interrupts is played after the resume.
* `Following` (agent/run/following.py): otherwise a process of its own plays.

None of them touches what training draws or learns: models, environments and random streams are
their own. Next to read: agent/testing/evaluation.py.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torch import nn

from ritornello.agent.assembly import Blueprint
from ritornello.agent.run.no_evaluation import NoEvaluating
from ritornello.agent.run.status_files import StatusFiles
from ritornello.agent.stored.best_evaluated import best_score
from ritornello.agent.testing.evaluation import (
    Done,
    Evaluation,
    Order,
    Row,
    evaluation_blueprint,
    remove_half_films,
    snapshot_layout,
)
from ritornello.core.saved_state import expect, item, number, restoring, whole, within
from ritornello.metrics.record import check_declared
from ritornello.metrics.text import short

log = logging.getLogger(__name__)

Facts = Callable[[], dict[str, Any]]


class Scheduled(NoEvaluating):
    """When an evaluation is due, and what came of the last ones. Belongs to the main thread."""

    is_on = True
    is_off = False  # for this session, after failures

    def __init__(
        self,
        blueprint: Blueprint,
        folder: Path,
        files: StatusFiles | None,
        *,
        agent_steps: int,
        facts: Facts,
        state: Mapping[str, Any] | None,
        stop_requested: Callable[[], bool],
    ) -> None:
        """Start nothing.

        Args:
          blueprint: flags and shapes of the run.
          folder: folder of the run.
          files: what writes evaluations.csv; None: nobody looks.
          agent_steps: of the run when the session begins.
          facts: says what is known of the present model, for the folder of the best one.
          state: result of `state_dict`, from a checkpoint.
          stop_requested: whether the user wants the run to end.
        """
        self._blueprint = blueprint
        self._every = int(blueprint.flags.evaluate_every_steps)
        self._films = int(blueprint.flags.evaluation_films)
        self._tasks = blueprint.env_spec.tasks
        self._folder = folder
        self._files = files
        self._facts = facts
        self._stop_requested = stop_requested
        self._is_wanted = False
        self._looked_at, self._count = agent_steps, 0
        self._news: dict[str, float] = {}
        self._best = best_score(folder)
        if state is not None:
            with restoring("the checkpoint"), within("evaluation"):
                self._load_state_dict(state)

    def _load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._looked_at, self._count = whole(state, "looked_at"), whole(state, "count")
        news = item(state, "news", dict)
        with within("news"):
            for name in news:
                expect(str(name).startswith("evaluation/"), "a result of an evaluation", name)
                check_declared(name)
                self._news[name] = number(news, name)
        if "best" in state:
            # The folder's may be of later updates, and set aside.
            self._best = number(state, "best", default=None)

    def request(self) -> str:
        """Wish for an evaluation now, besides those that fall due; return what becomes of it."""
        if self.is_off:
            return (
                "refused: evaluations have failed and are switched off in this session; see the log"
            )
        self._is_wanted = True
        return "done: an evaluation starts as soon as the present one is over"

    def values(self) -> dict[str, float]:
        """Return the metrics that are new since the last call."""
        news, self._news = self._news, {}
        return news

    def _is_due(self, agent_steps: int) -> bool:
        return agent_steps // self._every > self._looked_at // self._every

    def _order(self, updates: int, agent_steps: int) -> Order:
        """Return what is to be evaluated now."""
        is_filmed = bool(self._films) and self._count % self._films == 0
        return Order(updates, agent_steps, is_filmed, self._best, self._facts())

    def _book(self, rows: list[Row], done: Done) -> None:
        """Write down what came of an evaluation."""
        self._count += 1
        for row in rows:
            task = f"_{self._tasks.index(row.game)}" if len(self._tasks) > 1 else ""
            self._news[f"evaluation/return_{row.policy}{task}"] = row.mean
            if self._files is not None:
                self._files.evaluation(asdict(row))
        score = done.scores["sampled"]
        if done.is_best:
            self._best = score
        self._news["evaluation/score"] = score
        self._news["evaluation/agent_steps"] = float(done.agent_steps)
        if self._best is not None:
            self._news["evaluation/score_best"] = self._best
        log.info(
            "evaluated at %s agent steps: %s%s",
            f"{done.agent_steps:,}",
            ", ".join(f"{policy} actions {short(of)}" for policy, of in done.scores.items()),
            ", the best so far" if done.is_best else "",
        )
        if done.problem:
            log.warning("%s", done.problem)

    def close(self) -> None:
        """Leave nothing behind, nor what a session that was killed has left half done."""
        with contextlib.suppress(OSError):
            remove_half_films(self._folder)


class _StoppedError(Exception):
    """The user wants the run to end."""


class InTurn(Scheduled):
    """Plays in the trainer's thread, at updates that follow from the run alone."""

    _evaluation: Evaluation | None = None  # built for the first one

    def look(self, updates: int, agent_steps: int, model: nn.Module) -> None:
        """Play an evaluation if one is due; see `NoEvaluating.look`."""
        if self.is_off or not (self._is_wanted or self._is_due(agent_steps)):
            return
        rows: list[Row] = []
        try:
            if self._evaluation is None:
                self._evaluation = Evaluation(evaluation_blueprint(self._blueprint), self._folder)
            snapshot_layout(self._blueprint).pack(model, self._evaluation.block)
            done = self._evaluation.play(
                self._order(updates, agent_steps), rows.append, self._raise_if_stopped
            )
        except _StoppedError:
            return  # it is still due: the next session plays it first
        except (Exception, SystemExit) as error:  # SystemExit: of an environment
            self.is_off = True
            log.warning(
                "the evaluation at %s agent steps failed: %r. Training goes on; there are no more "
                "evaluations in this session",
                f"{agent_steps:,}", error,
            )  # fmt: skip
            log.debug("traceback", exc_info=True)
            return
        self._looked_at, self._is_wanted = agent_steps, False
        self._book(rows, done)

    def state_dict(self) -> dict[str, Any]:
        """Return what is to be known after a resume."""
        return {
            "looked_at": self._looked_at,
            "count": self._count,
            "news": dict(self._news),
            "best": self._best,
        }

    def _raise_if_stopped(self) -> None:
        if self._stop_requested():
            raise _StoppedError
