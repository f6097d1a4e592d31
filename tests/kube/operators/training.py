"""What the kinds of training-operator have in common: how a job is suspended, limited, ended and cleaned up.

Rule: once a job has failed, its conditions stay as they are.
"""

from datetime import UTC, datetime
from typing import ClassVar

from tests.kube.client import PODS, SERVICES, Object, key_of, now_text
from tests.kube.operators.base import (
    Operator,
    is_suspended,
    phase_of,
    replicas_of,
    run_policy,
)
from tests.kube.operators.status import has_condition, is_finished, set_condition


class TrainingOperator(Operator):
    """See the module."""

    manager = "kubeflow.org/training-operator"
    specs: ClassVar[str]
    """The field that says how many replicas of what are wanted."""

    async def advance(self, job: Object, pods: list[Object]) -> None:
        """Bring the pods of a job that goes on into line, and its status with them."""
        raise NotImplementedError

    async def reconcile(self, job: Object) -> None:
        """See Operator.reconcile."""
        status = job.setdefault("status", {})
        if not status.get("conditions"):
            self.tell(job, "Created", f"{self.title(job)} is created.")
        pods = [pod for pod in self.pods_of(job) if self._is_of(pod, job)]
        if is_finished(status):
            await self._finish(job, pods)
        elif is_suspended(job):
            await self._suspend(job, pods)
        else:
            await self._go_on(job, pods)
        await self.write_status(job)

    def tell(self, job: Object, kind: str, message: str, *, reason: str = "", value: bool = True) -> None:
        """Set a condition, unless the job has failed; its reason is the kind's name with `reason`."""
        if not has_condition(job["status"], "Failed"):
            text = f"{self.resource.kind}{reason or kind}"
            set_condition(job["status"], kind, reason=text, message=message, value=value)

    def title(self, job: Object) -> str:
        """Return how messages call a job."""
        return f"{self.resource.kind} {job['metadata']['namespace']}/{job['metadata']['name']}"

    def wanted(self, job: Object, role: str) -> int:
        """Return how many replicas of a role are wanted."""
        return replicas_of(job, self.specs, role)

    def complete(self, job: Object) -> None:
        """Note that a job ended now, unless that is noted already."""
        job["status"].setdefault("completionTime", now_text())

    async def _finish(self, job: Object, pods: list[Object]) -> None:
        policy = self.clean_pod_policy(job)
        for pod in pods if policy != "None" else []:
            if policy == "All" or phase_of(pod) in ("Running", "Pending"):
                await self._take_away(job, pod)
        if has_condition(job["status"], "Succeeded"):
            for counts in job["status"].get("replicaStatuses", {}).values():
                counts["succeeded"] = counts.get("succeeded", 0) + counts.pop("active", 0)
        await self._outlive(job)

    async def _outlive(self, job: Object) -> None:
        ttl_s = run_policy(job).get("ttlSecondsAfterFinished")
        if ttl_s is None or "completionTime" not in job["status"]:
            return
        left_s = ttl_s - _since_s(job["status"]["completionTime"])
        if left_s > 0:
            self.later(job, left_s)
        else:
            namespace, name = key_of(job)
            await self.client.delete(self.resource, name, namespace, uid=job["metadata"]["uid"])

    async def _suspend(self, job: Object, pods: list[Object]) -> None:
        message = f"{self.title(job)} is suspended."
        for pod in pods:
            await self._take_away(job, pod)
        for counts in job["status"].get("replicaStatuses", {}).values():
            counts.pop("active", None)
        if has_condition(job["status"], "Running"):
            self.tell(job, "Running", message, reason="Suspended", value=False)
        if not has_condition(job["status"], "Suspended"):
            self.tell(job, "Suspended", message)

    async def _go_on(self, job: Object, pods: list[Object]) -> None:
        if has_condition(job["status"], "Suspended"):
            self.tell(job, "Suspended", f"{self.title(job)} is resumed.", reason="Resumed", value=False)
            job["status"]["startTime"] = now_text()
        problem = self._limit(job, pods)
        if problem:
            self.complete(job)
            for pod in pods:
                await self._take_away(job, pod)
            self.tell(job, "Failed", problem)
        else:
            await self.advance(job, pods)

    def _limit(self, job: Object, pods: list[Object]) -> str:
        """Return which limit of its runPolicy a job has reached; empty where none."""
        policy = run_policy(job)
        limit, deadline_s = policy.get("backoffLimit"), policy.get("activeDeadlineSeconds")
        restarts = sum(
            each.get("restartCount", 0)
            for pod in pods
            for each in pod["status"].get("containerStatuses", ())
            if phase_of(pod) == "Running" and pod["spec"].get("restartPolicy") != "Never"
        )
        if limit is not None and restarts and restarts >= limit:
            return f"Job {job['metadata']['name']} has failed because it has reached the specified backoff limit"
        if deadline_s is not None and "startTime" in job["status"]:
            left_s = deadline_s - _since_s(job["status"]["startTime"])
            if left_s <= 0:
                return f"Job {job['metadata']['name']} has failed because it was active longer than specified deadline"
            self.later(job, left_s)
        return ""

    def clean_pod_policy(self, job: Object) -> str:
        """Return which pods go when the job has ended."""
        return str(run_policy(job).get("cleanPodPolicy") or "None")

    async def _take_away(self, job: Object, pod: Object) -> None:
        await self.delete(pod)
        if SERVICES in self.children and self.child(SERVICES, job, pod["metadata"]["name"]) is not None:
            await self.client.delete(SERVICES, pod["metadata"]["name"], pod["metadata"]["namespace"])

    def _is_of(self, pod: Object, job: Object) -> bool:
        return self.child(PODS, job, pod["metadata"]["name"]) is not None


def _since_s(moment: str) -> float:
    then = datetime.strptime(moment, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    now = datetime.strptime(now_text(), "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    return (now - then).total_seconds()
