"""The actuator converges single jobs towards their desired state.

1. `set_desired` takes the desired state of a job from an action of the plan, and converges the job at once.
2. `converge` does so again for every job about which something changed, until nothing is left to do (see steps.py).
3. A convergence that fails is reported to the log, and delayed, longer each time; no other job waits for it.

Rule: one convergence of a job at a time; only a leader desires anything, and forgets it all when it stands down.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final

from voda.backoff import Backoff
from voda.clock import Clock
from voda.cluster.attempts import ANSWER_S, answer_within
from voda.cluster.kubernetes import well_known
from voda.cluster.kubernetes.convergence.desired import (
    DeleteObject,
    DeletePods,
    Desired,
    DesiredHalt,
    DesiredRun,
    DesiredStop,
    LiftGates,
    ObservedJob,
    ReportObstacle,
    StartUnready,
    Step,
    Unregister,
)
from voda.cluster.kubernetes.convergence.gates import GateLifter
from voda.cluster.kubernetes.convergence.steps import KILL_GRACE_S, launcher_steps, steps, to_untrack
from voda.cluster.kubernetes.convergence.trainjobs import patch_trainjob
from voda.cluster.kubernetes.kinds.base import Patch
from voda.cluster.kubernetes.kinds.first_start import first_start_patch
from voda.cluster.kubernetes.kinds.operator_pods import index, is_launcher, most_failures, restart_in_s
from voda.cluster.kubernetes.kinds.template import TemplateValues
from voda.cluster.kubernetes.kinds.trainjob import trainjob_of
from voda.cluster.kubernetes.objects import JobObject, Pod
from voda.cluster.kubernetes.state.inventory import Inventory
from voda.cluster.kubernetes.state.job_claims import claims_obstacle, gpus_obstacle
from voda.cluster.kubernetes.state.job_objects import counted_failures
from voda.cluster.port import Notice
from voda.concurrency import for_each, gather_all
from voda.domain.errors import ActionRefused, VodaError
from voda.domain.settings import Settings
from voda.events.types import ActionFailed, JobRegistered
from voda.kubernetes_client.api import Api
from voda.kubernetes_client.errors import Conflict
from voda.kubernetes_client.metadata import PartialObject
from voda.metrics import ACTIONS, NO_TELEMETRY, Telemetry
from voda.work_queue import WorkQueue

_log = logging.getLogger(__name__)

PublishJob = Callable[[str, Notice], None]
"""(job id, fact for the log) -> nothing."""
_FIRST_PAUSE_S: Final = 0.5
_LONGEST_PAUSE_S: Final = 60.0
_GRACES_S: Final[Mapping[str, int]] = {"overdue": KILL_GRACE_S, "lost": 0, "ended": 0}
"""Why a pod is deleted -> the grace it gets; of others, its own."""
_JITTER: Final = 0.25
"""Share by which retries of jobs that failed together are spread."""
_UNFORESEEN_S: Final = 10.0
_HEARD_S: Final = 5.0
"""After this long without an effect the fact is published again."""
_MOST_NAMES: Final = 4
_AT_ONCE: Final = 32
"""Jobs that are converged at a time, of those that changed."""
_RETRIES_AT_ONCE: Final = 8
_BEHIND_S: Final = 1.0
_UNTRACK_S: Final = 1.0
"""Between two attempts: their Job may count the pods any moment."""


class Actuator:
    """Holds the desired state of each job, and acts."""

    def __init__(  # noqa: PLR0913 - its ports
        self,
        inventory: Inventory,
        api: Api,
        clock: Clock,
        gates: GateLifter,
        publish: PublishJob,
        *,
        values: TemplateValues,
        settings: Callable[[str], Settings] = lambda _pool: Settings(),
        launcher_node: Callable[[str], str] = lambda _job_id: "",
        telemetry: Telemetry = NO_TELEMETRY,
    ) -> None:
        self.desired: dict[str, Desired] = {}
        """job id -> state."""
        self.underway: set[str] = set()
        """Jobs whose desired state was tried once, and that wait for nothing of other jobs: the next tries come with
        changes of theirs, and after delays."""
        self._inventory = inventory
        self._api = api
        self._clock = clock
        self._gates = gates
        self._publish = publish
        self._values = values
        self._settings = settings
        self._launcher_node = launcher_node
        self._telemetry = telemetry
        self._busy: set[str] = set()
        self._again: set[str] = set()
        """Jobs about which something changed while they were being converged."""
        self._untracking = WorkQueue[str](clock)
        """Jobs with pods that others delete, and that could not be untracked."""
        self._given_up: dict[str, float] = {}
        """uid of an object that is to be replaced -> when the log was last asked to forget it."""
        self._pauses: dict[str, float] = {}
        """Job of which workers failed by themselves -> how long their successors are to wait, in seconds."""
        self._retries = WorkQueue[str](
            clock, Backoff(first_s=_FIRST_PAUSE_S, longest_s=_LONGEST_PAUSE_S, jitter=_JITTER)
        )
        """Jobs whose convergence failed."""

    async def set_desired(self, job_id: str, desired: Desired) -> None:
        """Set a job's desired state, and converge towards it at once, unless that has begun; see `converge`."""
        if job_id in self.underway and self.desired.get(job_id) == desired:
            return
        self.underway.discard(job_id)
        self.desired[job_id] = desired
        self._retries.forget(job_id)
        await self._attempt(job_id, within_s=ANSWER_S)
        if job_id not in self._gates.waiting_reasons or self._retries.is_delayed(job_id):
            self.underway.add(job_id)

    def stand_down(self) -> None:
        self.desired.clear()
        self.underway.clear()
        self._given_up.clear()
        self._pauses.clear()
        for queue in (self._untracking, self._retries):
            queue.clear()

    async def run(self) -> None:
        """Try again what failed, each job once its delay is over, until cancelled."""

        async def retry(queue: WorkQueue[str]) -> None:
            while True:
                await self._look_after(await queue.take())

        async with asyncio.TaskGroup() as group:
            for queue in (self._untracking, self._retries):
                for _ in range(_RETRIES_AT_ONCE):
                    group.create_task(retry(queue))

    async def converge(self, job_ids: Iterable[str]) -> None:
        """Converge jobs that are not delayed, many at a time; what fails is reported and tried again later."""
        await for_each([*job_ids], self._look_after, at_once=_AT_ONCE)

    def unsettled(self, job_ids: Iterable[str]) -> Sequence[str]:
        """Return the jobs that time alone may change: pods of theirs are being deleted, or wait for a node."""
        return [job_id for job_id in job_ids if any(map(_is_transient, self._pods(job_id).values()))]

    def nodes(self, job_id: str) -> Mapping[int, str]:
        desired = self.desired.get(job_id)
        nodes = desired.nodes if isinstance(desired, DesiredRun) else ()
        return {index: node for index, node in enumerate(nodes) if node}

    def observe(self, job_id: str) -> ObservedJob:
        inventory = self._inventory
        job, kube_job, workers = inventory.job(job_id), inventory.object_of(job_id), inventory.workers(job_id)
        indices = {key: number for key, pod in workers.items() if (number := index(pod)) is not None}
        return ObservedJob(
            job_id=job_id,
            job=job,
            kube_job=kube_job,
            workers=dict(workers),
            indices=indices,
            pods=dict(inventory.pods(kube_job)) if kube_job is not None else {},
            launcher_node=self._launcher_node(job_id),
            dead_nodes=inventory.stock.unready(self._pods(job_id).values()),
            now=self._api.server_time or self._clock.now(),
            most_grace_s=self._settings(inventory.pool(job_id) or "").termination_grace_s,
            obstacle=claims_obstacle(inventory.stock.devices, job, kube_job)
            or gpus_obstacle(inventory.stock.devices, job, workers.values()),
        )

    def _pods(self, job_id: str) -> Mapping[str, Pod]:
        """Return the pods of a job by key, launchers too, and workers that outlived its object."""
        kube_job, workers = self._inventory.object_of(job_id), self._inventory.workers(job_id)
        return {**self._inventory.pods(kube_job), **workers} if kube_job is not None else workers

    async def _look_after(self, job_id: str) -> None:
        # Whatever is desired, and however that goes: their Job may count these pods any moment.
        try:
            await gather_all(_untrack(self._api, pod) for pod in to_untrack(self._pods(job_id).values()))
        except VodaError as error:
            self._untracking.add(job_id, after_s=_UNTRACK_S)
            _log.warning("pods are still tracked job_id=%s reason=%s", job_id, error)
        except Exception:  # whatever it is, it concerns one job; the others go on
            self._untracking.add(job_id, after_s=_UNFORESEEN_S)
            _log.exception("unforeseen doing=untracking about=%s", job_id)
        if not self._retries.is_delayed(job_id):
            await self._attempt(job_id)

    async def _attempt(self, job_id: str, *, within_s: float | None = None) -> None:
        if job_id in self._busy:
            # Whoever converges it goes on, and says how that ended.
            self._again.add(job_id)
            return
        try:
            async with answer_within(within_s):
                await self._converge(job_id)
        except Conflict:
            # The mirror is a moment behind; the watch is about to show what changed.
            self._retries.add(job_id, after_s=_BEHIND_S)
        except VodaError as error:
            self._delay(job_id, str(error), at_least_s=min(getattr(error, "retry_after_s", 0.0), _LONGEST_PAUSE_S))
        except Exception as error:  # whatever it is, it concerns one job; the others go on
            _log.exception("unforeseen doing=converging about=%s", job_id)
            self._delay(job_id, f"{error!r} was not foreseen", at_least_s=_UNFORESEEN_S)
        else:
            self._retries.forget(job_id)
            if pause_s := self._pauses.pop(job_id, 0.0):
                self._retries.failed(job_id, at_least_s=pause_s)

    def _delay(self, job_id: str, error: str, *, at_least_s: float) -> None:
        attempt = self._retries.failed(job_id, at_least_s=at_least_s)
        self._telemetry.count(ACTIONS, self._inventory.pool(job_id) or "", "converge", "failed")
        retry_at = self._retries.due_at(job_id)
        fact = ActionFailed(job_id=job_id, action="converge", error=error, attempt=attempt, retry_at=retry_at)
        self._publish(job_id, fact)

    async def _converge(self, job_id: str) -> None:
        self._busy.add(job_id)
        try:
            while True:
                self._again.discard(job_id)
                try:
                    await self._act(job_id)
                except Conflict:
                    # The mirror has caught up since, and no later change will bring the job up again.
                    if job_id not in self._again:
                        raise
                if job_id not in self._again:
                    return
        finally:
            self._busy.discard(job_id)

    async def _act(self, job_id: str) -> None:
        at = self.observe(job_id)
        desired = self.desired.get(job_id)
        if desired is None:
            for step in launcher_steps(at):
                await self._execute(step, at)
            return
        is_whole = at.job is not None and (
            not at.job.workers or (at.kube_job is not None and at.kube_job.starts_together)
        )
        if isinstance(desired, DesiredRun) and at.job is not None and is_whole and at.job.retry_at > at.now:
            # What is left of its last start may go; it starts anew then.
            desired, self._pauses[job_id] = DesiredHalt(), at.job.retry_at - at.now
        self._reserve(desired, at)
        todo = steps(desired, at)
        for step in todo:
            await self._execute(step, at)
        if isinstance(desired, DesiredStop) and not todo and all(map(_is_at_rest, at.workers.values())):
            self.desired.pop(job_id, None)
            self.underway.discard(job_id)

    def _reserve(self, desired: Desired, at: ObservedJob) -> None:
        """Reserve again what a former leader reserved: for workers that it let go to where the plan has them."""
        if not isinstance(desired, DesiredRun) or at.kube_job is None:
            return
        planned = self.nodes(at.job_id)
        for key, pod in at.workers.items():
            is_own = at.kube_job.object.owns(pod)
            if is_own and pod.placed_on and not pod.spec.node_name and pod.placed_on == planned.get(at.indices[key]):
                self._gates.reservations.reserve(pod, pod.placed_on)
        for pod in at.pods.values():
            if is_launcher(pod) and pod.placed_on == at.launcher_node != "" and not pod.spec.node_name:
                self._gates.reservations.reserve(pod, pod.placed_on)

    async def _execute(self, step: Step, at: ObservedJob) -> None:
        match step:
            case Patch():
                await self._patch(at, step)
            case StartUnready(replicas):
                assert at.kube_job is not None, "only an object that was seen is started"
                assert at.job is not None, "only a live job is started"
                await self._patch(at, first_start_patch(*at.kube_job, at.job.spec, self._values, replicas))
            case DeleteObject():
                assert at.kube_job is not None, "only an object that was seen is deleted"
                meta = at.kube_job.object.metadata
                # What it was made of would make it again.
                made_of = trainjob_of(meta)
                if made_of is None or not await self._api.delete(made_of.path, uid=made_of.uid):
                    await self._api.delete(at.kube_job.path, uid=meta.uid)
            case Unregister(reason):
                assert at.job is not None, "only a live job has an object to forget"
                # Otherwise the log is about to have it.
                if at.now >= self._given_up.get(at.job.uid, 0.0) + _HEARD_S:
                    self._given_up[at.job.uid] = at.now
                    self._publish(at.job_id, JobRegistered(job_id=at.job_id, uid="", reason=reason))
            case DeletePods():
                await self._delete_pods(step, at)
            case ReportObstacle(reason):
                raise ActionRefused(reason)
            case LiftGates(nodes, replicas):
                pods = {**at.pods, **at.workers}
                placed = [(pods[key], node) for key, node in nodes.items()]
                await self._gates.lift(at.job_id, placed, replicas=replicas)
                if at.job_id in self._gates.waiting_reasons:
                    self.underway.discard(at.job_id)

    async def _patch(self, at: ObservedJob, patch: Patch) -> None:
        assert at.kube_job is not None, "only an object that was seen is patched"
        child = at.kube_job.object.child
        uid = child.metadata.uid if child is not None else ""
        patched = self._inventory.objects.get(uid) if patch.is_of_child else at.kube_job
        if patched is None:
            # Its controller makes it anew.
            return
        path, body = patched.path, patch.body
        if patch.is_of_trainjob and (made_of := trainjob_of(patched.object.metadata)) is not None:
            await patch_trainjob(self._api, made_of, body, patched.object.metadata)
            return
        if patch.subresource:
            await self._api.patch(f"{path}/{patch.subresource}", body, dict)
            return
        meta, given = patched.object.metadata, body.get("metadata")
        # Not a later object of the same name.
        known: dict[str, object] = {"uid": meta.uid, **(given if isinstance(given, Mapping) else {})}
        if patch.if_unchanged:
            known["resourceVersion"] = meta.resource_version
        now = await self._api.patch(path, {**body, "metadata": known}, JobObject)
        if now is not None:
            self._inventory.update_object(patched.kind, now)

    async def _delete_pods(self, step: DeletePods, at: ObservedJob) -> None:
        there = {**at.pods, **at.workers}
        pods = [there[key] for key in step.keys]
        if step.why == "ended":
            if await self._count_failures(pods, at):
                # They were the last; they stay to say how they ended.
                return
        else:
            await gather_all(_untrack(self._api, pod) for pod in pods if pod.is_tracked)
        grace_s = max(KILL_GRACE_S, int(at.most_grace_s)) if step.why == "slow" else _GRACES_S.get(step.why)
        # One that is not there any more leaves the inventory with the watch, or with the next list.
        await gather_all(self._api.delete(pod.path, uid=pod.metadata.uid, grace_s=grace_s) for pod in pods)
        if step.why == "ungated":
            names = ", ".join(pod.metadata.name for pod in pods[:_MOST_NAMES])
            # An operator that drops the gate makes such pods again and again: hence the delay of a failure.
            raise ActionRefused(
                f"the scheduling gate {well_known.GATE} of {names} was lifted by somebody else, or dropped by an"
                " operator that is too old to know it; voda deleted the pods, to place their successors itself"
            )

    async def _count_failures(self, pods: Sequence[Pod], at: ObservedJob) -> bool:
        """Note which workers failed by themselves, and return whether their job has failed for good by that."""
        if (kube_job := at.kube_job) is None:
            return False
        if noted := counted_failures(kube_job, pods, at.workers.values()):
            version = kube_job.object.metadata.resource_version
            await self._patch(at, Patch(body={"metadata": {"annotations": noted, "resourceVersion": version}}))
            failures = int(noted[well_known.WORKER_FAILURES])
            self._pauses[at.job_id] = restart_in_s(failures)
            return failures > most_failures(kube_job.object)
        return False


async def _untrack(api: Api, pod: Pod) -> None:
    """Keep a Job from counting how a pod ends that is taken away."""
    kept = [each for each in pod.metadata.finalizers if each != well_known.JOB_TRACKING]
    body = {"metadata": {"uid": pod.metadata.uid, "finalizers": kept or None}}
    with suppress(Conflict):
        # Another pod has its name by now.
        await api.patch(pod.path, body, PartialObject)


def _is_at_rest(pod: Pod) -> bool:
    return pod.is_over and not pod.is_leaving


def _is_transient(pod: Pod) -> bool:
    return pod.is_leaving or (not pod.spec.node_name and not pod.is_over)
