"""A control plane with its peers, for as long as a session of tests: kwok and the operators of all job kinds.

Rule: a peer that ends is started again, as its Deployment would do.
"""

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from tests.kube.client import JOBS, JOBSETS, MPIJOBS, MPIJOBS_V1, PYTORCHJOBS, TRAINJOBS, Resource
from tests.kube.control_plane import JOB_STATES, JOBSET, MPI_V1, MPI_V2, PYTORCH, TRAINERS, ControlPlane, running
from tests.kube.peers.jobset import JobSetController
from tests.kube.peers.kwok import Kwok
from tests.kube.peers.mpi_operator import MpiOperator
from tests.kube.peers.program import Program
from tests.kube.peers.trainer import Trainer
from tests.kube.peers.training_operator import TrainingOperator

GRACE_S = 16
"""After so long without a heartbeat, of which kwok sends one every 3 s, a node is not ready any more."""
_PATIENCE = (f"--node-monitor-grace-period={GRACE_S}s", f"--node-startup-grace-period={4 * GRACE_S}s")


@dataclass
class PeeredCluster:
    """See the module."""

    plane: ControlPlane
    kinds: Sequence[Resource]
    kwok: Kwok
    training_operator: TrainingOperator
    mpi_operator: MpiOperator
    """Not started where MPIJobs are training-operator's; neither is where there are none."""
    jobset: JobSetController
    """Started where there are JobSets."""
    trainer: Trainer | None = None
    """None: there are no TrainJobs."""

    @property
    def peers(self) -> Sequence[Program]:
        """All of them."""
        of_jobsets = (self.jobset,) if JOBSETS in self.kinds else ()
        of_trainjobs = (self.trainer,) if self.trainer is not None else ()
        return self.kwok, self.training_operator, self.mpi_operator, *of_jobsets, *of_trainjobs

    def tend(self) -> None:
        """Start again whichever peer has ended, as soon as the API server is there."""
        for peer in self.peers:
            if peer.is_over() and self.plane.is_ready():
                peer.start_again()


@contextmanager
def cluster_with_peers(*, mpijob_v1: bool = False) -> Iterator[PeeredCluster]:
    """Run a control plane with kwok, training-operator and, for MPIJob v2beta1, mpi-operator.

    Args:
        mpijob_v1: whether MPIJobs are training-operator's.
    """
    definitions = (MPI_V1 if mpijob_v1 else MPI_V2, PYTORCH, JOB_STATES)
    schemes = ("pytorchjob", "mpijob") if mpijob_v1 else ("pytorchjob",)
    with _running([MPIJOBS_V1 if mpijob_v1 else MPIJOBS, PYTORCHJOBS], definitions, schemes) as cluster:
        for peer in cluster.peers[: 2 if mpijob_v1 else None]:
            peer.start()
        yield cluster


@contextmanager
def cluster_of_all_kinds() -> Iterator[PeeredCluster]:
    """Run a control plane with kwok, the operators of MPIJobs v2beta1 and PyTorchJobs, JobSet and Trainer."""
    definitions = (MPI_V2, PYTORCH, JOB_STATES, JOBSET, *TRAINERS)
    with _running([MPIJOBS, PYTORCHJOBS, TRAINJOBS, JOBSETS, JOBS], definitions, ("pytorchjob",)) as cluster:
        cluster.trainer = Trainer(cluster.plane)
        for peer in cluster.peers:
            peer.start()
        yield cluster


@contextmanager
def cluster_of_jobs() -> Iterator[PeeredCluster]:
    """Run a control plane with kwok and no operator: Kubernetes runs Indexed Jobs itself."""
    with _running([JOBS], (JOB_STATES,)) as cluster:
        cluster.kwok.start()
        yield cluster


@contextmanager
def cluster_of_trainjobs() -> Iterator[PeeredCluster]:
    """Run a control plane with kwok, the JobSet controller and Kubeflow Trainer."""
    with _running([TRAINJOBS, JOBSETS, JOBS], (JOBSET, *TRAINERS)) as cluster:
        cluster.trainer = Trainer(cluster.plane)
        for peer in (cluster.kwok, cluster.jobset, cluster.trainer):
            peer.start()
        yield cluster


@contextmanager
def _running(
    kinds: Sequence[Resource], definitions: Sequence[str] = (), schemes: Sequence[str] = ()
) -> Iterator[PeeredCluster]:
    plane = running(scheduler=True, definitions=definitions, controller_flags=_PATIENCE)
    operators = TrainingOperator(plane, schemes), MpiOperator(plane), JobSetController(plane)
    cluster = PeeredCluster(plane, kinds, Kwok(plane), *operators)
    try:
        yield cluster
    finally:
        for peer in cluster.peers:
            peer.stop()
        plane.stop()
        shutil.rmtree(plane.folder, ignore_errors=True)
