"""Clusters of any size, made directly in the API: nodes, and pods that run.

Rule: they are as kubelets and operators leave them, managed fields and all, because size matters here.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from tests.kube import client as api
from tests.kube.client import Client, Object, now_text
from tests.kube.objects import a_node

_AT_ONCE = 32
_FEATURES = 140


async def in_parallel(works: Iterable[Callable[[], Awaitable[object]]], at_once: int = _AT_ONCE) -> None:
    """Do all of it, so many at a time."""
    queue = iter(works)

    async def work() -> None:
        for each in queue:
            await each()

    async with asyncio.TaskGroup() as tasks:
        for _ in range(at_once):
            tasks.create_task(work())


async def add_nodes(client: Client, nodes: Iterable[Object]) -> None:
    """Add nodes that are ready at once."""
    await in_parallel([lambda node=node: add_node(client, node) for node in nodes])  # type: ignore[misc]


async def add_node(client: Client, node: Object) -> None:
    """Add a node that is ready at once."""
    await client.create(api.NODES, node)
    # The server taints whatever is new as not ready; its node controller would take that away in a while.
    await client.patch(api.NODES, node["metadata"]["name"], {"spec": {"taints": node["spec"]["taints"]}})


def nodes(count: int, gpus: int = 8, pool: str = "v100") -> list[Object]:
    """Return nodes of one pool, with what a cloud writes on its nodes."""
    return [a_node(f"{pool}-{number:04}", gpus, pool, labels=_cloud(number)) for number in range(count)]


async def add_running_pods(client: Client, pods: Iterable[Object]) -> None:
    """Add pods that name their nodes, and let them run."""

    async def add(number: int, pod: Object) -> None:
        made = await client.create(api.PODS, pod)
        high, low = divmod(number % 65_536, 256)
        status = running_status(pod, f"10.128.{high}.{low}")
        await client.patch(api.PODS, api.key_of(made), {"status": status}, "status")

    await in_parallel([lambda number=number, pod=pod: add(number, pod) for number, pod in enumerate(pods)])  # type: ignore[misc]


def running_status(pod: Object, address: str) -> Object:
    """Return the status of a pod all of whose containers run."""
    now = now_text()
    kinds = ("Initialized", "Ready", "ContainersReady", "PodScheduled")
    return {
        "phase": "Running",
        "hostIP": "10.0.0.1",
        "podIP": address,
        "podIPs": [{"ip": address}],
        "qosClass": "Burstable",
        "startTime": now,
        "conditions": [{"type": kind, "status": "True", "lastTransitionTime": now} for kind in kinds],
        "containerStatuses": [
            {
                "name": each["name"],
                "image": each["image"],
                "imageID": f"registry.example/{each['image']}@sha256:{'0' * 64}",
                "containerID": f"containerd://{'0' * 64}",
                "ready": True,
                "started": True,
                "restartCount": 0,
                "state": {"running": {"startedAt": now}},
                "lastState": {},
            }
            for each in pod["spec"]["containers"]
        ],
    }


def _cloud(number: int) -> dict[str, str]:
    """Return the labels of a cloud, and about as many as feature discovery writes."""
    return {
        **{f"feature.node.kubernetes.io/cpu-cpuid.EXT{each}": "true" for each in range(_FEATURES)},
        "beta.kubernetes.io/arch": "amd64",
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
        "node.kubernetes.io/instance-type": "p3.16xlarge",
        "topology.kubernetes.io/region": "region-1",
        "topology.kubernetes.io/zone": f"region-1-{'abc'[number % 3]}",
    }
