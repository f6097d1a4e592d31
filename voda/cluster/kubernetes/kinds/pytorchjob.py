"""PyTorchJob v1 of training-operator. Pure.

Rules: its replicas all start together, also where their number changes or one fails. Torch agents learn the least and
most of them (PET_NNODES) when their pods are made, so voda makes elasticPolicy as wide as the job's bounds before a
start, and never narrows it; every write of voda's notes the bounds that it leaves,
so that any others are a user's. A Master is replica 0 and there is always one; beside it the object asks for a worker
at least, whose pod is spare while the plan has none. The operator starts failed pods again as
restartPolicy says; where it gave up, lost pods alone make the job broken, not ended.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar, Final

from voda.cluster.kubernetes import well_known
from voda.cluster.kubernetes.kinds.base import JobKind, Patch
from voda.cluster.kubernetes.kinds.operator_pods import is_over_limit, is_taken, last_failure, lost
from voda.cluster.kubernetes.kinds.torch_agents import for_agents
from voda.cluster.kubernetes.objects import JobObject, Pod
from voda.domain.job import JobSpec
from voda.events.types import JobCompleted, JobFailed
from voda.kinds.base import JobManifest, role_mappings
from voda.kinds.pod_template import LAST_CALL, LAST_CALL_S
from voda.kinds.pytorchjob import PyTorchJob, elastic_bounds

_BOUNDS: Final = re.compile(r"([0-9]{1,6})-([0-9]{1,6})")


class PyTorchJobV1(JobKind):
    kind: ClassVar[type[JobManifest]] = PyTorchJob
    api_version: ClassVar[str] = "kubeflow.org/v1"
    # Of no worker beside a Master training-operator makes the first one again and again, and deletes it each time.
    least_workers: ClassVar[int] = 1

    def starts_together(self, job: JobObject) -> bool:
        return True

    def resize_patch(self, job: JobObject, replicas: int) -> Patch:
        counts = self._counts(job.spec.roles(self.kind.replica_specs), replicas)
        return Patch(body={"spec": {"replicas": counts.get("Worker", 0)}}, subresource="scale")

    def resume_patch(self, job: JobObject, spec: JobSpec, replicas: int) -> Patch:
        """Return the patch that starts, with an elasticPolicy as wide as the job's bounds; see JobKind."""
        body = dict(super().resume_patch(job, spec, replicas).body["spec"])
        if (elastic := job.spec.elastic_policy) is not None:
            least, most = elastic_bounds(elastic.min_replicas, elastic.max_replicas, self.replicas(job))
            body["elasticPolicy"] = _widened(least, most, spec)
        elif spec.is_elastic:
            body["elasticPolicy"] = _elastic({}, spec, job.spec.roles(self.kind.replica_specs), self.replicas(job))
        # A user's change that the log lacks so far still differs from the note after this write.
        is_taken_over = recorded_bounds(job) in (None, stated_bounds(self, job))
        if "elasticPolicy" not in body or not is_taken_over:
            return Patch(body={"spec": body})
        return Patch(body={"metadata": {"annotations": bounds_note(body["elasticPolicy"])}, "spec": body})

    def end(self, job: JobObject, pods: Sequence[Pod], job_id: str) -> JobCompleted | JobFailed | None:
        """See JobKind; ExitCode stands for Never, and has no exit code of a pod that went beyond its own limits."""
        own = [pod for pod in pods if pod.status.phase == "Failed" and job.owns(pod) and not lost(pod)]
        if well_known.ONE_TRY in job.metadata.annotations:
            failed = [pod for pod in own if not is_taken(pod)]
        else:
            roles = job.spec.roles(self.kind.replica_specs).values()
            is_by_code = any(role.restart_policy == "ExitCode" for role in roles)
            failed = [pod for pod in own if is_by_code and is_over_limit(pod)]
        if failed:
            return JobFailed(job_id=job_id, reason=last_failure(failed))
        return super().end(job, pods, job_id)

    def _adapt(self, job: dict[str, Any], spec: JobSpec, *, is_new: bool) -> None:
        body = job["spec"]
        if "nprocPerNode" in body:
            body["nprocPerNode"] = str(body["nprocPerNode"])
        roles = role_mappings(self.kind, body)
        for role in self.kind.placed_roles:
            if role in roles:
                roles[role]["template"] = for_agents(roles[role]["template"])
            if roles.get(role, {}).get("restartPolicy") == "Never":
                # A pod that is deleted while it runs counts as failed, which with Never would end a job for a
                # migration; a program that fails by itself ends the job all the same (`end`).
                roles[role]["restartPolicy"] = "ExitCode"
                job["metadata"].setdefault("annotations", {})[well_known.ONE_TRY] = "true"
        if spec.is_elastic or "elasticPolicy" in body:
            asked = sum(roles[role].get("replicas", 1) for role in self.kind.placed_roles if role in roles)
            body["elasticPolicy"] = _elastic(body.get("elasticPolicy", {}), spec, roles, asked)
            job["metadata"].setdefault("annotations", {}).update(bounds_note(body["elasticPolicy"]))

    def _counts(self, roles: Collection[str], replicas: int) -> Mapping[str, int]:
        return super()._counts(roles, replicas) if "Worker" in roles else {}


def stated_bounds(kind: JobKind, job: JobObject) -> tuple[int, int] | None:
    """Return the least and most replicas that an object's elasticPolicy states; None: it has none, or states none."""
    elastic = job.spec.elastic_policy
    if elastic is None or (elastic.min_replicas is None and elastic.max_replicas is None):
        return None
    return elastic_bounds(elastic.min_replicas, elastic.max_replicas, kind.replicas(job))


def recorded_bounds(job: JobObject) -> tuple[int, int] | None:
    """Return the bounds that were on the object when voda wrote to it last; None: not noted, or not readable."""
    noted = _BOUNDS.fullmatch(job.metadata.annotations.get(well_known.RECORDED_BOUNDS, ""))
    return (int(noted[1]), int(noted[2])) if noted is not None else None


def bounds_note(elastic: Mapping[str, Any]) -> dict[str, str]:
    """Return the annotation that says which bounds an elasticPolicy has with the log's knowledge."""
    return {well_known.RECORDED_BOUNDS: f"{elastic['minReplicas']}-{elastic['maxReplicas']}"}


def _elastic(own: Mapping[str, Any], spec: JobSpec, roles: Collection[str], asked: int) -> dict[str, Any]:
    found: dict[str, Any] = dict(own)
    if own:
        found |= _widened(*elastic_bounds(own.get("minReplicas"), own.get("maxReplicas"), asked), spec)
    else:
        found |= {"minReplicas": spec.min_replicas, "maxReplicas": spec.max_replicas, "rdzvBackend": "c10d"}
    if spec.is_elastic:
        found["rdzvConf"] = _with_last_call(found.get("rdzvConf") or ())
    if "Master" in roles and found.get("rdzvBackend", "c10d") == "c10d":
        # By default agents meet at the first worker, which is not there while the Master is the only replica.
        found.setdefault("rdzvHost", f"{spec.name or spec.job_id}-master-0")
    return found


def _with_last_call(own: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return rdzvConf with a short wait for more agents, where the user set none: torch's own is half a minute."""
    if any(each.get("key") == LAST_CALL for each in own):
        return list(own)
    return [*own, {"key": LAST_CALL, "value": str(LAST_CALL_S)}]


def _widened(least: int, most: int, spec: JobSpec) -> dict[str, int]:
    return {"minReplicas": min(least, spec.min_replicas), "maxReplicas": max(most, spec.max_replicas)}
