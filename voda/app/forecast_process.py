"""The process that forecasts: follows the log by itself, takes questions on its standard input, and answers on its
standard output.

Rule: it only reads, and ends when its input does, so it never outlives who started it.
"""

import asyncio
import os
import struct
import sys
from contextlib import suppress
from typing import BinaryIO, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from voda.controller.follower import catch_up, restore
from voda.domain.errors import VodaError
from voda.events.envelope import Event
from voda.events.types import JobSubmitted
from voda.log.factory import open_store
from voda.log.store import EventStore
from voda.projections.live import Live
from voda.simulator.whatif.forecast import forecast

HEADER: Final = struct.Struct(">Q")
"""Before each message: its bytes."""
_NICENESS: Final = 10


class Question(Struct, frozen=True, kw_only=True):
    """What is to be forecast."""

    pool: str
    position: int
    """Of the log; the state there is asked about."""
    now: float


def with_header(message: bytes) -> bytes:
    """Return a message as it travels."""
    return HEADER.pack(len(message)) + message


async def serve(questions: BinaryIO, answers: BinaryIO) -> None:
    """Answer until there are no more questions; the first message is the log's place, path or URL."""
    place = _received(questions)
    if place is None:
        return
    store = await open_store(place.decode(), read_only=True)
    try:
        # Who asked may be gone by the time of the answer: killed, it says no word.
        with suppress(BrokenPipeError):
            await _answer(store, questions, answers)
    finally:
        await store.close()


async def _answer(store: EventStore, questions: BinaryIO, answers: BinaryIO) -> None:
    live = _Lean()
    await restore(store, live)
    while (message := _received(questions)) is not None:
        asked = msgspec.msgpack.decode(message, type=Question)
        await catch_up(store, [live], after=live.position, until=max(live.position, asked.position))
        # A forecast uses up the state that it is given.
        state = Live()
        state.load(live.dump())
        found = await forecast(state, asked.pool, asked.now)
        answers.write(with_header(msgspec.msgpack.encode(found)))
        answers.flush()


class _Lean(Live):
    """The live state without manifests, which are most of it and foretell nothing."""

    def apply(self, event: Event) -> None:
        """See Live.apply."""
        if isinstance(fact := event.data, JobSubmitted) and fact.spec.manifest is not None:
            event = replace(event, data=replace(fact, spec=replace(fact.spec, manifest=None)))
        super().apply(event)


def _received(questions: BinaryIO) -> bytes | None:
    """Wait for the next message; None when there are no more."""
    header = questions.read(HEADER.size)
    if len(header) < HEADER.size:
        return None
    return questions.read(HEADER.unpack(header)[0])


if __name__ == "__main__":
    os.nice(_NICENESS)
    try:
        asyncio.run(serve(sys.stdin.buffer, sys.stdout.buffer))
    except VodaError as error:
        # Such as a store that is away; who asked hears no answer, and asks again.
        sys.exit(f"voda: no forecast: {error}")
