"""What SQLite itself does not notice: a journal that ends too early, a page in disorder, words that are no text."""

# ruff: noqa: ASYNC240 - a test may wait for its own disk

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.builders import a_fact
from tests.sqlite_logs import fill, leave_killed, position_of, verified
from voda.domain.errors import LogDamaged
from voda.log.factory import open_store
from voda.log.sql.sqlite_journal import mark_path, read_mark

_FRAME_BYTES = 24 + 4096
Damage = Callable[[Path], None]


@pytest.fixture
async def killed(tmp_path: Path) -> Path:
    """Where a log of 60 events lies, of which 40 are in the journal that a killed writer left."""
    path = tmp_path / "log.db"
    (tmp_path / "work").mkdir()
    await leave_killed(path, tmp_path / "work")
    return path


def _flip(path: Path, at: int) -> None:
    contents = bytearray(path.read_bytes())
    contents[at] ^= 8
    path.write_bytes(contents)


def _journal(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")


def _flipped_in_the_journal(path: Path) -> None:
    _flip(_journal(path), 32 + 20 * _FRAME_BYTES + 700)


def _flipped_in_the_last_append(path: Path) -> None:
    _flip(_journal(path), _journal(path).stat().st_size - 100)


def _flipped_in_the_journals_header(path: Path) -> None:
    _flip(_journal(path), 18)


def _cut(path: Path) -> None:
    os.truncate(_journal(path), _journal(path).stat().st_size // 2)


def _gone(path: Path) -> None:
    _journal(path).unlink()


@pytest.mark.parametrize(
    "damage", [_flipped_in_the_journal, _flipped_in_the_last_append, _flipped_in_the_journals_header, _cut, _gone]
)
async def test_journal_that_lost_its_end_is_noticed_and_the_log_not_written_to(damage: Damage, killed: Path) -> None:
    damage(killed)
    ends_at = await position_of(killed)
    assert ends_at < 60
    said = f"position {ends_at + 1}: the log ends at {ends_at} but once reached 60: its tail is cut"
    assert said in await verified(killed)
    with pytest.raises(LogDamaged, match=rf"{said}; restore it .* remove log\.db-end\)") as caught:
        await open_store(killed)
    assert caught.value.position == ends_at + 1
    assert await position_of(killed) == ends_at


async def test_log_of_a_killed_writer_is_gone_on_with(killed: Path) -> None:
    assert read_mark(killed) == 60
    store = await open_store(killed)
    assert await store.append("job.c", 40, [a_fact("new")]) == 61
    assert read_mark(killed) == 61
    await store.close()


async def test_mark_lies_there_as_long_as_the_journal_does(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    stores = [await open_store(path) for _ in range(2)]
    assert await stores[0].append("job.a", 0, [a_fact("first")]) == 1
    assert await stores[1].append("job.a", 1, [a_fact("second")]) == 2
    await stores[0].close()
    assert read_mark(path) == 2
    await stores[1].close()
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("at", [5, 20, 30])
async def test_mark_that_is_damaged_itself_tells_nothing(at: int, killed: Path) -> None:
    _flip(mark_path(killed), at)
    assert await verified(killed) == ""
    assert await position_of(killed) == 60


async def test_log_that_is_gone_while_its_journal_is_there_is_not_begun_anew(killed: Path) -> None:
    killed.unlink()
    before = _journal(killed).read_bytes()
    with pytest.raises(LogDamaged, match=r"log\.db is missing, but its journal log\.db-wal is there"):
        await open_store(killed)
    assert not killed.exists()
    assert _journal(killed).read_bytes() == before


async def test_log_that_is_begun_anew_is_not_held_to_what_another_reached(killed: Path) -> None:
    killed.unlink()
    _journal(killed).unlink()
    store = await open_store(killed)
    assert await store.append("job.a", 0, [a_fact("first")]) == 1
    await store.close()
    assert await verified(killed) == ""


async def test_description_of_tables_that_is_no_text_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    await fill(path, 1)
    contents = path.read_bytes()
    at = contents.index(b"CREATE UNIQUE INDEX events_stream_version")
    path.write_bytes(contents[: at + 20] + b"\xf3" + contents[at + 21 :])
    for read_only in (True, False):
        with pytest.raises(LogDamaged, match=r"log\.db is damaged"):
            await open_store(path, read_only=read_only)
