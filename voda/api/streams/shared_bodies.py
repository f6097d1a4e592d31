"""Answers that many ask for at once: each is made once, and one copy is held.

Rule: few are kept, the last ones asked for; whoever goes away takes an answer from nobody.
"""

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Final

_MOST: Final = 4


class SharedBodies:
    """The last answers."""

    def __init__(self) -> None:
        self._made: dict[Hashable, asyncio.Task[bytes]] = {}
        """The one asked for last comes last."""

    async def body(self, key: Hashable, make: Callable[[], Coroutine[Any, Any, bytes]]) -> bytes:
        """Return the answer of a key: the one that is there or being made, or a new one; raises what `make` raises."""
        task = self._made.pop(key, None)
        if task is None:
            task = asyncio.create_task(make())
            task.add_done_callback(lambda done: self._forget_failed(key, done))
        self._made[key] = task
        while len(self._made) > _MOST:
            del self._made[next(iter(self._made))]
        return await asyncio.shield(task)

    def _forget_failed(self, key: Hashable, done: asyncio.Task[bytes]) -> None:
        if (done.cancelled() or done.exception() is not None) and self._made.get(key) is done:
            del self._made[key]
