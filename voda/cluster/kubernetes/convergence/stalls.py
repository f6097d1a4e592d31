"""Stalls: jobs that get no further though voda has done its part, because of their pods, operator or nodes.

`stalls_of` says what one job waits for; `StallWatch` looks at all live jobs now and then, and reports to the log what
lasts, and its end.

Rule: level, not edge: what is reported is what differs from the log, and never what only comes and goes.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from voda.backoff import Backoff
from voda.clock import Clock
from voda.cluster.kubernetes import well_known
from voda.cluster.kubernetes.container_status import ContainerStatus
from voda.cluster.kubernetes.convergence.actuator import Actuator, PublishJob
from voda.cluster.kubernetes.convergence.desired import Desired, DesiredHalt, DesiredRun, DesiredStop, ObservedJob
from voda.cluster.kubernetes.convergence.gates import GateLifter
from voda.cluster.kubernetes.convergence.pod_refusals import pod_refusal
from voda.cluster.kubernetes.kinds.operator_pods import is_launcher
from voda.cluster.kubernetes.objects import Pod
from voda.cluster.kubernetes.state.devices import awaited_conditions
from voda.cluster.kubernetes.state.inventory import Inventory
from voda.cluster.kubernetes.state.job_objects import KubeJob, done_indices, failures_in_backoff, outcome_of
from voda.concurrency import for_each
from voda.domain.errors import VodaError
from voda.domain.reasons.stalls import (
    Attaching,
    ContainerWaits,
    LacksPods,
    NotBound,
    NotStarted,
    OtherGates,
    PodStays,
    StallReason,
    Unscheduled,
    WorkersStay,
)
from voda.events.types import JobStalled
from voda.kubernetes_client.api import Api

_log = logging.getLogger(__name__)

SOON_S: Final = 60.0
LATE_S: Final = 300.0
"""Large images take minutes."""
OVER_S: Final = 10.0
"""After this long without it, what kept workers from their work is over: others would go first for it. What is certain
is told after as long."""
_LISTS_AT_ONCE: Final = 8
"""Lists of Events."""
_READING_S: Final = 15.0
"""After this long no further list is asked for until the next look."""
_READ_AGAIN_S: Final = (60.0, 600.0)
"""The first and the longest pause before Events of a job that is recorded to lack pods are read again."""
_NO_IMAGE: Final = frozenset({"ErrImagePull", "ImagePullBackOff", "RegistryUnavailable"})
"""A kubelet reports them by turns."""
_FAILS: Final = "CrashLoopBackOff"
_STARTING: Final = frozenset({"", "ContainerCreating", "PodInitializing"})
_RECURRING: Final = (ContainerWaits, LacksPods, NotStarted)
"""Stalls that come and go while their cause lasts; all others are over once they are gone."""
_NONE_AWAITED: Final[Mapping[str, Sequence[str]]] = {}


class Stall(Struct, frozen=True):
    """What a job waits for."""

    reason: StallReason | None = None
    """None: for nothing."""
    may_take_long: bool = False
    """Whether minutes of it are nothing special."""
    is_certain: bool = False
    """Whether it is no guess from how long it has lasted."""
    at_work: int | None = None
    """As JobStalled has it."""


NONE: Final = Stall()


def stalls_of(
    desired: Desired,
    at: ObservedJob,
    waiting_reason: StallReason | None = None,
    awaited: Mapping[str, Sequence[str]] = _NONE_AWAITED,
) -> Sequence[Stall]:
    """Return what a job waits for.

    Its gates were not lifted last for `waiting_reason`, where no node refused its workers; `awaited` are the
    conditions of devices without which kube-scheduler does not bind them, by key of a pod.
    """
    kube_job = at.kube_job
    if kube_job is None or kube_job.object.metadata.deletion_timestamp is not None:
        return ()
    if outcome_of(kube_job, tuple(at.pods.values()), at.job_id) is not None:
        return ()
    match desired:
        case DesiredRun(nodes):
            return tuple(_starting(nodes, at, kube_job, waiting_reason, awaited))
        case DesiredHalt():
            return tuple(_halting(at, kube_job))
        case DesiredStop():
            return ()


def foremost(found: Sequence[Stall]) -> Stall:
    """Return the first one, and what may take long only where all does."""
    stall = min(found, key=lambda stall: stall.may_take_long, default=NONE)
    kept = (each.at_work for each in found if each.at_work is not None)
    return replace(stall, at_work=min(kept, default=None))


def _starting(
    nodes: Sequence[str],
    at: ObservedJob,
    kube_job: KubeJob,
    waiting_reason: StallReason | None,
    awaited: Mapping[str, Sequence[str]],
) -> Iterator[Stall]:
    planned = {key: index for key, index in at.indices.items() if index < len(nodes)}
    # One that has failed and stays for its operator's sake hides neither its successor nor that there is none.
    workers = {index: pod for key, index in planned.items() if (pod := at.workers[key]).status.phase != "Failed"}
    # A job gives its last workers back first: where one beyond a gap is at work, the gap frees no GPU of use to others.
    working = max((index + 1 for index, pod in workers.items() if pod.status.phase == "Running"), default=0)
    yield from _leaving(at)
    if kube_job.object.is_suspended:
        return
    there = workers.keys() | kube_job.done_indices
    if (lacking := next((index for index in range(len(nodes)) if index not in there), None)) is not None:
        failures = failures_in_backoff(kube_job, at.pods.values(), at.now)
        yield Stall(
            LacksPods(operator=kube_job.kind.operator, object=kube_job.kind.name, failures=failures),
            # A Job makes a successor only after a delay.
            may_take_long=lacking in planned.values() and not failures,
            is_certain=failures > 0,
            at_work=lacking if lacking >= working else None,
        )
    for index, pod in sorted(workers.items()):
        at_work = index if index >= working else None
        if (conditions := awaited.get(pod.metadata.key)) is not None:
            reason = Attaching(worker=index, node=pod.placed_on, conditions=tuple(conditions))
            yield Stall(reason, may_take_long=True, is_certain=True, at_work=at_work)
        else:
            yield from _of_pod(index, pod, at_work=at_work)
    if waiting_reason is not None and not all(pod.placed_on for pod in workers.values()):
        yield Stall(waiting_reason)
    for pod in at.pods.values():
        if is_launcher(pod):
            yield from _of_launcher(pod)


def _halting(at: ObservedJob, kube_job: KubeJob) -> Iterator[Stall]:
    yield from _leaving(at)
    if any(not pod.is_leaving for pod in at.workers.values()):
        yield Stall(WorkersStay(operator=kube_job.kind.operator))


def _leaving(at: ObservedJob) -> Iterator[Stall]:
    for pod in {**at.workers, **at.pods}.values():
        if pod.is_leaving and at.now >= pod.leaves_at:
            yield Stall(PodStays(pod=pod.metadata.name, node=pod.spec.node_name))


def _of_launcher(pod: Pod) -> Iterator[Stall]:
    if pod.spec.node_name or pod.gates or pod.placed_on:
        yield from _of_pod(None, pod, at_work=0)
    elif pod.is_active:
        yield Stall(Unscheduled(launcher=pod.metadata.name), at_work=0)


def _of_pod(worker: int | None, pod: Pod, *, at_work: int | None) -> Iterator[Stall]:
    if not pod.is_active:
        return
    if not pod.spec.node_name:
        if others := tuple(sorted({*pod.gates} - {well_known.GATE})):
            yield Stall(OtherGates(worker=worker, gates=others), at_work=at_work)
        elif pod.placed_on:
            scheduler = pod.spec.scheduler_name or "kube-scheduler"
            yield Stall(NotBound(worker=worker, node=pod.placed_on, scheduler=scheduler), at_work=at_work)
        return
    node = pod.spec.node_name
    for status in (*pod.status.init_container_statuses, *pod.status.container_statuses):
        yield from _of_container(worker, node, status, at_work)
    if pod.status.phase == "Pending":
        yield Stall(NotStarted(worker=worker, node=node), may_take_long=True)


def _of_container(worker: int | None, node: str, status: ContainerStatus, at_work: int | None) -> Iterator[Stall]:
    waiting = status.state.waiting
    if waiting is None or waiting.reason in _STARTING:
        return
    why = "" if waiting.reason in _NO_IMAGE else waiting.reason
    # A program that fails again and again has run.
    kept = None if waiting.reason == _FAILS else at_work
    yield Stall(ContainerWaits(worker=worker, node=node, container=status.name, why=why), at_work=kept)


@dataclass(kw_only=True)
class StallWatch:
    inventory: Inventory
    actuator: Actuator
    gates: GateLifter
    clock: Clock
    api: Api
    recorded_stall: Callable[[str], StallReason | None]
    """job id -> the stall that the log has; None: the job goes on."""
    publish: PublishJob
    _unreported: dict[str, tuple[StallReason | None, float]] = field(default_factory=dict, init=False)
    """job id -> what it waits for and since when, where the log has something else."""
    _settled: dict[str, Desired | None] = field(default_factory=dict, init=False)
    """Jobs that waited for nothing when they were looked at last, and have not changed since -> what was desired then:
    to look at thousands of pods every few seconds takes longer than all else."""
    _told_over: dict[str, StallReason] = field(default_factory=dict, init=False)
    """job id -> the stall of which the log was told that it is over, and may still have it."""
    _read_again: Backoff = field(
        default_factory=partial(Backoff, first_s=_READ_AGAIN_S[0], longest_s=_READ_AGAIN_S[1]), init=False
    )
    """Of the Events of jobs that lack pods."""

    def changed(self, job_ids: Iterable[str]) -> None:
        """Look at these jobs again, about which something has changed."""
        for job_id in job_ids:
            self._settled.pop(job_id, None)

    async def look(self, live: Iterable[str]) -> None:
        """Look at all live jobs that may wait for something, and report what has lasted long enough."""
        now, before, jobs = self.clock.now(), self._unreported, set(live)
        self._unreported = {}
        lacking: list[JobStalled] = []
        recorded: list[JobStalled] = []
        self.gates.keep_only(jobs)
        self._read_again.forget_before(now - _READ_AGAIN_S[1])
        desired = self.actuator.desired
        self._settled = {
            job_id: state for job_id, state in self._settled.items() if job_id in jobs and desired.get(job_id) == state
        }
        self._told_over = {job_id: reason for job_id, reason in self._told_over.items() if job_id in jobs}
        for job_id in sorted(jobs - self._settled.keys()):
            recorded_stall = self.recorded_stall(job_id)
            if self._desired(job_id) is None and recorded_stall is None:
                continue
            found = self._found(job_id)
            stall = foremost(found)
            is_guess = isinstance(stall.reason, LacksPods) and not stall.is_certain
            if is_guess and isinstance(recorded_stall, LacksPods):
                # Its controller may say something else by now.
                if self._read_again.is_due(job_id, now):
                    recorded.append(self._fact(job_id, stall, self._recorded_since(job_id, now)))
                continue
            self._read_again.reset(job_id)
            if stall.reason == recorded_stall:
                if stall.reason is None and not self.actuator.unsettled([job_id]):
                    self._settled[job_id] = desired.get(job_id)
                continue
            reason, since = before.get(job_id, (None, now))
            since = since if reason == stall.reason else now
            if self._is_over(job_id, recorded_stall, found):
                self.publish(job_id, self._fact(job_id, NONE, now))
                self._unreported[job_id] = (stall.reason, since)
            elif now - since < self._lasts_s(job_id, stall):
                self._unreported[job_id] = (stall.reason, since)
            elif is_guess:
                lacking.append(self._fact(job_id, stall, since))
            else:
                self.publish(job_id, self._fact(job_id, stall, since))
        # Last: nothing that is known waits for a server that is slow.
        report = partial(self._report_lacking, until=now + _READING_S)
        await for_each([*lacking, *recorded], report, at_once=_LISTS_AT_ONCE)

    def _is_over(self, job_id: str, recorded: StallReason | None, found: Sequence[Stall]) -> bool:
        """Say whether what the log has is over for good, and the log was not told so yet."""
        reasons = [stall.reason for stall in found]
        # Attached, a pod is bound within seconds, and then the start counts as that of any other job.
        is_attached = isinstance(recorded, Attaching) and any(isinstance(each, Attaching) for each in reasons)
        if recorded is None or isinstance(recorded, _RECURRING) or is_attached or recorded in reasons:
            self._told_over.pop(job_id, None)
            return False
        is_told, self._told_over[job_id] = self._told_over.get(job_id) == recorded, recorded
        return not is_told

    def _found(self, job_id: str) -> Sequence[Stall]:
        desired, waiting_reason = self._desired(job_id), self.gates.waiting_reasons.get(job_id)
        at = self.actuator.observe(job_id)
        return stalls_of(
            desired or DesiredHalt(), at, waiting_reason, awaited_conditions(self.inventory.stock.devices, at.workers)
        )

    def _recorded_since(self, job_id: str, now: float) -> float:
        job = self.inventory.job(job_id)
        return job.obstacle.since if job is not None and job.obstacle is not None else now

    def _lasts_s(self, job_id: str, stall: Stall) -> float:
        """Return how long a stall, or none, must last to be reported."""
        if stall.is_certain:
            return OVER_S
        if stall.reason is not None:
            return LATE_S if stall.may_take_long else SOON_S
        job = self.inventory.job(job_id)
        return OVER_S if job is not None and job.obstacle is not None else SOON_S

    async def _report_lacking(self, fact: JobStalled, until: float) -> None:
        """Report a job that lacks pods, with its controller's own words where it says in Events why."""
        job_id, now = fact.job_id, self.clock.now()
        if now >= until:
            # The server is slow, and other stalls are to be looked at.
            self._unreported[job_id] = (fact.reason, now if fact.since is None else fact.since)
            return
        self._read_again.failed(job_id, now)
        said = await self._said(job_id)
        lack = foremost(self._found(job_id)).reason
        if not isinstance(lack, LacksPods):
            # Its pods came meanwhile.
            return
        if said:
            self._publish_new(replace(fact, reason=replace(lack, said=said)))
        elif not isinstance(self.recorded_stall(job_id), LacksPods):
            # Events go after an hour, and what was said in them stands.
            self._publish_new(fact)

    async def _said(self, job_id: str) -> str:
        """Return what a job's controller says of pods that it could not make; empty: nothing, or it cannot be read."""
        kube_job = self.inventory.object_of(job_id)
        if kube_job is None:
            return ""
        try:
            return await pod_refusal(self.api, kube_job.object.metadata)
        except VodaError as error:
            _log.info("events are not read job_id=%s reason=%s", job_id, error)
            return ""

    def _publish_new(self, fact: JobStalled) -> None:
        if fact.reason != self.recorded_stall(fact.job_id):
            self.publish(fact.job_id, fact)

    def _desired(self, job_id: str) -> Desired | None:
        """Return what is desired of a job; of one that runs as planned without an action so far, that it runs."""
        nodes = self.inventory.gpu_nodes(job_id)
        return self.actuator.desired.get(job_id) or (DesiredRun(tuple(nodes.values())) if nodes else None)

    def _fact(self, job_id: str, stall: Stall, since: float) -> JobStalled:
        fact = JobStalled(job_id=job_id, reason=stall.reason, run_again=self._run_again(job_id))
        return fact if stall.at_work is None else replace(fact, at_work=stall.at_work, since=since)

    def _run_again(self, job_id: str) -> tuple[int, ...]:
        """Return the replicas that were done for the log, and that the job's object does not count as done."""
        job, done = self.inventory.job(job_id), done_indices(self.inventory.object_of(job_id))
        return tuple(index for index in job.done if index not in done) if job is not None else ()
