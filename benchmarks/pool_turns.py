"""Makes the next plan of a changing pool each time that a line comes; each line out has the CPU seconds that it took.

`beside` runs it in the tree that it is in and in an older one: it uses nothing that this lacks. Garbage is collected as
in `voda up` and `voda serve`. Arguments: the class of the pool, or another where the tree lacks it, its nodes, jobs and
virtual clusters.
"""

import importlib
import sys

from benchmarks import bench_replan
from voda.app.runtime import tune_garbage_collector


def main(kind: str, nodes: int, jobs: int, virtual_clusters: int) -> None:
    """Make a pool of nodes of 8 GPUs, and a plan a line."""
    module, _, name = kind.partition(":")
    try:
        kind_of_pool = getattr(importlib.import_module(module), name)
    except ImportError:
        kind_of_pool = bench_replan.ChangingPool
    pool = kind_of_pool(nodes=nodes, gpus_per_node=8, jobs=jobs, virtual_clusters=virtual_clusters)
    make_plan = getattr(bench_replan, "replan", None) or vars(bench_replan)["_turn"]
    tune_garbage_collector()
    cpu_s: list[float] = []
    for turn, _ in enumerate(sys.stdin):
        make_plan(pool, "steady", turn, cpu_s)
        print(cpu_s[-1], flush=True)


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
