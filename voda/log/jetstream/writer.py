"""Writes groups of appends to the stream, each as one message or as parts that count together.

Rule: an append is answered only once its outcome is known: a group whose answer was lost is looked for in the stream,
and written again only behind the message for which it was planned, so it is never there twice.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress

from msgspec import msgpack
from nats.js.errors import APIError

from voda.domain.errors import InvalidInput, StoreUnavailable
from voda.log.append_plan import Append, GroupPlan, Outcome, parts_of, plan_group
from voda.log.group_commit import Committer
from voda.log.jetstream.marks import CHECKPOINT, SEGMENT, BlobKey
from voda.log.jetstream.messages import OutgoingGroup, encode_group
from voda.log.jetstream.reader import EventReader
from voda.log.jetstream.state import LogState
from voda.log.jetstream.synced_log import CHECKPOINTS_KEPT, SyncedLog
from voda.log.jetstream.transport.client import is_conflict, translate_error
from voda.log.store import refuse_other_end

_UNFINISHED_GROUP_S = 2.0
"""For so long a writer waits for another writer to finish a group."""
_PAUSE_S = 0.05
# Shorter than the timeout of a connection, because an answer may be lost; a large group takes longer.
_ANSWER_S = 2.0
_ANSWER_BYTES_PER_S = 5e6
_NOTE_S = 0.2
"""The log's end is written down at most so often."""
_UNKNOWN = "it is not known whether the events were recorded: append them again with the same ids"

_log = logging.getLogger(__name__)


class MarksWriter:
    """Writes the records beside a log while appends go on; what fails is written at the next call."""

    def __init__(self, log: SyncedLog) -> None:
        self._log = log
        self._saving: asyncio.Task[None] | None = None
        self._noting: asyncio.Task[None] | None = None
        self._noted = 0
        self._closing = asyncio.Event()

    def begin(self) -> None:
        """Begin to store all closed segments beside the log, and to write down its end."""
        if self._noting is None or self._noting.done():
            self._noting = asyncio.get_running_loop().create_task(self._note())
        if self._log.closed and (self._saving is None or self._saving.done()):
            self._saving = asyncio.get_running_loop().create_task(self._save_closed())

    async def close(self) -> None:
        self._closing.set()
        if tasks := [task for task in (self._saving, self._noting) if task is not None]:
            await asyncio.wait(tasks)

    async def _save_closed(self) -> None:
        log = self._log
        try:
            while log.closed:
                closed = log.closed[0]
                await log.marks.blobs.put(BlobKey(SEGMENT, "", closed.last), msgpack.encode(closed.segment))
                # Only the newest segments have one.
                if closed.checkpoint:
                    await log.marks.blobs.put(BlobKey(CHECKPOINT, "", closed.last), closed.checkpoint)
                log.closed.popleft()
            for key in (await log.marks.blobs.keys(CHECKPOINT))[:-CHECKPOINTS_KEPT]:
                await log.marks.blobs.drop(key)
        except Exception as error:  # the log is complete without it, but slower to open
            _log.warning("segment not stored place=%s reason=%s", log.place, error)

    async def _note(self) -> None:
        """Write down the log's end, from time to time for as long as it grows."""
        try:
            while self._noted < self._log.state.position:
                self._noted = await self._log.marks.note_end(self._log.state)
                # At close at once: no later call would write the last end.
                with suppress(TimeoutError):
                    async with asyncio.timeout(_NOTE_S):
                        await self._closing.wait()
        except Exception as error:  # the log is complete without it, but a cut may go unnoticed
            _log.warning("end of the log not written place=%s reason=%s", self._log.place, error)


class JetStreamWriter(Committer):
    """Writes to a log. Implements `Committer`."""

    def __init__(self, log: SyncedLog, reader: EventReader) -> None:
        self._log = log
        self._reader = reader
        self._turn = asyncio.Lock()
        self.marks = MarksWriter(log)

    async def commit(self, group: Sequence[Append]) -> Sequence[Outcome]:
        async with self._turn:
            try:
                return await self._commit(group)
            except InvalidInput:
                if len(group) == 1:
                    raise
            # One append that is too large must not fail the others.
            return [outcome for append in group for outcome in await self._commit_alone(append)]

    def commit_at_once(self, group: Sequence[Append]) -> None:
        """See Committer.commit_at_once. A server is never fast enough for that."""

    async def take_over(self, plan: GroupPlan, *, after: int) -> None:
        async with self._turn:
            deadline = self._deadline()
            while True:
                state = await self._log.sync()
                refuse_other_end(self._log.place, state.position, after)
                if not plan.rows or await self._write(plan, state, deadline):
                    break
        self.marks.begin()

    async def _commit_alone(self, append: Append) -> Sequence[Outcome]:
        try:
            return await self._commit([append])
        except InvalidInput as error:
            return [error]

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
        while True:
            position = state.position
            known = await self._recorded_ids(ids, state)
            # An event that arrived during the lookup may have one of the ids.
            if state.position == position:
                break
        return plan_group(group, position=state.position, heads=state.heads, known=known)

    async def _recorded_ids(self, ids: Sequence[str], state: LogState) -> Mapping[str, int]:
        recent = state.recent.ids
        known = {event_id: recent[event_id] for event_id in ids if event_id in recent}
        if state.segments:
            index = await self._reader.index.ids()
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
        log = self._log
        await self._wait_for_unfinished(deadline)
        if log.state is not state or log.state.position != plan.rows[0][0] - 1:
            return False
        limit = log.connection.max_payload_bytes
        group = encode_group(plan.rows, after=log.assembler.sequence, prev=state.group, limit_bytes=limit)
        done, is_unsure = 0, False
        while True:
            errors = await self._publish(group, done)
            if not errors:
                log.wrote(group, plan.rows, plan.heads)
                return True
            failed = next((error for error in errors if not is_conflict(error)), None)
            await self._sync_until(deadline, failed)
            if log.has(group.name):
                return True
            if log.assembler.unfinished == group.name:
                done = log.assembler.finished_parts
            elif log.assembler.sequence != group.after:
                return False
            # A message sent before without an answer may still arrive, whatever the answer to this one.
            if failed is not None and not isinstance(failed, StoreUnavailable) and not is_unsure:
                raise failed
            is_unsure = is_unsure or failed is not None
            if self._now() > deadline:
                raise StoreUnavailable(f"{failed or log.place}; {_UNKNOWN}") from failed
            await asyncio.sleep(_PAUSE_S)

    async def _publish(self, group: OutgoingGroup, done: int) -> list[Exception]:
        """Send the missing parts of a group, all at once; return their errors."""
        numbers = range(done, len(group.parts))
        wait_s = _ANSWER_S + sum(map(len, group.parts)) / _ANSWER_BYTES_PER_S
        sent = [self._send(group, number, wait_s) for number in numbers]
        outcomes = await asyncio.gather(*sent, return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException) and not isinstance(outcome, Exception):
                raise outcome
        return [outcome for outcome in outcomes if isinstance(outcome, Exception)]

    async def _send(self, group: OutgoingGroup, number: int, wait_s: float) -> None:
        log, after = self._log, group.after + number
        try:
            sequence = await log.stream.publish(log.subject, group.parts[number], after=after, wait_s=wait_s)
        except APIError as error:
            if is_conflict(error):
                raise
            raise translate_error(error, self._log.place) from error
        if sequence != after + 1:
            raise StoreUnavailable(f"{self._log.place}: expected sequence {after + 1}, got {sequence}; try again")

    async def _sync_until(self, deadline: float, failed: Exception | None) -> None:
        while True:
            try:
                await self._log.sync()
                return
            except StoreUnavailable as error:
                if self._now() > deadline:
                    raise StoreUnavailable(f"{failed or error}; {_UNKNOWN}") from error
            await asyncio.sleep(_PAUSE_S)

    async def _wait_for_unfinished(self, deadline: float) -> None:
        """Wait for another writer to finish its group; if it died in the middle, the group is lost."""
        until = min(self._now() + _UNFINISHED_GROUP_S, deadline)
        while (name := self._log.assembler.unfinished) and self._now() < until:
            await asyncio.sleep(_PAUSE_S)
            await self._log.sync()
            if self._log.assembler.unfinished != name:
                until = min(self._now() + _UNFINISHED_GROUP_S, deadline)

    def _deadline(self) -> float:
        return self._now() + self._log.connection.timeout_s

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()
