"""Nodes that cannot take one more worker of a job: how many they take is reported to the log, and tried again later.

1. `refusals_of` finds in the pods of a job which nodes refuse a worker, and how many they take all the same.
2. `RefusalReports.see` reports that; what the log has already, only once the node has taken fewer for a while.
3. `RefusalReports.retry` lets one worker more be tried after a delay, which doubles with each refusal in a row; where
   all would have to start anew for it, at their next start only.

Rule: what a refusal proves is a number: workers that are bound stay, and as many as were bound can be bound there.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from typing import Final

from msgspec import Struct

from voda.backoff import Backoff
from voda.clock import Clock
from voda.cluster.kubernetes.objects import Pod
from voda.cluster.kubernetes.state.inventory import Inventory
from voda.cluster.kubernetes.state.job_pods import is_refusal
from voda.domain.job import Job
from voda.domain.reasons.nodes import ByKubelet, ByScheduler, NodeRefusal
from voda.events.types import WorkerRefused
from voda.metrics import WORKER_REFUSALS, Telemetry

AVOIDED_S: Final = 300.0
"""After this long a node that refused a worker is tried again: what was taken there may be free by now."""
LONGEST_AVOIDED_S: Final = 3_600.0
"""Each refusal in a row doubles the delay up to this one: every try takes GPUs from others for a moment."""
UNSETTLED_S: Final = 3.0
"""So long kube-scheduler has for the other workers that may go to their nodes, before a refusal is told without."""
STALE_S: Final = 15.0
"""So long a sentence of kube-scheduler may be out of date: it waits up to 10 s before it looks at a pod again."""
_NO_DEVICES: Final = "cannot allocate all claims"
"""What kube-scheduler says where devices are wanting; 1.37 still does for a moment after another pod has left them."""
_MOST_LETTERS: Final = 200
_GATED: Final = "SchedulingGated"
"""Why kube-scheduler has not looked yet."""
_GANG: Final = re.compile(r"\b(\d{1,6}) scheduled, \d+ remaining")
"""What kube-scheduler says of a gang that it cannot bind whole: how many of it would have a place."""


class Refusal(Struct, frozen=True):
    reason: NodeRefusal
    fits: int
    """Workers of the job that the node takes."""
    is_settled: bool = True
    """Whether all others that may go to their nodes are bound or refused."""
    by_kubelet: Set[str] = frozenset()
    """uids of the pods that the kubelet refused: they have failed, and may stay long after."""


def refusals_of(workers: Iterable[Pod], told: Set[str] = frozenset()) -> Mapping[str, Refusal]:
    """Return node -> its refusal, of nodes for which kube-scheduler or the kubelet would not take one of a job's pods.

    Several workers that one node refuses are one refusal, in the words about the first by name. Pods that a kubelet
    refused and whose uids are `told` say nothing any more.
    """
    by_node: defaultdict[str, list[Pod]] = defaultdict(list)
    for pod in sorted(workers, key=lambda pod: pod.metadata.name):
        if pod.placed_on:
            by_node[pod.placed_on].append(pod)
    there = {node: [pod for pod in pods if not pod.is_over] for node, pods in by_node.items()}
    anew = (pod for pods in by_node.values() for pod in pods if pod.metadata.uid not in told)
    refused = {pod.metadata.name: why for pod in anew if (why := _why(pod))}
    waiting = (pod for pods in there.values() for pod in pods if not pod.spec.node_name and pod.is_active)
    is_settled = all(pod.metadata.name in refused for pod in waiting)
    found: dict[str, Refusal] = {}
    for node, pods in by_node.items():
        said = [refused[pod.metadata.name] for pod in pods if pod.metadata.name in refused]
        if not said:
            continue
        bound = sum(bool(pod.spec.node_name) for pod in there[node])
        # Of a gang none is bound; what would fit beside its workers elsewhere fits here.
        elsewhere = sum(map(len, there.values())) - len(there[node])
        gang = max((int(number) - elsewhere for why in said for number in _remaining(why)), default=0)
        failed = frozenset(pod.metadata.uid for pod in pods if pod.is_over and pod.metadata.name in refused)
        found[node] = Refusal(said[0], max(bound, gang), is_settled, failed)
    return found


class RefusalReports:
    """What the log has been told of nodes that refuse workers, and when they are tried again."""

    def __init__(
        self,
        inventory: Inventory,
        clock: Clock,
        publish: Callable[[str, WorkerRefused], None],
        *,
        telemetry: Telemetry,
    ) -> None:
        self._inventory = inventory
        self._clock = clock
        self._publish = publish
        self._telemetry = telemetry
        self._reported: dict[str, int] = {}
        """Job and node, by `_pair` -> workers that the node takes, as far as the log was told here."""
        self._tried: set[str] = set()
        """Pairs of which one worker more is being tried."""
        self._heard: dict[str, Set[str]] = {}
        """Job id -> uids of its pods that a kubelet refused, and of which the log was told."""
        self._since: dict[str, tuple[int, float]] = {}
        """Pair -> how few workers the node takes, and since when, where the log has another number, or none."""
        self._backoff = Backoff(first_s=AVOIDED_S, longest_s=LONGEST_AVOIDED_S)
        """By the same keys."""

    def look(self, job_id: str, workers: Collection[Pod]) -> None:
        """Report the nodes that refuse workers of a job by what its pods say."""
        if heard := self._heard.pop(job_id, frozenset()) & {pod.metadata.uid for pod in workers}:
            self._heard[job_id] = heard
        self.see(job_id, refusals_of(workers, heard))

    def see(self, job_id: str, found: Mapping[str, Refusal], among: Collection[str] | None = None) -> None:
        """Report the nodes that refuse workers of a job now; what is reported already is not, until it is tried again.

        Where a node takes fewer than the log has, or lacks devices, the refusal may be older than the room that is
        there by now. What was seen of nodes that are not `among` those looked at stays; None: all are.
        """
        now = self._clock.now()
        mine = [pair for pair in self._since if pair.startswith(_pair(job_id, ""))]
        looked_at = None if among is None else {_pair(job_id, node) for node in among}
        before = {pair: self._since.pop(pair) for pair in mine if looked_at is None or pair in looked_at}
        for node, refusal in found.items():
            pair, known = _pair(job_id, node), self._known(job_id, node)
            # What a former leader was told of by the same pod.
            is_old = bool(refusal.by_kubelet) and known is not None and pair not in self._reported
            if is_old or (known is not None and refusal.fits >= known):
                self._hear(job_id, refusal)
                continue
            fits, since = before.get(pair, (refusal.fits, now))
            since = since if fits == refusal.fits else now
            is_new = known is None or pair in self._tried or bool(refusal.by_kubelet)
            is_current = is_new and not _lacks_devices(refusal.reason)
            lasts_s = (0.0 if refusal.is_settled else UNSETTLED_S) if is_current else STALE_S
            if now < since + lasts_s:
                self._since[pair] = (refusal.fits, since)
            else:
                self._telemetry.count(WORKER_REFUSALS)
                self._hear(job_id, refusal)
                self._avoid(pair, refusal.fits)
                self._tell(job_id, node, refusal.reason, refusal.fits)

    def retry(self, live: Iterable[Job]) -> None:
        """Let one worker more be tried on nodes whose refusals are old; a job that has no workers tries them anew."""
        now = self._clock.now()
        in_force = {_pair(job.spec.job_id, node): (job, node) for job in live for node in job.refusals}
        for pair in self._reported.keys() - in_force.keys():
            # The node or the job has changed.
            self._forget(pair)
            self._backoff.reset(pair)
        for pair, (job, node) in in_force.items():
            fits = job.fits.get(node, 0)
            if pair not in self._reported:
                self._avoid(pair, fits)
            if pair in self._tried:
                if [*job.workers.values()].count(node) >= self._reported[pair]:
                    # It has room for more than it had: for how many is not known any more.
                    self._backoff.reset(pair)
                    self._lift(job.spec.job_id, node)
            elif self._backoff.is_due(pair, now) and job.workers and node in job.fits:
                if self._starts_together(job):
                    continue
                self._tried.add(pair)
                self._reported[pair] = fits + 1
                self._tell(job.spec.job_id, node, None, fits + 1)
            elif self._backoff.is_due(pair, now):
                self._lift(job.spec.job_id, node)
        self._backoff.forget_before(now - LONGEST_AVOIDED_S)

    def _starts_together(self, job: Job) -> bool:
        kube_job = self._inventory.object_of(job.spec.job_id)
        return kube_job is not None and kube_job.starts_together

    def _known(self, job_id: str, node: str) -> int | None:
        """Return how many workers the node takes, as the log has it; None: it refuses none."""
        job, told = self._inventory.job(job_id), self._reported.get(_pair(job_id, node))
        if told is not None or job is None or node not in job.refusals:
            return told
        return job.fits.get(node, 0)

    def _hear(self, job_id: str, refusal: Refusal) -> None:
        if refusal.by_kubelet:
            self._heard[job_id] = self._heard.get(job_id, frozenset()) | refusal.by_kubelet

    def _avoid(self, pair: str, fits: int) -> None:
        self._tried.discard(pair)
        self._reported[pair] = fits
        self._backoff.failed(pair, self._clock.now())

    def _lift(self, job_id: str, node: str) -> None:
        self._forget(_pair(job_id, node))
        self._tell(job_id, node, None, None)

    def _forget(self, pair: str) -> None:
        self._tried.discard(pair)
        self._reported.pop(pair, None)

    def _tell(self, job_id: str, node: str, reason: NodeRefusal | None, fits: int | None) -> None:
        self._publish(job_id, WorkerRefused(job_id=job_id, node=node, reason=reason, fits=fits))


def _why(pod: Pod) -> ByKubelet | ByScheduler | None:
    """Return why the node that a worker may go to does not take it; None: it does, or nobody has looked yet."""
    return _by_scheduler(pod) or _by_kubelet(pod)


def _lacks_devices(why: NodeRefusal) -> bool:
    return isinstance(why, ByScheduler) and _NO_DEVICES in why.text


def _remaining(why: ByKubelet | ByScheduler) -> Sequence[str]:
    return _GANG.findall(why.text) if isinstance(why, ByScheduler) else ()


def _by_kubelet(pod: Pod) -> ByKubelet | None:
    reason = pod.status.reason
    if pod.status.phase != "Failed" or not is_refusal(reason) or pod.status.container_statuses:
        return None
    return ByKubelet(worker=pod.metadata.name, word=reason[:_MOST_LETTERS], text=pod.status.message[:_MOST_LETTERS])


def _by_scheduler(pod: Pod) -> ByScheduler | None:
    """Return why kube-scheduler cannot bind a worker to the node that its gate was lifted for; None: it can."""
    is_waiting = pod.placed_on and not pod.spec.node_name and not pod.is_leaving
    # Where it names a node, it is making room there by preemption.
    if not is_waiting or pod.status.nominated_node_name:
        return None
    refused = (each for each in pod.status.conditions if each.type == "PodScheduled" and each.status == "False")
    # What the server forbids, such as a claim more than a quota allows, it tells under reasons of its own.
    why = next((each.message for each in refused if each.reason != _GATED), "")
    return ByScheduler(worker=pod.metadata.name, text=why[:_MOST_LETTERS]) if why else None


def _pair(job_id: str, node: str) -> str:
    return f"{job_id} {node}"
