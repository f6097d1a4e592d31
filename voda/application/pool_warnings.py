"""What a pool makes of a job that is submitted: nodes, GPUs or quota for which it has to wait.

Rule: it reads as few nodes as will do, and no jobs: a submit costs the same however many there are.
"""

from collections.abc import Collection, Iterator
from itertools import accumulate

from voda.application.virtual_clusters.quota_size import quota_shortage
from voda.domain.job import JobSpec
from voda.domain.node import Node
from voda.events.cell_text import parts_text
from voda.kinds.base import FieldWarning
from voda.manifests.parse import ParsedManifest
from voda.manifests.replicas import share_memory_path
from voda.planner.sharing import lacking_memory, largest_gpu_mib
from voda.projections.live import LiveCluster


def pool_warnings(cluster: LiveCluster, parsed: ParsedManifest) -> Iterator[FieldWarning]:
    """Yield whether the job has to wait for nodes, GPUs or quota."""
    spec = parsed.spec
    nodes = cluster.nodes(spec.pool).values()
    if spec.share is not None and (lacking := lacking_memory(largest_gpu_mib(nodes), spec.share)):
        message = f"it waits until a larger GPU joins pool {spec.pool}: {parts_text(lacking)}"
        yield FieldWarning(field=share_memory_path(parsed.job) or parsed.job.size_path, message=message)
    elif spec.share is None and (message := _too_big(spec, nodes)):
        yield FieldWarning(field=parsed.job.size_path, message=message)
    elif shortage := quota_shortage(cluster.cells(spec.pool), cluster.nodes(spec.pool), spec):
        yield FieldWarning(field=parsed.job.size_path, message=shortage)


def _too_big(spec: JobSpec, nodes: Collection[Node]) -> str:
    """Return that the nodes have no room for a job of whole GPUs even when empty; empty: they have, or are none."""
    rooms = accumulate(node.usable_gpus // spec.gpus_per_replica for node in nodes)
    if not nodes or any(room >= spec.min_replicas for room in rooms):
        return ""
    room = sum(node.usable_gpus // spec.gpus_per_replica for node in nodes)
    gpus = sum(node.usable_gpus for node in nodes)
    each = "" if spec.gpus_per_replica == 1 else f" of {spec.gpus_per_replica} GPUs each"
    workers = "1 worker" if spec.min_replicas == 1 else f"{spec.min_replicas} workers"
    return (
        f"it waits until nodes join or its minimum is less: it needs {workers}{each}, and pool {spec.pool} has room for"
        f" {room} when empty ({gpus} GPUs in all)"
    )
