"""What stand-ins of operators are tested for, of the real operators: stand-ins tell tests nothing that is not so.

Rule: a test of a stand-in runs here too, unless DIFFERENT says why it cannot.
"""

from collections.abc import AsyncIterator
from typing import Final

import pytest

from tests.integration.kubernetes import (
    test_cluster_contract,
    test_kinds_operated,
    test_mpi_v1_operator,
    test_mpi_v2_operator,
    test_pytorch_operator,
)
from tests.kube.client import Object
from tests.kube.peers.cluster import PeeredCluster
from tests.kube.peers.world import PeeredWorld
from tests.kube.world import World

DIFFERENT: Final = {
    "test_v2_job_when_launcher_fails_for_good_fails_with_the_launcher_jobs_reason": "its reason ends with a slash",
    "test_v1_job_is_broken_by_an_evicted_worker": "it is restarting, and its pod is left as it is",
    "test_v1_job_when_a_worker_is_evicted_fails_and_stays_so": "it is restarting, and its pod is left as it is",
    "test_v1_job_when_its_deadline_has_passed_fails_and_loses_its_pods": "it looks only when something else happens",
    "test_v1_job_fails_with_its_launcher": "the reason names the MPIJob's own too",
    "test_torch_worker_when_deleted_under_never_fails_the_job": "a deleted pod goes at once, so its end may go unseen",
}
_TESTED = (
    test_cluster_contract,
    test_kinds_operated,
    test_mpi_v1_operator,
    test_mpi_v2_operator,
    test_pytorch_operator,
)
_TESTS = {
    name: each
    for module in _TESTED
    for name, each in vars(module).items()
    if name.lower().startswith("test") and name not in DIFFERENT and getattr(each, "__module__", "") == module.__name__
}
globals().update(_TESTS, bench=test_cluster_contract.bench)


class PlainWorld(PeeredWorld):
    """Submits jobs as they are."""

    async def submit(self, job: Object) -> Object:
        return await World.submit(self, job)


@pytest.fixture
async def world(cluster: PeeredCluster) -> AsyncIterator[PeeredWorld]:
    async with PlainWorld(cluster) as made:
        yield made


@pytest.fixture
async def world_v1(cluster_v1: PeeredCluster) -> AsyncIterator[PeeredWorld]:
    async with PlainWorld(cluster_v1) as made:
        yield made
