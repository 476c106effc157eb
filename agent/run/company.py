"""What the learners of a run tell each other before each update, so that all of them do the same.

    every learner ──► meet(news, is there a batch?) ──► the same news, the same answer, everywhere

In each turn of its loop a learner meets the others once: one sum of a few numbers. It carries the
agent steps that were played since, who has a batch, who was asked to stop, and the length of the
messages about games that follow it if there are any. From it every learner keeps the same books, so
learning rate, entropy cost, the reason to stop and the moments to save are the same, too. An update
begins when each learner has a batch.

`Company` is that of a learner that is alone, and says what it is told; `Several` is the other.
Next to read: agent/run/trainer.py, the loop that meets.
"""

from __future__ import annotations

import contextlib
import json
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import NamedTuple

from ritornello.agent.learners.group import Group, LearnerLost, listed, open_store
from ritornello.agent.learners.place import ALONE_HERE, Place
from ritornello.agent.learning.learner import Learner
from ritornello.agent.process_group import SINGLE_PROCESS, ProcessGroup
from ritornello.agent.run.experience import News
from ritornello.core.episode import EpisodeEnd
from ritornello.core.errors import PlatformError
from ritornello.core.standard_error import told_while_waiting
from ritornello.transport.channel import WorkerStats

WISHES = ("interrupted", "seconds")  # reasons to stop that one learner may have and others not
COMPARED_EACH = 100  # updates
MAX_TEXT = 10_000  # characters of what a learner waits for
PATIENCE_S = 5.0  # until it is said that other learners are waited for
FIRST_TIMEOUTS = 10  # the first update has so many times as long: workers start, replay fills up


class LearnersDiffer(PlatformError):
    """Learners of one run are not of one kind, or have learned different things."""


class Meeting(NamedTuple):
    """What all learners know after they have met."""

    news: list[News]  # of all learners, in the same order everywhere
    is_ready: bool  # every learner has a batch


class Company:
    """The learners of a run, as one of them sees them. Belongs to the learner's thread.

    This is the company of a learner that is alone: it says what it is told. `Several` is the other.
    """

    place: Place = ALONE_HERE  # which learner this is, among how many
    group: ProcessGroup = SINGLE_PROCESS  # sums over all learners

    def from_first(self, text: str) -> str:
        """Return the text that learner 0 gives."""
        return text

    def begin(self, learner: Learner, kind: Mapping[str, str]) -> None:
        """Check that all learners are of one kind and begin with the same weights.

        Args:
          learner: this learner, in the state from which it begins.
          kind: name -> value of what has to be the same everywhere.

        Raises:
          LearnersDiffer: naming a learner and what is different.
        """

    def agreed(self, wish: str, own: bool) -> bool:
        """Whether a learner has a wish, as all of them know since they have met.

        Args:
          wish: one of WISHES.
          own: whether this one has it; it is told to the others when they meet.
        """
        return own

    def meet(
        self, news: Sequence[News], has_batch: bool, missing: Callable[[], Sequence[str]]
    ) -> Meeting:
        """Tell the others, and hear from them; each learner calls it once in each turn.

        Args:
          news: what the workers of this learner have reported since the last meeting.
          has_batch: whether this learner could make an update.
          missing: returns what it waits for if it has no batch.

        Raises:
          LearnerLost: if a learner does not come, or has no batch for too long.
          LearnersDiffer: if the weights are not the same any more.
        """
        return Meeting(list(news), has_batch)

    def updated(self) -> None:
        """An update was made."""

    def tell(self, error: BaseException) -> None:
        """Say why this learner leaves, so that the others can tell the user. Idempotent."""


SINGLE = Company()


class Several(Company):
    """The company of a learner that is one of several."""

    def __init__(self, place: Place, group: Group) -> None:
        """Keep the parts.

        Args:
          place: which learner this is.
          group: connects it with the others.
        """
        self.place = place
        self.group = group
        self._group = group
        self._learner: Learner | None = None
        self._compared = -1  # the update after which weights were last compared
        self._own_wishes = dict.fromkeys(WISHES, False)
        self._wishes = dict.fromkeys(WISHES, False)  # of anybody
        self._waits_since: float | None = None  # by the clock of learner 0
        self._has_told = False

    def from_first(self, text: str) -> str:
        """Return the text that learner 0 gives."""
        return self._tell_all(text if self.place.rank == 0 else "")[0]

    def begin(self, learner: Learner, kind: Mapping[str, str]) -> None:
        """Check that all learners are of one kind and begin with the same weights."""
        self._learner = learner
        first, *others = map(json.loads, self._tell_all(json.dumps(dict(kind))))
        for rank, other in enumerate(others, start=1):
            for name in sorted(first.keys() | other.keys()):
                if first.get(name) != other.get(name):
                    raise LearnersDiffer(
                        f"learner {rank} has {name} {_short(other.get(name))}, learner 0 has "
                        f"{_short(first.get(name))}: expected the same everywhere. Start all "
                        "learners with the same program, libraries and flags."
                    )
        sums = self._everybodys(_checksum(learner))
        self._compare(sums, "before the first update; all learners have to begin from one file")

    def agreed(self, wish: str, own: bool) -> bool:
        """Whether a learner has a wish, as all of them know since they have met."""
        self._own_wishes[wish] = own
        return self._wishes[wish]

    def meet(
        self, news: Sequence[News], has_batch: bool, missing: Callable[[], Sequence[str]]
    ) -> Meeting:
        """Tell the others, and hear from them."""
        size, learner = self.place.world_size, self._learner
        assert learner is not None, "begin() comes first"
        played = sum(item.stats.steps for item in news)
        games = json.dumps([asdict(game) for item in news for game in item.episodes]).encode()
        length = len(games) if len(games) > len("[]") else 0
        compares = learner.version % COMPARED_EACH == 0 and learner.version != self._compared
        numbers = self._group.agree(
            [
                played,
                time.monotonic() if self.place.rank == 0 else 0.0,
                *(float(self._own_wishes[wish]) for wish in WISHES),
                *self._own(float(has_batch)),
                *self._own(length),
                *self._own(_checksum(learner) if compares else 0),
            ]
        )
        steps, clock, *numbers = numbers
        self._wishes = {w: n > 0 for w, n in zip(WISHES, numbers, strict=False)}
        numbers = numbers[len(WISHES) :]
        ready, lengths, sums = (numbers[i * size : (i + 1) * size] for i in range(3))
        if compares:
            self._compared = learner.version
            self._compare(sums, f"after update {learner.version}")
        # All steps first: a game is booked at the same count everywhere.
        told = [replace(item, episodes=()) for item in news]
        told.append(News(WorkerStats(steps=int(steps) - played), ()))
        if any(lengths):
            texts = self._group.gather(games if length else b"", [int(n) for n in lengths])
            told += [News(WorkerStats(), _games(text)) for text in texts if text]
        self._check_patience(ready, clock, missing)
        return Meeting(told, all(ready))

    def updated(self) -> None:
        """After the first update, a learner that does not answer is missed earlier."""
        self._group.settle()

    def tell(self, error: BaseException) -> None:
        """Say why this learner leaves."""
        if self._has_told:
            return
        self._has_told = True
        if isinstance(error, (LearnerLost, LearnersDiffer)):
            self._group.leave()  # the others know
            return
        name = "" if isinstance(error, PlatformError) else f"{type(error).__name__}: "
        self._group.tell(f"{name}{error}".strip() or type(error).__name__)

    def _check_patience(
        self, ready: Sequence[float], clock: float, missing: Callable[[], Sequence[str]]
    ) -> None:
        """Raise LearnerLost if some have waited for the batch of others for too long."""
        if all(ready) or not any(ready):
            self._waits_since = None
            return
        self._waits_since = clock if self._waits_since is None else self._waits_since
        waited_s = clock - self._waits_since
        if waited_s < self._group.timeout_s:
            return
        late = [rank for rank, is_ready in enumerate(ready) if not is_ready]
        own = "; ".join(filter(None, missing())) if self.place.rank in late else ""
        texts = self._tell_all(own[:MAX_TEXT])
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

    def _own(self, value: float) -> list[float]:
        """Return a list with a place for each learner, 0 but for this one's."""
        return [value if rank == self.place.rank else 0.0 for rank in range(self.place.world_size)]

    def _everybodys(self, value: float) -> list[float]:
        return self._group.agree(self._own(value))

    def _tell_all(self, text: str) -> list[str]:
        """Return the text of each learner."""
        data = text.encode(errors="backslashreplace")  # paths may hold any bytes
        sizes = [int(n) for n in self._everybodys(len(data))]
        return [piece.decode() for piece in self._group.gather(data, sizes)]


def join(place: Place, timeout_s: float) -> Company:
    """Meet the other learners, if there are any.

    Args:
      place: which learner this is.
      timeout_s: how long one may take to answer, or be without a batch; the first update has
        FIRST_TIMEOUTS times as long.

    Raises:
      LearnerLost: if one does not come.
    """
    if place.world_size == 1:
        return SINGLE
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
        group = Group(
            open_store(place, first_s),
            place.rank,
            place.world_size,
            timeout_s=timeout_s,
            first_timeout_s=first_s,
            is_local=place.is_local,
        )
    return Several(place, group)


def _games(text: bytes) -> tuple[EpisodeEnd, ...]:
    return tuple(EpisodeEnd(**game) for game in json.loads(text))


def _checksum(learner: Learner) -> int:
    """Return a number below 2^32 that is another one if a bit of the model is."""
    total = 0
    for tensor in learner.model.state_dict().values():
        total = zlib.crc32(tensor.detach().cpu().contiguous().numpy().tobytes(), total)
    return total


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 200 else f"{text[:200]} ..."
