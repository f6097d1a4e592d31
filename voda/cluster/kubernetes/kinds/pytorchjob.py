"""PyTorchJob v1 of training-operator. Pure.

Rules: torch agents are told least and most of them (PET_NNODES) when their pods are made, so elasticPolicy is made as
wide as the job's bounds before a start, and never narrowed; a Master is replica 0 and a fixed one. The operator starts
failed pods anew as restartPolicy says; where it gave up, only pods that were lost make the job broken and not ended.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

from voda.cluster.kubernetes.kinds.base import Patch
from voda.cluster.kubernetes.kinds.failures import is_limit, lost, reason
from voda.cluster.kubernetes.kinds.kubeflow import Kubeflow
from voda.cluster.kubernetes.resources.objects import JobCondition, JobObject, Pod
from voda.domain.job import JobSpec
from voda.events.types import JobCompleted, JobFailed

SPARE_RESTARTS: Final = 100
"""maxRestarts where an elastic job's manifest names none: torch counts a peer that leaves as a failure."""


class PyTorchJobV1(Kubeflow):
    """PyTorchJob v1."""

    name: ClassVar[str] = "PyTorchJob"
    api_version: ClassVar[str] = "kubeflow.org/v1"
    plural: ClassVar[str] = "pytorchjobs"
    role_specs: ClassVar[str] = "pytorchReplicaSpecs"
    roles: ClassVar[Sequence[str]] = ("Master", "Worker")
    placed: ClassVar[Sequence[str]] = ("Master", "Worker")

    def can_resize(self, job: JobObject, replicas: int) -> bool:
        """Say whether its agents were told of such a number; see JobKind."""
        elastic = job.spec.elastic_policy
        if elastic is None or "Worker" not in job.spec.pytorch_replica_specs:
            return replicas == self.replicas(job)
        least, most = _bounds(elastic.min_replicas, elastic.max_replicas, self.replicas(job))
        return least <= replicas <= most

    def resized(self, job: JobObject, replicas: int) -> Patch:
        """Return the patch that resizes, of /scale."""
        counts = self._counts(frozenset(job.spec.pytorch_replica_specs), replicas)
        return Patch(body={"spec": {"replicas": counts.get("Worker", 0)}}, subresource="scale")

    def resumed(self, job: JobObject, spec: JobSpec, replicas: int) -> Patch:
        """Return the patch that starts; see JobKind."""
        counts = self._counts(frozenset(job.spec.pytorch_replica_specs), replicas)
        body: dict[str, Any] = {"runPolicy": {"suspend": False}}
        if counts:
            body["pytorchReplicaSpecs"] = {role: {"replicas": count} for role, count in counts.items()}
        if (elastic := job.spec.elastic_policy) is not None:
            least, most = _bounds(elastic.min_replicas, elastic.max_replicas, self.replicas(job))
            body["elasticPolicy"] = _widened(least, most, spec)
        elif spec.is_elastic:
            body["elasticPolicy"] = _elastic({}, spec, frozenset(job.spec.pytorch_replica_specs), self.replicas(job))
        return Patch(body={"spec": body})

    def replicas(self, job: JobObject) -> int:
        """Return how many replicas the object asks for, a Master counted."""
        roles = job.spec.pytorch_replica_specs
        counts = [roles[role].replicas for role in self.roles if role in roles]
        return sum(1 if count is None else count for count in counts)

    def end(self, job: JobObject, pods: Sequence[Pod], job_id: str) -> JobCompleted | JobFailed | None:
        """Return how the job ended; see JobKind."""
        if job.status.condition("Succeeded") is not None:
            return JobCompleted(job_id=job_id)
        failed = job.status.condition("Failed")
        if failed is None or self._is_for_loss(failed, pods):
            return None
        return JobFailed(job_id=job_id, reason=reason(self.name, failed, _culprits(pods)))

    def is_broken(self, job: JobObject, pods: Sequence[Pod]) -> bool:
        """Say whether the job was given up for lost pods; see JobKind."""
        if job.status.condition("Succeeded") is not None:
            return False
        failed = job.status.condition("Failed")
        return failed is not None and self._is_for_loss(failed, pods)

    def _is_for_loss(self, failed: JobCondition, pods: Sequence[Pod]) -> bool:
        ended = [pod for pod in pods if pod.status.phase == "Failed"]
        return bool(ended) and all(lost(pod) for pod in ended) and not is_limit(self.name, failed)

    def _adapt(self, job: dict[str, Any], spec: JobSpec) -> None:
        body = job["spec"]
        if "nprocPerNode" in body:
            body["nprocPerNode"] = str(body["nprocPerNode"])
        roles = body[self.role_specs]
        for role in self.placed:
            if roles.get(role, {}).get("restartPolicy") == "Never":
                # A pod that is deleted while it runs counts as failed, which with Never would end a job for a
                # migration; a program that fails by itself ends the job with ExitCode too.
                roles[role]["restartPolicy"] = "ExitCode"
        if spec.is_elastic or "elasticPolicy" in body:
            asked = sum(roles[role].get("replicas", 1) for role in self.placed if role in roles)
            body["elasticPolicy"] = _elastic(body.get("elasticPolicy", {}), spec, frozenset(roles), asked)

    def _counts(self, roles: frozenset[str], replicas: int) -> Mapping[str, int]:
        if "Worker" not in roles:
            return {}
        return {"Worker": max(replicas - ("Master" in roles), 0)}


def _elastic(own: Mapping[str, Any], spec: JobSpec, roles: frozenset[str], asked: int) -> dict[str, Any]:
    """Return the elasticPolicy of a job: its own, as wide as the job's bounds."""
    found: dict[str, Any] = dict(own)
    if own:
        found |= _widened(*_bounds(own.get("minReplicas"), own.get("maxReplicas"), asked), spec)
    else:
        found |= {"minReplicas": spec.min_replicas, "maxReplicas": spec.max_replicas, "rdzvBackend": "c10d"}
    if spec.is_elastic:
        found.setdefault("maxRestarts", SPARE_RESTARTS)
    if "Master" in roles and found.get("rdzvBackend", "c10d") == "c10d":
        # By default agents meet at the first worker, which is not there while the Master is the only replica.
        found.setdefault("rdzvHost", f"{spec.name or spec.job_id}-master-0")
    return found


def _bounds(least: int | None, most: int | None, asked: int) -> tuple[int, int]:
    """Return least and most replicas of an elasticPolicy, with the operator's defaults."""
    if least is None:
        least = asked if most is None else most
    return least, least if most is None else most


def _widened(least: int, most: int, spec: JobSpec) -> dict[str, int]:
    return {"minReplicas": min(least, spec.min_replicas), "maxReplicas": max(most, spec.max_replicas)}


def _culprits(pods: Sequence[Pod]) -> Sequence[Pod]:
    """Return the pods that failed by themselves, where any did: what was lost with them explains nothing."""
    failed = [pod for pod in pods if pod.status.phase == "Failed"]
    return [pod for pod in failed if not lost(pod)] or failed
