"""What a service makes of manifests, beyond what each says by itself: its cluster, its users and its limits.

Rules: the composition root says it, for a machine or for Kubernetes; submitting a job reads the same with both. What a
pool makes of a job is found in few nodes, and without a look at jobs: a submit costs the same however many there are.
"""

from asyncio import sleep
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from voda.domain.cells import CellsSpec
from voda.domain.job import JobSpec
from voda.domain.node import Node
from voda.events.cell_text import parts_text
from voda.kinds.base import FieldWarning
from voda.manifests.parse import ACCELERATOR, ParsedManifest
from voda.manifests.replicas import share_memory_path
from voda.planner.sharing import lacking_memory, largest_gpu_mib
from voda.projections.live import LiveCluster

QuotaShortage = Callable[[CellsSpec, Mapping[str, Node], JobSpec], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRules:
    """Which jobs there may be, and what becomes of their manifests."""

    pools: Sequence[str]
    """Pools that take jobs; the first is the default."""
    pool_label: str = ACCELERATOR
    """Label of nodes: a job that selects nodes by it goes to the pool of that name."""
    jobs_per_user: int = 1_000
    """Live jobs; admins may have more."""
    warnings: Callable[[ParsedManifest], Sequence[FieldWarning]] = lambda _parsed: ()
    """Returns the fields of a manifest that the cluster ignores or changes; raises InvalidField where it cannot run."""
    counted: Callable[[ParsedManifest], ParsedManifest] = lambda parsed: parsed
    """Returns a manifest with the GPUs that its claims ask for; InvalidField: that cannot be known."""
    account: Callable[[str], Awaitable[object]] = lambda _user: sleep(0)
    """Raises InvalidInput where jobs run as their users and this one has no account."""
    refuse_unusable: Callable[[ParsedManifest], Awaitable[None]] = lambda _parsed: sleep(0)
    """Raises InvalidField where the job's user may not execute what the manifest says it runs with."""
    quota_shortage: QuotaShortage = lambda _cells, _nodes, _spec: ""
    """Returns why no guarantee of a virtual cluster ever holds the minimum of a job, one sentence; empty: one does."""


def pool_warnings(
    cluster: LiveCluster, parsed: ParsedManifest, quota_shortage: QuotaShortage
) -> Iterator[FieldWarning]:
    """Yield whether the job has to wait for nodes, GPUs or quota."""
    spec = parsed.spec
    nodes, cells = cluster.nodes(spec.pool).values(), cluster.cells(spec.pool)
    if spec.share is not None and (lacking := lacking_memory(largest_gpu_mib(nodes), spec.share)):
        message = f"it waits until a larger GPU joins pool {spec.pool}: {parts_text(lacking)}"
        yield FieldWarning(field=share_memory_path(parsed.job) or parsed.job.size_path, message=message)
    elif spec.share is None and (message := _too_big(spec, nodes)):
        yield FieldWarning(field=parsed.job.size_path, message=message)
    elif cells is not None and (shortage := quota_shortage(cells, cluster.nodes(spec.pool), spec)):
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
