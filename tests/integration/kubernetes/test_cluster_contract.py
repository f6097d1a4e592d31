"""The claims of the Cluster port, of KubernetesCluster on a real API server."""

from collections.abc import AsyncIterator

import pytest

from tests.contract.cluster_claims import Bench, ClusterClaims
from tests.kube.cluster_bench import a_kubernetes_bench
from tests.kube.world import World
from voda.kubernetes_client.api import Api


@pytest.fixture
async def bench(world: World) -> AsyncIterator[Bench]:
    async with a_kubernetes_bench(world, await Api.open(world.plane.kubeconfig())) as made:
        yield made


class TestKubernetesCluster(ClusterClaims):
    """The claims."""
