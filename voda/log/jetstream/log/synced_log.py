"""The log as one process knows it: its state, brought up to date from the stream.

Rule: `sync` returns only when the state holds all that the stream's leader had when it was asked; and a stream that
once reached further, or holds something else now where this process has read before, is damage and never the truth.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress

from msgspec.structs import replace

from voda.domain.errors import LogDamaged, LogTooNew, StoreUnavailable
from voda.events.envelope import Head
from voda.log.append_plan import EventRow
from voda.log.durable_store import Base
from voda.log.jetstream.log import settings
from voda.log.jetstream.log.index import GroupBoundary
from voda.log.jetstream.log.marks import CHECKPOINT, LogMarks
from voda.log.jetstream.log.messages import Group, GroupAssembler, OutgoingGroup
from voda.log.jetstream.log.state import ClosedSegment, LogState
from voda.log.jetstream.transport.connection import NatsConnection
from voda.log.jetstream.transport.stream import MessageStream

CHECKPOINTS_KEPT = 2
_PAGE_MESSAGES = 512
_PAGE_BYTES = 4 * 1024 * 1024
_PAUSE_S = 0.05
_NAMES_KEPT = 1000

_log = logging.getLogger(__name__)


class SyncedLog:
    """See the module.

    Args:
        connection: to the servers; closed by its owner.
    """

    def __init__(self, connection: NatsConnection) -> None:
        name = connection.location.stream
        self.connection = connection
        self.place = connection.place
        self.subject = settings.events_subject(name)
        self.stream = MessageStream(connection, name)
        self.marks = LogMarks(connection)
        self.is_importing = False
        """Whether what the stream holds is an import that is not complete."""
        self.closed: deque[ClosedSegment] = deque()
        """Segments that have come to their end and are to be kept."""
        self._state: LogState | None = None
        self.assembler = GroupAssembler(0)
        self._names: deque[bytes] = deque(maxlen=_NAMES_KEPT)
        self.generation = 0
        """Grows whenever the log is folded again from another beginning."""
        self._turn = asyncio.Lock()
        self._is_proven = True
        self._doubts = 0
        connection.on_reconnect(self._doubt)

    # ---- the state

    @property
    def state(self) -> LogState:
        """What was folded so far; `sync` must have been called."""
        assert self._state is not None
        return self._state

    @property
    def is_loaded(self) -> bool:
        """Whether anything was folded yet."""
        return self._state is not None

    def has(self, name: bytes) -> bool:
        """Return whether a group, written lately, is in the log."""
        return name in self._names

    async def sync(self) -> LogState:
        """Bring the state up to date, and return it.

        Raises:
            LogDamaged, LogTooNew, StoreUnavailable: see their descriptions.
        """
        async with self._turn:
            if self._state is None:
                await self._load()
            end = await self._end()
            if not self._is_proven:
                await self._prove()
            # Of an import that is seen again below.
            self.is_importing = False
            while (behind := self.assembler.sequence) < end:
                page = await self.stream.all_behind(behind + 1, messages=_PAGE_MESSAGES, most_bytes=_PAGE_BYTES)
                if page and page[0].sequence == behind + 1 and await self._fold(page):
                    continue
                if await self._begins_later():
                    continue
                if not page or not await self._fold(page):
                    break
        return self.state

    def wrote(self, group: OutgoingGroup, rows: Sequence[EventRow], heads: Mapping[str, Head]) -> None:
        """Take a group that was written by this process right behind all it knew."""
        if self.state.position != rows[0][0] - 1:
            # Somebody has looked at the stream since it was written, or has begun to fold it again.
            return
        last = group.after + len(group.parts)
        self.assembler = GroupAssembler(last)
        self._names.append(group.name)
        self._keep(self.state.write(group.name, group.after + 1, last, rows, heads))

    async def _begins_later(self) -> bool:
        """Begin again where what was to be read next was archived, or was an import that came to nothing."""
        await self.marks.read_record()
        if self.marks.record.sequence <= self.assembler.sequence + 1:
            return False
        self.generation += 1
        await self._load()
        self.is_importing = False
        return True

    async def _fold(self, page: Sequence[tuple[int, bytes]]) -> bool:
        """Take a page of messages; return whether to go on."""
        for sequence, data in page:
            if sequence <= self.assembler.sequence:
                # Written by this process while the page was on its way.
                continue
            group = self.assembler.take(sequence, data)
            if group is None:
                continue
            if not await self.counts(group):
                self.assembler = GroupAssembler(group.sequence - 1)
                return False
            self._names.append(group.name)
            self._keep(self.state.fold(group))
        return True

    def _keep(self, closed: ClosedSegment | None) -> None:
        if closed is None:
            return
        self.closed.append(closed)
        if len(self.closed) > CHECKPOINTS_KEPT:
            # Who only reads keeps none of them beside the log, and each holds all heads.
            self.closed[-1 - CHECKPOINTS_KEPT] = replace(self.closed[-1 - CHECKPOINTS_KEPT], checkpoint=b"")

    async def _end(self) -> int:
        """Return the stream's last sequence, as its leader knows it; never less than what was read before."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.connection.timeout_s
        # Of this instant: what this process writes meanwhile may be behind the end that is told.
        known = self.assembler.sequence
        while (end := await self.stream.last_sequence()) < known:
            # A leader that was just elected may not have caught up with itself.
            if loop.time() > deadline:
                await self.stream.prove_led()
                if await self.stream.last_sequence() < known:
                    raise self._gone_back()
            await asyncio.sleep(_PAUSE_S)
        return end

    async def _stands(self, state: LogState) -> bool:
        """Return whether the last group of a state is where it was; one that is archived is believed."""
        # Of this instant: what this process writes meanwhile moves the state on.
        sequence, name = state.sequence, state.group
        if not name or sequence < self.marks.record.sequence:
            return True
        page = await self.stream.all_behind(sequence, messages=1, most_bytes=1)
        return bool(page) and page[0].sequence == sequence and page[0].has(name)

    async def _prove(self) -> None:
        """After a connection was lost: refuse a stream that has lost what this process has read."""
        doubts = self._doubts
        # What is in the archive need not be there.
        await self.marks.read_record()
        if not await self._stands(self.state):
            await self.stream.prove_led()
            if not await self._stands(self.state):
                raise self._gone_back()
        # A connection that was lost during this look asks for another one.
        self._is_proven = doubts == self._doubts

    def _doubt(self) -> None:
        self._doubts += 1
        self._is_proven = self._state is None

    def _gone_back(self) -> LogDamaged:
        position = self.state.position
        return LogDamaged(
            f"{self.place}: position {position}: the log does not hold any more what stood there: the servers have lost"
            " events that they had acknowledged; stop all who write to it, and restore it from a copy",
            position,
        )

    # ---- beginning

    async def begin_anew(self) -> None:
        """Fold the log again: the stream's beginning has changed."""
        async with self._turn:
            self.generation += 1
            await self._load()

    async def _load(self) -> None:
        base = await self.marks.base()
        state = await self._checkpoint(base)
        # What nobody counted may stand between a checkpoint and the log's beginning.
        self.assembler = GroupAssembler(max(state.sequence, self.marks.record.sequence - 1))
        self._state = state

    async def _checkpoint(self, base: Base) -> LogState:
        for key in reversed(await self.marks.blobs.keys(CHECKPOINT)):
            if key.position < base.position:
                break
            with suppress(LogDamaged, LogTooNew):
                data = await self.marks.blobs.get(key)
                if data and await self._stands(state := LogState.load(data)):
                    return state
            _log.warning("checkpoint passed over place=%s position=%d", self.place, key.position)
        return LogState(GroupBoundary(base.position, self.marks.record.sequence), base.heads)

    async def counts(self, group: Group) -> bool:
        """Return whether a group is in the log: not while the import that it came with is not complete."""
        if group.origin and group.origin != self.marks.record.imported:
            await self.marks.read_record()
        self.is_importing = bool(group.origin) and group.origin != self.marks.record.imported
        return not self.is_importing

    # ---- messages

    async def groups(
        self, sequence: int, *, messages: int = _PAGE_MESSAGES, most_bytes: int = _PAGE_BYTES, to_end: bool = True
    ) -> AsyncIterator[Group]:
        """Yield the groups from a message on, which must begin one, up to the stream's end.

        Args:
            sequence: of the first message.
            messages: how many to ask for at once.
            most_bytes: how many bytes of them.
            to_end: False: stop where a server has no more for now, without asking the leader.
        """
        assembly = GroupAssembler(sequence - 1)
        read = self.stream.all_behind if to_end else self.stream.page
        while True:
            page = await read(assembly.sequence + 1, messages=messages, most_bytes=most_bytes)
            for stored in page:
                if group := assembly.take(*stored):
                    if not await self.counts(group):
                        return
                    yield group
            if not page or (not to_end and len(page) < messages):
                return


def unavailable(place: str) -> StoreUnavailable:
    """Return the error of a writer who finds an import that is not complete."""
    return StoreUnavailable(
        f"{place}: an import into it is under way, or was broken off: wait for it, or run 'voda log import' again"
    )
