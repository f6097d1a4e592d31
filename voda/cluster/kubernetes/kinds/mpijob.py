"""What both versions of MPIJob have in common: a launcher, and workers whose number is in the spec alone. Pure."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

from voda.cluster.kubernetes.kinds.base import Patch
from voda.cluster.kubernetes.kinds.kubeflow import Kubeflow
from voda.cluster.kubernetes.resources.objects import JobObject
from voda.domain.job import JobSpec


class MPIJob(Kubeflow):
    """An MPIJob; the launcher's host discovery tells running programs of a resize, so any size will do."""

    name: ClassVar[str] = "MPIJob"
    plural: ClassVar[str] = "mpijobs"
    role_specs: ClassVar[str] = "mpiReplicaSpecs"
    roles: ClassVar[Sequence[str]] = ("Launcher", "Worker")
    placed: ClassVar[Sequence[str]] = ("Worker",)

    def can_resize(self, job: JobObject, replicas: int) -> bool:
        """Say whether a running job can have that many replicas without a new start; see JobKind."""
        return "Worker" in job.spec.mpi_replica_specs

    def resized(self, job: JobObject, replicas: int) -> Patch:
        """Return the patch that resizes; there is no /scale of MPIJobs."""
        return Patch(body={"spec": _workers(replicas)})

    def resumed(self, job: JobObject, spec: JobSpec, replicas: int) -> Patch:
        """Return the patch that starts; see JobKind."""
        return Patch(body={"spec": {"runPolicy": {"suspend": False}, **_workers(replicas)}})

    def replicas(self, job: JobObject) -> int:
        """Return how many workers the object asks for."""
        worker = job.spec.mpi_replica_specs.get("Worker")
        if worker is None:
            return 0
        return 1 if worker.replicas is None else worker.replicas

    def _counts(self, roles: frozenset[str], replicas: int) -> Mapping[str, int]:
        return {"Worker": replicas}


def _workers(replicas: int) -> dict[str, dict[str, dict[str, int]]]:
    return {"mpiReplicaSpecs": {"Worker": {"replicas": replicas}}}
