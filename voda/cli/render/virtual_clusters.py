"""Virtual clusters for people: a table, one in full, and what another specification changes.

Rule: pure; text of others cannot command the terminal.
"""

from collections.abc import Sequence

from voda.cli.render.job_text import NONE
from voda.cli.render.tables import Column, table
from voda.cli.render.terminal import plain
from voda.text import counted
from voda.wire.virtual_clusters import ApplyView, GuaranteeView, QuotaChangeView, VirtualClusterView

_CLUSTER = (
    Column(head="NAME"),
    Column(head="POOL"),
    Column(head="CELLS"),
    Column(head="GPUS", right=True),
    Column(head="USED", right=True),
    Column(head="IDLE", right=True),
    Column(head="BORROWED", right=True),
    Column(head="JOBS", right=True),
    Column(head="MEMBERS"),
)
_GUARANTEE = (
    Column(head="CELLS"),
    Column(head="NUMBER", right=True),
    Column(head="IN USE", right=True),
    Column(head="DOOMED", right=True),
    Column(head="GPUS", right=True),
    Column(head="USED", right=True),
)


def virtual_clusters_table(clusters: Sequence[VirtualClusterView]) -> str:
    """Return a line for each virtual cluster, heads first."""
    if not clusters:
        return "no pool has virtual clusters: voda vc apply FILE gives it some"
    return _lines(_CLUSTER, [_row(each) for each in clusters])


def virtual_cluster_text(cluster: VirtualClusterView) -> str:
    """Return all about one virtual cluster."""
    rows = [
        (_kind(each), *map(str, (each.cells, each.cells_in_use, each.doomed_cells, each.gpus, each.gpus_in_use)))
        for each in cluster.quotas
    ]
    facts = (
        ("Virtual cluster", cluster.name),
        ("Pool", cluster.pool),
        ("Members", _members(cluster)),
        ("Policy", cluster.policy),
        ("Jobs", str(cluster.jobs)),
        ("Borrowed", counted(cluster.borrowed_gpus, "GPU")),
        ("Revision", str(cluster.revision)),
    )
    head = "\n".join(f"{name + ':':<17}{plain(value)}" for name, value in facts)
    return f"{head}\n\n{_lines(_GUARANTEE, rows)}" if rows else f"{head}\n\nIt is guaranteed no cells."


def apply_text(view: ApplyView, *, is_dry_run: bool) -> str:
    """Return which guarantees and jobs a specification changes."""
    lines = [f"  {_change(each)}" for each in view.quotas]
    lines += [
        f"  job {plain(each.job_id)}: {each.before} -> {each.after} workers guaranteed, others only on idle GPUs"
        for each in view.downgraded
    ]
    if is_dry_run:
        head = f"pool {view.pool}, dry run: "
        head += "these would change" if lines else "no guarantee would change"
    elif view.is_applied:
        head = f"pool {view.pool}: applied as revision {view.revision}"
    else:
        head = f"pool {view.pool}: it is so already"
    return "\n".join([head, *lines])


def _row(cluster: VirtualClusterView) -> tuple[str, ...]:
    gpus, used = (sum(each) for each in zip((0, 0), *((q.gpus, q.gpus_in_use) for q in cluster.quotas), strict=True))
    cells = ", ".join(f"{quota.cells} {_kind(quota)}" for quota in cluster.quotas) or NONE
    figures = (gpus, used, gpus - used, cluster.borrowed_gpus, cluster.jobs)
    return (plain(cluster.name), plain(cluster.pool), cells, *map(str, figures), _members(cluster))


def _kind(quota: GuaranteeView | QuotaChangeView) -> str:
    """Return the cells of a quota: `node`, `rack.node`, or `pinned dgx`."""
    path = quota.cell_type if quota.chain == quota.cell_type else f"{quota.chain}.{quota.cell_type}"
    return plain(f"{path} pinned as {quota.pin}" if quota.pin else path)


def _change(change: QuotaChangeView) -> str:
    return f"{plain(change.virtual_cluster)}: {change.before} -> {change.after} {_kind(change)}"


def _members(cluster: VirtualClusterView) -> str:
    return "everybody" if "*" in cluster.members else plain(", ".join(cluster.members)) or "nobody"


def _lines(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(line.plain.rstrip() for line in table(columns, rows, width=None))
