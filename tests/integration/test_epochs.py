"""Epochs on the stores that replicas share: none is given twice, and who was overtaken cannot decide any more."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from tests.builders import a_node, a_spec
from voda.clock import SystemClock
from voda.controller.controller import Controller
from voda.controller.leader_epochs import LeaderEpochs
from voda.domain.errors import Fenced, InvalidInput
from voda.events.envelope import ANY_VERSION, Fact
from voda.events.types import AnyFact, JobSubmitted, NodeJoined
from voda.log.archive.verify import HashChain
from voda.log.factory import open_store
from voda.log.sql.postgres import PostgresDatabase
from voda.log.store import Base, DurableStore, EventStore
from voda.placement import PLACERS
from voda.policies import POLICIES

CLOCK = SystemClock()


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
async def stores(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[tuple[EventStore, EventStore]]:
    """One log, opened by two replicas."""
    place: str | Path = tmp_path / "log.db"
    if request.param == "postgres":
        place = str(request.getfixturevalue("postgres_database"))
        await PostgresDatabase.migrate(place)
    opened = (await open_store(place), await open_store(place))
    yield opened
    for store in opened:
        await store.close()


def a_controller(store: EventStore) -> Controller:
    return Controller(pool="default", store=store, clock=CLOCK, policies=POLICIES.choose, placers=PLACERS.choose)


async def test_epoch_when_both_replicas_claim_it_is_one_s(stores: tuple[EventStore, EventStore]) -> None:
    epochs = [LeaderEpochs(store, CLOCK) for store in stores]
    for epoch in range(1, 21):
        assert [await each.highest() for each in epochs] == [epoch - 1] * 2
        claims = [each.claim(epoch, f"replica-{number}") for number, each in enumerate(epochs)]
        outcomes = await asyncio.gather(*claims, return_exceptions=True)
        assert sorted(isinstance(outcome, Fenced) for outcome in outcomes) == [False, True]


async def test_leader_that_was_paused_while_another_took_over_is_fenced(stores: tuple[EventStore, EventStore]) -> None:
    former, later = (a_controller(store) for store in stores)
    await former.lead("former", 3)
    await later.warm()
    await later.lead("later", 4)
    facts: Sequence[AnyFact] = [NodeJoined(node=a_node()), JobSubmitted(spec=a_spec("a"))]
    for data in facts:
        fact = Fact(data=data, event_id=CLOCK.new_id(), recorded_at=CLOCK.now())
        await stores[0].append(data.stream, ANY_VERSION, [fact])
    with pytest.raises(Fenced):
        await former.step()
    await later.step()
    assert later.live.cluster.plan("default").placement != {}
    assert await LeaderEpochs(stores[0], CLOCK).highest() == 4


def led_for(store: EventStore, cluster: str) -> LeaderEpochs:
    async def known() -> str:
        return cluster

    return LeaderEpochs(store, CLOCK, known)


async def test_log_that_was_led_for_one_cluster_is_refused_to_another(stores: tuple[EventStore, EventStore]) -> None:
    await LeaderEpochs(stores[0], CLOCK).claim(1, "before clusters were told apart")
    await led_for(stores[0], "blue").claim(2, "one")
    with pytest.raises(InvalidInput, match=r"belongs to another cluster \(blue; this one is green\)"):
        await led_for(stores[1], "green").claim(3, "two")
    await led_for(stores[1], "blue").claim(3, "three")
    assert await led_for(stores[1], "blue").highest() == 3


async def test_log_of_a_cluster_that_does_not_tell_its_id_is_led_as_before(
    stores: tuple[EventStore, EventStore],
) -> None:
    await led_for(stores[0], "blue").claim(1, "one")
    await led_for(stores[0], "").claim(2, "two")
    assert await led_for(stores[0], "").highest() == 2


async def test_log_whose_first_claims_were_archived_is_refused_to_another_cluster_all_the_same(
    stores: tuple[DurableStore, DurableStore],
) -> None:
    for epoch in (1, 2):
        await led_for(stores[0], "blue").claim(epoch, "one of blue")
    chain = HashChain()
    for sealed in await stores[0].read_sealed(0, 1):
        chain.step(sealed)
    await stores[0].forget(Base(position=1, heads=chain.heads))
    with pytest.raises(InvalidInput, match=r"belongs to another cluster \(blue; this one is green\)"):
        await led_for(stores[1], "green").claim(3, "one of green")
    await led_for(stores[1], "blue").claim(3, "one of blue")
