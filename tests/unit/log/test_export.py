"""An export is the log byte for byte, and none that was changed or cut is ever taken for one."""

# ruff: noqa: ASYNC240 - a test may wait for its own disk

import asyncio
import gzip
import io
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from tests.builders import a_fact
from voda.domain.errors import InvalidInput, LogDamaged, LogTooNew, NotALog, PermanentError
from voda.events.codec import EventBody
from voda.events.envelope import GENESIS, Sealed, hash_of
from voda.log.append_plan import plan_copy
from voda.log.archive.archive import Archive
from voda.log.archive.copy import export_log, restore_archive
from voda.log.archive.segment import encode_line
from voda.log.memory import MemoryStore


async def a_log(events: int = 5) -> MemoryStore:
    store = MemoryStore()
    for number in range(events):
        await store.append(f"job.{number % 2}", -1, [a_fact(str(number), at=1e9 + number / 7)], epoch=number // 2)
    return store


async def exported(store: MemoryStore) -> bytes:
    file = io.BytesIO()
    await export_log(store, file)
    return file.getvalue()


async def in_old_format(store: MemoryStore) -> bytes:
    """Return what voda 0.1.0 exported of a log."""
    position, heads = await store.ends()
    lines = [encode_line(sealed) for sealed in await store.read_sealed(0, position)]
    trailer = msgspec.json.encode({"events": position, "heads": heads}, order="sorted")
    return b"".join([b'{"format":"voda-log","version":1}\n', *lines, trailer + b"\n"])


Format = Callable[[MemoryStore], Awaitable[bytes]]
both_formats = pytest.mark.parametrize("written", [exported, in_old_format])


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "log.jsonl"


async def imported(text: bytes, file: Path) -> MemoryStore:
    file.write_bytes(text)
    store = MemoryStore()
    await restore_archive(Archive.open_export(file), store)
    return store


@pytest.mark.parametrize("events", [0, 1, 5, 4001])
async def test_export_of_an_import_is_the_same_file(events: int, file: Path) -> None:
    text = await exported(await a_log(events))
    assert await exported(await imported(text, file)) == text
    assert await exported(await imported(gzip.compress(text), file)) == text


@pytest.mark.parametrize("events", [0, 1, 5, 4001])
async def test_import_of_the_old_format_is_the_same_log(events: int, file: Path) -> None:
    log = await a_log(events)
    text = await in_old_format(log)
    assert await exported(await imported(text, file)) == await exported(log)
    assert await exported(await imported(gzip.compress(text), file)) == await exported(log)


@both_formats
async def test_log_when_imported_goes_on_where_it_ended(written: Format, file: Path) -> None:
    store = await imported(await written(await a_log(5)), file)
    assert await store.append("job.0", 3, [a_fact("4")]) == 5
    assert await store.append("job.0", 3, [a_fact("new")], epoch=2) == 6


@both_formats
@pytest.mark.parametrize("events", [0, 4])
def test_import_of_a_file_with_any_byte_changed_is_refused(written: Format, events: int, file: Path) -> None:
    async def taken() -> list[int]:
        text = await written(await a_log(events))
        return [place for place in range(len(text)) if not await _is_refused(_flipped(text, place), file)]

    assert asyncio.run(taken()) == []


@both_formats
def test_import_of_a_file_cut_anywhere_is_refused(written: Format, file: Path) -> None:
    async def taken() -> list[int]:
        text = await written(await a_log(4))
        return [end for end in range(len(text)) if not await _is_refused(text[:end], file)]

    assert asyncio.run(taken()) == []


@both_formats
@pytest.mark.parametrize("position", [1, 3, 5])
async def test_import_when_an_event_is_damaged_names_its_position(written: Format, position: int, file: Path) -> None:
    lines = (await written(await a_log(5))).splitlines(keepends=True)
    lines[position] = lines[position].replace(b'"epochs_done":1.0', b'"epochs_done":9.0')
    with pytest.raises(LogDamaged, match=f"position {position}: the checksum") as caught:
        await imported(b"".join(lines), file)
    assert caught.value.position == position


async def test_import_when_a_line_is_missing_names_its_position(file: Path) -> None:
    lines = (await exported(await a_log(5))).splitlines(keepends=True)
    del lines[3]
    with pytest.raises(LogDamaged, match="position 3: the event is missing, 4 follows"):
        await imported(b"".join(lines), file)


async def test_import_when_the_tail_is_cut_at_a_line_names_the_first_lost_position(file: Path) -> None:
    lines = (await exported(await a_log(5))).splitlines(keepends=True)
    with pytest.raises(LogDamaged, match="position 4: it ends at position 3, expected 5"):
        await imported(b"".join(lines[:4]), file)
    lines = (await in_old_format(await a_log(5))).splitlines(keepends=True)
    with pytest.raises(LogDamaged, match="position 4: the file ends without its trailer"):
        await imported(b"".join(lines[:4]), file)
    with pytest.raises(LogDamaged, match="position 4: the line is no event"):
        await imported(b"".join([*lines[:4], lines[-1]]), file)


@both_formats
async def test_import_of_two_logs_in_one_file_is_refused(written: Format, file: Path) -> None:
    text = await written(await a_log(2))
    with pytest.raises(LogDamaged, match=r"position 3: the (line is no event|trailer does not fit)"):
        await imported(text + text, file)


async def test_import_of_something_else_is_refused(file: Path) -> None:
    for text in (b"", b"job,submitted\n", b'{"jobs":[]}\n', b"\xff" * 5000):
        with pytest.raises(NotALog, match="not an exported log"):
            await imported(text, file)


@both_formats
async def test_import_of_a_newer_format_is_refused(written: Format, file: Path) -> None:
    first, *events = (await written(await a_log(2))).splitlines(keepends=True)
    newer = first.replace(b'"version":1}\n', b'"version":2}\n')
    with pytest.raises(LogTooNew, match=r"written by a newer voda \(format 2"):
        await imported(newer + b"".join(events), file)


@both_formats
async def test_import_of_events_of_a_newer_version_is_refused(written: Format, file: Path) -> None:
    store = MemoryStore()
    await store.restore(iter([plan_copy([_from_the_future()])]))
    with pytest.raises(LogTooNew, match=r"position 1 holds 'job\.dreamt' in schema 1"):
        await imported(await written(store), file)


async def test_import_into_a_log_that_has_events_is_refused(file: Path) -> None:
    store = await a_log(2)
    file.write_bytes(await exported(store))
    with pytest.raises(InvalidInput, match="not empty: it has 2 events"):
        await restore_archive(Archive.open_export(file), store)


def _flipped(text: bytes, place: int) -> bytes:
    return text[:place] + bytes([text[place] ^ 1]) + text[place + 1 :]


async def _is_refused(text: bytes, file: Path) -> bool:
    file.write_bytes(text)
    store = MemoryStore()
    try:
        await restore_archive(Archive.open_export(file), store)
    except PermanentError:
        return await store.ends() == (0, {})
    return False


def _from_the_future() -> Sealed:
    body = EventBody(
        stream="job.a",
        version=1,
        event_id="1",
        type="job.dreamt",
        schema=1,
        recorded_at=datetime(2030, 1, 1, tzinfo=UTC),
        prev=GENESIS,
        data=msgspec.Raw(b"{}"),
    )
    text = msgspec.json.encode(body)
    return Sealed(1, text, hash_of(text))
