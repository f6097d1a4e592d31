"""Requests of asyncio: each call of the blocking client runs in a thread of its own, so that the loop never waits.

Rule: a call that is canceled ends its connection at once; a thread that still connects ends soon after, unheard.
"""

import asyncio
import math
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, Final, TypeVar

from voda.client.connection import Cancellation, HttpAnswer, HttpCall, Params
from voda.client.http import HttpClient
from voda.client.sse import SseMessage
from voda.client.target import Target

T = TypeVar("T")
_END: Final = object()


class _CallThread:
    """A thread that makes one call after the other; the program may end without it."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        threading.Thread(target=self._run, name="voda-client", daemon=True).start()

    async def result(self, call: Callable[[], T]) -> T:
        future: Future[T] = Future()
        self._calls.put((future, call))
        return await asyncio.wrap_future(future)

    def end(self, last: Callable[[], None]) -> None:
        """Make a last call, whose result nobody waits for."""
        self._calls.put((Future(), last))
        self._calls.put(None)

    def _run(self) -> None:
        while (item := self._calls.get()) is not None:
            future, call = item
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(call())
            except BaseException as error:
                future.set_exception(error)
            # A thread that waits keeps nothing alive.
            del item, future, call


async def run_in_thread(client: HttpClient, work: Callable[[HttpClient], T]) -> T:
    """Return what `work` returns, called with the client in a thread; canceled, it ends the client's exchange."""
    cancellation, thread = Cancellation(), _CallThread()
    try:
        return await thread.result(lambda: work(client.with_cancellation(cancellation)))
    finally:
        cancellation.cancel()
        thread.end(lambda: None)


async def iterate_in_thread(client: HttpClient, work: Callable[[HttpClient], Iterator[T]]) -> AsyncGenerator[T, None]:
    """Yield what `work` yields, called with the client in a thread; closed, it ends the client's exchange."""
    cancellation, thread = Cancellation(), _CallThread()
    items = work(client.with_cancellation(cancellation))
    close: Callable[[], None] = getattr(items, "close", lambda: None)
    try:
        while (item := await thread.result(lambda: next(items, _END))) is not _END:
            yield item  # type: ignore[misc]
    finally:
        cancellation.cancel()
        thread.end(close)


class AsyncHttpClient:
    """Requests to one server, for asyncio; answers are bytes."""

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
