"""The log in this process: its state, kept in sync with the stream.

Rule: `sync` returns once the state has all events that the stream's leader had when it was asked. A stream that once
reached further, or has other events now where this process has read before, is damaged.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress

from msgspec.structs import replace

from voda.domain.errors import LogDamaged, LogTooNew
from voda.events.envelope import Head
from voda.log.append_plan import EventRow
from voda.log.jetstream import settings
from voda.log.jetstream.index import GroupBoundary
from voda.log.jetstream.marks import CHECKPOINT, LogMarks
from voda.log.jetstream.messages import Group, GroupAssembler, OutgoingGroup
from voda.log.jetstream.state import ClosedSegment, LogState
from voda.log.jetstream.transport.connection import NatsConnection
from voda.log.jetstream.transport.stream import MessageStream
from voda.log.store import Base

CHECKPOINTS_KEPT = 2
_PAGE_MESSAGES = 512
_PAGE_BYTES = 4 * 1024 * 1024
_PAUSE_S = 0.05
_NAMES_KEPT = 1000

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
        self.closed: deque[ClosedSegment] = deque()
        """Complete segments that are to be stored."""
        self._state: LogState | None = None
        self.assembler = GroupAssembler(0)
        self._names: deque[bytes] = deque(maxlen=_NAMES_KEPT)
        self.generation = 0
        """Grows when the log is folded again from another beginning."""
        self._turn = asyncio.Lock()
        self._is_proven = True
        self._doubts = 0
        connection.on_reconnect(self._doubt)

    # ---- the state

    @property
    def state(self) -> LogState:
        """The state folded so far; `sync` must have been called."""
        assert self._state is not None
        return self._state

    @property
    def is_loaded(self) -> bool:
        return self._state is not None

    def has(self, name: bytes) -> bool:
        """Return whether a group that was written lately is in the log."""
        return name in self._names

    async def sync(self) -> LogState:
        async with self._turn:
            if self._state is None:
                await self._load()
            end = await self._end()
            if not self._is_proven:
                await self._prove()
            while (behind := self.assembler.sequence) < end:
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
        if self.state.position != rows[0][0] - 1:
            # The stream was read since the group was written, or is being folded again.
            return
        self.assembler = GroupAssembler(group.last_sequence)
        self._names.append(group.name)
        self._add_closed(self.state.write(group, rows, heads))

    async def _begins_later(self) -> bool:
        """Begin anew if the next events were archived."""
        await self.marks.read_record()
        if self.marks.record.sequence <= self.assembler.sequence + 1:
            return False
        self.generation += 1
        await self._load()
        return True

    def _fold(self, page: Sequence[tuple[int, bytes]]) -> None:
        for sequence, data in page:
            if sequence <= self.assembler.sequence:
                # Written by this process while the page was read.
                continue
            group = self.assembler.take(sequence, data)
            if group is not None:
                self._names.append(group.name)
                self._add_closed(self.state.fold(group))

    def _add_closed(self, closed: ClosedSegment | None) -> None:
        if closed is None:
            return
        self.closed.append(closed)
        if len(self.closed) > CHECKPOINTS_KEPT:
            # A process that only reads stores no segments, and each checkpoint has all heads.
            self.closed[-1 - CHECKPOINTS_KEPT] = replace(self.closed[-1 - CHECKPOINTS_KEPT], checkpoint=b"")

    async def _end(self) -> int:
        """Return the stream's last sequence, as its leader knows it; never less than what was read before."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.connection.timeout_s
        # Read first: this process may write meanwhile, behind the end that the leader returns.
        known = self.assembler.sequence
        while (end := await self.stream.last_sequence()) < known:
            # A leader that was just elected may not know its own end yet.
            if loop.time() > deadline:
                await self.stream.prove_led()
                if await self.stream.last_sequence() < known:
                    raise self._gone_back()
            await asyncio.sleep(_PAUSE_S)
        return end

    async def _is_in_place(self, state: LogState) -> bool:
        """Return whether the last group of a state is still in its place; an archived one is believed."""
        # Read first: this process may write meanwhile.
        sequence, name = state.sequence, state.group
        if not name or sequence < self.marks.record.sequence:
            return True
        page = await self.stream.all_behind(sequence, messages=1, most_bytes=1)
        return bool(page) and page[0].sequence == sequence and page[0].has(name)

    async def _prove(self) -> None:
        """After a lost connection: raise if the stream has lost events that this process has read."""
        doubts = self._doubts
        # Archived events need not be in the stream.
        await self.marks.read_record()
        if not await self._is_in_place(self.state):
            await self.stream.prove_led()
            if not await self._is_in_place(self.state):
                raise self._gone_back()
        # If the connection was lost again meanwhile, the next sync proves again.
        self._is_proven = doubts == self._doubts

    def _doubt(self) -> None:
        self._doubts += 1
        self._is_proven = self._state is None

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
            self.generation += 1
            await self._load()

    async def _load(self) -> None:
        base = await self.marks.base()
        state = await self._checkpoint(base)
        # Between a checkpoint and the log's beginning there may be messages that do not count.
        self.assembler = GroupAssembler(max(state.sequence, self.marks.record.sequence - 1))
        self._state = state

    async def _checkpoint(self, base: Base) -> LogState:
        for key in reversed(await self.marks.blobs.keys(CHECKPOINT)):
            if key.position < base.position:
                break
            with suppress(LogDamaged, LogTooNew):
                data = await self.marks.blobs.get(key)
                if data and await self._is_in_place(state := LogState.load(data)):
                    return state
            _log.warning("checkpoint passed over place=%s position=%d", self.place, key.position)
        return LogState(GroupBoundary(base.position, self.marks.record.sequence), base.heads)

    # ---- messages

    async def groups(
        self, sequence: int, *, messages: int = _PAGE_MESSAGES, most_bytes: int = _PAGE_BYTES, to_end: bool = True
    ) -> AsyncIterator[Group]:
        """Yield the groups from a message on, which must begin a group, up to the stream's end.

        Args:
            to_end: False: stop where the nearest server has no more, without asking the leader.
        """
        assembly = GroupAssembler(sequence - 1)
        read = self.stream.all_behind if to_end else self.stream.page
        while True:
            page = await read(assembly.sequence + 1, messages=messages, most_bytes=most_bytes)
            for stored in page:
                if group := assembly.take(*stored):
                    yield group
            if not page or (not to_end and len(page) < messages):
                return
