"""What every store that outlives its process promises beside EventStore, on every one there is."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path

import pytest

from tests.builders import a_fact, a_snapshot
from tests.contract.logs import KINDS, closing_all, opener
from voda.domain.errors import Fenced, InvalidInput, LogArchived, VersionConflict
from voda.events.envelope import ANY_VERSION, Sealed
from voda.log.append_plan import GroupPlan, plan_copy
from voda.log.archive.copy import copy_log
from voda.log.archive.verify import PAGE, HashChain, verify_log
from voda.log.memory import MemoryStore
from voda.log.store import Base, DurableStore

WAIT_S = 60
Open = Callable[[], Awaitable[DurableStore]]
"""Opens the test's log: once more each time, as another process would."""


@pytest.fixture(params=KINDS)
async def open_log(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Open]:
    """One log, to be opened as often as a test needs."""
    async with closing_all(await opener(request.param, request, tmp_path)) as open_again:
        yield open_again


@pytest.fixture
async def store(open_log: Open) -> DurableStore:
    return await open_log()


async def another(events: int, *, streams: int = 3) -> MemoryStore:
    """Return a log of so many events."""
    log = MemoryStore()
    for number in range(events):
        await log.append(f"job.{number % streams}", ANY_VERSION, [a_fact(str(number), at=float(number))])
    return log


async def plans(log: MemoryStore, *, after: int = 0, until: int | None = None, size: int = 4) -> Sequence[GroupPlan]:
    """Return what a log holds, in parts that follow each other."""
    chain, found = HashChain(), []
    page: list[Sealed] = []
    end = until or await log.position()
    for sealed in await log.read_sealed(0, end):
        chain.step(sealed)
        if sealed.position > after:
            page.append(sealed)
        if page and (len(page) == size or sealed.position == end):
            rows = plan_copy(page).rows
            found.append(GroupPlan(rows, {row[1]: chain.heads[row[1]] for row in rows}, []))
            page = []
    return found


async def base_of(log: DurableStore, position: int) -> Base:
    """Return what is to be forgotten of a whole log up to a position."""
    chain = HashChain()
    for sealed in await log.read_sealed(0, position):
        chain.step(sealed)
    return Base(position=position, heads=chain.heads, folder="/somewhere")


# ---- copies


async def test_events_taken_over_are_the_same_log(store: DurableStore, open_log: Open) -> None:
    log = await another(10)
    after = 0
    for plan in await plans(log):
        await store.take_over(plan, after=after)
        after += len(plan.rows)
    again = await open_log()
    assert await again.read_sealed(0, 100) == await log.read_sealed(0, 100)
    assert await again.read_rows(0, 100) == await log.read_rows(0, 100)
    assert await again.ends() == await log.ends()
    assert (await verify_log(again)).is_intact


async def test_take_over_behind_another_position_changes_nothing(store: DurableStore) -> None:
    first, second, *_ = await plans(await another(12))
    with pytest.raises(VersionConflict, match="expected its end at position 4, got 0"):
        await store.take_over(second, after=4)
    await store.take_over(first, after=0)
    with pytest.raises(VersionConflict, match="expected its end at position 0, got 4"):
        await store.take_over(first, after=0)
    assert await store.position() == 4
    assert (await verify_log(store)).is_intact


async def test_racers_who_take_over_the_same_events_have_them_once(open_log: Open) -> None:
    log = await another(4)
    (plan,) = await plans(log)
    stores = [await open_log() for _ in range(3)]
    outcomes = await asyncio.gather(*(one.take_over(plan, after=0) for one in stores), return_exceptions=True)
    # A store may find that what it was to write is what another one wrote.
    assert {type(outcome) for outcome in outcomes} <= {type(None), VersionConflict}
    assert None in outcomes
    again = await open_log()
    assert await again.read_sealed(0, 100) == await log.read_sealed(0, 100)
    assert (await verify_log(again)).is_intact


async def test_racers_who_take_over_different_events_have_one_winner(open_log: Open) -> None:
    found = [await plans(await another(4, streams=streams)) for streams in (1, 2, 3)]
    stores = [await open_log() for _ in found]
    outcomes = await asyncio.gather(
        *(one.take_over(plan, after=0) for one, (plan,) in zip(stores, found, strict=True)), return_exceptions=True
    )
    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["NoneType", *["VersionConflict"] * 2]
    again = await open_log()
    (winner,) = found[outcomes.index(None)]
    assert [row[7] for row in winner.rows] == [one.hash for one in await again.read_sealed(0, 100)]
    assert (await verify_log(again)).is_intact


async def test_log_goes_on_after_what_it_took_over(store: DurableStore, open_log: Open) -> None:
    here = await open_log()
    await here.append("job.0", 0, [a_fact("0", at=0.0)])
    log = await another(8)
    await store.take_over((await plans(log, after=1, until=8, size=7))[0], after=1)
    assert await here.append("job.0", 3, [a_fact("new")]) == 9
    assert await here.append("job.1", ANY_VERSION, [a_fact("4")]) == 5, "its id is known"
    assert (await verify_log(store)).is_intact


async def test_tail_yields_what_is_taken_over(store: DurableStore) -> None:
    tail = store.tail(0)
    (plan,) = await plans(await another(4))
    await store.take_over(plan, after=0)
    async with asyncio.timeout(WAIT_S):
        assert [(await anext(tail)).position for _ in range(4)] == [1, 2, 3, 4]


async def test_copy_of_pages_of_several_sizes_is_the_log_with_its_snapshots(store: DurableStore) -> None:
    log = await another(PAGE + 7, streams=11)
    await log.snapshots.save(a_snapshot("live", PAGE + 7, b"state", heads=await log.heads()))
    copied = await copy_log(log, store)
    assert (copied.position, copied.events, copied.snapshots) == (PAGE + 7, PAGE + 7, 1)
    assert await store.ends() == await log.ends()
    assert (await verify_log(store)).is_intact


async def test_copy_that_follows_brings_what_is_appended_until_it_is_stopped(store: DurableStore) -> None:
    log = await another(3)
    following = asyncio.create_task(copy_log(log, store, follow=True))
    tail = store.tail(0)
    async with asyncio.timeout(WAIT_S):
        assert [(await anext(tail)).position for _ in range(3)] == [1, 2, 3]
        await log.append("job.0", ANY_VERSION, [a_fact("next")])
        assert (await anext(tail)).position == 4
    following.cancel()
    await asyncio.wait([following])
    assert (await copy_log(log, store)).events == 0
    assert await store.ends() == await log.ends()


# ---- archive


async def test_whole_log_begins_at_the_beginning(store: DurableStore) -> None:
    assert await store.base() == Base()
    await store.append("job.a", 0, [a_fact()])
    assert await store.base() == Base()


async def test_log_that_forgot_its_first_events_says_so_to_who_asks_for_them(
    store: DurableStore, open_log: Open
) -> None:
    await copy_log(await another(10), store)
    base = await base_of(store, 6)
    await store.forget(base)
    for log in (store, await open_log()):
        assert await log.base() == base
        for read in (log.read(5, 10), log.read(0, 1), log.read_sealed(0, 1), log.read_rows(3, 10)):
            with pytest.raises(LogArchived, match=r"up to position 6 were archived to /somewhere") as told:
                await read
            assert told.value.base == 6
        with pytest.raises(LogArchived):
            await anext(log.tail(0))
        assert [event.position for event in await log.read(6, 10)] == [7, 8, 9, 10]
        assert [event.position for event in await log.read(6, 10, stream="job.0")] == [7, 10]


async def test_stream_of_which_nothing_was_archived_is_read_from_the_beginning(store: DurableStore) -> None:
    await copy_log(await another(6), store)
    await store.append("job.new", 0, [a_fact("new")])
    await store.forget(await base_of(store, 6))
    assert [event.position for event in await store.read(0, 10, stream="job.new")] == [7]
    assert await store.read(0, 10, stream="job.unknown") == []
    with pytest.raises(LogArchived):
        await store.read(0, 10, stream="job.0")


async def test_log_that_forgot_goes_on_as_before(store: DurableStore, open_log: Open) -> None:
    log = await another(9)
    await copy_log(log, store)
    await store.append("job.0", ANY_VERSION, [a_fact("led")], epoch=5)
    ends = await store.ends()
    await store.forget(await base_of(store, 6))
    for one in (store, await open_log()):
        assert await one.ends() == ends
        assert (await one.position(), await one.heads(), await one.head("job.1")) == (10, ends[1], ends[1]["job.1"])
        assert await one.append("job.1", ANY_VERSION, [a_fact("7")]) == 8, "what is kept is still known"
        with pytest.raises(Fenced):
            await one.append("job.0", ANY_VERSION, [a_fact("late")], epoch=4)
        with pytest.raises(VersionConflict):
            await one.append("job.2", 0, [a_fact("blind")])
    assert await store.append("job.2", 3, [a_fact("next")]) == 11
    verdict = await verify_log(store)
    assert (verdict.problem, verdict.events, verdict.archived) == ("", 11, 6)


async def test_log_that_forgot_everything_keeps_its_place(store: DurableStore, open_log: Open) -> None:
    await copy_log(await another(5), store)
    await store.forget(await base_of(store, 5))
    again = await open_log()
    await again.refuse_cut()
    assert (await again.position(), (await again.ends())[0]) == (5, 5)
    assert await again.read(5, 10) == []
    with pytest.raises(LogArchived):
        await again.read(0, 10)
    assert (await verify_log(again)).is_intact
    assert await again.append("job.0", 2, [a_fact("next")]) == 6
    assert (await verify_log(store)).is_intact


async def test_tail_goes_on_while_what_it_has_passed_is_forgotten(store: DurableStore) -> None:
    await copy_log(await another(5), store)
    tail = store.tail(3)
    async with asyncio.timeout(WAIT_S):
        assert (await anext(tail)).position == 4
        await store.forget(await base_of(store, 4))
        assert (await anext(tail)).position == 5
        await store.append("job.0", ANY_VERSION, [a_fact("next")])
        assert (await anext(tail)).position == 6


async def test_forgetting_again_or_less_changes_nothing(store: DurableStore) -> None:
    await copy_log(await another(8), store)
    less, more = await base_of(store, 3), await base_of(store, 6)
    for base in (more, more, less):
        await store.forget(base)
        assert await store.base() == more
    assert [event.position for event in await store.read(6, 10)] == [7, 8]


async def test_forgetting_goes_further_step_by_step(store: DurableStore) -> None:
    await copy_log(await another(8), store)
    bases = [await base_of(store, position) for position in (2, 5, 8)]
    for base in bases:
        await store.forget(base)
        assert await store.base() == base
        assert (await verify_log(store)).is_intact


async def test_what_is_not_there_cannot_be_forgotten(store: DurableStore) -> None:
    await copy_log(await another(4), store)
    base = await base_of(store, 4)
    with pytest.raises(InvalidInput, match="ends at position 4"):
        await store.forget(Base(position=5, heads=base.heads))
    assert await store.base() == Base()
    assert len(await store.read(0, 10)) == 4


async def test_log_that_does_not_follow_its_base_is_found_out(store: DurableStore) -> None:
    await copy_log(await another(6), store)
    base, wrong = await base_of(store, 4), await base_of(store, 3)
    await store.forget(Base(position=4, heads={**base.heads, "job.1": wrong.heads["job.2"]}))
    verdict = await verify_log(store)
    assert "job.1" in verdict.problem
