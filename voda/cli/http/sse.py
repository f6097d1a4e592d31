"""Live events of the server: server-sent events, resumed after a lost connection.

Rule: no event is skipped or repeated: after a loss the stream resumes after the last id it read.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from voda.cli.http.client import Client, Params, ServerUnreachable
from voda.domain.errors import StoreUnavailable

_IDLE_S = 60.0
"""A healthy server sends something more often than this."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.2, 5.0


@dataclass(frozen=True, slots=True)
class SseMessage:
    """One server-sent event."""

    id: str
    event: str
    data: bytes


class SseParser:
    """Parses a stream of bytes into messages, after the HTML standard, section 9.2.6."""

    def __init__(self) -> None:
        self._rest = b""
        self._id = ""
        self._event = ""
        self._data: list[bytes] = []

    def feed(self, piece: bytes) -> list[SseMessage]:
        """Return the messages that this piece completes."""
        *lines, self._rest = (self._rest + piece).split(b"\n")
        return [message for line in lines if (message := self._line(line.removesuffix(b"\r")))]

    def _line(self, line: bytes) -> SseMessage | None:
        if not line:
            data, self._data = self._data, []
            event, self._event = self._event, ""
            return SseMessage(self._id, event, b"\n".join(data)) if data else None
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            self._data.append(value)
        elif field == b"event":
            self._event = value.decode("utf-8", "replace")
        elif field == b"id" and b"\0" not in value:
            self._id = value.decode("utf-8", "replace")
        return None


async def follow_stream(
    client: Client, *, after: int, params: Params | None = None, lost: Callable[[str], None] = lambda _: None
) -> AsyncIterator[SseMessage]:
    """Yield the events after a position, for ever; reconnect after a loss.

    Args:
        client: of the server.
        after: position.
        params: query parameters of GET /events.
        lost: called with a sentence, once per lost connection.
    """
    last, pause_s = str(after), _FIRST_PAUSE_S
    is_lost = False
    while True:
        headers = {"Accept": "text/event-stream", "Last-Event-ID": last}
        query = {**(params or {}), "watch": "true", "after": last}
        try:
            parser = SseParser()
            async for piece in client.stream("/events", params=query, headers=headers, idle_s=_IDLE_S):
                is_lost, pause_s = False, _FIRST_PAUSE_S
                for message in parser.feed(piece):
                    last = message.id or last
                    yield message
        except (ServerUnreachable, StoreUnavailable) as error:
            if not is_lost:
                lost(str(error))
                is_lost = True
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
