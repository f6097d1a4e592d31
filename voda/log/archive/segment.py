"""A part of a log as a file: what archives and backups consist of.

Format: gzip of one line that is the header, and one line per event as in an export. The name says which positions are
in it and how the SHA-256 of the file begins; the header names the file before it. Rule: a segment, once written, is
never changed, and no byte of it can be changed, cut or taken for another's without being noticed.
"""

import gzip
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec import Struct

from voda.domain.errors import InvalidInput, LogDamaged, LogTooNew
from voda.events.envelope import Head, Sealed
from voda.log.append_plan import EventRow
from voda.log.archive.export import SegmentLine, event_of, line_of
from voda.log.archive.verify import HashChain, compare_heads

FORMAT = "voda-segment"
FORMAT_VERSION = 1
_NAME = re.compile(r"voda-(\d{12,})-(\d{12,})-([0-9a-f]{16})\.jsonl\.gz")
_LEVEL = 4
"""Of gzip: half the time of its default for a twentieth more bytes."""


class SegmentHeader(Struct, frozen=True, kw_only=True):
    """First line of a segment."""

    format: str
    version: int
    after: int
    """Position of the last event before it."""
    last: int
    """Position of its last event."""
    previous: str
    """Name of the segment before it; empty in the first."""
    heads: Mapping[str, Head]
    """Of the streams that it holds events of, once these are taken."""


class SegmentName(NamedTuple):
    """A segment by its name."""

    path: Path
    first: int
    last: int
    digest: str
    """The first 16 digits of the file's SHA-256."""

    @property
    def name(self) -> str:
        """Of the file."""
        return self.path.name

    @property
    def after(self) -> int:
        """Position of the last event before it."""
        return self.first - 1


_encode = msgspec.json.Encoder(order="sorted").encode
_decode = msgspec.json.Decoder(SegmentHeader).decode
_decode_event = msgspec.json.Decoder(SegmentLine).decode


def named(path: Path) -> SegmentName | None:
    """Return what a file's name says; None where it is not that of a segment."""
    found = _NAME.fullmatch(path.name)
    return SegmentName(path, int(found[1]), int(found[2]), found[3]) if found else None


def packed(events: Sequence[Sealed], walk: HashChain, previous: str) -> tuple[str, bytes]:
    """Return a segment's name and content.

    Args:
        events: one after the other, at least one; proven here.
        walk: through all events before them; it is moved behind the last.
        previous: name of the segment before; empty for the first.

    Raises:
        LogDamaged: they are not the events that belong here.
    """
    after = walk.position
    streams = {walk.step(sealed).stream for sealed in events}
    heads = {stream: walk.heads[stream] for stream in streams}
    header = SegmentHeader(
        format=FORMAT, version=FORMAT_VERSION, after=after, last=walk.position, previous=previous, heads=heads
    )
    lines = [_encode(header) + b"\n", *map(line_of, events)]
    # No time in it: the same events make the same file.
    content = gzip.compress(b"".join(lines), _LEVEL, mtime=0)
    digest = sha256(content).hexdigest()[:16]
    return f"voda-{after + 1:012}-{walk.position:012}-{digest}.jsonl.gz", content


def header_of(segment: SegmentName) -> SegmentHeader:
    """Return the first line of a segment; the rest of it is not looked at.

    Raises:
        LogDamaged, LogTooNew: it cannot be read.
    """
    try:
        with gzip.open(segment.path) as file:
            return _checked(file.readline(), segment)
    except (OSError, EOFError, zlib.error) as error:
        raise _unreadable(segment, error) from error


def proven(segment: SegmentName, walk: HashChain, previous: str) -> Iterator[EventRow]:
    """Yield the events of a segment, each proven to follow what the walk has taken before.

    Args:
        segment: by its name.
        walk: at a position from the one before the segment's first to its last; it moves along.
        previous: name of the segment before; empty for the first.

    Raises:
        LogDamaged: the file is not what was written, or does not belong here; its first position is named.
        LogTooNew: a newer voda wrote it.
    """
    header, lines = _content(segment)
    if header.previous != previous:
        raise _damaged(segment, f"it follows {header.previous or 'nothing'}, but {previous or 'nothing'} is before it")
    for line in lines[walk.position - segment.after :]:
        yield event_of(line, str(segment.path), walk)
    if walk.position != segment.last:
        raise _damaged(segment, f"it ends at position {walk.position}, expected {segment.last}")
    found = HashChain(walk.position, {stream: walk.heads.get(stream, Head()) for stream in header.heads})
    compare_heads(header.heads, found, str(segment.path))


def events_of(segment: SegmentName) -> list[Sealed]:
    """Return the events of a segment that is what was written; whether it belongs here is not asked.

    Raises:
        LogDamaged, LogTooNew: see proven.
    """
    _, lines = _content(segment)
    try:
        found = [_decode_event(line) for line in lines]
    except msgspec.MsgspecError as error:
        raise _damaged(segment, f"a line is no event ({error})") from error
    return [Sealed(line.position, bytes(line.event), line.hash) for line in found]


def _content(segment: SegmentName) -> tuple[SegmentHeader, list[bytes]]:
    try:
        packed_bytes = segment.path.read_bytes()
    except OSError as error:
        raise _unreadable(segment, error) from error
    if (digest := sha256(packed_bytes).hexdigest()[:16]) != segment.digest:
        raise _damaged(segment, f"its bytes are not what was written (SHA-256 begins {digest})")
    try:
        first, *lines = gzip.decompress(packed_bytes).splitlines(keepends=True)
    except (OSError, EOFError, zlib.error, ValueError) as error:
        raise _unreadable(segment, error) from error
    return _checked(first, segment), lines


def _checked(line: bytes, segment: SegmentName) -> SegmentHeader:
    try:
        header = _decode(line)
    except msgspec.MsgspecError as error:
        raise _damaged(segment, f"its first line is no header ({error})") from error
    if header.version > FORMAT_VERSION:
        raise LogTooNew(
            f"{segment.path} was written by a newer voda (format {header.version}, this version knows up to"
            f" {FORMAT_VERSION}): upgrade voda to read it"
        )
    if (header.after, header.last) != (segment.after, segment.last):
        told = f"positions {header.after + 1} to {header.last}"
        raise _damaged(segment, f"it holds {told}, which its name does not say")
    return header


def _damaged(segment: SegmentName, what: str) -> LogDamaged:
    return LogDamaged(
        f"{segment.path}: positions {segment.first} to {segment.last}: {what};"
        " put a copy of this file from another backup in its place",
        segment.first,
    )


def _unreadable(segment: SegmentName, error: Exception) -> LogDamaged | InvalidInput:
    if isinstance(error, OSError) and not isinstance(error, gzip.BadGzipFile):
        return InvalidInput(f"{segment.path} cannot be read: {error.strerror or error}")
    return _damaged(segment, f"it cannot be unpacked ({error})")
