"""Reads the gauges of shared GPUs off the accounts of the log: what is free of each node's GPUs, and of use to none.

Rules: only nodes with GPUs have these, or with pods that have shares; O(live jobs + shares + GPUs) per look, most of
it in a thread.
"""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Final

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from voda.application.journal import JournalView
from voda.domain.gpus import MILLI_PER_DEVICE
from voda.domain.shares import SharingNode
from voda.domain.state import ClusterState
from voda.sharing.rating import fragments

_OF_A_NODE: Final = ("pool", "node")
_BY_STATE: Final = (*_OF_A_NODE, "state")
_MIB: Final = 1 << 20


class ShareGauges(Collector):
    """Shows what the GPUs of nodes had left when `refresh` was last awaited; nothing where no node shares any."""

    def __init__(self, view: JournalView, pools: Sequence[str]) -> None:
        self._view = view
        self._pools = pools
        self._families: Sequence[GaugeMetricFamily] = ()

    async def refresh(self) -> None:
        """Look at the accounts of all pools."""
        live = self._view.cluster
        states = [live.state(pool) for pool in self._pools]
        is_any = any(state.shares for state in states)
        self._families = await asyncio.to_thread(_families, states) if is_any else ()

    def collect(self) -> Iterator[GaugeMetricFamily]:
        yield from self._families

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """Name the gauges without a look at the accounts."""
        yield from _GpuFamilies().all


def _families(states: Sequence[ClusterState]) -> Sequence[GaugeMetricFamily]:
    families = _GpuFamilies()
    for state in states:
        families.add(state)
    return families.all


class _GpuFamilies:
    """The gauges, filled pool by pool."""

    def __init__(self) -> None:
        self.all: list[GaugeMetricFamily] = []
        self.shareable = self._family("shareable_gpus", "GPUs of a node that pods may share, by state.", _BY_STATE)
        self.pods = self._family("share_pods", "Pods that have shares of a node's GPUs.", _OF_A_NODE)
        self.milli = self._family("gpu_milli", "Compute of a node's GPUs, 1,000 each, by state.", _BY_STATE)
        self.memory = self._family("gpu_memory_bytes", "Memory of a node's GPUs, by state.", _BY_STATE)
        self.fragment = self._family(
            "gpu_fragment_milli", "Free compute that a pod as they usually are cannot use.", _OF_A_NODE
        )
        self.lost = self._family(
            "share_pods_without_gpu", "Pods with shares of GPUs that the node has no more.", _OF_A_NODE
        )

    def add(self, state: ClusterState) -> None:
        for name, account in sorted(state.shares.items()):
            self._add_node([state.pool, name], account)
        for name, milli in fragments(state).items():
            self.fragment.add_metric([state.pool, name], milli)

    def _add_node(self, node: Sequence[str], account: SharingNode) -> None:
        free = account.free()
        used = sum(not gpu.is_whole for gpu in free)
        milli = sum(max(0, gpu.milli) for gpu in free)
        memory = sum(max(0, gpu.memory_mib) for gpu in free)
        whole = sum(device.memory_mib for device in account.devices)
        self._add_states(self.shareable, node, free=len(free) - used, shared=used)
        self._add_states(self.milli, node, free=milli, shared=MILLI_PER_DEVICE * len(free) - milli)
        self._add_states(self.memory, node, free=memory * _MIB, shared=(whole - memory) * _MIB)
        self.pods.add_metric(node, len(account.pods))
        self.lost.add_metric(node, _without_gpu(account))

    def _add_states(self, family: GaugeMetricFamily, node: Sequence[str], **states: int) -> None:
        for state, value in states.items():
            family.add_metric([*node, state], value)

    def _family(self, name: str, meaning: str, labels: Sequence[str]) -> GaugeMetricFamily:
        family = GaugeMetricFamily(f"voda_node_{name}", meaning, labels=labels)
        self.all.append(family)
        return family


def _without_gpu(account: SharingNode) -> int:
    count = len(account.devices)
    return sum(1 for pod in account.pods.values() if any(max(share.gpus) >= count for share in pod.containers.values()))
