"""The Lease on a real API server: its compare-and-swap, its watch, and how long a handover takes."""

import asyncio
import itertools
from collections.abc import AsyncIterator

import pytest

from tests.kube import deployed
from tests.kube.client import LEASES, NAMESPACES, Client, Refused
from tests.kube.control_plane import ControlPlane, running
from tests.waiting import until
from voda.app.election import ElectionTimeouts
from voda.app.leadership import Leadership
from voda.clock import SystemClock
from voda.controller.leader_epochs import LeaderEpochs
from voda.events.types import LEADERSHIP
from voda.kubernetes_client.api import Api
from voda.kubernetes_client.errors import Conflict
from voda.kubernetes_client.lease import LeaseClient
from voda.log.memory import MemoryStore

SHORT = ElectionTimeouts(duration_s=3.0, renew_deadline_s=2.0, retry_s=0.4)
STEADY = ElectionTimeouts(duration_s=9.0, renew_deadline_s=7.0, retry_s=0.4)
"""Of who waits for one to lapse, while a machine that stands still for some seconds ends no leadership."""
PATIENT = ElectionTimeouts(duration_s=600.0, renew_deadline_s=400.0, retry_s=0.4)
"""Of who waits for none to lapse within a test."""
NAMESPACE = "leases"
_names = (f"lease-{number}" for number in itertools.count())


class Replica:
    """A candidate with connections of its own."""

    def __init__(  # noqa: PLR0913 - who it is, and where
        self,
        api: Api,
        store: MemoryStore,
        lease: str,
        me: str,
        *,
        namespace: str = NAMESPACE,
        terms: ElectionTimeouts = SHORT,
    ) -> None:
        self.api = api
        self.epochs: list[int] = []
        clock = SystemClock()
        client = LeaseClient(api, namespace, lease, clock=clock)
        self.leadership = Leadership(client, LeaderEpochs(store, clock), me, timings=terms)
        self.task = asyncio.get_running_loop().create_task(self.leadership.run(self.lead))

    async def lead(self, epoch: int) -> None:
        self.epochs.append(epoch)
        await asyncio.Event().wait()

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        await self.api.close()


@pytest.fixture
async def hand(control_plane: ControlPlane) -> AsyncIterator[Client]:
    """A client for edits by hand, and the namespace of the tests."""
    async with Client(control_plane) as client:
        if await client.find(NAMESPACES, NAMESPACE) is None:
            await client.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
        yield client


@pytest.fixture
async def api(control_plane: ControlPlane, hand: Client) -> AsyncIterator[Api]:
    opened = await Api.open(control_plane.kubeconfig())
    yield opened
    await opened.close()


def a_client(api: Api, name: str = "") -> LeaseClient:
    return LeaseClient(api, NAMESPACE, name or next(_names), clock=SystemClock())


async def two(plane: ControlPlane, lease: str, terms: ElectionTimeouts = SHORT) -> tuple[Replica, Replica, MemoryStore]:
    """Return a leader and a standby."""
    store = MemoryStore()
    first = Replica(await Api.open(plane.kubeconfig()), store, lease, "first", terms=terms)
    await until(lambda: first.epochs != [])
    second = Replica(await Api.open(plane.kubeconfig()), store, lease, "second", terms=terms)
    await until(lambda: second.leadership.leader == "first")
    return first, second, store


async def test_lease_when_there_is_none_is_made_by_one_of_two(api: Api) -> None:
    client = a_client(api)
    assert await client.read() is None
    takes = [client.take(None, holder=me, transitions=1, duration_s=15) for me in ("a", "b")]
    outcomes = await asyncio.gather(*takes, return_exceptions=True)
    assert sorted(isinstance(outcome, Conflict) for outcome in outcomes) == [False, True]


async def test_lease_when_it_changed_meanwhile_is_not_taken_renewed_or_released(api: Api) -> None:
    client = a_client(api)
    first = await client.take(None, holder="a", transitions=1, duration_s=15)
    second = await client.take(first, holder="b", transitions=2, duration_s=15)
    with pytest.raises(Conflict):
        await client.renew(first)
    with pytest.raises(Conflict):
        await client.release(first)
    with pytest.raises(Conflict):
        await client.take(first, holder="c", transitions=3, duration_s=15)
    assert await client.read() == second


async def test_lease_when_renewed_and_released_keeps_what_is_not_ours(api: Api, hand: Client) -> None:
    name = next(_names)
    client = a_client(api, name)
    taken = await client.take(None, holder="a", transitions=7, duration_s=15)
    await hand.patch(LEASES, (NAMESPACE, name), {"metadata": {"labels": {"team": "ml"}}})
    edited = await client.read()
    assert edited is not None
    renewed = await client.renew(edited)
    assert (renewed.holder, renewed.transitions, renewed.duration_s) == ("a", 7, 15.0)
    assert renewed.renewed_at > taken.renewed_at
    await client.release(renewed)
    kept = await hand.get(LEASES, name, NAMESPACE)
    assert kept["metadata"]["labels"]["team"] == "ml"
    assert kept["spec"]["leaseTransitions"] == 7
    released = await client.read()
    assert released is not None
    assert (released.holder, released.transitions) == ("", 7)


async def test_lease_when_deleted_is_neither_renewed_nor_taken_as_it_was(api: Api, hand: Client) -> None:
    name = next(_names)
    client = a_client(api, name)
    taken = await client.take(None, holder="a", transitions=1, duration_s=15)
    await hand.delete(LEASES, name, NAMESPACE)
    with pytest.raises(Conflict, match="deleted"):
        await client.renew(taken)
    again = await client.take(None, holder="b", transitions=2, duration_s=15)
    with pytest.raises(Conflict):
        await client.take(taken, holder="a", transitions=2, duration_s=15)
    assert await client.read() == again


async def test_watch_tells_of_the_one_lease_alone_from_before_it_is_made_until_it_is_gone(
    api: Api, hand: Client
) -> None:
    name = next(_names)
    client, other = a_client(api, name), a_client(api)
    news = client.watch()
    assert await anext(news) is None
    await other.take(None, holder="x", transitions=1, duration_s=15)
    taken = await client.take(None, holder="a", transitions=1, duration_s=15)
    assert await anext(news) == taken
    assert await anext_of(client, news, taken.version) is not None
    await hand.delete(LEASES, name, NAMESPACE)
    assert await anext(news) is None
    await news.aclose()


async def anext_of(client: LeaseClient, news: AsyncIterator[object], version: str) -> object:
    renewed = await client.read()
    assert renewed is not None
    assert renewed.version == version
    await client.renew(renewed)
    return await anext(news)


async def test_lease_when_its_leader_stops_is_led_by_the_standby_in_a_moment(
    control_plane: ControlPlane, hand: Client
) -> None:
    # Long before the Lease of who stopped would have lapsed.
    first, second, store = await two(control_plane, next(_names), PATIENT)
    await first.stop()
    await until(lambda: second.epochs != [])
    assert (first.epochs, second.epochs) == ([1], [2])
    assert [event.epoch for event in await store.read(0, 10, stream=LEADERSHIP)] == [1, 2]
    await second.stop()


async def test_lease_when_deleted_cleared_or_given_away_by_hand_is_led_in_ever_higher_epochs(
    control_plane: ControlPlane, hand: Client
) -> None:
    name = next(_names)
    first, second, store = await two(control_plane, name, STEADY)

    def led() -> int:
        return len(first.epochs) + len(second.epochs)

    await hand.delete(LEASES, name, NAMESPACE)
    await until(lambda: led() == 2)
    await hand.patch(LEASES, (NAMESPACE, name), {"spec": {"holderIdentity": "ghost", "leaseTransitions": 0}})
    await until(lambda: led() == 3)
    await hand.patch(LEASES, (NAMESPACE, name), {"spec": {"holderIdentity": None}})
    await until(lambda: led() == 4)
    claimed = [event.epoch for event in await store.read(0, 100, stream=LEADERSHIP)]
    assert claimed == sorted(set(claimed))
    assert sorted(first.epochs + second.epochs) == claimed
    await first.stop()
    await second.stop()


async def test_lease_when_campaigned_for_with_voda_s_own_rights_is_led_and_no_other_is(
    control_plane: ControlPlane,
) -> None:
    api = await Api.open(deployed.service_account_kubeconfig(control_plane))
    replica = Replica(api, MemoryStore(), "voda", "me", namespace=deployed.NAMESPACE)
    await until(lambda: replica.epochs != [])
    await until(lambda: replica.leadership.leader == "me")
    async with Client(control_plane, deployed.service_account_token(control_plane)) as own:
        with pytest.raises(Refused):
            await own.get(LEASES, "other", deployed.NAMESPACE)
    await replica.stop()


async def test_leader_when_the_server_is_away_steps_down_in_time_and_leads_again_once_it_is_back() -> None:
    plane = running(controllers=False)
    try:
        async with Client(plane) as hand:
            await hand.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
        replica = Replica(await Api.open(plane.kubeconfig()), MemoryStore(), "voda", "me")
        await until(lambda: replica.leadership.is_leading)
        loop = asyncio.get_running_loop()
        plane.kill("kube-apiserver")
        died_by, led_at = loop.time(), loop.time()
        while replica.leadership.is_leading:
            # The moment is looked up first: a machine that stands still makes no leader of anybody.
            assert led_at - died_by <= SHORT.renew_deadline_s
            led_at = loop.time()
            await asyncio.sleep(0.01)
        assert replica.leadership.failure.startswith("lease leases/voda: ")
        await asyncio.to_thread(plane.start_api_server)
        await until(lambda: replica.leadership.is_leading)
        # One may have been taken whose answer was lost.
        assert replica.epochs == sorted(set(replica.epochs))
        assert replica.leadership.failure == ""
        await replica.stop()
    finally:
        plane.stop()
