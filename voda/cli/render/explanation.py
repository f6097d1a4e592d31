"""Why a job has what it has, in lines for a terminal of 80 columns."""

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from voda.api.schemas.explanations import DecisionView, EndedJobView, ExplanationView, ShortageView
from voda.cli.render.stdout import plain
from voda.events.event_text import per_node
from voda.simulator.report.units import counted, span
from voda.timetravel.moment import rfc3339

Told = Callable[[datetime], str]
"""Tells an instant."""


def in_utc(instant: datetime) -> str:
    """Return an instant as a log tells it: 2026-01-31T12:00:00Z."""
    return rfc3339(instant.timestamp(), decimals=0)


def explanation_text(told: ExplanationView, when: Told = in_utc) -> RenderableType:
    """Return the explanation in words, and the last decisions on the job as a table."""
    lines = _story(told.ended, told.reason, when) if told.ended else _present(told, when)
    parts: list[RenderableType] = [Text(_head(told, when), style="bold")]
    parts += [Padding(Text(plain(line)), (0, 0, 0, 2)) for line in lines]
    if told.decisions:
        parts += [Text("\nLast decisions on it"), decisions_table(told.decisions, when)]
    return Group(*parts)


def outlook(told: ExplanationView, when: Told = in_utc) -> Iterator[str]:
    """Yield what keeps the job waiting and what would help, a sentence each."""
    if told.queue_position:
        queue = f", queue {told.queue_level}" if told.queue_level else ""
        yield f"it is number {told.queue_position} of {told.queue_length} that wait{queue}"
    if told.shortage:
        yield _shortage(told.shortage)
    if told.expected_start_at is not None:
        wait = span(max(0.0, (told.expected_start_at - told.at).total_seconds()))
        yield f"expected to start at {when(told.expected_start_at)} (in {wait}), if nothing more comes"
    for suggestion in told.suggestions:
        yield f"-> {suggestion}"


def decisions_table(decisions: Sequence[DecisionView], when: Told = in_utc) -> Table:
    """Return the plans that were about a job, one a row."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for index, head in enumerate(("time", "pos.", "size", "reason", "after")):
        table.add_column(head, justify="right" if index in (1, 2) else "left", no_wrap=index < 3, overflow="fold")
    for decision in decisions:
        cause = decision.cause if decision.cause_position is None else f"{decision.cause} ({decision.cause_position})"
        table.add_row(
            when(decision.decided_at)[5:].rstrip("Z").replace("T", " "),
            str(decision.position),
            f"{len(decision.before)} -> {len(decision.after)}",
            Text(plain(decision.reason)),
            Text(plain(cause)),
        )
    return table


def _head(told: ExplanationView, when: Told) -> str:
    phase = "Waiting (preempted)" if told.is_preempted else str(told.phase)
    since_s = max(0.0, (told.at - told.since).total_seconds())
    return f"{told.job_id}: {phase} since {when(told.since)} ({span(since_s)})"


def _present(told: ExplanationView, when: Told) -> Iterator[str]:
    gpus = "" if told.gpus_per_replica == 1 else f" of {counted(told.gpus_per_replica, 'GPU')} each"
    yield f"at position {told.position}, {when(told.at)}; policy {told.policy}, placer {told.placer}"
    yield (
        f"has {counted(len(told.nodes), 'replica')}{gpus}: {per_node(told.nodes)};"
        f" asked for {told.min_replicas} to {told.max_replicas}, wishes {told.requested_replicas}"
    )
    if told.planned != told.nodes:
        yield f"the plan in force gives it {counted(len(told.planned), 'replica')}: {per_node(told.planned)}"
    yield f"why: {told.reason or 'no plan has considered it yet'}"
    if told.next != told.planned:
        yield f"a plan decided now would give it {counted(len(told.next), 'replica')}: {per_node(told.next)}"
    yield from outlook(told, when)


def _shortage(short: ShortageView) -> str:
    wishes = f" (wishes {short.wishes_gpus})" if short.wishes_gpus > short.needs_gpus else ""
    return (
        f"needs {counted(short.needs_gpus, 'GPU')}{wishes}; of {short.capacity_gpus}, {short.free_gpus} are left"
        f" (at most {short.largest_free_gpus} on one node), the others go to {counted(short.jobs_served, 'job')}"
    )


def _story(ended: EndedJobView, why: str, when: Told) -> Iterator[str]:
    yield f"submitted {when(ended.submitted_at)}, {ended.outcome} after {span(ended.jct_s)}"
    if why:
        yield f"why: {why}"
    if ended.started_at is None:
        yield "it never had a worker"
        return
    waited_s = (ended.started_at - ended.submitted_at).total_seconds()
    yield f"waited {span(waited_s)} for its first start, {span(ended.queueing_s)} in all; ran {span(ended.running_s)}"
    yield (
        f"used {ended.gpu_s / 3600:.2f} GPU-hours; {counted(ended.starts, 'start')},"
        f" {counted(ended.resizes, 'resize')}, {counted(ended.migrations, 'migration')}"
        f" ({counted(ended.workers_moved, 'worker')} moved)"
    )
    if ended.was_spanning:
        yield "its workers sat on several nodes for part of the time"
