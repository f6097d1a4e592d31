"""What every EventStore promises, on every store there is."""

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.builders import a_fact, a_snapshot, a_spec
from tests.contract.logs import KINDS, closing_all, opener
from tests.nats import NatsServer
from voda.domain.errors import Fenced, InvalidInput, VersionConflict, VodaError
from voda.events.codec import body_of
from voda.events.envelope import ANY_VERSION, GENESIS, Event, Fact, Head
from voda.events.types import JobSubmitted
from voda.log.append_plan import Append
from voda.log.archive.archive_backed_store import ArchiveBackedStore
from voda.log.archive.verify import VerifyReport, verify_log
from voda.log.factory import open_store
from voda.log.instrumented_store import InstrumentedStore
from voda.log.jetstream.store import JetStreamStore
from voda.log.memory import MemoryStore
from voda.log.sql.postgres import PostgresDatabase
from voda.log.store import PAGE_BYTES, EventStore

WAIT_S = 60
OpenLog = Callable[[], Awaitable[EventStore]]
"""Opens the test's log: once more each time, as another process would."""


@pytest.fixture(params=["timed", *KINDS])
async def open_log(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[OpenLog]:
    """One log, to be opened as often as a test needs."""
    make: OpenLog
    if request.param == "timed":
        timed = InstrumentedStore(ArchiveBackedStore(MemoryStore()))
        make = lambda: asyncio.sleep(0, timed)  # noqa: E731
    else:
        make = await opener(request.param, request, tmp_path)
    async with closing_all(make) as open_again:
        yield open_again


@pytest.fixture
async def store(open_log: OpenLog) -> EventStore:
    return await open_log()


async def ids(store: EventStore, *, stream: str | None = None) -> list[str]:
    return [event.event_id for event in await store.read(0, 10_000, stream=stream)]


async def taken(events: AsyncIterator[Event], count: int) -> list[str]:
    """Return the ids of the next events of a tail."""
    async with asyncio.timeout(WAIT_S):
        return [(await anext(events)).event_id for _ in range(count)]


# ---- order


async def test_append_in_an_empty_log_counts_positions_and_versions_from_one(store: EventStore) -> None:
    assert await store.append("job.a", 0, [a_fact("1"), a_fact("2")]) == 2
    assert await store.append("job.b", 0, [a_fact("3")]) == 3
    events = await store.read(0, 10)
    assert [(event.position, event.stream, event.version) for event in events] == [
        (1, "job.a", 1),
        (2, "job.a", 2),
        (3, "job.b", 1),
    ]


async def test_event_when_read_is_what_was_appended(store: EventStore) -> None:
    fact = a_fact("1", at=1_700_000_000.123456, actor="me", correlation_id="c", causation_id="d")
    await store.append("job.a", 0, [fact], epoch=7)
    (event,) = await store.read(0, 1)
    assert event == Event(
        position=1,
        stream="job.a",
        version=1,
        event_id="1",
        type="job.progressed",
        schema=2,
        recorded_at=1_700_000_000.123456,
        actor="me",
        correlation_id="c",
        causation_id="d",
        epoch=7,
        data=fact.data,
    )


async def test_append_at_a_stale_version_raises_and_writes_nothing(store: EventStore) -> None:
    await store.append("job.a", 0, [a_fact("1")])
    with pytest.raises(VersionConflict, match=r"job\.a: expected version 0, got 1"):
        await store.append("job.a", 0, [a_fact("2")])
    assert await ids(store) == ["1"]


async def test_append_at_any_version_follows_whatever_is_there(store: EventStore) -> None:
    for number in range(3):
        await store.append("job.a", ANY_VERSION, [a_fact(str(number))])
    assert (await store.head("job.a")).version == 3


async def test_append_of_nothing_is_refused(store: EventStore) -> None:
    with pytest.raises(ValueError, match="at least one fact"):
        await store.append("job.a", 0, [])


async def test_racers_for_one_version_have_one_winner(open_log: OpenLog) -> None:
    stores = [await open_log() for _ in range(3)]
    racing = [
        store.append("decisions.default", 0, [a_fact(f"{racer}.{number}")])
        for number in range(10)
        for racer, store in enumerate(stores)
    ]
    outcomes = await asyncio.gather(*racing, return_exceptions=True)
    assert [outcome for outcome in outcomes if not isinstance(outcome, VersionConflict)] == [1]
    assert len(await ids(stores[0])) == 1


async def test_writers_of_several_connections_never_leave_a_gap(open_log: OpenLog) -> None:
    stores = [await open_log() for _ in range(3)]

    async def write(writer: int, store: EventStore) -> None:
        for number in range(15):
            await store.append(f"job.w{writer}", number, [a_fact(f"{writer}.{number}")])

    async with asyncio.timeout(WAIT_S), asyncio.TaskGroup() as writers:
        for writer, store in enumerate(stores):
            writers.create_task(write(writer, store))
    events = await stores[0].read(0, 100)
    assert [event.position for event in events] == list(range(1, 46))
    assert (await verify_log(stores[1])).problem == ""


# ---- batches


async def test_batch_with_a_bad_fact_is_not_written_at_all(store: EventStore) -> None:
    with pytest.raises(InvalidInput, match="epochs_done is not a finite number"):
        await store.append("job.a", 0, [a_fact("1"), a_fact("2", epochs_done=math.nan), a_fact("3")])
    assert await store.position() == 0
    assert await store.head("job.a") == Head()


async def test_append_that_fails_leaves_its_neighbours_alone(store: EventStore) -> None:
    outcomes = await asyncio.gather(
        store.append("job.a", 0, [a_fact("1")]),
        store.append("job.a", 5, [a_fact("2")]),
        store.append("job.b", 0, [a_fact("3", epochs_done=math.inf)]),
        store.append("job.b", 0, []),
        store.append("job.a", 1, [a_fact("4")]),
        return_exceptions=True,
    )
    assert [type(outcome) for outcome in outcomes] == [int, VersionConflict, InvalidInput, ValueError, int]
    assert await ids(store) == ["1", "4"]


@pytest.mark.parametrize(
    ("stream", "fact", "epoch"),
    [
        ("job.\0", a_fact("bad"), 0),
        ("job.\ud800", a_fact("bad"), 0),
        ("job.a", a_fact("\0"), 0),
        ("job.a", a_fact("\udfff"), 0),
        ("job.a", a_fact("bad", actor="\ud800"), 0),
        ("job.a", a_fact("bad", at=math.nan), 0),
        ("job.a", a_fact("bad", at=1e18), 0),
        ("job.a", a_fact("bad", at=-1e11), 0),
        ("job.a", a_fact("bad"), 2**63),
        ("job.a", a_fact("bad"), -1),
    ],
)
async def test_append_that_cannot_be_stored_is_refused_and_its_neighbour_is_not(
    store: EventStore, stream: str, fact: Fact, epoch: int
) -> None:
    outcomes = await asyncio.gather(
        store.append(stream, ANY_VERSION, [fact], epoch=epoch),
        store.append("job.b", 0, [a_fact("good")]),
        return_exceptions=True,
    )
    assert [type(outcome) for outcome in outcomes] == [InvalidInput, int]
    assert await ids(store) == ["good"]


@pytest.mark.parametrize("victim", [0, 3])
async def test_append_that_is_cancelled_leaves_its_neighbours_alone(store: EventStore, victim: int) -> None:
    async with asyncio.timeout(WAIT_S), asyncio.TaskGroup() as group:
        tasks = [group.create_task(store.append(f"job.{n}", 0, [a_fact(str(n))])) for n in range(20)]
        await asyncio.sleep(0)
        tasks[victim].cancel()
    assert {str(n) for n in range(20)} - set(await ids(store)) <= {str(victim)}
    assert await store.append("job.last", 0, [a_fact("last")]) == await store.position()


# ---- idempotence


async def test_same_event_id_appended_again_returns_its_first_position(store: EventStore) -> None:
    first = await store.append("job.a", 0, [a_fact("1")])
    await store.append("job.a", 1, [a_fact("2")])
    assert await store.append("job.a", 0, [a_fact("1")]) == first
    assert await store.append("job.b", ANY_VERSION, [a_fact("1")]) == first
    assert await ids(store) == ["1", "2"]


async def test_same_event_id_in_concurrent_appends_is_recorded_once(open_log: OpenLog) -> None:
    stores = [await open_log(), await open_log()]
    appends = [store.append("job.a", ANY_VERSION, [a_fact("1")]) for store in stores for _ in range(5)]
    assert await asyncio.gather(*appends) == [1] * 10
    assert await stores[0].position() == 1


async def test_batch_known_in_part_adds_only_the_rest(store: EventStore) -> None:
    await store.append("job.a", 0, [a_fact("1"), a_fact("2")])
    assert await store.append("job.a", 2, [a_fact("2"), a_fact("3")]) == 3
    assert await store.append("job.a", 3, [a_fact("4"), a_fact("1")]) == 1
    assert await ids(store) == ["1", "2", "3", "4"]


async def test_batch_that_names_an_event_twice_records_it_once(store: EventStore) -> None:
    assert await store.append("job.a", 0, [a_fact("1"), a_fact("2"), a_fact("1")]) == 1
    assert await ids(store) == ["1", "2"]


# ---- several streams


async def test_appends_to_several_streams_take_effect_together(store: EventStore) -> None:
    batch = [Append(f"job.{name}", 0, [a_fact(name), a_fact(f"{name}2")], 0) for name in "abc"]
    assert await store.append_all(batch) == 6
    assert [(event.stream, event.version) for event in await store.read(0, 10)] == [
        (f"job.{name}", version) for name in "abc" for version in (1, 2)
    ]
    assert await store.append("job.b", 2, [a_fact("more")]) == 7


async def test_appends_to_several_streams_are_recorded_once(store: EventStore) -> None:
    batch = [Append(f"job.{name}", 0, [a_fact(name)], 0) for name in "ab"]
    assert [await store.append_all(batch) for _ in range(2)] == [2, 2]
    assert await ids(store) == ["a", "b"]


async def test_append_to_several_streams_of_which_one_is_refused_writes_nothing(store: EventStore) -> None:
    await store.append("job.b", 0, [a_fact("1")])
    batch = [Append(f"job.{name}", 0, [a_fact(name)], 0) for name in "abc"]
    outcomes = await asyncio.gather(
        store.append_all(batch), store.append("job.c", 0, [a_fact("2")]), return_exceptions=True
    )
    assert [type(outcome) for outcome in outcomes] == [VersionConflict, int]
    assert await ids(store) == ["1", "2"]
    assert await store.head("job.a") == Head()


async def test_append_to_no_stream_is_refused(store: EventStore) -> None:
    with pytest.raises(ValueError, match="at least one fact"):
        await store.append_all([])


# ---- fencing


async def test_former_leader_is_fenced_from_the_stream_the_new_one_wrote_to(open_log: OpenLog) -> None:
    former, new = await open_log(), await open_log()
    await former.append("decisions.default", 0, [a_fact("1")], epoch=1)
    await new.append("decisions.default", 1, [a_fact("2")], epoch=2)
    with pytest.raises(Fenced, match="epoch 1 was followed by epoch 2"):
        await former.append("decisions.default", 2, [a_fact("3")], epoch=1)
    with pytest.raises(Fenced):
        await former.append("decisions.default", ANY_VERSION, [a_fact("4")])
    assert await ids(new) == ["1", "2"]


async def test_fence_around_one_stream_leaves_the_others_open(store: EventStore) -> None:
    await store.append("decisions.default", 0, [a_fact("1")], epoch=9)
    assert await store.append("job.a", 0, [a_fact("2")]) == 2
    assert (await store.head("decisions.default")).epoch == 9


# ---- reading


async def test_read_gives_the_page_after_a_position(store: EventStore) -> None:
    await store.append("job.a", 0, [a_fact(str(number)) for number in range(1, 8)])
    assert [event.position for event in await store.read(2, 3)] == [3, 4, 5]
    assert await store.read(7, 10) == []


async def test_read_of_one_stream_leaves_the_others_out(store: EventStore) -> None:
    for number in range(6):
        await store.append(f"job.{number % 2}", ANY_VERSION, [a_fact(str(number))])
    assert await ids(store, stream="job.1") == ["1", "3", "5"]
    assert [event.event_id for event in await store.read(2, 1, stream="job.1")] == ["3"]
    assert await ids(store, stream="job.none") == []


async def test_page_of_large_events_is_bounded_in_bytes_and_one_of_small_ones_by_their_number(
    open_log: OpenLog,
) -> None:
    store = await open_log()
    large = JobSubmitted(spec=a_spec("large", manifest={"padding": "x" * 900_000}))
    facts = [Fact(data=large, event_id=f"large-{number}", recorded_at=0.0) for number in range(12)]
    for fact in facts:
        await store.append("job.large", ANY_VERSION, [fact])
    await store.append("job.a", 0, [a_fact("small"), a_fact("last")])
    # JetStream does not know how large its events are.
    most = 100 if isinstance(store, JetStreamStore) else PAGE_BYTES // 900_000
    assert await store.page_size(0, 100) == await store.page_size(0, 100, stream="job.large") == most
    assert (await store.page_size(0, 3), await store.page_size(10, 100), await store.page_size(99, 7)) == (3, 100, 7)
    assert await store.page_size(0, 50, stream="job.a") == 50


async def test_every_event_carries_the_hash_of_its_predecessor_in_the_stream(store: EventStore) -> None:
    await store.append("job.a", 0, [a_fact("1")])
    await store.append("job.b", 0, [a_fact("2")])
    await store.append("job.a", 1, [a_fact("3")])
    first, second, third = await store.read_sealed(0, 10)
    assert [body_of(sealed).prev for sealed in (first, second, third)] == [GENESIS, GENESIS, first.hash]
    assert all(sealed.is_intact for sealed in (first, second, third))
    assert await store.heads() == {"job.a": Head(2, third.hash, 0), "job.b": Head(1, second.hash, 0)}


async def test_log_when_opened_again_is_the_same(open_log: OpenLog) -> None:
    before = await open_log()
    await before.append("job.a", 0, [a_fact("1"), a_fact("2")], epoch=3)
    events, heads = await before.read(0, 10), await before.heads()
    await before.close()
    after = await open_log()
    assert (await after.read(0, 10), await after.heads(), await after.position()) == (events, heads, 2)


async def test_store_closed_twice_is_closed_and_its_log_as_it_was(open_log: OpenLog) -> None:
    store = await open_log()
    await store.append("job.a", 0, [a_fact("1")])
    await store.close()
    await store.close()
    assert await ids(await open_log()) == ["1"]


# ---- tail


async def test_tail_yields_what_is_there_and_then_what_comes(store: EventStore) -> None:
    await store.append("job.a", 0, [a_fact("1"), a_fact("2")])
    tail = store.tail(1)
    assert await taken(tail, 1) == ["2"]
    waiting = asyncio.ensure_future(taken(tail, 2))
    await store.append("job.a", 2, [a_fact("3")])
    await store.append("job.b", 0, [a_fact("4")])
    assert await waiting == ["3", "4"]


async def test_tail_yields_what_another_connection_appends(open_log: OpenLog) -> None:
    here, there = await open_log(), await open_log()
    waiting = asyncio.ensure_future(taken(here.tail(0), 3))
    for number in range(3):
        await there.append("job.a", number, [a_fact(str(number))])
    assert await waiting == ["0", "1", "2"]


async def test_tails_of_several_readers_all_see_everything(store: EventStore) -> None:
    waiting = [asyncio.ensure_future(taken(store.tail(0), 30)) for _ in range(3)]
    await asyncio.gather(*(store.append(f"job.{n}", 0, [a_fact(str(n))]) for n in range(30)))
    order = await ids(store)
    assert await asyncio.gather(*waiting) == [order] * 3


# ---- snapshots


async def test_snapshot_when_loaded_is_what_was_saved(store: EventStore) -> None:
    await store.append("job.a", 0, [a_fact("1"), a_fact("2")])
    snapshot = a_snapshot("live-1", 2, b"\x00state\xff", heads=await store.heads())
    await store.snapshots.save(snapshot)
    assert await store.snapshots.latest("live-1") == snapshot
    assert await store.snapshots.latest("live-2") is None


async def test_latest_snapshot_is_the_newest_not_beyond_the_position_asked_for(store: EventStore) -> None:
    await store.append("job.a", 0, [a_fact(str(number)) for number in range(9)])
    for position in (3, 9, 6):
        await store.snapshots.save(a_snapshot("live-1", position, b"%d" % position))
    found = [await store.snapshots.latest("live-1", at_most=at_most) for at_most in (2, 3, 8, 9, None)]
    assert [snapshot and snapshot.position for snapshot in found] == [None, 3, 6, 9, 9]


async def test_snapshot_larger_than_any_value_that_a_store_takes_at_once_is_what_was_saved(store: EventStore) -> None:
    await store.append("job.a", 0, [a_fact("1")])
    snapshot = a_snapshot("live-1", 1, bytes(range(256)) * 14_000, heads=await store.heads())
    await store.snapshots.save(snapshot)
    assert await store.snapshots.latest("live-1") == snapshot


async def test_snapshot_taken_while_others_append_is_no_damage(store: EventStore) -> None:
    await store.append("job.a", 0, [a_fact("1")])
    # Its state is at 1, but by the time it asks for the heads there are three events.
    await store.append("job.b", 0, [a_fact("2"), a_fact("3")])
    await store.snapshots.save(a_snapshot("live-1", 1, b"state", heads=await store.heads()))
    await store.append("job.a", 1, [a_fact("4")])
    assert (await verify_log(store)).problem == ""


async def test_verification_of_a_log_that_grows_meanwhile_finds_nothing(open_log: OpenLog) -> None:
    store, other = await open_log(), await open_log()
    await store.append("job.a", 0, [a_fact(str(number)) for number in range(5000)])

    async def write(verifying: asyncio.Task[VerifyReport]) -> None:
        number = 0
        while not verifying.done():
            await other.append("job.b", number, [a_fact(f"b.{number}")])
            number += 1
            await asyncio.sleep(0.001)

    async with asyncio.timeout(WAIT_S), asyncio.TaskGroup() as group:
        verifying = group.create_task(verify_log(store))
        group.create_task(write(verifying))
    assert verifying.result().problem == ""
    assert verifying.result().events >= 5000


# ---- all stores alike

appends = st.lists(
    st.tuples(
        st.sampled_from(["job.a", "job.b", "decisions.default"]),
        st.integers(-1, 4),
        st.lists(st.integers(0, 12).map(str), min_size=1, max_size=3),
        st.integers(0, 2),
    ),
    max_size=12,
)


@pytest.mark.postgres
@pytest.mark.nats
# The database is emptied for every example, and a stream made.
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(calls=appends)
def test_any_appends_give_the_same_answers_and_bytes_on_every_store(
    calls: Sequence[tuple[str, int, list[str], int]],
    postgres_url: str,
    nats_server: NatsServer,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    async def told(store: EventStore) -> list[object]:
        answers: list[object] = []
        for stream, version, event_ids, epoch in calls:
            facts = [a_fact(event_id) for event_id in event_ids]
            try:
                answers.append(await store.append(stream, version, facts, epoch=epoch))
            except VodaError as error:
                answers.append(str(error))
        answers += [*await store.read_sealed(0, 100), await store.heads(), (await verify_log(store)).problem]
        await store.close()
        return answers

    async def compare() -> None:
        path = tmp_path_factory.mktemp("log") / "log.db"
        await _empty(postgres_url)
        expected = await told(MemoryStore())
        assert await told(await open_store(path)) == expected
        assert await told(await open_store(postgres_url)) == expected
        await JetStreamStore.migrate(stream := nats_server.url())
        assert await told(await open_store(stream)) == expected

    asyncio.run(compare())


@pytest.fixture
def postgres_url(postgres_database: str) -> str:
    asyncio.run(PostgresDatabase.migrate(postgres_database))
    return postgres_database


async def _empty(url: str) -> None:
    database = await PostgresDatabase.open(url)
    await database.write([("TRUNCATE events, streams, snapshots, snapshot_pieces", {})])
    await database.close()
