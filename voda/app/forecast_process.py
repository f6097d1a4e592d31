"""The forecasting process: follows the log itself, reads questions from its standard input, and writes answers to its
standard output.

Rules: it only reads the log, and ends when its input does, so it never outlives the process that started it. A pool
whose forecast fails has none, and takes none from the others.
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
"""Before each message: its length in bytes."""
_NICENESS: Final = 10


class Question(Struct, frozen=True, kw_only=True):
    pool: str
    position: int
    """Of the log; the forecast begins from the state there."""
    now: float


def with_header(message: bytes) -> bytes:
    """Return a message with its header."""
    return HEADER.pack(len(message)) + message


async def serve(questions: BinaryIO, answers: BinaryIO) -> None:
    """Answer questions until the input ends; the first message is the path or URL of the log."""
    location = _next_message(questions)
    if location is None:
        return
    store = await open_store(location.decode(), read_only=True)
    try:
        # The reader may be killed before the answer.
        with suppress(BrokenPipeError):
            await _answer(store, questions, answers)
    finally:
        await store.close()


async def _answer(store: EventStore, questions: BinaryIO, answers: BinaryIO) -> None:
    live, failed = _LiveWithoutManifests(), set[str]()
    await restore(store, live)
    while (message := _next_message(questions)) is not None:
        asked = msgspec.msgpack.decode(message, type=Question)
        await catch_up(store, [live], after=live.position, until=max(live.position, asked.position))
        # A forecast changes the state that it gets, so it gets a copy.
        state = Live()
        state.load(live.dump())
        try:
            found = await forecast(state, asked.pool, asked.now)
        except (VodaError, ArithmeticError, ValueError) as error:
            found = {}
            if asked.pool not in failed:
                sys.stderr.write(f"voda: no forecast of pool {asked.pool}: {error}\n")
            failed.add(asked.pool)
        answers.write(with_header(msgspec.msgpack.encode(found)))
        answers.flush()


class _LiveWithoutManifests(Live):
    """The live state without manifests, which are large and do not matter to a forecast."""

    def apply(self, event: Event) -> None:
        if isinstance(fact := event.data, JobSubmitted) and fact.spec.manifest is not None:
            event = replace(event, data=replace(fact, spec=replace(fact.spec, manifest=None)))
        super().apply(event)


def _next_message(questions: BinaryIO) -> bytes | None:
    """Return the next message; None at the end of the input."""
    header = questions.read(HEADER.size)
    if len(header) < HEADER.size:
        return None
    return questions.read(HEADER.unpack(header)[0])


if __name__ == "__main__":
    os.nice(_NICENESS)
    try:
        asyncio.run(serve(sys.stdin.buffer, sys.stdout.buffer))
    except VodaError as error:
        # Such as a store that does not answer; the forecaster sees the end of the output and tries again.
        sys.exit(f"voda: no forecast: {error}")
