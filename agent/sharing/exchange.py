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

Next to read: partner.py, one of the others as seen from here; membership.py, who may be which one;
and agent/run/sharing.py, which makes all this from flags.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable

from ritornello.agent.sharing.foreign import ForeignUnroll, UnrollPost
from ritornello.agent.sharing.membership import (
    LOCK,
    LOCK_WAIT_S,
    TERMS_LOCK,
    Membership,
    taken_message,
)
from ritornello.agent.sharing.partner import LOOK_S, Partner
from ritornello.agent.sharing.terms import Terms
from ritornello.core.errors import ConfigError, TransportError
from ritornello.core.file_lock import FileLock
from ritornello.core.unroll import Record, UnrollSchema
from ritornello.transport.spool import Outbox

log = logging.getLogger(__name__)

# Unrolls that may be owed to all together: an agent that thaws must bring no flood.
MAX_SPARE = 256.0


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
                raise ConfigError(taken_message(self._membership, self._lock))
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
