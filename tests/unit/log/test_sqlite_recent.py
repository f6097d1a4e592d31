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
