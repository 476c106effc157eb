"""Faults between agents that share their replay: what is sent, taken, counted and believed."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, Place

SPOOL = ("test_spool.py",)
EXCHANGE = ("sharing/test_exchange.py",)
FOREIGN = ("replay/test_foreign.py",)

SPOOL_MUTANTS = (
    Mutant(
        "spool-loss-not-counted", "does not count messages that were gone before they were read",
        Place("spool.py", "self.lost += number - self.expected", "self.lost += 0"),
        SPOOL,
    ),
    Mutant(
        "spool-counts-anew", "forgets at a restart how many messages there were",
        Place("spool.py", "self._next = mine.expected", "self._next = 0"),
        SPOOL,
    ),
    Mutant(
        "spool-lost-count-is-believed", "expects the numbers of a session that knew more",
        Place("spool.py", "self.expected = min(self.expected, place[1])", "pass"),
        SPOOL,
    ),
    Mutant(
        "spool-latecomer-loses-all", "counts as lost what was sent before an empty segment",
        Place("spool.py", "self.expected = self._place[1]", "self.expected = 0"),
        SPOOL,
    ),
    Mutant(
        "spool-goes-on-after-a-torn-message", "appends to what was half written",
        Place("spool.py", "            self._end_segment()\n            self._session += 1",
              "            self._session += 1"),
        SPOOL,
    ),
    Mutant(
        "spool-latecomer-reads-all", "takes for new what was sent before it came",
        Place("spool.py", "            for number, _ in self._frames():", "            for number, _ in ():"),
        SPOOL,
    ),
    Mutant(
        "spool-never-removes", "keeps every segment for ever",
        Place("spool.py", "while len(self._kept) >= self._segments:", "while False:"),
        SPOOL,
    ),
    Mutant(
        "spool-believes-checksums", "does not compare checksums",
        Place("spool.py", "if _checksum(length, number, message) != checksum:", "if False:"),
        SPOOL,
    ),
    Mutant(
        "spool-gives-numbers-twice", "believes in a number that was there before",
        Place("spool.py", "if not self.expected <= number < self.expected + MAX_GAP:\n"
              "                    # An honest", "if not number < self.expected + MAX_GAP:\n"
              "                    # An honest"),
        SPOOL,
    ),
)  # fmt: skip

EXCHANGE_MUTANTS = (
    Mutant(
        "foreign-share-ignored", "takes all that the others have sent",
        Place("partner.py", "due = min(int(self._credit), self.waiting)", "due = self.waiting"),
        EXCHANGE,
    ),
    Mutant(
        "foreign-fast-agent-pushes-out", "gives all credit to whoever has sent something",
        Place("partner.py", "self._credit = min(MAX_OWED, credit)", "self._credit = 0.0"),
        EXCHANGE,
    ),
    Mutant(
        "foreign-oldest-taken", "takes the oldest of what has come, and passes over the newest",
        Place("partner.py", "messages[len(messages) - count :]", "messages[:count]"),
        EXCHANGE,
    ),
    Mutant(
        "foreign-terms-not-compared", "learns from agents of any kind",
        Place("partner.py", "self._is_fit = not problem", "self._is_fit = True"),
        EXCHANGE,
    ),
    Mutant(
        "foreign-numbers-not-checked", "lets any numbers through to the learner",
        Place("foreign.py", "            self.travelling.check(unroll)\n", "            pass\n"),
        ("sharing/test_foreign.py",),
    ),
    Mutant(
        "foreign-reward-lost", "loses the rewards where two layouts differ",
        Place("foreign.py", "for name in source.fields.keys() & target.fields.keys():",
              'for name in (source.fields.keys() & target.fields.keys()) - {"reward"}:'),
        ("sharing/test_foreign.py",),
    ),
)  # fmt: skip

KEEPING_MUTANTS = (
    Mutant(
        "foreign-in-queues", "takes unrolls of other agents for new ones",
        Place("foreign.py", "if not buffer.sets_the_pace and",
              "if buffer.can_insert() and"),
        FOREIGN,
    ),
    Mutant(
        "foreign-is-own", "forgets who made an unroll",
        Place("manager.py", "self._codec, version, update, agent)", "self._codec, version, update)"),
        FOREIGN,
    ),
    Mutant(
        "foreign-not-restored", "takes all unrolls for its own after a resume",
        Place("snapshot.py", 'agents = state.get("agents")', "agents = None"),
        FOREIGN,
    ),
    Mutant(
        "foreign-queries-missing", "begins attentive replay with nothing to compare with",
        Place("mixing.py", "return buffer.can_sample() and self._newest.suffice(buffer)",
              "return buffer.can_sample()"),
        FOREIGN,
    ),
    Mutant(
        "trust-of-new-unrolls", "counts new unrolls for what an agent's replay is worth",
        Place("health.py", "replayed = ~batch.is_online", "replayed = batch.is_online | True"),
        ("sharing/test_agent_health.py",),
    ),
    Mutant(
        "capacity-forgets-what-is-there", "asks for memory that replay has already",
        Place("capacity.py", "missing = max(0, self._unrolls - held)", "missing = self._unrolls"),
        ("test_capacity.py",),
    ),
    Mutant(
        "population-begins-one-by-one", "begins agents that should run at the same time in turn",
        Place("turns.py", "            together = [n for n in agents if folder.runs[n].seed == seed]",
              "            together = agents[:1]"),
        ("sequences/test_populations.py",),
    ),
)  # fmt: skip

SHARING_MUTANTS = (*SPOOL_MUTANTS, *EXCHANGE_MUTANTS, *KEEPING_MUTANTS)
