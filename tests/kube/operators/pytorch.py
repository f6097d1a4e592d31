"""A stand-in for training-operator's PyTorchJob v1.

Rule: a pod that is being deleted while it runs counts as failed; whether a failure ends the job is restartPolicy's
matter.
"""

from collections.abc import Iterable
from copy import deepcopy
from typing import ClassVar

from tests.kube.client import PODS, PYTORCHJOBS, SERVICES, Object, now_text
from tests.kube.operators.base import (
    JOB_NAME,
    JOB_ROLE,
    OPERATOR_NAME,
    REPLICA_INDEX,
    REPLICA_TYPE,
    labelled,
    phase_of,
)
from tests.kube.operators.training import TrainingOperator

_PORT = 23456
# SIGUSR1's, and whatever a signal ended.
_RETRYABLE = 128


class PyTorchOperator(TrainingOperator):
    """See the module."""

    resource = PYTORCHJOBS
    name = "pytorchjob-controller"
    specs = "pytorchReplicaSpecs"
    owned: ClassVar = {SERVICES: f"{OPERATOR_NAME}=pytorchjob-controller"}

    async def advance(self, job: Object, pods: list[Object]) -> None:
        """See TrainingOperator.advance."""
        job["status"].setdefault("startTime", now_text())
        for role in job["spec"][self.specs]:
            mine = [pod for pod in pods if labelled(pod, REPLICA_TYPE) == role.lower()]
            await self._bring_into_line(job, role, mine)
        self._tell(job)

    async def _bring_into_line(self, job: Object, role: str, pods: list[Object]) -> None:
        wanted, there = self.wanted(job, role), {int(labelled(pod, REPLICA_INDEX)): pod for pod in pods}
        for index, pod in sorted(there.items()):
            if index >= wanted:
                await self._take_away(job, pod)
            elif phase_of(pod) == "Failed":
                await self._recover(job, role, pod)
        for index in range(wanted):
            if index not in there:
                await self.create(PODS, job, _pod(job, role, index))
            await self.ensure(SERVICES, job, _service(job, role, index))
        counts = _counts(there.values())
        counts["selector"] = (
            f"{OPERATOR_NAME}={self.name},{JOB_NAME}={job['metadata']['name']},{REPLICA_TYPE}={role.lower()}"
        )
        job["status"].setdefault("replicaStatuses", {})[role] = {key: value for key, value in counts.items() if value}

    async def _recover(self, job: Object, role: str, pod: Object) -> None:
        policy = _restart_policy(job, role)
        if policy in ("OnFailure", "Always") or (policy == "ExitCode" and _exit_code(pod) >= _RETRYABLE):
            await self.delete(pod)
            self.tell(
                job, "Restarting", f"job {job['metadata']['name']} is restarting because {role} replica(s) failed."
            )
        elif policy == "ExitCode":
            # The operator forgets completionTime here.
            self.tell(job, "Failed", f'job "{job["metadata"]["name"]}" is failing because "{role}" replica(s) failed.')

    def _tell(self, job: Object) -> None:
        roles = job["spec"][self.specs]
        for role in roles:
            counts = job["status"]["replicaStatuses"][role]
            active, succeeded = counts.get("active", 0), counts.get("succeeded", 0)
            wanted, failed = self.wanted(job, role), counts.get("failed", 0)
            if role == "Master" or "Master" not in roles:
                is_elastic = job["spec"].get("elasticPolicy") is not None and role == "Worker"
                if succeeded >= wanted or (is_elastic and succeeded):
                    self.complete(job)
                    self.tell(job, "Succeeded", f"{self.title(job)} is successfully completed.")
                    return
                if active:
                    self.tell(job, "Running", f"{self.title(job)} is running.")
            if failed and wanted > succeeded + active:
                self._tell_failure(job, role, failed)

    def _tell_failure(self, job: Object, role: str, failed: int) -> None:
        if _restart_policy(job, role) != "Never":
            self.tell(job, "Restarting", f"{self.title(job)} is restarting because {failed} {role} replica(s) failed.")
        else:
            self.complete(job)
            self.tell(job, "Failed", f"{self.title(job)} is failed because {failed} {role} replica(s) failed.")


def _counts(pods: Iterable[Object]) -> Object:
    found = {"active": 0, "succeeded": 0, "failed": 0}
    for pod in pods:
        phase, is_leaving = phase_of(pod), "deletionTimestamp" in pod["metadata"]
        found["active"] += phase == "Running" and not is_leaving
        found["succeeded"] += phase == "Succeeded"
        found["failed"] += phase == "Failed" or (phase == "Running" and is_leaving)
    return dict(found)


def _pod(job: Object, role: str, index: int) -> Object:
    template: Object = deepcopy(job["spec"]["pytorchReplicaSpecs"][role]["template"])
    metadata = template.setdefault("metadata", {})
    metadata["name"] = _name(job, role, index)
    metadata["labels"] = {**metadata.get("labels", {}), **_labels(job, role, index)}
    policy = _restart_policy(job, role)
    template["spec"]["restartPolicy"] = "Never" if policy == "ExitCode" else policy
    for container in template["spec"]["containers"]:
        if container["name"] == "pytorch":
            container.setdefault("env", []).extend(_environment(job))
            container["ports"] = [*container.get("ports", []), {"name": "pytorchjob-port", "containerPort": _PORT}]
    return template


def _environment(job: Object) -> list[Object]:
    found = {"PYTHONUNBUFFERED": "1"}
    elastic = job["spec"].get("elasticPolicy")
    if elastic is not None:
        workers = job["spec"]["pytorchReplicaSpecs"]["Worker"].get("replicas", 1)
        least, most = elastic.get("minReplicas", workers), elastic.get("maxReplicas", workers)
        host, port = elastic.get("rdzvHost", _name(job, "Worker", 0)), elastic.get("rdzvPort", _PORT)
        found |= {"PET_RDZV_ENDPOINT": f"{host}:{port}", "PET_RDZV_BACKEND": elastic.get("rdzvBackend", "c10d")}
        found |= {"PET_NNODES": f"{least}:{most}", "PET_NPROC_PER_NODE": str(job["spec"].get("nprocPerNode", "auto"))}
        found |= {"PET_MAX_RESTARTS": str(elastic["maxRestarts"])} if "maxRestarts" in elastic else {}
    return [{"name": key, "value": value} for key, value in found.items()]


def _service(job: Object, role: str, index: int) -> Object:
    labels = _labels(job, role, index)
    port = {"name": "pytorchjob-port", "port": _PORT}
    spec = {"clusterIP": "None", "selector": labels, "ports": [port]}
    return {"metadata": {"name": _name(job, role, index), "labels": labels}, "spec": spec}


def _labels(job: Object, role: str, index: int) -> dict[str, str]:
    own = {OPERATOR_NAME: "pytorchjob-controller", JOB_NAME: job["metadata"]["name"]}
    own |= {REPLICA_TYPE: role.lower(), REPLICA_INDEX: str(index)}
    return {**own, **({JOB_ROLE: "master"} if role == "Master" else {})}


def _name(job: Object, role: str, index: int) -> str:
    return f"{job['metadata']['name']}-{role.lower()}-{index}"


def _restart_policy(job: Object, role: str) -> str:
    return str(job["spec"]["pytorchReplicaSpecs"][role].get("restartPolicy") or "OnFailure")


def _exit_code(pod: Object) -> int:
    for each in pod["status"].get("containerStatuses", ()):
        if each["name"] == "pytorch" and "terminated" in each.get("state", {}):
            return int(each["state"]["terminated"]["exitCode"])
    # Of a pod that never told, such as an evicted one: larger than any signal's.
    return 0xBEEF
