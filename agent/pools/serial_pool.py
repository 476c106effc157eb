"""SerialPool: workers that take turns in the caller's thread.

The reference implementation of a `WorkerPool` (agent/pools/worker_pool.py), used by
`--reproducible` and by tests: deterministic, and it can be put back to where it was.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator, Mapping
from typing import Any

from ritornello.agent.acting.config import WorkerConfig
from ritornello.agent.acting.worker import WorkerBody
from ritornello.agent.pools.worker_pool import UnrollBlock
from ritornello.core.errors import WorkerDied
from ritornello.core.process_death import end_own_children, own_children
from ritornello.core.saved_state import expect, items, whole, within
from ritornello.core.warden import Warden
from ritornello.transport.weights import WeightBoard


class SerialPool:
    """Workers that take turns in the caller's thread: deterministic, restorable.

    Nothing is ever replaced: whatever fails ends the run.
    """

    def __init__(self, configs: list[WorkerConfig], board: WeightBoard) -> None:
        """Build nothing yet; see `start`."""
        self._configs = configs
        self._board = board
        self._bodies: list[WorkerBody] = []
        self._turn = 0
        self._warden = Warden()  # environments may own processes
        self._started: set[int] = set()  # ids of what building them has started

    def start(self) -> None:
        """Build every worker's environments and model."""
        self._warden.keep_own_children()
        before = own_children()  # later ones may be a tracker's, which has still to send
        try:
            for config in self._configs:
                with _exits_are_failures(config.worker_id):
                    self._bodies.append(WorkerBody(config, self._board))
        finally:
            self._started = own_children() - before

    def poll(self, timeout_s: float) -> list[UnrollBlock]:
        """Collect one block from the worker whose turn it is.

        Raises:
          WorkerDied: if an environment wants to end the program.
        """
        config, body = self._configs[self._turn], self._bodies[self._turn]
        self._turn = (self._turn + 1) % len(self._bodies)
        block = config.schema().allocate(config.num_envs)
        with _exits_are_failures(config.worker_id):
            episodes, stats = body.collect(block)
        return [UnrollBlock(config.worker_id, block, episodes, stats, lambda: None)]

    def alive(self) -> int:
        """Return the number of workers."""
        return len(self._bodies)

    def stats(self) -> dict[str, float]:
        """Return metrics by name."""
        return {
            "workers/alive": float(self.alive()),
            "workers/restarts": 0.0,
            "workers/hung": 0.0,
            "workers/lost_unrolls": 0.0,
        }

    def describe(self) -> list[str]:
        """Return nothing: there is no process besides the caller's."""
        return []

    def stop(self, grace_s: float) -> None:
        """Close all environments, also after one that fails to; raises the last failure."""
        bodies, self._bodies = self._bodies, []
        with contextlib.ExitStack() as stack:
            stack.callback(self._warden.close)
            stack.callback(end_own_children, self._started)
            for body in bodies:
                stack.callback(body.close)

    def state_dict(self) -> dict[str, Any]:
        """Return whose turn it is and the state of every rollout."""
        return {
            "turn": self._turn,
            "rollouts": [body.rollout.state_dict() for body in self._bodies],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on exactly where `state_dict` was taken.

        Raises:
          StateError: if it is of other workers.
        """
        self._turn = whole(state, "turn")
        expect(self._turn < len(self._bodies), f"a turn below {len(self._bodies)}", "turn")
        rollouts = items(state, "rollouts", dict)
        for number, (body, rollout) in enumerate(zip(self._bodies, rollouts, strict=True)):
            with within("rollouts", number):
                body.rollout.load_state_dict(rollout)


@contextlib.contextmanager
def _exits_are_failures(worker_id: int) -> Iterator[None]:
    """Turn an environment's exit into a failure with a cause, so that it does not end the program.

    A KeyboardInterrupt passes if it may be the user's: if Python's own handler of Ctrl-C is in
    place. A run has another (core/stop_signals.py), so there it is the environment's.
    """
    try:
        yield
    except (SystemExit, KeyboardInterrupt) as error:
        users = signal.getsignal(signal.SIGINT) is signal.default_int_handler
        if isinstance(error, KeyboardInterrupt) and users:
            raise
        raise WorkerDied(
            f"worker {worker_id} failed: its environment raised {error!r}, which ends a program. "
            "An environment says that a game is over by its return values; where its code calls "
            "sys.exit(), the traceback above shows."
        ) from error
