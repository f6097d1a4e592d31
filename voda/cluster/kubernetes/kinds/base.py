"""What a kind of job object is to the rest of the adapter.

Rule: pure; whatever an operator does its own way is known here and nowhere else.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Protocol

from msgspec import Struct

from voda.cluster.kubernetes.resources.objects import JobObject, Pod
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
        """Return the object to create for a job that was submitted to the API: suspended, of the requested size.

        Worker templates (a PyTorchJob's Master's too) get schedulerName, label, annotation and tolerations; every
        container of every role gets `environment` (a variable the manifest sets itself wins). What the user wrote
        stays otherwise; a manifest of MPIJob's other version is converted (voda.manifests.versions).

        Raises:
            ActionRefused: the job has no manifest, or one of another kind.
        """
        ...

    def adopted(self, manifest: Mapping[str, Any], spec: JobSpec, site: Site, environment: Mapping[str, str]) -> Patch:
        """Return the patch that makes an object of a user's own ready to be run: suspended, and as `created`.

        The size stays as it is: less of it in the same patch would leave pods behind (see the suspend trap), and a
        start sets it anyway. Made again on what it led to, the patch changes nothing. It names the resourceVersion
        it was made for, so it may be answered by Conflict: read the object and make it again.

        Args:
            manifest: the object as the API server has it.
            spec: as it was submitted to the log.
            site: see Site.
            environment: see `created`.
        """
        ...

    def outdated(self, namespace: str, name: str) -> Sequence[str]:
        """Return the paths of what the operator made of an object's templates and keeps as it was made.

        To be deleted once an object of a user's own was made ready; the operator makes it again.
        """
        ...

    def can_resize(self, job: JobObject, replicas: int) -> bool:
        """Say whether a running job can have that many replicas without a new start.

        Torch agents are told least and most of them when their pods are made. Where this is False, halt the job: the
        next `resumed` takes the spec's new bounds.
        """
        ...

    def resized(self, job: JobObject, replicas: int) -> Patch:
        """Return the patch that lets a running job have that many replicas."""
        ...

    def halted(self) -> Patch:
        """Return the patch that takes a job's pods away; the size stays as it is (see the suspend trap)."""
        ...

    def resumed(self, job: JobObject, spec: JobSpec, replicas: int) -> Patch:
        """Return the patch that starts a suspended job, whose pods are gone, with that many replicas.

        Args:
            job: the object.
            spec: of the job as the log has it now: its bounds may have changed since the object was made.
            replicas: to start with.
        """
        ...

    def replicas(self, job: JobObject) -> int:
        """Return how many replicas the object asks its operator for (a PyTorchJob's Master counts as one)."""
        ...

    def index(self, job_name: str, pod: Pod) -> int | None:
        """Return the replica index of a pod of the job; None for a launcher and for what is no replica.

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
        """Say whether the operator gave the job up for a lost worker, so that it runs on only if it is made anew.

        Never both this and `end`. mpi-operator (v2beta1) never gives up: there it is enough to delete the lost pod.
        """
        ...
