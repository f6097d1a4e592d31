"""Fixtures: control planes of the test session, and a world of each test on one of them.

Rule: MPIJob v2beta1 and v1 share one name, so each has a control plane of its own, started when first asked for.
"""

import shutil
from collections.abc import AsyncIterator, Iterator

import pytest

from tests.kube.control_plane import JOB_STATES, MPI_V1, MPI_V2, PYTORCH, ControlPlane, running
from tests.kube.operators.mpi_v1 import MpiOperatorV1
from tests.kube.operators.mpi_v2 import MpiOperatorV2
from tests.kube.operators.pytorch import PyTorchOperator
from tests.kube.peers.cluster import (
    PeeredCluster,
    cluster_of_jobs,
    cluster_of_trainjobs,
    cluster_with_peers,
)
from tests.kube.peers.jobs_world import JobsWorld
from tests.kube.peers.world import PeeredWorld
from tests.kube.stand_in_world import StandInWorld


@pytest.fixture(scope="session")
def control_plane() -> Iterator[ControlPlane]:
    """A control plane that serves MPIJob v2beta1 and PyTorchJob."""
    yield from _session(MPI_V2, PYTORCH, JOB_STATES)


@pytest.fixture(scope="session")
def control_plane_v1() -> Iterator[ControlPlane]:
    """A control plane that serves MPIJob v1 and PyTorchJob."""
    yield from _session(MPI_V1, PYTORCH, JOB_STATES)


@pytest.fixture(scope="session")
def cluster() -> Iterator[PeeredCluster]:
    """A control plane with kwok, mpi-operator (MPIJob v2beta1) and training-operator (PyTorchJob)."""
    with cluster_with_peers() as made:
        yield made


@pytest.fixture(scope="session")
def cluster_v1() -> Iterator[PeeredCluster]:
    """A control plane with kwok and training-operator (MPIJob v1 and PyTorchJob)."""
    with cluster_with_peers(mpijob_v1=True) as made:
        yield made


@pytest.fixture(scope="session")
def jobs_cluster() -> Iterator[PeeredCluster]:
    """A control plane with kwok and no operator."""
    with cluster_of_jobs() as made:
        yield made


@pytest.fixture(scope="session")
def trainjobs_cluster() -> Iterator[PeeredCluster]:
    """A control plane with kwok, the JobSet controller and Kubeflow Trainer."""
    with cluster_of_trainjobs() as made:
        yield made


@pytest.fixture
async def jobsets_world(trainjobs_cluster: PeeredCluster) -> AsyncIterator[JobsWorld]:
    """An empty cluster whose jobs are JobSets and TrainJobs."""
    async with JobsWorld(trainjobs_cluster) as made:
        yield made


@pytest.fixture
async def jobs_world(jobs_cluster: PeeredCluster) -> AsyncIterator[JobsWorld]:
    """An empty cluster without operators, whose jobs are Indexed Jobs."""
    async with JobsWorld(jobs_cluster) as made:
        yield made


@pytest.fixture
async def world(cluster: PeeredCluster) -> AsyncIterator[PeeredWorld]:
    """An empty cluster with mpi-operator (MPIJob v2beta1) and training-operator (PyTorchJob)."""
    async with PeeredWorld(cluster) as made:
        yield made


@pytest.fixture
async def world_v1(cluster_v1: PeeredCluster) -> AsyncIterator[PeeredWorld]:
    """An empty cluster with training-operator alone (MPIJob v1 and PyTorchJob)."""
    async with PeeredWorld(cluster_v1) as made:
        yield made


@pytest.fixture
async def stand_in_world(control_plane: ControlPlane) -> AsyncIterator[StandInWorld]:
    """An empty cluster with stand-ins of mpi-operator (MPIJob v2beta1) and training-operator (PyTorchJob)."""
    async with StandInWorld(control_plane, [MpiOperatorV2, PyTorchOperator]) as made:
        yield made


@pytest.fixture
async def stand_in_world_v1(control_plane_v1: ControlPlane) -> AsyncIterator[StandInWorld]:
    """An empty cluster with a stand-in of training-operator alone (MPIJob v1 and PyTorchJob)."""
    async with StandInWorld(control_plane_v1, [MpiOperatorV1, PyTorchOperator]) as made:
        yield made


def _session(*definitions: str) -> Iterator[ControlPlane]:
    plane = running(controllers=True, scheduler=True, definitions=definitions)
    try:
        yield plane
    finally:
        plane.stop()
        shutil.rmtree(plane.folder, ignore_errors=True)
