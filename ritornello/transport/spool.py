"""Messages from one process to any number of others, through files in a folder of the sender's own.

An `Outbox` appends messages to numbered files, its *segments*, and removes the oldest of them; an
`Inbox` of somebody else reads along. Nobody but the sender writes, and nobody asks or answers:

* a reader that is slow, frozen, killed or not there yet costs the sender nothing. What it has not
  read when a segment goes is lost to it, and it counts that by the numbers of the messages;
* a sender that is killed leaves at most one message half written, which no reader takes: each has a
  length and a checksum. When it comes back it begins a new *session* and counts on from the last
  whole message, so that readers follow by themselves and know what they have missed;
* the space on the disk is bounded; a full disk only means that messages are dropped and counted.

Segments are never changed but by appending, and are removed by name only: a reader that has one
open reads it to its end. They are not forced to the disk, so most are gone before they reach it.
The name of a segment holds its session and the number of its first message, which whoever comes to
an empty one needs to know.

Next to read: agent/sharing/exchange.py, which sends unrolls this way.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import struct
import time
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from ritornello.core import faults
from ritornello.core.errors import TransportError

SEGMENT_BYTES = 2 << 20
SEGMENTS = 16  # kept at once; with the size above 32 MB for each sender
RETRY_S = 5.0  # after a failure nothing is tried for so long
MAGIC = b"VTS1"
# Magic, length of the message, its number, checksum of length, number and text.
HEADER = struct.Struct("<4sIQI")
NAME = re.compile(r"([0-9]{6,15})_([0-9]{9,15})\.segment")
MAX_GAP = 1 << 40  # messages; no sender can have lost so many
MAX_PLACE = 10**14  # no honest session or message has such a number, and names have room beyond
MAX_NAMES = 1000  # of a folder; whatever else somebody has put there is not looked at
CHUNK_BYTES = 1 << 20
MAX_TURNS = 2 * SEGMENTS  # segments that are opened in one go; an honest sender never has more
MAX_SEGMENT_BYTES = 64 << 20  # or two messages, if they are larger; honest ones are far below

Place = tuple[int, int]  # of a segment: session, number of its first message


class Outbox:
    """Writes messages into a folder. Not thread-safe; the folder belongs to one Outbox at a time.

    Nothing here waits for anybody, and no failure of the disk is raised after the beginning.
    """

    def __init__(
        self, folder: Path, segment_bytes: int = SEGMENT_BYTES, segments: int = SEGMENTS
    ) -> None:
        """Begin a session; remove the segments of earlier ones.

        Args:
          folder: an existing folder.
          segment_bytes: size above which a new segment is begun.
          segments: number of segments that are kept, at least 2.

        Raises:
          TransportError: if the folder cannot be used.
        """
        if segments < 2 or segment_bytes < 1:
            raise TransportError(
                f"an outbox of {segments} segments of {segment_bytes} bytes is impossible: "
                "expected at least 2 segments and 1 byte."
            )
        self.sent = 0  # messages of this session, each of which some reader may have
        self.dropped = 0  # messages that could not be written
        self.failure = ""  # why not, the last time
        self._folder = folder
        self._segment_bytes = segment_bytes
        self._segments = segments
        self._file = -1
        self._size = 0
        self._kept: list[Place] = []
        self._retry_at_s = 0.0
        try:
            before = _places(folder)
            self._session = 1 + max((session for session, _ in before), default=0)
            mine = Inbox(folder, MAX_SEGMENT_BYTES)
            self._next = mine.expected  # number of the next message
            mine.close()
            # Made before the others go, so that the session before this one is never forgotten.
            self._begin_segment()
            for place in before:
                self._remove(place)
        except OSError as error:
            raise TransportError(
                f"cannot write into {folder}: {error.strerror}. Messages to other processes go "
                "there."
            ) from error

    def send(self, message: bytes) -> bool:
        """Append a message; return whether it was written. It never waits."""
        if time.monotonic() < self._retry_at_s:
            self.dropped += 1
            return False
        try:
            self._write(message)
        except OSError as error:
            # What was written of it would be taken for the beginning of the next one. A session
            # of its own gives the next segment another name, where this one holds no message.
            self._end_segment()
            self._session += 1
            self._retry_at_s = time.monotonic() + RETRY_S
            self.failure = error.strerror or str(error)
            self.dropped += 1
            return False
        self.sent += 1
        self._next += 1
        return True

    def close(self) -> None:
        """End the session; what was sent stays until the next one. Idempotent."""
        self._end_segment()
        self._retry_at_s = float("inf")

    def _write(self, message: bytes) -> None:
        if self._file < 0 or (self._size and self._size + len(message) > self._segment_bytes):
            self._end_segment()
            while len(self._kept) >= self._segments:
                self._remove(self._kept.pop(0))  # first, so that there may be room for the new one
            self._begin_segment()
        checksum = _checksum(len(message), self._next, message)
        data = HEADER.pack(MAGIC, len(message), self._next, checksum) + message
        path = self._folder / _name(self._kept[-1])
        faults.at("file.write", path, tear=lambda count: os.write(self._file, data[:count]))
        if os.write(self._file, data) < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._size += len(data)

    def _begin_segment(self) -> None:
        place = (self._session, self._next)
        path = self._folder / _name(place)
        faults.at("file.open", path)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | getattr(os, "O_CLOEXEC", 0)
        self._file = os.open(path, flags, 0o600)
        self._size = 0
        self._kept.append(place)

    def _end_segment(self) -> None:
        if self._file >= 0:
            with suppress(OSError):
                os.close(self._file)
            self._file = -1

    def _remove(self, place: Place) -> None:
        with suppress(OSError):
            os.unlink(self._folder / _name(place))


class Inbox:
    """Reads what is sent from now on by the Outbox of a folder. Not thread-safe.

    Nothing that lies in the folder is believed, and nothing there can make `receive` wait or raise.
    """

    def __init__(self, folder: Path, max_message_bytes: int) -> None:
        """Begin to listen at the present end, whether or not there is anything yet.

        Args:
          folder: the folder of the Outbox; it may be missing.
          max_message_bytes: size above which no message can be.
        """
        self.lost = 0  # messages that were gone before they could be read
        self.damaged = 0  # times that a segment was not what it should be
        self.expected = 0  # number of the next message
        self._folder = folder
        self._max_bytes = max_message_bytes
        self._file = -1
        self._offset = 0
        self._is_bad = False  # nothing more is read of the present segment
        places = _places(folder)
        self._place: Place = max(places, default=(0, 0))
        self.expected = self._place[1]
        if places:
            self._enter(self._place, is_new=False)
            for number, _ in self._frames():
                if not self.expected <= number < self.expected + MAX_GAP:
                    self._spoil()
                    break
                self.expected = number + 1

    def receive(self, limit: int) -> list[bytes]:
        """Return the oldest messages that were not read yet, at most `limit`. It never waits."""
        messages: list[bytes] = []
        for _ in range(MAX_TURNS):  # whoever makes segments faster than they are read holds nobody
            for number, message in self._frames(limit - len(messages)):
                if not self.expected <= number < self.expected + MAX_GAP:
                    # An honest sender gives no number twice.
                    self._spoil()
                    break
                self.lost += number - self.expected
                self.expected = number + 1
                messages.append(message)
            if len(messages) >= limit or not self._turn_over():
                break
        return messages

    def close(self) -> None:
        """Close the segment that is open. Idempotent."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _turn_over(self) -> bool:
        """Go on with the next segment, if there is one and this one has nothing more."""
        places = sorted(_places(self._folder))
        later = [place for place in places if place > self._place]
        if not later:
            if places and places[-1] < self._place:  # everything was removed and begun anew
                later, self.expected = places, 0
            else:
                return False
        elif not self._is_bad and self._has_more():
            return True  # written before the later segment was begun, and after our last look
        self._enter(later[0], is_new=True)
        return True

    def _has_more(self) -> bool:
        """Whether a whole message follows; `_frames` then yields it."""
        before = self._offset
        for _ in self._frames(1):
            self._offset = before
            return True
        return False

    def _enter(self, place: Place, *, is_new: bool) -> None:
        self.close()
        if place[0] != self._place[0]:
            # A sender that could not read its own last segment does not know how far it had come.
            self.expected = min(self.expected, place[1])
        self._place, self._offset, self._is_bad = place, 0, False
        flags = os.O_RDONLY
        for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC"):  # no link, and no pipe that waits
            flags |= getattr(os, name, 0)
        try:
            self._file = os.open(self._folder / _name(place), flags)
            if not stat.S_ISREG(os.fstat(self._file).st_mode):
                self._spoil()
        except FileNotFoundError:  # removed since we looked: the numbers tell what is lost
            self._is_bad = True
        except OSError:
            if is_new:
                self._spoil()

    def _spoil(self) -> None:
        self.damaged += 1
        self._is_bad = True

    def _frames(self, limit: int = 1 << 62) -> Iterator[tuple[int, bytes]]:
        """Yield (number, message) of whole messages that follow, in this segment."""
        while limit > 0 and self._file >= 0 and not self._is_bad:
            if self._offset > max(MAX_SEGMENT_BYTES, 2 * self._max_bytes):
                self._spoil()
                return
            chunk = self._read(CHUNK_BYTES)
            place = 0
            while limit > 0 and len(chunk) - place >= HEADER.size:
                magic, length, number, checksum = HEADER.unpack_from(chunk, place)
                if magic != MAGIC or length > self._max_bytes:
                    self._spoil()
                    return
                end = place + HEADER.size + length
                if end > len(chunk):
                    if place or len(chunk) < CHUNK_BYTES:
                        break
                    chunk = self._read(HEADER.size + length)  # one message of more than a chunk
                    if end > len(chunk):
                        break
                message = chunk[place + HEADER.size : end]
                if _checksum(length, number, message) != checksum:
                    self._spoil()
                    return
                self._offset += end - place
                place, limit = end, limit - 1
                yield number, message
            if not place:
                return

    def _read(self, count: int) -> bytes:
        try:
            os.lseek(self._file, self._offset, os.SEEK_SET)
            return os.read(self._file, count)
        except OSError:
            self._spoil()
            return b""


def _places(folder: Path) -> list[Place]:
    """Return the segments in a folder, in no order; none if it cannot be read."""
    found: list[Place] = []
    with suppress(OSError), os.scandir(folder) as entries:
        for count, entry in enumerate(entries):
            if count >= MAX_NAMES:
                break
            match = NAME.fullmatch(entry.name)
            place = (int(match[1]), int(match[2])) if match else (MAX_PLACE, 0)
            if max(place) < MAX_PLACE:
                found.append(place)
    return found


def _name(place: Place) -> str:
    return f"{place[0]:06d}_{place[1]:09d}.segment"


def _checksum(length: int, number: int, message: bytes) -> int:
    return zlib.crc32(message, zlib.crc32(struct.pack("<IQ", length, number)))
