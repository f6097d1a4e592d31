"""What tails read of an SQLite log's last events, which the process that wrote them remembers."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from itertools import count
from pathlib import Path

import pytest

from voda.events.envelope import ANY_VERSION, Event, Fact
from voda.events.types import JobCompleted
from voda.log.factory import open_store
from voda.log.sql.sqlite import REMEMBERED
from voda.log.sql.store import SqlStore
from voda.log.store import EventStore

_NUMBERS = count()


async def append(store: EventStore, facts: int = 1) -> None:
    made = [
        Fact(data=JobCompleted(job_id="a"), event_id=f"e{next(_NUMBERS)}", recorded_at=1.0, actor="test")
        for _ in range(facts)
    ]
    await store.append("job.a", ANY_VERSION, made)


async def opened(path: Path) -> SqlStore:
    store = await open_store(str(path))
    assert isinstance(store, SqlStore)
    return store


async def taken(tail: AsyncIterator[Event], number: int) -> Sequence[Event]:
    async with asyncio.timeout(30.0):
        return [await anext(tail) for _ in range(number)]


async def test_tail_that_read_to_the_end_gets_what_is_appended_then_without_a_query(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await opened(tmp_path / "log.db")
    await append(store)
    tail = store.tail(0)
    first = await taken(tail, 1)
    monkeypatch.delattr(type(store.database), "fetch")
    await append(store, 2)
    later = await taken(tail, 2)
    monkeypatch.undo()
    assert [*first, *later] == await store.read(0, 10)
    await store.close()


@pytest.mark.parametrize("facts", [1, REMEMBERED - 1, REMEMBERED, REMEMBERED + 1])
async def test_tails_get_every_event_once_and_in_order_while_another_process_appends_too(
    tmp_path: Path, facts: int
) -> None:
    store, other = await opened(tmp_path / "log.db"), await opened(tmp_path / "log.db")
    ends, tails = 6 * (facts + 1), (store.tail(0), other.tail(0))

    async def write() -> None:
        for number in range(6):
            await append(store, facts)
            await append(other)
            await asyncio.sleep(0.01 * (number % 2))

    writing = asyncio.create_task(write())
    found = [await taken(tail, ends) for tail in tails]
    await writing
    assert found[0] == found[1] == await store.read(0, 10 * ends)
    await store.close()
    await other.close()


async def test_reader_at_the_end_or_of_what_this_process_wrote_last_needs_no_query(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await opened(tmp_path / "log.db")
    await append(store, 3)
    whole = await store.read(0, 10)
    monkeypatch.delattr(type(store.database), "fetch")
    assert await store.read(3, 10) == []
    assert await store.read(1, 10) == whole[1:]
    assert await store.read(1, 1) == whole[1:2]
    monkeypatch.undo()
    await store.close()


async def test_reader_when_another_process_has_written_gets_all_that_is_there_at_once(tmp_path: Path) -> None:
    store, other = await opened(tmp_path / "log.db"), await opened(tmp_path / "log.db")
    for position in range(1, 20, 3):
        await append(store)
        await append(other)
        assert [event.position for event in await store.read(position - 1, 10)] == [position, position + 1]
        assert await store.read(position + 1, 10) == await store.read(position + 7, 10) == []
        await append(store)
        assert [event.position for event in await store.read(position - 1, 10)] == list(range(position, position + 3))
        assert await other.read(0, 100) == await store.read(0, 100)
    await store.close()
    await other.close()


async def test_reader_while_a_transaction_is_under_way_asks_the_file(tmp_path: Path) -> None:
    store = await opened(tmp_path / "log.db")
    await append(store)
    await asyncio.gather(*(append(store, 2) for _ in range(20)), *(store.read(0, 100) for _ in range(20)))
    assert [event.position for event in await store.read(0, 100)] == list(range(1, 42))
    await store.close()
