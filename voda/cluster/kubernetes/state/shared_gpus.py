"""Shared GPUs by extended resources: the GPUs that a node offers, and what containers ask of them.

`gpu-core` counts hundredths of a GPU, `gpu-memory` MiB; both as elastic-gpu-scheduler has them, under either of the
groups that it uses. Rules: pure; what a pod asks for is read as it is meant, or refused in one sentence.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct

from voda.cluster.kubernetes.objects import KubeContainer, NodeObject, Pod
from voda.domain.errors import InvalidInput
from voda.domain.gpus import ContainerGpus, GpuDevice, GpuRequest, Gpus, request_of_core
from voda.kinds.quantities import milli

GPUS_OF: Final = "elasticgpu.io/container-"
"""Begins the annotations of a pod that name the GPUs of its containers: elasticgpu.io/container-main: "0,2"."""
ASSUMED: Final = "elasticgpu.io/assumed"
"""Annotation and label of a pod whose GPUs are named: "true"."""
_LONGEST_NAME: Final = 53
"""Of a container: the name of an annotation has 63 characters at most."""
_CORE_PER_GPU: Final = 100
_INDEX: Final = re.compile(r"[0-9]{1,4}")
_MOST_GPUS: Final = 1_024
"""More than any machine has; a kubelet that offers more is broken."""


class ShareResources(Struct, frozen=True, kw_only=True):
    """The names of the resources; all names of one resource mean the same, and a container uses one of them."""

    core: tuple[str, ...] = ("elasticgpu.io/gpu-core", "elasticgpu.com/gpu-core")
    memory: tuple[str, ...] = ("elasticgpu.io/gpu-memory", "elasticgpu.com/gpu-memory")


SHARE_RESOURCES: Final = ShareResources()


def gpus_of(node: NodeObject, names: ShareResources = SHARE_RESOURCES) -> tuple[GpuDevice, ...]:
    """Return the GPUs that a node offers to share, all alike; what is no quantity offers none."""
    core, memory = (_offered(node.status.allocatable, each) for each in (names.core, names.memory))
    count = min(core // _CORE_PER_GPU, _MOST_GPUS)
    return (GpuDevice(memory_mib=memory // count),) * count if count else ()


def share_requests(pod: Pod, names: ShareResources = SHARE_RESOURCES) -> Mapping[str, GpuRequest]:
    """Return container -> what it asks of GPUs, in the pod's order; containers without GPUs are left out.

    Raises:
        InvalidInput: a request is none that one can have: 150 of core, both names of one resource, requests that differ
            from limits, or an init container that asks.
    """
    for container in pod.spec.init_containers:
        if used := _used(container, (*names.core, *names.memory)):
            raise InvalidInput(
                f"pod {pod.metadata.key}: init container {container.name} asks for {used[0]}, expected containers alone"
                " to ask: a GPU is kept for a container as long as the pod lives"
            )
    found = ((container.name, _request(pod, container, names)) for container in pod.spec.containers)
    requests = {name: request for name, request in found if request.count}
    if long := [name for name in requests if len(name) > _LONGEST_NAME]:
        raise InvalidInput(
            f"pod {pod.metadata.key}: the name of container {long[0]} has {len(long[0])} characters, expected at most"
            f" {_LONGEST_NAME}: an annotation after it names its GPUs"
        )
    return requests


def asks_for_gpus(pod: Pod, names: ShareResources = SHARE_RESOURCES) -> bool:
    """Say whether any container names one of the resources, readably or not."""
    known = (*names.core, *names.memory)
    return any(
        name in given
        for container in (*pod.spec.containers, *pod.spec.init_containers)
        for given in (container.resources.requests, container.resources.limits)
        for name in known
    )


def gpu_annotations(containers: Mapping[str, ContainerGpus]) -> Mapping[str, str]:
    """Return the annotations that name the GPUs of containers."""
    named = {f"{GPUS_OF}{name}": ",".join(map(str, share.gpus)) for name, share in containers.items()}
    return {**named, ASSUMED: "true"}


def annotated_gpus(pod: Pod, requests: Mapping[str, GpuRequest], devices: int) -> Mapping[str, ContainerGpus] | None:
    """Return the GPUs that a pod's annotations name, those left out that the node does not have (any more).

    None where annotations are missing, or are not what the requests need.
    """
    found = {}
    for name, request in requests.items():
        gpus = _indices(pod.metadata.annotations.get(f"{GPUS_OF}{name}", ""))
        if len(set(gpus)) != request.count or len(gpus) != request.count:
            return None
        if share := share_on(ContainerGpus(gpus=gpus, request=request), devices):
            found[name] = share
    return found


def share_on(share: ContainerGpus, devices: int) -> ContainerGpus | None:
    """Return what is left of a container's GPUs on a node that has so many; None where nothing is."""
    left = tuple(gpu for gpu in share.gpus if gpu < devices)
    if len(left) == len(share.gpus):
        return share
    return ContainerGpus(gpus=left, request=GpuRequest(devices=Gpus(len(left)))) if left else None


def _indices(text: str) -> tuple[int, ...]:
    parts = text.split(",")
    return tuple(int(part) for part in parts) if all(_INDEX.fullmatch(part) for part in parts) else ()


def _request(pod: Pod, container: KubeContainer, names: ShareResources) -> GpuRequest:
    try:
        return request_of_core(_asked(container, names.core), _asked(container, names.memory))
    except (InvalidInput, ValueError) as error:
        raise InvalidInput(f"pod {pod.metadata.key}: container {container.name}: {error}") from error


def _asked(container: KubeContainer, names: Sequence[str]) -> int:
    """Return how much a container asks of a resource that has several names."""
    used = _used(container, names)
    if len(used) > 1:
        raise InvalidInput(f"it asks for {used[0]} and for {used[1]}, expected one of them: they are the same resource")
    if not used:
        return 0
    name, resources = used[0], container.resources
    limit = resources.limits.get(name, resources.requests.get(name, 0))
    request = resources.requests.get(name, limit)
    if milli(request) != milli(limit):
        raise InvalidInput(f"{name}: its request is {request} and its limit {limit}, expected the same")
    if milli(request) % 1000 or milli(request) < 0:
        raise InvalidInput(f"{name} is {request}, expected a whole number from 0")
    return milli(request) // 1000


def _used(container: KubeContainer, names: Sequence[str]) -> Sequence[str]:
    """Return under which of its names a container asks for some of a resource."""
    given = (container.resources.requests, container.resources.limits)
    return [name for name in names if any(_is_some(each.get(name, 0)) for each in given)]


def _is_some(quantity: str | int | float) -> bool:
    return milli(quantity) != 0


def _offered(allocatable: Mapping[str, str], names: Sequence[str]) -> int:
    """Return what a node has of a resource: where it has it under several names, they are the same GPUs."""
    try:
        return max([0, *(milli(allocatable.get(name, "0")) // 1000 for name in names)])
    except InvalidInput:
        return 0
