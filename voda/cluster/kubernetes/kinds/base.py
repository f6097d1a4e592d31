"""What a kind of job object is to the rest of the adapter: how it is made, resized, suspended and read. Pure.

Rule: what an operator does differently is known in this folder and nowhere else; a new object, and one of a user's
own, are made ready by the same steps.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar
from urllib.parse import quote

from msgspec import Struct

from voda.cluster.kubernetes import well_known
from voda.cluster.kubernetes.kinds.operator_pods import limit, lost, reason
from voda.cluster.kubernetes.kinds.template import new_metadata, placed_by_voda, plain, with_environment
from voda.cluster.kubernetes.objects import JobObject, KubeCondition, Pod
from voda.domain.errors import ActionRefused
from voda.domain.job import JobSpec
from voda.events.types import JobCompleted, JobFailed
from voda.kinds.base import JobManifest


class Patch(Struct, frozen=True, kw_only=True):
    """One change of an object: a JSON merge patch (RFC 7386)."""

    body: Mapping[str, Any]
    subresource: str = ""
    """scale, or empty for the object itself."""


class JobKind:
    """One served version of one kind of kubeflow.org; a kind overrides what its operator does differently."""

    kind: ClassVar[type[JobManifest]]
    api_version: ClassVar[str]
    """kubeflow.org/v2beta1 or kubeflow.org/v1."""

    @property
    def name(self) -> str:
        return self.kind.name

    @property
    def plural(self) -> str:
        return self.kind.plural

    def collection(self, namespace: str = "") -> str:
        """Return the path of all objects of the kind, in one namespace or in all; a name leads nowhere else."""
        within = f"/namespaces/{quote(namespace, safe='')}" if namespace else ""
        return f"/apis/{self.api_version}{within}/{self.plural}"

    def path(self, namespace: str, name: str) -> str:
        return f"{self.collection(namespace)}/{quote(name, safe='')}"

    def new_object(self, spec: JobSpec, taints: Sequence[str], environment: Mapping[str, str]) -> dict[str, Any]:
        """Return the object to create for a job that was submitted to the API: suspended, of the requested size.

        What the user wrote stays, except where it would keep voda from placing the pods; a manifest of another version
        of the kind is converted.

        Raises:
            ActionRefused: the job has no manifest, or one of another kind.
        """
        if spec.manifest is None or spec.manifest.get("kind") != self.name:
            raise ActionRefused(f"job {spec.job_id}: has no manifest of a {self.name}, so there is nothing to run")
        converted = self.kind.in_version(spec.manifest, self.api_version).manifest
        fresh = {
            "apiVersion": self.api_version,
            "kind": self.name,
            "metadata": new_metadata(converted["metadata"], spec),
            "spec": plain(converted["spec"]),
        }
        self._make_ready(fresh, spec, taints, environment)
        # A controller named here would keep the operator from what voda asks it to run.
        fresh["spec"]["runPolicy"].pop("managedBy", None)
        roles = fresh["spec"][self.kind.replica_specs]
        for role, count in self._counts(roles, spec.requested).items():
            roles[role]["replicas"] = count
        return fresh

    def adoption_patch(
        self, manifest: Mapping[str, Any], spec: JobSpec, taints: Sequence[str], environment: Mapping[str, str]
    ) -> Patch:
        """Return the patch that makes an object of a user's own ready to be run: suspended, and as `new_object`.

        The size stays as it is: less of it in the same patch would leave pods behind (see the suspend trap), and a
        start sets it anyway. Made again on what it led to, the patch changes nothing. It names the resourceVersion it
        was made for, so the answer may be Conflict: read the object and make it again.
        """
        ready = plain(manifest)
        self._make_ready(ready, spec, taints, environment)
        body = difference(manifest, ready)
        if body:
            body.setdefault("metadata", {})["resourceVersion"] = manifest["metadata"].get("resourceVersion", "")
        return Patch(body=body)

    def outdated_paths(self, namespace: str, name: str) -> Sequence[str]:
        """Return the paths of what the operator made of an object's templates and never changes.

        To be deleted once an object of a user's own was made ready; the operator makes it again.
        """
        return ()

    def can_resize(self, job: JobObject, replicas: int) -> bool:
        """Return whether a running job can have that many replicas without a new start.

        Where this is False, halt the job: the next `resume_patch` takes the spec's new bounds.
        """
        return replicas == self.replicas(job)

    def resize_patch(self, job: JobObject, replicas: int) -> Patch:
        return Patch(body={"spec": self._sized(job, replicas)})

    def suspend_patch(self) -> Patch:
        """Return the patch that takes a job's pods away; the size stays as it is (see the suspend trap)."""
        return Patch(body={"spec": {"runPolicy": {"suspend": True}}})

    def resume_patch(self, job: JobObject, spec: JobSpec, replicas: int) -> Patch:
        """Return the patch that starts a suspended job, whose pods are gone, with that many replicas.

        The spec is as the log has it now: its bounds may have changed since the object was made.
        """
        return Patch(body={"spec": {"runPolicy": {"suspend": False}, **self._sized(job, replicas)}})

    def replicas(self, job: JobObject) -> int:
        """Return how many replicas the object asks its operator for (a PyTorchJob's Master counts as one)."""
        roles = job.spec.roles(self.kind.replica_specs)
        counts = [roles[role].replicas for role in self.kind.placed_roles if role in roles]
        return sum(1 if count is None else count for count in counts)

    def end(self, job: JobObject, pods: Sequence[Pod], job_id: str) -> JobCompleted | JobFailed | None:
        """Return how the job ended, by its conditions; None while it goes on.

        An end that only a lost worker caused (evicted, its node gone, failed by itself) is none: see `is_broken`.
        """
        if job.status.condition("Succeeded") is not None:
            return JobCompleted(job_id=job_id)
        failed = job.status.condition("Failed")
        if failed is None or self.is_for_loss(job, failed, pods):
            return None
        return JobFailed(job_id=job_id, reason=reason(self.name, failed, self.failed_pods(pods)))

    def is_broken(self, job: JobObject, pods: Sequence[Pod]) -> bool:
        """Return whether the operator gave the job up for a lost worker, so that it runs on only if it is made anew.

        Never both this and `end`. mpi-operator (v2beta1) never gives up: there it is enough to delete the lost pod.
        """
        if job.status.condition("Succeeded") is not None:
            return False
        failed = job.status.condition("Failed")
        return failed is not None and self.is_for_loss(job, failed, pods)

    def is_for_loss(self, job: JobObject, failed: KubeCondition, pods: Sequence[Pod]) -> bool:
        """Return whether lost pods alone made the operator call the job failed."""
        ended = [pod for pod in pods if pod.status.phase == "Failed"]
        return bool(ended) and all(lost(pod) for pod in ended) and not limit(self.name, failed)

    def failed_pods(self, pods: Sequence[Pod]) -> Sequence[Pod]:
        """Return the pods that explain a failure: those that failed by themselves, where any did."""
        failed = [pod for pod in pods if pod.status.phase == "Failed"]
        return [pod for pod in failed if not lost(pod)] or failed

    def _make_ready(
        self, job: dict[str, Any], spec: JobSpec, taints: Sequence[str], environment: Mapping[str, str]
    ) -> None:
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
                template = placed_by_voda(template, spec.job_id, taints, first_index)
                first_index += 1
            roles[role]["template"] = template
        self._adapt(job, spec)

    def _adapt(self, job: dict[str, Any], spec: JobSpec) -> None:
        """Change what this kind needs besides; most need nothing."""

    def _sized(self, job: JobObject, replicas: int) -> dict[str, Any]:
        counts = self._counts(job.spec.roles(self.kind.replica_specs), replicas)
        roles = {role: {"replicas": count} for role, count in counts.items()}
        return {self.kind.replica_specs: roles} if roles else {}

    def _counts(self, roles: Collection[str], replicas: int) -> Mapping[str, int]:
        """Return role -> pods, of the roles whose number voda sets; a role before the last one has one pod."""
        *first, last = self.kind.placed_roles
        return {last: max(replicas - sum(role in roles for role in first), 0)}


def difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Return the merge patch that turns `before` into `after`; empty where they are alike.

    A value that is None counts as absent: a merge patch cannot write one.
    """
    patch: dict[str, Any] = {name: None for name, value in before.items() if value is not None and name not in after}
    for name, value in after.items():
        old = before.get(name)
        if isinstance(value, Mapping) and isinstance(old, Mapping):
            if inner := difference(old, value):
                patch[name] = inner
        elif value != old or type(value) is not type(old):
            patch[name] = value
    return patch
