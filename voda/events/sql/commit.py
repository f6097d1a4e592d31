"""Group commit: appends that arrive while one group is being written form the next, and share its fsync.

Rule: every append gets its own answer, and neither a failing nor a cancelled one costs a neighbour anything.
"""

import asyncio
import copy
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from voda.domain.errors import StoreNotWritable
from voda.events.group import Append, Outcome

LARGEST_GROUP = 10_000
"""Facts after which a group takes no further append, so that a commit stays within fractions of a second."""


class Committer(Protocol):
    """The half of a database that writes groups."""

    async def commit(self, group: Sequence[Append]) -> Sequence[Outcome]:
        """Write the group in one durable transaction, waiting for whatever is in the way."""
        ...

    def commit_at_once(self, group: Sequence[Append]) -> Sequence[Outcome] | None:
        """Write the group without giving way to others, or do nothing and return None if that might take long."""
        ...


class _Waiting(NamedTuple):
    append: Append
    answer: asyncio.Future[int]


class GroupCommit:
    """A queue of appends in front of a database that writes one group at a time."""

    def __init__(self, database: Committer) -> None:
        self._database = database
        self._waiting: deque[_Waiting] = deque()
        self._is_led = False
        # Lives while appends wait; close() awaits it.
        self._drain: asyncio.Task[None] | None = None

    async def append(self, append: Append) -> int:
        """Wait until the append is durable and return the position of its last fact."""
        waiting = _Waiting(append, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        try:
            if not self._is_led:
                await self._lead()
            return await waiting.answer
        except asyncio.CancelledError:
            waiting.answer.cancel()
            raise

    async def close(self) -> None:
        """Wait until all that was appended is answered."""
        while self._is_led:
            # Whoever gives up closing must not take the answers from those who appended.
            await (asyncio.shield(self._drain) if self._drain else asyncio.sleep(0))

    async def _lead(self) -> None:
        """See to it that what waits is written: at once if it is one append alone, else by a task."""
        self._is_led = True
        try:
            # All who are ready to append now get their turn to join.
            await asyncio.sleep(0)
            if len(self._waiting) == 1:
                self._write_at_once(self._waiting[0])
        finally:
            if self._waiting:
                self._drain = asyncio.get_running_loop().create_task(self._run())
            else:
                self._is_led = False

    def _write_at_once(self, waiting: _Waiting) -> None:
        try:
            outcomes = self._database.commit_at_once([waiting.append])
        except Exception as error:  # its caller gets it
            outcomes = [error]
        if outcomes is not None:
            self._waiting.clear()
            _answer(waiting.answer, outcomes[0])

    async def _run(self) -> None:
        try:
            while group := self._next_group():
                for waiting, outcome in zip(group, await self._outcomes(group), strict=True):
                    _answer(waiting.answer, outcome)
        finally:
            self._is_led = False
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
            return await self._database.commit([waiting.append for waiting in group])
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
