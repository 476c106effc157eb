"""`SeveralLearners` keeps the learners of a run in step.

    every learner ──► synchronise(reports, has a batch) ──► the same reports and answer everywhere

Each turn of a learner's loop has one all-reduce of a few numbers: the agent steps played since,
which learner has a batch, which was asked to stop, and the length of the reports of episodes that
are gathered after it. So all learners have the same counters, and with them the same learning rate,
entropy cost, reason to stop and moments to save. An update begins when each learner has a batch.
"""

from __future__ import annotations

import contextlib
import json
import platform
import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace

import numpy as np
import torch

from ritornello.agent.assembly import Blueprint
from ritornello.agent.learners.group import GlooGroup, open_store
from ritornello.agent.learners.place import Place
from ritornello.agent.learning.learner import Learner
from ritornello.agent.process_group import LearnerLost, listed
from ritornello.agent.run.coordinator import Coordinator, Synchronised
from ritornello.agent.run.experience import WorkerReport
from ritornello.core.episode import EpisodeEnd
from ritornello.core.errors import PlatformError
from ritornello.core.plain_data import cut
from ritornello.core.standard_error import told_while_waiting
from ritornello.core.version import VERSION
from ritornello.transport.channel import WorkerStats

WISHES = ("interrupted", "seconds")  # reasons to stop that one learner may have and others not
# Flags that each of several learners may have of its own: machines differ.
OF_EACH_LEARNER = {
    *("device", "worker_count", "envs_per_worker", "learner_thread_count", "inference"),
    *("results_dir", "load_model_url", "background", "debug", "learner_count"),
}
COMPARED_EACH = 100  # updates
MAX_TEXT = 10_000  # characters of what a learner waits for
PATIENCE_S = 5.0  # until it is said that other learners are waited for
FIRST_TIMEOUTS = 10  # the first update has so many times as long: workers start, replay fills up


class LearnersDiffer(PlatformError):
    """Learners of one run are not of one kind, or have learned different things."""


class SeveralLearners(Coordinator):
    """One of several learners. Belongs to the learner's thread."""

    def __init__(self, place: Place, group: GlooGroup) -> None:
        """Keep the parts."""
        self.place = place
        self.group: GlooGroup = group
        self._learner: Learner | None = None
        self._compared = -1  # the update after which weights were last compared
        self._own_wishes = dict.fromkeys(WISHES, False)
        self._wishes = dict.fromkeys(WISHES, False)  # of anybody
        self._waits_since: float | None = None  # by the clock of learner 0
        self._has_announced = False

    def broadcast(self, text: str) -> str:
        """Return the text of learner 0."""
        return self._gather_texts(text if self.place.rank == 0 else "")[0]

    def begin(self, learner: Learner, blueprint: Blueprint) -> None:
        """Check that all learners are of one kind and begin with the same weights."""
        self._learner = learner
        self._check_kind(kind_of(blueprint))
        sums = self.group.sum_numbers(self._in_own_slot(_checksum(learner)))
        self._compare(sums, "before the first update; all learners have to begin from one file")

    def _check_kind(self, kind: dict[str, str]) -> None:
        first, *others = map(json.loads, self._gather_texts(json.dumps(kind)))
        for rank, other in enumerate(others, start=1):
            for name in sorted(first.keys() | other.keys()):
                if first.get(name) != other.get(name):
                    raise LearnersDiffer(
                        f"learner {rank} has {name} {cut(str(other.get(name)))}, learner 0 has "
                        f"{cut(str(first.get(name)))}: expected the same everywhere. Start all "
                        "learners with the same program, libraries and flags."
                    )

    def agreed(self, wish: str, own: bool) -> bool:
        """Whether any learner has a wish, as of the last `synchronise`."""
        self._own_wishes[wish] = own
        return self._wishes[wish]

    def synchronise(
        self, reports: Sequence[WorkerReport], has_batch: bool, missing: Callable[[], Sequence[str]]
    ) -> Synchronised:
        """Exchange reports with all learners; see `Coordinator`."""
        size, learner = self.place.world_size, self._learner
        assert learner is not None, "begin() comes first"
        played = sum(item.stats.steps for item in reports)
        games = json.dumps([asdict(game) for item in reports for game in item.episodes]).encode()
        length = len(games) if len(games) > len("[]") else 0
        compares = learner.version % COMPARED_EACH == 0 and learner.version != self._compared
        steps, clock, *numbers = self.group.sum_numbers(
            [
                played,
                time.monotonic() if self.place.rank == 0 else 0.0,
                *(float(self._own_wishes[wish]) for wish in WISHES),
                *self._in_own_slot(float(has_batch)),
                *self._in_own_slot(length),
                *self._in_own_slot(_checksum(learner) if compares else 0),
            ]
        )
        self._wishes = {w: n > 0 for w, n in zip(WISHES, numbers, strict=False)}
        numbers = numbers[len(WISHES) :]
        ready, lengths, sums = (numbers[i * size : (i + 1) * size] for i in range(3))
        if compares:
            self._compared = learner.version
            self._compare(sums, f"after update {learner.version}")
        # All steps first: a game is booked at the same count everywhere.
        told = [replace(item, episodes=()) for item in reports]
        told.append(WorkerReport(WorkerStats(steps=int(steps) - played), ()))
        if any(lengths):
            texts = self.group.gather(games if length else b"", [int(n) for n in lengths])
            told += [WorkerReport(WorkerStats(), _games(text)) for text in texts if text]
        self._check_patience(ready, clock, missing)
        return Synchronised(told, all(ready))

    def updated(self) -> None:
        """Note that an update was made: after the first, learners have less time to answer."""
        self.group.settle()

    def announce_failure(self, error: BaseException) -> None:
        """Say why this learner leaves, so that the others can tell the user. Idempotent."""
        if self._has_announced:
            return
        self._has_announced = True
        if isinstance(error, (LearnerLost, LearnersDiffer)):
            self.group.leave()  # the others know
            return
        name = "" if isinstance(error, PlatformError) else f"{type(error).__name__}: "
        self.group.announce_failure(f"{name}{error}".strip() or type(error).__name__)

    def _check_patience(
        self, ready: Sequence[float], clock: float, missing: Callable[[], Sequence[str]]
    ) -> None:
        """Raise LearnerLost if some learners have waited too long for the batch of others."""
        if all(ready) or not any(ready):
            self._waits_since = None
            return
        self._waits_since = clock if self._waits_since is None else self._waits_since
        waited_s = clock - self._waits_since
        if waited_s < self.group.timeout_s:
            return
        late = [rank for rank, is_ready in enumerate(ready) if not is_ready]
        own = "; ".join(filter(None, missing())) if self.place.rank in late else ""
        texts = self._gather_texts(own[:MAX_TEXT])
        raise LearnerLost(
            f"{listed(late)} had no batch for {waited_s:.0f} s while others had one: "
            f"{texts[late[0]] or 'nothing is known of why'}",
            late,
        )

    def _compare(self, sums: Sequence[float], when: str) -> None:
        different = [rank for rank, value in enumerate(sums) if value != sums[0]]
        if different:
            raise LearnersDiffer(
                f"the weights of {listed(different)} are not those of learner 0 {when}. "
                "Processors of different kinds round differently: use machines of one kind."
            )

    def _in_own_slot(self, value: float) -> list[float]:
        """Return a list with a place for each learner, 0 except for this one's `value`."""
        return [value if rank == self.place.rank else 0.0 for rank in range(self.place.world_size)]

    def _gather_texts(self, text: str) -> list[str]:
        """Return the text of each learner."""
        data = text.encode(errors="backslashreplace")  # paths may hold any bytes
        sizes = self.group.sum_numbers(self._in_own_slot(len(data)))
        return [piece.decode() for piece in self.group.gather(data, [int(n) for n in sizes])]


def join(place: Place, timeout_s: float) -> SeveralLearners:
    """Meet the other learners.

    A learner may take `timeout_s` to answer, and be without a batch for as long; the first update
    has FIRST_TIMEOUTS times as long.

    Raises:
      LearnerLost: if a learner does not come.
    """
    first_s = FIRST_TIMEOUTS * timeout_s
    others = listed([rank for rank in range(place.world_size) if rank != place.rank])
    why = (
        f"waiting for {others}: the environment variables RANK={place.rank} and WORLD_SIZE="
        f"{place.world_size} say that there are {place.world_size} learners. For a run with one "
        "learner: unset RANK WORLD_SIZE MASTER_ADDR MASTER_PORT"
    )
    # Learners that this program has started come; those of torchrun take a while to be loaded.
    patience = (
        contextlib.nullcontext()
        if place.is_launched
        else told_while_waiting(lambda waited_s: f"{why} ({waited_s:.0f} s)", PATIENCE_S)
    )
    with patience:
        group = GlooGroup(
            open_store(place, first_s),
            place.rank,
            place.world_size,
            timeout_s=timeout_s,
            first_timeout_s=first_s,
            is_local=place.is_local,
        )
    return SeveralLearners(place, group)


def kind_of(blueprint: Blueprint) -> dict[str, str]:
    """Return what has to be the same at every learner of a run."""
    flags = {
        f"--{name}": json.dumps(value)
        for name, value in blueprint.flags.to_json().items()
        if name not in OF_EACH_LEARNER
    }
    return flags | {
        "version": VERSION,
        "Python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "the environment": json.dumps(blueprint.env_spec.to_dict()),
        "unrolls of bytes": str(blueprint.schema.nbytes),
        "the torso's precision": str(blueprint.choices.torso_dtype),
    }


def _games(text: bytes) -> tuple[EpisodeEnd, ...]:
    return tuple(EpisodeEnd(**game) for game in json.loads(text))


def _checksum(learner: Learner) -> int:
    """Return a number below 2^32 that changes if a bit of the model does."""
    total = 0
    for tensor in learner.model.state_dict().values():
        total = zlib.crc32(tensor.detach().cpu().contiguous().numpy().tobytes(), total)
    return total
