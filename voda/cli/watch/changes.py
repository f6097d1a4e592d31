"""Waits for changes: the server's live events wake whoever shows its state, and so does a timer.

Rule: an event says that something changed; what is there now is asked, never guessed from the event.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from voda.cli.http.client import Client, Params
from voda.cli.http.remote_log import end_of
from voda.cli.http.sse import Message, followed

SETTLE_S = 0.15
"""Events come in swarms; one look at the state tells of all of them."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Waits until something happened."""

    every_s: float
    _change: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(self) -> None:
        """Return once something happened since the last call, or `every_s` are over."""
        try:
            async with asyncio.timeout(self.every_s):
                await self._change.wait()
            await asyncio.sleep(SETTLE_S)
        except TimeoutError:
            pass
        self._change.clear()

    def wake(self) -> None:
        """End the wait."""
        self._change.set()


@asynccontextmanager
async def woken(
    client: Client,
    *,
    every_s: float,
    params: Params | None = None,
    seen: Callable[[Message], None] = lambda _: None,
    lost: Callable[[str], None] = lambda _: None,
) -> AsyncIterator[Wait]:
    """Yield what waits until something happened.

    Args:
        client: of the server.
        every_s: longest wait.
        params: filters, as of GET /events.
        seen: shown every event.
        lost: told in a sentence that the live connection is gone; the timer goes on.
    """
    position = await end_of(client)
    wait = Wait(every_s)

    async def follow() -> None:
        async for message in followed(client, after=position, params=params, lost=lost):
            seen(message)
            wait.wake()

    async with asyncio.TaskGroup() as group:
        task = group.create_task(follow())
        try:
            yield wait
        finally:
            task.cancel()
