"""Requests that jobs give up GPUs, where jobs, policies, claims and the log are in their way; on virtual time.

Rule: no job loses its place for a pod, and no pod makes jobs shrink and grow again for ever.
"""

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.integration.memory_cluster.sharing.test_claims_in_cluster import Story, a_story, refuse_claims_of
from tests.integration.memory_cluster.sharing.test_gpu_requests import facts, requests, withhold
from tests.kube.client import CLAIM_TEMPLATES
from tests.kube.devices import CLASS, a_claim_template, claims_of
from tests.kube.objects import an_mpijob
from voda.application.journal import Journal
from voda.cluster.kubernetes.state.claim_ledger import LedgerGpu
from voda.domain.errors import StoreNotWritable
from voda.events.types import PlanAdopted, ShareRequested, ShareRequestWithdrawn

pytestmark = pytest.mark.virtual_time


@asynccontextmanager
async def around(gpus: Mapping[str, int], **pool: Any) -> AsyncIterator[Story]:
    """Run a story whose pool decides at once, with templates of one and of two whole GPUs."""
    async with a_story(gpus, pools={"v100": {"ratelimitSeconds": 0.0, **pool}}) as it:
        two = {"exactly": {"deviceClassName": CLASS, "count": 2}}
        await it.world.client.create(CLAIM_TEMPLATES, a_claim_template("one", "ns"))
        await it.world.client.create(CLAIM_TEMPLATES, a_claim_template("two", "ns", request=two))
        yield it


async def submit(it: Story, name: str, workers: int = 1, **limits: int) -> None:
    """Submit a job whose workers claim a whole GPU each."""
    await it.world.submit(an_mpijob(name, "ns", workers, gpus=0, worker_spec=claims_of("one"), **limits))


def sizes(it: Story) -> dict[str, int]:
    """Return job -> its workers in the plan."""
    cluster = it.replica.service.view.cluster
    return {
        cluster.jobs(pool)[job_id].spec.name: len(nodes)
        for pool in cluster.pools()
        for job_id, nodes in cluster.plan(pool).placement.items()
        if job_id in cluster.jobs(pool)
    }


async def until_planned(it: Story, **jobs: int) -> None:
    await it.world.until(lambda: sizes(it) == jobs, what=f"{jobs} are planned")


async def releases(it: Story) -> Sequence[str]:
    """Return the jobs that plans halted."""
    return [job for fact in await facts(it, PlanAdopted) for job in fact.released]


async def test_job_of_low_priority_is_not_preempted_for_what_one_of_high_priority_could_spare() -> None:
    async with around({"n1": 4}) as it:
        await submit(it, "lo", least=1, most=1)
        await submit(it, "hi", least=1, most=3, priority=1)
        await until_planned(it, lo=1, hi=3)
        await it.submit("a")
        await it.wait(600)
        assert sizes(it) == {"lo": 1, "hi": 3}
        assert not await releases(it)


async def test_rigid_job_is_not_preempted_and_gives_up_nothing() -> None:
    async with around({"n1": 4}, policy="fifo") as it:
        await submit(it, "train", 4, least=1, most=4)
        await until_planned(it, train=4)
        await it.submit("a")
        await it.wait(600)
        assert sizes(it) == {"train": 4}
        assert not await releases(it)


async def test_request_that_would_displace_a_job_is_not_made_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async with around({"n1": 4}) as it:
        await submit(it, "hi", 3, least=1, most=3, priority=1)
        await until_planned(it, hi=3)
        await submit(it, "waits", 3, least=3, most=3)
        await it.wait(3)
        await submit(it, "lo", least=1, most=1)
        await until_planned(it, hi=3, lo=1)
        withhold(it, monkeypatch)
        before = len(await facts(it, PlanAdopted))
        await it.submit("a")
        await it.wait(300)
        assert len(await facts(it, ShareRequested)) <= 2
        assert len(await facts(it, PlanAdopted)) == before


async def test_job_of_a_priority_below_that_of_pods_keeps_none_from_a_gpu() -> None:
    async with around({"n1": 4}) as it:
        await submit(it, "train", 4, least=1, most=4)
        await until_planned(it, train=4)
        await submit(it, "later", 3, least=3, most=3, priority=-1)
        await it.wait(5)
        await it.submit("a")
        await it.until_selects("a", "n1-0")
        assert sizes(it) == {"train": 3}


async def test_pod_whose_claims_are_refused_makes_jobs_shrink_ever_more_seldom() -> None:
    async with around({"n1": 2}) as it:
        await submit(it, "train", 2, least=1, most=2)
        await until_planned(it, train=2)
        refuse_claims_of(it.replica, "a-")
        await it.submit("a")
        await it.wait(2 * 3600)
        # After 5 minutes, then 10, 20, 40 and 60.
        assert len(await facts(it, ShareRequested)) <= 6


async def test_pod_that_needs_two_gpus_gets_them_before_others_that_need_one(monkeypatch: pytest.MonkeyPatch) -> None:
    async with around({"n1": 6}) as it:
        await submit(it, "train", 6, least=1, most=6)
        await until_planned(it, train=6)
        free = set[int]()
        open_alone(it, monkeypatch, free)
        await it.submit("big", **claims_of("two"))
        await it.world.until(lambda: requests(it) == 1)
        for number in range(2):
            await it.submit(f"small-{number}", **claims_of("one"))
            free.add(number)
            await it.wait(1)
        await it.world.until(lambda: "big" in it.recorded(), what="the pod with two GPUs has them")
        assert it.recorded().keys() == {"big"}
        assert not await facts(it, ShareRequestWithdrawn)


async def test_request_in_vain_is_counted_once_however_often_the_log_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    async with around({"n1": 2}) as it:
        await submit(it, "train", 2, least=1, most=2)
        await until_planned(it, train=2)
        withhold(it, monkeypatch)
        await it.submit("a")
        await it.world.until(lambda: requests(it) == 1)
        record, is_down = Journal.record, True

        async def refuse(self: Journal, *given: Any, **around: Any) -> Any:
            if is_down and isinstance(given[0], ShareRequestWithdrawn):
                raise StoreNotWritable("down")
            return await record(self, *given, **around)

        monkeypatch.setattr(Journal, "record", refuse)
        await it.wait(75)
        is_down = False
        await it.world.until(lambda: requests(it) == 0)
        await it.wait(320)
        assert len(await facts(it, ShareRequested)) == 2


def open_alone(it: Story, monkeypatch: pytest.MonkeyPatch, free: Collection[int]) -> None:
    """Have the leader find all GPUs in use but these, which may change."""
    placer = it.replica.service.shares._placer
    assert placer is not None

    def closed(node: str, gpus: Sequence[LedgerGpu], planned: int) -> Mapping[int, str]:
        return dict.fromkeys((index for index in range(len(gpus)) if index not in free), "in use by jobs")

    monkeypatch.setattr(placer.claimants, "_closed_gpus", closed)
