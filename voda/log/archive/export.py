"""A log as a file of lines: a header, one line per event with its body byte for byte, and a trailer with all heads.

Rule: exporting what was imported gives the same bytes, and a file that was cut or changed anywhere is refused.
"""

import gzip
import zlib
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import BinaryIO, Protocol, cast

import msgspec
from msgspec import Raw, Struct

from voda.domain.errors import InvalidInput, LogDamaged, LogTooNew, NotALog
from voda.events.codec import refuse_newer
from voda.events.envelope import Head, Sealed
from voda.log.append_plan import EventRow, GroupPlan, row_of
from voda.log.archive.verify import PAGE, HashChain, Progress, VerifyReport
from voda.log.store import EventStore

FORMAT = "voda-log"
FORMAT_VERSION = 1


BEGINNING = b'{"format":"voda-log"'
"""First bytes of every export, whatever its version."""
_HEADER_ROOM_BYTES = 1000
_GZIP = b"\x1f\x8b"


class Target(Protocol):
    """A store that can take a whole log over."""

    async def restore(self, batches: Iterator[GroupPlan]) -> None:
        """Fill the empty log, all or nothing; whatever the iterator raises undoes all of it."""
        ...


class SegmentHeader(Struct, frozen=True, kw_only=True):
    """First line of an export."""

    format: str
    version: int


class SegmentLine(Struct, frozen=True, kw_only=True, gc=False):
    """One event of an export."""

    position: int
    hash: str
    event: Raw


class Trailer(Struct, frozen=True, kw_only=True):
    """Last line of an export: what must have come before it."""

    events: int
    heads: Mapping[str, Head]


_encode = msgspec.json.Encoder(order="sorted").encode
_decode_line = msgspec.json.Decoder(SegmentLine).decode


async def export_log(store: EventStore, file: BinaryIO, *, progress: Progress | None = None) -> int:
    """Write the log as it is now, and return the number of events.

    Args:
        store: any store; the events are proven on the way.
        file: opened for writing bytes.
        progress: called once per page.

    Raises:
        LogDamaged: an event is not what was written; the file is then without a trailer, hence no export.
    """
    walk = HashChain()
    total = await store.position()
    file.write(_header())
    while walk.position < total:
        page = await store.read_sealed(walk.position, min(PAGE, total - walk.position))
        if not page:
            raise LogDamaged(f"position {walk.position + 1}: the event is missing", walk.position + 1)
        for sealed in page:
            walk.step(sealed)
            file.write(line_of(sealed))
        if progress:
            progress(walk.position, total)
    file.write(_trailer(walk))
    return total


def open_export(path: Path) -> BinaryIO:
    """Open an export for reading, whether it is compressed (gzip) or not.

    Raises:
        OSError: it cannot be read.
    """
    file = path.open("rb")
    if file.peek(2)[:2] != _GZIP:
        return file
    file.close()
    return cast(BinaryIO, gzip.open(path, "rb"))


def is_export(path: Path) -> bool:
    """Return whether the file is an exported log, by its first bytes."""
    # Whoever opens a pipe waits until somebody writes to it.
    if not path.is_file():
        return False
    try:
        with open_export(path) as file:
            return file.read(len(BEGINNING)) == BEGINNING
    except (OSError, EOFError, zlib.error):
        # What is wrong with it is said by those who open it in earnest.
        return False


async def import_log(
    file: BinaryIO, store: Target, *, until: int | None = None, progress: Progress | None = None
) -> int:
    """Fill an empty log with an export, all of it or nothing, and return the number of events.

    Args:
        file: an export, opened for reading bytes; all of it is proven.
        store: an empty log.
        until: last position to take; None = all.
        progress: called once per page; events in all are not known before the end, and given as 0.

    Raises:
        NotALog, LogDamaged, LogTooNew: the file cannot be used.
        InvalidInput: the log is not empty.
    """
    walk = HashChain()
    taken = 0

    def groups() -> Iterator[GroupPlan]:
        nonlocal taken
        for plan in _groups(file, walk, progress):
            if part := plan.until(until):
                taken = part.rows[-1][0]
                yield part
        if until is not None and taken < until:
            raise InvalidInput(f"the export ends at position {taken}, expected at least {until}")

    await store.restore(groups())
    return taken


def verify_export(file: BinaryIO, *, progress: Progress | None = None) -> VerifyReport:
    """Prove an export as import_log does, without keeping it.

    Raises:
        NotALog, LogTooNew: the file is no export that this version knows.
    """
    walk = HashChain()
    try:
        for _ in _groups(file, walk, progress):
            pass
    except LogDamaged as error:
        return VerifyReport(walk.position, len(walk.heads), 0, error.position, str(error))
    return VerifyReport(walk.position, len(walk.heads), 0, None, "")


def _groups(file: BinaryIO, walk: HashChain, progress: Progress | None) -> Iterator[GroupPlan]:
    name = str(getattr(file, "name", "the export"))
    try:
        header = file.readline(_HEADER_ROOM_BYTES)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise _damaged(name, walk, f"the file cannot be unpacked ({error})") from error
    _check_header(header, name)
    events = _events(file, name, walk)
    while rows := list(islice(events, PAGE)):
        yield GroupPlan(rows, {row[1]: walk.heads[row[1]] for row in rows}, [])
        if progress:
            progress(walk.position, 0)


def _events(file: BinaryIO, name: str, walk: HashChain) -> Iterator[EventRow]:
    """Yield the events, each proven, and the last line read and found to agree with them."""
    for text in _lines(file, name, walk):
        if not text.startswith(b'{"position":'):
            if text != _trailer(walk):
                raise _damaged(name, walk, "the line is neither the next event nor the trailer that fits all before it")
            if next(_lines(file, name, walk), b""):
                raise _damaged(name, walk, "the file goes on after its trailer")
            return
        yield event_of(text, name, walk)
    raise _damaged(name, walk, "the file ends without its trailer: its tail is cut")


def _lines(file: BinaryIO, name: str, walk: HashChain) -> Iterator[bytes]:
    try:
        yield from file
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise _damaged(name, walk, f"the file cannot be unpacked from here on ({error})") from error


def event_of(text: bytes, name: str, walk: HashChain) -> EventRow:
    """Return the event that a line holds, once the walk has taken it as its next.

    Args:
        text: as `line_of` writes it.
        name: of the file, for the sentence about what is wrong.
        walk: through all events before it.

    Raises:
        LogDamaged: it is not the event that belongs here.
        LogTooNew: its type or schema is unknown to this version.
    """
    try:
        line = _decode_line(text)
    except msgspec.MsgspecError as error:
        raise _damaged(name, walk, f"the line is no event ({error})") from error
    sealed = Sealed(line.position, bytes(line.event), line.hash)
    try:
        body = walk.step(sealed)
    except LogDamaged as error:
        raise LogDamaged(f"{name}: {error}", error.position) from error
    if text != line_of(sealed):
        raise LogDamaged(f"{name}: position {walk.position}: the line is not as it was written", walk.position)
    refuse_newer(body, walk.position)
    return row_of(sealed, body)


def _check_header(text: bytes, name: str) -> None:
    if not text.startswith(BEGINNING):
        raise NotALog(
            f"{name} is not an exported log: expected {BEGINNING.decode()} at its beginning, got {text[:20]!r}"
        )
    if text == _header():
        return
    try:
        header = msgspec.json.decode(text, type=SegmentHeader)
    except msgspec.MsgspecError as error:
        raise LogDamaged(f"{name}: the first line is damaged ({error})") from error
    if header.version > FORMAT_VERSION:
        raise LogTooNew(
            f"{name} was written by a newer voda (format {header.version}, this version knows up to {FORMAT_VERSION}):"
            " upgrade voda to read it"
        )
    raise LogDamaged(f"{name}: the first line is not as it was written")


def _damaged(name: str, walk: HashChain, what: str) -> LogDamaged:
    position = walk.position + 1
    return LogDamaged(f"{name}: position {position}: {what}", position)


def _header() -> bytes:
    return _encode(SegmentHeader(format=FORMAT, version=FORMAT_VERSION)) + b"\n"


def line_of(sealed: Sealed) -> bytes:
    """Return the line of an event."""
    return b'{"position":%d,"hash":"%b","event":%b}\n' % (sealed.position, sealed.hash.encode(), sealed.body)


def _trailer(walk: HashChain) -> bytes:
    return _encode(Trailer(events=walk.position, heads=walk.heads)) + b"\n"
