"""What is believed of a server that has just started and knows no custom resources yet, on virtual time."""

import asyncio
from contextlib import suppress

from tests.builders import a_job
from tests.kube.client import MPIJOBS
from tests.kube.cluster_bench import KnownJobs
from tests.kube.memory_api import MemoryApi
from tests.kube.memory_server import MemoryServer
from tests.kube.memory_world import CountingClock, wall_s
from tests.virtual_time import now_s, virtually
from voda.cluster.kubernetes.mirror import ClusterMirror
from voda.cluster.kubernetes.pools import KubernetesPools
from voda.cluster.kubernetes.setup import KubernetesSetup
from voda.cluster.kubernetes.state.nodes import PoolRule
from voda.domain.job import Job


def a_mirror(server: MemoryServer, *jobs: Job) -> ClusterMirror:
    setup = KubernetesSetup(rule=PoolRule(), clock=CountingClock("mirror"), log=KnownJobs(*jobs))
    return KubernetesPools(MemoryApi(server), setup).mirror


async def synced_after(mirror: ClusterMirror) -> float:
    """Run a mirror, and return after how many seconds it knows the cluster."""
    began, running = now_s(), asyncio.create_task(mirror.run())
    try:
        await mirror.synced()
        return now_s() - began
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


def test_jobs_of_a_kind_that_is_not_served_yet_are_waited_for() -> None:
    async def story() -> None:
        server = MemoryServer(wall_s, [])
        asyncio.get_running_loop().call_later(5.0, server.serve, MPIJOBS)
        mirror = a_mirror(server, a_job("a", name="a", namespace="ns", kind="MPIJob", uid="u1"))
        assert 5.0 <= await synced_after(mirror) < 10.0
        assert list(mirror.kinds) == ["MPIJob"]

    virtually(story())


def test_kind_that_stays_unserved_is_believed_to_be_so_after_a_while() -> None:
    async def story() -> None:
        mirror = a_mirror(MemoryServer(wall_s, []), a_job("a", name="a", namespace="ns", kind="MPIJob", uid="u1"))
        assert 30.0 <= await synced_after(mirror) < 35.0

    virtually(story())


def test_cluster_whose_jobs_are_all_of_kinds_that_are_served_is_known_at_once() -> None:
    async def story() -> None:
        assert await synced_after(a_mirror(MemoryServer(wall_s, []))) < 1.0
        served = a_mirror(MemoryServer(wall_s, [MPIJOBS]), a_job("a", name="a", namespace="ns", kind="MPIJob"))
        assert await synced_after(served) < 1.0

    virtually(story())
