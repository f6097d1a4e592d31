"""Asks again where an answer was lost or the server is away.

Rule: only what may be asked twice; the user is told why it takes so long.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from voda.cli._client import NoAnswer
from voda.domain.errors import StoreUnavailable

T = TypeVar("T")

RETRY_S = 20.0
"""How long a lost answer is asked for again."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.2, 3.0


async def persistently(attempt: Callable[[], Awaitable[T]], *, told: Callable[[str], None]) -> T:
    """Return what the attempt comes to, made again while the server is away; for what may be asked twice.

    Args:
        attempt: to be repeated.
        told: gets the sentence for the user, once, before the second attempt.
    """
    loop = asyncio.get_running_loop()
    gives_up_at, pause_s, is_told = loop.time() + RETRY_S, _FIRST_PAUSE_S, False
    while True:
        try:
            return await attempt()
        except (NoAnswer, StoreUnavailable) as error:
            if loop.time() + pause_s > gives_up_at:
                raise
            if not is_told:
                told(f"{error}; trying again for {RETRY_S:g} s")
                is_told = True
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
