"""What happened is read by pages that are bounded in bytes, for single events may be large."""

from collections.abc import Sequence

from tests.builders import a_fact, a_spec
from voda.application import event_feed
from voda.application.event_feed import EventFilter
from voda.controller.follower import catch_up
from voda.events.envelope import ANY_VERSION, Event, Fact
from voda.events.types import JobSubmitted
from voda.log.memory import MemoryStore
from voda.log.store import PAGE_BYTES
from voda.projections.live import Live
from voda.timetravel.replay import events_between, live_at

LARGE_BYTES = 900_000
JOBS = 40


class WatchedStore(MemoryStore):
    """Notes the most bytes of manifests that were read at once, and how often it was read."""

    most_bytes = 0
    reads = 0

    async def read(self, after: int, limit: int, *, stream: str | None = None) -> Sequence[Event]:
        found = await super().read(after, limit, stream=stream)
        self.reads += 1
        size = sum(LARGE_BYTES for event in found if isinstance(event.data, JobSubmitted))
        self.most_bytes = max(self.most_bytes, size)
        return found


async def a_store() -> WatchedStore:
    store = WatchedStore()
    for number in range(JOBS):
        spec = a_spec(f"a{number}", manifest={"padding": "x" * LARGE_BYTES})
        await store.append(
            f"job.a{number}", 0, [Fact(data=JobSubmitted(spec=spec), event_id=f"e{number}", recorded_at=0.0)]
        )
        await store.append("job.b", ANY_VERSION, [a_fact(f"small-{number}")])
    return store


async def test_state_of_the_past_is_folded_from_all_events_by_pages_of_bounded_bytes() -> None:
    store = await a_store()
    live = await live_at(store, 2 * JOBS - 1)
    assert len(live.cluster.jobs("default")) == JOBS
    assert [event.position async for event in events_between(store)] == list(range(1, 2 * JOBS + 1))
    assert await catch_up(store, [Live()], after=0) == 2 * JOBS
    assert store.most_bytes <= PAGE_BYTES


async def test_page_of_events_for_a_caller_is_bounded_in_bytes_and_the_next_one_goes_on() -> None:
    store = await a_store()
    for wanted in (EventFilter(), EventFilter(types=frozenset({"job.submitted"})), EventFilter(job_id="a3")):
        seen, after = list[Event](), 0
        while after < 2 * JOBS:
            page = await event_feed.page(store, wanted, after=after, limit=200)
            assert sum(LARGE_BYTES for event in page.events if event.type == "job.submitted") <= PAGE_BYTES
            seen += page.events
            after = page.last_position
        assert [event.position for event in seen] == [
            event.position for event in await store.read(0, 500) if wanted(event)
        ]


async def test_page_of_events_newest_first_is_bounded_in_bytes_and_the_next_one_goes_on() -> None:
    store = await a_store()
    for wanted in (EventFilter(), EventFilter(types=frozenset({"job.submitted"})), EventFilter(job_id="a3")):
        seen, before = list[Event](), 2 * JOBS + 1
        while before > 1:
            page = await event_feed.page_before(store, wanted, before=before, limit=200)
            assert sum(LARGE_BYTES for event in page.events if event.type == "job.submitted") <= PAGE_BYTES
            seen += page.events
            before = page.last_position
        assert seen == [event async for event in events_between(store) if wanted(event)][::-1]


async def test_page_of_a_jobs_events_newest_first_reads_a_long_log_a_few_times() -> None:
    store = WatchedStore()
    facts = [a_fact(f"small-{number}") for number in range(20_000)]
    await store.append("job.a", ANY_VERSION, [Fact(data=JobSubmitted(spec=a_spec("a")), event_id="a", recorded_at=0.0)])
    await store.append("job.b", ANY_VERSION, facts)
    page = await event_feed.page_before(store, EventFilter(job_id="a", pool="default"), before=20_002, limit=100)
    assert [event.position for event in page.events] == [1]
    assert store.reads <= 20
