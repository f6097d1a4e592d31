"""Lifts the scheduling gates of workers, each for its planned node alone, where kube-scheduler then binds it.

Rules: the gates of a job are lifted together or not at all, and only while the GPUs that it needs are seen to be free,
and kept for no other job; while pods that leave a node still have what it needs besides, it waits for them. A node that
cannot take a worker is reported to the log, so that plans avoid it for a while.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence

from voda.clock import stopwatch
from voda.cluster.kubernetes import well_known
from voda.cluster.kubernetes.convergence.refusals import Refusal, RefusalReports
from voda.cluster.kubernetes.convergence.reservations import Reservations
from voda.cluster.kubernetes.objects import Pod
from voda.cluster.kubernetes.state.inventory import Inventory, taken_of_node
from voda.cluster.kubernetes.state.nodes import offered_amount
from voda.concurrency import gather_all
from voda.domain.node import PODS
from voda.domain.reasons.nodes import NodeRefusal, NoDevices, OwnSelector
from voda.domain.reasons.stalls import LacksClaims, LostNode, StallReason, TakenGpus
from voda.kinds.indexed_job import NNODES
from voda.kubernetes_client.api import Api
from voda.kubernetes_client.errors import Conflict
from voda.metrics import GATE_DURATION, GATES_LIFTED, Telemetry


class GateLifter:
    """Lifts gates."""

    def __init__(
        self,
        inventory: Inventory,
        api: Api,
        refusals: RefusalReports,
        *,
        telemetry: Telemetry,
    ) -> None:
        self._inventory = inventory
        self._api = api
        self._refusals = refusals
        self._telemetry = telemetry
        self.reservations = Reservations(inventory)
        self.waiting_reasons: dict[str, StallReason] = {}
        """job id -> why its gates were not lifted last, where no node refused its workers."""

    async def lift(self, job_id: str, placed: Sequence[tuple[Pod, str]], *, replicas: int = 0) -> None:
        """Lift the gates of all pods, each for its node (empty: any), or of none; `replicas` is what their agents of
        torch expect.

        Raises:
            ClusterUnavailable: some may be lifted, the others are to be tried again.
        """
        self.waiting_reasons.pop(job_id, None)
        if (reason := self._shortage(placed)) is not None:
            # The next plan sees by itself which nodes went and which GPUs others took.
            self.waiting_reasons[job_id] = reason
            return
        has = [*self._inventory.gpu_nodes(job_id).values()]
        reasons = {node: why for pod, node in placed if node and (why := self._contradiction(pod, node))}
        if reasons:
            found = {node: Refusal(why, has.count(node)) for node, why in reasons.items()}
            self._refusals.see(job_id, found, among={node for _, node in placed})
            return
        laps: list[float] = []
        for pod, node in placed:
            # Before anything is waited for: other jobs converge at the same time.
            if node:
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

    def _shortage(self, placed: Sequence[tuple[Pod, str]]) -> StallReason | None:
        """Return why workers have to wait for their nodes; None: all are there, with enough GPUs."""
        stock = self._inventory.stock
        needed: defaultdict[str, int] = defaultdict(int)
        for pod, node in [(pod, node) for pod, node in placed if node]:
            if missing := pod.missing_claims:
                # Without it kube-scheduler would refuse the node.
                return LacksClaims(pod=pod.metadata.name, claims=tuple(missing))
            needed[node] += stock.needed_milli(pod)
        for node, amount in needed.items():
            if node not in stock.nodes:
                return LostNode(node=node)
            free = max(0, self.reservations.free_milli(node))
            if amount > free:
                resource = "GPUs" if stock.devices.taken(node) else stock.rule.resource
                return TakenGpus(node=node, free=free / 1000, needed=amount / 1000, resource=resource)
        nodes = sorted(needed)
        return next(filter(None, (self._held_by_leaving(node, placed) for node in nodes)), None)

    def _held_by_leaving(self, node: str, placed: Sequence[tuple[Pod, str]]) -> TakenGpus | None:
        """Return what workers need of a node that pods which are about to leave it still have; None: nothing."""
        stock = self._inventory.stock
        there = stock.pods_on(node).values()
        leaving = _taken_by(pod for pod in there if pod.is_leaving)
        if not leaving:
            return None
        taken, needed = _taken_by(there), _taken_by(pod for pod, name in placed if name == node)
        for resource in needed.keys() & leaving.keys() - {stock.rule.resource}:
            free = offered_amount(stock.nodes[node], resource) - taken[resource]
            if free < needed[resource] <= free + leaving[resource]:
                return TakenGpus(node=node, free=max(0, free) / 1000, needed=needed[resource] / 1000, resource=resource)
        return None

    def _hostname(self, node: str) -> str:
        return self._inventory.stock.nodes[node].metadata.labels.get(well_known.HOSTNAME, node)

    def _contradiction(self, pod: Pod, node: str) -> NodeRefusal | None:
        """Return why a pod cannot be given that node at all; what is selected once can only be added to."""
        devices = self._inventory.stock.devices
        if devices.requested(pod) and not devices.of(node).gpus:
            return NoDevices(worker=pod.metadata.name)
        own = pod.spec.node_selector.get(well_known.HOSTNAME)
        if own in (None, self._hostname(node)):
            return None
        return OwnSelector(worker=pod.metadata.name, label=well_known.HOSTNAME, value=own)

    async def _lift(self, pod: Pod, node: str, replicas: int) -> None:
        size = {f"{well_known.VARIABLE}{NNODES}": str(replicas)} if replicas else {}
        body = {
            "metadata": {"uid": pod.metadata.uid, "annotations": {well_known.NODE: node, **size}},
            "spec": {
                "schedulingGates": [gate for gate in pod.spec.scheduling_gates if gate.get("name") != well_known.GATE],
                "nodeSelector": {well_known.HOSTNAME: self._hostname(node)} if node else {},
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


def _taken_by(pods: Iterable[Pod]) -> Counter[str]:
    """Return what pods take of their node together resource -> thousandths."""
    taken = Counter[str]()
    for pod in pods:
        taken.update({PODS: 1000, **taken_of_node(pod, "")})
    return taken
