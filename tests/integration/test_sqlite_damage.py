"""Files that are no SQLite logs, and logs that were damaged: refused in one sentence, the first bad position named."""

# ruff: noqa: ASYNC240 - a test may wait for its own disk

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path

import pytest

from tests.builders import a_snapshot
from tests.sqlite_logs import behind_vodas_back, fill, verified
from voda.domain.errors import InvalidInput, LogDamaged, LogTooNew, NotALog, VodaError
from voda.events.envelope import GENESIS, Head, hash_of
from voda.log.archive.verify import verify_log
from voda.log.factory import open_log, open_store
from voda.log.store import EventStore, Snapshot
from voda.timetravel.replay import events_between


@pytest.fixture
async def path(tmp_path: Path) -> Path:
    """Where a closed log of six events in two streams lies."""
    found = tmp_path / "log.db"
    await fill(found, 6)
    return found


# ---- what is not a log


def _foreign(path: Path) -> None:
    behind_vodas_back(path, "CREATE TABLE songs (title TEXT)")


def _text(path: Path) -> None:
    path.write_text("job,submitted\n")


def _empty(path: Path) -> None:
    path.touch()


def _half(path: Path) -> None:
    asyncio.run(fill(path, 6))
    os.truncate(path, path.stat().st_size // 2)


def _stump(path: Path) -> None:
    asyncio.run(fill(path, 1))
    os.truncate(path, 50)


def _overwritten(path: Path) -> None:
    asyncio.run(fill(path, 6))
    with path.open("r+b") as file:
        file.seek(100)
        file.write(b"\xff" * (path.stat().st_size - 100))


def _newer(path: Path) -> None:
    asyncio.run(fill(path, 1))
    behind_vodas_back(path, "UPDATE voda_revision SET version_num = '9999'")


def _without_tables(path: Path) -> None:
    asyncio.run(fill(path, 1))
    behind_vodas_back(path, "DROP TABLE voda_revision")


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize(
    ("make", "error", "said"),
    [
        (_foreign, NotALog, "SQLite database of another application"),
        (_text, NotALog, "expected an SQLite database, got a file that begins b'job,submitte'"),
        (_empty, NotALog, "is empty"),
        (Path.mkdir, NotALog, "is a directory"),
        (os.mkfifo, NotALog, "no regular file"),
        (_half, LogDamaged, "is cut: expected .* bytes, got"),
        (_stump, LogDamaged, "is cut: it has 50 bytes"),
        (_overwritten, LogDamaged, "is damaged"),
        (_newer, LogTooNew, "written by a newer voda .*9999.*upgrade voda"),
        (_without_tables, LogDamaged, "voda_revision is missing"),
    ],
)
def test_file_that_is_no_log_is_refused_in_one_sentence_and_left_as_it_is(
    make: Callable[[Path], None], error: type[VodaError], said: str, read_only: bool, tmp_path: Path
) -> None:
    path = tmp_path / "log.db"
    make(path)
    before = path.read_bytes() if path.is_file() else b""
    with pytest.raises(error, match=said) as caught:
        asyncio.run(open_log(path) if read_only else open_store(path))
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert (path.read_bytes() if path.is_file() else b"") == before
    assert list(tmp_path.iterdir()) == [path]


async def test_refused_log_leaves_no_thread_that_would_answer_to_a_closed_loop(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    await asyncio.to_thread(_without_tables, path)
    before = threading.enumerate()
    for _ in range(20):
        with pytest.raises(LogDamaged):
            await open_store(path, read_only=True)
        assert not [name for name in _new_threads(before) if "_connection_worker_thread" in name]


def _new_threads(before: list[threading.Thread]) -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread not in before]


async def test_missing_log_opened_for_reading_is_refused_and_not_made(tmp_path: Path) -> None:
    for opened in (open_store(tmp_path / "log.db", read_only=True), open_log(tmp_path / "log.db")):
        with pytest.raises(InvalidInput, match="there is no such log"):
            await opened
    assert list(tmp_path.iterdir()) == []


async def test_log_in_a_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"folder .*nowhere does not exist"):
        await open_store(tmp_path / "nowhere" / "log.db")


async def test_event_of_a_newer_version_is_refused_when_read(path: Path) -> None:
    behind_vodas_back(
        path,
        "UPDATE events SET body = ?, hash = ? WHERE position = 6",
        *_sealed_as("job.dreamt"),
    )
    store = await open_log(path)
    with pytest.raises(LogTooNew, match=r"position 6 holds 'job\.dreamt' in schema 1.*upgrade voda"):
        await store.read(0, 10)
    await store.close()


def _sealed_as(kind: str) -> tuple[bytes, str]:
    body = (
        f'{{"stream":"job.1","version":3,"event_id":"5","type":"{kind}","schema":1,'
        f'"recorded_at":"2030-01-01T00:00:00Z","prev":"{GENESIS}","data":{{}}}}'
    ).encode()
    return body, hash_of(body)


# ---- damage

Damage = Callable[[Path], object]


def _statement(statement: str, *parameters: object) -> Damage:
    return lambda path: behind_vodas_back(path, statement, *parameters)


@pytest.mark.parametrize(
    ("damage", "position", "said"),
    [
        (_statement("UPDATE events SET body = replace(body, ':1.0', ':2.0') WHERE position = 3"), 3, "checksum"),
        (_statement("UPDATE events SET body = CAST(body AS TEXT) WHERE position = 3"), 3, "checksum"),
        (_statement("UPDATE events SET body = x'' WHERE position >= 5"), 5, "checksum"),
        (_statement("UPDATE events SET hash = upper(hash) WHERE position = 1"), 1, "checksum"),
        (_statement("DELETE FROM events WHERE position = 4"), 4, "the event is missing, 5 follows"),
        (_statement("DELETE FROM events WHERE position = 1"), 1, "the event is missing, 2 follows"),
        (_statement("UPDATE events SET position = 9 WHERE position = 2"), 2, "the event is missing, 3 follows"),
        (_statement("UPDATE events SET stream = 'job.x' WHERE position = 2"), 2, "column stream"),
        (_statement("UPDATE events SET version = 77 WHERE position = 6"), 6, "column version"),
        (_statement("UPDATE events SET event_id = 'x' WHERE position = 5"), 5, "column event_id"),
        (_statement("UPDATE events SET type = 'x' WHERE position = 3"), 3, "column type"),
        (_statement("UPDATE events SET recorded_at = 5 WHERE position = 3"), 3, "column recorded_at"),
        (_statement("UPDATE events SET recorded_at = 'x' WHERE position = 3"), 3, "column recorded_at"),
        (_statement("UPDATE events SET stream = CAST(x'ff41' AS TEXT) WHERE position = 3"), 3, "cannot be read"),
        (_statement("UPDATE events SET hash = CAST(x'ff41' AS TEXT) WHERE position = 5"), 5, "cannot be read"),
        (_statement("DELETE FROM events WHERE position > 4"), 5, "stream job.0 is at version 3"),
        (_statement("UPDATE streams SET version = 2 WHERE stream = 'job.1'"), None, "stream job.1 is at version 2"),
        (_statement("UPDATE streams SET version = 'x' WHERE stream = 'job.1'"), None, "stream job.1 is at version x"),
        (_statement("DELETE FROM streams WHERE stream = 'job.1'"), None, "stream job.1 is at version 0"),
        (_statement("UPDATE streams SET hash = 'x', version = 9"), 7, "stream job.0 is at version 9"),
    ],
)
async def test_damage_to_one_place_is_found_and_the_first_position_named(
    damage: Damage, position: int | None, said: str, path: Path
) -> None:
    damage(path)
    store = await open_store(path, read_only=True)
    verdict = await verify_log(store)
    await store.close()
    assert not verdict.is_intact
    assert verdict.damaged_at == position
    assert said in verdict.problem
    assert position is None or f"position {position}" in verdict.problem


async def test_events_before_a_damaged_one_are_read_and_none_beyond(path: Path) -> None:
    behind_vodas_back(path, "UPDATE events SET body = CAST(body AS TEXT) WHERE position = 5")
    store = await open_log(path)
    assert [event.position async for event in events_between(store, until=4)] == [1, 2, 3, 4]
    with pytest.raises(LogDamaged, match="position 5: the checksum"):
        await store.read(4, 1)
    await store.close()


async def test_two_events_swapped_are_found(path: Path) -> None:
    for old, new in ((2, 99), (4, 2), (99, 4)):
        behind_vodas_back(path, "UPDATE events SET position = ? WHERE position = ?", new, old)
    assert "position 2: stream job.1: expected version 1, got 2" in await verified(path)


async def test_flipped_bit_in_the_file_is_found_at_its_event(path: Path) -> None:
    clean = path.read_bytes()
    for position in range(1, 7):
        body = clean.index(f'"event_id":"{position - 1}"'.encode())
        path.write_bytes(clean[: body + 40] + bytes([clean[body + 40] ^ 4]) + clean[body + 41 :])
        assert f"position {position}: " in await verified(path)


async def test_page_that_cannot_be_read_is_named_by_its_first_event(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    await fill(path, 100)
    clean = path.read_bytes()
    page = clean.index(b'"event_id":"50"') // 4096
    positions = [n + 1 for n in range(100) if clean.index(f'"event_id":"{n}"'.encode()) // 4096 == page]
    path.write_bytes(clean[: page * 4096] + b"\xee" * 4096 + clean[(page + 1) * 4096 :])
    assert f"position {min(positions)}: the event cannot be read" in await verified(path)


async def test_gap_is_refused_by_whoever_reads_over_it(path: Path) -> None:
    behind_vodas_back(path, "DELETE FROM events WHERE position = 3")
    store = await open_store(path)
    with pytest.raises(LogDamaged, match="position 3: the event is missing") as caught:
        await store.read(0, 100)
    assert caught.value.position == 3
    assert len(await store.read(0, 2)) == 2
    await store.close()


async def test_log_whose_tail_was_cut_is_not_written_to(path: Path) -> None:
    behind_vodas_back(path, "DELETE FROM events WHERE position > 4")
    with pytest.raises(LogDamaged, match="position 5: the log ends at 4 but once reached 6: its tail is cut") as caught:
        await open_store(path)
    assert caught.value.position == 5


async def test_log_cut_with_its_heads_is_betrayed_by_a_snapshot(path: Path) -> None:
    await with_store(path, lambda store: _snapshot_at_end(store))
    behind_vodas_back(path, "DELETE FROM events WHERE stream = 'job.1'")
    behind_vodas_back(path, "DELETE FROM events WHERE position > 1")
    behind_vodas_back(path, "DELETE FROM streams")
    assert "position 2: the log ends at 1, but there is a snapshot of position 6" in await verified(path)


async def test_damaged_event_is_named_though_snapshots_are_damaged_too(path: Path) -> None:
    await with_store(path, lambda store: store.snapshots.save(a_snapshot("live-1", 3, b"state")))
    await with_store(path, lambda store: store.snapshots.save(a_snapshot("live-2", 3, b"state")))
    behind_vodas_back(path, "UPDATE snapshot_pieces SET data = 'other' WHERE name = 'live-2'")
    assert "snapshot live-2 at position 3: the checksum does not fit" in await verified(path)
    behind_vodas_back(path, "UPDATE events SET body = x'' WHERE position = 5")
    assert await verified(path) == "position 5: the checksum does not fit the event"


async def test_each_of_two_snapshots_at_one_position_is_compared(path: Path) -> None:
    await with_store(path, _snapshot_at_end)
    sound = await heads_of(path)
    for name, heads in (("live-0", {**sound, "job.1": Head(3, GENESIS)}), ("live-2", sound)):
        snapshot = a_snapshot(name, 6, b"state", heads=heads)
        await with_store(path, partial(_save, snapshot))
    assert "the snapshot at position 6 says that stream job.1" in await verified(path)


async def test_log_cut_after_a_snapshot_whose_heads_were_further_is_found(path: Path) -> None:
    heads = await heads_of(path)
    await with_store(path, lambda store: store.snapshots.save(a_snapshot("live-1", 2, b"state", heads=heads)))
    behind_vodas_back(path, "DELETE FROM events WHERE position > 4")
    behind_vodas_back(path, "UPDATE streams SET version = 2, position = position - 2")
    behind_vodas_back(path, "UPDATE streams SET hash = (SELECT hash FROM events e WHERE e.position = streams.position)")
    assert "position 5: the log ends at 4, but there is a snapshot of position 6" in await verified(path)


async def test_snapshot_whose_heads_are_others_is_found(path: Path) -> None:
    await with_store(path, lambda store: store.snapshots.save(a_snapshot("live-1", 3, b"state")))
    assert "the snapshot at position 3 says that stream job.0 is at version 0" in await verified(path)


async def test_snapshot_that_is_damaged_is_passed_over_for_an_older_one(path: Path) -> None:
    async def save(store: EventStore) -> None:
        for position in (2, 4):
            await store.snapshots.save(a_snapshot("live-1", position, b"state"))

    await with_store(path, save)
    behind_vodas_back(path, "UPDATE snapshot_pieces SET data = 'other' WHERE position = 4")
    store = await open_store(path)
    snapshot = await store.snapshots.latest("live-1")
    assert snapshot is not None
    assert snapshot.position == 2
    await store.close()
    assert "snapshot live-1 at position 4: the checksum" in await verified(path)


async def _save(snapshot: Snapshot, store: EventStore) -> None:
    await store.snapshots.save(snapshot)


async def _snapshot_at_end(store: EventStore) -> None:
    await store.snapshots.save(a_snapshot("live-1", 6, b"state", heads=await store.heads()))


async def heads_of(path: Path) -> Mapping[str, Head]:
    store = await open_store(path, read_only=True)
    try:
        return await store.heads()
    finally:
        await store.close()


async def with_store(path: Path, call: Callable[[EventStore], Awaitable[None]]) -> None:
    store = await open_store(path)
    await call(store)
    await store.close()
