"""Tables that fit the terminal, and the lists of `voda get`: jobs, nodes and pools.

Rule: pure; figures are never cut; without a terminal nothing is cut or left out; text of others cannot command the
terminal.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from rich.cells import cell_len
from rich.text import Text

from voda.cli.render.arrays import array_row, grouped
from voda.cli.render.job_text import NONE, eta, gpu_hours, progress, queue, replicas, state_text, waited_s
from voda.cli.render.terminal import plain
from voda.events.event_text import per_node
from voda.events.text.requests import requested_text
from voda.text import counted, number, short, since
from voda.wire.jobs import ArrayView, JobView
from voda.wire.pools import NodeView, PoolView

_GAP = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    head: str
    cut: int = 0
    """When it gives way: 1 = first; 0 = never."""
    least: int = 12
    """Cells it keeps when it has given way."""
    right: bool = False
    drop: int = 0
    """When it is left out, if cutting does not do: 1 = first; 0 = never."""


def table(columns: Sequence[Column], rows: Sequence[Sequence[str | Text]], *, width: int | None) -> list[Text]:
    """Return the lines, heads first, at most `width` cells wide; None = no limit."""
    cells = [[cell if isinstance(cell, Text) else Text(cell) for cell in row] for row in rows]
    while _whole(widths := widths_of(columns, cells, width)) > (math.inf if width is None else width):
        least = min((column for column in columns if column.drop), key=lambda column: column.drop, default=None)
        if least is None:
            break
        gone = columns.index(least)
        columns = [column for column in columns if column is not least]
        cells = [[*row[:gone], *row[gone + 1 :]] for row in cells]
    heads = [Text(column.head, style="bold") for column in columns]
    return [_line(columns, row, widths) for row in (heads, *cells)]


def widths_of(columns: Sequence[Column], rows: Sequence[Sequence[Text]], width: int | None) -> list[int]:
    """Return how wide each column is."""
    widths = [
        max([cell_len(column.head), *(row[index].cell_len for row in rows)]) for index, column in enumerate(columns)
    ]
    if width is None:
        return widths
    excess = _whole(widths) - width
    for index in sorted((index for index, column in enumerate(columns) if column.cut), key=lambda i: columns[i].cut):
        given = min(max(0, excess), max(0, widths[index] - max(columns[index].least, cell_len(columns[index].head))))
        widths[index] -= given
        excess -= given
    return widths


def _whole(widths: Sequence[int]) -> int:
    return sum(widths) + _GAP * (len(widths) - 1)


def _line(columns: Sequence[Column], row: Sequence[Text], widths: Sequence[int]) -> Text:
    line = Text(no_wrap=True, overflow="ignore")
    for index, (column, cell, width) in enumerate(zip(columns, row, widths, strict=True)):
        shown = cell.copy()
        shown.truncate(width, overflow="ellipsis")
        missing = " " * (width - shown.cell_len)
        is_last = index == len(columns) - 1
        line.append(missing if column.right else "").append_text(shown)
        line.append("" if is_last or column.right else missing).append("" if is_last else " " * _GAP)
    return line


_JOB = (
    Column(head="NAME", cut=5, least=20),
    Column(head="STATE"),
    Column(head="REPLICAS"),
    Column(head="PROGRESS"),
    Column(head="QUEUE", drop=2),
    Column(head="ETA"),
    Column(head="AGE", drop=1),
)
_JOB_WIDE = (
    # What has no room beside it goes to a second line, before anything is left out.
    *(replace(column, drop=0) for column in _JOB),
    Column(head="PRIO"),
    Column(head="POOL", cut=3, least=7),
    Column(head="LAUNCHER"),
    Column(head="NODES", cut=1, least=10),
    Column(head="WAIT"),
    Column(head="GPU-H", right=True),
    Column(head="USER", cut=2, least=8),
    Column(head="REASON", cut=6, least=24),
)
_NODE = (
    Column(head="NAME", cut=3, least=12),
    Column(head="STATUS", cut=1, least=24),
    Column(head="GPUS", right=True),
    Column(head="USED", right=True, drop=1),
    Column(head="FREE", right=True),
    Column(head="HELD BY", cut=2, least=12),
)
_NODE_POOL = Column(head="POOL")
_NODE_GPUS = (Column(head="SHARED", right=True), Column(head="MILLI LEFT", right=True, drop=2))
_NODE_LABELS = Column(head="LABELS", cut=1, least=10)
_POOL = (
    Column(head="NAME", cut=2),
    Column(head="NODES", right=True, drop=2),
    Column(head="GPUS", right=True),
    Column(head="USED", right=True),
    Column(head="RUNNING", right=True),
    Column(head="WAITING", right=True),
    Column(head="PLAN", right=True, drop=1),
    Column(head="POLICY", cut=1),
)
_POOL_WIDE = (*_POOL, Column(head="PLACER"), Column(head="RATELIMIT"))


def jobs_table(
    jobs: Sequence[JobView],
    at: datetime,
    *,
    wide: bool = False,
    width: int | None = None,
    arrays: Mapping[str, ArrayView] | None = None,
) -> list[Text]:
    """Return a line for each job, heads first; two where the `wide` ones do not fit.

    Of the `arrays`, array id -> array, one line stands for all tasks, unless it is `wide`.
    """
    if not wide:
        groups = grouped(jobs, arrays or {})
        rows = [_job(tasks[0], at) if array is None else array_row(array, tasks, at) for array, tasks in groups]
        return table(_JOB, rows, width=width)
    rows, more = [_job(job, at) for job in jobs], [_job_wide(job, at) for job in jobs]
    lines = table(_JOB_WIDE, [[*row, *rest] for row, rest in zip(rows, more, strict=True)], width=width)
    if width is None or max(line.cell_len for line in lines) <= width:
        return lines
    return _in_two_lines(table(_JOB, rows, width=width), more, width)


def _in_two_lines(lines: list[Text], more: Sequence[Sequence[str | Text]], width: int) -> list[Text]:
    """Return the table with a second line under each job, for what has no room beside it."""
    found = lines[:1]
    for line, (priority, _pool, launcher, nodes, wait, held, user, reason) in zip(lines[1:], more, strict=True):
        where = "" if nodes == NONE else f"on {nodes}, "
        by = "" if launcher == NONE else f", launcher {launcher}"
        below = Text(
            f"    {reason}; {where}waited {wait}, {held} GPU-hours, priority {priority}, user {user}{by}", style="dim"
        )
        below.truncate(width, overflow="ellipsis")
        found += [line, below]
    return found


def nodes_table(nodes: Sequence[NodeView], *, wide: bool = False, width: int | None = None) -> list[Text]:
    """Return a line for each node, heads first; with its pool where there are several, and its GPUs where some have.

    Of its GPUs: how many pods share, of how many, and what these pods leave of those.
    """
    has_pools = wide or len({node.pool for node in nodes}) > 1
    has_shareable = any(node.devices for node in nodes)
    columns = list(_NODE)
    rows = [_node(node) for node in nodes]
    if has_shareable:
        columns[-1:-1] = _NODE_GPUS
        rows = [[*row[:-1], *_sharing_cells(node), row[-1]] for row, node in zip(rows, nodes, strict=True)]
    if has_pools:
        columns.insert(2, _NODE_POOL)
        rows = [[*row[:2], plain(node.pool), *row[2:]] for row, node in zip(rows, nodes, strict=True)]
    if wide:
        columns.append(_NODE_LABELS)
        rows = [[*row, _labels(node.labels)] for row, node in zip(rows, nodes, strict=True)]
    return table(columns, rows, width=width)


def shared_gpus(node: NodeView) -> int:
    """Return how many GPUs of a node pods share."""
    return sum(1 for gpu in node.devices if gpu.is_present and gpu.shares)


def foreign_gpus(node: NodeView) -> int:
    """Return the GPUs of a node that are in use by neither jobs nor pods with shares."""
    return max(0, node.foreign_gpus - (shared_gpus(node) if node.gpus else 0))


def pools_table(pools: Sequence[PoolView], *, wide: bool = False, width: int | None = None) -> list[Text]:
    """Return a line for each pool, heads first."""
    rows = [[*_pool(pool), *(_pool_wide(pool) if wide else ())] for pool in pools]
    return table(_POOL_WIDE if wide else _POOL, rows, width=width)


def _job(job: JobView, at: datetime) -> list[str | Text]:
    return [
        plain(job.job_id),
        state_text(job, at),
        replicas(job),
        progress(job),
        queue(job),
        eta(job, at),
        since(job.submitted_at, at),
    ]


def _job_wide(job: JobView, at: datetime) -> list[str | Text]:
    return [
        str(job.priority),
        plain(job.pool),
        job.launcher or NONE,
        plain(per_node(worker.node for worker in job.workers)),
        short(waited_s(job, at)),
        number(gpu_hours(job, at)),
        plain(job.user) or NONE,
        plain(job.message) or NONE,
    ]


def _node(node: NodeView) -> list[str | Text]:
    status = Text("Ready", style="green") if node.is_ready else Text("NotReady", style="bold red")
    if not node.is_schedulable:
        status.append(",cordoned")
    if node.taints:
        status.append(",tainted")
    if node.is_draining:
        by = node.drain_reason
        status.append(plain(f",{requested_text('draining', by.by, by.text) if by is not None else 'draining'}"))
    held = [f"{job_id} x{gpus}" if gpus > 1 else job_id for job_id, gpus in sorted(node.jobs.items())]
    held += _sharing(node)
    held += [f"(others x{others})"] if (others := foreign_gpus(node)) else []
    held += [f"({why})"] if (why := silence(node)) else []
    return [
        plain(node.name),
        status,
        str(node.gpus),
        str(node.used_gpus),
        str(node.free_gpus),
        plain(", ".join(held)) or NONE,
    ]


def silence(node: NodeView) -> str:
    """Return since when a node is silent, or says fewer GPUs than its workers hold, and until when they stay."""
    if node.silent_since is None:
        return ""
    held = f"{counted(node.used_gpus, 'GPU')} held, " if node.used_gpus else ""
    says = f"{held}says {node.gpus}" if node.is_ready else "silent"
    stay = f"until {_time(node.workers_stay_until)}" if node.workers_stay_until else "while most nodes are so"
    return f"{says} since {_time(node.silent_since)}{f'; workers stay {stay}' if node.used_gpus else ''}"


def _time(instant: datetime) -> str:
    return f"{instant.astimezone():%H:%M:%S}"


def _sharing_cells(node: NodeView) -> list[str | Text]:
    if not node.devices:
        return [NONE, NONE]
    left = sum(gpu.free_milli for gpu in node.devices if gpu.shares)
    return [f"{shared_gpus(node)}/{sum(gpu.is_present for gpu in node.devices)}", f"{left:,}"]


def _sharing(node: NodeView) -> list[str]:
    """Return who has shares of the node's GPUs, with how many milli: `ml/notebook 250m`."""
    milli: dict[str, int] = {}
    for gpu in node.devices:
        for share in gpu.shares:
            milli[share.pod] = milli.get(share.pod, 0) + share.milli
    return [f"{pod} {each}m" for pod, each in sorted(milli.items())]


def _labels(labels: Mapping[str, str]) -> str:
    return plain(",".join(f"{name}={value}" for name, value in sorted(labels.items()))) or NONE


def _pool(pool: PoolView) -> list[str | Text]:
    used, gpus = pool.used_gpus + pool.shared_gpus, pool.gpus + pool.shared_gpus
    figures = (pool.nodes, gpus, used, pool.running, pool.waiting, pool.plan)
    return [plain(pool.name), *map(str, figures), pool.settings.policy]


def _pool_wide(pool: PoolView) -> list[str | Text]:
    limit_s = pool.settings.ratelimit_s
    return [pool.settings.placer, f"{limit_s:g}s" if limit_s else "none"]
