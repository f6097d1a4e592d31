"""Requests of the commands, which run on asyncio: those of voda.client, each in a thread."""

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Mapping

from voda.client.connection import HttpAnswer, HttpCall, Params
from voda.client.http import HttpClient
from voda.client.sse import SseMessage
from voda.client.target import Target
from voda.client.threads import iterate_in_thread, run_in_thread


class AsyncHttpClient:
    """Requests to one server; answers are bytes."""

    def __init__(self, http: HttpClient) -> None:
        self._http = http

    @property
    def target(self) -> Target:
        return self._http.target

    async def get(self, path: str, params: Params | None = None) -> bytes:
        """Return the body of a resource."""
        return (await self.ask("GET", path, params=params)).body

    async def ask(
        self,
        method: str,
        path: str,
        *,
        params: Params | None = None,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
    ) -> HttpAnswer:
        """Return the answer to one request, sent once."""
        call = HttpCall(method=method, path=path, params=params, headers=headers or {}, body=body)
        return await run_in_thread(self._http, lambda http: http.ask(call))

    async def patch(
        self, path: str, change: Mapping[str, object], *, lost: Callable[[str], None]
    ) -> tuple[HttpAnswer, HttpAnswer]:
        """Return the resource before and after a JSON merge patch, of the version that was read before.

        It is repeated while the server is away; `lost` is called with a sentence then.
        """
        return await run_in_thread(self._http, lambda http: http.patch(path, change, lost=lost))

    def stream(
        self,
        path: str,
        *,
        params: Params | None = None,
        headers: Mapping[str, str] | None = None,
        idle_s: float | None,
    ) -> AsyncIterator[bytes]:
        """Yield an answer piece by piece; after `idle_s` of silence the connection counts as lost, None = never."""
        call = HttpCall(path=path, params=params, headers=headers or {})
        return iterate_in_thread(self._http, lambda http: http.stream(call, idle_s=idle_s))

    def follow_events(
        self, *, after: int, params: Params | None = None, lost: Callable[[str], None] = lambda _sentence: None
    ) -> AsyncIterator[SseMessage]:
        """Yield the events behind a position, for ever, whatever becomes of the server.

        After a loss, `lost` is called with a sentence, and the stream resumes behind the last event.
        """
        loop = asyncio.get_running_loop()

        def tell(sentence: str) -> None:
            loop.call_soon_threadsafe(lost, sentence)

        return iterate_in_thread(
            self._http, lambda http: http.follow_events(after=after, params=params, away_s=math.inf, lost=tell)
        )
