"""Damage that a reader or a writer of one stream meets: events that its versions miss, and a head that lies."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.builders import a_fact
from tests.sqlite_logs import behind_vodas_back, fill
from voda.domain.errors import LogDamaged
from voda.events.envelope import ANY_VERSION, Head
from voda.log.factory import open_store
from voda.log.sql import schema
from voda.log.sql.store import Params, SqlStore
from voda.log.store import Base, EventStore


@pytest.fixture
async def path(tmp_path: Path) -> Path:
    """Where a closed log of eight events in two streams lies: job.0 at 1, 3, 5, 7 and job.1 at 2, 4, 6, 8."""
    found = tmp_path / "log.db"
    await fill(found, 8)
    return found


async def versions(store: EventStore, after: int, limit: int, stream: str = "job.0") -> list[int]:
    return [event.version for event in await store.read(after, limit, stream=stream)]


# ---- events that are missing


@pytest.mark.parametrize(
    ("missing", "after", "limit", "position", "said"),
    [
        (1, 0, 9, 3, "expected version 1, got 2"),
        (3, 0, 9, 5, "expected version 2, got 3"),
        (5, 0, 9, 7, "expected version 3, got 4"),
        (3, 3, 2, 5, "expected version 2, got 3"),
        (7, 0, 9, 7, "expected version 4, got nothing"),
        (7, 5, 9, 7, "expected version 4, got nothing"),
    ],
)
async def test_event_that_a_stream_misses_is_told_to_whoever_reads_the_stream(  # noqa: PLR0913 - one damage and its story
    path: Path, missing: int, after: int, limit: int, position: int, said: str
) -> None:
    behind_vodas_back(path, "DELETE FROM events WHERE position = ?", missing)
    store = await open_store(path, read_only=True)
    try:
        with pytest.raises(LogDamaged, match=f"position {position}: stream job.0: {said}") as caught:
            await versions(store, after, limit)
        assert caught.value.position == position
        # Of another stream nothing is missing.
        assert await versions(store, 0, 9, "job.1") == [1, 2, 3, 4]
    finally:
        await store.close()


async def test_part_of_a_sound_stream_is_read_from_anywhere(path: Path) -> None:
    store = await open_store(path)
    assert [await versions(store, after, 2) for after in range(9)] == [
        [1, 2],
        [2, 3],
        [2, 3],
        [3, 4],
        [3, 4],
        [4],
        [4],
        [],
        [],
    ]
    await store.close()


async def test_stream_whose_first_events_were_archived_misses_nothing(path: Path) -> None:
    store = await open_store(path)
    await store.forget(Base(position=4, heads={stream: await _head_at(store, stream) for stream in ("job.0", "job.1")}))
    assert [await versions(store, after, 9) for after in (4, 5, 7)] == [[3, 4], [4], []]
    await store.append("job.new", 0, [a_fact("new")])
    assert await versions(store, 0, 9, "job.new") == [1]
    await store.close()


async def _head_at(store: EventStore, stream: str) -> Head:
    event = (await store.read(0, 2, stream=stream))[-1]
    sealed = (await store.read_sealed(event.position - 1, 1))[0]
    return Head(event.version, sealed.hash, event.epoch)


# ---- heads that lie

LIES = [
    "UPDATE streams SET hash = replace(hash, substr(hash, 1, 1), 'g') WHERE stream = 'job.0'",
    "UPDATE streams SET version = 3 WHERE stream = 'job.0'",
    "UPDATE streams SET version = 9 WHERE stream = 'job.0'",
    "UPDATE streams SET version = 'x' WHERE stream = 'job.0'",
    "UPDATE streams SET epoch = 1 WHERE stream = 'job.0'",
    "UPDATE streams SET position = 2 WHERE stream = 'job.0'",
    "UPDATE streams SET position = 'x' WHERE stream = 'job.0'",
    "UPDATE streams SET hash = (SELECT hash FROM events WHERE position = 5), version = 3, position = 5"
    " WHERE stream = 'job.0'",
]


@pytest.mark.parametrize("lie", LIES[:-1])
async def test_head_that_its_event_does_not_bear_out_is_followed_by_nothing(lie: str, path: Path) -> None:
    behind_vodas_back(path, lie)
    store = await open_store(path)
    try:
        with pytest.raises(LogDamaged, match=r"the list of streams names version .* of job\.0 here, but"):
            await store.head("job.0")
        with pytest.raises(LogDamaged, match=r"the list of streams names version .* of job\.0 here, but"):
            await store.append("job.0", ANY_VERSION, [a_fact("new")])
        assert await store.position() == 8
        # Another stream is gone on with.
        assert await store.append("job.1", 4, [a_fact("other")]) == 9
    finally:
        await store.close()


async def test_head_of_an_earlier_event_is_followed_by_nothing(path: Path) -> None:
    behind_vodas_back(path, LIES[-1])
    store = await open_store(path)
    try:
        with pytest.raises(LogDamaged):
            await store.append("job.0", ANY_VERSION, [a_fact("new")])
        assert await store.position() == 8
    finally:
        await store.close()


async def test_head_whose_events_were_all_archived_is_believed(path: Path) -> None:
    store = await open_store(path)
    head = await store.head("job.0")
    await store.forget(Base(position=8, heads=await store.heads()))
    await store.close()
    again = await open_store(path)
    try:
        assert await again.head("job.0") == head
        assert await again.append("job.0", 4, [a_fact("new")]) == 9
    finally:
        await again.close()


async def test_lying_head_costs_nobody_else_an_append(path: Path) -> None:
    behind_vodas_back(path, LIES[0])
    store = await open_store(path)
    try:
        together = [store.append(f"job.{number % 2}", ANY_VERSION, [a_fact(f"new{number}")]) for number in range(4)]
        answers = await asyncio.gather(*together, return_exceptions=True)
        assert [type(answer) for answer in answers] == [LogDamaged, int] * 2
        assert answers[1::2] == [9, 10]
    finally:
        await store.close()


# ---- an end that moves


async def test_log_that_is_archived_to_its_end_meanwhile_is_not_taken_for_cut(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, other = await open_store(path), await open_store(path)
    assert isinstance(store, SqlStore)
    fetch = store.database.fetch

    async def once_archived(sql: str, params: Params) -> Sequence[tuple[object, ...]]:
        if sql == schema.HASH_AT:
            await other.forget(Base(position=8, heads=await other.heads()))
        return await fetch(sql, params)

    monkeypatch.setattr(store.database, "fetch", once_archived)
    await store.refuse_cut()
    assert (await store.base()).position == 8
    await store.close()
    await other.close()
