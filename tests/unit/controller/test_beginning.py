"""Where a reader of the log begins: from a snapshot, or from what another one folded; never twice from the start."""

from hashlib import sha256
from pathlib import Path

import pytest

from tests.builders import a_node, a_spec
from voda.app.runtime import Snapshots, last_recorded_at
from voda.application.read_model import ReadModel
from voda.clock import VirtualClock
from voda.controller.controller import Controller
from voda.controller.follower import catch_up, restore
from voda.controller.snapshots import take_snapshots
from voda.domain.errors import LogArchived
from voda.events.envelope import ANY_VERSION, Fact
from voda.events.types import AnyFact, JobSubmitted, NodeJoined, PlanAdopted
from voda.log.factory import open_store
from voda.log.memory import MemoryStore
from voda.log.store import Base, EventStore, Snapshot
from voda.placement import PLACERS
from voda.policies import POLICIES
from voda.projections.live import Live

CLOCK = VirtualClock(1000.0)


async def add(store: EventStore, *facts: AnyFact) -> int:
    position = 0
    for data in facts:
        fact = Fact(data=data, event_id=CLOCK.new_id(), recorded_at=CLOCK.now())
        position = await store.append(data.stream, ANY_VERSION, [fact])
    return position


async def folded(store: EventStore) -> Live:
    live = Live()
    await catch_up(store, [live], after=0)
    return live


def a_controller(store: EventStore, live: Live | None = None) -> Controller:
    return Controller(
        pool="default", store=store, clock=CLOCK, policies=POLICIES.choose, placers=PLACERS.choose, initial=live
    )


async def keep_unreadable(store: EventStore, position: int) -> None:
    state = b"\xc1 of another version"
    state_hash = sha256(state).hexdigest()
    await store.snapshots.save(
        Snapshot(name=Live.FORMAT, position=position, state=state, state_hash=state_hash, heads=await store.heads())
    )


async def test_snapshot_that_cannot_be_read_is_passed_over_for_an_older_one() -> None:
    store = MemoryStore()
    at = await add(store, NodeJoined(node=a_node("n1", gpus=2)))
    await take_snapshots(store, [await folded(store)], at)
    await keep_unreadable(store, await add(store, JobSubmitted(spec=a_spec("a"))))
    live = Live()
    assert await restore(store, live) == at
    assert set(live.cluster.nodes("default")) == {"n1"}


async def test_log_with_no_readable_snapshot_is_read_from_its_beginning() -> None:
    store = MemoryStore()
    await keep_unreadable(store, await add(store, NodeJoined(node=a_node("n1", gpus=2))))
    live = Live()
    assert await restore(store, live) == 0
    assert live.state_hash() == Live().state_hash()


async def test_controller_that_begins_where_another_reader_is_decides_as_one_that_read_all() -> None:
    plans = []
    for is_shared in (False, True):
        store = MemoryStore()
        await add(store, NodeJoined(node=a_node("n1", gpus=2)), JobSubmitted(spec=a_spec("a")))
        live = await folded(store)
        await add(store, JobSubmitted(spec=a_spec("b")))
        controller = a_controller(store, live if is_shared else None)
        await controller.lead("me")
        await controller.step()
        plans += [event.data for event in await store.read(0, 100) if isinstance(event.data, PlanAdopted)]
    alone, shared = plans
    assert (alone.placed, alone.reasons, alone.based_on) == (shared.placed, shared.reasons, shared.based_on)
    assert set(alone.placed) == {"a", "b"}


async def test_other_reader_does_not_move_with_a_controller_that_began_there() -> None:
    store = MemoryStore()
    at = await add(store, NodeJoined(node=a_node("n1", gpus=2)))
    live = await folded(store)
    controller = a_controller(store, live)
    await controller.lead("me")
    assert (live.position, controller.live.position > at) == (at, True)


@pytest.mark.parametrize("is_shared", [False, True])
async def test_archived_log_is_led_from_what_was_kept_of_it(tmp_path: Path, is_shared: bool) -> None:
    store = await open_store(tmp_path / "log.db")
    try:
        at = await add(store, NodeJoined(node=a_node("n1", gpus=2)), JobSubmitted(spec=a_spec("a")))
        view = ReadModel(store)
        await view.open()
        await Snapshots(store, view).take()
        await store.forget(Base(position=at, heads=await store.heads()))
        with pytest.raises(LogArchived):
            await store.read(0, 1)
        again = ReadModel(store)
        await again.open()
        assert again.job_registry.dump() == view.job_registry.dump()
        assert await last_recorded_at(store) == 0.0
        controller = a_controller(store, again.live if is_shared else None)
        await controller.lead("me")
        await controller.step()
        (plan,) = [event.data for event in await store.read(at, 100) if isinstance(event.data, PlanAdopted)]
        assert set(plan.placed) == {"a"}
    finally:
        await store.close()


async def test_start_from_an_old_snapshot_leaves_a_newer_one_to_later_starts() -> None:
    store = MemoryStore()
    await add(store, NodeJoined(node=a_node("n1", gpus=2)))
    view = ReadModel(store)
    await view.open()
    await Snapshots(store, view).take()
    at = await add(store, JobSubmitted(spec=a_spec("a")))
    opened = ReadModel(store)
    await opened.open()
    await Snapshots(store, opened).take()
    snapshot = await store.snapshots.latest(Live.FORMAT)
    assert snapshot is not None
    assert snapshot.position == at
