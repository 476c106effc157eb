"""The learners of a run as a group that adds up tensors, over `torch.distributed`.

    GlooGroup.sum_ ──► gloo, by TCP, each call with a deadline
    GlooGroup.announce_failure ──► store: a sentence for the others, in case this learner fails

The store is a small server of keys in the process of learner 0. When a sum fails, each learner
writes there that it has noticed, and looks who else has: the one that says nothing is dead or
frozen. So every learner ends with the same sentence, which names it.

This is the only file that imports `torch.distributed`. It makes process groups of its own and
leaves the default one alone, so nothing global has to be cleaned up.
Next to read: agent/learners/several.py, which decides with it when an update is made.
"""

from __future__ import annotations

import contextlib
import datetime
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
import torch.distributed
from torch import Tensor

from ritornello.agent.learners.place import LOOPBACK, Place
from ritornello.agent.process_group import LearnerLost, ProcessGroup, listed
from ritornello.core.errors import first_line

dist: Any = torch.distributed  # it carries types of a part of what it has

NOTICE_S = 5.0  # for the others to say that they have noticed, too
LOOK_S = 0.05
T = TypeVar("T")
MAX_SENTENCE = 2_000  # characters of what a learner says when it fails


class GlooGroup(ProcessGroup):
    """Sums over processes. Not thread-safe: belongs to the learner's thread."""

    def __init__(
        self,
        store: Any,
        rank: int,
        world_size: int,
        *,
        timeout_s: float = 60.0,
        first_timeout_s: float = 600.0,
        is_local: bool = True,
    ) -> None:
        """Meet the other learners.

        Args:
          store: a `torch.distributed.Store`, in which all learners find each other.
          rank: number of this learner, from 0.
          world_size: number of learners.
          timeout_s: time that a sum may take.
          first_timeout_s: the same until `settle` is called.
          is_local: whether all learners are on this machine, so that no other needs to reach them.

        Raises:
          LearnerLost: if a learner does not come in time.
        """
        self.rank = rank
        self.world_size = world_size
        self.timeout_s = first_timeout_s
        self._later_timeout_s = timeout_s
        self._store = store
        options = dist.ProcessGroupGloo._Options()
        options._timeout = datetime.timedelta(seconds=first_timeout_s)
        device = dist.ProcessGroupGloo.create_device
        options._devices = [
            device(hostname=LOOPBACK) if is_local else dist.ProcessGroupGloo.create_default_device()
        ]
        self._gloo: Any = None  # None: this learner has left
        began = time.monotonic()
        try:
            store.set(f"here/{rank}", b"1")
            self._gloo = dist.ProcessGroupGloo(
                dist.PrefixStore("gloo", store), rank, world_size, options
            )
        except RuntimeError as error:
            raise self._lost("here", "the start", began, error) from error

    def settle(self) -> None:
        """Give sums less time from now on. Call it after the first update."""
        self.timeout_s = self._later_timeout_s

    def sum_(self, tensor: Tensor, what: str) -> Tensor:
        """Replace `tensor` by the sum over all learners; see `ProcessGroup.sum_`.

        A tensor on a GPU goes by way of the host's memory.
        """
        host = tensor if tensor.device.type == "cpu" else tensor.cpu()
        self._all_reduce(host, f"the sum {what!r}")
        return tensor if host is tensor else tensor.copy_(host)

    def sum_numbers(self, numbers: Sequence[float]) -> list[float]:
        """Return the sum of each number over all learners; see `ProcessGroup.sum_numbers`."""
        total = torch.tensor(list(numbers), dtype=torch.float64)
        self._all_reduce(total, "the round before an update")
        agreed: list[float] = total.tolist()
        return agreed

    def gather(self, data: bytes, sizes: Sequence[int]) -> list[bytes]:
        """Return the data of each learner, in the order of ranks; `sizes` are their bytes.

        Raises:
          LearnerLost: if a learner does not take part.
        """
        joined = torch.zeros(sum(sizes), dtype=torch.uint8)
        begin = sum(sizes[: self.rank])
        if data:
            joined[begin : begin + len(data)] = torch.frombuffer(bytearray(data), dtype=torch.uint8)
        self._all_reduce(joined, "what the learners tell each other")
        return [piece.numpy().tobytes() for piece in torch.split(joined, list(sizes))]

    def announce_failure(self, sentence: str) -> None:
        """Write `sentence` for the users of the others, and leave: they find out at once."""
        told = sentence[:MAX_SENTENCE].encode(errors="backslashreplace")  # paths may hold any bytes
        _in_time(lambda: self._store.set(f"failed/{self.rank}", told))
        self.leave()

    def leave(self) -> None:
        """Close the connections to the other learners. May be called twice."""
        self._gloo = None

    def _all_reduce(self, tensor: Tensor, what: str) -> None:
        began = time.monotonic()
        if self._gloo is None:
            raise LearnerLost("this learner has left the group already", [self.rank])
        options = dist.AllreduceOptions()
        options.timeout = datetime.timedelta(seconds=self.timeout_s)
        limit = datetime.timedelta(seconds=self.timeout_s + NOTICE_S)  # gloo's own comes first
        try:
            self._gloo.allreduce([tensor], options).wait(limit)
        except RuntimeError as error:
            raise self._lost("noticed", what, began, error) from error

    # --- who is lost -----------------------------------------------------------------------------

    def _lost(self, sign: str, what: str, began: float, error: RuntimeError) -> LearnerLost:
        """Return the error that names the lost learners, as far as the store knows them.

        Learners that are still there write `sign` into the store. `what` is what failed.
        """
        waited_s = time.monotonic() - began
        self.leave()  # so that those who wait for this learner notice it, too
        known = _in_time(lambda: self._look(sign))
        if known is None:  # learner 0 serves the store
            known = {}, [0]
        failed, silent = known
        if failed:
            rank, text = next(iter(failed.items()))
            return LearnerLost(f"learner {rank} failed: {text}", [rank])
        if not silent and sign == "here":
            return LearnerLost(f"the learners do not reach each other: {first_line(error)}", [])
        if not silent:  # what gloo says of it is in the log, as the cause of this error
            return LearnerLost(
                f"the learners lost their connection during {what}, although none has ended: all "
                f"of them were suspended for more than {self.timeout_s:.0f} s (SIGSTOP, scontrol "
                "suspend, docker pause), one was busy for so long, or the network failed; a resume "
                "goes on from the last complete update",
                [],
            )
        if waited_s < self.timeout_s / 2:
            return LearnerLost(
                f"{listed(silent)} ended without a word: killed, by the system for want of memory "
                "perhaps, or its machine is gone",
                silent,
            )
        return LearnerLost(
            f"{listed(silent)} did not answer for {waited_s:.0f} s during {what}: stopped, hanging "
            "or cut off",
            silent,
        )

    def _look(self, sign: str) -> tuple[dict[int, str], list[int]]:
        """Return the learners that have failed, each with its reason, and those that are silent.

        Raises:
          RuntimeError: if the store is gone.
        """
        store, others = self._store, [r for r in range(self.world_size) if r != self.rank]
        store.set(f"{sign}/{self.rank}", b"1")
        deadline = time.monotonic() + NOTICE_S
        while True:
            failed = {
                rank: store.get(f"failed/{rank}").decode()
                for rank in others
                if store.check([f"failed/{rank}"])
            }
            silent = [r for r in others if r not in failed and not store.check([f"{sign}/{r}"])]
            if failed or not silent or time.monotonic() >= deadline:
                return failed, silent
            threading.Event().wait(LOOK_S)


def open_store(place: Place, timeout_s: float) -> Any:
    """Return the store of a group, served by learner 0 or by `torchrun`.

    Raises:
      LearnerLost: if nobody serves it.
    """
    serves = place.rank == 0 and not place.is_served
    own_socket = {} if place.socket is None else {"master_listen_fd": place.socket}
    try:
        store = dist.TCPStore(
            place.address,
            place.port,
            is_master=serves,
            timeout=datetime.timedelta(seconds=timeout_s),
            wait_for_workers=False,
            **own_socket,
        )
    except RuntimeError as error:
        raise LearnerLost(
            f"learner {place.rank} does not reach the others at {place.address}:{place.port}, "
            f"which MASTER_ADDR and MASTER_PORT say: {first_line(error)}",
            [0],
        ) from error
    return dist.PrefixStore(f"learners/{place.generation}", store)


def _in_time(ask: Callable[[], T]) -> T | None:
    """Return the store's answer to a question; None if the store is gone or does not answer.

    The question is asked in a thread, because a store whose process is stopped blocks the caller.
    """
    answers: list[T] = []

    def run() -> None:
        with contextlib.suppress(RuntimeError):
            answers.append(ask())

    thread = threading.Thread(target=run, name="store", daemon=True)
    thread.start()
    thread.join(2 * NOTICE_S)
    return answers[0] if answers else None
