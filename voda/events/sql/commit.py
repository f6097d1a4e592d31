"""Group commit: appends that arrive while one group is being written form the next, and share its fsync.

Rule: every append gets its own answer, and neither a failing nor a cancelled one costs a neighbour anything.
"""

import asyncio
import copy
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from voda.domain.errors import StoreNotWritable
from voda.events.group import Append, Outcome

LARGEST_GROUP = 10_000
"""Facts after which a group takes no further append, so that a commit stays within fractions of a second."""

Commit = Callable[[Sequence[Append]], Awaitable[Sequence[Outcome]]]


class _Waiting(NamedTuple):
    append: Append
    answer: asyncio.Future[int]


class GroupCommit:
    """A queue of appends in front of a database that writes one group at a time."""

    def __init__(self, commit: Commit) -> None:
        self._commit = commit
        self._waiting: deque[_Waiting] = deque()
        # Lives while appends wait; close() awaits it.
        self._drain: asyncio.Task[None] | None = None

    async def append(self, append: Append) -> int:
        """Wait until the append is durable and return the position of its last fact."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[int] = loop.create_future()
        self._waiting.append(_Waiting(append, answer))
        if self._drain is None:
            # As a task it starts one turn of the loop later, when all who are ready now have joined.
            self._drain = loop.create_task(self._run())
        return await answer

    async def close(self) -> None:
        """Wait until all that was appended is answered."""
        if self._drain is not None:
            await self._drain

    async def _run(self) -> None:
        try:
            while group := self._next_group():
                for waiting, outcome in zip(group, await self._outcomes(group), strict=True):
                    _answer(waiting.answer, outcome)
        finally:
            self._drain = None

    def _next_group(self) -> list[_Waiting]:
        group: list[_Waiting] = []
        facts = 0
        while self._waiting and facts < LARGEST_GROUP:
            waiting = self._waiting.popleft()
            if not waiting.answer.cancelled():
                group.append(waiting)
                facts += len(waiting.append.facts)
        return group

    async def _outcomes(self, group: Sequence[_Waiting]) -> Sequence[Outcome]:
        try:
            return await self._commit([waiting.append for waiting in group])
        except StoreNotWritable as error:
            if len(group) == 1:
                return [error]
            # What one large append finds no room for may well be room enough for the others.
            return [outcome for waiting in group for outcome in await self._outcomes([waiting])]
        except Exception as error:  # each of the group's callers gets it
            return [copy.copy(error) for _ in group]


def _answer(answer: asyncio.Future[int], outcome: Outcome) -> None:
    if answer.done():
        return
    if isinstance(outcome, Exception):
        answer.set_exception(outcome)
    else:
        answer.set_result(outcome)
