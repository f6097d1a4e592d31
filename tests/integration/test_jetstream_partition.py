"""A cluster of NATS servers of which one is cut off from the others while clients still reach it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import pytest

from tests.builders import a_fact
from tests.jetstream_logs import ids, opened
from tests.nats import NatsServer, Node
from tests.nats_partition import partible
from tests.relay import Relay, relayed
from tests.waiting import until_it_is
from voda.domain.errors import StoreUnavailable
from voda.events.envelope import ANY_VERSION
from voda.log.archive.verify import verify_log
from voda.log.jetstream.store import JetStreamStore

pytestmark = [pytest.mark.nats, pytest.mark.slow]
_WAIT_S = 240.0
_PAUSE_S = 0.05
Answer = TypeVar("Answer")


async def is_appended(store: JetStreamStore, event_id: str) -> bool:
    """Append; where nobody answers, say so."""
    try:
        await store.append("job.a", ANY_VERSION, [a_fact(event_id)])
    except StoreUnavailable:
        return False
    return True


@asynccontextmanager
async def ways_to(server: NatsServer, *nodes: Node) -> AsyncIterator[tuple[str, Relay, Relay]]:
    """A log's URL by which two nodes are reached through relays, the second of which is closed."""
    one, two = nodes
    async with (
        relayed(f"http://127.0.0.1:{one.port}") as first,
        relayed(f"http://127.0.0.1:{two.port}") as second,
    ):
        second.close()
        url = server.url("log", nodes=nodes)
        for node, relay in ((one, first), (two, second)):
            url = url.replace(f":{node.port}", f":{relay.url.rpartition(':')[2]}")
        yield url, first, second


async def test_leader_that_is_cut_off_is_taken_neither_for_the_log_nor_for_one_that_lost_events() -> None:
    with partible() as (server, partition):
        await JetStreamStore.migrate(server.url("log"))
        old = server.leader("log")
        other, third = (node for node in server.nodes if node is not old)
        async with (
            opened(server.url("log", nodes=[other, third]), timeout_s=4.0) as store,
            opened(server.url("log", nodes=[old]), timeout_s=4.0) as lonely,
            ways_to(server, other, old) as (url, to_other, to_old),
            opened(url, timeout_s=4.0) as moving,
        ):
            await store.append("job.a", ANY_VERSION, [a_fact("1")])
            partition.isolate(old.name)
            # Whoever is cut off must not say that anything is written.
            with pytest.raises(StoreUnavailable):
                await lonely.append("job.a", ANY_VERSION, [a_fact("lonely")])
            await until_it_is(lambda: is_appended(store, "2"), within_s=_WAIT_S)
            await until_it_is(lambda: has_read(moving, 2), within_s=_WAIT_S)
            to_old.open()
            to_other.close()
            # What it has read is not there: not yet, for all that anybody can know here. Nor is that the log's end.
            for _ in range(3):
                with pytest.raises(StoreUnavailable, match="try again"):
                    await moving.read(0, 10)
            partition.heal()
            await until_it_is(lambda: is_appended(lonely, "3"), within_s=_WAIT_S)
            await until_it_is(lambda: has_read(moving, 3), within_s=_WAIT_S)
            found = await answered(lambda: ids(store))
            assert [each for each in found if each != "lonely"] == ["1", "2", "3"]
            assert await answered(lambda: ids(moving)) == await answered(lambda: ids(lonely)) == found
            assert (await answered(lambda: verify_log(store))).problem == ""


async def answered(ask: Callable[[], Awaitable[Answer]]) -> Answer:
    """Ask until somebody answers: servers that have just come together again elect their leaders anew."""
    async with asyncio.timeout(_WAIT_S):
        while True:
            try:
                return await ask()
            except StoreUnavailable:
                await asyncio.sleep(_PAUSE_S)


async def has_read(store: JetStreamStore, count: int) -> bool:
    """Read so many events at least; where nobody answers, say so."""
    try:
        return len(await store.read(0, 10)) >= count
    except StoreUnavailable:
        return False
