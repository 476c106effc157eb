"""Evaluation during training: when it is due, and its results.

* `InTurn`: in a reproducible run the trainer's thread plays, after the update at which an
  evaluation falls due. A run that is resumed goes on exactly.
* `Following`: otherwise a process of its own plays.

An evaluation that is not over when the run is saved or stopped is played after the resume.

Neither touches what training draws or learns: models, environments and random streams are their
own. Next to read: agent/testing/evaluation.py.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Mapping
from dataclasses import asdict
from multiprocessing.connection import wait
from typing import Any

from ritornello.agent.pools.supervision import State, Supervised, let_leave
from ritornello.agent.pools.worker_pool import ProcessRow
from ritornello.agent.run.run import Run
from ritornello.agent.stored.best_evaluated import best_score
from ritornello.agent.testing.evaluation import (
    Done,
    Evaluation,
    Order,
    Row,
    evaluation_blueprint,
    follower_main,
    remove_half_films,
    snapshot_layout,
)
from ritornello.core.saved_state import expect, item, number, restoring, whole, within
from ritornello.core.warden import Warden
from ritornello.metrics.record import check_declared
from ritornello.metrics.text import short
from ritornello.transport.weights import WeightBoard

LOOK_S = 0.1  # between two looks at the process
MAX_FAILURES = 3  # in a row; then evaluations are switched off for this session
NAME = "the process that evaluates"

log = logging.getLogger(__name__)


class Evaluating:
    """When an evaluation is due, and the last results. Belongs to the main thread."""

    def __init__(self, run: Run) -> None:
        """Start nothing; go on as the checkpoint says."""
        self._run = run
        self._blueprint = run.blueprint
        self._folder = run.folder.path
        self._tasks = run.blueprint.env_spec.tasks
        self._every = int(run.flags.evaluate_every_steps)
        self._films = int(run.flags.evaluation_films)
        self.is_off = False  # for this session, after failures
        self._is_wanted = False
        self._looked_at, self._count = run.tally.agent_steps, 0
        self._news: dict[str, float] = {}
        self._best = self._kept = best_score(self._folder)  # of the run; of the folder's model
        state = run.saved("evaluation")
        if state is not None:
            with restoring("the checkpoint"), within("evaluation"):
                self._load_state_dict(state)
        run.more_state["evaluation"] = self.state_dict

    def look(self) -> None:
        """Do what is due. Called after each update, and often at other times."""
        raise NotImplementedError

    def finish(self) -> None:
        """Play to its end what is due, unless the user wants to stop."""

    def rows(self) -> list[ProcessRow]:
        """Return a row for the process that plays, if there is one."""
        return []

    def request(self) -> str:
        """Ask for an evaluation now, besides those that fall due; return the answer in words."""
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

    def state_dict(self) -> dict[str, Any]:
        """Return the state that a resume needs."""
        return {
            "looked_at": self._looked_at,
            "count": self._count,
            "news": dict(self._news),
            "best": self._best,
        }

    def _load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._looked_at, self._count = whole(state, "looked_at"), whole(state, "count")
        news = item(state, "news", dict)
        with within("news"):
            for name in news:
                expect(str(name).startswith("evaluation/"), "a result of an evaluation", name)
                check_declared(name)
                self._news[name] = number(news, name)

    def close(self) -> None:
        """Remove what is unfinished, also of a session that was killed."""
        with contextlib.suppress(OSError):
            remove_half_films(self._folder)

    def _is_due(self) -> bool:
        return self._run.tally.agent_steps // self._every > self._looked_at // self._every

    def _order(self) -> Order:
        tally = self._run.tally
        is_filmed = bool(self._films) and self._count % self._films == 0
        return Order(tally.updates, tally.agent_steps, is_filmed, self._kept, self._facts())

    def _facts(self) -> dict[str, Any]:
        """Return the facts about the present model, for the folder of the best one."""
        folder, tally = self._run.folder, self._run.tally
        try:
            session = folder.sessions()[-1]
        except (OSError, ValueError, IndexError):
            session = {}
        return {
            "games": tally.games.count,
            "training_s": round(tally.wall_s, 1),
            "mean_return": tally.games.mean,
            "run": folder.path.resolve().name,
            "checkpoint": None,
            "commit": session.get("source", {}).get("commit"),
            "versions": session.get("versions"),
        }

    def _book(self, rows: list[Row], done: Done) -> None:
        self._count += 1
        for row in rows:
            task = f"_{self._tasks.index(row.game)}" if len(self._tasks) > 1 else ""
            self._news[f"evaluation/return_{row.policy}{task}"] = row.mean
            self._run.status.evaluation(asdict(row))
        score = done.scores["sampled"]
        if done.is_best:
            self._kept = score
            self._best = score if self._best is None else max(score, self._best)
        self._news["evaluation/score"] = score
        self._news["evaluation/agent_steps"] = float(done.agent_steps)
        if self._best is not None:
            self._news["evaluation/score_best"] = self._best
        log.info(
            "evaluated at %s agent steps: %s%s",
            f"{done.agent_steps:,}",
            ", ".join(f"{policy} actions {short(of)}" for policy, of in done.scores.items()),
            ", the best so far" if done.is_best and score == self._best else "",
        )
        if done.problem:
            log.warning("%s", done.problem)


class _StoppedError(Exception):
    """The user wants the run to end."""


class InTurn(Evaluating):
    """Plays in the trainer's thread, at updates that follow from the run alone."""

    _evaluation: Evaluation | None = None  # built for the first one

    def look(self) -> None:
        """Play an evaluation if one is due."""
        if self.is_off or not (self._is_wanted or self._is_due()):
            return
        rows: list[Row] = []
        order = self._order()
        try:
            if self._evaluation is None:
                self._evaluation = Evaluation(evaluation_blueprint(self._blueprint), self._folder)
            layout = snapshot_layout(self._blueprint)
            layout.pack(self._run.learner.model, self._evaluation.block)
            done = self._evaluation.play(order, rows.append, self._raise_if_stopped)
        except _StoppedError:
            return  # it is still due: the next session plays it first
        except (Exception, SystemExit) as error:  # SystemExit: of an environment
            self.is_off = True
            log.warning(
                "the evaluation at %s agent steps failed: %r. Training goes on; there are no more "
                "evaluations in this session",
                f"{order.agent_steps:,}", error,
            )  # fmt: skip
            log.debug("traceback", exc_info=True)
            return
        self._looked_at, self._is_wanted = order.agent_steps, False
        self._book(rows, done)

    def _load_state_dict(self, state: Mapping[str, Any]) -> None:
        super()._load_state_dict(state)
        if "best" in state:
            # The folder's is lower if the best model was set aside, being replaced by a later one,
            # and higher if it is of this very update, which is evaluated again.
            self._best = number(state, "best", default=None)
            if self._best is None:
                self._kept = None
            elif self._kept is not None:
                self._kept = min(self._kept, self._best)

    def _raise_if_stopped(self) -> None:
        if self._run.stop.requested:
            raise _StoppedError


class Following(Evaluating):
    """Hands weights to a process that plays, and books the scores that it reports.

    The process is started for the first evaluation, and is asked only while it rests. If it dies,
    or gives no sign of life, the log says so with the cause, the evaluation is lost, and the next
    one starts another process. After several failures in a row evaluations are switched off. The
    last evaluation that falls due is played to its end before the run ends.
    """

    def __init__(self, run: Run) -> None:
        """Start nothing."""
        super().__init__(run)
        self._layout = snapshot_layout(run.blueprint)
        self._board = WeightBoard(self._layout.nbytes)
        self._warden = Warden()
        self._life = Supervised(NAME, self._warden)
        self._order_now: Order | None = None  # what it plays
        self._looked_before = self._looked_at  # before that fell due
        self._rows: list[Row] = []
        self._last_look = time.monotonic()
        self._lives = self._failures = 0  # failures in a row
        self._lost = 0

    def look(self) -> None:
        """Book what the process has sent, watch it, and ask it if an evaluation is due."""
        now = time.monotonic()
        if now - self._last_look >= LOOK_S:
            self._last_look = now
            self._look_after()
        is_asked = self._is_wanted or self._is_due()
        if self.is_off or self._is_busy or not is_asked:
            return  # what falls due meanwhile is played afterwards
        self._looked_before, self._looked_at = self._looked_at, self._run.tally.agent_steps
        self._is_wanted = False
        if self._run.tally.updates > self._board.version:  # else these weights have played
            self._ask(self._order())

    def finish(self) -> None:
        """Wait for the evaluation that is played now, and for one that is due by then."""
        said = False
        while not (self.is_off or self._run.stop.requested):
            self.look()
            if not self._is_busy:
                return
            if not said:
                log.info("the evaluation that is due is played to its end; Ctrl-C skips it")
                said = True
            pipe = self._life.connection
            wait([] if pipe is None else [pipe], LOOK_S)

    def state_dict(self) -> dict[str, Any]:
        """Return the state that a resume needs; what is played now is due in it."""
        due_since = self._looked_at if self._order_now is None else self._looked_before
        return {**super().state_dict(), "looked_at": due_since}

    def values(self) -> dict[str, float]:
        """Return the metrics that are new since the last call, and the counter."""
        return super().values() | {"evaluation/lost": float(self._lost)}

    def rows(self) -> list[ProcessRow]:
        """Return a row for the process, once it was started."""
        if not self._lives:
            return []
        return [ProcessRow("evaluation", 0, self._lives - 1, *self._life.present(), 0)]

    def close(self) -> None:
        """End the process, whatever it does, within some seconds."""
        self._life.hang_up()
        if self._life.process is not None:
            let_leave([self._life.process], 0.0)
        self._life.clear()
        self._life.close()
        self._warden.close()
        self._board.close()
        super().close()

    @property
    def _is_busy(self) -> bool:
        return self._order_now is not None or self._life.state is State.ENDING

    # --- asking ------------------------------------------------------------------------------

    def _ask(self, order: Order) -> None:
        with self._board.write(order.updates) as block:
            self._layout.pack(self._run.learner.model, block)
        self._order_now, self._rows = order, []
        try:
            if self._life.state is State.ABSENT:
                rules = evaluation_blueprint(self._blueprint)
                self._life.launch(follower_main, (rules, self._folder.resolve(), self._board))
                self._lives += 1
        except OSError as error:
            self._fail(f"{NAME} could not be started: {error}")
        self._life.send(order)

    # --- looking after it --------------------------------------------------------------------

    def _look_after(self) -> None:
        if self._life.state is State.ABSENT:
            return
        self._receive()
        if self._life.is_running and (self._life.connection is None or self._life.has_died()):
            self._receive()  # what it said before it died
            self._life.begin_to_end()
        if self._life.is_running:
            self._life.listen(float(self._run.flags.worker_timeout))
        if self._life.state is State.ENDING:
            self._end()

    def _receive(self) -> None:
        for message in self._life.receive():
            if isinstance(message, Row):
                self._rows.append(message)
            else:
                self._failures = 0
                self._book(self._rows, message)
                self._news["evaluation/time_s"] = message.seconds
                self._order_now, self._rows = None, []

    def _end(self) -> None:
        """Say that the process is gone and why, once it is."""
        pid = self._life.present()[0]
        cause = self._life.cause_of_end()
        if cause is not None:
            self._fail(f"{NAME} (pid {pid}) {cause}", self._life.last_words())

    def _fail(self, text: str, words: str = "") -> None:
        self._failures += 1
        self.is_off = self._failures >= MAX_FAILURES
        order, self._order_now, self._rows = self._order_now, None, []
        if order is not None:
            self._lost += 1
            text += f"; the evaluation at {order.agent_steps:,} agent steps is lost"
        text += (
            f"; that was {self._failures} times in a row, so there are no more evaluations in this "
            "session"
            if self.is_off
            else "; the next one starts another process"
        )
        log.warning("%s. Training goes on.%s", text, f" Its last words:\n{words}" if words else "")
