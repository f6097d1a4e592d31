"""Says where what voda keeps of a cluster differs from a fresh list, and where the log does.

Rule: for the end of every test on a cluster, real or in memory; ask until nothing differs, for a watch may be a moment
behind.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.kube.assets import IS_OLD
from tests.kube.objects import GPU
from voda.app.kubernetes.service import KubernetesService
from voda.cluster.kubernetes.device_objects import (
    DeviceClass,
    DeviceTaintRule,
    ResourceClaim,
    ResourceClaimTemplate,
    ResourceSlice,
)
from voda.cluster.kubernetes.kinds.base import JobKind
from voda.cluster.kubernetes.objects import JobObject, NodeObject, Pod
from voda.cluster.kubernetes.state.inventory import Inventory
from voda.cluster.kubernetes.state.job_pods import gpu_nodes
from voda.cluster.kubernetes.state.nodes import PoolRule
from voda.domain.errors import VodaError
from voda.domain.job import Job
from voda.kubernetes_client.api import Api
from voda.log.factory import open_log
from voda.projections.live import Live

_NO_POOLS = PoolRule(label="", resource=GPU, default_pool="", tolerated_taints=())
Versions = Mapping[str, tuple[str, str]]
"""`namespace/name` -> uid and resource version."""


async def is_mirrored(service: KubernetesService) -> bool:
    """Say whether voda has of the cluster what a fresh list has; a replica that was cut off is none to ask."""
    try:
        return not service.mirror.failure and not await mirror_differences(service)
    except VodaError:
        return False


async def is_believed(log: str, kubeconfig: Path) -> bool:
    """Say whether a log has of the workers of all live jobs what a fresh list of pods has."""
    api, store = await Api.open(kubeconfig), await open_log(log)
    try:
        pods, live = await api.list("/api/v1/pods", Pod), Live()
        for event in await store.read(0, 1_000_000):
            live.apply(event)
    finally:
        await store.close()
        await api.close()
    cluster = live.cluster
    jobs = {job_id: job for pool in cluster.pools() for job_id, job in cluster.jobs(pool).items()}
    inventory = Inventory(_NO_POOLS, jobs.get)
    for pod in pods.items:
        inventory.put_pod(pod.metadata.key, pod)
    return not list(_unlike_log(jobs, inventory))


async def mirror_differences(service: KubernetesService) -> Sequence[str]:
    """Return where reflectors, inventory and log differ from fresh lists, one sentence each."""
    api, inventory = service.mirror.api, service.kubernetes.inventory
    nodes = await api.list("/api/v1/nodes", NodeObject)
    pods = await api.list("/api/v1/pods", Pod)
    found = [
        *_differing("node", _versions(nodes.items), _versions(inventory.stock.nodes.values())),
        *_differing("pod", _versions(pods.items), _versions(inventory.pods_by_key.values())),
    ]
    devices = inventory.stock.devices
    if devices.is_served:
        for name, of, kept in (
            ("deviceclasses", DeviceClass, devices.published.classes),
            *((("devicetaintrules", DeviceTaintRule, devices.published.taint_rules),) if not IS_OLD else ()),
            ("resourceslices", ResourceSlice, devices.published.slices),
            ("resourceclaims", ResourceClaim, devices.claims),
            ("resourceclaimtemplates", ResourceClaimTemplate, devices.templates),
        ):
            there = await api.list(f"/apis/resource.k8s.io/v1/{name}", of)
            found += _differing(name, _versions(there.items), _versions(kept.values()))
    for kind in service.mirror.kinds.values():
        listed = await api.list(kind.path(), JobObject)
        found += _differing(kind.name, _versions(listed.items), _versions(_objects(service, kind)))
    counts = {"nodes": len(nodes.items), "pods": len(pods.items)}
    mirrored = service.mirror.counts()
    found += [
        f"{mirrored[name]} {name} are mirrored of {count}" for name, count in counts.items() if mirrored[name] != count
    ]
    return [*found, *_unlike_log(service.jobs.by_id(), inventory)]


def _objects(service: KubernetesService, kind: JobKind) -> list[JobObject]:
    return [each.object for each in service.kubernetes.inventory.objects.values() if each.kind.name == kind.name]


def _unlike_log(live: Mapping[str, Job], inventory: Inventory) -> Iterator[str]:
    for job_id, job in live.items():
        held = gpu_nodes(inventory.workers(job_id).values())
        if held != dict(sorted(job.workers.items())):
            yield f"the log has {job_id} on {dict(job.workers)}, its pods are on {held}"


def _versions(objects: Any) -> Versions:
    return {each.metadata.key: (each.metadata.uid, each.metadata.resource_version) for each in objects}


def _differing(what: str, listed: Versions, kept: Versions) -> Iterator[str]:
    for key in sorted({*listed, *kept}):
        if listed.get(key) != kept.get(key):
            yield f"{what} {key} is {kept.get(key)} in the inventory and {listed.get(key)} in a list"
