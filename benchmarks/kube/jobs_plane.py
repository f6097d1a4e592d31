"""A cluster of Indexed Jobs for the length of one figure: the real control plane, and kwok as all kubelets.

Rule: nothing is swept: it goes with its control plane.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from benchmarks.kube.pods import Pods
from benchmarks.kube.seeding import add_nodes, nodes
from tests.kube import client as api
from tests.kube.peers.cluster import PeeredCluster, cluster_of_jobs
from tests.kube.peers.jobs_world import JOB_NAME, JobsWorld
from tests.kube.peers.world import LEASES_OF_NODES


class JobsStage(JobsWorld):
    """A world of Indexed Jobs on a control plane of its own."""

    def __init__(self, cluster: PeeredCluster) -> None:
        super().__init__(cluster)
        self.pods = Pods(self.client, JOB_NAME)

    async def _sweep(self) -> None:
        """Leave everything."""


@asynccontextmanager
async def jobs_plane(count: int) -> AsyncIterator[JobsStage]:
    """Run a cluster of so many nodes of 8 GPUs, whose pods are followed."""
    with cluster_of_jobs() as cluster:
        async with JobsStage(cluster) as world:
            await add_nodes(world.client, nodes(count))
            await world.until_it_is(lambda: _are_leased(world, count))
            async with world.pods.followed():
                yield world


async def _are_leased(world: JobsStage, count: int) -> bool:
    """Say whether kwok has taken up all nodes."""
    await asyncio.sleep(0.5)
    return len(await world.client.list(api.LEASES, LEASES_OF_NODES)) >= count
