"""What a writer remembers of PostgreSQL's log is never believed where another one has been at work."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.builders import a_fact
from tests.postgres import Server
from voda.domain.errors import Fenced, LogDamaged, VersionConflict
from voda.events.envelope import ANY_VERSION
from voda.log.archive.verify import verify_log
from voda.log.factory import migrate_log, open_store
from voda.log.sql.postgres import PostgresDatabase
from voda.log.sql.store import SqlStore
from voda.log.store import Base, EventStore

pytestmark = pytest.mark.postgres
WAIT_S = 120


async def opened(url: str) -> SqlStore:
    store = await open_store(url)
    assert isinstance(store, SqlStore)
    return store


@pytest.fixture
async def pair(postgres_database: str) -> AsyncIterator[tuple[SqlStore, SqlStore]]:
    """Two writers of one log, the first of which remembers its end."""
    await migrate_log(postgres_database)
    one, other = await opened(postgres_database), await opened(postgres_database)
    await one.append("job.a", 0, [a_fact("1")])
    await one.append("job.a", 1, [a_fact("2")])
    yield one, other
    await one.close()
    await other.close()


async def ids(store: EventStore, after: int = 0) -> list[str]:
    return [event.event_id for event in await store.read(after, 100)]


async def test_writer_that_was_overtaken_follows_whoever_was_faster(pair: tuple[SqlStore, SqlStore]) -> None:
    one, other = pair
    assert await other.append("job.a", 2, [a_fact("3")]) == 3
    assert await one.append("job.b", 0, [a_fact("4")]) == 4
    assert await one.append("job.a", 3, [a_fact("5")]) == 5
    assert await ids(one) == ["1", "2", "3", "4", "5"]
    assert (await verify_log(other)).is_intact


async def test_version_and_epoch_are_judged_by_the_log_and_not_by_memory(pair: tuple[SqlStore, SqlStore]) -> None:
    one, other = pair
    await other.append("job.a", 2, [a_fact("3")], epoch=7)
    with pytest.raises(VersionConflict, match="expected version 2, got 3"):
        await one.append("job.a", 2, [a_fact("4")], epoch=7)
    await other.append("job.a", 3, [a_fact("5")], epoch=8)
    with pytest.raises(Fenced, match="epoch 7 was followed by epoch 8"):
        await one.append("job.a", ANY_VERSION, [a_fact("6")], epoch=7)
    assert await ids(one) == ["1", "2", "3", "5"]


async def test_fact_that_another_writer_recorded_is_not_written_again(pair: tuple[SqlStore, SqlStore]) -> None:
    one, other = pair
    await other.append("job.b", 0, [a_fact("3")])
    assert await one.append("job.c", 0, [a_fact("3")]) == 3
    assert await one.append("job.c", 0, [a_fact("2"), a_fact("4")]) == 4
    assert await ids(one) == ["1", "2", "3", "4"]


async def test_positions_that_were_given_and_archived_meanwhile_are_not_given_again(
    pair: tuple[SqlStore, SqlStore],
) -> None:
    one, other = pair
    end = await other.append("job.b", 0, [a_fact(str(number)) for number in range(3, 10)])
    await other.forget(Base(position=end, heads=await other.heads()))
    assert await one.append("job.b", 7, [a_fact("10")]) == end + 1
    assert await ids(other, after=end) == ["10"]


async def test_writer_whose_connections_were_cut_goes_on_with_new_ones(
    pair: tuple[SqlStore, SqlStore], postgres_database: str, postgres_server: Server
) -> None:
    one, _ = pair
    cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'voda'"
    postgres_server.sql(postgres_database, cut)
    async with asyncio.timeout(WAIT_S):
        assert await one.append("job.a", 2, [a_fact("3")]) == 3
    assert await ids(one) == ["1", "2", "3"]


async def test_error_of_an_append_is_told_though_the_connection_cannot_be_ended_either(
    pair: tuple[SqlStore, SqlStore], postgres_database: str, postgres_server: Server
) -> None:
    one, _ = pair
    await one.append("job.b", 0, [a_fact("3")])
    postgres_server.sql(postgres_database, "UPDATE streams SET hash = 'x' WHERE stream = 'job.a'")
    assert isinstance(one.database, PostgresDatabase)
    writer = one.database._writer
    assert writer._connection is not None
    writer._forget()
    # Behind the writer's back: to end it is refused from now on.
    await writer._connection.close()
    with pytest.raises(LogDamaged, match=r"names version 2 of job\.a here, but another event is there"):
        await one.append("job.a", 2, [a_fact("4")])
    async with asyncio.timeout(WAIT_S):
        assert await one.append("job.b", 1, [a_fact("5")]) == 4
    assert await ids(one) == ["1", "2", "3", "5"]


async def test_writer_whose_server_was_replaced_by_a_standby_that_lacks_events_follows_what_that_one_has(
    pair: tuple[SqlStore, SqlStore], postgres_database: str, postgres_server: Server
) -> None:
    one, other = pair
    first = (await one.read_sealed(0, 1))[0]
    for statement in (
        "DELETE FROM events WHERE position = 2",
        f"UPDATE streams SET version = 1, position = 1, hash = '{first.hash}'",
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'voda'",
    ):
        postgres_server.sql(postgres_database, statement)
    async with asyncio.timeout(WAIT_S):
        # As many as were lost: the end alone tells nothing.
        assert await other.append("job.b", 0, [a_fact("3")]) == 2
        with pytest.raises(VersionConflict, match="expected version 2, got 1"):
            await one.append("job.a", 2, [a_fact("4")])
        assert await one.append("job.a", ANY_VERSION, [a_fact("5")]) == 3
    assert (await verify_log(other)).is_intact


async def test_many_writers_of_two_connections_leave_no_gap(pair: tuple[SqlStore, SqlStore]) -> None:
    async def write(store: SqlStore, name: str) -> None:
        for number in range(20):
            await store.append(f"job.{name}", ANY_VERSION, [a_fact(f"{name}-{number}")])

    async with asyncio.TaskGroup() as group:
        for number in range(10):
            for name, store in zip("xy", pair, strict=True):
                group.create_task(write(store, f"{name}{number}"))
    assert (await verify_log(pair[0])).is_intact
    assert await pair[0].position() == 402
