"""Snapshots of a running voda: of one moment, beside all other work, and ever more seldom while they fail."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from tests.builders import Log, a_spec
from voda.app.runtime import Snapshots
from voda.application.read_model import ReadModel
from voda.clock import VirtualClock
from voda.domain.errors import StoreUnavailable
from voda.events.envelope import ANY_VERSION, Event, Fact
from voda.events.types import AnyFact, JobCompleted, JobProgressed, JobSubmitted
from voda.log.factory import open_store
from voda.log.memory import MemorySnapshots, MemoryStore
from voda.log.store import EventStore, Snapshot

MOST_CPU_S = 0.05
"""For which the event loop may be kept from others by a snapshot."""
LABELS = {f"example.com/label-{number}": "v" * 60 for number in range(20)}


class FailingSnapshots(MemorySnapshots):
    """Takes no snapshot while it fails."""

    fails = True

    async def save(self, snapshot: Snapshot) -> None:
        if self.fails:
            raise StoreUnavailable("string or blob too big")
        await super().save(snapshot)


def folded(view: ReadModel, facts: list[AnyFact]) -> list[Event]:
    log = Log()
    for fact in facts:
        event = log.add(fact, at=1.0)
        view.live.apply(event)
        view.job_registry.apply(event)
    return log.events


def much(jobs: int, reports: int) -> list[AnyFact]:
    facts: list[AnyFact] = []
    for number in range(jobs):
        job_id, manifest = f"j{number}", {"kind": "MPIJob", "spec": {"text": ["line"] * 50}}
        facts.append(JobSubmitted(spec=a_spec(job_id, user=f"u{number % 7}", labels=LABELS, manifest=manifest)))
        facts += [
            JobProgressed(job_id=job_id, epochs_done=done, workers=1, epoch_s=1.0, metrics={"loss": 0.5, "lr": 0.1})
            for done in range(reports)
        ]
    facts += [JobCompleted(job_id=f"j{number}") for number in range(0, jobs, 2)]
    return facts


async def longest_step_s(until: asyncio.Task[None]) -> float:
    """Return the most CPU time of the event loop's thread between two turns of this task, until another one ends."""
    longest_s, before_s = 0.0, time.thread_time()
    while not until.done():
        await asyncio.sleep(0)
        now_s = time.thread_time()
        longest_s, before_s = max(longest_s, now_s - before_s), now_s
    return longest_s


async def test_event_loop_when_a_large_state_is_taken_is_not_kept_from_others(tmp_path: Path) -> None:
    store = await open_store(tmp_path / "log.db")
    try:
        view = ReadModel(store)
        folded(view, [*much(30, 1_000), *much(4_000, 1)])
        taking = asyncio.create_task(Snapshots(store, view).take())
        assert await longest_step_s(taking) <= MOST_CPU_S
        assert await store.snapshots.latest(view.job_registry.FORMAT) is not None
    finally:
        await store.close()


async def test_state_that_jobs_have_reported_much_to_is_no_larger_than_their_last_reports() -> None:
    view = ReadModel(MemoryStore())
    metrics = {f"{number:03}{'x' * 195}": 0.123456789 for number in range(100)}
    facts: list[AnyFact] = []
    for number in range(6):
        report = JobProgressed(job_id=f"j{number}", epochs_done=1, workers=1, metrics=metrics)
        facts += [JobSubmitted(spec=a_spec(f"j{number}")), *[report] * 100, JobCompleted(job_id=f"j{number}")]
    folded(view, facts)
    assert len(view.job_registry.dump()) + len(view.live.dump()) < 6 * 12_000


@asynccontextmanager
async def following(store: EventStore) -> AsyncIterator[ReadModel]:
    view = ReadModel(store)
    await view.open()
    task = asyncio.create_task(view.run())
    try:
        yield view
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_snapshot_taken_while_others_append_is_of_one_moment() -> None:
    store, clock = MemoryStore(), VirtualClock(1.0)

    async def append(fact: AnyFact) -> int:
        made = Fact(data=fact, event_id=clock.new_id(), recorded_at=clock.now(), actor="test")
        return await store.append(fact.stream, ANY_VERSION, [made])

    async with following(store) as view:
        for number in range(300):
            position = await append(JobSubmitted(spec=a_spec(f"j{number}", labels=LABELS)))
        await view.wait_for(position)
        taking = asyncio.create_task(Snapshots(store, view).take())
        for number in range(300):
            position = await append(JobProgressed(job_id=f"j{number}", epochs_done=1, workers=1))
            await asyncio.sleep(0)
        await taking
        await view.wait_for(position)
        again, at = ReadModel(store), await store.snapshots.latest(view.job_registry.FORMAT)
        assert at is not None
        await again.open()
        assert (again.job_registry.dump(), again.live.dump()) == (view.job_registry.dump(), view.live.dump())
        then = ReadModel(store)
        for event in await store.read(0, at.position):
            then.live.apply(event)
            then.job_registry.apply(event)
        assert then.job_registry.dump() == at.state


async def test_snapshot_that_fails_is_tried_ever_more_seldom_until_one_succeeds(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = MemoryStore()
    store.snapshots = failing = FailingSnapshots()
    view = ReadModel(store)
    folded(view, much(1, 1))
    snapshots, pauses = Snapshots(store, view), list[float]()
    for _ in range(10):
        pauses.append(snapshots.pause_s)
        await snapshots.take()
    assert pauses[:4] == [20.0, 40.0, 80.0, 160.0]
    assert pauses[-1] == 3_600.0
    assert "tried_again_in=40 s reason=string or blob too big" in caplog.text
    failing.fails = False
    await snapshots.take()
    assert snapshots.pause_s == 20.0
