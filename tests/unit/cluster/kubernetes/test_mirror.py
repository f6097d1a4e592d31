"""What is believed of a server that has just started and knows no custom resources yet, on virtual time."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from tests.builders import a_job
from tests.kube.client import MPIJOBS
from tests.kube.memory_api import MemoryApi
from tests.kube.memory_server import MemoryServer
from tests.kube.memory_world import CountingClock, wall_s
from tests.virtual_time import now_s, virtually
from voda.cluster.kubernetes.pools import KubernetesSite, Setup
from voda.cluster.kubernetes.state.nodes import PoolRule
from voda.domain.job import Job


def a_site(server: MemoryServer, jobs: Sequence[Job]) -> KubernetesSite:
    live = {job.spec.job_id: job for job in jobs}
    setup = Setup(
        rule=PoolRule(),
        clock=CountingClock("site"),
        job=live.get,
        past=lambda job_id: None,
        jobs=live.values,
        job_pools=lambda: {job.spec.pool for job in jobs},
    )
    return KubernetesSite(MemoryApi(server), setup)


async def synced_after(site: KubernetesSite) -> float:
    """Run a site, and return after how many seconds it knows the cluster."""
    began, running = now_s(), asyncio.create_task(site.run())
    try:
        await site.synced()
        return now_s() - began
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


def test_jobs_of_a_kind_that_is_not_served_yet_are_waited_for() -> None:
    async def story() -> None:
        server = MemoryServer(wall_s, [])
        asyncio.get_running_loop().call_later(5.0, server.serve, MPIJOBS)
        site = a_site(server, [a_job("a", name="a", namespace="ns", kind="MPIJob", uid="u1")])
        assert 5.0 <= await synced_after(site) < 10.0
        assert list(site.kinds) == ["MPIJob"]

    virtually(story())


def test_kind_that_stays_unserved_is_believed_to_be_so_after_a_while() -> None:
    async def story() -> None:
        site = a_site(MemoryServer(wall_s, []), [a_job("a", name="a", namespace="ns", kind="MPIJob", uid="u1")])
        assert 30.0 <= await synced_after(site) < 35.0

    virtually(story())


def test_cluster_whose_jobs_are_all_of_kinds_that_are_served_is_known_at_once() -> None:
    async def story() -> None:
        assert await synced_after(a_site(MemoryServer(wall_s, []), [])) < 1.0
        served = a_site(MemoryServer(wall_s, [MPIJOBS]), [a_job("a", name="a", namespace="ns", kind="MPIJob")])
        assert await synced_after(served) < 1.0

    virtually(story())
