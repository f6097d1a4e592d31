"""Fixtures: control planes of the test session, and a world of each test on one of them.

Rules: MPIJob v2beta1 and v1 share one name, so each has a control plane of its own, started when first asked for. A
process of the tests runs those of one family at a time: an idle one takes 3 % of a core.
"""

import shutil
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Set
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

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

Start = Callable[[], AbstractContextManager[Any]]


@contextmanager
def _plane(*definitions: str) -> Iterator[ControlPlane]:
    plane = running(controllers=True, scheduler=True, definitions=definitions)
    try:
        yield plane
    finally:
        plane.stop()
        shutil.rmtree(plane.folder, ignore_errors=True)


_FAMILIES: Final[Mapping[str, Mapping[str, Start]]] = {
    "stand-ins": {
        "control_plane": partial(_plane, MPI_V2, PYTORCH, JOB_STATES),
        "control_plane_v1": partial(_plane, MPI_V1, PYTORCH, JOB_STATES),
    },
    "operators": {"cluster": cluster_with_peers, "cluster_v1": partial(cluster_with_peers, mpijob_v1=True)},
    "jobs": {"jobs_cluster": cluster_of_jobs, "trainjobs_cluster": cluster_of_trainjobs},
}
_ORDER: Final = ("operators", "", "stand-ins", "jobs")
"""The longest file is one of the operators'; "" are files that need none of these, or start their own."""


class Clusters:
    """Those that run, all of one family."""

    def __init__(self) -> None:
        self._family = ""
        self._running: dict[str, Any] = {}
        self._ends = ExitStack()

    def of(self, family: str, name: str) -> Any:
        """Return a cluster that runs; those of other families end."""
        if family != self._family:
            self.close()
            self._family = family
        if name not in self._running:
            self._running[name] = self._ends.enter_context(_FAMILIES[family][name]())
        return self._running[name]

    def close(self) -> None:
        """End all."""
        self._running.clear()
        self._ends.close()


@pytest.fixture(scope="session")
def clusters() -> Iterator[Clusters]:
    """The control planes of this process."""
    made = Clusters()
    yield made
    made.close()


def _cluster_of(family: str, name: str, about: str) -> Any:
    """Return the fixture of a cluster."""

    def cluster(clusters: Clusters) -> Any:
        return clusters.of(family, name)

    cluster.__doc__ = about
    return pytest.fixture(cluster, name=name)


control_plane = _cluster_of("stand-ins", "control_plane", "A control plane that serves MPIJob v2beta1 and PyTorchJob.")
control_plane_v1 = _cluster_of("stand-ins", "control_plane_v1", "A control plane that serves MPIJob v1 and PyTorchJob.")
cluster = _cluster_of(
    "operators",
    "cluster",
    "A control plane with kwok, mpi-operator (MPIJob v2beta1) and training-operator (PyTorchJob).",
)
cluster_v1 = _cluster_of(
    "operators", "cluster_v1", "A control plane with kwok and training-operator (MPIJob v1 and PyTorchJob)."
)
jobs_cluster = _cluster_of("jobs", "jobs_cluster", "A control plane with kwok and no operator.")
trainjobs_cluster = _cluster_of(
    "jobs", "trainjobs_cluster", "A control plane with kwok, the JobSet controller and Kubeflow Trainer."
)


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


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let files that need the same family follow each other, those of most tests first."""
    counts: Counter[Path] = Counter(item.path for item in items)
    needed: defaultdict[Path, set[str]] = defaultdict(set)
    for item in items:
        needed[item.path] |= _families(set(getattr(item, "fixturenames", ())))
    places = {path: max(map(_ORDER.index, families or {""})) for path, families in needed.items()}
    items.sort(key=lambda item: (places[item.path], -counts[item.path], item.path))


def _families(fixtures: Set[str]) -> Set[str]:
    # The world of a kind asks for its cluster only when it is made.
    in_need = {"jobs"} if "kind_world" in fixtures else set()
    return in_need | {family for family, starts in _FAMILIES.items() if fixtures & starts.keys()}
