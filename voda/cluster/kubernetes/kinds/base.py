"""What a kind of job object is to the rest of the adapter.

Rule: pure; whatever an operator does its own way is known here and nowhere else.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Protocol

from msgspec import Struct

from voda.cluster.kubernetes.objects import JobObject, Pod
from voda.domain.job import JobSpec
from voda.events.types import JobCompleted, JobFailed


class Site(Struct, frozen=True, kw_only=True):
    """What of the cluster a manifest has to fit."""

    gpu_resource: str = "nvidia.com/gpu"
    tolerated_taints: tuple[str, ...] = ("nvidia.com/gpu", "amd.com/gpu")
    """Keys of taints that mark GPU nodes; workers are made to tolerate them."""


class Patch(Struct, frozen=True, kw_only=True):
    """One change of an object: a JSON merge patch (RFC 7386)."""

    body: Mapping[str, Any]
    subresource: str = ""
    """scale, or empty for the object itself."""


class JobKind(Protocol):
    """One served version of one kind."""

    name: ClassVar[str]
    """MPIJob or PyTorchJob."""
    api_version: ClassVar[str]
    """kubeflow.org/v2beta1 or kubeflow.org/v1."""
    plural: ClassVar[str]

    def created(self, spec: JobSpec, site: Site, environment: Mapping[str, str]) -> dict[str, Any]:
        """Return the object to create for a job that was submitted to the API: suspended, at its planned-for shape.

        Worker templates get schedulerName, label, annotation, tolerations; every container of every role gets
        `environment` (a variable the manifest sets itself wins). What the user wrote stays otherwise.
        """
        ...

    def adopted(self, manifest: Mapping[str, Any], spec: JobSpec, site: Site, environment: Mapping[str, str]) -> Patch:
        """Return the patch that makes an object of a user's own ready to be run: suspended, and as `created`.

        Args:
            manifest: the object as the API server has it.
            spec: as it was submitted to the log.
            site: see Site.
            environment: see `created`.
        """
        ...

    def resized(self, replicas: int) -> Patch:
        """Return the patch that lets a running job have that many replicas."""
        ...

    def halted(self) -> Patch:
        """Return the patch that takes a job's pods away; the size stays as it is (see the suspend trap)."""
        ...

    def resumed(self, replicas: int) -> Patch:
        """Return the patch that starts a suspended job, whose pods are gone, with that many replicas."""
        ...

    def replicas(self, job: JobObject) -> int:
        """Return how many replicas the object asks its operator for (a PyTorchJob's Master counts as one)."""
        ...

    def index(self, job_name: str, pod: Pod) -> int | None:
        """Return the replica index of a pod of the job; None for a launcher.

        By the pod's name: with runLauncherAsWorker the index label is off by one.
        """
        ...

    def is_launcher(self, pod: Pod) -> bool:
        """Say whether a pod of a job is its launcher."""
        ...

    def end(self, job: JobObject, pods: Sequence[Pod], job_id: str) -> JobCompleted | JobFailed | None:
        """Return how the job ended, told by its conditions; None while it goes on.

        An end that only a lost worker caused (evicted, its node gone, failed by itself) is none: see `is_broken`.

        Args:
            job: the object.
            pods: of the job, launcher included, as far as they are there.
            job_id: for the fact.
        """
        ...

    def is_broken(self, job: JobObject, pods: Sequence[Pod]) -> bool:
        """Say whether the operator gave the job up for a lost worker, so that it runs on only if it is made anew."""
        ...
