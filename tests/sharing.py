"""Builders for tests of shared GPUs: nodes, pods, and a placer on them."""

from collections.abc import Mapping, Sequence

from voda.domain.gpus import GpuDevice, GpuRequest, Gpus
from voda.sharing.rating.demand import Demand
from voda.sharing.rating.fleet import Fleet
from voda.sharing.rating.nodes import GpuNode
from voda.sharing.rating.placement import PodPlacer
from voda.sharing.rating.pod import PodPlacement, PodRequest
from voda.sharing.rating.raters import RATERS, RatingContext


def a_gpu_node(name: str = "n1", devices: int = 2, *, memory_mib: int = 16_000, **fields: object) -> GpuNode:
    """Return a node with equal devices; `groups` is one tuple of groups for each device."""
    groups: Sequence[tuple[int, ...]] = fields.pop("groups", ((),) * devices)  # type: ignore[assignment]
    values: Mapping[str, object] = {"cpu_milli": 32_000, "memory_mib": 64_000, **fields}
    return GpuNode(
        name=name,
        devices=tuple(GpuDevice(memory_mib=memory_mib, groups=group) for group in groups),
        **values,  # type: ignore[arg-type]
    )


def whole(devices: int) -> GpuRequest:
    """Return a request of whole devices."""
    return GpuRequest(devices=Gpus(devices))


def share(milli: int, memory_mib: int = 0) -> GpuRequest:
    """Return a request of a share."""
    return GpuRequest(milli=milli, memory_mib=memory_mib)


def a_pod(*containers: GpuRequest, cpu_milli: int = 1_000, models: tuple[str, ...] = ()) -> PodRequest:
    """Return a pod of containers."""
    return PodRequest(cpu_milli=cpu_milli, memory_mib=1_000, containers=containers, models=models)


def a_placer(fleet: Fleet, rater: str = "binpack", pods: Sequence[PodRequest] = ()) -> PodPlacer:
    """Return a placer of pods that expects pods like those given."""
    return PodPlacer(fleet, RATERS[rater], RatingContext(demand=Demand(pods, fleet.hardware)))


def placed(node: str, pod: PodRequest, *devices: tuple[int, ...]) -> PodPlacement:
    """Return a placement."""
    return PodPlacement(node=node, request=pod, devices=devices)
