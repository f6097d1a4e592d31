"""An export is the log byte for byte, and none that was changed or cut is ever taken for one."""

import asyncio
import io
from datetime import UTC, datetime

import msgspec
import pytest

from tests.builders import a_fact
from voda.domain.errors import InvalidInput, LogDamaged, LogTooNew, NotALog, PermanentError
from voda.events.codec import EventBody
from voda.events.envelope import GENESIS, Sealed, hash_of
from voda.log.append_plan import plan_copy
from voda.log.archive.export import export_log, import_log
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


async def imported(text: bytes) -> MemoryStore:
    store = MemoryStore()
    await import_log(io.BytesIO(text), store)
    return store


@pytest.mark.parametrize("events", [0, 1, 5, 4001])
async def test_export_of_an_import_is_the_same_file(events: int) -> None:
    text = await exported(await a_log(events))
    assert await exported(await imported(text)) == text


async def test_log_when_imported_goes_on_where_it_ended() -> None:
    store = await imported(await exported(await a_log(5)))
    assert await store.append("job.0", 3, [a_fact("4")]) == 5
    assert await store.append("job.0", 3, [a_fact("new")], epoch=2) == 6


def test_import_of_a_file_with_any_byte_changed_is_refused() -> None:
    async def refused() -> list[int]:
        text = await exported(await a_log(4))
        return [place for place in range(len(text)) if not await _is_refused(_flipped(text, place))]

    assert asyncio.run(refused()) == []


def test_import_of_a_file_cut_anywhere_is_refused() -> None:
    async def refused() -> list[int]:
        text = await exported(await a_log(4))
        return [end for end in range(len(text)) if not await _is_refused(text[:end])]

    assert asyncio.run(refused()) == []


@pytest.mark.parametrize("position", [1, 3, 5])
async def test_import_when_an_event_is_damaged_names_its_position(position: int) -> None:
    lines = (await exported(await a_log(5))).splitlines(keepends=True)
    lines[position] = lines[position].replace(b'"epochs_done":1.0', b'"epochs_done":9.0')
    with pytest.raises(LogDamaged, match=f"position {position}: the checksum") as caught:
        await imported(b"".join(lines))
    assert caught.value.position == position


async def test_import_when_a_line_is_missing_names_its_position() -> None:
    lines = (await exported(await a_log(5))).splitlines(keepends=True)
    del lines[3]
    with pytest.raises(LogDamaged, match="position 3: the event is missing, 4 follows"):
        await imported(b"".join(lines))


async def test_import_when_the_tail_is_cut_at_a_line_names_the_first_lost_position() -> None:
    lines = (await exported(await a_log(5))).splitlines(keepends=True)
    with pytest.raises(LogDamaged, match="position 4: the file ends without its trailer"):
        await imported(b"".join(lines[:4]))
    with pytest.raises(LogDamaged, match="position 4: the line is neither the next event nor the trailer"):
        await imported(b"".join([*lines[:4], lines[-1]]))


async def test_import_of_two_logs_in_one_file_is_refused() -> None:
    text = await exported(await a_log(2))
    with pytest.raises(LogDamaged, match="goes on after its trailer"):
        await imported(text + text)


async def test_import_of_something_else_is_refused() -> None:
    for text in (b"", b"job,submitted\n", b'{"jobs":[]}\n', b"\xff" * 5000):
        with pytest.raises(NotALog, match="not an exported log"):
            await imported(text)


async def test_import_of_a_newer_format_is_refused() -> None:
    text = (await exported(await a_log(2))).replace(b'"version":1', b'"version":2', 1)
    with pytest.raises(LogTooNew, match=r"written by a newer voda \(format 2"):
        await imported(text)


async def test_import_of_events_of_a_newer_version_is_refused() -> None:
    store = MemoryStore()
    await store.restore(iter([plan_copy([_from_the_future()])]))
    text = await exported(store)
    with pytest.raises(LogTooNew, match=r"position 1 holds 'job\.dreamt' in schema 1"):
        await imported(text)


async def test_import_into_a_log_that_has_events_is_refused() -> None:
    store = await a_log(2)
    text = await exported(store)
    with pytest.raises(InvalidInput, match="not empty: it has 2 events"):
        await import_log(io.BytesIO(text), store)


def _flipped(text: bytes, place: int) -> bytes:
    return text[:place] + bytes([text[place] ^ 1]) + text[place + 1 :]


async def _is_refused(text: bytes) -> bool:
    store = MemoryStore()
    try:
        await import_log(io.BytesIO(text), store)
    except PermanentError:
        return await store.position() == 0 and await store.heads() == {}
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
