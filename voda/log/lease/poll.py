"""A watch of a Lease by polling, for stores that do not say when it changes.

Rule: a nudge only shortens the wait for the next poll.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Final

from voda.concurrency import within
from voda.domain.lease import Lease

POLL_S: Final = 0.5
"""After a leader died, others may be without a leader for so long: a small part of what a takeover needs."""


async def poll(read: Callable[[], Awaitable[Lease | None]], nudge: asyncio.Event) -> AsyncGenerator[Lease | None, None]:
    """Yield what `read` returns, at once and then twice a second, or when nudged."""
    while True:
        nudge.clear()
        yield await read()
        await within(POLL_S, nudge.wait())
