"""The cluster at any moment, as a slider asks for it, and what happened over time."""

import asyncio
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import a_fact, a_node, a_spec
from tests.replay.test_time_travel import stored
from tests.unit.telemetry.test_cell_gauges import TWO_TEAMS
from voda.api.presenters.moments import Moment, Moments, changes_view, moment_view
from voda.domain.reasons.nodes import Said
from voda.events.envelope import ANY_VERSION, Event
from voda.events.types import (
    JobFailed,
    JobSubmitted,
    NodeChanged,
    NodeJoined,
    PlanAdopted,
    SettingsChanged,
    VirtualClustersApplied,
    WorkerStarted,
)
from voda.log.memory import MemoryStore
from voda.log.store import EventStore
from voda.projections.cluster.live_cluster import LiveCluster
from voda.projections.timeline import Timeline, integral_until
from voda.timetravel import past as past_module
from voda.timetravel.activity import Activity
from voda.timetravel.past import Past
from voda.wire.moments import ChangesView, MomentView


async def events_of(store: EventStore) -> list[Event]:
    return list(await store.read(0, 10_000))


async def folded(store: EventStore, position: int) -> LiveCluster:
    cluster = LiveCluster()
    for event in await store.read(0, position):
        cluster.apply(event)
    return cluster


# ---- states


async def test_past_when_asked_in_any_order_then_is_the_folded_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(past_module, "_FIRST_APART", 16)
    store = await stored()
    end, rng = await store.position(), Random(7)
    # So few bytes that states are thinned out on the way.
    past = Past(store, most_bytes=20_000)
    for position in [end, 0, *(rng.randint(0, end) for _ in range(40))]:
        found = await past.at(position, lambda cluster: (cluster.position, cluster.dump()))
        assert found == (position, (await folded(store, position)).dump())


async def test_past_when_asked_again_then_reads_from_what_it_keeps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(past_module, "_FIRST_APART", 16)
    store = await stored()
    end = await store.position()
    past, read = Past(store), list[int]()
    await past.at(end, lambda _cluster: None)
    whole = store.read

    async def counted(after: int, limit: int, *, stream: str | None = None) -> object:
        events = await whole(after, limit, stream=stream)
        read.append(len(events))
        return events

    monkeypatch.setattr(store, "read", counted)
    await past.at(end - end % 16 - 1, lambda _cluster: None)
    assert sum(read) <= 16


async def test_walk_when_instants_are_given_then_each_sees_the_events_until_it() -> None:
    store = await stored()
    events = await events_of(store)
    begin, end = events[0].recorded_at, events[-1].recorded_at
    instants = list(np.linspace(begin, end, 30))
    seen = list[tuple[int, float]]()
    start = max(event.position for event in events if event.recorded_at <= begin)
    await Past(store).walk(start, instants, lambda cluster, at: seen.append((cluster.position, at)))
    assert [at for _, at in seen] == instants
    for position, at in seen:
        assert position == max(event.position for event in events if event.recorded_at <= at)


async def test_walk_when_the_log_ends_then_ends_with_its_end() -> None:
    store = await stored()
    events = await events_of(store)
    seen = list[int]()
    last = events[-1].recorded_at
    await Past(store).walk(
        events[-2].position, [last, last + 10, last + 20], lambda cluster, _: seen.append(cluster.position)
    )
    assert seen == [events[-2].position, events[-1].position]


async def test_walk_when_it_takes_long_then_others_do_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(past_module, "PAGE_FOLDED", 5)
    store = await stored()
    end, whole = await store.position(), store.read
    is_far, may_go_on = asyncio.Event(), asyncio.Event()

    async def slowly(after: int, limit: int, *, stream: str | None = None) -> object:
        if after >= 50:
            is_far.set()
            await may_go_on.wait()
        return await whole(after, limit, stream=stream)

    monkeypatch.setattr(store, "read", slowly)
    past, seen = Past(store), list[tuple[int, bytes]]()
    last = (await whole(0, 10_000))[-1].recorded_at
    walking = asyncio.create_task(
        past.walk(10, [0.0, last + 1], lambda cluster, _: seen.append((cluster.position, cluster.dump())))
    )
    await is_far.wait()
    async with asyncio.timeout(20):
        assert await past.at(20, lambda cluster: cluster.dump()) == (await folded(store, 20)).dump()
    may_go_on.set()
    await walking
    assert seen == [(position, (await folded(store, position)).dump()) for position in (10, end)]
    assert await past.at(end, lambda cluster: cluster.position) == end


# ---- records


def applied(moment: MomentView, changes: ChangesView) -> MomentView:
    """Return a moment with changes, as a page has it."""
    pools = {pool.name: pool for pool in (*moment.pools, *changes.pools)}
    nodes = {node.name: node for node in (*moment.nodes, *changes.nodes) if node.name not in changes.gone_nodes}
    jobs = {job.job_id: job for job in (*moment.jobs, *changes.jobs) if job.job_id not in changes.gone_jobs}
    return MomentView(
        position=changes.position,
        at=changes.at,
        end=changes.end,
        pools=tuple(pools.values()),
        nodes=tuple(nodes.values()),
        jobs=tuple(jobs.values()),
    )


def in_order(view: MomentView) -> tuple[object, ...]:
    return (
        sorted(view.pools, key=lambda pool: pool.name),
        sorted(view.nodes, key=lambda node: node.name),
        sorted(view.jobs, key=lambda job: job.job_id),
    )


@pytest.mark.parametrize("name", ["elastic-fifo", "elastic-tiresias"])
async def test_moments_when_made_one_after_the_other_then_are_as_made_anew(name: str) -> None:
    store = await stored(name)
    cluster, moments = LiveCluster(), Moments()
    shown: MomentView | None = None
    before: Moment | None = None
    for event in await events_of(store):
        cluster.apply(event)
        after = moments.moment(cluster, event.recorded_at)
        anew = moment_view(Moments().moment(cluster, event.recorded_at), 0)
        assert in_order(moment_view(after, 0)) == in_order(anew)
        shown = anew if shown is None or before is None else applied(shown, changes_view(before, after, 0))
        assert in_order(shown) == in_order(anew)
        before = after


async def test_moments_when_settings_or_virtual_clusters_change_then_are_as_made_anew() -> None:
    cluster, moments = LiveCluster(), Moments()
    facts = (
        NodeJoined(node=a_node("n1", gpus=4)),
        NodeJoined(node=a_node("n2", gpus=4)),
        JobSubmitted(spec=a_spec("a")),
        WorkerStarted(job_id="a", workers={0: "n1"}),
        NodeChanged(node=a_node("n1", gpus=4, is_ready=False)),
        SettingsChanged(pool="default", settings={"node_grace_s": 7.0}),
        VirtualClustersApplied(pool="default", cells=TWO_TEAMS),
    )
    for number, fact in enumerate(facts, 1):
        cluster.apply(an_event(number, fact, at=float(number)))
        shown, anew = moments.moment(cluster, 1.0), Moments().moment(cluster, 1.0)
        assert in_order(moment_view(shown, 0)) == in_order(moment_view(anew, 0))
    assert anew.nodes["n1"].workers_stay_until is not None
    assert anew.jobs["a"].guaranteed_replicas is not None


async def test_changes_when_nothing_happened_then_are_empty() -> None:
    cluster, moments = await folded(await stored(), 60), Moments()
    first, second = moments.moment(cluster, 1.0), moments.moment(cluster, 2.0)
    assert first.jobs
    changes = changes_view(first, second, 60)
    assert (changes.pools, changes.nodes, changes.jobs) == ((), (), ())


# ---- activity


async def test_activity_when_compared_with_the_timeline_then_has_the_same_means() -> None:
    activity, timeline = Activity(), Timeline()
    for event in await events_of(await stored()):
        activity.apply(event)
        timeline.apply(event)
    assert activity.begins_at is not None
    since, until = activity.begins_at, activity.known_until
    row = activity.between(since, until, 4)
    steps, bounds = timeline.steps(), np.linspace(since, until, 5)
    for ours, theirs in (
        (row.gpus_in_use, steps.gpus_in_use),
        (row.capacity, steps.capacity),
        (row.running, steps.running),
        (row.waiting, steps.queued),
    ):
        expected = np.diff(integral_until(steps.at_s, theirs, bounds)) / np.diff(bounds)
        # A bound falls into a stretch, of which each side then has its part of the mean.
        assert ours == pytest.approx(expected, rel=0.02, abs=0.02)


@given(st.lists(st.floats(0, 1e7), min_size=1, max_size=60), st.integers(1, 40))
def test_activity_when_events_lie_anywhere_then_none_is_lost(instants: list[float], stretches: int) -> None:
    activity = Activity()
    for number, at in enumerate(instants, 1):
        activity.apply(an_event(number, JobFailed(job_id="a", reason=Said(text="")), at=at))
    assert activity.begins_at is not None
    row = activity.between(activity.begins_at, activity.known_until + 1e5, stretches)
    assert row.failures.sum() == pytest.approx(len(instants))


def test_activity_when_it_is_long_then_keeps_its_bounds_and_its_sums() -> None:
    activity = Activity()
    activity.apply(an_event(1, NodeJoined(node=a_node(gpus=4)), at=0.0))
    activity.apply(an_event(2, JobSubmitted(spec=a_spec("a")), at=0.0))
    activity.apply(an_event(3, WorkerStarted(job_id="a", workers={0: "n1"}), at=10_000.0))
    activity.apply(an_event(4, a_plan(), at=40_000.0))
    row = activity.between(0.0, 40_000.0, 4)
    assert row.gpus_in_use == pytest.approx([0, 1, 1, 1], abs=1e-3)
    assert row.waiting == pytest.approx([1, 0, 0, 0], abs=1e-3)
    assert row.capacity == pytest.approx([4] * 4)
    assert (row.decisions.sum(), row.resizes.sum()) == (1, 2)


def test_activity_when_asked_beyond_the_log_then_knows_nothing_there() -> None:
    activity = Activity()
    activity.apply(an_event(1, NodeJoined(node=a_node(gpus=4)), at=100.0))
    activity.apply(an_event(2, NodeJoined(node=a_node("n2", gpus=4)), at=200.0))
    assert list(activity.between(0.0, 400.0, 4).capacity) == pytest.approx([0, 4, 0, 0], abs=0.1)
    assert list(activity.between(0.0, 400.0, 4, lasts_until=400.0).capacity) == pytest.approx([0, 4, 8, 8], abs=0.1)
    assert list(activity.between(0.0, 400.0, 4, lasts_until=150.0).capacity) == pytest.approx([0, 4, 0, 0], abs=0.1)
    assert list(Activity().between(0.0, 1.0, 2).capacity) == [0, 0]


def a_plan() -> PlanAdopted:
    return PlanAdopted(
        pool="default",
        number=1,
        based_on=3,
        policy="elastic-fifo",
        placer="packed",
        cause="tick",
        placed={"a": ("n1",)},
        released=("b",),
    )


def an_event(position: int, data: object, *, at: float) -> Event:
    return Event(
        position=position,
        stream="s.s",
        version=position,
        event_id=str(position),
        type="",
        schema=1,
        recorded_at=at,
        actor="",
        correlation_id="",
        causation_id="",
        epoch=0,
        data=data,  # type: ignore[arg-type]
    )


async def test_activity_when_read_on_then_goes_on_where_it_was() -> None:
    store = MemoryStore()
    past = Past(store)
    await past.read_on(0)
    assert past.activity.position == 0
    await store.append("node.n1", ANY_VERSION, [a_fact("1", at=5.0)])
    await past.read_on(1)
    await past.read_on(1)
    assert (past.activity.position, past.activity.begins_at) == (1, 5.0)
