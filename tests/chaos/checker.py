"""Says which promises a history breaks. It looks at files and outputs, and runs nothing."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence

from tests.chaos.folder import REGULAR, Snapshot
from tests.chaos.history import Session, Violation

FAILED, REFUSED, INTERRUPTED = 1, 2, 130
MAX_REFUSAL_LINES = 8
MAX_JUMPS = 3  # that are told of one session
_CAUSE = re.compile(r"^(error: |multi_train\.py: |.*\bthe run failed\b)")
_TRACEBACKS = (
    "Traceback (most recent call last)",
    "--- Logging error ---",
    "Exception ignored in",
    "Fatal Python error",
)


def check_history(sessions: Sequence[Session]) -> list[Violation]:
    """Return every broken promise in the sessions of one run folder, oldest first."""
    found = [violation for session in sessions for violation in check_session(session)]
    return list(dict.fromkeys(found))


def check_session(session: Session) -> list[Violation]:
    """Return every promise that one session broke."""
    checks = (_status, _said, _clean, _finite, _kept, _untouched, _continuous, _scores)
    return [violation for check in checks for violation in check(session)]


def _status(session: Session) -> Iterator[Violation]:
    if session.status is None:
        yield Violation("alive", f"session {session.number} did not end in {session.seconds:.0f} s")
    elif session.status not in session.expected.statuses:
        expected = " or ".join(map(str, session.expected.statuses))
        yield Violation(
            "status",
            f"session {session.number} ended with {session.status}, expected {expected}"
            f" (last line: {_last_line(session.output)!r})",
        )


def _said(session: Session) -> Iterator[Violation]:
    expected, where = session.expected, f"session {session.number}"
    lines = [line for line in session.output.splitlines() if line.strip()]
    if not expected.traceback:
        shown = [mark for mark in _TRACEBACKS if mark in session.output]
        if shown:
            count = sum(session.output.count(mark) for mark in shown)
            yield Violation("said", f"{where} shows {count} tracebacks, ending {lines[-1][:160]!r}")
    if expected.says and not re.search(expected.says, session.output + "\n" + session.log):
        yield Violation("said", f"{where} does not say {expected.says!r}")
    if expected.quiet or session.status not in expected.statuses:
        return
    causes = [line for line in lines if _CAUSE.match(line)]
    if session.status == FAILED and len(causes) != 1:
        yield Violation("said", f"{where} failed and names {len(causes)} causes: {causes[:3]}")
    if session.status == REFUSED:
        if not causes:
            yield Violation("said", f"{where} refused and gives no line `error: ...`: {lines[-3:]}")
        if len(lines) > MAX_REFUSAL_LINES:
            yield Violation("said", f"{where} refused with {len(lines)} lines")
    if session.status == INTERRUPTED and not lines:
        yield Violation("said", f"{where} was interrupted and says nothing")


def _clean(session: Session) -> Iterator[Violation]:
    where = f"session {session.number} left"
    if session.status is None:
        return  # it was killed by the harness: what is left then says nothing
    if session.left_processes:
        yield Violation("clean", f"{where} processes: {'; '.join(session.left_processes)}")
    if session.left_memory:
        yield Violation("clean", f"{where} shared memory: {', '.join(session.left_memory)}")
    if session.left_locks:
        yield Violation("clean", f"{where} locks held: {', '.join(session.left_locks)}")
    if session.expected.leaves_temporaries:
        return
    if session.left_files:
        yield Violation("clean", f"{where} temporary files: {', '.join(session.left_files[:3])}")
    if session.after is not None and session.after.temporaries:
        names = ", ".join(session.after.temporaries)
        yield Violation("clean", f"{where} in the run folder: {names}")


def _finite(session: Session) -> Iterator[Violation]:
    if session.after is None:
        return
    known = set(session.before.digests.values()) if session.before is not None else set()
    for each in session.after.checkpoints:
        if each.not_finite and each.digest not in known:
            yield Violation(
                "finite", f"session {session.number} wrote {each.name}: {each.not_finite}"
            )
        if each.damage and each.digest not in known:
            yield Violation("kept", f"session {session.number} wrote {each.name}: {each.damage}")


def _kept(session: Session) -> Iterator[Violation]:
    after, where = session.after, f"session {session.number}"
    if after is None:
        return
    newest, last = after.newest, after.last_update
    if newest < session.start:
        yield Violation(
            "kept", f"{where} began with update {session.start}, now {newest} is newest"
        )
    if not session.expected.journals:
        return
    if session.expected.keeps_period and newest < last - session.save_period:
        yield Violation(
            "kept",
            f"{where}: the newest sound checkpoint is of update {newest}, the last record of {last}"
            f", the period is {session.save_period}",
        )
    if not (session.ended_well and session.expected.saved):
        return
    if newest != last:
        yield Violation(
            "kept", f"{where} ended well, but its checkpoint is of {newest}, its record of {last}"
        )
    updates = (after.summary or {}).get("updates")
    if session.made_updates and updates != newest:
        yield Violation("kept", f"{where}: summary.json says {updates} updates, not {newest}")


def _untouched(session: Session) -> Iterator[Violation]:
    before, after = session.before, session.after
    if before is None or after is None:
        return
    touched = set()
    for name, digest in before.digests.items():
        match = REGULAR.fullmatch(name.replace(".replay", ".pt"))
        if match is None or digest == "unreadable":
            continue
        now = after.digests.get(name)
        # What is newer than where the session began was given up for good, or is damaged.
        is_past = int(match[1]) <= session.start
        if now != digest and (now is not None or not session.made_updates) and is_past:
            touched.add(name)
    if not session.made_updates:
        for name in ("best.pt", "latest"):
            was, now = before.digests.get(name), after.digests.get(name)
            if was is not None and was != now and session.expected.journals:
                touched.add(name)
    if touched:
        made = "made updates" if session.made_updates else "made no update"
        names = ", ".join(sorted(touched))
        yield Violation("untouched", f"session {session.number} {made} and changed {names}")


def _continuous(session: Session) -> Iterator[Violation]:
    after, where = session.after, f"session {session.number}"
    if after is None or not session.expected.journals:
        return
    kept = session.kept_lines
    if session.before is not None and after.record_lines[: len(kept)] != kept:
        yield Violation("continuous", f"{where} does not keep the records up to its checkpoint")
    jumps = itertools.islice(_jumps(after), MAX_JUMPS)
    yield from (Violation("continuous", f"{where}: {text}") for text in jumps)
    if session.reproducible:
        updates = [int(record["updates"]) for record in after.records]
        missing = sorted(set(range(1, after.newest + 1)) - set(updates))
        if missing:
            yield Violation("continuous", f"{where}: there is no record of update {missing[:5]}")


def _jumps(after: Snapshot) -> Iterator[str]:
    """Say where counters go back, or one update is reported twice."""
    names = ("updates", "agent_steps", "episodes", "wall_s")
    for former, record in zip(after.records, after.records[1:], strict=False):
        backwards = [name for name in names if record[name] < former[name]]
        if backwards:
            name = backwards[0]
            yield f"{name} goes back from {former[name]} to {record[name]}"
        is_again = record["updates"] == former["updates"] > 0
        if is_again and all("loss/policy" in each.get("values", {}) for each in (former, record)):
            yield f"update {record['updates']} is recorded twice"


def _scores(session: Session) -> Iterator[Violation]:
    after, expected = session.after, session.expected
    if after is None or not (session.ended_well and expected.saved and expected.journals):
        return
    counted = (after.summary or {}).get("episodes")
    if counted is not None and counted != len(after.scores):
        yield Violation(
            "scores",
            f"session {session.number}: {counted} games were counted, Scores.txt has "
            f"{len(after.scores)} lines",
        )


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1][:160] if lines else ""
