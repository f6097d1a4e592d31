"""Lifts the scheduling gates of workers, each for its planned node alone, where kube-scheduler then binds it.

Rules: the gates of a job are lifted together or not at all, and only while the GPUs that it needs are seen to be free,
and kept for no other job; a node that cannot take a worker is reported to the log, so that plans avoid it for a while.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from voda.backoff import Backoff
from voda.clock import Clock, stopwatch
from voda.cluster.kubernetes import well_known
from voda.cluster.kubernetes.convergence.reservations import Reservations
from voda.cluster.kubernetes.objects import Pod
from voda.cluster.kubernetes.state.inventory import Inventory
from voda.concurrency import gather_all
from voda.events.types import WorkerRefused
from voda.kinds.indexed_job import NNODES
from voda.kubernetes_client.api import Api
from voda.kubernetes_client.errors import Conflict
from voda.metrics import GATE_DURATION, GATES_LIFTED, WORKER_REFUSALS, Telemetry

AVOIDED_S: Final = 300.0
"""After this long a node that refused a worker is tried again: what was taken there may be free by now."""
LONGEST_AVOIDED_S: Final = 3_600.0
"""Each refusal in a row doubles the delay up to this one: every try takes GPUs from others for a moment."""


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
        self.reservations = Reservations(inventory)
        self._refused: set[str] = set()
        """Job and node, by `_pair`: refused as far as known here."""
        self._backoff = Backoff(first_s=AVOIDED_S, longest_s=LONGEST_AVOIDED_S)
        """By the same keys."""
        self.waiting_reasons: dict[str, str] = {}
        """job id -> why its gates were not lifted last, where no node refused its workers."""

    async def lift(self, job_id: str, placed: Sequence[tuple[Pod, str]], *, replicas: int = 0) -> None:
        """Lift the gates of all pods, each for its node, or of none; `replicas` is what their agents of torch expect.

        Raises:
            ClusterUnavailable: some may be lifted, the others are to be tried again.
        """
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
            self.reservations.begin(pod, node)
        try:
            with stopwatch(laps):
                await gather_all(self._lift(pod, node, replicas) for pod, node in placed)
        finally:
            for pod, _ in placed:
                self.reservations.end(pod)
            self._telemetry.observe(GATE_DURATION, laps[-1])

    def keep_only(self, live: Collection[str]) -> None:
        self.reservations.tidy()
        self.waiting_reasons = {job_id: reason for job_id, reason in self.waiting_reasons.items() if job_id in live}

    def refuse(self, job_id: str, node: str, reason: str) -> None:
        """Report that a node cannot take workers of a job; once, until it is tried again."""
        if (pair := _pair(job_id, node)) not in self._refused:
            self._avoid(pair)
            self._telemetry.count(WORKER_REFUSALS)
            self._publish(job_id, WorkerRefused(job_id=job_id, node=node, reason=reason))

    def retry_refused(self, live: Mapping[str, Sequence[str]]) -> None:
        """Let nodes be tried again whose refusals are old; `live` has job id -> nodes that refuse it, as the log has
        them.
        """
        now = self._clock.now()
        in_force = {_pair(job_id, node): (job_id, node) for job_id, nodes in live.items() for node in nodes}
        for pair in self._refused - in_force.keys():
            # The node or the job has changed.
            self._refused.discard(pair)
            self._backoff.reset(pair)
        for pair in in_force.keys() - self._refused:
            self._avoid(pair)
        for pair, (job_id, node) in in_force.items():
            if self._backoff.is_due(pair, now):
                self._refused.discard(pair)
                self._publish(job_id, WorkerRefused(job_id=job_id, node=node, reason=""))
        self._backoff.forget_before(now - LONGEST_AVOIDED_S)

    def _avoid(self, pair: str) -> None:
        self._refused.add(pair)
        self._backoff.failed(pair, self._clock.now())

    def _shortage(self, placed: Sequence[tuple[Pod, str]]) -> str:
        """Return why workers have to wait for their nodes, one sentence; empty: all are there, with enough GPUs."""
        stock = self._inventory.stock
        needed: defaultdict[str, int] = defaultdict(int)
        for pod, node in placed:
            if missing := pod.missing_claims:
                # Without it kube-scheduler would refuse the node.
                what = f"worker {pod.metadata.name} has no ResourceClaim for {', '.join(missing)} yet"
                return f"{what}: see whether kube-controller-manager runs"
            needed[node] += stock.needed_milli(pod)
        for node, amount in needed.items():
            if node not in stock.nodes:
                return f"node {node} is not there any more"
            free = max(0, self.reservations.free_milli(node))
            if amount > free:
                what = "GPUs" if stock.devices.taken(node) else stock.rule.resource
                return f"node {node} has {free / 1000:g} {what} free, workers on it need {amount / 1000:g}"
        return ""

    def _hostname(self, node: str) -> str:
        return self._inventory.stock.nodes[node].metadata.labels.get(well_known.HOSTNAME, node)

    def _contradiction(self, pod: Pod, node: str) -> str:
        """Return why a pod cannot be given that node at all; what is selected once can only be added to."""
        devices = self._inventory.stock.devices
        if devices.requested(pod) and not devices.of(node).gpus:
            return f"worker {pod.metadata.name} claims devices, and node {node} publishes none of its GPUs as such"
        own = pod.spec.node_selector.get(well_known.HOSTNAME)
        if own in (None, self._hostname(node)):
            return ""
        return f"worker {pod.metadata.name} selects {well_known.HOSTNAME}={own} by its own nodeSelector"

    async def _lift(self, pod: Pod, node: str, replicas: int) -> None:
        size = {f"{well_known.VARIABLE}{NNODES}": str(replicas)} if replicas else {}
        body = {
            "metadata": {"uid": pod.metadata.uid, "annotations": {well_known.NODE: node, **size}},
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


def _pair(job_id: str, node: str) -> str:
    return f"{job_id} {node}"
