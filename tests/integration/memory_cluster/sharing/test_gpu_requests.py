"""Requests that jobs give up GPUs: who makes them, when they end, and how many there are; on virtual time."""

from collections.abc import Collection, Mapping, Sequence
from typing import TypeVar

import pytest

from tests.integration.memory_cluster.sharing.test_claims_in_cluster import Story, a_story
from tests.kube.client import CLAIM_TEMPLATES, PODS
from tests.kube.devices import a_claim_template, claims_of
from tests.kube.objects import an_mpijob
from voda.cluster.kubernetes.state.claim_ledger import LedgerGpu
from voda.domain.reasons.pods import NoGpuFree, NothingToSpare, NotWaiting
from voda.events.types import AnyFact, ShareRequested, ShareRequestWithdrawn
from voda.operator.sharing.claims.claimants import Claimants

F = TypeVar("F", bound=AnyFact)
pytestmark = pytest.mark.virtual_time
GRACE_S = 200
"""Workers may take as long to leave."""


async def facts(it: Story, kind: type[F]) -> Sequence[F]:
    found = [event.data for event in await it.world.store.read(0, 100_000)]
    return [each for each in found if isinstance(each, kind)]


async def train(it: Story, **limits: int) -> None:
    """Submit a job whose workers claim a whole GPU each, and wait until the plan has as many as it may have."""
    await it.world.client.create(CLAIM_TEMPLATES, a_claim_template("one", "ns"))
    spec = {**claims_of("one"), "terminationGracePeriodSeconds": GRACE_S}
    await it.world.submit(an_mpijob("train", "ns", 1, gpus=0, worker_spec=spec, **limits))
    await it.world.until(lambda: planned(it) == limits["most"], what="the job is planned")


def planned(it: Story) -> int:
    cluster = it.replica.service.view.cluster
    return sum(len(nodes) for pool in cluster.pools() for nodes in cluster.plan(pool).placement.values())


def requests(it: Story) -> int:
    return len(it.replica.service.view.cluster.shares.requests())


async def test_pod_gets_the_gpu_that_a_job_can_spare_and_its_successors_come_beside_it() -> None:
    async with a_story({"n1": 2}) as it:
        await train(it, least=1, most=2)
        await it.submit("a")
        await it.until_selects("a", "n1-0")
        assert planned(it) == 1
        await it.submit("b")
        await it.until_selects("b", "n1-0")
        assert [fact.pod for fact in await facts(it, ShareRequested)] == ["ns/a"]
        assert not await facts(it, ShareRequestWithdrawn)
        for name in "ab":
            await it.world.client.delete(PODS, name, "ns", grace_s=0)
        await it.world.until(lambda: planned(it) == 2, what="the job has its GPU again")


async def test_pod_that_waits_only_for_a_moment_requests_nothing() -> None:
    async with a_story({"n1": 2}) as it:
        await train(it, least=1, most=2)
        await it.submit("a")
        await it.world.client.delete(PODS, "a", "ns", grace_s=0)
        await it.wait(30)
        assert not await facts(it, ShareRequested)


async def test_job_that_needs_its_gpus_is_asked_for_none() -> None:
    async with a_story({"n1": 2}) as it:
        await train(it, least=2, most=2)
        await it.submit("a")
        await it.wait(300)
        assert not await facts(it, ShareRequested)
        assert planned(it) == 2


async def test_request_ends_when_its_pod_is_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    async with a_story({"n1": 2}) as it:
        await train(it, least=1, most=2)
        withhold(it, monkeypatch)
        await it.submit("a")
        await it.world.until(lambda: requests(it) == 1)
        pods = it.replica.service.backend.pods.explanations
        assert pods is not None
        assert "; jobs are to give up GPUs of n1 for it" in pods.explain("ns", "a").reason
        await it.world.client.delete(PODS, "a", "ns", grace_s=0)
        await it.world.until(lambda: requests(it) == 0)
        assert [fact.reason for fact in await facts(it, ShareRequestWithdrawn)] == [NotWaiting()]
        await it.world.until(lambda: planned(it) == 2, what="the job has its GPU again")


async def test_request_in_vain_is_withdrawn_and_made_again_ever_more_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    async with a_story({"n1": 2}) as it:
        await train(it, least=1, most=2)
        withhold(it, monkeypatch)
        await it.submit("a")
        await it.wait(1200)
        assert all(isinstance(fact.reason, NoGpuFree) for fact in await facts(it, ShareRequestWithdrawn))
        # After a minute, then after 5 minutes, then after 10.
        assert len(await facts(it, ShareRequested)) == 3


async def test_pods_that_no_node_can_help_keep_nobody_from_a_request() -> None:
    async with a_story({"n1": 2}) as it:
        await train(it, least=1, most=2)
        for number in range(5):
            await it.submit(f"lost-{number}", nodeSelector={"zone": "nowhere"})
        await it.submit("a")
        await it.until_selects("a", "n1-0")


async def test_worker_that_takes_its_time_to_leave_is_waited_for() -> None:
    async with a_story({"n1": 2}) as it:
        await train(it, least=1, most=2)
        await it.world.until(lambda: len(workers(it)) == 2, what="both workers are there")
        it.world.kubelet.grace_s = GRACE_S
        await it.submit("a")
        await it.wait(150)
        assert len(workers(it)) == 2
        assert not await facts(it, ShareRequestWithdrawn)
        await it.until_selects("a", "n1-0")
        assert len(await facts(it, ShareRequested)) == 1


async def test_oldest_pods_request_gpus_one_of_each_node_and_others_wait_for_room_beside_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with a_story({"n1": 2, "n2": 2}) as it:
        await train(it, least=1, most=4)
        withhold(it, monkeypatch, {"n1", "n2"})
        for name in "abcde":
            await it.submit(name)
            # Pods are as old as Kubernetes says, in whole seconds.
            await it.wait(1)
        await it.wait(5)
        # Two of them fit on one GPU.
        assert {fact.pod: fact.node for fact in await facts(it, ShareRequested)} == {"ns/a": "n2", "ns/c": "n1"}
        withhold(it, monkeypatch, ())
        await it.world.until(lambda: len(it.recorded()) == 5, what="all have GPUs")
        assert planned(it) == 1
        assert not await facts(it, ShareRequestWithdrawn)


async def test_request_that_its_node_cannot_serve_any_more_is_made_of_another_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with a_story({"n1": 2, "n2": 2}) as it:
        await train(it, least=1, most=4)
        withhold(it, monkeypatch, {"n1", "n2"})
        await it.submit("a")
        await it.world.until(lambda: requests(it) == 1)
        [first] = [fact.node for fact in await facts(it, ShareRequested)]
        await it.world.cordon(first)
        await it.wait(4)
        [withdrawn] = await facts(it, ShareRequestWithdrawn)
        assert (withdrawn.node, withdrawn.reason) == (first, NothingToSpare())
        [_, second] = [fact.node for fact in await facts(it, ShareRequested)]
        assert second != first
        # The second time it pauses.
        await it.world.cordon(second)
        await it.wait(4)
        await it.world.cordon(first, False)
        await it.wait(250)
        assert len(await facts(it, ShareRequested)) == 2
        await it.wait(100)
        assert [fact.node for fact in await facts(it, ShareRequested)] == [first, second, first]


def workers(it: Story) -> dict[int, str]:
    """Return the workers of the job, by the log."""
    cluster = it.replica.service.view.cluster
    found: dict[int, str] = {}
    for pool in cluster.pools():
        for job in cluster.jobs(pool).values():
            found |= job.workers
    return found


def withhold(it: Story, monkeypatch: pytest.MonkeyPatch, nodes: Collection[str] = ("n1",)) -> None:
    """Have the leader find all GPUs of some nodes in use, so that no pod gets what is given up for it there."""
    placer = it.replica.service.shares._placer
    assert placer is not None

    def closed(node: str, gpus: Sequence[LedgerGpu], planned: int) -> Mapping[int, str]:
        if node in nodes:
            return dict.fromkeys(range(len(gpus)), "in use by jobs")
        return Claimants._closed_gpus(placer.claimants, node, gpus, planned)

    monkeypatch.setattr(placer.claimants, "_closed_gpus", closed)
