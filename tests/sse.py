"""A reader of server-sent events, as strict as a browser."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
import msgspec
from yarl import URL

from tests.service import Service


@dataclass(frozen=True, slots=True)
class Frame:
    """One block of the stream."""

    id: int | None
    type: str
    data: str
    """Empty: no event, only a mark of where to resume."""

    def json(self) -> Any:
        """Return the data as plain values."""
        return msgspec.json.decode(self.data)


class Events:
    """One connection."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.response = response
        self.last_id: int | None = None

    async def frames(self) -> AsyncIterator[Frame]:
        """Yield block after block until the server ends the stream."""
        fields: dict[str, str] = {}
        async for line in self.response.content:
            text = line.decode().removesuffix("\n")
            if text:
                name, _, value = text.partition(":")
                fields[name] = value.removeprefix(" ")
            elif fields:
                found = int(fields["id"]) if "id" in fields else None
                self.last_id = self.last_id if found is None else found
                yield Frame(found, fields.get("event", "message"), fields.get("data", ""))
                fields = {}

    async def __aiter__(self) -> AsyncIterator[Frame]:
        """Yield the events alone."""
        async for frame in self.frames():
            if frame.data:
                yield frame

    async def take(self, count: int) -> list[Frame]:
        """Return the next events."""
        found: list[Frame] = []
        if count:
            async for frame in self:
                found.append(frame)
                if len(found) == count:
                    break
        return found


@asynccontextmanager
async def watching(
    service: Service, path: str = "/api/v1/events", *, headers: Mapping[str, str] | None = None
) -> AsyncIterator[Events]:
    """Open a stream; it watches once this has begun."""
    url = URL(service.url + path, encoded=True)
    accepted = {"Accept": "text/event-stream", **(headers or {})}
    async with service.session.get(url, headers=accepted) as response:
        assert response.status == 200, await response.text()
        events = Events(response)
        # The first block tells where the stream begins: whatever happens from here on is shown.
        async for _ in events.frames():
            break
        yield events
