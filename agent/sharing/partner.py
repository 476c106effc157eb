"""Another agent of the population, as seen from here: its unrolls, and what is owed to it.

Next to read: transport/spool.py, through which its unrolls come.
"""

from __future__ import annotations

import logging
import time

from ritornello.agent.sharing.foreign import ForeignUnroll, UnrollPost
from ritornello.agent.sharing.membership import Membership, agent_name
from ritornello.agent.sharing.terms import Terms, UnreadTerms, unfit
from ritornello.core.errors import TransportError
from ritornello.transport.spool import Inbox

log = logging.getLogger(__name__)

LOOK_S = 1.0  # between looks for agents that have begun, or begun anew
SILENCE_S = 60.0  # an agent that has sent nothing for so long counts as silent
MAX_READ = 512  # messages of one agent at once
MAX_OWED = 64.0  # unrolls that may be owed to one agent; beyond it, its part goes to all


class Partner:
    """What one other agent sends, and how much of it may be taken."""

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
