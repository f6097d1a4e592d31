"""Reads the gauges of virtual clusters off the plans in force: quotas, their use, doomed cells, borrowed and idle GPUs.

Rules: the cells of a pool are looked at in a thread, by one scrape at a time, and only where something of them has
changed since. A pool has at most about `_QUOTAS` series per gauge; virtual clusters beyond are shown as one.
"""

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from voda.application.journal import JournalView
from voda.cells.accounting import QuotaUse, borrowed_leafs, quota_use
from voda.cells.health import lacking_cells
from voda.concurrency import log_unexpected
from voda.domain.cells import CellsSpec, GangAllocation, VirtualClusterSpec
from voda.domain.node import Node
from voda.domain.state import ClusterState
from voda.planner.virtual_clusters import book_of

_QUOTAS: Final = 1_000
_OTHERS: Final = "(others)"
"""All virtual clusters beyond; none can have this name."""
_OF_A_QUOTA: Final = ("pool", "virtual_cluster", "chain", "cell_type")
_OF_A_CLUSTER: Final = ("pool", "virtual_cluster")
_OF_A_TYPE: Final = ("pool", "chain", "cell_type")

_QUOTA_GAUGES: Final = {
    "quota_cells": ("Cells of its quota.", "cells"),
    "quota_cells_in_use": ("Those that its guaranteed workers use in part at least.", "in_use"),
    "doomed_cells": ("Those that stand on nodes that take no workers.", "doomed"),
    "quota_gpus": ("GPUs of its quota.", "leafs"),
    "quota_gpus_in_use": ("Those that its guaranteed workers use.", "used_leafs"),
}
"""Name -> meaning, and the field of the quota's use."""

_Quota = tuple[str, str, str]
"""Virtual cluster, chain, cell type."""


@dataclass(frozen=True)
class CellFigures:
    """What the virtual clusters of a pool have."""

    quotas: Mapping[_Quota, QuotaUse]
    """Pinned cells are counted with the others of their type."""
    borrowed: Mapping[str, int]
    """Virtual cluster -> GPUs that its jobs use without a guarantee; every virtual cluster is in it."""
    lost: frozenset[str]
    """Virtual clusters without any guarantee, because the pool no longer has the nodes for their quotas."""
    lacking: Mapping[tuple[str, str], int]
    """(chain, cell type) -> promised cells for which no healthy ones are left; the rest of `default` does not count."""


@dataclass(frozen=True)
class _Basis:
    """What the figures of a pool follow from."""

    plan: int
    revision: int
    nodes: Mapping[str, Node]
    jobs: frozenset[str]
    gangs: Mapping[str, GangAllocation]


class CellGauges(Collector):
    """Shows what the virtual clusters had when `refresh` was last awaited; nothing of pools without any."""

    def __init__(self, view: JournalView, pools: Sequence[str]) -> None:
        self._view = view
        self._names = pools
        self._looking = asyncio.Lock()
        self._pools: dict[str, tuple[_Basis, CellFigures]] = {}

    async def refresh(self) -> None:
        """Look at the cells of every pool that has virtual clusters."""
        async with self._looking:
            live = self._view.cluster
            with_cells = [pool for pool in self._names if live.cells(pool) is not None]
            for gone in self._pools.keys() - with_cells:
                del self._pools[gone]
            for pool in with_cells:
                with log_unexpected("gauges of virtual clusters", pool):
                    await self._refresh_pool(live.state(pool))

    def collect(self) -> Iterator[GaugeMetricFamily]:
        if self._pools:
            yield from _families({pool: figures for pool, (_, figures) in self._pools.items()})

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """Name the gauges without a look at the cells."""
        yield from _families({})

    async def _refresh_pool(self, state: ClusterState) -> None:
        basis = _basis(state)
        known = self._pools.get(state.pool)
        if known is None or known[0] != basis:
            self._pools[state.pool] = basis, await asyncio.to_thread(cell_figures, state)


def cell_figures(state: ClusterState, most: int = _QUOTAS) -> CellFigures:
    """Return what the virtual clusters of a pool have, those after the first `most` quotas as one."""
    assert state.cells is not None, "the pool has virtual clusters"
    book = book_of(state)
    uses = quota_use(book)
    shown = _shown(book.quotas.clusters, Counter(key.virtual_cluster for key in uses), most)
    quotas: dict[_Quota, QuotaUse] = {}
    for key, use in uses.items():
        quota = shown[key.virtual_cluster], key.chain, key.cell_type
        quotas[quota] = _sum(quotas.get(quota, QuotaUse(0)), use)
    borrowed = Counter[str](dict.fromkeys(shown.values(), 0))
    for (cluster, _), leafs in borrowed_leafs(book).items():
        borrowed[shown[cluster]] += leafs
    promised = _promised(state.cells)
    lost = frozenset(shown[cluster] for cluster in promised - {key.virtual_cluster for key in uses})
    return CellFigures(quotas, borrowed, lost, lacking_cells(book, promised))


def _basis(state: ClusterState) -> _Basis:
    jobs = frozenset(job_id for job_id, job in state.jobs.items() if not job.is_canceling)
    return _Basis(state.plan.number, state.cells_revision, state.nodes, jobs, state.gangs)


def _shown(clusters: Sequence[str], quotas: Mapping[str, int], most: int) -> Mapping[str, str]:
    """Return virtual cluster -> as what it is shown."""
    shown, count = {}, 0
    for cluster in clusters:
        count += max(1, quotas[cluster])
        shown[cluster] = cluster if count <= most else _OTHERS
    return shown


def _promised(cells: CellsSpec) -> frozenset[str]:
    return frozenset(name for name, spec in cells.virtual_clusters.items() if _has_quota(spec))


def _has_quota(spec: VirtualClusterSpec) -> bool:
    return bool(spec.pinned_cells) or any(quota.cell_number for quota in spec.virtual_cells)


def _sum(one: QuotaUse, other: QuotaUse) -> QuotaUse:
    return QuotaUse(
        one.cells + other.cells,
        one.in_use + other.in_use,
        one.doomed + other.doomed,
        one.leafs + other.leafs,
        one.used_leafs + other.used_leafs,
    )


def _families(pools: Mapping[str, CellFigures]) -> Iterator[GaugeMetricFamily]:
    yield from _of_quotas(pools)
    borrowed = _family("borrowed_gpus", "GPUs that its jobs use without a guarantee.", _OF_A_CLUSTER)
    idle = _family("idle_gpus", "GPUs of its quota that its guaranteed workers do not use.", _OF_A_CLUSTER)
    lost = _family("guarantee_lost", "1 where the nodes for its quota have left the pool, else 0.", _OF_A_CLUSTER)
    lacking = _family("cells_lacking", "Promised cells for which no healthy ones are left.", _OF_A_TYPE)
    for pool, figures in pools.items():
        for kind, cells in figures.lacking.items():
            lacking.add_metric([pool, *kind], cells)
        unused = Counter[str]()
        for (cluster, _, _), use in figures.quotas.items():
            unused[cluster] += use.leafs - use.used_leafs
        for cluster, gpus in figures.borrowed.items():
            borrowed.add_metric([pool, cluster], gpus)
            idle.add_metric([pool, cluster], unused[cluster])
            lost.add_metric([pool, cluster], cluster in figures.lost)
    yield from (borrowed, idle, lost, lacking)


def _of_quotas(pools: Mapping[str, CellFigures]) -> Iterator[GaugeMetricFamily]:
    for name, (meaning, field) in _QUOTA_GAUGES.items():
        family = _family(name, meaning, _OF_A_QUOTA)
        for pool, figures in pools.items():
            for quota, use in figures.quotas.items():
                family.add_metric([pool, *quota], getattr(use, field))
        yield family


def _family(name: str, meaning: str, labels: Sequence[str]) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"voda_virtual_cluster_{name}", meaning, labels=labels)
