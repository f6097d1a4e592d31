"""An actuator on a cluster in memory whose watch a test moves by hand: what voda knows is as old as the test wants.

Rule: nobody acts beside the test and the actuator: operators' and kubelets' parts are played by the test.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from tests.builders import a_job
from tests.kube.client import MPIJOBS, MPIJOBS_V1, NODES, PODS, Object, Resource, key_of
from tests.kube.memory_api import MemoryApi, Wire
from tests.kube.memory_server import Change, MemoryServer
from tests.kube.memory_world import CountingClock, wall_s
from tests.kube.objects import a_node
from voda.cluster.kubernetes.convergence.actuator import Actuator
from voda.cluster.kubernetes.convergence.gates import GateLifter
from voda.cluster.kubernetes.convergence.hostfile_refresh import HostfileRefresher
from voda.cluster.kubernetes.convergence.refusals import RefusalReports
from voda.cluster.kubernetes.kinds.base import JobKind
from voda.cluster.kubernetes.kinds.mpijob import MPIJobV1, MPIJobV2
from voda.cluster.kubernetes.kinds.template import GPU_TAINTS, TemplateValues
from voda.cluster.kubernetes.objects import JobObject, NodeObject, Pod
from voda.cluster.kubernetes.state.inventory import Inventory
from voda.cluster.kubernetes.state.nodes import PoolRule
from voda.cluster.port import Notice
from voda.domain.job import Job
from voda.metrics import NO_TELEMETRY

NAMESPACE = "ns"


class Stage:
    """See the module; made inside a running virtual loop.

    Args:
        wire: of the actuator.
        resource: of the job objects.
        rule: of pools.
    """

    def __init__(self, wire: Wire | None = None, resource: Resource = MPIJOBS, *, rule: PoolRule | None = None) -> None:
        self.wire = wire or Wire()
        self.server = MemoryServer(wall_s, [resource])
        self.server.on_change = self._changed
        self.jobs: dict[str, Job] = {}
        self.told: list[Notice] = []
        self.clock = CountingClock("id")
        self.inventory = Inventory(rule or PoolRule(), self.jobs.get)
        api = MemoryApi(self.server, self.wire)
        refusals = RefusalReports(self.inventory, self.clock, self._tell, telemetry=NO_TELEMETRY)
        self.gates = GateLifter(self.inventory, api, refusals, telemetry=NO_TELEMETRY)
        self.actuator = Actuator(
            self.inventory, api, self.clock, self.gates, self._tell, values=TemplateValues(tolerated_taints=GPU_TAINTS)
        )
        self.refresher = HostfileRefresher(inventory=self.inventory, api=api, clock=self.clock, telemetry=NO_TELEMETRY)
        self._resource = resource
        self._kind: JobKind = MPIJobV2() if resource == MPIJOBS else MPIJobV1()
        self._news: list[Change] = []

    def watch(self) -> None:
        """Let voda know all that happened so far."""
        news, self._news = self._news, []
        for change in news:
            name = key_of(change.object)
            now = None if change.type == "DELETED" else change.object
            if change.resource == NODES:
                self.inventory.put_node(name[1], _read(now, NodeObject))
            elif change.resource == PODS:
                self.inventory.put_pod("/".join(name), _read(now, Pod))
            else:
                self.inventory.put_object(change.object["metadata"]["uid"], self._kind, _read(now, JobObject))

    def add_node(self, name: str, **fields: Any) -> None:
        """Add a node that voda knows."""
        self._ask("POST", NODES.path(), a_node(name, **{"gpus": 4, "pool": "v100", **fields}))
        self.watch()

    def add_job(self, job_id: str, *, workers: int = 1, suspend: bool = False, **fields: Any) -> str:
        """Add a job, in the log and as an object that voda knows, and return the object's uid."""
        worker = {"replicas": workers}
        policy = {"suspend": suspend, **fields.pop("policy", {})}
        spec = {"runPolicy": policy, "mpiReplicaSpecs": {"Launcher": {"replicas": 1}, "Worker": worker}}
        metadata = {"name": job_id, "annotations": {**fields.pop("annotations", {}), "voda.dev/job-id": job_id}}
        made = self._ask("POST", self._resource.path(NAMESPACE), {"metadata": metadata, "spec": spec})
        uid = str(made["metadata"]["uid"])
        fields = {"max_replicas": 8, "pool": "v100", "namespace": NAMESPACE, "uid": uid, **fields}
        self.jobs[job_id] = a_job(job_id, **fields)
        self.watch()
        return uid

    def add_worker(
        self,
        job_id: str,
        index: int,
        *,
        node: str = "",
        phase: str = "",
        finalizers: Sequence[str] = (),
        **fields: Any,
    ) -> None:
        """Do as the operator does, and where a node or a phase is named, as voda, kube-scheduler and kubelet do.

        Args:
            job_id: of the job.
            index: of the worker.
            node: to which it is bound; empty = it is gated.
            phase: of the pod.
            finalizers: of the pod.
            fields: of its spec.
        """
        name = f"{job_id}-worker-{index}"
        labels = {"training.kubeflow.org/job-name": job_id, "training.kubeflow.org/job-role": "worker"}
        metadata: Object = {"name": name, "labels": labels, "annotations": {"voda.dev/job-id": job_id}}
        container = {"name": "worker", "resources": {"requests": {"nvidia.com/gpu": "1"}}}
        spec: Object = {"containers": [container], **fields}
        if node:
            metadata["annotations"]["voda.dev/node"] = node
        else:
            spec = {"schedulingGates": [{"name": "voda.dev/placement"}], **spec}
        self._add_pod({**metadata, "finalizers": finalizers}, spec, node, phase)

    def schedule(self) -> None:
        """Do as kube-scheduler does with the workers that it may bind."""
        for (namespace, name), pod in list(self.server.objects[PODS].items()):
            selected = (pod["spec"].get("nodeSelector") or {}).get("kubernetes.io/hostname")
            if selected and not pod["spec"].get("schedulingGates") and not pod["spec"].get("nodeName"):
                body = {"metadata": {"name": name}, "target": {"name": selected}}
                self._ask("POST", PODS.path(namespace, name, "binding"), body)

    def pod(self, name: str) -> Object:
        """Return a pod as the server has it."""
        return self.server.objects[PODS][NAMESPACE, name]

    def add_launcher(self, job_id: str, phase: str = "Running") -> None:
        """Add a launcher."""
        labels = {"training.kubeflow.org/job-name": job_id, "training.kubeflow.org/job-role": "launcher"}
        metadata = {"name": f"{job_id}-launcher-x", "labels": labels}
        self._add_pod(metadata, {"containers": [{"name": "launcher"}]}, "n1", phase)

    def set_status(self, pod: str, **status: Any) -> None:
        """Do as the kubelet does."""
        self._ask("PATCH", PODS.path(NAMESPACE, pod, "status"), {"status": status})

    def change_pod(self, pod: str, body: Mapping[str, Any]) -> None:
        """Change a pod as somebody else does."""
        self._ask("PATCH", PODS.path(NAMESPACE, pod), body)

    def remove_pod(self, pod: str) -> None:
        """Let a pod be gone at once."""
        self._ask("DELETE", PODS.path(NAMESPACE, pod), {"gracePeriodSeconds": 0})

    def change_job(self, job_id: str, body: Mapping[str, Any], subresource: str = "") -> None:
        """Change a job object as somebody else does."""
        self._ask("PATCH", self._resource.path(NAMESPACE, job_id, subresource), body)

    def remove_job(self, job_id: str) -> None:
        """Delete a job object as somebody else does."""
        self._ask("DELETE", self._resource.path(NAMESPACE, job_id), {})

    def job(self, job_id: str) -> Object | None:
        """Return a job object as the server has it."""
        return self.server.objects[self._resource].get((NAMESPACE, job_id))

    def pods(self) -> dict[str, str]:
        """Return name -> node of the pods that are there and not leaving."""
        pods = self.server.objects[PODS].values()
        return {
            pod["metadata"]["name"]: pod["spec"].get("nodeName", "")
            for pod in pods
            if "deletionTimestamp" not in pod["metadata"]
        }

    def _add_pod(self, metadata: Object, spec: Object, node: str, phase: str) -> None:
        name = metadata["name"]
        self._ask("POST", PODS.path(NAMESPACE), {"metadata": metadata, "spec": spec})
        if node:
            body = {"metadata": {"name": name}, "target": {"name": node}}
            self._ask("POST", PODS.path(NAMESPACE, name, "binding"), body)
        if phase:
            self.set_status(name, phase=phase)
        self.watch()

    def _ask(self, method: str, path: str, body: Mapping[str, Any]) -> Object:
        return self.server.answer(method, path, {}, body)

    def _changed(self, change: Change) -> None:
        self._news.append(change)

    def _tell(self, job_id: str, fact: Notice) -> None:
        self.told.append(fact)


def _read(thing: Object | None, kind: Any) -> Any:
    return None if thing is None else msgspec.convert(thing, kind, strict=False)


__all__ = ["MPIJOBS", "MPIJOBS_V1", "NAMESPACE", "Stage"]
