"""Decisions about cells: 10,000 devices in racks of nodes, load check, then gangs that come and go."""

from collections.abc import Sequence
from statistics import quantiles
from time import perf_counter
from typing import Final

from benchmarks.table import Row
from voda.cells.adoption import adopt, start
from voda.cells.book import CellBook, open_book
from voda.cells.decisions import GangStarts
from voda.cells.gangs import OPPORTUNISTIC, GangRequest
from voda.cells.preemption import end
from voda.cells.scheduling import decide
from voda.cells.structure.derivation import RackNode, derive_topology
from voda.cells.structure.quotas import build_quotas
from voda.cells.structure.topology import build_topology
from voda.domain.cells import PhysicalClusterSpec, QuotaSpec, VirtualClusterSpec
from voda.domain.rng import rng_at

TITLE: Final = "cells: 10,000 devices in 125 racks of 10 nodes of 8, 20 virtual clusters, one core"
_RACKS: Final = 125
_NODES: Final = 10
_GPUS: Final = 8
_CLUSTERS: Final = 20
_OPERATIONS: Final = 10_000
_GOAL_MS: Final = 1.0
_SIZES: Final = (((1, 1),), ((1, 2),), ((1, 4),), ((1, 8),), ((2, 8),), ((4, 8),), ((8, 8),), ((1, 4), (2, 2)))


def run() -> Sequence[Row]:
    """Return the milliseconds of loading, of one operation, and of a copy of the book."""
    physical, clusters = _specification()
    begun = perf_counter()
    topology = build_topology(physical)
    book = open_book(topology, build_quotas(clusters, topology))
    loaded_ms = (perf_counter() - begun) * 1e3
    took_ms = _operate(book)
    begun = perf_counter()
    book.copy()
    copied_ms = (perf_counter() - begun) * 1e3
    mean_ms, p99_ms = sum(took_ms) / len(took_ms), quantiles(took_ms, n=100)[98]
    return [
        Row(what="build and load check", figure=loaded_ms, unit="ms"),
        Row(what="schedule or release, mean", figure=mean_ms, unit="ms", goal=_GOAL_MS),
        Row(what="schedule or release, p99", figure=p99_ms, unit="ms"),
        Row(what="copy of the book", figure=copied_ms, unit="ms"),
    ]


def _specification() -> tuple[PhysicalClusterSpec, dict[str, VirtualClusterSpec]]:
    machines = [
        RackNode(f"node-{rack:03}-{node}", _GPUS, f"rack-{rack:03}") for rack in range(_RACKS) for node in range(_NODES)
    ]
    quotas = (QuotaSpec(cell_type="rack.node", cell_number=30), QuotaSpec(cell_type="rack", cell_number=3))
    clusters = {f"vc-{number:02}": VirtualClusterSpec(virtual_cells=quotas) for number in range(_CLUSTERS)}
    return derive_topology(machines), clusters


def _operate(book: CellBook) -> list[float]:
    """Schedule gangs, one in four opportunistic, and release the oldest while the cluster is nearly full."""
    rng, running, took_ms = rng_at(1, "bench_cells"), list[str](), list[float]()
    for number in range(_OPERATIONS):
        request = GangRequest(
            name=f"gang-{number}",
            virtual_cluster=f"vc-{rng.randrange(_CLUSTERS):02}",
            members=rng.choice(_SIZES),
            priority=OPPORTUNISTIC if rng.random() < 0.25 else rng.randrange(3),
        )
        is_release = len(running) > 1_000 or (running and rng.random() < 0.3)
        begun = perf_counter()
        if is_release:
            end(book, running.pop(rng.randrange(len(running))))
        elif _schedule(book, request):
            running.append(request.name)
        took_ms.append((perf_counter() - begun) * 1e3)
    return took_ms


def _schedule(book: CellBook, request: GangRequest) -> bool:
    """Return whether the gang runs; preempted gangs are given up at once."""
    decision = decide(book, request, request.sizes[0])
    if not isinstance(decision, GangStarts):
        return False
    adopt(book, request, decision, request.name)
    start(book, request, decision.placement, slot=decision.slot, worker=request.name)
    return True
