"""Calls of the blocking client from asyncio, each in a thread of its own, so that the loop never waits.

Rule: a call that is canceled ends its connection at once; a thread that still connects ends soon after, unheard.
"""

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Iterator
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, Final, TypeVar

from voda.client.connection import Cancellation
from voda.client.http import HttpClient

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
