"""Writes groups of appends to the stream, each as one message, and the records beside it.

Rule: an append is answered only once its outcome is known: a group whose answer was lost is looked for in the stream,
and written again only behind the message for which it was planned, so it is never there twice.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence

from msgspec import msgpack

from voda.concurrency import within
from voda.domain.errors import ChangedMeanwhile, InvalidInput, StoreUnavailable, VodaError
from voda.events.envelope import Sealed
from voda.log.append_plan import Append, GroupPlan, Outcome, parts_of, plan_copy, plan_group
from voda.log.group_commit import LogWriter
from voda.log.jetstream.index import IndexSegment
from voda.log.jetstream.marks import CHECKPOINT, SEGMENT, BlobKey
from voda.log.jetstream.messages import encode_group
from voda.log.jetstream.reader import EventReader
from voda.log.jetstream.state import LogState
from voda.log.jetstream.synced_log import SyncedLog
from voda.log.store import refuse_other_end

_PAUSE_S = 0.05
# Shorter than the timeout of a connection, because an answer may be lost; a large group takes longer.
_ANSWER_S = 2.0
_ANSWER_BYTES_PER_S = 5e6
_NOTE_S = 0.2
"""The log's end is written down at most so often."""
_CHECKPOINTS_KEPT = 2
_UNKNOWN = "it is not known whether the events were recorded: append them again with the same ids"

_log = logging.getLogger(__name__)


class MarksWriter:
    """Writes the records beside a log while appends go on; what fails is written at the next call."""

    def __init__(self, log: SyncedLog) -> None:
        self._log = log
        self._saving: asyncio.Task[None] | None = None
        self._noted = 0
        self._closing = asyncio.Event()

    def begin(self) -> None:
        """Begin to write down the log's end, and to store all closed segments, for as long as it grows."""
        if self._saving is None or self._saving.done():
            self._saving = asyncio.get_running_loop().create_task(self._save())

    async def close(self) -> None:
        self._closing.set()
        if self._saving is not None:
            await asyncio.wait([self._saving])

    async def _save(self) -> None:
        log = self._log
        try:
            while self._noted < log.state.position or log.closed:
                self._noted = await log.marks.note_end(log.state)
                while log.closed:
                    await self._store(log.closed[0])
                    log.closed.popleft()
                # At close at once: no later call would write the last end.
                await within(_NOTE_S, self._closing.wait())
        except Exception as error:  # the log is complete without them, but slower to open, and a cut may go unnoticed
            _log.warning("records beside the log not written place=%s reason=%s", log.place, error)

    async def _store(self, closed: IndexSegment) -> None:
        marks, last = self._log.marks, closed.last
        await marks.put(BlobKey(SEGMENT, "", last), msgpack.encode(closed))
        if self._log.closed[-1] is closed:
            await marks.put(BlobKey(CHECKPOINT, "", last), self._log.checkpoint, keep=_CHECKPOINTS_KEPT)


class JetStreamWriter(LogWriter):
    """Writes to a log. Implements `LogWriter`."""

    def __init__(self, log: SyncedLog, reader: EventReader) -> None:
        self._log = log
        self._reader = reader
        self._turn = asyncio.Lock()
        self.marks = MarksWriter(log)

    async def commit(self, group: Sequence[Append]) -> Sequence[Outcome]:
        try:
            async with self._turn:
                return await self._commit(group)
        except InvalidInput as error:
            if len(group) == 1:
                return [error]
        # Together they are too large for one message.
        middle = len(group) // 2
        return [*await self.commit(group[:middle]), *await self.commit(group[middle:])]

    async def take_over(self, plan: GroupPlan, *, after: int) -> None:
        """See LogWriter.take_over. What is too large for one message is taken over in halves."""
        is_written, deadline = False, self._deadline()
        try:
            async with self._turn:
                while not is_written:
                    state = await self._log.sync()
                    refuse_other_end(self._log.place, state.position, after)
                    is_written = not plan.rows or await self._write(plan, state, deadline)
        except InvalidInput:
            middle = len(plan.rows) // 2
            if not middle:
                raise
            for rows in (plan.rows[:middle], plan.rows[middle:]):
                half = plan_copy(Sealed(row[0], row[6], row[7]) for row in rows)
                await self.take_over(half, after=rows[0][0] - 1)
        self.marks.begin()

    async def _commit(self, group: Sequence[Append]) -> Sequence[Outcome]:
        deadline = self._deadline()
        is_fresh = not self._log.is_loaded
        state = await self._log.sync() if is_fresh else self._log.state
        while True:
            plan = await self._plan(group, state)
            if not plan.rows and is_fresh:
                return plan.outcomes
            if plan.rows and await self._write(plan, state, deadline):
                self.marks.begin()
                return plan.outcomes
            if plan.rows and self._now() > deadline:
                raise StoreUnavailable(
                    f"{self._log.place}: other writers were faster again and again: nothing is recorded; try again"
                )
            # Other writers may have changed the state on which the plan was based.
            state = await self._log.sync()
            is_fresh = True

    async def _plan(self, group: Sequence[Append], state: LogState) -> GroupPlan:
        ids = [fact.event_id for append in parts_of(group) for fact in append.facts]
        position = -1
        # An event that arrived during the lookup may have one of the ids.
        while position != state.position:
            position = state.position
            known = await self._recorded_ids(ids, state)
        return plan_group(group, position=position, heads=state.heads, known=known)

    async def _recorded_ids(self, ids: Sequence[str], state: LogState) -> Mapping[str, int]:
        known = {event_id: state.ids[event_id] for event_id in ids if event_id in state.ids}
        if state.segments:
            index = await self._reader.ids(state)
            for event_id, positions in index.candidates([one for one in ids if one not in known]).items():
                for position in positions:
                    if await self._reader.has(event_id, position):
                        known[event_id] = position
        return known

    async def _write(self, plan: GroupPlan, state: LogState, deadline: float) -> bool:
        """Write a plan behind the last known event; False if another writer was faster.

        Raises:
            StoreUnavailable: there is no answer, so the outcome is not known.
            StoreNotWritable, InvalidInput: nothing was written.
        """
        log, limit = self._log, self._log.connection.max_payload_bytes
        if log.state is not state or log.state.position != plan.rows[0][0] - 1:
            return False
        group = encode_group(plan.rows, after=log.sequence, prev=state.group, limit_bytes=limit)
        wait_s = _ANSWER_S + len(group.data) / _ANSWER_BYTES_PER_S
        is_unsure = False
        while True:
            failed: VodaError = StoreUnavailable(f"{log.place}: the stream ends elsewhere")
            try:
                found = await log.stream.publish(log.subject, group.data, after=group.sequence - 1, wait_s=wait_s)
                if found == group.sequence:
                    log.wrote(group, plan.rows, plan.heads)
                    return True
            except VodaError as error:
                failed = error
            try:
                await log.sync()
                if log.sequence >= group.sequence:
                    return await log.has_at(group.sequence, group.name)
            except StoreUnavailable as error:
                raise StoreUnavailable(f"{failed}; {_UNKNOWN}") from error
            # A message sent before without an answer may still arrive, whatever the answer to this one.
            if not is_unsure and not isinstance(failed, StoreUnavailable | ChangedMeanwhile):
                raise failed
            is_unsure = is_unsure or not isinstance(failed, ChangedMeanwhile)
            if self._now() > deadline:
                raise StoreUnavailable(f"{failed}; {_UNKNOWN}") from failed
            await asyncio.sleep(_PAUSE_S)

    def _deadline(self) -> float:
        return self._now() + self._log.connection.timeout_s

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()
