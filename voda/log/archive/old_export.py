"""Reads the exports that voda 0.1.0 wrote: a line of header, one line per event, and a trailer with all heads.

Rule: nothing writes this format any more. An event's line is the same in a segment, so only the header and the trailer
are read here; the caller proves the events.
"""

from collections.abc import Iterable, Mapping

import msgspec
from msgspec import Struct

from voda.domain.errors import LogDamaged, LogTooNew
from voda.events.envelope import Head

OLD_BEGINNING = b'{"format":"voda-log"'
"""First bytes of every file of this format, whatever its version."""
_FORMAT_VERSION = 1


class _OldHeader(Struct, frozen=True, kw_only=True):
    format: str
    version: int


class _OldTrailer(Struct, frozen=True, kw_only=True):
    """Last line of the file: the number of events, and the heads they lead to."""

    events: int
    heads: Mapping[str, Head]


_encode = msgspec.json.Encoder(order="sorted").encode


def read_trailer(header: bytes, lines: Iterable[bytes], name: str) -> tuple[int, Mapping[str, Head]]:
    """Return the number of events and the heads that a file says it has, after one pass over all its lines."""
    _check_header(header, name)
    count, last = 0, b""
    for line in lines:
        count, last = count + 1, line
    try:
        trailer = msgspec.json.decode(last, type=_OldTrailer)
    except msgspec.MsgspecError:
        # The last line may be a whole event; one that was cut in the middle is lost as well.
        is_event = last.startswith(b'{"position":') and last.endswith(b"}\n")
        position = max(count + 1 if is_event else count, 1)
        raise LogDamaged(
            f"{name}: position {position}: the file ends without its trailer: its tail is cut", position
        ) from None
    # Fewer lines than events: the proof of the events names the first that is missing.
    if trailer.events < count - 1 or last != _encode(trailer) + b"\n":
        position = max(trailer.events, 0) + 1
        raise LogDamaged(
            f"{name}: position {position}: the trailer does not fit the {count - 1} lines before it", position
        )
    return trailer.events, trailer.heads


def _check_header(text: bytes, name: str) -> None:
    try:
        header = msgspec.json.decode(text, type=_OldHeader)
    except msgspec.MsgspecError as error:
        raise LogDamaged(f"{name}: the first line is damaged ({error})") from error
    if header.version > _FORMAT_VERSION:
        raise LogTooNew(
            f"{name} was written by a newer voda (format {header.version}, this version knows up to {_FORMAT_VERSION}):"
            " upgrade voda to read it"
        )
    if header.version != _FORMAT_VERSION or text != _encode(header) + b"\n":
        raise LogDamaged(f"{name}: the first line is not as it was written")
