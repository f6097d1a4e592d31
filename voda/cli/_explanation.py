"""Why a job has what it has, in lines for a terminal of 80 columns."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from voda.simulator.report.units import counted, span
from voda.timetravel.moment import rfc3339
from voda.timetravel.story import per_node

if TYPE_CHECKING:
    from voda.projections.history import FinishedJob
    from voda.timetravel.explanation import Decision, Explanation, Shortage


def explanation_text(told: "Explanation") -> RenderableType:
    """Return the explanation in words, and the last decisions on the job as a table."""
    lines = _story(told.ended) if told.ended else _present(told)
    parts: list[RenderableType] = [Text(_head(told), style="bold")]
    parts += [Padding(Text(line), (0, 0, 0, 2)) for line in lines]
    if told.decisions:
        parts += [Text("\nLast decisions on it"), _decisions(told.decisions)]
    return Group(*parts)


def _head(told: "Explanation") -> str:
    phase = "Waiting (preempted)" if told.is_preempted else str(told.phase)
    return f"{told.job_id}: {phase} since {rfc3339(told.since, decimals=0)} ({span(max(0.0, told.at - told.since))})"


def _present(told: "Explanation") -> Iterator[str]:
    spec = told.spec
    gpus = "" if spec.gpus_per_replica == 1 else f" of {counted(spec.gpus_per_replica, 'GPU')} each"
    yield (f"at position {told.position}, {rfc3339(told.at, decimals=0)}; policy {told.policy}, placer {told.placer}")
    yield (
        f"has {counted(len(told.nodes), 'replica')}{gpus}: {per_node(told.nodes)};"
        f" asked for {spec.min_replicas} to {spec.max_replicas}, wishes {spec.requested}"
    )
    if told.planned != told.nodes:
        yield f"the plan in force gives it {counted(len(told.planned), 'replica')}: {per_node(told.planned)}"
    yield f"why: {told.reason or 'no plan has considered it yet'}"
    if told.next != told.planned:
        yield f"a plan decided now would give it {counted(len(told.next), 'replica')}: {per_node(told.next)}"
    if told.queue_position:
        queue = f", queue {told.queue_level}" if told.queue_level else ""
        yield f"it is number {told.queue_position} of {told.queue_length} that wait{queue}"
    if told.shortage:
        yield _shortage(told.shortage)
    if told.expected_start_at is not None:
        wait = span(max(0.0, told.expected_start_at - told.at))
        yield f"expected to start at {rfc3339(told.expected_start_at, decimals=0)} (in {wait}), if nothing more comes"
    for suggestion in told.suggestions:
        yield f"-> {suggestion}"


def _shortage(short: "Shortage") -> str:
    wishes = f" (wishes {short.wishes_gpus})" if short.wishes_gpus > short.needs_gpus else ""
    return (
        f"needs {counted(short.needs_gpus, 'GPU')}{wishes}; of {short.capacity_gpus}, {short.free_gpus} are left"
        f" (at most {short.largest_free_gpus} on one node), the others go to {counted(short.jobs_served, 'job')}"
    )


def _story(ended: "FinishedJob") -> Iterator[str]:
    yield f"submitted {rfc3339(ended.submitted_at, decimals=0)}, {ended.outcome} after {span(ended.jct_s)}"
    if ended.first_started_at is None:
        yield "it never had a worker"
        return
    waited_s = ended.first_started_at - ended.submitted_at
    yield f"waited {span(waited_s)} for its first start, {span(ended.queueing_s)} in all; ran {span(ended.running_s)}"
    yield (
        f"used {ended.gpu_s / 3600:.2f} GPU-hours; {counted(ended.starts, 'start')},"
        f" {counted(ended.resizes, 'resize')}, {counted(ended.migrations, 'migration')}"
        f" ({counted(ended.workers_moved, 'worker')} moved)"
    )
    if ended.was_spanning:
        yield "its workers sat on several nodes for part of the time"


def _decisions(decisions: "tuple[Decision, ...]") -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for index, head in enumerate(("time", "pos.", "size", "reason", "after")):
        table.add_column(head, justify="right" if index in (1, 2) else "left", no_wrap=index < 3, overflow="fold")
    for decision in decisions:
        cause = decision.cause if decision.cause_position is None else f"{decision.cause} ({decision.cause_position})"
        table.add_row(
            rfc3339(decision.at, decimals=0)[5:-1].replace("T", " "),
            str(decision.position),
            f"{len(decision.before)} -> {len(decision.after)}",
            Text(decision.reason),
            Text(cause),
        )
    return table
