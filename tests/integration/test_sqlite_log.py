"""A log in an SQLite file, among other processes, full disks, read-only folders and files that are no logs."""

# ruff: noqa: ASYNC240 - a test may wait for its own disk

import asyncio
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from tests.builders import a_fact, a_snapshot
from voda.domain.errors import (
    InvalidInput,
    LogDamaged,
    LogTooNew,
    NotALog,
    StoreNotWritable,
    StoreUnavailable,
    VodaError,
)
from voda.events.envelope import GENESIS, Head, hash_of
from voda.events.opening import open_log, open_store
from voda.events.sql.sqlite import SqliteDatabase
from voda.events.sql.store import SqlStore
from voda.events.store import EventStore, Snapshot
from voda.events.verify import verify_log

WAIT_S = 30
NOBODY = 65534

# Appends until it is killed, and says what was acknowledged.
WRITER = """
import asyncio, sys
from tests.builders import a_fact
from voda.events.opening import open_store

async def write(path, name, count):
    store = await open_store(path)
    for number in range(count):
        await store.append(f"job.{name}", number, [a_fact(f"{name}.{number}")])
        print(number, flush=True)
    await store.close()

asyncio.run(write(sys.argv[1], sys.argv[2], int(sys.argv[3])))
"""


@pytest.fixture
async def path(tmp_path: Path) -> Path:
    """Where a closed log of six events in two streams lies."""
    found = tmp_path / "log.db"
    await fill(found, 6)
    return found


async def fill(path: Path, events: int) -> None:
    store = await open_store(path)
    for number in range(events):
        await store.append(f"job.{number % 2}", -1, [a_fact(str(number))])
    await store.close()


def behind_vodas_back(path: Path, statement: str, *parameters: object) -> None:
    connection = sqlite3.connect(path)
    with connection:
        connection.execute(statement, parameters)
    connection.close()


def writer(path: Path, name: str, count: int) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", WRITER, str(path), name, str(count)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2])


async def position_of(path: Path) -> int:
    store = await open_store(path, read_only=True)
    try:
        return await store.position()
    finally:
        await store.close()


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


# ---- reading only


async def test_log_opened_for_reading_refuses_to_be_written(path: Path) -> None:
    store = await open_store(path, read_only=True)
    with pytest.raises(StoreNotWritable, match="opened for reading only"):
        await store.append("job.a", -1, [a_fact("new")])
    await store.close()


async def test_log_opened_for_reading_leaves_no_trace(path: Path) -> None:
    before = path.read_bytes()
    store = await open_store(path, read_only=True)
    assert (await verify_log(store)).is_intact
    assert list(path.parent.iterdir()) == [path]
    await store.close()
    assert list(path.parent.iterdir()) == [path]
    assert path.read_bytes() == before


async def test_log_opened_for_reading_follows_a_writer_that_comes_and_goes(path: Path) -> None:
    reader = await open_store(path, read_only=True)
    tail = reader.tail(6)
    for round_ in range(3):
        waiting = asyncio.ensure_future(anext(tail))
        writing = await open_store(path)
        await writing.append("job.a", -1, [a_fact(f"new.{round_}")])
        if round_ % 2:
            await writing.close()
        async with asyncio.timeout(WAIT_S):
            assert (await waiting).event_id == f"new.{round_}"
        await writing.close()
    await reader.close()


async def test_read_that_a_writer_comes_in_between_is_made_again(path: Path) -> None:
    database = SqliteDatabase(path, read_only=True)

    def write() -> int:
        database._reader.set_progress_handler(None, 0)
        behind_vodas_back(path, "UPDATE events SET event_id = 'new.' || event_id")
        return 0

    # After so many steps the first event has been read.
    database._reader.set_progress_handler(write, 20)
    rows = await database.fetch("SELECT event_id FROM events ORDER BY position", {})
    assert [row[0] for row in rows] == [f"new.{number}" for number in range(6)]
    await database.close()


async def test_log_behind_a_link_is_the_log_itself(path: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.db"
    link.symlink_to(path)
    store = await open_store(link)
    await store.append("job.c", 0, [a_fact("new")])
    assert await store.position() == 7
    assert await position_of(link) == 7
    await store.close()


async def test_log_of_a_killed_writer_copied_without_its_index_is_read_to_its_end(path: Path, tmp_path: Path) -> None:
    store = await open_store(path)
    await store.append("job.a", -1, [a_fact("new")])
    copy = tmp_path / "copy" / "log.db"
    copy.parent.mkdir()
    shutil.copy(path, copy)
    shutil.copy(f"{path}-wal", f"{copy}-wal")
    await store.close()
    assert await position_of(copy) == 7


@contextmanager
def ordinary_user() -> Iterator[None]:
    """Let no permission be overridden, which root's would be."""
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        if is_root:
            os.seteuid(0)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that other users can get to."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


async def test_log_in_a_read_only_folder_is_read_but_not_written(open_folder: Path) -> None:
    path = open_folder / "log.db"
    await fill(path, 6)
    path.chmod(0o444)
    open_folder.chmod(0o555)
    with ordinary_user():
        assert await position_of(path) == 6
        with pytest.raises(StoreNotWritable, match=r"log\.db cannot be"):
            await open_store(path)
        with pytest.raises(StoreNotWritable, match=r"cannot create .*new\.db: Permission denied"):
            await open_store(open_folder / "new.db")
    open_folder.chmod(0o755)
    assert list(open_folder.iterdir()) == [path]


async def test_log_that_may_not_be_read_is_refused(open_folder: Path) -> None:
    path = open_folder / "log.db"
    await fill(path, 1)
    path.chmod(0o000)
    with ordinary_user(), pytest.raises(InvalidInput, match="cannot be read: Permission denied"):
        await open_store(path)


# ---- full disk


async def test_append_to_a_full_disk_is_refused_and_the_next_that_fits_is_taken(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    await fill(path, 6)
    database = SqliteDatabase(path)
    await database.write([("PRAGMA max_page_count = 40", {})])
    store = SqlStore(database)
    large = [a_fact(f"large.{number}") for number in range(2000)]
    outcomes = await asyncio.gather(
        store.append("job.a", 0, [a_fact("small")]),
        store.append("job.b", 0, large),
        store.append("job.a", 1, [a_fact("other")]),
        return_exceptions=True,
    )
    assert (outcomes[0], outcomes[2]) == (7, 8)
    assert isinstance(outcomes[1], StoreNotWritable)
    assert "the disk is full" in str(outcomes[1])
    assert (await verify_log(store)).is_intact
    await store.close()
    assert await position_of(path) == 8


def test_writer_at_its_file_size_limit_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    limited = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))\n" + WRITER
    command = [sys.executable, "-c", limited, str(path), "a", "100000"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=WAIT_S, check=False, cwd=Path(__file__).parents[2]
    )
    assert "StoreNotWritable" in done.stderr
    assert asyncio.run(position_of(path)) == len(done.stdout.splitlines()) > 0


# ---- other processes


def test_two_processes_that_write_share_one_order(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    processes = [writer(path, name, 40) for name in ("a", "b")]
    for process in processes:
        process.communicate(timeout=WAIT_S)
        assert process.returncode == 0
    verdict = asyncio.run(verified(path))
    assert (verdict, asyncio.run(position_of(path))) == ("", 80)


def test_writer_killed_at_any_moment_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    process = writer(path, "a", 10**9)
    assert process.stdout is not None
    acknowledged = [int(process.stdout.readline()) for _ in range(50)]
    process.send_signal(signal.SIGKILL)
    acknowledged += [int(line) for line in process.communicate(timeout=WAIT_S)[0].splitlines() if line.endswith("\n")]
    position = asyncio.run(position_of(path))
    assert position >= len(acknowledged)
    assert asyncio.run(verified(path)) == ""
    asyncio.run(fill(path, 1))
    assert asyncio.run(position_of(path)) == position + 1


async def verified(path: Path) -> str:
    store = await open_store(path, read_only=True)
    try:
        return (await verify_log(store)).problem
    finally:
        await store.close()


async def test_append_while_another_process_holds_the_lock_is_to_be_tried_again(path: Path) -> None:
    store = await open_store(path, timeout_s=0.05)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailable, match="locked by another process; try again"):
        await store.append("job.a", 0, [a_fact("new")])
    other.execute("ROLLBACK")
    other.close()
    assert await store.append("job.a", 0, [a_fact("new")]) == 7
    await store.close()


async def test_appends_and_snapshots_at_the_same_time_do_not_meet_in_one_transaction(path: Path) -> None:
    store = await open_store(path)

    async def append() -> list[int]:
        return [await store.append("job.c", number, [a_fact(f"new.{number}")]) for number in range(300)]

    async def snapshot(appending: asyncio.Task[list[int]]) -> int:
        number = 0
        while not appending.done():
            await store.save_snapshot(a_snapshot("live-1", number := number + 1, bytes(50_000)))
        return number

    async with asyncio.timeout(WAIT_S), asyncio.TaskGroup() as group:
        appending = group.create_task(append())
        snapshots = group.create_task(snapshot(appending))
    assert appending.result() == list(range(7, 307))
    assert [found.position async for found in store.snapshots()][-1] == snapshots.result()
    await store.close()


async def test_append_is_answered_even_if_whoever_closes_the_log_gives_up(path: Path) -> None:
    store = await open_store(path)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    appending = asyncio.ensure_future(store.append("job.c", 0, [a_fact("new")]))
    await asyncio.sleep(0)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await store.close()
    other.close()
    async with asyncio.timeout(WAIT_S):
        assert await appending == 7
    await store.close()


async def test_new_log_made_by_two_at_once_is_one_log(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    stores = await asyncio.gather(*(open_store(path) for _ in range(4)))
    positions = [await store.append("job.a", -1, [a_fact(str(n))]) for n, store in enumerate(stores)]
    for store in stores:
        await store.close()
    assert positions == [1, 2, 3, 4]
    assert list(tmp_path.iterdir()) == [path]


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
    await with_store(path, lambda store: store.save_snapshot(a_snapshot("live-1", 3, b"state")))
    await with_store(path, lambda store: store.save_snapshot(a_snapshot("live-2", 3, b"state")))
    behind_vodas_back(path, "UPDATE snapshots SET state = 'other' WHERE name = 'live-2'")
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
    await with_store(path, lambda store: store.save_snapshot(a_snapshot("live-1", 2, b"state", heads=heads)))
    behind_vodas_back(path, "DELETE FROM events WHERE position > 4")
    behind_vodas_back(path, "UPDATE streams SET version = 2, position = position - 2")
    behind_vodas_back(path, "UPDATE streams SET hash = (SELECT hash FROM events e WHERE e.position = streams.position)")
    assert "position 5: the log ends at 4, but there is a snapshot of position 6" in await verified(path)


async def test_snapshot_whose_heads_are_others_is_found(path: Path) -> None:
    await with_store(path, lambda store: store.save_snapshot(a_snapshot("live-1", 3, b"state")))
    assert "the snapshot at position 3 says that stream job.0 is at version 0" in await verified(path)


async def test_snapshot_that_is_damaged_is_passed_over_for_an_older_one(path: Path) -> None:
    async def save(store: EventStore) -> None:
        for position in (2, 4):
            await store.save_snapshot(a_snapshot("live-1", position, b"state"))

    await with_store(path, save)
    behind_vodas_back(path, "UPDATE snapshots SET state = 'other' WHERE position = 4")
    store = await open_store(path)
    snapshot = await store.latest_snapshot("live-1")
    assert snapshot is not None
    assert snapshot.position == 2
    await store.close()
    assert "snapshot live-1 at position 4: the checksum" in await verified(path)


async def _save(snapshot: Snapshot, store: EventStore) -> None:
    await store.save_snapshot(snapshot)


async def _snapshot_at_end(store: EventStore) -> None:
    await store.save_snapshot(a_snapshot("live-1", 6, b"state", heads=await store.heads()))


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
