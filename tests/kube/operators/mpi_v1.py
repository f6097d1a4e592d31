"""A stand-in for training-operator's MPIJob v1.

Rule: the launcher is a bare pod; any worker or launcher that fails ends the job for good.
"""

from typing import ClassVar

from tests.kube.client import (
    CONFIG_MAPS,
    MPIJOBS_V1,
    PODS,
    ROLE_BINDINGS,
    ROLES,
    SERVICE_ACCOUNTS,
    Object,
    now_text,
)
from tests.kube.operators import mpi_v1_objects as objects
from tests.kube.operators.base import REPLICA_INDEX, REPLICA_TYPE, is_evicted, labelled, phase_of, run_policy
from tests.kube.operators.training import TrainingOperator


class MpiOperatorV1(TrainingOperator):
    """See the module."""

    resource = MPIJOBS_V1
    name = "mpijob-controller"
    specs = "mpiReplicaSpecs"
    owned: ClassVar = {CONFIG_MAPS: "", SERVICE_ACCOUNTS: "", ROLES: "", ROLE_BINDINGS: ""}

    async def advance(self, job: Object, pods: list[Object]) -> None:
        """See TrainingOperator.advance."""
        job["status"].setdefault("startTime", now_text())
        launcher = self.child(PODS, job, f"{job['metadata']['name']}-launcher")
        workers: list[Object] = []
        if launcher is None or phase_of(launcher) not in ("Succeeded", "Failed"):
            await self._ensure_surroundings(job, pods)
            workers = await self._workers(job, pods)
            if launcher is None:
                launcher = await self.create(PODS, job, objects.launcher(job))
        self._tell(job, launcher, workers)

    def clean_pod_policy(self, job: Object) -> str:
        """See TrainingOperator.clean_pod_policy; this kind has the field twice."""
        return str(run_policy(job).get("cleanPodPolicy") or job["spec"].get("cleanPodPolicy") or "None")

    async def _ensure_surroundings(self, job: Object, pods: list[Object]) -> None:
        running = [pod["metadata"]["name"] for pod in pods if _is_worker(pod) and phase_of(pod) == "Running"]
        await self.ensure(SERVICE_ACCOUNTS, job, objects.service_account(job))
        await self.ensure(CONFIG_MAPS, job, objects.config_map(job, running), "data")
        await self.ensure(ROLES, job, objects.role(job), "rules")
        await self.ensure(ROLE_BINDINGS, job, objects.role_binding(job))

    async def _workers(self, job: Object, pods: list[Object]) -> list[Object]:
        wanted, there = self.wanted(job, "Worker"), [pod for pod in pods if _is_worker(pod)]
        if len(there) > wanted:
            for pod in there:
                if int(labelled(pod, REPLICA_INDEX)) >= wanted:
                    await self.delete(pod)
        return [await self._worker(job, index) for index in range(wanted)]

    async def _worker(self, job: Object, index: int) -> Object:
        found = self.child(PODS, job, objects.worker_name(job, index))
        return found if found is not None else await self.create(PODS, job, objects.worker(job, index))

    def _tell(self, job: Object, launcher: Object, workers: list[Object]) -> None:
        phases = [phase_of(pod) for pod in workers]
        evicted = sum(is_evicted(pod) for pod in workers)
        counts = {
            "Launcher": _counts([phase_of(launcher)]),
            "Worker": _counts(phases),
        }
        job["status"]["replicaStatuses"] = {
            role: {name: value for name, value in each.items() if value} for role, each in counts.items()
        }
        if phase_of(launcher) == "Succeeded":
            self.complete(job)
            self.tell(job, "Succeeded", f"{self.title(job)} successfully completed.")
            return
        if phase_of(launcher) == "Failed":
            reason = launcher["status"].get("reason", "")
            if reason != "Evicted":
                self.complete(job)
            self.tell(job, "Failed", f"{self.title(job)} has failed", reason=reason)
        if evicted:
            self.tell(job, "Failed", f"{evicted}/{len(workers)} workers are evicted", reason="Evicted")
        if counts["Launcher"]["active"]:
            self.tell(job, "Running", f"{self.title(job)} is running.")
        for role, each in counts.items():
            if each["failed"]:
                self._tell_failure(job, role, each["failed"])

    def _tell_failure(self, job: Object, role: str, failed: int) -> None:
        if job["spec"][self.specs][role].get("restartPolicy") == "ExitCode":
            # Nothing is restarted, though: a failed launcher stays as it is (training-operator's issue 1768).
            self.tell(job, "Restarting", f"{self.title(job)} is restarting because {failed} {role} replica(s) failed.")
            return
        self.complete(job)
        message = f"{self.title(job)} is failed because {failed} {role} replica(s) failed."
        self.tell(job, "Failed", message, reason="MPIJobFailed")


def _is_worker(pod: Object) -> bool:
    return labelled(pod, REPLICA_TYPE) == "worker"


def _counts(phases: list[str]) -> dict[str, int]:
    named = {"active": "Running", "succeeded": "Succeeded", "failed": "Failed"}
    return {name: phases.count(phase) for name, phase in named.items()}
