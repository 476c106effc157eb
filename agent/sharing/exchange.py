"""The exchange of unrolls between the agents of a population: each tells all others what it played.

There is no server and no common memory. In a folder that all know, each agent has a folder of its
own, in which only it writes:

    agent_0/terms.json     what its unrolls are like (terms.py)
    agent_0/lock           held as long as it runs
    agent_0/terms.lock     held as long as it runs and those are its terms, not of a session before
    agent_0/<n>.segment    its newest unrolls (transport/spool.py)

So an agent that is killed, frozen, late or mad hurts no other: they miss its unrolls, and go on.

How many foreign unrolls are taken follows from the agent's own: for each own unroll a *credit* of
s / (1 - s) is given, where s is the wanted share of foreign unrolls. Each of the others gets an
equal part of it, so that a fast one does not push out a slow one. What a silent one cannot use
goes to the rest after a while. Unrolls beyond the credit are passed over, the oldest first; those
that were removed before they could be read are lost. Both are counted. Nothing here waits.

Next to read: agent/run/sharing.py, which makes it from flags.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from agent.sharing.foreign import ForeignUnroll, UnrollPost
from agent.sharing.terms import Terms, UnreadTerms
from core.errors import ConfigError, TransportError
from core.file_lock import FileLock
from core.plain_data import shown_text
from core.unroll import Record, UnrollSchema
from transport.spool import Inbox, Outbox

log = logging.getLogger(__name__)

LOOK_S = 1.0  # between looks for agents that have begun, or begun anew
SILENCE_S = 60.0  # an agent that has sent nothing for so long counts as silent
LOCK_WAIT_S = 2.0  # another agent may just be asking whether this one runs
LOCK, TERMS_LOCK = "lock", "terms.lock"
MAX_READ = 512  # messages of one agent at once
# Foreign unrolls that may be owed to one agent; beyond it, its part goes to all. And to all: an
# agent that thaws must bring no flood.
MAX_OWED = 64.0
MAX_SPARE = 256.0


@dataclass(frozen=True)
class Membership:
    """Which agent of which population this is."""

    folder: Path  # of the population
    number: int
    count: int
    foreign_share: float | None = None  # of what goes into replay; None: as many of each agent

    @property
    def share(self) -> float:
        """The wanted share of foreign unrolls, below 1."""
        return 1 - 1 / self.count if self.foreign_share is None else self.foreign_share

    @property
    def others(self) -> list[int]:
        """The numbers of the other agents."""
        return [number for number in range(self.count) if number != self.number]

    def folder_of(self, number: int) -> Path:
        """Return the folder of an agent."""
        return self.folder / agent_name(number)


def agent_name(number: int) -> str:
    """Return the name of an agent in folders and metrics."""
    return f"agent_{number}"


class Exchange:
    """One agent's end: sends its unrolls and takes those of the others. Belongs to one thread.

    `stats` may be called by another thread; it only reads numbers.
    """

    def __init__(self, membership: Membership, terms: Terms, schema: UnrollSchema) -> None:
        """Start nothing.

        Args:
          membership: which agent this is.
          terms: what its unrolls are like.
          schema: layout of its own records.
        """
        self.post = UnrollPost(schema)
        self._membership = membership
        self._terms = terms
        self._folder = membership.folder_of(membership.number)
        self._lock = FileLock(self._folder / LOCK)
        self._terms_lock = FileLock(self._folder / TERMS_LOCK)
        self._outbox: Outbox | None = None
        self._spare = 0.0  # credit that is nobody's
        share = membership.share
        self._credit_per_unroll = share / (1 - share) / max(1, len(membership.others))
        self._partners = [Partner(membership, n, terms, self.post) for n in membership.others]
        self._look_at_s = 0.0
        self._turn = 0  # whose turn it is where credit cannot be divided evenly
        self._told = ""  # the last failure of the outbox that the user has heard of

    def open(self) -> None:
        """Take this agent's place in the folder, and begin to listen.

        Raises:
          ConfigError: if another process is this agent already.
          TransportError: if the folder cannot be used.
        """
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not self._lock.wait(LOCK_WAIT_S):
                raise ConfigError(_taken(self._membership, self._lock))
            self._terms.write(self._folder)
            # Without it the others notice later, not at their start, that terms differ.
            self._terms_lock.wait(LOCK_WAIT_S)
        except OSError as error:
            raise TransportError(
                f"cannot write into {self._folder}: {error.strerror}. Agents that share their "
                "replay write there what they play (--share_replay_in)."
            ) from error
        self._outbox = Outbox(self._folder)
        self._look()

    def send(self, records: Iterable[Record]) -> None:
        """Send own unrolls `[nbytes]` to whoever listens; a failure is counted, never raised."""
        if self._outbox is None:
            return
        for record in records:
            self._outbox.send(self.post.seal(record))
            for partner in self._partners:
                self._spare += partner.owe(self._credit_per_unroll)
        self._spare = min(MAX_SPARE, self._spare)
        failure = self._outbox.failure
        if failure != self._told:
            self._told = failure
            log.warning(
                "unrolls cannot be sent to the other agents (%s): training goes on without; "
                "share/unsent counts them", failure,
            )  # fmt: skip

    def receive(self) -> list[ForeignUnroll]:
        """Return the unrolls of others that are due by now, the newest of each."""
        if self._outbox is None:
            return []
        if time.monotonic() >= self._look_at_s:
            self._look()
        for partner in self._partners:
            partner.listen()
        unrolls: list[ForeignUnroll] = []
        for partner, due in zip(self._partners, self._division(), strict=True):
            unrolls += partner.take(due)
        return unrolls

    def stats(self) -> dict[str, float]:
        """Return metrics by name."""
        figures = {f"share/{p.name}/{n}": v for p in self._partners for n, v in p.figures().items()}
        figures["share/agents_heard"] = float(sum(p.is_heard() for p in self._partners))
        if self._outbox is not None:
            figures["share/sent"] = float(self._outbox.sent)
            figures["share/unsent"] = float(self._outbox.dropped)
        return figures

    def close(self) -> None:
        """Leave. What was sent stays for who has not read it yet. Idempotent."""
        for partner in self._partners:
            partner.close()
        if self._outbox is not None:
            self._outbox.close()
        self._terms_lock.release()
        self._lock.release()

    def _division(self) -> list[int]:
        """Use up credit; return how many unrolls are taken of each partner."""
        due = [partner.spend() for partner in self._partners]
        waiting = [partner.waiting for partner in self._partners]
        left = min(int(self._spare), sum(waiting) - sum(due))
        self._spare -= left
        while left:
            wanting = [n for n, have in enumerate(waiting) if due[n] < have]
            each, rest = divmod(left, len(wanting))
            for place, n in enumerate(wanting):
                extra = (place - self._turn) % len(wanting) < rest
                more = min(each + extra, waiting[n] - due[n])
                due[n] += more
                left -= more
            self._turn += 1
        return due

    def _look(self) -> None:
        self._look_at_s = time.monotonic() + LOOK_S
        for partner in self._partners:
            partner.look()


class Partner:
    """Another agent, as seen from here."""

    def __init__(self, membership: Membership, number: int, terms: Terms, post: UnrollPost) -> None:
        """Know nothing of it yet."""
        self.name = agent_name(number)
        self._number = number
        self._folder = membership.folder_of(number)
        self._terms = terms
        self._post = post
        self._inbox: Inbox | None = None
        self._is_fit = False
        self._terms_seen: tuple[int, int] | None = None  # the stamp of those that were compared
        self._told = ""  # the last problem that the user has heard of
        self._credit = 0.0  # unrolls that are owed to it
        self._messages: list[bytes] = []  # that came since the last `take`
        self._heard_at_s = -float("inf")
        self._taken = self._passed_over = self._refused = 0

    @property
    def waiting(self) -> int:
        """Messages that have come and were not taken."""
        return len(self._messages)

    def owe(self, unrolls: float) -> float:
        """Give it credit; return what it cannot use."""
        credit = self._credit + unrolls
        self._credit = min(MAX_OWED, credit)
        return credit - self._credit

    def spend(self) -> int:
        """Use up its credit for what it has sent; return for how many unrolls."""
        due = min(int(self._credit), self.waiting)
        self._credit -= due
        return due

    def look(self) -> None:
        """See whether it has begun, or begun anew with other terms."""
        if self._inbox is None:
            # Before it begins, so that its first unrolls are heard as well.
            self._inbox = Inbox(self._folder, self._post.max_bytes)
        try:
            stamp = Terms.stamp(self._folder)
            if stamp is None or stamp == self._terms_seen:
                return
            problem = unfit(self._terms, self._folder)
            self._terms_seen = stamp
        except UnreadTerms as error:
            problem = f"{error} This is tried again every {LOOK_S:g} s."
            self._terms_seen = None
        self._is_fit = not problem
        if problem and problem != self._told:
            log.warning("nothing is taken from %s: %s", self.name, problem)
        elif self._told and not problem:
            log.info("unrolls are taken from %s now", self.name)
        self._told = problem

    def listen(self) -> None:
        """Read what it has sent; keep the newest."""
        if self._inbox is None or not self._is_fit:
            return
        new = self._inbox.receive(MAX_READ)
        if new:
            self._heard_at_s = time.monotonic()
            self._messages = new

    def take(self, count: int) -> list[ForeignUnroll]:
        """Return the newest `count` unrolls; what is older is passed over."""
        messages, self._messages = self._messages, []
        self._passed_over += len(messages) - count
        unrolls = []
        for message in messages[len(messages) - count :]:
            try:
                unrolls.append(self._post.open(message, self._number))
            except TransportError as error:
                if not self._refused:
                    log.warning("%s is not taken, nor will others like it be: %s", self.name, error)
                self._refused += 1
        self._taken += len(unrolls)
        return unrolls

    def is_heard(self) -> bool:
        """Whether it has sent something lately."""
        return time.monotonic() - self._heard_at_s < SILENCE_S

    def figures(self) -> dict[str, float]:
        """Return what became of its unrolls since this session began."""
        lost = damaged = 0
        if self._inbox is not None:
            lost, damaged = self._inbox.lost, self._inbox.damaged
        return {
            "taken": float(self._taken),
            "passed_over": float(self._passed_over),
            "lost": float(lost),
            "refused": float(self._refused + damaged),
        }

    def close(self) -> None:
        """Stop listening."""
        if self._inbox is not None:
            self._inbox.close()


def unfit(terms: Terms, folder: Path) -> str:
    """Return why nothing can be learned from the agent of a folder; "" if it can, or is unknown.

    Raises:
      UnreadTerms: if its terms cannot be read now.
    """
    try:
        theirs = Terms.read(folder)
    except UnreadTerms:
        raise
    except ConfigError as error:
        return str(error)
    differences = [] if theirs is None else terms.differences(theirs)
    return "" if not differences else "it is of another kind: " + ", ".join(differences)


def check_place(membership: Membership, terms: Terms) -> None:
    """Check before a run begins that this agent can be in its population. Makes nothing.

    Raises:
      ConfigError: if another process is this agent, agents that run have other terms, or a folder
        is closed to this user.
    """
    folder = membership.folder
    if not _is_there(folder) and folder.exists() and not folder.is_dir():
        raise ConfigError(f"--share_replay_in={folder} is no folder.")
    own = membership.folder_of(membership.number)
    lock = FileLock(own / LOCK)
    if _is_there(own) and lock.is_held(LOCK_WAIT_S):
        raise ConfigError(_taken(membership, lock))
    for number in membership.others:
        problem = _obstacle(terms, membership.folder_of(number))
        if problem:
            raise ConfigError(
                f"{agent_name(number)} in --share_replay_in={folder} runs, and nothing can be "
                f"learned from its unrolls: {problem}. Give both the same environment and "
                "--r_f_steps, or each a folder of its own."
            )


def _obstacle(terms: Terms, folder: Path) -> str:
    """Return why nothing can be learned from an agent that runs; "" of one that does not."""
    if not _is_there(folder) or not FileLock(folder / TERMS_LOCK).is_held():
        return ""
    try:
        return unfit(terms, folder)
    except UnreadTerms as error:
        return str(error)


def _is_there(folder: Path) -> bool:
    """Whether there is such a folder.

    Raises:
      ConfigError: if this user cannot look into it.
    """
    try:
        os.scandir(folder).close()
        os.stat(os.path.join(folder, os.curdir))  # its names may be readable, and nothing behind
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise ConfigError(
            f"cannot look into {shown_text(str(folder))}: {error.strerror}{_owner(folder)}. "
            "Expected a folder that this program may read, because agents read what the others "
            "play: run all agents of a population as one user, or give --share_replay_in another "
            "folder."
        ) from error
    return True


def _owner(folder: Path) -> str:
    try:
        status = folder.stat()
    except OSError:
        return ""
    return f" (it belongs to user {status.st_uid}, with mode {status.st_mode & 0o777:04o})"


def _taken(membership: Membership, lock: FileLock) -> str:
    return (
        f"agent {membership.number} in {membership.folder} runs already ({lock.holder()}): give "
        "each agent a number of its own (--agent_number)."
    )
