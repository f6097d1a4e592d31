"""How long a re-plan takes in a large pool with virtual clusters: guarantees, idle cells, places and reasons.

The pool changes as in `bench_replan`; the teams are owed all nodes in equal parts, and some ask for more than others.
Garbage is collected as in `voda up` and `voda serve`: a whole collection takes as long as a plan does.
"""

from collections.abc import Sequence

from benchmarks.bench_replan import ChangingPool, replans
from benchmarks.table import Row
from voda.app.runtime import tune_garbage_collector

TITLE = "Re-plan with 20 virtual clusters: snapshot, policy (elastic-fifo), cells, difference"


def run() -> Sequence[Row]:
    """Measure whole re-plans, with all cells in use and with a part of them idle."""
    pool = ChangingPool(nodes=1_000, gpus_per_node=8, jobs=2_000, virtual_clusters=20)
    tune_garbage_collector()
    return replans("steady", pool, goal_ms=100.0)
