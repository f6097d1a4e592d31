"""Waits for changes: the server's live events wake whoever shows its state, and so does a timer.

Rule: an event says that something changed; what is there now is asked, never guessed from the event.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from voda.api.schemas import Page
from voda.cli._client import Client, Params, decoded
from voda.cli._live import Message, followed

SETTLE_S = 0.15
"""Events come in swarms; one look at the state tells of all of them."""


@asynccontextmanager
async def woken(
    client: Client,
    *,
    every_s: float,
    params: Params | None = None,
    seen: Callable[[Message], None] = lambda _: None,
    lost: Callable[[str], None] = lambda _: None,
) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    """Yield what waits until something happened, or `every_s` are over.

    Args:
        client: of the server.
        every_s: longest wait.
        params: filters, as of GET /events.
        seen: shown every event.
        lost: told in a sentence that the live connection is gone; the timer goes on.
    """
    position = decoded(await client.get(""), Page).position
    change = asyncio.Event()

    async def follow() -> None:
        async for message in followed(client, after=position, params=params, lost=lost):
            seen(message)
            change.set()

    async def wait() -> None:
        try:
            async with asyncio.timeout(every_s):
                await change.wait()
            await asyncio.sleep(SETTLE_S)
        except TimeoutError:
            pass
        change.clear()

    async with asyncio.TaskGroup() as group:
        task = group.create_task(follow())
        try:
            yield wait
        finally:
            task.cancel()
