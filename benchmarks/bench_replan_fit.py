"""How long a re-plan takes where jobs ask for more than GPUs: labels, tolerations, CPUs and memory, in 50 classes.

The pool changes as in `bench_replan`; a fifth of its nodes are tainted, and each class is for some zones, for all of
them, or for tainted nodes too. In a second, smaller pool CPUs run short before GPUs. In a third one pods of others
leave little CPU, memory and few pods, on each node other numbers: it is decided about with nothing kept. Garbage is
collected as in `voda up` and `voda serve`.
"""

from collections.abc import Sequence
from statistics import median

from msgspec.structs import replace

from benchmarks.bench_replan import ChangingPool, replan, replans
from benchmarks.table import Row
from voda.app.runtime import tune_garbage_collector
from voda.domain.job import JobSpec
from voda.domain.node import Node, NodeTerm, PodNeeds, Requirement, Taint, Toleration
from voda.planner.registries import all_wings
from voda.planner.virtual_clusters import CellPlanner

TITLE = "Re-plan of jobs of 50 classes by labels, taints and resources: snapshot, policy (elastic-fifo), placement"
CLASSES = 50
_COLD_TURNS = 5
_GIB = 1 << 30
_ZONES = "abcde"
_DEDICATED = Taint(key="dedicated", value="vision")


class BoundPool(ChangingPool):
    """A pool whose nodes have labels, taints and other resources than GPUs, and whose jobs ask for them."""

    def node(self, index: int) -> Node:
        labels = {"zone": _ZONES[index % 5], "kubernetes.io/hostname": f"node-{index:04}", "generation": str(index % 3)}
        room = {"cpu": 60_000, "memory": 480 * _GIB * 1_000, "pods": (100 - index % 7) * 1_000}
        taints = (_DEDICATED,) if index % 10 in (3, 4) else ()
        return replace(super().node(index), labels=labels, room=room, taints=taints)

    def spec(self, index: int) -> JobSpec:
        kind = index % CLASSES
        requests = {"cpu": (1 + kind % 7) * 1_000, "memory": (8 + kind) * _GIB * 1_000}
        zones = Requirement(key="zone", values=tuple(_ZONES[: 1 + kind % 5]))
        needs = PodNeeds(
            requests=requests,
            terms=(NodeTerm(labels=(zones,)),) if kind % 2 else None,
            tolerations=(Toleration(key="dedicated", operator="Exists"),) if kind % 3 else (),
        )
        return replace(super().spec(index), needs=needs)


class ShortPool(ChangingPool):
    """A pool whose nodes have 8 GPUs each, and CPUs for 5 workers."""

    def node(self, index: int) -> Node:
        return replace(super().node(index), room={"cpu": 64_000, "memory": 480 * _GIB * 1_000, "pods": 110_000})

    def spec(self, index: int) -> JobSpec:
        return replace(super().spec(index), needs=PodNeeds(requests={"cpu": 12_000}))


class FilledPool(BoundPool):
    """A pool whose nodes other pods fill, each to another degree."""

    def node(self, index: int) -> Node:
        cpus, gib, pods = 8 + index * 7 % 53, 40 + index * 13 % 440, 4 + index % 29
        room = {"cpu": cpus * 1_000, "memory": gib * _GIB * 1_000, "pods": pods * 1_000}
        return replace(super().node(index), room=room)


def run() -> Sequence[Row]:
    """Measure whole re-plans."""
    pool, short = BoundPool(nodes=1_000, gpus_per_node=8, jobs=2_000), ShortPool(nodes=50, gpus_per_node=8, jobs=100)
    tune_garbage_collector()
    return [
        *replans("steady", pool),
        *(replace(row, what=f"CPUs run short: {row.what}") for row in replans("steady", short)),
        *_decided_cold(FilledPool(nodes=1_000, gpus_per_node=8, jobs=2_000)),
    ]


def _decided_cold(pool: ChangingPool) -> Sequence[Row]:
    """Time the first plan of a pool, and those after it, each with nothing kept from the one before."""
    cpu_s: list[float] = []
    for turn in range(1 + _COLD_TURNS):
        pool.wings = all_wings(CellPlanner())
        replan(pool, "steady", turn, cpu_s)
    what = "other pods fill the nodes, nothing kept: "
    return [
        Row(what=f"{what}first plan, CPU time", figure=1e3 * cpu_s[0], unit="ms", goal=500.0),
        Row(what=f"{what}re-plan, CPU time, p50", figure=1e3 * median(cpu_s[1:]), unit="ms", goal=500.0),
    ]
