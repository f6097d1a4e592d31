"""Group commit: appends that arrive while one group is being written form the next, and share its fsync.

Rule: every append gets its own answer, and neither a failing nor a cancelled one costs a neighbour anything.
"""

import asyncio
import copy
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from voda.domain.errors import LogDamaged, StoreNotWritable
from voda.log.append_plan import Append, Outcome

LARGEST_GROUP = 10_000
"""Facts after which a group takes no further append, so that a commit stays within fractions of a second."""

ALONE_AT_MOST = 8
"""Appends in a row that are written at once before others get their turn: a turn costs a twentieth of a commit."""


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
        self._since_turn = ALONE_AT_MOST
        """Appends written at once since others last had their turn."""
        # Lives while appends wait; close() awaits it.
        self._drain: asyncio.Task[None] | None = None

    async def append(self, append: Append) -> int:
        """Wait until the append is durable and return the position of its last fact."""
        came_first = not self._is_led
        if came_first:
            outcome = await self._lead(append)
            if isinstance(outcome, Exception):
                raise outcome
            if outcome is not None:
                return outcome
        waiting = _Waiting(append, asyncio.get_running_loop().create_future())
        # Those who joined while it led come after it.
        self._waiting.insert(0 if came_first else len(self._waiting), waiting)
        try:
            if not self._is_led:
                self._start()
            return await waiting.answer
        except asyncio.CancelledError:
            waiting.answer.cancel()
            raise

    async def close(self) -> None:
        """Wait until all that was appended is answered."""
        while self._is_led:
            # Whoever gives up closing must not take the answers from those who appended.
            await (asyncio.shield(self._drain) if self._drain else asyncio.sleep(0))

    async def _lead(self, append: Append) -> Outcome | None:
        """Write an append that is alone at once, or return None: then it is to wait with the others."""
        self._is_led = True
        try:
            if self._since_turn >= ALONE_AT_MOST:
                # All who are ready to append now get their turn to join.
                await asyncio.sleep(0)
                self._since_turn = 0
            self._since_turn += 1
            outcomes = None if self._waiting else self._database.commit_at_once([append])
            return outcomes[0] if outcomes else None
        finally:
            self._is_led = False
            if self._waiting:
                self._start()

    def _start(self) -> None:
        self._is_led = True
        self._since_turn = ALONE_AT_MOST
        self._drain = asyncio.get_running_loop().create_task(self._run())

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
        except (StoreNotWritable, LogDamaged) as error:
            if len(group) == 1:
                return [error]
            # What has no room for one large append may well have it for the others, whose streams may be sound, too.
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
