"""Logs in NATS JetStream for tests: made, opened, read and filled.

Rule: a module that wants the fixtures takes them over by name: `url, store = jetstream_logs.url, jetstream_logs.store`.
"""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from tests.builders import a_fact, seal
from tests.nats import NatsServer
from voda.events.envelope import Head
from voda.log.append_plan import GroupPlan, plan_copy
from voda.log.jetstream.store import JetStreamStore

SEGMENT = 40
"""Events of a segment in tests that fill some."""


@pytest.fixture
async def url(nats_server: NatsServer) -> str:
    """An empty log."""
    url = nats_server.url()
    await JetStreamStore.migrate(url)
    return url


@pytest.fixture
async def store(url: str) -> AsyncIterator[JetStreamStore]:
    """The log, opened."""
    async with opened(url) as store:
        yield store


@asynccontextmanager
async def opened(url: str, *, timeout_s: float = 10.0) -> AsyncIterator[JetStreamStore]:
    """Open a log for the length of a block."""
    store = await JetStreamStore.open(url, timeout_s=timeout_s)
    try:
        yield store
    finally:
        await store.close()


async def ids(store: JetStreamStore, *, stream: str | None = None) -> list[str]:
    """Return the ids of all events, or of one stream's, in order."""
    return [event.event_id for event in await store.read(0, 100_000, stream=stream)]


def batches_of(count: int) -> Iterator[GroupPlan]:
    """Yield so many events of a log, one at a time."""
    for number in range(1, count + 1):
        yield plan_copy([seal(a_fact(str(number)), stream=f"job.{number}", head=Head(), epoch=0, position=number)])
