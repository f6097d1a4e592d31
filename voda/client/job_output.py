"""A job's output as lines of text, read as a stream that goes on where it was cut.

Rule: what a job prints is anything at all: bytes that are no UTF-8 are replaced, and a line is cut at a megabyte.
"""

import codecs
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from voda.client.connection import HttpCall
from voda.client.http import HttpClient
from voda.domain.errors import NotFound

_LONGEST_LINE: Final = 1 << 20
_IDLE_S: Final = 30.0
_LINE_BYTES: Final = 200
"""Of a usual line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOutput:
    """The output of one replica."""

    http: HttpClient
    path: str
    replica: str
    has_ended: Callable[[], bool]
    """Whether the job has."""

    def lines(self, *, tail: int | None, follow: bool) -> Generator[str, None, None]:
        """Yield the lines, the last ones alone if `tail` is given, and new ones until the job has ended."""
        return _lines(self._last(tail, follow=follow) if tail is not None else self._all(follow=follow))

    def _all(self, *, follow: bool) -> Iterator[bytes]:
        received = 0
        is_done = False

        def rest() -> Iterator[bytes]:
            """Yield what was not received yet: only from its beginning can output be read again exactly."""
            nonlocal received, is_done
            known = received
            try:
                for piece in self._pieces(follow=follow):
                    fresh, known = piece[known:], max(0, known - len(piece))
                    received += len(fresh)
                    yield fresh
            except NotFound:
                if not follow or received or self.has_ended():
                    raise
                # It has not started.
            # The server also ends a stream when it shuts down.
            is_done = not follow or self.has_ended()
            yield b""

        for piece in self.http.resume(rest):
            yield piece
            if is_done:
                return

    def _last(self, lines: int, *, follow: bool) -> Iterator[bytes]:
        size = max(4_096, (lines + 1) * _LINE_BYTES)
        while True:
            text = b"".join(self._pieces(tail_bytes=size))
            found = text.splitlines(keepends=True)
            # The server begins at the start of a line, so a full answer may be one line shorter than requested.
            if len(found) > lines or len(text) < size // 2:
                break
            size *= 4
        last = b"".join(found[-lines:]) if lines else b""
        if follow:
            yield from self._pieces(tail_bytes=len(last), follow=True)
        else:
            yield last

    def _pieces(self, *, tail_bytes: int | None = None, follow: bool = False) -> Iterator[bytes]:
        asked = {"replica": self.replica or None, "tail_bytes": tail_bytes, "follow": "true" if follow else None}
        query = {name: value for name, value in asked.items() if value is not None}
        # A program may be silent for hours.
        return self.http.stream(HttpCall(path=self.path, params=query), idle_s=None if follow else _IDLE_S)


def _lines(pieces: Iterable[bytes]) -> Generator[str, None, None]:
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    rest = ""
    for piece in pieces:
        *whole, rest = (rest + decoder.decode(piece)).split("\n")
        yield from whole
        while len(rest) > _LONGEST_LINE:
            yield rest[:_LONGEST_LINE]
            rest = rest[_LONGEST_LINE:]
    if rest := rest + decoder.decode(b"", final=True):
        yield rest
