"""Messages through files: in order, never twice, and counted when they are lost."""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from ritornello.core import faults
from ritornello.core.errors import TransportError
from ritornello.transport import spool
from ritornello.transport.spool import HEADER, Inbox, Outbox

MAX_BYTES = 500
SEGMENT, KEPT = 300, 3


def message(number: int, size: int = 40) -> bytes:
    return random.Random(number).randbytes(size)


def segments(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.segment"))


# --- any interleaving ----------------------------------------------------------------------------


class SpoolMachine(RuleBasedStateMachine):
    """One writer that may die at any point, and readers that come, rest and go.

    The naive model is the list of all that was sent. A reader must get a part of it in order,
    without anything twice, and count the messages in between as lost.
    """

    @initialize()
    def begin(self):
        self.folder = Path(tempfile.mkdtemp())
        self.sent = []
        self.failures = KEPT  # since the newest message; each may push out a segment
        self.outbox = None
        self.readers = []  # [inbox, what it may get next, what it has got]

    @rule()
    def start_writer(self):
        """At first, after a clean end or after a kill."""
        self.outbox = Outbox(self.folder, SEGMENT, KEPT)
        self.failures = KEPT

    @rule(count=st.integers(1, 8), size=st.integers(8, MAX_BYTES))  # 8: no two are alike
    def send(self, count, size):
        for _ in range(count if self.outbox else 0):
            data = message(len(self.sent), size)
            assert self.outbox.send(data)
            self.sent.append(data)
            self.failures = 0

    @rule(size=st.integers(1, HEADER.size + 39))
    def die_while_writing(self, size):
        """A part of a message is there, and nobody will ever write the rest."""
        if self.outbox is None:
            return
        data = message(0)
        with open(segments(self.folder)[-1], "ab") as file:
            file.write(frame(len(self.sent), data)[:size])
        self.outbox = None

    @rule(number=st.integers(0, 9))
    def fill_the_disk_for_one_message(self, number):
        if self.outbox is None:
            return
        dropped = self.outbox.dropped
        torn = {"at": "file.write", "file": "*.segment", "do": "enospc"}
        with faults.loaded(faults.Plan([faults.Fault.from_json(torn)])):
            assert not self.outbox.send(message(number))
        assert self.outbox.dropped == dropped + 1
        self.outbox._retry_at_s = 0.0
        self.failures += 1

    @rule()
    def join(self):
        self.readers.append([Inbox(self.folder, MAX_BYTES), len(self.sent), 0])

    @rule(which=st.integers(0, 3), limit=st.integers(1, 20))
    def read(self, which, limit):
        if which >= len(self.readers):
            return
        inbox, due, got = self.readers[which]
        lost_before = inbox.lost
        messages = inbox.receive(limit)
        assert len(messages) <= limit
        skipped = 0
        for data in messages:
            # Nothing is twice or out of order: each is at or after what was due.
            place = next(n for n in range(due, len(self.sent)) if self.sent[n] == data)
            skipped += place - due
            due = place + 1
        assert inbox.lost - lost_before == skipped
        if len(messages) < limit and self.failures < KEPT:
            assert due == len(self.sent)
        self.readers[which] = [inbox, due, got + len(messages)]

    @invariant()
    def the_space_is_bounded(self):
        if hasattr(self, "folder"):
            kept = segments(self.folder)
            assert len(kept) <= KEPT
            one = MAX_BYTES + HEADER.size
            assert sum(path.stat().st_size for path in kept) <= KEPT * (SEGMENT + one) + one

    @invariant()
    def nothing_is_damaged(self):
        assert all(reader[0].damaged == 0 for reader in getattr(self, "readers", ()))

    def teardown(self):
        if not hasattr(self, "folder"):
            return
        # Liveness: whatever has happened, a reader hears what is sent from now on.
        self.start_writer()
        for reader in self.readers:
            reader[0].receive(10_000)
        self.send(3, 20)
        for inbox, _, _ in self.readers:
            assert inbox.receive(100) == self.sent[-3:]
            inbox.close()
        self.outbox.close()
        shutil.rmtree(self.folder)


class TestAnyInterleavingOfAWriterAndReaders(SpoolMachine.TestCase):
    settings = settings(max_examples=150, stateful_step_count=25, deadline=None)


# --- single cases --------------------------------------------------------------------------------


def test_a_reader_that_rests_loses_the_oldest_and_knows_how_many(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path, SEGMENT, KEPT)
    inbox = Inbox(tmp_path, MAX_BYTES)
    for number in range(100):
        assert outbox.send(message(number))
    got = inbox.receive(1000)
    # It had the first segment open, and the last ones are still there.
    assert got == [message(n) for n in (*range(5), *range(100 - len(got) + 5, 100))]
    assert 10 < len(got) < 30
    assert inbox.lost == 100 - len(got)
    assert inbox.damaged == 0


def test_a_latecomer_hears_only_what_is_new(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path, SEGMENT, KEPT)
    for number in range(7):
        outbox.send(message(number))
    inbox = Inbox(tmp_path, MAX_BYTES)
    assert inbox.receive(10) == []
    outbox.send(message(7))
    assert inbox.receive(10) == [message(7)]
    assert inbox.lost == 0


def test_a_message_larger_than_what_is_read_at_once_arrives_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool, "CHUNK_BYTES", 64)
    outbox, inbox = Outbox(tmp_path, 10_000, KEPT), Inbox(tmp_path, MAX_BYTES)
    sizes = [10, 500, 44, 43, 45, 0, 200]
    for size in sizes:
        outbox.send(message(size, size))
    assert inbox.receive(100) == [message(size, size) for size in sizes]


def fail_to_send(outbox: Outbox) -> None:
    full = {"at": "file.write", "file": "*.segment", "do": "enospc"}
    with faults.loaded(faults.Plan([faults.Fault.from_json(full)])):
        assert not outbox.send(message(0))
    outbox._retry_at_s = 0.0


def test_a_latecomer_to_an_empty_segment_misses_nothing(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path, SEGMENT, KEPT)
    for number in range(20):
        assert outbox.send(message(number))
    fail_to_send(outbox)
    fail_to_send(outbox)
    assert segments(tmp_path)[-1].stat().st_size == 0
    inbox = Inbox(tmp_path, MAX_BYTES)
    assert outbox.send(b"new")
    assert inbox.receive(10) == [b"new"]
    assert inbox.lost == 0


@pytest.mark.parametrize("unread", [0, 3])
def test_what_a_restart_removes_before_it_is_read_is_lost(tmp_path: Path, unread: int) -> None:
    outbox, inbox = Outbox(tmp_path, 1, KEPT), Inbox(tmp_path, MAX_BYTES)
    assert outbox.send(message(0))
    assert inbox.receive(10) == [message(0)]
    for number in range(unread):
        assert outbox.send(message(number))
    outbox = Outbox(tmp_path, SEGMENT, KEPT)
    latecomer = Inbox(tmp_path, MAX_BYTES)
    assert outbox.send(b"new")
    assert inbox.receive(10) == [b"new"] == latecomer.receive(10)
    assert (inbox.lost, latecomer.lost) == (unread, 0)
    assert outbox.sent == 1


def test_a_sender_that_has_lost_count_is_heard_all_the_same(tmp_path: Path) -> None:
    """Its last segment was damaged, so that it begins with numbers that were there before."""
    outbox, inbox = Outbox(tmp_path, SEGMENT, KEPT), Inbox(tmp_path, MAX_BYTES)
    for number in range(4):
        assert outbox.send(message(number))
    assert len(inbox.receive(10)) == 4
    segments(tmp_path)[-1].write_bytes(b"?")
    outbox = Outbox(tmp_path, SEGMENT, KEPT)
    assert outbox.send(b"new")
    assert inbox.receive(10) == [b"new"]
    assert (inbox.lost, inbox.damaged) == (0, 0)


def spoiled(data: bytes, how: str) -> bytes:
    body = HEADER.size
    return {
        "payload": data[: body + 3] + bytes([data[body + 3] ^ 1]) + data[body + 4 :],
        "magic": b"GIF8" + data[4:],
        "length": HEADER.pack(spool.MAGIC, 2**31, 1, 0) + data[body:],
        "number again": frame(0, b"x"),
        "number far off": frame(2**50, b"x"),
        "nothing": b"",
    }[how]


def frame(number: int, text: bytes) -> bytes:
    check = spool._checksum(len(text), number, text)
    return HEADER.pack(spool.MAGIC, len(text), number, check) + text


@pytest.mark.parametrize(
    "how", ["payload", "magic", "length", "number again", "number far off", "nothing"]
)
def test_what_is_damaged_is_passed_over_and_the_next_segment_is_read(
    tmp_path: Path, how: str
) -> None:
    outbox, inbox = Outbox(tmp_path, SEGMENT, KEPT), Inbox(tmp_path, MAX_BYTES)
    outbox.send(message(0))
    outbox.send(message(1))
    (path,) = segments(tmp_path)
    data = path.read_bytes()
    half = len(data) // 2
    path.write_bytes(data[:half] + spoiled(data[half:], how))
    assert inbox.receive(10) == [message(0)]
    while len(segments(tmp_path)) == 1:
        outbox.send(message(2))
    outbox.send(message(3))
    assert inbox.receive(10)[-1] == message(3)
    assert inbox.damaged == (0 if how == "nothing" else 1)
    assert inbox.lost >= 1


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_what_is_no_file_is_never_waited_for(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "000001_000000000.segment"
    if kind == "link":
        path.symlink_to("/dev/zero")
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.mkdir()
    inbox = Inbox(tmp_path, MAX_BYTES)
    assert inbox.receive(10) == []
    (tmp_path / "000001_000000001.segment").write_bytes(frame(0, b"well"))
    assert inbox.receive(10) == [b"well"]


def test_a_folder_that_is_missing_or_wiped_is_no_error(tmp_path: Path) -> None:
    folder = tmp_path / "agent"
    inbox = Inbox(folder, MAX_BYTES)
    assert inbox.receive(10) == []
    folder.mkdir()
    for _ in range(3):  # three sessions
        outbox = Outbox(folder, SEGMENT, KEPT)
    outbox.send(b"one")
    assert inbox.receive(10) == [b"one"]
    shutil.rmtree(folder)
    assert inbox.receive(10) == []
    folder.mkdir()
    outbox = Outbox(folder, SEGMENT, KEPT)  # counts its sessions from 1 again
    outbox.send(b"two")
    assert inbox.receive(10) == [b"two"]
    assert inbox.damaged == 0


def test_after_a_failure_the_disk_is_left_alone_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outbox, inbox = Outbox(tmp_path, SEGMENT, KEPT), Inbox(tmp_path, MAX_BYTES)
    now = [100.0]
    monkeypatch.setattr(spool.time, "monotonic", lambda: now[0])
    plan = faults.Plan([faults.Fault.from_json({"at": "file.write", "do": "enospc"})])
    with faults.loaded(plan):
        assert not outbox.send(message(0))
        assert not outbox.send(message(1))  # not tried: the plan hurts the first time only
    assert outbox.dropped == 2
    assert outbox.failure == os.strerror(28)
    now[0] += spool.RETRY_S
    assert outbox.send(message(2))
    assert inbox.receive(10) == [message(2)]


def test_what_a_full_disk_took_half_of_spoils_no_later_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outbox, inbox = Outbox(tmp_path, SEGMENT, KEPT), Inbox(tmp_path, MAX_BYTES)
    now = [100.0]
    monkeypatch.setattr(spool.time, "monotonic", lambda: now[0])
    assert outbox.send(message(0))
    write = os.write
    with monkeypatch.context() as full:
        full.setattr(spool.os, "write", lambda file, data: write(file, data[: len(data) // 2]))
        assert not outbox.send(message(1))
    now[0] += spool.RETRY_S
    assert outbox.send(message(2))
    assert inbox.receive(10) == [message(0), message(2)]


def test_a_folder_that_cannot_be_written_to_is_refused_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(TransportError, match="cannot write into .*No such file"):
        Outbox(tmp_path / "missing")
    with pytest.raises(TransportError, match="at least 2 segments"):
        Outbox(tmp_path, segments=1)
    assert list(tmp_path.iterdir()) == []


def test_a_sender_that_makes_segments_without_end_holds_no_reader(tmp_path: Path) -> None:
    inbox = Inbox(tmp_path, MAX_BYTES)
    made = 0

    def one_more(folder: Path) -> list[tuple[int, int]]:
        nonlocal made
        made += 1
        (folder / f"000001_{made:09d}.segment").touch()
        return [(1, made)]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spool, "_places", one_more)
        assert inbox.receive(10) == []
    assert made <= spool.MAX_TURNS


def test_a_segment_without_end_is_read_no_further_than_an_honest_one_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool, "MAX_SEGMENT_BYTES", 3 * MAX_BYTES)
    monkeypatch.setattr(spool, "CHUNK_BYTES", MAX_BYTES)
    outbox = Outbox(tmp_path, 100 * MAX_BYTES, KEPT)
    inbox = Inbox(tmp_path, MAX_BYTES)
    for _ in range(40):
        outbox.send(bytes(MAX_BYTES // 2))
    assert 5 < len(inbox.receive(100)) < 10
    assert inbox.damaged == 1
    outbox.close()
    inbox.close()


@pytest.mark.parametrize(
    "planted",
    [
        (("000002", "000000000"), 2**64 - 1),
        (("000002", "000000000"), 2**63),
        (("999999999999999", "000000000"), 0),
        (("000002", "999999999999999"), 999_999_999_999_999),
    ],
)
def test_numbers_that_no_honest_sender_has_end_and_silence_nobody(tmp_path, planted):
    (session, first), number = planted
    text = b"planted"
    check = spool._checksum(len(text), number, text)
    data = HEADER.pack(spool.MAGIC, len(text), number, check) + text
    (tmp_path / f"{session}_{first}.segment").write_bytes(data)
    outbox, inbox = Outbox(tmp_path), Inbox(tmp_path, MAX_BYTES)
    assert outbox.send(b"mine")
    assert inbox.receive(9)[-1:] == [b"mine"]
    outbox.close()
    inbox.close()
