"""Whether a job fits into the guarantee that it has a part in, were all of it free."""

from collections.abc import Mapping

from voda.domain.cells import CellsSpec
from voda.domain.gpus import Gpus
from voda.domain.job import JobSpec
from voda.domain.node import Node
from voda.domain.plan import Plan
from voda.domain.state import ClusterState, Settings
from voda.planner.virtual_clusters.guaranteed import most_workers, views_of
from voda.planner.virtual_clusters.unused_book import kept_workers
from voda.text import counted


def quota_shortage(cells: CellsSpec | None, nodes: Mapping[str, Node], spec: JobSpec) -> str:
    """Return why no guarantee ever holds the minimum of a job, one sentence; empty: one does, or it asks for none.

    It costs the same however many jobs there are.
    """
    if cells is None or not spec.is_guaranteed:
        return ""
    pool = Plan(pool=spec.pool)
    empty = ClusterState(
        pool=spec.pool, position=0, jobs={}, nodes=nodes, plan=pool, estimates={}, settings=Settings(), cells=cells
    )
    quotas = kept_workers(empty).book.quotas
    # A card of which jobs have parts is one GPU of the quota.
    gpus = spec.gpus_per_replica or Gpus(1)
    most = most_workers(quotas, views_of(quotas, spec.virtual_cluster, spec.pinned_cell), gpus)
    if most >= spec.min_replicas:
        return ""
    holds = f"holds {counted(most, 'worker')} of {counted(gpus, 'GPU')}"
    needs = f"it needs {spec.min_replicas} at least"
    if spec.pinned_cell:
        return f"it never starts unless its minimum is less: pinned cell {spec.pinned_cell} {holds}, {needs}"
    return (
        f"it starts only on idle cells of others, without a guarantee: the whole quota of virtual cluster"
        f" {spec.virtual_cluster} {holds}, {needs}"
    )
