"""A segment: a part of a log as a packed file. Copies and archives in folders consist of segments.

Format: gzip; one line with the header, then one line per event with its body byte for byte. A segment's name says which
positions it holds and how the file's SHA-256 begins, and its header names the segment before it.

Rule: a segment, once written, is never changed, and a byte that is changed, cut or taken from another file is noticed.
"""

import gzip
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import file_digest, sha256
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import astuple

from voda.domain.errors import InvalidInput, LogDamaged, LogTooNew
from voda.events.codec import refuse_newer
from voda.events.envelope import Head, Sealed
from voda.log.append_plan import EventRow, row_of
from voda.log.archive.verify import HashChain, compare_heads

FORMAT = "voda-segment"
FORMAT_VERSION = 1
_NAME = re.compile(r"voda-(\d{12,})-(\d{12,})-([0-9a-f]{16})\.jsonl\.gz")
_DIGEST_DIGITS = 16
_GZIP_LEVEL = 4
"""Half the time of the default for a twentieth more bytes."""


class SegmentHead(Struct, frozen=True):
    """A `Head` under the names of its fields."""

    version: int
    hash: str
    epoch: int


class SegmentHeader(Struct, frozen=True, kw_only=True):
    """First line of a segment."""

    format: str = FORMAT
    version: int
    after: int
    """Position of the last event before it."""
    last: int
    """Position of its last event."""
    previous: str
    """Name of the segment before it; empty in the first."""
    heads: Mapping[str, SegmentHead]
    """Of the streams that have events in it, after its last event."""

    def chain_heads(self) -> Mapping[str, Head]:
        """Return the heads as a chain has them."""
        return {stream: Head(*astuple(head)) for stream, head in self.heads.items()}


class SegmentLine(Struct, frozen=True, kw_only=True, gc=False):
    """One event of a segment."""

    position: int
    hash: str
    event: Raw


class SegmentFile(NamedTuple):
    """A segment's file, and the positions in it."""

    path: Path
    first: int
    last: int
    digest: str
    """First 16 digits of the file's SHA-256, as its name says."""

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def after(self) -> int:
        """Position of the last event before it."""
        return self.first - 1


_encode = msgspec.json.Encoder(order="sorted").encode
_decode = msgspec.json.Decoder(SegmentHeader).decode
_decode_line = msgspec.json.Decoder(SegmentLine).decode


# ---- writing


def _line(sealed: Sealed) -> bytes:
    return b'{"position":%d,"hash":"%b","event":%b}\n' % (sealed.position, sealed.hash.encode(), sealed.body)


def pack_segment(events: Sequence[Sealed], chain: HashChain, previous: str) -> tuple[str, bytes]:
    """Return the name and content of a segment for a folder.

    Args:
        events: one after the other, at least one; they are proven here.
        chain: through all events before them; it is moved behind the last.
        previous: name of the segment before; empty for the first.

    Raises:
        LogDamaged: the events do not follow the chain.
    """
    after = chain.position
    streams = {chain.step(sealed).stream for sealed in events}
    heads = {stream: SegmentHead(*astuple(chain.heads[stream])) for stream in streams}
    header = SegmentHeader(version=FORMAT_VERSION, after=after, last=chain.position, previous=previous, heads=heads)
    # No time in it: the same events make the same file.
    content = gzip.compress(_encode(header) + b"\n" + b"".join(map(_line, events)), _GZIP_LEVEL, mtime=0)
    digest = sha256(content).hexdigest()[:_DIGEST_DIGITS]
    return f"voda-{after + 1:012}-{chain.position:012}-{digest}.jsonl.gz", content


# ---- finding


def parse_segment_name(path: Path) -> SegmentFile | None:
    """Return the segment that a file's name describes; None if the file is no segment."""
    found = _NAME.fullmatch(path.name)
    return SegmentFile(path, int(found[1]), int(found[2]), found[3]) if found else None


# ---- reading


def header_of(segment: SegmentFile) -> SegmentHeader:
    """Return the header of a segment alone; raises LogDamaged, LogTooNew if it cannot be read."""
    with _read(segment) as (header, _):
        return header


def proven_events(segment: SegmentFile, chain: HashChain, previous: str) -> Iterator[EventRow]:
    """Yield the events of a segment behind the chain, each proven to follow it; the chain moves along.

    Args:
        segment: the file.
        chain: at a position from the one before the segment's first to its last.
        previous: name of the segment before; empty for the first.

    Raises:
        LogDamaged: the file is not what was written, or does not follow `previous`; names the first damaged position.
        LogTooNew: a newer voda wrote it.
    """
    _check_digest(segment)
    with _read(segment) as (header, lines):
        if header.previous != previous:
            raise _damaged(
                segment, f"it follows {header.previous or 'nothing'}, but {previous or 'nothing'} is before it"
            )
        for line in islice(lines, chain.position - segment.after, None):
            yield _proven_event(line, str(segment.path), chain)
    if chain.position != segment.last:
        raise _damaged(segment, f"it ends at position {chain.position}, expected {segment.last}")
    # The header has the heads of its own streams; the chain, those of all.
    touched = {stream: chain.heads.get(stream, Head()) for stream in header.heads}
    compare_heads(header.chain_heads(), HashChain(chain.position, touched), str(segment.path))


def events_of(segment: SegmentFile) -> list[Sealed]:
    """Return the events of a segment whose bytes are what was written; that it belongs here is not proven."""
    _check_digest(segment)
    with _read(segment) as (_, lines):
        try:
            found = [_decode_line(line) for line in lines]
        except msgspec.MsgspecError as error:
            raise _damaged(segment, f"a line is no event ({error})") from error
    return [Sealed(line.position, bytes(line.event), line.hash) for line in found]


@contextmanager
def _read(segment: SegmentFile) -> Iterator[tuple[SegmentHeader, Iterator[bytes]]]:
    """Open a segment, and give its header and the lines of its events."""
    try:
        with gzip.open(segment.path, "rb") as file:
            yield _checked(file.readline(), segment), file
    except (OSError, EOFError, zlib.error) as error:
        raise _unreadable(segment, error) from error


def _check_digest(segment: SegmentFile) -> None:
    try:
        with segment.path.open("rb") as file:
            digest = file_digest(file, "sha256").hexdigest()[:_DIGEST_DIGITS]
    except OSError as error:
        raise _unreadable(segment, error) from error
    if digest != segment.digest:
        raise _damaged(segment, f"its bytes are not what was written (SHA-256 begins {digest})")


def _checked(line: bytes, segment: SegmentFile) -> SegmentHeader:
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
        raise _damaged(segment, f"it holds positions {header.after + 1} to {header.last}, which its name does not say")
    return header


def _proven_event(text: bytes, name: str, chain: HashChain) -> EventRow:
    position = chain.position + 1
    try:
        line = _decode_line(text)
    except msgspec.MsgspecError as error:
        raise LogDamaged(f"{name}: position {position}: the line is no event ({error})", position) from error
    sealed = Sealed(line.position, bytes(line.event), line.hash)
    try:
        body = chain.step(sealed)
    except LogDamaged as error:
        raise LogDamaged(f"{name}: {error}", error.position) from error
    refuse_newer(body, position)
    return row_of(sealed, body)


def _damaged(segment: SegmentFile, what: str) -> LogDamaged:
    return LogDamaged(
        f"{segment.path}: positions {segment.first} to {segment.last}: {what};"
        " put a copy of this file from another backup in its place",
        segment.first,
    )


def _unreadable(segment: SegmentFile, error: Exception) -> LogDamaged | InvalidInput:
    if isinstance(error, OSError) and not isinstance(error, gzip.BadGzipFile):
        return InvalidInput(f"{segment.path} cannot be read: {error.strerror or error}")
    return _damaged(segment, f"it cannot be unpacked ({error})")
