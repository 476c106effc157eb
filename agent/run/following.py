"""Evaluation by a process of its own: started, asked, watched and ended.

The process starts with the first update and is asked only while it rests. If it dies, or gives no
sign of life, the log says so with the cause, the evaluation is lost, and the next one starts
another process. After several failures in a row evaluations are switched off. The last evaluation
that falls due is played to its end before the run ends. All of it is in the main thread.
"""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import time
from multiprocessing.connection import Connection, wait
from typing import Any

from torch import nn

from ritornello.agent.assembly import Blueprint
from ritornello.agent.pools.supervision import State, Supervised, let_leave
from ritornello.agent.pools.worker_pool import ProcessRow
from ritornello.agent.run.evaluating import Scheduled
from ritornello.agent.testing.evaluation import (
    Done,
    Order,
    Row,
    evaluation_blueprint,
    snapshot_layout,
)
from ritornello.agent.testing.follower import FollowerConfig, follower_main
from ritornello.core.warden import Warden
from ritornello.transport.weights import WeightBoard

log = logging.getLogger(__name__)

LOOK_S = 0.1  # between two looks at the process
MAX_FAILURES = 3  # in a row; then evaluations are switched off for this session
NAME = "the process that evaluates"


class Following(Scheduled):
    """Hands weights to a process that plays, and takes in what it says."""

    def __init__(self, blueprint: Blueprint, *arguments: Any, **more: Any) -> None:
        """Start nothing; arguments as for `Scheduled`."""
        super().__init__(blueprint, *arguments, **more)
        self._timeout_s = float(blueprint.flags.worker_timeout)
        self._layout = snapshot_layout(blueprint)
        self._board = WeightBoard(self._layout.nbytes)
        self._config = FollowerConfig(evaluation_blueprint(blueprint), self._folder.resolve())
        self._warden = Warden()
        self._life = Supervised(NAME, self._warden, time.monotonic)
        self._pipe: Connection | None = None
        self._order_now: Order | None = None  # what it plays
        self._rows: list[Row] = []
        self._words = ""  # its last ones
        self._last_look = time.monotonic()
        self._lives = self._failures = 0  # failures in a row
        self._left_out = self._lost = 0
        self._is_owed = False  # the last one that fell due was left out
        self._is_closed = self._was_started = False

    def look(self, updates: int, agent_steps: int, model: nn.Module) -> None:
        """Take in what has come, look after the process, and ask it if an evaluation is due."""
        now = time.monotonic()
        if now - self._last_look >= LOOK_S:
            self._last_look = now
            self._look_after()
        if updates and not self._was_started:
            self._was_started = True  # it imports for seconds before it can play
            with contextlib.suppress(OSError):  # `_ask` tries again, and tells
                self._launch()
        if self.is_off or not (self._is_wanted or self._is_due(agent_steps)):
            return
        if self._is_busy and not self._is_due(agent_steps):
            return  # who has asked for it waits
        self._looked_at = agent_steps
        self._is_owed = self._is_busy
        if self._is_busy:
            self._left_out += 1
            return
        self._is_wanted = False
        if updates > self._board.version:  # else these weights have played
            self._ask(self._order(updates, agent_steps), model)

    def finish(self, updates: int, agent_steps: int, model: nn.Module) -> None:
        """Wait for what is being played, and for the last one that fell due."""
        said = False
        while not (self.is_off or self._stop_requested()):
            self.look(updates, agent_steps, model)
            if not self._is_busy:
                if not self._is_owed:
                    return
                self._is_owed, self._is_wanted = False, True
                self._left_out -= 1
                continue
            if not said:
                log.info("the evaluation that is due is played to its end; Ctrl-C skips it")
                said = True
            wait([self._pipe] if self._pipe is not None else [], LOOK_S)

    def values(self) -> dict[str, float]:
        """Return the metrics that are new since the last call, and the counters."""
        counters = {"left_out": self._left_out, "lost": self._lost}
        return super().values() | {f"evaluation/{n}": float(v) for n, v in counters.items()}

    def rows(self) -> list[ProcessRow]:
        """Return a row for the process, once it was started."""
        if not self._lives:
            return []
        return [ProcessRow("evaluation", 0, self._lives - 1, *self._life.present(), 0)]

    def close(self) -> None:
        """End the process, whatever it does, within some seconds. May be called twice."""
        if self._is_closed:
            return
        self._is_closed = True
        self._hang_up()
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

    def _ask(self, order: Order, model: nn.Module) -> None:
        with self._board.write(order.updates) as block:
            self._layout.pack(model, block)
        self._order_now, self._rows = order, []
        try:
            if self._life.state is State.ABSENT:
                self._launch()
            assert self._pipe is not None
            self._pipe.send(order)
        except OSError as error:
            if self._life.is_running:  # it has died since the last look, which says so
                self._life.begin_to_end()
            else:
                self._fail(f"{NAME} could not be started: {error}")

    def _launch(self) -> None:
        self._hang_up()
        self._words = ""
        self._pipe, theirs = multiprocessing.Pipe(duplex=True)
        try:
            self._life.launch(follower_main, (self._config, theirs, self._board))
        except OSError:
            self._hang_up()
            raise
        finally:
            theirs.close()  # or its death would not be seen
        self._lives += 1

    # --- looking after it --------------------------------------------------------------------

    def _look_after(self) -> None:
        if self._life.state is State.ABSENT:
            return
        self._warden.check()
        self._receive()
        if self._life.is_running and (self._pipe is None or self._life.has_died()):
            self._receive()  # what it said before it died
            self._life.begin_to_end()
        if self._life.is_running:
            self._life.listen(self._timeout_s)
        if self._life.state is State.ENDING:
            self._end()

    def _receive(self) -> None:
        try:
            while self._pipe is not None and self._pipe.poll(0):
                self._take(self._pipe.recv())
        except (EOFError, OSError):
            self._hang_up()

    def _take(self, message: object) -> None:
        if isinstance(message, Row):
            self._rows.append(message)
        elif isinstance(message, Done):
            self._failures = 0
            self._book(self._rows, message)
            self._news["evaluation/time_s"] = message.seconds
            self._order_now, self._rows = None, []
        elif isinstance(message, str):
            self._words, self._life.failed = message, True

    def _end(self) -> None:
        """Say that the process is gone and why, once it is."""
        pid = self._life.present()[0]
        cause = self._life.cause_of_end()
        if cause is None:
            return
        self._hang_up()
        words = self._words or self._life.stack()
        if self._words:
            cause = self._life.hung or "failed"
        self._fail(f"{NAME} (pid {pid}) {cause}", words)

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

    def _hang_up(self) -> None:
        if self._pipe is not None:
            self._pipe.close()
            self._pipe = None
