"""Several calls at once.

Rule: all are made, whatever becomes of one; then the first error is raised.
"""

import asyncio
from collections.abc import Awaitable, Iterable


async def together(works: Iterable[Awaitable[object]]) -> None:
    """Wait for all of it.

    Raises:
        Exception: the first that any of it raised.
    """
    for outcome in await asyncio.gather(*works, return_exceptions=True):
        if isinstance(outcome, BaseException):
            raise outcome
