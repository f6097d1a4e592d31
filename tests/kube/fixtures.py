"""Fixtures: control planes of the test session, and a world of each test on one of them.

Rule: MPIJob v2beta1 and v1 share one name, so each has a control plane of its own, started when first asked for.
"""

import shutil
from collections.abc import AsyncIterator, Iterator

import pytest

from tests.kube.control_plane import MPI_V1, MPI_V2, PYTORCH, ControlPlane, running
from tests.kube.operators.mpi_v1 import MpiOperatorV1
from tests.kube.operators.mpi_v2 import MpiOperatorV2
from tests.kube.operators.pytorch import PyTorchOperator
from tests.kube.world import World


@pytest.fixture(scope="session")
def control_plane() -> Iterator[ControlPlane]:
    """A control plane that serves MPIJob v2beta1 and PyTorchJob."""
    yield from _session(MPI_V2, PYTORCH)


@pytest.fixture(scope="session")
def control_plane_v1() -> Iterator[ControlPlane]:
    """A control plane that serves MPIJob v1 and PyTorchJob."""
    yield from _session(MPI_V1, PYTORCH)


@pytest.fixture
async def world(control_plane: ControlPlane) -> AsyncIterator[World]:
    """An empty cluster with mpi-operator (v2beta1) and training-operator (PyTorchJob)."""
    async with World(control_plane, [MpiOperatorV2, PyTorchOperator]) as made:
        yield made


@pytest.fixture
async def world_v1(control_plane_v1: ControlPlane) -> AsyncIterator[World]:
    """An empty cluster with training-operator alone (MPIJob v1 and PyTorchJob)."""
    async with World(control_plane_v1, [MpiOperatorV1, PyTorchOperator]) as made:
        yield made


def _session(*definitions: str) -> Iterator[ControlPlane]:
    plane = running(controllers=True, scheduler=True, definitions=definitions)
    try:
        yield plane
    finally:
        plane.stop()
        shutil.rmtree(plane.folder, ignore_errors=True)
