"""A log in PostgreSQL, among other writers, lost connections, and databases that are not ready for it."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest
from sqlalchemy import text

from tests.builders import a_fact
from tests.postgres import Server, plain
from voda.domain.errors import InvalidInput, LogTooNew, NotALog, StoreNotWritable, StoreUnavailable
from voda.log.archive.copy import copy_log
from voda.log.archive.verify import verify_log
from voda.log.factory import open_store
from voda.log.memory import MemoryStore
from voda.log.sql import schema
from voda.log.sql.postgres import PostgresDatabase
from voda.log.store import DurableStore

pytestmark = pytest.mark.postgres
WAIT_S = 120


@pytest.fixture
async def url(postgres_database: str) -> str:
    await PostgresDatabase.migrate(postgres_database)
    return postgres_database


@pytest.fixture
async def store(url: str) -> AsyncIterator[DurableStore]:
    opened = await open_store(url)
    yield opened
    await opened.close()


# ---- order


async def test_reader_never_sees_a_position_before_all_lower_ones_are_there(url: str, store: DurableStore) -> None:
    await store.append("job.a", 0, [a_fact("1")])
    # A writer that holds position 2 and is slow to commit it.
    slow = await asyncpg.connect(plain(url))
    held = slow.transaction()
    await held.start()
    await slow.execute(f"SELECT pg_advisory_xact_lock({schema.APPLICATION_ID})")
    await slow.execute("INSERT INTO events SELECT 2, 'job.s', 1, 's', type, recorded_at, body, hash FROM events")
    quick = asyncio.ensure_future(store.append("job.b", 0, [a_fact("3")]))
    await _until_somebody_waits_for_the_lock(url)
    assert await store.position() == 1
    assert not quick.done()
    await held.commit()
    await slow.close()
    assert await quick == 3


async def test_readers_of_interleaved_writers_skip_nothing(url: str, store: DurableStore) -> None:
    writers = [await open_store(url) for _ in range(4)]

    async def write(number: int, writer: DurableStore) -> None:
        for version in range(20):
            await writer.append(f"job.{number}", version, [a_fact(f"{number}.{version}")])

    async def read() -> list[int]:
        seen: list[int] = []
        while len(seen) < 80:
            # read() itself refuses a gap.
            seen += [event.position for event in await store.read(len(seen), 7)]
        return seen

    async with asyncio.timeout(WAIT_S), asyncio.TaskGroup() as group:
        reading = group.create_task(read())
        for number, writer in enumerate(writers):
            group.create_task(write(number, writer))
    assert reading.result() == list(range(1, 81))
    assert (await verify_log(store)).is_intact
    for writer in writers:
        await writer.close()


async def test_racers_on_a_server_set_to_repeatable_read_have_one_winner_each(
    url: str, postgres_server: Server
) -> None:
    postgres_server.sql(url, f"ALTER DATABASE {_name(url)} SET default_transaction_isolation = 'repeatable read'")
    stores = [await open_store(url) for _ in range(3)]
    for version in range(5):
        racing = [store.append("job.a", version, [a_fact(f"{version}.{n}")]) for n, store in enumerate(stores)]
        outcomes = await asyncio.gather(*racing, return_exceptions=True)
        assert [outcome for outcome in outcomes if isinstance(outcome, int)] == [version + 1]
    for store in stores:
        await store.close()


async def _until_somebody_waits_for_the_lock(url: str) -> None:
    watcher = await asyncpg.connect(plain(url))
    async with asyncio.timeout(WAIT_S):
        while not await watcher.fetchval("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"):
            pass
    await watcher.close()


def _name(url: str) -> str:
    return plain(url).rpartition("/")[2]


# ---- lost connections


async def test_tail_goes_on_after_its_connections_were_killed(
    url: str, store: DurableStore, postgres_server: Server
) -> None:
    tail = store.tail(0)
    waiting = asyncio.ensure_future(anext(tail))
    await store.append("job.a", 0, [a_fact("1")])
    assert (await waiting).event_id == "1"
    waiting = asyncio.ensure_future(anext(tail))
    kill = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = 'voda'"
    postgres_server.sql(url, kill)
    other = await open_store(url)
    await other.append("job.a", 1, [a_fact("2")])
    await other.close()
    async with asyncio.timeout(WAIT_S):
        assert (await waiting).event_id == "2"


@pytest.mark.slow
async def test_tail_goes_on_after_the_server_was_away(store: DurableStore, postgres_server: Server) -> None:
    tail = store.tail(0)
    waiting = asyncio.ensure_future(anext(tail))
    await asyncio.sleep(0)
    await asyncio.to_thread(postgres_server.stop)
    try:
        with pytest.raises(StoreUnavailable, match=r"does not answer: .*; try again"):
            await store.append("job.a", 0, [a_fact("1")])
    finally:
        await asyncio.to_thread(postgres_server.start)
    assert await store.append("job.a", 0, [a_fact("1")]) == 1
    async with asyncio.timeout(WAIT_S):
        assert (await waiting).event_id == "1"


@pytest.mark.slow
async def test_writer_frozen_with_the_lock_in_its_hand_stops_the_others_only_for_its_timeout(
    url: str, store: DurableStore
) -> None:
    frozen = await PostgresDatabase.open(url, timeout_s=2.0)
    connection = await frozen._engine.connect()
    await connection.execute(text(f"SELECT pg_advisory_xact_lock({schema.APPLICATION_ID})"))
    assert await store.append("job.a", 0, [a_fact("1")]) == 1
    await connection.invalidate()
    await connection.close()
    await frozen.close()


# ---- databases that are not ready


async def test_url_may_ask_for_encryption_in_the_words_of_postgresql(url: str) -> None:
    store = await open_store(f"{url}&sslmode=prefer")
    assert await store.position() == 0
    assert store.place.endswith("?sslmode=prefer&sync=any")
    await store.close()
    with pytest.raises(StoreUnavailable, match="rejected SSL upgrade"):
        await open_store(f"{url}&sslmode=require")


async def test_url_with_an_unknown_option_is_refused_without_its_value(url: str) -> None:
    with pytest.raises(
        InvalidInput, match="option 'password' is unknown, expected sslmode, host, port, sync"
    ) as caught:
        await open_store(f"{url}&password=hidden")
    assert "hidden" not in str(caught.value)


async def test_database_without_tables_is_refused_with_the_command_that_makes_them(postgres_database: str) -> None:
    with pytest.raises(NotALog, match="holds no voda log yet: run 'voda log migrate postgresql://voda:"):
        await open_store(postgres_database)


async def test_migration_when_repeated_changes_nothing(url: str, store: DurableStore) -> None:
    await store.append("job.a", 0, [a_fact("1")])
    await PostgresDatabase.migrate(url)
    assert await store.position() == 1


async def test_migration_of_anothers_database_is_refused(postgres_database: str, postgres_server: Server) -> None:
    postgres_server.sql(postgres_database, "CREATE TABLE events (party text)")
    with pytest.raises(
        NotALog, match="tables named events, streams, snapshots, snapshot_pieces, archived of another application"
    ):
        await PostgresDatabase.migrate(postgres_database)
    tables = "SELECT string_agg(tablename, ',') FROM pg_tables WHERE schemaname = 'public'"
    assert postgres_server.sql(postgres_database, tables) == "events"


async def test_database_of_a_newer_version_is_refused_and_left_as_it_is(url: str, postgres_server: Server) -> None:
    postgres_server.sql(url, "UPDATE voda_revision SET version_num = '9999'")
    for attempt in (open_store(url), PostgresDatabase.migrate(url)):
        with pytest.raises(LogTooNew, match=r"written by a newer voda .*9999"):
            await attempt
    assert postgres_server.sql(url, "SELECT version_num FROM voda_revision") == "9999"


async def test_database_user_or_server_that_is_not_there_is_said_so_without_the_password(
    postgres_server: Server,
) -> None:
    cases = {
        postgres_server.url("nothere"): (InvalidInput, 'database "nothere" does not exist; create it'),
        postgres_server.url("postgres", password="wrong-secret"): (InvalidInput, "refuses the user or password"),
        "postgresql://voda:wrong-secret@127.0.0.1:1/x": (StoreUnavailable, "does not answer: .*; try again"),
    }
    for url, (error, said) in cases.items():
        with pytest.raises(error, match=said) as caught:
            await open_store(url)
        assert "secret" not in str(caught.value)


async def test_log_opened_for_reading_refuses_to_be_written(url: str) -> None:
    store = await open_store(url, read_only=True)
    with pytest.raises(StoreNotWritable, match="may not be written: cannot execute INSERT in a read-only transaction"):
        await store.append("job.a", 0, [a_fact("1")])
    await store.close()


# ---- damage, and moving house


async def test_event_changed_behind_vodas_back_is_found(url: str, store: DurableStore, postgres_server: Server) -> None:
    await store.append("job.a", 0, [a_fact(str(number)) for number in range(5)])
    postgres_server.sql(url, "UPDATE events SET body = set_byte(body, 20, 65) WHERE position = 3")
    verdict = await verify_log(store)
    assert (verdict.events, verdict.damaged_at) == (2, 3)


async def test_log_carried_from_store_to_store_is_the_same_to_the_byte(store: DurableStore, tmp_path: Path) -> None:
    memory = MemoryStore()
    for number in range(50):
        await memory.append(f"job.{number % 3}", -1, [a_fact(str(number), at=number / 3)], epoch=number // 20)
    sqlite = await open_store(tmp_path / "log.db")
    for source, target in ((memory, sqlite), (sqlite, store)):
        assert (await copy_log(source, target)).events == 50
        assert (await verify_log(target)).is_intact
        assert await target.read_sealed(0, 100) == await memory.read_sealed(0, 100)
    await sqlite.close()
