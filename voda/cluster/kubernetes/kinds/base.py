"""What a kind of job object is to the rest of the adapter: how it is made, resized, suspended and read. Pure.

Rule: what an operator does differently is known in this folder and nowhere else; a new object, and one of a user's
own, are made ready by the same steps.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar

from msgspec import Struct, convert

from voda.cluster.kubernetes import well_known
from voda.cluster.kubernetes.kinds.gpu_claims import claim_gpus, gpu_claim_template, owner_reference
from voda.cluster.kubernetes.kinds.operator_pods import given_up, has_succeeded, index, is_launcher, limit, lost
from voda.cluster.kubernetes.kinds.template import (
    gated,
    goes_where,
    new_metadata,
    placed_by_voda,
    plain,
    tolerating,
    with_annotated_environment,
    with_environment,
)
from voda.cluster.kubernetes.objects import JobObject, KubeCondition, Pod
from voda.domain.errors import ActionRefused
from voda.domain.job import JobSpec
from voda.events.types import JobCompleted, JobFailed
from voda.kinds.base import JobManifest, role_mappings
from voda.kubernetes_client.paths import api_path


class Patch(Struct, frozen=True, kw_only=True):
    """One change of an object: a JSON merge patch (RFC 7386)."""

    body: Mapping[str, Any]
    subresource: str = ""
    """scale, or empty for the object itself."""
    is_of_child: bool = False
    """Whether it changes not the object, but the Job that its controller made of it."""
    if_unchanged: bool = False
    """Whether it is refused (Conflict) where what it changes is another than was seen."""
    is_of_trainjob: bool = False
    """Whether it changes the TrainJob that the object was made of, where there is one."""


class JobKind:
    """One served version of one kind; a kind overrides what its operator does differently."""

    kind: ClassVar[type[JobManifest]]
    api_version: ClassVar[str]
    """kubeflow.org/v2beta1, kubeflow.org/v1 or batch/v1."""
    operator: ClassVar[str] = "training-operator"
    """The program that makes its pods."""
    has_fixed_templates: ClassVar[bool] = False
    """Whether containers of an object that exists cannot be changed, so that annotations tell its pods what variables
    tell those of other kinds; and its templates nowhere at all while it has pods."""
    replaces_failed_pods: ClassVar[bool] = False
    """Whether the operator counts pods that failed and makes others, without anybody's deleting them."""
    least_workers: ClassVar[int] = 0
    """Pods of the last role that the operator needs, also where the plan has replicas of the roles before it alone."""
    is_ready_by_start: ClassVar[bool] = False
    """Whether one patch can make an object of a user's own ready and start it."""
    kept_fields: ClassVar[Collection[str]] = ("runPolicy",)
    """Fields of spec that follow the plan, and are not restored when somebody changes the object."""

    @property
    def name(self) -> str:
        return self.kind.name

    def path(self, namespace: str = "", name: str = "") -> str:
        """Return where objects of the kind are; see `api_path`."""
        return api_path(self.api_version, self.kind.plural, namespace, name)

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
        self._make_ready(fresh, spec, taints, is_new=True)
        for role in role_mappings(self.kind, fresh["spec"]).values():
            role["template"] = with_environment(role["template"], environment)
        claim_gpus(self.kind, fresh, spec)
        # A controller named here would keep the operator from what voda asks it to run.
        _run_policy(self.kind, fresh["spec"]).pop("managedBy", None)
        return merged(fresh, {"spec": self._sized(convert(fresh, JobObject), spec.requested)})

    def adoption_patch(
        self, manifest: Mapping[str, Any], spec: JobSpec, taints: Sequence[str], environment: Mapping[str, str]
    ) -> Patch:
        """Return the patch that makes an object of a user's own ready to be run: suspended, and as `new_object`.

        The size stays as it is: less of it in the same patch would leave pods behind (see the suspend trap), and a
        start sets it anyway. Made again on what it led to, the patch changes nothing. It names the resourceVersion it
        was made for, so the answer may be Conflict: read the object and make it again.
        """
        ready = plain(manifest)
        self._make_ready(ready, spec, taints)
        for role in role_mappings(self.kind, ready["spec"]).values():
            tell = with_annotated_environment if self.has_fixed_templates else with_environment
            role["template"] = tell(role["template"], environment)
        body = difference(manifest, ready)
        if body:
            body.setdefault("metadata", {})["resourceVersion"] = manifest["metadata"].get("resourceVersion", "")
        return Patch(body=body)

    def outdated_paths(self, namespace: str, name: str) -> Sequence[str]:
        """Return the paths of what the operator made of an object's templates and never changes.

        To be deleted once an object of a user's own was made ready; the operator makes it again.
        """
        return ()

    def companions(self, job: JobObject) -> Sequence[tuple[str, dict[str, Any]]]:
        """Return (collection, object) of what else has to be there for an object to run, owned by it."""
        return gpu_claim_template(owner_reference(self.api_version, self.name, job.metadata), job.metadata)

    def starts_together(self, job: JobObject) -> bool:
        """Return whether the replicas of a job only work with those that were started with them.

        All of them are then started anew where the number changes, or one of them is started anew.
        """
        return False

    def can_resize(self, job: JobObject, replicas: int) -> bool:
        """Return whether a running job can have that many replicas without a new start.

        Where this is False, halt the job: the next `resume_patch` takes the spec's new bounds.
        """
        return replicas == self.replicas(job)

    def resize_patch(self, job: JobObject, replicas: int) -> Patch:
        return Patch(body={"spec": self._sized(job, replicas)})

    def suspend_patch(self) -> Patch:
        """Return the patch that takes a job's pods away; the size stays as it is (see the suspend trap)."""
        return Patch(body={"spec": _run_policy_patch(self.kind, {"suspend": True})}, is_of_trainjob=True)

    def resume_patch(self, job: JobObject, spec: JobSpec, replicas: int) -> Patch:
        """Return the patch that starts a suspended job, whose pods are gone, with that many replicas.

        The spec is as the log has it now: its bounds may have changed since the object was made.
        """
        body = {"spec": {**_run_policy_patch(self.kind, {"suspend": False}), **self._sized(job, replicas)}}
        return Patch(body=body, is_of_trainjob=True)

    def replicas(self, job: JobObject) -> int:
        """Return how many replicas the object asks its operator for (a PyTorchJob's Master counts as one)."""
        roles = job.spec.roles(self.kind.replica_specs)
        counts = [roles[role].replicas for role in self.kind.placed_roles if role in roles]
        return sum(1 if count is None else count for count in counts)

    def end(self, job: JobObject, pods: Sequence[Pod], job_id: str) -> JobCompleted | JobFailed | None:
        """Return how the job ended, by its conditions, or by pods that its operator has not looked at yet.

        None while it goes on. An end that only a lost worker caused (evicted, its node gone, failed by itself) is none:
        see `is_broken`.
        """
        if job.status.has_succeeded and not job.is_void:
            return JobCompleted(job_id=job_id)
        failed = job.status.condition("Failed")
        if failed is None or self.is_for_loss(job, failed, pods):
            return JobCompleted(job_id=job_id) if _have_succeeded(self, job, pods) else None
        return JobFailed(job_id=job_id, reason=given_up(self.name, failed, self.failed_pods(pods)))

    def is_broken(self, job: JobObject, pods: Sequence[Pod]) -> bool:
        """Return whether the operator gave the job up for a lost worker, or takes its exit code for success, so that it
        runs on only if it is made anew.

        Never both this and `end`. mpi-operator (v2beta1) never gives up: there it is enough to delete the lost pod.
        """
        if job.is_void:
            return True
        if job.status.has_succeeded or _have_succeeded(self, job, pods):
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

    def _make_ready(self, job: dict[str, Any], spec: JobSpec, taints: Sequence[str], *, is_new: bool = False) -> None:
        metadata, roles = job["metadata"], role_mappings(self.kind, job["spec"])
        metadata.setdefault("labels", {})[well_known.MANAGED] = "true"
        metadata.setdefault("annotations", {})[well_known.JOB_ID] = spec.job_id
        _run_policy(self.kind, job["spec"])["suspend"] = True
        for role in roles.keys() - {*self.kind.placed_roles} if spec.launcher_gpus else ():
            if goes_where(roles[role]["template"], roles[self.kind.placed_roles[-1]]["template"]):
                roles[role]["template"] = gated(tolerating(roles[role]["template"], taints))
        for first_index, role in enumerate(role for role in self.kind.placed_roles if role in roles):
            template = placed_by_voda(roles[role]["template"], spec.job_id, taints, first_index)
            roles[role]["template"] = gated(template, keeps_scheduler=self.has_fixed_templates and not is_new)
        self._adapt(job, spec, is_new=is_new)
        if not spec.is_restartable and (is_new or not self.has_fixed_templates):
            _begin_once(self.kind, job["spec"])

    def _adapt(self, job: dict[str, Any], spec: JobSpec, *, is_new: bool) -> None:
        """Change what this kind needs besides; most need nothing."""

    def _sized(self, job: JobObject, replicas: int) -> dict[str, Any]:
        counts = self._counts(job.spec.roles(self.kind.replica_specs), replicas)
        roles = {role: {"replicas": count} for role, count in counts.items()}
        return {self.kind.replica_specs: roles} if roles else {}

    def _counts(self, roles: Collection[str], replicas: int) -> Mapping[str, int]:
        """Return role -> pods, of the roles whose number voda sets; a role before the last one has one pod."""
        *first, last = self.kind.placed_roles
        return {last: max(replicas - sum(role in roles for role in first), self.least_workers)}


def object_size(kind: JobKind, job: JobObject, replicas: int) -> int:
    """Return how many replicas an object asks its operator for where the plan has so many.

    Those that the plan lacks are spare: their pods keep their gates, and hold nothing.
    """
    *first, last = kind.kind.placed_roles
    roles = job.spec.roles(kind.kind.replica_specs) if kind.least_workers else ()
    before = sum(role in roles for role in first)
    return max(replicas, before + kind.least_workers) if before and last in roles else replicas


def _have_succeeded(kind: JobKind, job: JobObject, pods: Sequence[Pod]) -> bool:
    """Say whether the pods alone show that a job succeeded: its launcher did, or all ranks where it has none."""
    ended = [pod for pod in pods if has_succeeded(job, pod)]
    if "Launcher" in kind.kind.role_names:
        return any(map(is_launcher, ended))
    ranks = {index(pod) for pod in ended}
    return bool(ranks) and ranks >= set(range(kind.replicas(job)))


def _begin_once(kind: type[JobManifest], spec: dict[str, Any]) -> None:
    """Let the first pod that ends badly, or is lost, be the end of a job."""
    spec.pop("failurePolicy", None)
    for role in role_mappings(kind, spec).values():
        holder = role if kind.replica_specs else role["template"]["spec"]
        holder["restartPolicy"] = "Never"
        limited = _run_policy(kind, spec) if kind.run_policy_field else role
        for name in ("backoffLimitPerIndex", "maxFailedIndexes", "podFailurePolicy"):
            limited.pop(name, None)
        limited["backoffLimit"] = 0


def _run_policy(kind: type[JobManifest], spec: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = spec.setdefault(kind.run_policy_field, {}) if kind.run_policy_field else spec
    return found


def _run_policy_patch(kind: type[JobManifest], values: Mapping[str, Any]) -> Mapping[str, Any]:
    return {kind.run_policy_field: values} if kind.run_policy_field else values


def merged(value: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """Return a mapping with a merge patch that takes nothing away."""
    found = dict(value)
    for name, item in patch.items():
        old = found.get(name)
        found[name] = merged(old, item) if isinstance(item, Mapping) and isinstance(old, Mapping) else item
    return found


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
