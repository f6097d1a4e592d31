"""What all kinds of kubeflow.org have in common: roles with pod templates, and a run policy that can suspend. Pure.

Rule: an object is made, and one of a user's own is made ready, by the same steps.
"""

from abc import ABC
from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar, Final

from voda.cluster.kubernetes.kinds import pod_names as named
from voda.cluster.kubernetes.kinds.base import Patch, Site
from voda.cluster.kubernetes.kinds.failures import is_limit, lost, reason
from voda.cluster.kubernetes.kinds.merge_patch import difference
from voda.cluster.kubernetes.kinds.template import placed_by_voda, with_environment
from voda.cluster.kubernetes.resources import well_known
from voda.cluster.kubernetes.resources.objects import JobCondition, JobObject, Pod, ReplicaSpec
from voda.domain.errors import ActionRefused
from voda.domain.job import JobSpec
from voda.events.types import JobCompleted, JobFailed
from voda.kinds.base import JobManifest
from voda.manifests.ignored_fields import ANNOTATIONS

_OURS: Final = "voda.dev/"
_QUANTITIES: Final = ("limits", "requests")


class Kubeflow(ABC):
    """One served version of a kind of kubeflow.org; a kind overrides what its operator does differently."""

    kind: ClassVar[type[JobManifest]]
    api_version: ClassVar[str]

    @property
    def name(self) -> str:
        """MPIJob or another kind."""
        return self.kind.name

    @property
    def plural(self) -> str:
        """As the API server's paths have it."""
        return self.kind.plural

    def created(self, spec: JobSpec, site: Site, environment: Mapping[str, str]) -> dict[str, Any]:
        """Return the object to create; see JobKind."""
        if spec.manifest is None or spec.manifest.get("kind") != self.name:
            raise ActionRefused(f"job {spec.job_id}: has no manifest of a {self.name}, so there is nothing to run")
        converted = self.kind.in_version(spec.manifest, self.api_version).manifest
        role_specs = self.kind.replica_specs
        fresh = {
            "apiVersion": self.api_version,
            "kind": self.name,
            "metadata": _metadata(converted["metadata"], spec),
            "spec": _plain(converted["spec"]),
        }
        self._make_ready(fresh, spec, site, environment)
        # A controller named here would keep the operator from what voda is asked to run.
        fresh["spec"]["runPolicy"].pop("managedBy", None)
        for role, count in self._counts(fresh["spec"][role_specs], spec.requested).items():
            fresh["spec"][role_specs][role]["replicas"] = count
        return fresh

    def adopted(self, manifest: Mapping[str, Any], spec: JobSpec, site: Site, environment: Mapping[str, str]) -> Patch:
        """Return the patch that makes an object of a user's own ready; see JobKind."""
        ready = _plain(manifest)
        self._make_ready(ready, spec, site, environment)
        body = difference(manifest, ready)
        if body:
            body.setdefault("metadata", {})["resourceVersion"] = manifest["metadata"].get("resourceVersion", "")
        return Patch(body=body)

    def outdated(self, namespace: str, name: str) -> Sequence[str]:
        """Return the paths of what was made of former templates; see JobKind."""
        return ()

    def can_resize(self, job: JobObject, replicas: int) -> bool:
        """Return whether a running job can have that many replicas without a new start; see JobKind."""
        return replicas == self.replicas(job)

    def resized(self, job: JobObject, replicas: int) -> Patch:
        """Return the patch that resizes; see JobKind."""
        return Patch(body={"spec": self._sized(job, replicas)})

    def resumed(self, job: JobObject, spec: JobSpec, replicas: int) -> Patch:
        """Return the patch that starts; see JobKind."""
        return Patch(body={"spec": {"runPolicy": {"suspend": False}, **self._sized(job, replicas)}})

    def replicas(self, job: JobObject) -> int:
        """Return how many replicas the object asks for; see JobKind."""
        roles = roles_of(self.kind, job)
        counts = [roles[role].replicas for role in self.kind.placed_roles if role in roles]
        return sum(1 if count is None else count for count in counts)

    def end(self, job: JobObject, pods: Sequence[Pod], job_id: str) -> JobCompleted | JobFailed | None:
        """Return how the job ended; see JobKind."""
        if job.status.condition("Succeeded") is not None:
            return JobCompleted(job_id=job_id)
        failed = job.status.condition("Failed")
        if failed is None or self.is_for_loss(job, failed, pods):
            return None
        return JobFailed(job_id=job_id, reason=reason(self.name, failed, self.failed_pods(pods)))

    def is_broken(self, job: JobObject, pods: Sequence[Pod]) -> bool:
        """Return whether the job was given up for lost pods; see JobKind."""
        if job.status.condition("Succeeded") is not None:
            return False
        failed = job.status.condition("Failed")
        return failed is not None and self.is_for_loss(job, failed, pods)

    def is_for_loss(self, job: JobObject, failed: JobCondition, pods: Sequence[Pod]) -> bool:
        """Return whether lost pods alone made the operator call the job failed."""
        ended = [pod for pod in pods if pod.status.phase == "Failed"]
        return bool(ended) and all(lost(pod) for pod in ended) and not is_limit(self.name, failed)

    def failed_pods(self, pods: Sequence[Pod]) -> Sequence[Pod]:
        """Return the pods that explain a failure: those that failed by themselves, where any did."""
        failed = [pod for pod in pods if pod.status.phase == "Failed"]
        return [pod for pod in failed if not lost(pod)] or failed

    def halted(self) -> Patch:
        """Return the patch that suspends; see JobKind."""
        return Patch(body={"spec": {"runPolicy": {"suspend": True}}})

    def index(self, job_name: str, pod: Pod) -> int | None:
        """Return the replica index of a pod; see JobKind."""
        return named.index(job_name, pod)

    def is_launcher(self, pod: Pod) -> bool:
        """Say whether a pod is its job's launcher."""
        return named.is_launcher(pod)

    def _make_ready(self, job: dict[str, Any], spec: JobSpec, site: Site, environment: Mapping[str, str]) -> None:
        metadata, roles = job["metadata"], job["spec"][self.kind.replica_specs]
        metadata.setdefault("labels", {})[well_known.MANAGED] = "true"
        metadata.setdefault("annotations", {})[well_known.JOB_ID] = spec.job_id
        job["spec"].setdefault("runPolicy", {})["suspend"] = True
        first_index = 0
        for role in self.kind.role_names:
            if role not in roles:
                continue
            template = with_environment(roles[role]["template"], environment)
            if role in self.kind.placed_roles:
                template = placed_by_voda(template, spec.job_id, site, first_index)
                first_index += 1
            roles[role]["template"] = template
        self._adapt(job, spec)

    def _adapt(self, job: dict[str, Any], spec: JobSpec) -> None:  # noqa: B027 - most need nothing
        """Change what this kind needs besides."""

    def _sized(self, job: JobObject, replicas: int) -> dict[str, Any]:
        """Return the part of spec that sets the number of pods."""
        counts = self._counts(roles_of(self.kind, job), replicas)
        return (
            {self.kind.replica_specs: {role: {"replicas": count} for role, count in counts.items()}} if counts else {}
        )

    def _counts(self, roles: Collection[str], replicas: int) -> Mapping[str, int]:
        """Return role -> pods, of the roles whose number voda sets; a role before the last one has one pod."""
        *first, last = self.kind.placed_roles
        return {last: max(replicas - sum(role in roles for role in first), 0)}


def roles_of(kind: type[JobManifest], job: JobObject) -> Mapping[str, ReplicaSpec]:
    """Return the roles of an object as its API server has them."""
    return job.spec.roles(kind.replica_specs)


def _metadata(metadata: Mapping[str, Any], spec: JobSpec) -> dict[str, Any]:
    """Return the metadata of a new object: what belongs to one that was is left behind."""
    labels = {key: value for key, value in (metadata.get("labels") or {}).items() if key != well_known.KUEUE_QUEUE}
    # What voda notes on an object is of that object: a copied count of failures would end the job at once.
    notes = {
        key: value
        for key, value in (metadata.get("annotations") or {}).items()
        if not key.startswith(_OURS) or key in ANNOTATIONS
    }
    return {
        "name": spec.name or spec.job_id,
        "namespace": spec.namespace,
        "labels": _plain(labels),
        "annotations": _plain(notes),
    }


def _plain(value: Any, field: str = "") -> Any:
    """Return a copy that any API server takes: without nulls, which mean absent, and with fractions as quantities."""
    if isinstance(value, Mapping):
        return {
            key: str(item) if field in _QUANTITIES and isinstance(item, float) else _plain(item, key)
            for key, item in value.items()
            if item is not None
        }
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value
