"""The forecasting process: follows the log itself, and answers questions about what will become of pools.

Rules: it only reads the log. A pool whose forecast fails has none, and takes none from the others.
"""

import asyncio
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from voda.app.side_process import ProcessBounds, begin, reply
from voda.controller.follower import catch_up, restore
from voda.domain.errors import VodaError
from voda.events.envelope import Event
from voda.events.types import JobSubmitted
from voda.log.factory import open_store
from voda.log.store import EventStore
from voda.projections.live import Live
from voda.simulator.whatif.forecast import forecast

_BOUNDS: Final = ProcessBounds(niceness=10, memory_bytes=4 * 1024**3)


class Question(Struct, frozen=True, kw_only=True):
    pool: str
    position: int
    """Of the log; the forecast begins from the state there."""
    now: float


async def serve(next_message: Callable[[], bytes]) -> None:
    """Answer questions for ever; the first message is the path or URL of the log."""
    store = await open_store(next_message().decode(), read_only=True)
    try:
        # The reader may be killed before the answer.
        with suppress(BrokenPipeError):
            await _answer(store, next_message)
    finally:
        await store.close()


async def _answer(store: EventStore, next_message: Callable[[], bytes]) -> None:
    live, failed = _LiveWithoutManifests(), set[str]()
    await restore(store, live)
    while True:
        asked = msgspec.msgpack.decode(next_message(), type=Question)
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
        reply(msgspec.msgpack.encode(found))


class _LiveWithoutManifests(Live):
    """The live state without manifests, which are large and do not matter to a forecast."""

    def apply(self, event: Event) -> None:
        if isinstance(fact := event.data, JobSubmitted) and fact.spec.manifest is not None:
            event = replace(event, data=replace(fact, spec=replace(fact.spec, manifest=None)))
        super().apply(event)


if __name__ == "__main__":
    try:
        asyncio.run(serve(begin(_BOUNDS)))
    except VodaError as error:
        # Such as a store that does not answer; the forecaster sees the end of the output and tries again.
        sys.exit(f"voda: no forecast: {error}")
    except MemoryError:
        sys.exit("voda: no forecast: it takes more memory than it may have")
