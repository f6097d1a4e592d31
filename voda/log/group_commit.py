"""Group commit: appends that arrive while one group is being written form the next group, and share one fsync.

Rule: every append gets its own answer, and an append that fails or is cancelled does not affect the others.
"""

import asyncio
import copy
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from voda.domain.errors import LogDamaged, StoreNotWritable
from voda.log.append_plan import Append, GroupPlan, Outcome, parts_of, refuse_unstorable, together
from voda.log.store import DurableStore
from voda.log.tail import GrowthSignal

LARGEST_GROUP = 10_000
"""With so many facts a group is full, so that a commit takes a fraction of a second."""

ALONE_AT_MOST = 8
"""So many appends in a row are written at once before other tasks run: a turn costs a twentieth of a commit."""


class Committer(Protocol):
    """The part of a database that writes groups."""

    async def commit(self, group: Sequence[Append]) -> Sequence[Outcome]:
        """Write the group in one durable transaction, waiting for locks if necessary."""

    def commit_at_once(self, group: Sequence[Append]) -> Sequence[Outcome] | None:
        """Write the group without waiting; None: nothing is written, as that might take long, as with any server."""
        return None


class LogWriter(Committer, Protocol):
    """The part of a database that adds to a log."""

    async def take_over(self, plan: GroupPlan, *, after: int) -> None:
        """See DurableStore.take_over."""


class _PendingAppend(NamedTuple):
    append: Append
    answer: asyncio.Future[int]


class GroupCommit:
    """A queue of appends in front of a database that writes one group at a time."""

    def __init__(self, database: Committer) -> None:
        self._database = database
        self._waiting: deque[_PendingAppend] = deque()
        self._is_led = False
        self._since_turn = ALONE_AT_MOST
        """Number of appends written at once since other tasks last ran."""
        # Exists while appends wait; close() awaits it.
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
        waiting = _PendingAppend(append, asyncio.get_running_loop().create_future())
        # Appends that arrived while this one led come after it.
        self._waiting.insert(0 if came_first else len(self._waiting), waiting)
        try:
            if not self._is_led:
                self._start()
            return await waiting.answer
        except asyncio.CancelledError:
            waiting.answer.cancel()
            raise

    async def close(self) -> None:
        while self._is_led:
            # A cancelled close() must not cancel the appends.
            await (asyncio.shield(self._drain) if self._drain else asyncio.sleep(0))

    async def _lead(self, append: Append) -> Outcome | None:
        """Write an append at once if it is the only one; None = it has to wait with the others."""
        self._is_led = True
        try:
            if self._since_turn >= ALONE_AT_MOST:
                # Let all tasks that are ready to append join.
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

    def _next_group(self) -> list[_PendingAppend]:
        group: list[_PendingAppend] = []
        facts = 0
        while self._waiting and facts < LARGEST_GROUP:
            waiting = self._waiting.popleft()
            if not waiting.answer.cancelled():
                group.append(waiting)
                facts += sum(len(part.facts) for part in parts_of([waiting.append]))
        return group

    async def _outcomes(self, group: Sequence[_PendingAppend]) -> Sequence[Outcome]:
        try:
            return await self._database.commit([waiting.append for waiting in group])
        except (StoreNotWritable, LogDamaged) as error:
            if len(group) == 1:
                return [error]
            # There may be no room for one large append but for the others; and only one stream may be damaged.
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


class CommittedStore(DurableStore):
    """A DurableStore whose appends go through a GroupCommit and wake its tails."""

    def __init__(self, place: str, writer: LogWriter) -> None:
        self.place = place
        self._log_writer = writer
        self._commits = GroupCommit(writer)
        self._growth = GrowthSignal()

    async def append_all(self, appends: Sequence[Append]) -> int:
        append = together(appends)
        refuse_unstorable(append)
        position = await self._commits.append(append)
        self._growth.wake()
        return position

    async def take_over(self, plan: GroupPlan, *, after: int) -> None:
        await self._log_writer.take_over(plan, after=after)
        self._growth.wake()
