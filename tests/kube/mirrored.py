"""Says where what voda keeps of a cluster differs from a fresh list, and where the log does.

Rule: for the end of every test on a cluster; call it until it returns nothing, for a watch may be a moment behind.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from voda.app.kubernetes.service import KubernetesService
from voda.cluster.kubernetes.kinds.base import JobKind
from voda.cluster.kubernetes.objects import JobObject, NodeObject, Pod
from voda.cluster.kubernetes.state.job_pods import gpu_nodes
from voda.domain.job import Job

Versions = Mapping[str, tuple[str, str]]
"""`namespace/name` -> uid and resource version."""


async def mirror_differences(service: KubernetesService) -> Sequence[str]:
    """Return where reflectors, inventory and log differ from fresh lists, one sentence each."""
    api, inventory = service.mirror.api, service.kubernetes.inventory
    nodes = await api.list("/api/v1/nodes", NodeObject)
    pods = await api.list("/api/v1/pods", Pod)
    found = [
        *_differing("node", _versions(nodes.items), _versions(inventory.stock.nodes.values())),
        *_differing("pod", _versions(pods.items), _versions(inventory.pods_by_key.values())),
    ]
    for kind in service.mirror.kinds.values():
        listed = await api.list(kind.collection(), JobObject)
        found += _differing(kind.name, _versions(listed.items), _versions(_objects(service, kind)))
    counts = {"nodes": len(nodes.items), "pods": len(pods.items)}
    mirrored = service.mirror.counts()
    found += [
        f"{mirrored[name]} {name} are mirrored of {count}" for name, count in counts.items() if mirrored[name] != count
    ]
    return [*found, *_unlike_log(service.jobs.by_id(), service)]


def _objects(service: KubernetesService, kind: JobKind) -> list[JobObject]:
    return [each.object for each in service.kubernetes.inventory.objects.values() if each.kind.name == kind.name]


def _unlike_log(live: Mapping[str, Job], service: KubernetesService) -> Iterator[str]:
    for job_id, job in live.items():
        held = gpu_nodes(service.kubernetes.inventory.workers(job_id).values())
        if held != dict(sorted(job.workers.items())):
            yield f"the log has {job_id} on {dict(job.workers)}, its pods are on {held}"


def _versions(objects: Any) -> Versions:
    return {each.metadata.key: (each.metadata.uid, each.metadata.resource_version) for each in objects}


def _differing(what: str, listed: Versions, kept: Versions) -> Iterator[str]:
    for key in sorted({*listed, *kept}):
        if listed.get(key) != kept.get(key):
            yield f"{what} {key} is {kept.get(key)} in the inventory and {listed.get(key)} in a list"
