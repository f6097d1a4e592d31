"""A stand-in for mpi-operator: MPIJob v2beta1.

Rule: workers are pods of its own, the launcher is a batch/v1 Job's; only the launcher's end decides how a job ends,
save that one evicted worker marks it as failed without ending it.
"""

import asyncio
from typing import ClassVar

from tests.kube.client import (
    CONFIG_MAPS,
    JOBS,
    MPIJOBS,
    PODS,
    SECRETS,
    SERVICES,
    Client,
    Key,
    Object,
    key_of,
    now_text,
)
from tests.kube.mirror import LONGEST_DELAY_S
from tests.kube.operators import mpi_v2_objects as objects
from tests.kube.operators.base import (
    JOB_ROLE,
    REPLICA_INDEX,
    Operator,
    is_evicted,
    is_suspended,
    labelled,
    phase_of,
    replicas_of,
    run_policy,
)
from tests.kube.operators.status import find_condition, is_finished, set_condition

_FORGOTTEN_S = 1.0
"""Until the Job controller has forgotten a Job that is gone. One that is made again under its name before is taken for
it, and may be left without a pod for five minutes (https://github.com/kubernetes/kubernetes/issues/131917)."""


class MpiOperatorV2(Operator):
    """See the module."""

    resource = MPIJOBS
    name = "mpi-operator"
    manager = "kubeflow.org/mpi-operator"
    limits_events = True
    owned: ClassVar = {JOBS: "", SERVICES: "", CONFIG_MAPS: "", SECRETS: ""}

    def __init__(self, client: Client, workers: int = 16, *, longest_delay_s: float = LONGEST_DELAY_S) -> None:
        super().__init__(client, workers, longest_delay_s=longest_delay_s)
        self._gone_at: dict[Key, float] = {}
        """Launchers' Jobs that are gone, and since when by the event loop's time."""
        launchers = self.children[JOBS]
        noted = launchers.on_change

        def note(launcher: Object, is_there: bool) -> None:
            if not is_there:
                self._gone_at[key_of(launcher)] = asyncio.get_running_loop().time()
            noted(launcher, is_there)

        launchers.on_change = note

    async def reconcile(self, job: Object) -> None:
        """See Operator.reconcile."""
        problem = objects.problem_of(job)
        if problem:
            await self.warn(job, "ValidationError", problem)
            return
        status = job.setdefault("status", {})
        if not status.get("conditions"):
            set_condition(status, "Created", reason="MPIJobCreated", message=f"{_title(job)} is created.")
        if is_finished(status) and "completionTime" in status:
            await self._clean_up(job)
        else:
            await self._go_on(job)
        await self.write_status(job)

    async def _clean_up(self, job: Object) -> None:
        if run_policy(job).get("cleanPodPolicy") in ("All", "Running"):
            await self._delete_workers(job)
            job["status"].setdefault("replicaStatuses", {})["Worker"] = {}

    async def _go_on(self, job: Object) -> None:
        status, suspended = job["status"], is_suspended(job)
        if "startTime" not in status and not suspended:
            status["startTime"] = now_text()
        launcher = self.child(JOBS, job, f"{job['metadata']['name']}-launcher")
        workers: list[Object] = []
        if launcher is None or not _has_ended(launcher):
            await self._ensure_surroundings(job)
            if not suspended:
                workers = await self._workers(job)
            if launcher is None and _may_launch(job, workers):
                launcher = await self._launch(job)
        if launcher is not None:
            await self._align(launcher, job)
        if suspended:
            await self._delete_workers(job)
        self._tell(job, launcher, workers)

    async def _launch(self, job: Object) -> Object | None:
        body = objects.launcher(job)
        key = (job["metadata"]["namespace"], body["metadata"]["name"])
        left_s = self._gone_at.get(key, -_FORGOTTEN_S) + _FORGOTTEN_S - asyncio.get_running_loop().time()
        if left_s > 0:
            self.later(job, left_s)
            return None
        return await self.create(JOBS, job, body)

    async def _ensure_surroundings(self, job: Object) -> None:
        running = [
            pod["metadata"]["name"]
            for pod in self.pods_of(job)
            if labelled(pod, JOB_ROLE) == "worker" and phase_of(pod) == "Running"
        ]
        await self.ensure(SERVICES, job, objects.service(job))
        await self.ensure(CONFIG_MAPS, job, objects.config_map(job, running), "data")
        await self.ensure(SECRETS, job, objects.secret(job))

    async def _workers(self, job: Object) -> list[Object]:
        wanted = replicas_of(job, "mpiReplicaSpecs", "Worker")
        there = [pod for pod in self.pods_of(job) if labelled(pod, JOB_ROLE) == "worker"]
        if len(there) > wanted:
            # By the label, which runLauncherAsWorker shifts by one: the last wanted worker goes with the others then.
            for pod in there:
                if int(labelled(pod, REPLICA_INDEX)) >= wanted:
                    await self.delete(pod)
        return [await self._worker(job, index) for index in range(wanted)]

    async def _worker(self, job: Object, index: int) -> Object:
        found = self.child(PODS, job, objects.worker_name(job, index))
        return found if found is not None else await self.create(PODS, job, objects.worker(job, index))

    async def _delete_workers(self, job: Object) -> None:
        # Only those it wants now: lowering the replicas in the same patch as suspending leaves the others behind.
        for index in range(replicas_of(job, "mpiReplicaSpecs", "Worker")):
            pod = self.child(PODS, job, objects.worker_name(job, index))
            keeps = run_policy(job).get("cleanPodPolicy") == "Running"
            if pod is not None and not (keeps and phase_of(pod) not in ("Running", "Pending")):
                await self.delete(pod)

    async def _align(self, launcher: Object, job: Object) -> None:
        suspended = is_suspended(job)
        if objects.is_paused(launcher) != suspended and not _has_ended(launcher):
            body = {"metadata": {"resourceVersion": launcher["metadata"]["resourceVersion"]}}
            await self.client.patch(JOBS, key_of(launcher), {**body, "spec": objects.paused(suspended)})

    def _tell(self, job: Object, launcher: Object | None, workers: list[Object]) -> None:
        status, suspended = job["status"], is_suspended(job)
        if suspended:
            set_condition(status, "Suspended", reason="MPIJobSuspended", message="MPIJob suspended")
        elif find_condition(status, "Suspended") is not None and set_condition(
            status, "Suspended", reason="MPIJobResumed", message="MPIJob resumed", value=False
        ):
            status["startTime"] = now_text()
        launching = sum(
            labelled(pod, JOB_ROLE) == "launcher" and phase_of(pod) == "Running" for pod in self.pods_of(job)
        )
        if launcher is not None:
            _tell_launcher(job, launcher, launching)
        running = _count(workers, "Running")
        evicted = sum(is_evicted(pod) for pod in workers)
        counts = {"active": running, "succeeded": _count(workers, "Succeeded"), "failed": _count(workers, "Failed")}
        status.setdefault("replicaStatuses", {})["Worker"] = _without_zeros(counts)
        if evicted:
            message = f"{evicted}/{len(workers)} workers are evicted"
            set_condition(status, "Failed", reason="MPIJobEvicted", message=message)
        if suspended:
            set_condition(
                status, "Running", reason="MPIJobSuspended", message=f"{_title(job)} is suspended.", value=False
            )
        elif launcher is not None and launching and running == len(workers):
            set_condition(status, "Running", reason="MPIJobRunning", message=f"{_title(job)} is running.")


def _tell_launcher(job: Object, launcher: Object, running: int) -> None:
    status, told = job["status"], launcher.get("status", {})
    counts = {"failed": told.get("failed", 0)}
    complete, failed = _condition(launcher, "Complete"), _condition(launcher, "Failed")
    if complete is not None:
        counts["succeeded"] = 1
        status.setdefault("completionTime", told.get("completionTime") or now_text())
        set_condition(status, "Succeeded", reason="MPIJobSucceeded", message=f"{_title(job)} successfully completed.")
    elif failed is not None:
        status.setdefault("completionTime", now_text())
        reason, message = failed.get("reason") or "MPIJobFailed", failed.get("message") or f"{_title(job)} has failed"
        set_condition(status, "Failed", reason=reason, message=message)
    else:
        counts["active"] = running
    status.setdefault("replicaStatuses", {})["Launcher"] = _without_zeros(counts)


def _may_launch(job: Object, workers: list[Object]) -> bool:
    if job["spec"].get("launcherCreationPolicy", "AtStartup") == "AtStartup":
        return True
    return all(
        any(each["type"] == "Ready" and each["status"] == "True" for each in pod["status"].get("conditions", ()))
        for pod in workers
    )


def _condition(launcher: Object, kind: str) -> Object | None:
    found = find_condition(launcher.get("status", {}), kind)
    return found if found is not None and found["status"] == "True" else None


def _has_ended(launcher: Object) -> bool:
    return _condition(launcher, "Complete") is not None or _condition(launcher, "Failed") is not None


def _count(pods: list[Object], phase: str) -> int:
    return sum(phase_of(pod) == phase for pod in pods)


def _without_zeros(counts: dict[str, int]) -> dict[str, int]:
    return {name: value for name, value in counts.items() if value}


def _title(job: Object) -> str:
    return f"MPIJob {job['metadata']['namespace']}/{job['metadata']['name']}"
