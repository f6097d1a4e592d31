"""Virtual clusters and cells as the API shows them: what is guaranteed, what is in use, what is lent and borrowed."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from voda.application.virtual_clusters.apply import ApplyOutcome
from voda.cells.accounting import QuotaKey, QuotaUse, borrowed_leafs, quota_use
from voda.cells.book import CellBook
from voda.cells.structure.cell_types import LEAF
from voda.cells.structure.trees import NONE
from voda.domain.cells import DEFAULT_VIRTUAL_CLUSTER, CellsSpec, VirtualClusterSpec
from voda.domain.state import ClusterState
from voda.manifests.virtual_clusters import VirtualClustersFile
from voda.planner.virtual_clusters import book_of
from voda.wire.base import view_of
from voda.wire.virtual_clusters import (
    ApplyView,
    CellView,
    GuaranteeView,
    LostGuaranteeView,
    QuotaChangeView,
    VirtualClusterView,
)


def virtual_clusters_of(state: ClusterState) -> tuple[VirtualClusterView, ...]:
    """Return the virtual clusters of a pool, `default` among them; none of a pool without any."""
    if state.cells is None:
        return ()
    book = book_of(state)
    uses, borrowed = quota_use(book), borrowed_leafs(book)
    jobs = Counter(job.spec.virtual_cluster or DEFAULT_VIRTUAL_CLUSTER for job in state.jobs.values())
    return tuple(
        VirtualClusterView(
            name=name,
            pool=state.pool,
            members=_spec(state.cells, name).members,
            policy=_spec(state.cells, name).policy or state.settings.policy,
            quotas=tuple(_quota(key, use) for key, use in uses.items() if key.virtual_cluster == name),
            borrowed_gpus=sum(leafs for (cluster, _), leafs in borrowed.items() if cluster == name),
            jobs=jobs[name],
            revision=state.cells_revision,
        )
        for name in book.quotas.clusters
    )


def cells_of(state: ClusterState, *, with_devices: bool) -> tuple[CellView, ...]:
    """Return the physical cells of a pool; none of one without virtual clusters."""
    if state.cells is None:
        return ()
    book = book_of(state)
    pins = {cell: pin for pin, cell in book.topology.pins.items()}
    least = LEAF if with_devices else LEAF + 1
    cells = (cell for cell, level in enumerate(book.topology.trees.level) if level >= least)
    return tuple(_cell(book, cell, state.pool, pins) for cell in cells)


def applied(pool: str, outcome: ApplyOutcome, file: VirtualClustersFile) -> ApplyView:
    """Return what a specification changes, or would change."""
    return ApplyView(
        pool=pool,
        revision=outcome.revision,
        is_applied=outcome.is_applied,
        quotas=tuple(
            view_of(QuotaChangeView, key, before=before, after=after) for key, (before, after) in outcome.quotas.items()
        ),
        downgraded=tuple(view_of(LostGuaranteeView, each) for each in outcome.downgraded),
        warnings=tuple(_warnings(outcome, file)),
    )


def _spec(cells: CellsSpec, name: str) -> VirtualClusterSpec:
    return cells.virtual_clusters.get(name, VirtualClusterSpec())


def _quota(key: QuotaKey, use: QuotaUse) -> GuaranteeView:
    return view_of(
        GuaranteeView,
        key,
        use,
        cells_in_use=use.in_use,
        doomed_cells=use.doomed,
        gpus=use.leafs,
        gpus_in_use=use.used_leafs,
    )


def _cell(book: CellBook, cell: int, pool: str, pins: Mapping[int, str]) -> CellView:
    topology, trees = book.topology, book.topology.trees
    virtual, chain = book.virtual[cell], topology.trees.chain[cell]
    return CellView(
        pool=pool,
        address=topology.addresses[cell],
        chain=chain.name,
        cell_type=chain.type_at(trees.level[cell]).name,
        level=trees.level[cell],
        nodes=topology.nodes[cell],
        pin=pins.get(cell, ""),
        virtual_cluster="" if virtual == NONE else book.quotas.owner[virtual],
        is_bad=book.bad[cell],
        gpus=len(trees.leafs[cell]),
        guaranteed_gpus=book.guaranteed[cell],
        opportunistic_gpus=book.opportunistic[cell],
    )


def _warnings(outcome: ApplyOutcome, file: VirtualClustersFile) -> Iterator[str]:
    for key in file.left_out:
        yield f"{key} is for HiveD's own processes: voda does not use it"
    if nodes := outcome.absent_nodes:
        yield f"declared, but not in the pool: {_named(nodes)}; their cells are bad until they join"
    sizes = outcome.other_sizes
    if few := [f"{name} ({there} of {declared})" for name, (declared, there) in sizes.items() if there < declared]:
        yield f"declared with more GPUs than are there: {_named(few)}; what is guaranteed of the others, no job gets"
    if many := [
        f"{name} ({there}, declared {declared})" for name, (declared, there) in sizes.items() if there > declared
    ]:
        yield f"declared with fewer GPUs than are there: {_named(many)}; no job gets the others"


def _named(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
