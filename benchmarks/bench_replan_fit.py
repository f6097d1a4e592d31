"""How long a re-plan takes where jobs ask for more than GPUs: labels, tolerations, CPUs and memory, in 50 classes.

The pool changes as in `bench_replan`; a fifth of its nodes are tainted, and each class is for some zones, for all of
them, or for tainted nodes too. In a second, smaller pool CPUs run short before GPUs. Garbage is
collected as in `voda up` and `voda serve`.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from benchmarks.bench_replan import ChangingPool, replans
from benchmarks.table import Row
from voda.app.runtime import tune_garbage_collector
from voda.domain.job import JobSpec
from voda.domain.node import Node, NodeTerm, PodNeeds, Requirement, Taint, Toleration

TITLE = "Re-plan of jobs of 50 classes by labels, taints and resources: snapshot, policy (elastic-fifo), placement"
CLASSES = 50
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


def run() -> Sequence[Row]:
    """Measure whole re-plans."""
    pool, short = BoundPool(nodes=1_000, gpus_per_node=8, jobs=2_000), ShortPool(nodes=50, gpus_per_node=8, jobs=100)
    tune_garbage_collector()
    return [
        *replans("steady", pool),
        *(replace(row, what=f"CPUs run short: {row.what}") for row in replans("steady", short)),
    ]
