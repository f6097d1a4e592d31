"""Gives worker pods their nodes, as kube-scheduler does for all others.

Rules: a job's pods are bound together or not at all, after what the scheduler would check; a node that cannot take a
worker is reported to the log, so that the next plan avoids it; a bound pod counts at once, before the watch shows it.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from voda.clock import Clock, stopwatch
from voda.cluster.kubernetes import well_known
from voda.cluster.kubernetes.binding.fit import fits_together
from voda.cluster.kubernetes.client.api import Api
from voda.cluster.kubernetes.client.errors import Absent, Conflict
from voda.cluster.kubernetes.objects import Pod
from voda.cluster.kubernetes.state.inventory import Inventory
from voda.concurrency import gather_all
from voda.events.types import WorkerRefused
from voda.metrics import BIND_DURATION, PODS_BOUND, WORKER_REFUSALS, Telemetry

LIFT_AFTER_S: Final = 300.0
"""After this long a node that refused a worker is tried again: what was taken there may be free by now."""


class Binder:
    """Binds pods, and publishes (job id, fact for the log)."""

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
        self._refused: dict[tuple[str, str], float] = {}
        """(job id, node) -> since when, as far as known here."""
        self.unbound_reasons: dict[str, str] = {}
        """job id -> why its workers were not bound last, where no node refused them."""

    async def bind(self, job_id: str, pods: Mapping[str, Pod], nodes: Mapping[str, str]) -> None:
        """Bind all pods, by key, to their nodes, or none where one does not fit.

        Raises:
            ClusterUnavailable: some may be bound, the others are to be tried again.
        """
        refusal = fits_together([(pod, nodes[key]) for key, pod in pods.items()], self._inventory.stock)
        self.unbound_reasons.pop(job_id, None)
        if refusal is None:
            await self._bind_all(pods, nodes)
        elif refusal.resource != self._inventory.stock.rule.resource and refusal.node in self._inventory.stock.nodes:
            self.refuse(job_id, refusal.node, refusal.reason)
        else:
            self.unbound_reasons[job_id] = refusal.reason
        # The next plan sees by itself which nodes went and which GPUs others took.

    def keep_only(self, live: Collection[str]) -> None:
        self.unbound_reasons = {job_id: reason for job_id, reason in self.unbound_reasons.items() if job_id in live}

    def refuse(self, job_id: str, node: str, reason: str) -> None:
        """Report that a node cannot take workers of a job; once, until that is lifted."""
        if (job_id, node) not in self._refused:
            self._refused[job_id, node] = self._clock.now()
            self._telemetry.count(WORKER_REFUSALS)
            self._publish(job_id, WorkerRefused(job_id=job_id, node=node, reason=reason))

    def lift(self, live: Mapping[str, Sequence[str]]) -> None:
        """Let nodes be tried again whose refusals are old; `live` has job id -> nodes that refuse it, as the log has
        them.
        """
        now = self._clock.now()
        in_force = {(job_id, node) for job_id, nodes in live.items() for node in nodes}
        self._refused = {pair: self._refused.get(pair, now) for pair in in_force}
        for (job_id, node), since in list(self._refused.items()):
            if now - since >= LIFT_AFTER_S:
                del self._refused[job_id, node]
                self._publish(job_id, WorkerRefused(job_id=job_id, node=node, reason=""))

    async def _bind_all(self, pods: Mapping[str, Pod], nodes: Mapping[str, str]) -> None:
        loads = self._inventory.stock.loads
        # Another job must not be given the same room during the request.
        for key, pod in pods.items():
            loads[nodes[key]].add(f"binding {key}", pod)
        laps: list[float] = []
        try:
            with stopwatch(laps):
                await gather_all(self._bind(pod, nodes[key]) for key, pod in pods.items())
        finally:
            self._telemetry.observe(BIND_DURATION, laps[-1])
            for key in pods:
                # The node may be gone, and all that was known of it.
                if (load := loads.get(nodes[key])) is not None:
                    load.remove(f"binding {key}")

    async def _bind(self, pod: Pod, node: str) -> None:
        if well_known.GATE in pod.gates:
            await self._lift_gate(pod, node)
        else:
            await self._create_binding(pod, node)

    async def _lift_gate(self, pod: Pod, node: str) -> None:
        """Let kube-scheduler bind a pod, to that node alone."""
        labels = self._inventory.stock.nodes[node].metadata.labels
        body = {
            "metadata": {"uid": pod.metadata.uid, "annotations": {well_known.NODE: node}},
            "spec": {
                "schedulingGates": [gate for gate in pod.spec.scheduling_gates if gate.get("name") != well_known.GATE],
                "nodeSelector": {well_known.HOSTNAME: labels.get(well_known.HOSTNAME, node)},
            },
        }
        try:
            now = await self._api.patch(pod.path, body, Pod)
        except Conflict:
            # Another pod has its name by now: the watch shows it.
            return
        if now is not None:
            self._telemetry.count(PODS_BOUND)
            self._inventory.update_pod(now)

    async def _create_binding(self, pod: Pod, node: str) -> None:
        meta = pod.metadata
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            # The uid keeps a successor of the same name from being bound in this one's place.
            "metadata": {"name": meta.name, "namespace": meta.namespace, "uid": meta.uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        try:
            await self._api.create(f"{pod.path}/binding", body, dict)
        except (Conflict, Absent):
            # It is bound already, or gone, or another pod has its name: the watch shows which.
            return
        self._telemetry.count(PODS_BOUND)
        self._inventory.update_pod(replace(pod, spec=replace(pod.spec, node_name=node)))
