"""A job `a` of one pod, for commands beside it: on a control plane whose kubelet is the tests' own, or on a real one.

VODA_TEST_KUBELETS names the kubeconfig of a cluster with real kubelets; VODA_TEST_IMAGE an image there with a shell.
"""

import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.builders import a_job
from tests.kube.control_plane import ControlPlane
from tests.kube.kubelet_logs import KubeletLogs
from tests.waiting import until_it_is
from voda.cluster.kubernetes.exec.commands import KubernetesCommands
from voda.cluster.kubernetes.objects import NodeObject, Pod
from voda.cluster.kubernetes.well_known import OPERATOR_JOB_NAME
from voda.cluster.port import RemoteCommands
from voda.domain.job import Job
from voda.kubernetes_client.api import Api

PODS = "/api/v1/namespaces/default/pods"
JOB = "a"
POD = "a-worker-0"
REAL = os.environ.get("VODA_TEST_KUBELETS", "")  # noqa: TID251 - tests have no voda.config
_IMAGE = os.environ.get("VODA_TEST_IMAGE", "localhost/machine:1")  # noqa: TID251 - as above
_NODE = "running"


class Pods:
    """The mirror that the commands look at: pods as they were read last."""

    is_synced = True
    failure = ""

    def __init__(self, api: Api) -> None:
        self.api = api
        self.pods: dict[str, Pod] = {}

    def pods_of(self, job_id: str) -> Sequence[Pod]:
        """See ClusterMirror."""
        return tuple(self.pods.values()) if job_id == JOB else ()


class PodBench:
    """See the module; `kubelet` is None where it is a real one."""

    def __init__(self, api: Api, kubelet: KubeletLogs | None) -> None:
        self.api = api
        self.kubelet = kubelet
        self.mirror = Pods(api)
        self.job: Job = a_job(JOB)
        self.commands: RemoteCommands = KubernetesCommands(self.mirror, lambda job_id: self.job)

    async def start(self) -> None:
        """Let the pod run, a sidecar beside the container that trains."""
        sleeping = {"image": _IMAGE, "command": ["sh", "-c", "sleep 100000"]}
        containers = [{"name": name, **sleeping} for name in ("main", "sidecar")]
        spec = {"containers": containers, "terminationGracePeriodSeconds": 0}
        if self.kubelet is not None:
            spec["nodeName"] = _NODE
        await self.api.create(PODS, {"metadata": {"name": POD, "labels": {OPERATOR_JOB_NAME: JOB}}, "spec": spec}, Pod)
        if self.kubelet is not None:
            await self.show({"phase": "Running"})
        await until_it_is(self._is_running)

    async def show(self, status: Mapping[str, Any]) -> None:
        """Write the pod's status, and let voda see it."""
        await self.api.patch(f"{PODS}/{POD}/status", {"status": status}, Pod)
        await self._is_running()

    async def end_replica(self) -> None:
        await self.api.delete(f"{PODS}/{POD}", grace_s=0)
        if self.kubelet is not None:
            self.kubelet.programs.kill()

    async def is_gone(self) -> bool:
        """Say whether the name is free again."""
        return await self.api.get(f"{PODS}/{POD}", Pod) is None

    async def _is_running(self) -> bool:
        pod = await self.api.get(f"{PODS}/{POD}", Pod)
        assert pod is not None
        self.mirror.pods[POD] = pod
        return pod.status.phase == "Running"


@asynccontextmanager
async def a_pod_bench(control_plane: ControlPlane) -> AsyncIterator[PodBench]:
    """Run a bench with the tests' own kubelet."""
    api = await Api.open(control_plane.kubeconfig())
    async with KubeletLogs(control_plane.certificate.parent) as kubelet:
        await api.create("/api/v1/nodes", {"metadata": {"name": _NODE}}, NodeObject)
        addresses = [{"type": "InternalIP", "address": "127.0.0.1"}]
        reached = {"addresses": addresses, "daemonEndpoints": {"kubeletEndpoint": {"Port": kubelet.port}}}
        # Without this, the API server speaks SPDY to it.
        status = {**reached, "declaredFeatures": ["ExtendWebSocketsToKubelet"]}
        await api.patch(f"/api/v1/nodes/{_NODE}/status", {"status": status}, NodeObject)
        bench = PodBench(api, kubelet)
        try:
            await bench.start()
            yield bench
        finally:
            await api.delete(f"{PODS}/{POD}", grace_s=0)
            await api.delete(f"/api/v1/nodes/{_NODE}")
    await api.close()


@asynccontextmanager
async def a_real_pod_bench() -> AsyncIterator[PodBench]:
    """Run a bench on the cluster that VODA_TEST_KUBELETS names."""
    api = await Api.open(Path(REAL))
    bench = PodBench(api, None)
    try:
        await bench.start()
        yield bench
    finally:
        await api.delete(f"{PODS}/{POD}", grace_s=0)
        await until_it_is(bench.is_gone)
        await api.close()
