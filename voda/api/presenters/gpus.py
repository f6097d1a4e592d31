"""The GPUs of a node as the API shows them: what is free of each, who has shares of it, and which job all.

Rule: a share of a GPU that is gone stays visible until it is released.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

from voda.domain.shares import SharingNode
from voda.wire.base import instant
from voda.wire.pools import GpuView, ShareView

_NO_JOBS: Final[Mapping[int, str]] = {}


def gpus_of(node: SharingNode, jobs: Mapping[int, str] = _NO_JOBS) -> tuple[GpuView, ...]:
    """Return the GPUs of a node by index, with those that are gone and of which pods still have shares; `jobs`: GPU
    -> the job that has all of it, where that is known.
    """
    free, shares = node.free(), _shares(node)
    there = (
        GpuView(
            index=index,
            name=node.devices[index].name,
            is_present=True,
            memory_mib=node.devices[index].memory_mib,
            free_milli=left.milli,
            free_memory_mib=max(0, left.memory_mib),
            shares=tuple(shares.get(index, ())),
            job=jobs.get(index, ""),
        )
        for index, left in enumerate(free)
    )
    gone = (
        GpuView(
            index=index, is_present=False, memory_mib=0, free_milli=0, free_memory_mib=0, shares=tuple(shares[index])
        )
        for index in sorted(shares)
        if index >= len(free)
    )
    return *there, *gone


def _shares(node: SharingNode) -> Mapping[int, Sequence[ShareView]]:
    """Return GPU -> who has some of it, in the order of assignment."""
    found = defaultdict[int, list[ShareView]](list)
    for uid, pod in node.pods.items():
        for container, share in pod.containers.items():
            for gpu in share.gpus:
                is_known = share.request.devices and gpu < len(node.devices)
                found[gpu].append(
                    ShareView(
                        pod=pod.pod,
                        pod_uid=uid,
                        container=container,
                        milli=share.request.milli_each,
                        memory_mib=node.devices[gpu].memory_mib if is_known else share.request.memory_mib,
                        assigned_at=instant(pod.assigned_at),
                    )
                )
    return found
