"""Watches a Lease by asking for it: where its keeper tells nobody that a holder is gone.

Rule: a nudge only shortens the wait.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from typing import Final

from voda.domain.lease import Lease

POLL_S: Final = 0.5
"""So long others may lead nobody after a leader died: a small part of what they need to take over."""


async def poll(read: Callable[[], Awaitable[Lease | None]], nudge: asyncio.Event) -> AsyncGenerator[Lease | None, None]:
    """Yield what is read, at once and then twice a second, or when nudged.

    Raises:
        VodaError: whatever `read` raises.
    """
    while True:
        nudge.clear()
        yield await read()
        with suppress(TimeoutError):
            async with asyncio.timeout(POLL_S):
                await nudge.wait()
