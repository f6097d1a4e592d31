"""Lifts the scheduling gates of workers, each for its planned node alone, where kube-scheduler then binds it.

Rules: the gates of a job are lifted together or not at all, and only while the GPUs that it needs are seen to be free,
and kept for no other job; a node that cannot take a worker is reported to the log, so that plans avoid it for a while.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from voda.clock import Clock, stopwatch
from voda.cluster.kubernetes import well_known
from voda.cluster.kubernetes.client.api import Api
from voda.cluster.kubernetes.client.errors import Conflict
from voda.cluster.kubernetes.convergence.room import Room
from voda.cluster.kubernetes.objects import Pod
from voda.cluster.kubernetes.state.inventory import Inventory, taken_milli
from voda.concurrency import gather_all
from voda.events.types import WorkerRefused
from voda.metrics import GATE_DURATION, GATES_LIFTED, WORKER_REFUSALS, Telemetry

AVOIDED_S: Final = 300.0
"""After this long a node that refused a worker is tried again: what was taken there may be free by now."""


class GateLifter:
    """Lifts gates, and publishes (job id, fact for the log)."""

    def __init__(
        self,
        inventory: Inventory,
        api: Api,
        clock: Clock,
        publish: Callable[[str, WorkerRefused], None],
        *,
        telemetry: Telemetry,
    ) -> None:
        self._inventory = inventory
        self._api = api
        self._clock = clock
        self._publish = publish
        self._telemetry = telemetry
        self.room = Room(inventory)
        self._refused: dict[tuple[str, str], float] = {}
        """(job id, node) -> since when, as far as known here."""
        self.waiting_reasons: dict[str, str] = {}
        """job id -> why its gates were not lifted last, where no node refused its workers."""

    async def lift(self, job_id: str, pods: Mapping[str, Pod], nodes: Mapping[str, str]) -> None:
        """Lift the gates of all pods, by key, for their nodes, or of none.

        Raises:
            ClusterUnavailable: some may be lifted, the others are to be tried again.
        """
        placed = [(pod, nodes[key]) for key, pod in pods.items()]
        self.waiting_reasons.pop(job_id, None)
        if reason := self._shortage(placed):
            # The next plan sees by itself which nodes went and which GPUs others took.
            self.waiting_reasons[job_id] = reason
            return
        refusals = {node: reason for pod, node in placed if (reason := self._contradiction(pod, node))}
        for node, reason in refusals.items():
            self.refuse(job_id, node, reason)
        if refusals:
            return
        laps: list[float] = []
        for pod, node in placed:
            # Before anything is waited for: other jobs converge at the same time.
            self.room.begin(pod, node)
        try:
            with stopwatch(laps):
                await gather_all(self._lift(pod, node) for pod, node in placed)
        finally:
            for pod, _ in placed:
                self.room.end(pod)
            self._telemetry.observe(GATE_DURATION, laps[-1])

    def keep_only(self, live: Collection[str]) -> None:
        self.room.tidy()
        self.waiting_reasons = {job_id: reason for job_id, reason in self.waiting_reasons.items() if job_id in live}

    def refuse(self, job_id: str, node: str, reason: str) -> None:
        """Report that a node cannot take workers of a job; once, until it is tried again."""
        if (job_id, node) not in self._refused:
            self._refused[job_id, node] = self._clock.now()
            self._telemetry.count(WORKER_REFUSALS)
            self._publish(job_id, WorkerRefused(job_id=job_id, node=node, reason=reason))

    def retry_refused(self, live: Mapping[str, Sequence[str]]) -> None:
        """Let nodes be tried again whose refusals are old; `live` has job id -> nodes that refuse it, as the log has
        them.
        """
        now = self._clock.now()
        in_force = {(job_id, node) for job_id, nodes in live.items() for node in nodes}
        self._refused = {pair: self._refused.get(pair, now) for pair in in_force}
        for (job_id, node), since in list(self._refused.items()):
            if now - since >= AVOIDED_S:
                del self._refused[job_id, node]
                self._publish(job_id, WorkerRefused(job_id=job_id, node=node, reason=""))

    def _shortage(self, placed: Sequence[tuple[Pod, str]]) -> str:
        """Return why workers have to wait for their nodes, one sentence; empty: all are there, with enough GPUs."""
        stock = self._inventory.stock
        needed: defaultdict[str, int] = defaultdict(int)
        for pod, node in placed:
            needed[node] += taken_milli(pod, stock.rule.resource)
        for node, amount in needed.items():
            if node not in stock.nodes:
                return f"node {node} is not there any more"
            free = max(0, self.room.free_milli(node))
            if amount > free:
                resource = stock.rule.resource
                return f"node {node} has {free / 1000:g} {resource} free, workers on it need {amount / 1000:g}"
        return ""

    def _hostname(self, node: str) -> str:
        return self._inventory.stock.nodes[node].metadata.labels.get(well_known.HOSTNAME, node)

    def _contradiction(self, pod: Pod, node: str) -> str:
        """Return why a pod cannot be given that node at all; what is selected once can only be added to."""
        own = pod.spec.node_selector.get(well_known.HOSTNAME)
        if own in (None, self._hostname(node)):
            return ""
        return f"worker {pod.metadata.name} selects {well_known.HOSTNAME}={own} by its own nodeSelector"

    async def _lift(self, pod: Pod, node: str) -> None:
        body = {
            "metadata": {"uid": pod.metadata.uid, "annotations": {well_known.NODE: node}},
            "spec": {
                "schedulingGates": [gate for gate in pod.spec.scheduling_gates if gate.get("name") != well_known.GATE],
                "nodeSelector": {well_known.HOSTNAME: self._hostname(node)},
            },
        }
        try:
            now = await self._api.patch(pod.path, body, Pod)
        except Conflict:
            # Another pod has its name by now: the watch shows it.
            return
        if now is not None:
            self._telemetry.count(GATES_LIFTED)
            self._inventory.update_pod(now)
