"""A log in an SQLite file, among other processes, full disks and read-only folders."""

# ruff: noqa: ASYNC240 - a test may wait for its own disk

import asyncio
import os
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.builders import a_fact, a_snapshot
from tests.sqlite_logs import behind_vodas_back, fill, position_of, verified
from voda.domain.errors import (
    InvalidInput,
    StoreNotWritable,
    StoreUnavailable,
)
from voda.log.append_plan import Append
from voda.log.archive.verify import verify_log
from voda.log.factory import open_store
from voda.log.sql.sqlite import SqliteDatabase
from voda.log.sql.store import SqlStore

WAIT_S = 120
NOBODY = 65534

# Appends until it is killed, and says what was acknowledged.
WRITER = """
import asyncio, sys
from tests.builders import a_fact
from voda.log.factory import open_store

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


def writer(path: Path, name: str, count: int) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", WRITER, str(path), name, str(count)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2])


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
    database = await SqliteDatabase.open(path, read_only=True)

    def write() -> int:
        database._reader._connection._conn.set_progress_handler(None, 0)
        behind_vodas_back(path, "UPDATE events SET event_id = 'new.' || event_id")
        return 0

    # After so many steps the first event has been read.
    await database._reader._connection.set_progress_handler(write, 20)
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
    database = await SqliteDatabase.open(path)
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


async def test_log_that_finds_no_room_to_be_made_is_not_there_afterwards(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, before[1]))
    try:
        with pytest.raises(StoreNotWritable, match=f"^{tmp_path}/log.db cannot be"):
            await open_store(tmp_path / "log.db")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list(tmp_path.iterdir()) == []


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


async def test_disk_that_stalled_keeps_commits_off_the_event_loop_until_it_has_been_quick_again(path: Path) -> None:
    database = await SqliteDatabase.open(path)
    append = Append("job.c", 0, [a_fact("new")], 0)
    database._took(1.0)
    for _ in range(25):
        assert database.commit_at_once([append]) is None
        database._took(0.0001)
    for _ in range(5):
        database._took(0.0001)
    assert database.commit_at_once([append]) == [7]
    await database.close()


async def test_appends_and_snapshots_at_the_same_time_do_not_meet_in_one_transaction(path: Path) -> None:
    store = await open_store(path)

    async def append() -> list[int]:
        return [await store.append("job.c", number, [a_fact(f"new.{number}")]) for number in range(300)]

    async def snapshot(appending: asyncio.Task[list[int]]) -> int:
        number = 0
        while not appending.done():
            await store.snapshots.save(a_snapshot("live-1", number := number + 1, bytes(50_000)))
        return number

    async with asyncio.timeout(WAIT_S), asyncio.TaskGroup() as group:
        appending = group.create_task(append())
        snapshots = group.create_task(snapshot(appending))
    assert appending.result() == list(range(7, 307))
    assert [found.position async for found in store.snapshots.all()][-1] == snapshots.result()
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


# ---- snapshots


def _sizes(path: Path) -> list[int]:
    connection = sqlite3.connect(path)
    found = connection.execute("SELECT length(data) FROM snapshot_pieces ORDER BY position, number").fetchall()
    connection.close()
    return [size for (size,) in found]


async def test_large_snapshot_when_saved_is_no_value_larger_than_a_mebibyte(tmp_path: Path) -> None:
    """SQLite refuses values of a gigabyte, and others append between two pieces."""
    path = tmp_path / "log.db"
    await fill(path, 1)
    store = await open_store(path)
    await store.snapshots.save(a_snapshot("live-1", 1, bytes(5_000_000)))
    await store.close()
    assert max(_sizes(path)) == 2**20
    assert sum(_sizes(path)) > 5_000_000


async def test_pieces_of_a_killed_writer_when_their_position_is_behind_all_snapshots_are_dropped(
    tmp_path: Path,
) -> None:
    path = tmp_path / "log.db"
    await fill(path, 20)
    behind_vodas_back(path, "INSERT INTO snapshot_pieces VALUES ('live-1', 2, 'of the killed one', 0, x'00')")
    store = await open_store(path)
    await store.snapshots.save(a_snapshot("live-1", 2, b"state"))
    assert len(_sizes(path)) == 2
    for position in range(3, 12):
        await store.snapshots.save(a_snapshot("live-1", position, b"state"))
    assert [snapshot.position async for snapshot in store.snapshots.all()] == list(range(4, 12))
    await store.close()
    assert len(_sizes(path)) == 8


async def test_snapshot_that_a_writer_drops_while_it_is_read_is_none_and_no_damage(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    await fill(path, 3)
    store = await open_store(path)
    for position in (1, 2):
        await store.snapshots.save(a_snapshot("live-1", position, b"state", heads=await store.heads()))
    reading = store.snapshots.all()
    assert (await anext(reading)).position == 1
    behind_vodas_back(path, "DELETE FROM snapshots")
    behind_vodas_back(path, "DELETE FROM snapshot_pieces")
    assert [snapshot.position async for snapshot in reading] == []
    await store.close()
