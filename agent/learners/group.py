"""The learners of a run as a group that adds up tensors, over `torch.distributed`.

    Group.sum_ ──► gloo, by TCP, each call with a deadline
    Group.tell ──► store: a sentence for the others, in case this learner fails

The store is a small server of keys in the process of learner 0. When a sum fails, each learner
writes there that it has noticed, and looks who else has: the one that says nothing is dead or
frozen. So every learner ends with the same sentence, which names it.

This is the only file that imports `torch.distributed`. It makes process groups of its own and
leaves the default one alone, so nothing global has to be cleaned up.
Next to read: agent/learners/company.py, which decides with it when an update is made.
"""

from __future__ import annotations

import datetime
import threading
import time
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed
from torch import Tensor

from core.errors import PlatformError

dist: Any = torch.distributed  # it carries types of a part of what it has

LOOPBACK = "127.0.0.1"
NOTICE_S = 5.0  # for the others to say that they have noticed, too
LOOK_S = 0.05
MAX_SENTENCE = 2_000  # characters of what a learner says when it fails


class LearnerLost(PlatformError):
    """A learner does not take part any more, so no further update can be made."""

    def __init__(self, message: str, ranks: Sequence[int]) -> None:
        """Say which.

        Args:
          message: one sentence.
          ranks: numbers of the learners that are lost; none if that is not known.
        """
        super().__init__(message)
        self.ranks = tuple(ranks)


class Group:
    """The sums of `Reduction`, over processes. Not thread-safe: belongs to the learner's thread."""

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
          store: a `torch.distributed.Store`, in which all of them find each other.
          rank: number of this learner, from 0.
          world_size: number of learners.
          timeout_s: how long a sum may take.
          first_timeout_s: the same until `settle` is called.
          is_local: all learners are on this machine, so no other needs to reach them.

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
            raise self._lost("here", "the learners meet", began, error) from error

    def settle(self) -> None:
        """From now on, sums have less time. Call it after the first update."""
        self.timeout_s = self._later_timeout_s

    def sum_(self, tensor: Tensor, what: str) -> Tensor:
        """Replace `tensor` by the sum over all learners; see `Reduction.sum_`.

        A tensor on a GPU goes by way of the host's memory.
        """
        host = tensor if tensor.device.type == "cpu" else tensor.cpu()
        self._all_reduce(host, f"the sum {what!r}")
        return tensor if host is tensor else tensor.copy_(host)

    def agree(self, numbers: Sequence[float]) -> list[float]:
        """Return the sum of each number over all learners; see `Reduction.agree`."""
        total = torch.tensor(list(numbers), dtype=torch.float64)
        self._all_reduce(total, "the round before an update")
        agreed: list[float] = total.tolist()
        return agreed

    def gather(self, data: bytes, sizes: Sequence[int]) -> list[bytes]:
        """Return what each learner has given, in the order of their numbers.

        Args:
          data: of this learner.
          sizes: length of what each learner gives; all of them know it.

        Raises:
          LearnerLost: if a learner does not take part.
        """
        joined = torch.zeros(sum(sizes), dtype=torch.uint8)
        begin = sum(sizes[: self.rank])
        if data:
            joined[begin : begin + len(data)] = torch.frombuffer(bytearray(data), dtype=torch.uint8)
        self._all_reduce(joined, "what the learners tell each other")
        return [piece.numpy().tobytes() for piece in torch.split(joined, list(sizes))]

    def tell(self, sentence: str) -> None:
        """Say why this learner fails, and leave: the others find out at once, and why.

        Args:
          sentence: what they are to tell the user.
        """
        self._set(f"failed/{self.rank}", sentence[:MAX_SENTENCE])
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
        """Return the error that names who is lost, as far as the store knows it.

        Args:
          sign: what the learners write into the store that are still there.
          what: what could not be done.
          began: when it was begun.
          error: what gloo says about it.
        """
        waited_s = time.monotonic() - began
        self.leave()  # so that those who wait for this learner notice it, too
        others = [rank for rank in range(self.world_size) if rank != self.rank]
        self._set(f"{sign}/{self.rank}", "1")
        deadline = time.monotonic() + NOTICE_S
        while True:
            failed = {r: text for r in others if (text := self._get(f"failed/{r}")) is not None}
            silent = [r for r in others if r not in failed and self._get(f"{sign}/{r}") is None]
            if failed or not silent or time.monotonic() >= deadline:
                break
            threading.Event().wait(LOOK_S)
        if failed:
            rank, text = next(iter(failed.items()))
            return LearnerLost(f"learner {rank} failed: {text}", [rank])
        if not silent:
            return LearnerLost(
                f"the learners have lost their connection during {what}: {_first_line(error)}", []
            )
        who = f"learner {silent[0]}" if len(silent) == 1 else f"learners {_listed(silent)}"
        if waited_s < self.timeout_s / 2:
            return LearnerLost(
                f"{who} ended without a word: killed, by the system for want of memory perhaps, or "
                "its machine is gone",
                silent,
            )
        return LearnerLost(
            f"{who} did not answer for {waited_s:.0f} s during {what}: stopped, hanging or cut off",
            silent,
        )

    def _set(self, key: str, value: str) -> None:
        try:
            self._store.set(key, value.encode())
        except RuntimeError:  # the store is gone with learner 0
            return

    def _get(self, key: str) -> str | None:
        try:
            return self._store.get(key).decode() if self._store.check([key]) else None
        except RuntimeError:  # the store is gone with learner 0
            return None


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _listed(ranks: Sequence[int]) -> str:
    return ", ".join(str(rank) for rank in ranks)
