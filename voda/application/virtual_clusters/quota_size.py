"""Whether a job fits into the guarantee that it has a part in, were all of it free."""

from collections.abc import Mapping

from voda.domain.cells import CellsSpec
from voda.domain.gpus import Gpus
from voda.domain.job import JobSpec
from voda.domain.node import Node
from voda.planner.virtual_clusters import workers_in_quota
from voda.text import counted


def quota_shortage(cells: CellsSpec, nodes: Mapping[str, Node], spec: JobSpec) -> str:
    """Return why no guarantee ever holds the minimum of a job, one sentence; empty: one does, or it asks for none.

    It costs the same however many jobs there are.
    """
    if not spec.is_guaranteed:
        return ""
    gpus, most = spec.gpus_per_replica or Gpus(1), workers_in_quota(cells, nodes.values(), spec)
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
