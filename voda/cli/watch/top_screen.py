"""The screen of `voda top`: GPUs and their jobs, running and waiting jobs, recent decisions.

Rules: pure; on any terminal every part keeps a few lines and counts the lines it leaves out; the size before a change
of plan is shown only if an earlier plan in the window set it.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from rich.text import Text

from voda.cli.http.remote_log import known_event
from voda.cli.render.job_text import NONE, eta, progress, queue, replicas, state_text
from voda.cli.render.tables import Column, foreign_gpus, shared_gpus, table
from voda.cli.render.terminal import plain
from voda.events.text.reasons import job_text
from voda.events.types import PlanAdopted
from voda.text import clock, counted
from voda.wire.events import EventView
from voda.wire.jobs import JobView
from voda.wire.pools import NodeView, PoolView

PLANS = PlanAdopted.TYPE
_CAPACITY = 100
_SIGNS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_COLOURS = ("green", "cyan", "magenta", "yellow", "blue", "red", "bright_green", "bright_cyan", "bright_magenta")
_FREE, _FOREIGN, _OTHER = ".", "#", "*"
_LEAST = 3
"""Lines that every part keeps, its head included; fewer on a very low terminal."""
_WORKING = (
    Column(head=" "),
    Column(head="JOB", cut=1, least=12),
    Column(head="STATE"),
    Column(head="REPLICAS", drop=1),
    Column(head="PROGRESS"),
    Column(head="ETA"),
)
_WAITING = (
    Column(head="QUEUE", right=True),
    Column(head="JOB", cut=1, least=20),
    Column(head="STATE"),
    Column(head="ASKS", drop=1),
    Column(head="ETA"),
    Column(head="REASON", cut=2, least=10),
)
_DECIDED = (
    Column(head="DECIDED"),
    Column(head="JOB", cut=1, least=20),
    Column(head="REPLICAS"),
    Column(head="REASON", cut=2, least=10),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanChange:
    """What a plan changes for one job."""

    at: datetime
    job_id: str
    size: str
    """Replicas: 1 -> 3, -> 3 where the number before is unknown, 3 moved, 3 kept, waits."""
    reason: str


class PlanChanges:
    """The last changes, newest first; with all plans of the log (`is_complete`), an unknown size is 0."""

    def __init__(self, *, is_complete: bool = False) -> None:
        self._unknown = 0 if is_complete else None
        self._last: deque[PlanChange] = deque(maxlen=_CAPACITY)
        self._sizes: dict[str, int] = {}

    def __iter__(self) -> Iterator[PlanChange]:
        return reversed(self._last)

    def add(self, event: EventView) -> None:
        """Add an event; only plans count."""
        known = known_event(event) if event.type == PLANS else None
        if known is None or not isinstance(plan := known.data, PlanAdopted):
            return
        for job_id in sorted({*plan.placed, *plan.released, *plan.reasons}):
            self._last.append(
                PlanChange(
                    at=event.recorded_at,
                    job_id=job_id,
                    size=self._size(job_id, plan),
                    reason=job_text(plan.reasons.get(job_id)) or "the job had ended",
                )
            )

    def _size(self, job_id: str, plan: PlanAdopted) -> str:
        before = self._sizes.get(job_id, self._unknown)
        if job_id in plan.guaranteed and job_id not in plan.placed and job_id not in plan.released:
            # Its guarantee alone changes.
            return "kept" if before is None else f"{before} kept"
        after = len(plan.placed.get(job_id, ()))
        self._sizes[job_id] = after
        if job_id not in plan.placed and job_id not in plan.released:
            return "waits"
        if before is None:
            return f"-> {after}"
        return f"{after} moved" if before == after else f"{before} -> {after}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScreenState:
    server: str
    at: datetime
    pools: Sequence[PoolView]
    nodes: Sequence[NodeView]
    jobs: Sequence[JobView]
    """Live ones."""
    total: int
    """Number of live jobs."""
    changes: Sequence[PlanChange]
    """Newest first."""
    note: str = ""
    """Why this may be out of date."""


def frame(scene: ScreenState, *, width: int | None, height: int | None) -> list[Text]:
    """Return the lines of the screen, at most `width` cells wide and `height` lines high; None = no limit."""
    working = sorted((job for job in scene.jobs if job.workers), key=lambda job: (job.submitted_at, job.job_id))
    waiting = sorted((job for job in scene.jobs if not job.workers), key=_place)
    signs = dict(zip((job.job_id for job in working), _SIGNS, strict=False))
    heads = _heads(scene, width)
    parts = [
        _bars(scene.nodes, signs, width),
        table(_WORKING, [_working(job, signs, scene.at) for job in working], width=width),
        table(_WAITING, [_waiting(job, scene.at) for job in waiting], width=width),
        table(_DECIDED, [_decided(change, scene.at) for change in scene.changes], width=width),
    ]
    parts = [part for part in parts if len(part) > 1]
    if height is not None:
        # An empty line separates the parts.
        rooms = _shares([len(part) for part in parts], height - len(heads) - len(parts))
        parts = [_cut(part, room) for part, room in zip(parts, rooms, strict=True)]
    lines = [*heads]
    for part in parts:
        lines += [Text(), *part]
    return lines if height is None else lines[:height]


def _heads(scene: ScreenState, width: int | None) -> list[Text]:
    title = Text.assemble(("voda top", "bold"), f"  {plain(scene.server)}  {clock(scene.at, scene.at)}")
    if width is not None:
        title.append(f"{'q quits':>{max(9, width - title.cell_len)}}")
    lines = [title, *(_pool(pool) for pool in scene.pools)]
    if scene.note:
        lines.append(Text(plain(scene.note), style="bold red"))
    if scene.total > len(scene.jobs):
        lines.append(Text(f"{scene.total - len(scene.jobs):,} more live jobs are not shown"))
    for line in lines:
        line.no_wrap = True
        if width is not None:
            line.truncate(width, overflow="ellipsis")
    return lines


def _pool(pool: PoolView) -> Text:
    used, gpus = pool.used_gpus + pool.shared_gpus, pool.gpus + pool.shared_gpus
    shared = f" ({pool.shared_gpus} shared)" if pool.shared_gpus else ""
    return Text(
        f"pool {plain(pool.name)}: {used} of {counted(gpus, 'GPU')} used{shared}, {pool.running} running,"
        f" {pool.waiting} waiting; {pool.settings.policy}, plan {pool.plan}"
    )


def _bars(nodes: Sequence[NodeView], signs: Mapping[str, str], width: int | None) -> list[Text]:
    """Return one sign per GPU of each node."""
    room = max(8, (width or 100) // 2)
    columns = (
        Column(head="NODE", cut=2, least=12),
        Column(head="GPUS"),
        Column(head="USED"),
        Column(head="HELD BY", cut=1, least=10),
    )
    return table(columns, [_bar(node, signs, room) for node in nodes], width=width)


def _bar(node: NodeView, signs: Mapping[str, str], room: int) -> list[str | Text]:
    bar, held = Text(), []
    for job_id, gpus in sorted(node.jobs.items(), key=lambda held: (signs.get(held[0], _OTHER), held[0])):
        sign = signs.get(job_id, _OTHER)
        bar.append(sign * gpus, style=_colour(sign))
        held.append(f"{sign} {plain(job_id)}")
    bar.append(_FOREIGN * node.foreign_gpus, style="dim").append(_FREE * max(0, node.free_gpus), style="dim")
    uses = ["shared GPUs"] if node.gpus and shared_gpus(node) else []
    uses += ["others"] if foreign_gpus(node) else []
    held += [f"{_FOREIGN} {' and '.join(uses)}"] if uses else []
    if not node.is_ready or not node.is_schedulable or node.is_draining:
        held.insert(0, "NOT READY" if not node.is_ready else "draining" if node.is_draining else "cordoned")
    bar.truncate(room, overflow="ellipsis")
    return [plain(node.name), bar, f"{node.used_gpus + node.foreign_gpus}/{node.gpus}", ", ".join(held) or NONE]


def _working(job: JobView, signs: Mapping[str, str], at: datetime) -> list[str | Text]:
    sign = signs.get(job.job_id, _OTHER)
    mark = Text(sign, style=_colour(sign))
    return [mark, plain(job.job_id), state_text(job, at), replicas(job), progress(job), eta(job, at)]


def _waiting(job: JobView, at: datetime) -> list[str | Text]:
    asks = f"{job.min_replicas}-{job.max_replicas}" if job.max_replicas > job.min_replicas else str(job.min_replicas)
    if job.planned_replicas:
        asks = f"{asks} (gets {job.planned_replicas})"
    return [queue(job), plain(job.job_id), state_text(job, at), asks, eta(job, at), plain(job.message) or NONE]


def _decided(change: PlanChange, at: datetime) -> list[str | Text]:
    return [clock(change.at, at), plain(change.job_id), change.size, plain(change.reason)]


def _place(job: JobView) -> tuple[float, datetime, str]:
    return job.forecast.position or float("inf"), job.submitted_at, job.job_id


def _colour(sign: str) -> str:
    return _COLOURS[_SIGNS.index(sign) % len(_COLOURS)] if sign in _SIGNS else ""


def _shares(wanted: Sequence[int], room: int) -> list[int]:
    """Return the lines of each part: the minimum first, then in turn while there is room."""
    least = max(2, min(_LEAST, room // max(1, len(wanted))))
    shares = [min(lines, least) for lines in wanted]
    rest = room - sum(shares)
    while rest > 0 and shares != list(wanted):
        for index, lines in enumerate(wanted):
            if rest > 0 and shares[index] < lines:
                shares[index] += 1
                rest -= 1
    return shares


def _cut(part: list[Text], room: int) -> list[Text]:
    if len(part) <= room:
        return part
    return [*part[: room - 1], Text(f"... {len(part) - room + 1} more", style="dim")]
