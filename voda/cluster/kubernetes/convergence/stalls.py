"""Stalls: jobs that get no further though voda has done its part, because of their pods, operator or nodes.

`stall_of` says what one job waits for; `StallWatch` looks at all live jobs now and then, and reports to the log a stall
that lasts, and its end.

Rule: level, not edge: what is reported is what differs from the log, and never what only comes and goes; hence a
sentence holds nothing that changes by itself (counts, times, messages of retries).
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from msgspec import Struct

from voda.clock import Clock
from voda.cluster.kubernetes import well_known
from voda.cluster.kubernetes.client.api import Api
from voda.cluster.kubernetes.convergence.actuator import Actuator, PublishJob
from voda.cluster.kubernetes.convergence.gates import GateLifter
from voda.cluster.kubernetes.convergence.pod_refusals import pod_refusal
from voda.cluster.kubernetes.convergence.steps import Desired, DesiredHalt, DesiredRun, DesiredStop, Situation
from voda.cluster.kubernetes.kinds.operator_pods import is_launcher
from voda.cluster.kubernetes.objects import ContainerStatus, Pod
from voda.cluster.kubernetes.state.inventory import Inventory
from voda.cluster.kubernetes.state.job_objects import KubeJob, outcome_of
from voda.domain.errors import VodaError
from voda.events.types import JobStalled

_log = logging.getLogger(__name__)

SOON_S: Final = 60.0
LATE_S: Final = 300.0
"""Large images take minutes."""
_NO_IMAGE: Final = frozenset({"ErrImagePull", "ImagePullBackOff", "RegistryUnavailable"})
"""A kubelet reports them by turns."""
_NO_POD: Final = "not all of its workers have a pod: "
_STARTING: Final = frozenset({"", "ContainerCreating", "PodInitializing"})


class Stall(Struct, frozen=True):
    """What a job waits for."""

    reason: str = ""
    """One sentence; empty: for nothing."""
    may_take_long: bool = False
    """Whether minutes of it are nothing special."""
    lacks_pods: bool = False
    """Whether its controller has not made all pods, and may have said why in Events."""


NONE: Final = Stall()


def stall_of(desired: Desired, at: Situation, waiting_reason: str = "") -> Stall:
    """Return what a job waits for; of several things the first one, and what may take long only where all does.

    Its gates were not lifted last for `waiting_reason`, where no node refused its workers.
    """
    kube_job = at.kube_job
    if kube_job is None or kube_job.object.metadata.deletion_timestamp is not None:
        return NONE
    if outcome_of(kube_job, tuple(at.pods.values()), at.job_id) is not None:
        return NONE
    match desired:
        case DesiredRun(nodes):
            found = list(_starting(nodes, at, kube_job, waiting_reason))
        case DesiredHalt():
            found = list(_halting(at, kube_job))
        case DesiredStop():
            found = []
    return min(found, key=lambda stall: stall.may_take_long, default=NONE)


def _starting(nodes: Sequence[str], at: Situation, kube_job: KubeJob, waiting_reason: str) -> Iterator[Stall]:
    workers = {at.indices[key]: pod for key, pod in at.workers.items()}
    yield from _leaving(at)
    if kube_job.object.is_suspended:
        return
    if not all(index in workers for index in range(len(nodes))):
        yield Stall(
            f"{_NO_POD}see whether {kube_job.kind.operator} runs, and what it says of the {kube_job.kind.name}"
            " (kubectl describe)",
            lacks_pods=True,
        )
    for index, pod in sorted(workers.items()):
        yield from _of_pod(f"worker {index}", pod)
    if waiting_reason and not all(pod.placed_on for pod in workers.values()):
        yield Stall(waiting_reason)
    for pod in at.pods.values():
        if is_launcher(pod):
            yield from _of_launcher(pod)


def _halting(at: Situation, kube_job: KubeJob) -> Iterator[Stall]:
    yield from _leaving(at)
    if any(not pod.is_leaving for pod in at.workers.values()):
        yield Stall(f"it is suspended and its workers are still there: see whether {kube_job.kind.operator} runs")


def _leaving(at: Situation) -> Iterator[Stall]:
    for pod in {**at.workers, **at.pods}.values():
        if pod.is_leaving and at.now >= pod.leaves_at:
            yield Stall(
                f"pod {pod.metadata.name} was deleted and does not go: its node {pod.spec.node_name or '(none)'}"
                " has not confirmed its end, or a finalizer keeps it"
            )


def _of_launcher(pod: Pod) -> Iterator[Stall]:
    if pod.spec.node_name:
        yield from _of_pod("its launcher", pod)
    elif not pod.is_over and not pod.is_leaving:
        yield Stall(f"its launcher {pod.metadata.name} has no node: kube-scheduler finds none (kubectl describe pod)")


def _of_pod(who: str, pod: Pod) -> Iterator[Stall]:
    if pod.is_over or pod.is_leaving:
        return
    if not pod.spec.node_name:
        if others := ", ".join(sorted({*pod.gates} - {well_known.GATE})):
            yield Stall(f"{who} is not to be placed yet: scheduling gates {others} are closed")
        elif pod.placed_on:
            scheduler = pod.spec.scheduler_name or "kube-scheduler"
            yield Stall(f"{who} may go to {pod.placed_on}, and {scheduler} does not bind it: see whether it runs")
        return
    where = f"{who} on {pod.spec.node_name}"
    for status in (*pod.status.init_container_statuses, *pod.status.container_statuses):
        yield from _of_container(where, status)
    if pod.status.phase == "Pending":
        yield Stall(f"{where} has not started yet", may_take_long=True)


def _of_container(where: str, status: ContainerStatus) -> Iterator[Stall]:
    waiting = status.state.waiting
    if waiting is None or waiting.reason in _STARTING:
        return
    what = "cannot pull its image" if waiting.reason in _NO_IMAGE else f"does not start: {waiting.reason}"
    yield Stall(f"{where}: container {status.name} {what}")


@dataclass(kw_only=True)
class StallWatch:
    inventory: Inventory
    actuator: Actuator
    gates: GateLifter
    clock: Clock
    api: Api
    recorded_stall: Callable[[str], str]
    """job id -> the stall that the log has; empty: the job goes on."""
    publish: PublishJob
    _unreported: dict[str, tuple[str, float]] = field(default_factory=dict, init=False)
    """job id -> what it waits for and since when, where the log has something else."""

    async def look(self, live: Iterable[str]) -> None:
        """Look at all live jobs, and report what has lasted long enough."""
        now, before, jobs = self.clock.now(), self._unreported, set(live)
        self._unreported = {}
        self.gates.keep_only(jobs)
        for job_id in sorted(jobs):
            desired, recorded_stall = self._desired(job_id), self.recorded_stall(job_id)
            if desired is None and not recorded_stall:
                continue
            situation = self.actuator.situation(job_id)
            stall = stall_of(desired or DesiredHalt(), situation, self.gates.waiting_reasons.get(job_id, ""))
            is_recorded = stall.lacks_pods and recorded_stall.startswith(_NO_POD)
            if is_recorded or stall.reason == recorded_stall:
                continue
            reason, since = before.get(job_id, ("", now))
            since = since if reason == stall.reason else now
            if now - since < (LATE_S if stall.may_take_long else SOON_S):
                self._unreported[job_id] = (stall.reason, since)
            else:
                said = await self._refusal(situation) if stall.lacks_pods else ""
                self.publish(job_id, JobStalled(job_id=job_id, reason=f"{_NO_POD}{said}" if said else stall.reason))

    async def _refusal(self, at: Situation) -> str:
        """Return why a job's controller could not make pods, as it says in Events; empty where it says nothing."""
        assert at.kube_job is not None, "only a job with an object lacks pods"
        try:
            return await pod_refusal(self.api, at.kube_job.object.metadata)
        except VodaError as error:
            _log.info("events are not read job_id=%s reason=%s", at.job_id, error)
            return ""

    def _desired(self, job_id: str) -> Desired | None:
        """Return what is desired of a job; of one that runs as planned without an action so far, that it runs."""
        nodes = self.inventory.gpu_nodes(job_id)
        return self.actuator.desired.get(job_id) or (DesiredRun(tuple(nodes.values())) if nodes else None)
