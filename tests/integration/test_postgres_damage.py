"""A PostgreSQL log whose table lost its last pages, which its indexes know nothing of."""

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.builders import a_fact
from tests.postgres import Server
from voda.domain.errors import LogDamaged
from voda.events.envelope import ANY_VERSION
from voda.log.archive.verify import verify_log
from voda.log.factory import open_store
from voda.log.sql.postgres import PostgresDatabase
from voda.log.store import EventStore

pytestmark = pytest.mark.postgres

_EVENTS = 400
_PAGE_BYTES = 8192
_FILE = "SELECT pg_relation_filepath('events'::regclass)"


async def fill(url: str) -> None:
    await PostgresDatabase.migrate(url)
    store = await open_store(url)
    for number in range(_EVENTS):
        await store.append(f"job.{number % 7}", ANY_VERSION, [a_fact(str(number))])
    await store.close()


@contextmanager
def stopped(server: Server) -> Iterator[None]:
    """Have the server down for the length of the block."""
    server.stop()
    try:
        yield
    finally:
        server.start()


# After a vacuum an index tells the last position without a look at the table.
@pytest.mark.parametrize("is_vacuumed", [True, False])
def test_table_cut_at_a_page_is_noticed_and_the_log_not_written_to(
    postgres_server: Server, postgres_database: str, is_vacuumed: bool
) -> None:
    asyncio.run(fill(postgres_database))
    if is_vacuumed:
        postgres_server.sql(postgres_database, "VACUUM")
    file = postgres_server._data / postgres_server.sql(postgres_database, _FILE)
    with stopped(postgres_server):
        pages = file.stat().st_size // _PAGE_BYTES
        os.truncate(file, pages * 3 // 4 * _PAGE_BYTES)
    left = int(postgres_server.sql(postgres_database, "SET enable_indexscan = off; SELECT count(body) FROM events")[3:])
    assert 100 < left < _EVENTS
    asyncio.run(expect_cut(postgres_database, left))


async def expect_cut(url: str, left: int) -> None:
    said = f"position {left + 1}: the log ends at {left} but once reached {_EVENTS}: its tail is cut"
    with pytest.raises(LogDamaged, match=said) as caught:
        await open_store(url)
    assert caught.value.position == left + 1
    store = await open_store(url, read_only=True)
    try:
        with pytest.raises(LogDamaged, match=said):
            await store.refuse_cut()
        assert f"position {left + 1}: " in (await verify_log(store)).problem
        assert len(await store.read(0, left)) == left
        await expect_every_stream_to_tell(store)
    finally:
        await store.close()


async def expect_every_stream_to_tell(store: EventStore) -> None:
    for number in range(7):
        with pytest.raises(LogDamaged):
            await store.read(0, _EVENTS, stream=f"job.{number}")


async def test_head_that_its_event_does_not_bear_out_is_followed_by_nothing(
    postgres_server: Server, postgres_database: str
) -> None:
    await fill(postgres_database)
    postgres_server.sql(postgres_database, "UPDATE streams SET hash = 'x' WHERE stream = 'job.1'")
    store = await open_store(postgres_database)
    try:
        for _ in range(2):
            with pytest.raises(LogDamaged, match=r"the list of streams names version 57 of job\.1 here, but"):
                await store.append("job.1", ANY_VERSION, [a_fact("new")])
        assert await store.append("job.2", ANY_VERSION, [a_fact("other")]) == _EVENTS + 1
        # Now by what the last append left.
        with pytest.raises(LogDamaged, match=r"the list of streams names version 57 of job\.1 here, but"):
            await store.append("job.1", ANY_VERSION, [a_fact("new")])
    finally:
        await store.close()
