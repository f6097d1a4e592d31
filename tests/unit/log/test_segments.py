"""Segments of a log: whatever is done to a folder of them is noticed, and where is told."""

# ruff: noqa: ASYNC240 - a test may wait for its own disk

import asyncio
import shutil
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.builders import a_fact, a_snapshot, a_spec
from voda.domain.errors import InvalidInput, LogArchived, LogDamaged, LogTooNew, StoreNotWritable, StoreUnavailable
from voda.events.envelope import ANY_VERSION, Fact
from voda.events.types import JobSubmitted
from voda.log.archive import copy
from voda.log.archive.archive import Archive, open_to_add, verify_archive
from voda.log.archive.archive_backed_store import ArchiveBackedStore, SegmentStore
from voda.log.archive.copy import copy_log, copy_to_folder
from voda.log.archive.retention import archive_log, behind_snapshots, older_than
from voda.log.archive.segment import SegmentHeader, header_of, pack_segment
from voda.log.archive.verify import HashChain, verify_log
from voda.log.factory import open_store
from voda.log.memory import MemoryStore
from voda.log.store import PAGE_BYTES, Base

EVENTS = 40


async def a_log(events: int = EVENTS) -> MemoryStore:
    log = MemoryStore()
    for number in range(events):
        await log.append(f"job.{number % 3}", ANY_VERSION, [a_fact(str(number), at=float(number))])
    return log


async def segmented(log: MemoryStore, folder: Path, ends: Sequence[int]) -> Archive:
    """Write segments that end at these positions."""
    with open_to_add(folder) as archive:
        chain = HashChain()
        for end in sorted({*ends, await log.position()}):
            archive.add(await log.read_sealed(chain.position, end - chain.position), chain)
    return archive


def problem(folder: Path) -> tuple[int | None, str]:
    """Return the first damaged position of a folder, and what is wrong."""
    try:
        verdict = verify_archive(Archive.open(folder), HashChain())
    except LogDamaged as error:
        return error.position, str(error)
    return verdict.damaged_at, verdict.problem


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Four segments of ten events each."""
    found = tmp_path / "archive"
    asyncio.run(_four(found))
    return found


async def _four(folder: Path) -> None:
    await segmented(await a_log(), folder, [10, 20, 30, 40])


def segment(folder: Path, first: int) -> Path:
    return next(folder.glob(f"voda-{first:012}-*"))


splits = st.sets(st.integers(1, EVENTS), max_size=8).map(sorted)


@settings(deadline=None, max_examples=30)
@given(splits)
def test_log_split_anywhere_is_put_together_again(ends: list[int]) -> None:
    async def run(folder: Path) -> None:
        log, again = await a_log(), MemoryStore()
        archive = await segmented(log, folder, ends)
        assert verify_archive(archive, chain := HashChain()).is_intact
        assert chain.heads == await log.heads()
        await copy_log(SegmentStore(Archive.open(folder)), again)
        assert await again.read_sealed(0, EVENTS) == await log.read_sealed(0, EVENTS)
        assert await SegmentStore(archive).read(0, EVENTS) == await log.read(0, EVENTS)
        for position in (*ends, EVENTS // 2):
            assert archive.chain(position).position == position
            part = MemoryStore()
            await copy_log(SegmentStore(archive), part, until=position)
            assert archive.chain(position).heads == await part.heads()

    with TemporaryDirectory() as name:
        asyncio.run(run(Path(name)))


@settings(deadline=None, max_examples=60)
@given(ends=splits, data=st.data())
def test_byte_flipped_anywhere_is_noticed_in_the_segment_that_it_is_in(ends: list[int], data: st.DataObject) -> None:
    with TemporaryDirectory() as name:
        archive = asyncio.run(_segmented(Path(name), ends))
        one = data.draw(st.sampled_from(archive.segments))
        content = bytearray(one.path.read_bytes())
        content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
        one.path.write_bytes(content)
        position, told = problem(Path(name))
        assert position == one.first
        assert one.name in told


@settings(deadline=None, max_examples=30)
@given(ends=splits, data=st.data())
def test_segment_cut_anywhere_is_noticed(ends: list[int], data: st.DataObject) -> None:
    with TemporaryDirectory() as name:
        archive = asyncio.run(_segmented(Path(name), ends))
        one = data.draw(st.sampled_from(archive.segments))
        content = one.path.read_bytes()
        one.path.write_bytes(content[: data.draw(st.integers(0, len(content) - 1))])
        position, told = problem(Path(name))
        assert position == one.first
        assert one.name in told


@settings(deadline=None, max_examples=30)
@given(ends=splits.filter(lambda ends: len({*ends, EVENTS}) > 1), data=st.data())
def test_segment_that_is_missing_is_noticed_unless_it_was_the_last(ends: list[int], data: st.DataObject) -> None:
    with TemporaryDirectory() as name:
        archive = asyncio.run(_segmented(Path(name), ends))
        one = data.draw(st.sampled_from(archive.segments[:-1]))
        one.path.unlink()
        position, told = problem(Path(name))
        assert position == one.first
        assert f"positions {one.first} to {one.last} are missing" in told


@settings(deadline=None, max_examples=30)
@given(ends=splits.filter(lambda ends: len({*ends, EVENTS}) > 1), data=st.data())
def test_segments_that_bear_each_others_names_are_noticed(ends: list[int], data: st.DataObject) -> None:
    with TemporaryDirectory() as name:
        archive = asyncio.run(_segmented(Path(name), ends))
        first = data.draw(st.integers(0, len(archive.segments) - 2))
        one, other = archive.segments[first], data.draw(st.sampled_from(archive.segments[first + 1 :]))
        one_content, other_content = one.path.read_bytes(), other.path.read_bytes()
        one.path.write_bytes(other_content)
        other.path.write_bytes(one_content)
        assert problem(Path(name))[0] == one.first


async def _segmented(folder: Path, ends: Sequence[int]) -> Archive:
    return await segmented(await a_log(), folder, ends)


def test_segment_of_another_log_is_noticed_by_the_one_after_it(folder: Path, tmp_path: Path) -> None:
    async def other() -> Path:
        log = MemoryStore()
        for number in range(EVENTS):
            await log.append(f"job.{number % 2}", ANY_VERSION, [a_fact(f"x{number}")])
        await segmented(log, tmp_path / "other", [10, 20, 30, 40])
        return tmp_path / "other"

    strange = asyncio.run(other())
    segment(folder, 11).unlink()
    shutil.copy(segment(strange, 11), folder)
    position, _ = problem(folder)
    assert position == 11


def test_two_segments_of_the_same_positions_are_refused(folder: Path) -> None:
    one = segment(folder, 11)
    shutil.copy(one, one.with_name(one.name.replace("-000000000020-", "-000000000015-")))
    assert "holds positions that another segment holds too" in problem(folder)[1]


def test_segment_of_a_newer_voda_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("voda.log.archive.segment.FORMAT_VERSION", 2)
    archive = asyncio.run(_segmented(tmp_path, []))
    monkeypatch.undo()
    with pytest.raises(LogTooNew, match="written by a newer voda"):
        verify_archive(archive, HashChain())


def test_same_events_make_the_same_file() -> None:
    async def run() -> list[tuple[str, bytes]]:
        return [pack_segment(await (await a_log()).read_sealed(0, EVENTS), HashChain(), "") for _ in range(2)]

    first, second = asyncio.run(run())
    assert first == second


def test_header_says_what_is_within(folder: Path) -> None:
    archive = Archive.open(folder)
    found = header_of(archive.segments[1])
    assert isinstance(found, SegmentHeader)
    assert (found.after, found.last, found.previous) == (10, 20, archive.segments[0].name)


# ---- backups


async def test_backup_adds_what_is_missing_and_changes_nothing_else(tmp_path: Path) -> None:
    log = await a_log()
    first = await copy_to_folder(log, tmp_path / "b")
    before = {path.name: path.read_bytes() for path in (tmp_path / "b").iterdir()}
    assert (await copy_to_folder(log, tmp_path / "b")).events == 0
    await log.append("job.0", ANY_VERSION, [a_fact("new")])
    second = await copy_to_folder(log, tmp_path / "b")
    assert (first.events, second.events, second.position) == (EVENTS, 1, EVENTS + 1)
    after = {path.name: path.read_bytes() for path in (tmp_path / "b").iterdir()}
    assert before.items() < after.items()
    assert len(after) == len(before) + 1


async def test_backup_closes_a_segment_when_it_is_long_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copy, "SEGMENT_EVENTS", 15)
    await copy_to_folder(await a_log(), tmp_path)
    assert [(one.first, one.last) for one in Archive.open(tmp_path).segments] == [(1, 15), (16, 30), (31, 40)]


async def test_backup_of_another_log_or_of_a_restored_one_changes_nothing(tmp_path: Path) -> None:
    log = await a_log()
    await copy_to_folder(log, tmp_path)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(InvalidInput, match="is at position 40, but the log ends at 39"):
        await copy_to_folder(await a_log(39), tmp_path)
    other = await a_log(30)
    for number in range(30, 50):
        await other.append(f"job.{number % 3}", ANY_VERSION, [a_fact(f"other{number}")])
    with pytest.raises(InvalidInput, match=r"by position 31 they have parted \(the log has version 11 of stream job.0"):
        await copy_to_folder(other, tmp_path)
    assert sorted(tmp_path.iterdir()) == before


async def test_copy_to_a_log_that_went_its_own_way_says_where_they_parted() -> None:
    log, copy = await a_log(), MemoryStore()
    await copy_log(log, copy)
    await copy.append("job.1", ANY_VERSION, [a_fact("own")])
    await log.append("job.2", ANY_VERSION, [a_fact("else")])
    await log.append("job.2", ANY_VERSION, [a_fact("else again")])
    with pytest.raises(InvalidInput, match=r"by position 41 they have parted .* of stream job.2 .* of stream job.1"):
        await copy_log(log, copy)
    assert await copy.position() == 41


async def test_two_who_back_up_to_one_folder_take_turns(tmp_path: Path) -> None:
    log = await a_log()
    with open_to_add(tmp_path), pytest.raises(StoreUnavailable, match="another process writes to it"):
        await copy_to_folder(log, tmp_path)
    await copy_to_folder(log, tmp_path)


async def test_backup_into_a_file_or_nowhere_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InvalidInput, match="is a file, expected a folder"):
        await copy_to_folder(await a_log(), tmp_path / "file")
    with pytest.raises(InvalidInput, match="does not exist; create it first"):
        await copy_to_folder(await a_log(), tmp_path / "no" / "where")


# ---- a log and its archive


async def test_log_and_archive_are_read_as_one(tmp_path: Path) -> None:
    log, whole = await a_log(), await a_log()
    retained = await archive_log(log, tmp_path / "a", until=25)
    assert (retained.base, retained.events, retained.position) == (25, 25, EVENTS)
    one = ArchiveBackedStore(log)
    for after, limit in ((0, 100), (0, 10), (20, 10), (24, 2), (25, 5), (39, 5), (40, 5)):
        assert await one.read(after, limit) == await whole.read(after, limit)
        assert await one.read_sealed(after, limit) == await whole.read_sealed(after, limit)
        assert await one.read(after, limit, stream="job.1") == await whole.read(after, limit, stream="job.1")
    tail = one.tail(22)
    async with asyncio.timeout(60):
        assert [(await anext(tail)).position for _ in range(18)] == list(range(23, 41))
        await one.append("job.0", ANY_VERSION, [a_fact("next")])
        assert (await anext(tail)).position == 41


@pytest.mark.parametrize("is_file", [False, True])
async def test_page_of_large_events_of_an_archive_is_bounded_in_bytes(tmp_path: Path, *, is_file: bool) -> None:
    log = await open_store(tmp_path / "voda.db") if is_file else MemoryStore()
    large = JobSubmitted(spec=a_spec("large", manifest={"padding": "x" * 900_000}))
    for number in range(24):
        await log.append("job.large", ANY_VERSION, [Fact(data=large, event_id=f"l{number}", recorded_at=0.0)])
    await log.append("job.a", ANY_VERSION, [a_fact("small")])
    await archive_log(log, tmp_path / "a", until=12)
    one, most = ArchiveBackedStore(log), PAGE_BYTES // 900_000
    assert await one.page_size(0, 100) == await one.page_size(0, 100, stream="job.large") == most
    assert await SegmentStore(Archive.open(tmp_path / "a")).page_size(0, 100) == most
    assert await one.page_size(0, 3) == 3
    assert await one.page_size(10, 100) == 2 + most, "the archive ends: a page of either"
    assert await one.page_size(10, 2) == 2
    assert await one.page_size(0, 50, stream="job.a") == 50
    small = await one.page_size(24, 500)
    assert small == 500
    await one.close()


async def test_log_archived_step_by_step_and_read_meanwhile_is_one(tmp_path: Path) -> None:
    log, whole = await a_log(), await a_log()
    one = ArchiveBackedStore(log)
    for until in (5, 5, 3, 17, EVENTS):
        await archive_log(log, tmp_path / "a", until=until)
        assert await one.read_sealed(0, 100) == await whole.read_sealed(0, 100)
        assert (await verify_log(log)).is_intact
    assert (await log.base()).position == EVENTS - 1, "the last event stays"


async def test_backup_and_archive_share_a_folder(tmp_path: Path) -> None:
    log = await a_log()
    await copy_to_folder(log, tmp_path / "a")
    await archive_log(log, tmp_path / "a", until=13)
    assert (await log.base()).position == 13
    await log.append("job.0", ANY_VERSION, [a_fact("next")])
    await copy_to_folder(log, tmp_path / "a")
    assert Archive.open(tmp_path / "a").position == 41
    assert len(await ArchiveBackedStore(log).read_sealed(0, 100)) == 41


async def test_second_archive_gets_what_the_first_one_has(tmp_path: Path) -> None:
    log = await a_log()
    await archive_log(log, tmp_path / "a", until=13)
    await archive_log(log, tmp_path / "b", until=30)
    shutil.rmtree(tmp_path / "a")
    assert len(await ArchiveBackedStore(log).read_sealed(0, 100)) == EVENTS


async def test_nothing_is_forgotten_while_a_segment_is_not_what_was_written(folder: Path) -> None:
    log = await a_log()
    one = segment(folder, 11)
    content = bytearray(one.read_bytes())
    content[len(content) // 2] ^= 1
    one.write_bytes(content)
    with pytest.raises(LogDamaged, match="its bytes are not what was written"):
        await archive_log(log, folder, until=35)
    assert await log.base() == Base()
    assert len(await log.read_sealed(0, 100)) == EVENTS


async def test_archive_of_another_log_is_not_read(folder: Path, tmp_path: Path) -> None:
    other = await a_log(20)
    for number in range(20, 40):
        await other.append(f"job.{number % 2}", ANY_VERSION, [a_fact(f"other{number}")])
    with pytest.raises(InvalidInput, match="by position 21 they have parted"):
        await archive_log(other, folder, until=35)
    await archive_log(other, tmp_path / "own", until=35)
    with pytest.raises(InvalidInput, match="is not the archive of"):
        await ArchiveBackedStore(other, folder).read(0, 1)


async def test_archive_that_is_away_is_told_with_where_it_was(tmp_path: Path) -> None:
    log = await a_log()
    await archive_log(log, tmp_path / "a", until=25)
    (tmp_path / "a").rename(tmp_path / "b")
    with pytest.raises(LogArchived, match=f"up to position 25 were archived to {tmp_path}/a "):
        await ArchiveBackedStore(log).read(0, 1)
    assert len(await ArchiveBackedStore(log, tmp_path / "b").read(0, 100)) == EVENTS


async def test_archive_is_never_written_to_as_a_log(folder: Path) -> None:
    with pytest.raises(StoreNotWritable, match="is an archive, which cannot be written"):
        await SegmentStore(Archive.open(folder)).append("job.a", 0, [a_fact()])


async def test_snapshots_that_are_missing_or_unusable_keep_the_log_whole() -> None:
    def load(state: bytes) -> None:
        if state != b"good":
            raise ValueError("no state")

    log = await a_log()
    with pytest.raises(InvalidInput, match="has no snapshot live-1"):
        await behind_snapshots(log, {"live-1": load})
    await log.snapshots.save(a_snapshot("live-1", 30, b"good"))
    await log.snapshots.save(a_snapshot("roster-1", 20, b"good"))
    assert await behind_snapshots(log, {"live-1": load, "roster-1": load}) == 20
    await log.snapshots.save(a_snapshot("live-1", 35, b"bad"))
    with pytest.raises(InvalidInput, match="the newest snapshot live-1, at position 35, cannot be loaded"):
        await behind_snapshots(log, {"live-1": load})


async def test_events_are_as_old_as_they_say(tmp_path: Path) -> None:
    log = await a_log()
    assert [await older_than(log, at) for at in (-1.0, 0.0, 0.5, 20.0, 1e9)] == [0, 0, 1, 20, EVENTS]
    await archive_log(log, tmp_path / "a", until=25)
    assert [await older_than(log, at) for at in (3.0, 30.0)] == [25, 30]
