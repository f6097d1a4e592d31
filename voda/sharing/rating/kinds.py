"""What pods usually ask for: the kinds that cover most of the pods of a list.

Weng et al., Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient Descent, USENIX
ATC 2023, section 4.1: the kinds of the target workload, by popularity.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

from msgspec import Struct

from voda.domain.gpus import GpuRequest
from voda.sharing.rating.pod import PodRequest


class TypicalKind(Struct, frozen=True, kw_only=True):
    """One kind of pod, and how often it comes."""

    share: float
    """Of all pods of the chosen kinds; they add up to 1."""
    cpu_milli: int
    milli: int
    """Compute of each device; 0 = it asks for none."""
    devices: int
    models: tuple[str, ...] = ()


def kind_of(pod: PodRequest) -> tuple[int, int, int, tuple[str, ...]]:
    """Return CPU, compute of each device, devices and models; of a pod of several containers, the largest of them."""
    largest = largest_container(pod)
    return pod.cpu_milli, largest.milli_each if largest else 0, largest.count if largest else 0, pod.models


def largest_container(pod: PodRequest) -> GpuRequest | None:
    """Return what the container asks for that asks for the most compute; None: the pod has no containers."""
    return max(pod.containers, key=lambda container: container.total_milli, default=None)


def typical_kinds(pods: Mapping[PodRequest, int], coverage: float) -> Sequence[TypicalKind]:
    """Return the most frequent kinds, most frequent first, that together are at least that share of the pods.

    `pods` is what a pod asks for -> how many pods do.
    """
    counts = Counter[tuple[int, int, int, tuple[str, ...]]]()
    for pod, count in pods.items():
        counts[kind_of(pod)] += count
    frequent = sorted(((count, kind) for kind, count in counts.items()), reverse=True)
    needed, covered = coverage * counts.total(), 0
    chosen = []
    for count, kind in frequent:
        if covered >= needed:
            break
        chosen.append((count, kind))
        covered += count
    return [
        TypicalKind(share=count / covered, cpu_milli=cpu, milli=milli, devices=devices, models=models)
        for count, (cpu, milli, devices, models) in chosen
    ]
