"""The log in this process: its state, kept in sync with the stream.

Rule: `sync` returns once the state has all events that the stream's leader had when it was asked. A stream that once
reached further, or has other events now where this process has read before, is damaged.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress

from msgspec import msgpack

from voda.domain.errors import LogDamaged, LogTooNew
from voda.events.envelope import Head
from voda.log.append_plan import EventRow
from voda.log.jetstream import settings
from voda.log.jetstream.index import IndexSegment
from voda.log.jetstream.marks import CHECKPOINT, LogMarks
from voda.log.jetstream.messages import Group, OutgoingGroup, group_at
from voda.log.jetstream.state import LogState
from voda.log.jetstream.transport.connection import NatsConnection
from voda.log.jetstream.transport.stream import MessageStream

_PAGE_MESSAGES = 512
_PAGE_BYTES = 4 * 1024 * 1024

_log = logging.getLogger(__name__)


class SyncedLog:
    """See the module; the connection is closed by its owner."""

    def __init__(self, connection: NatsConnection) -> None:
        name = connection.location.stream
        self.connection = connection
        self.place = connection.place
        self.subject = settings.events_subject(name)
        self.stream = MessageStream(connection, name)
        self.marks = LogMarks(connection)
        self.closed: deque[IndexSegment] = deque()
        """Complete segments that are to be stored."""
        self.checkpoint = b""
        """Of the state at the last one's end, to be stored; those before are not needed any more."""
        self._state: LogState | None = None
        self.sequence = 0
        """Of the last message read or written; it may be one that does not count."""
        self._turn = asyncio.Lock()
        self._proven = 0
        """Number of the connection on which the stream was last seen to have what this process has read."""

    # ---- the state

    @property
    def state(self) -> LogState:
        """The state folded so far; `sync` must have been called. Another object once the log is folded anew."""
        assert self._state is not None
        return self._state

    @property
    def is_loaded(self) -> bool:
        return self._state is not None

    async def sync(self) -> LogState:
        async with self._turn:
            # Read first: it may be lost again meanwhile.
            number = self.connection.number
            if self._state is None:
                await self._load()
                self._proven = number
            try:
                end = int((await self.stream.state())["last_seq"])
            except LogDamaged as error:
                raise self._gone_back() from error
            if self._proven != number:
                await self._prove()
                self._proven = number
            while (behind := self.sequence) < end:
                page = await self.stream.all_behind(behind + 1, messages=_PAGE_MESSAGES, most_bytes=_PAGE_BYTES)
                is_next = bool(page) and page[0].sequence == behind + 1
                if not is_next and await self._begins_later():
                    continue
                if not page:
                    break
                self._fold(page)
        return self.state

    def wrote(self, group: OutgoingGroup, rows: Sequence[EventRow], heads: Mapping[str, Head]) -> None:
        """Take a group that this process has written directly behind all that it knew."""
        # Otherwise the stream was read since the group was written, or is being folded again.
        if self.state.position == rows[0][0] - 1:
            self._took(group.sequence, self.state.write(group, rows, heads))

    async def _begins_later(self) -> bool:
        """Begin anew if the next events were archived."""
        if (await self.marks.read_start()).sequence <= self.sequence + 1:
            return False
        await self._load()
        return True

    def _fold(self, page: Sequence[tuple[int, bytes]]) -> None:
        for sequence, data in page:
            # Otherwise it was written by this process while the page was read.
            if sequence > self.sequence:
                group = group_at(sequence, data)
                self._took(sequence, self.state.fold(group) if group else None)

    def _took(self, sequence: int, closed: IndexSegment | None) -> None:
        self.sequence = sequence
        if closed is not None:
            self.closed.append(closed)
            self.checkpoint = msgpack.encode(self.state)

    async def _is_in_place(self, state: LogState) -> bool:
        """Return whether the last group of a state is still in its place; an archived one is believed."""
        # Read first: this process may write meanwhile.
        sequence, name = state.sequence, state.group
        return not name or sequence < self.marks.start.sequence or await self.has_at(sequence, name)

    async def has_at(self, sequence: int, name: bytes) -> bool:
        """Return whether a group of that name is in the stream, at that sequence."""
        page = await self.stream.all_behind(sequence, messages=1, most_bytes=1)
        found = group_at(*page[0]) if page else None
        return found is not None and (found.sequence, found.name) == (sequence, name)

    async def _prove(self) -> None:
        """After a lost connection: raise if the stream has lost events that this process has read."""
        # Archived events need not be in the stream.
        await self.marks.read_start()
        if not await self._is_in_place(self.state):
            await self.stream.prove_led()
            if not await self._is_in_place(self.state):
                raise self._gone_back()

    def _gone_back(self) -> LogDamaged:
        position = self.state.position
        return LogDamaged(
            f"{self.place}: position {position}: the event that was here is gone: the servers have lost"
            " events that they had acknowledged; stop all who write to it, and restore it from a copy",
            position,
        )

    # ---- beginning

    async def begin_anew(self) -> None:
        """Fold the log again, after its beginning has changed."""
        async with self._turn:
            await self._load()

    async def _load(self) -> None:
        start = await self.marks.read_start()
        state = LogState.at(start.base, start.sequence)
        async for found in self.marks.newest(CHECKPOINT, LogState.load):
            if found.position < start.base.position:
                break
            with suppress(LogDamaged, LogTooNew):
                if await self._is_in_place(found):
                    state = found
                    break
            _log.warning("checkpoint passed over place=%s position=%d", self.place, found.position)
        # Between a checkpoint and the log's beginning there may be messages that do not count.
        self.sequence = max(state.sequence, start.sequence - 1)
        self._state = state

    # ---- messages

    async def groups(
        self, sequence: int, *, messages: int = _PAGE_MESSAGES, most_bytes: int = _PAGE_BYTES, to_end: bool = True
    ) -> AsyncIterator[Group]:
        """Yield the groups from a message on, up to the stream's end.

        Args:
            to_end: False: stop where the nearest server has no more, without asking the leader.
        """
        read = self.stream.all_behind if to_end else self.stream.page
        while page := await read(sequence, messages=messages, most_bytes=most_bytes):
            for stored in page:
                if group := group_at(*stored):
                    yield group
            if not to_end and len(page) < messages:
                return
            sequence = page[-1].sequence + 1
