"""Explains a job in lines for a terminal of 80 columns: why it has its GPUs, or why it waits."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from voda.cli.render.job_text import NOT_CONSIDERED, gpus_text, held_up, interruption, next_try, state
from voda.cli.render.terminal import plain
from voda.domain.state import Source
from voda.events.event_text import per_node
from voda.text import counted, number_are, span
from voda.timetravel.moment import rfc3339
from voda.wire.explanations import (
    BeliefView,
    DecisionView,
    EndedJobView,
    EstimateView,
    ExplanationView,
    ShortageView,
)

FormatInstant = Callable[[datetime], str]
"""Formats an instant."""


def in_utc(instant: datetime) -> str:
    """Return an instant in UTC: 2026-01-31T12:00:00Z."""
    return rfc3339(instant.timestamp(), decimals=0)


def explanation_text(explanation: ExplanationView, when: FormatInstant = in_utc) -> RenderableType:
    """Return the explanation in sentences, and the recent decisions as a table."""
    lines = (
        _end_lines(explanation.ended, explanation.message, when) if explanation.ended else _present(explanation, when)
    )
    parts: list[RenderableType] = [Text(_head(explanation, when), style="bold")]
    parts += [Padding(Text(plain(line)), (0, 0, 0, 2)) for line in lines]
    if explanation.decisions:
        parts += [Text("\nRecent decisions"), decisions_table(explanation.decisions, when)]
    return Group(*parts)


def outlook(explanation: ExplanationView, when: FormatInstant = in_utc) -> Iterator[str]:
    """Yield what the job waits for and what would help, one sentence each."""
    if explanation.queue_position:
        queue = f", queue {explanation.queue_level}" if explanation.queue_level else ""
        waiting = counted(explanation.queue_length, "waiting job")
        yield f"it is number {explanation.queue_position} of {waiting} by priority and submission{queue}"
    if explanation.shortage:
        yield shortage_text(explanation.shortage)
    if explanation.expected_start_at is not None:
        wait = span(max(0.0, (explanation.expected_start_at - explanation.at).total_seconds()))
        yield f"expected to start at {when(explanation.expected_start_at)} (in {wait}), if no more jobs are submitted"
    for suggestion in explanation.suggestions:
        yield f"-> {suggestion}"


def decisions_table(decisions: Sequence[DecisionView], when: FormatInstant = in_utc) -> Table:
    """Return the plans that concerned a job, one per row."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for index, head in enumerate(("time", "pos.", "size", "reason", "after")):
        table.add_column(head, justify="right" if index in (1, 2) else "left", no_wrap=index < 3, overflow="fold")
    for decision in decisions:
        cause = decision.cause if decision.cause_position is None else f"{decision.cause} ({decision.cause_position})"
        table.add_row(
            when(decision.decided_at)[5:].rstrip("Z").replace("T", " "),
            str(decision.position),
            f"{len(decision.before)} -> {len(decision.after)}",
            Text(plain(decision.message)),
            Text(plain(cause)),
        )
    return table


def _head(job: ExplanationView, when: FormatInstant) -> str:
    since_s = max(0.0, (job.at - job.since).total_seconds())
    return f"{job.job_id}: {state(job, job.at)} since {when(job.since)} ({span(since_s)})"


def _present(job: ExplanationView, when: FormatInstant) -> Iterator[str]:
    gpus = gpus_text(job) + (" each" if job.gpus_per_replica > 1 else "")
    decided_by = f"policy {job.policy}, placer {job.placer}"
    yield f"at position {job.position}, {when(job.at)}; {decided_by}"
    yield (
        f"has {_replicas(job.nodes, gpus)};"
        f" minimum {job.min_replicas}, maximum {job.max_replicas}{f', sizes {job.sizes}' if job.sizes else ''},"
        f" requested {job.requested_replicas}"
    )
    if job.gpu:
        yield f"GPU: {job.gpu}"
    if job.planned != job.nodes:
        yield f"the plan in force gives it {_replicas(job.planned)}"
    if job.program_failures:
        tries = next_try(job, job.at, when)
        yield f"failed {counted(job.program_failures, 'time')}, the last: {job.last_failure}{tries and f'; {tries}'}"
    if job.obstacle:
        yield f"held up: {held_up(job, when)}"
    if said := interruption(job):
        yield said
    yield f"why: {job.message or NOT_CONSIDERED}"
    if len(job.nodes) == job.max_replicas:
        more = f"{job.min_replicas}-{2 * job.max_replicas}"
        yield f"no larger: {job.max_replicas} is its maximum (voda scale {job.job_id} {more} raises it)"
    if job.next != job.planned:
        nodes = f" on {per_node(job.next)}" if job.next else ""
        why = f" ({job.next_message})" if job.next_message else ""
        yield f"a plan decided now would give it {counted(len(job.next), 'replica')}{nodes}{why}"
    elif not job.next and job.next_message and job.next_message != job.message:
        yield f"by now: {job.next_message}"
    yield from outlook(job, when)
    if job.estimate is not None:
        yield f"believed: {estimate_text(job.estimate)}"


def _replicas(nodes: Sequence[str], gpus: str = "") -> str:
    return f"{counted(len(nodes), 'replica')}{gpus}{f': {per_node(nodes)}' if nodes else ''}"


_KNOWN_BY: Mapping[Source, str] = {
    "measured": "by its own reports",
    "category": "by its category",
    "declared": "as set",
    "assumed": "assumed",
}


def estimate_text(estimate: EstimateView) -> str:
    """Return what policies believe of a live job, how it is known, and how far off it may be."""
    left, speedup, cost = estimate.remaining_s, estimate.speedup, estimate.resize_cost_s
    said = [
        "work left unknown" if left.value is None else f"{span(left.value)} of work on one replica {_known(left)}",
        f"x{speedup.value:.3g} on those requested {_known(speedup)}",
        f"{cost.value:.3g} s a restart {_known(cost)}",
    ]
    if estimate.epochs_known_by != "declared":
        said.insert(0, f"epochs not declared ({_KNOWN_BY[estimate.epochs_known_by]})")
    return "; ".join([", ".join(said), *([estimate.doubt] if estimate.doubt else [])])


def _known(belief: BeliefView) -> str:
    spread = f", within x{belief.spread:.2f}" if belief.spread is not None else ""
    return f"({_KNOWN_BY[belief.known_by]}{spread})"


def shortage_text(short: ShortageView) -> str:
    """Return what a waiting job needs and what its pool has left for it."""
    wishes = f" (requested {short.wishes_gpus})" if short.wishes_gpus > short.needs_gpus else ""
    needs = f"needs {counted(short.needs_gpus, 'GPU')}{wishes}"
    are = "is" if short.shared_gpus == 1 else "are"
    if not short.capacity_gpus:
        shared = f"{counted(short.shared_gpus, 'GPU')} of its pool {are} shared, and no other takes workers now"
        return f"{needs}; {shared}" if short.shared_gpus else f"{needs}, and no node takes workers now"
    spread = ""
    if short.largest_free_gpus < short.free_gpus:
        spread = f" (at most {short.largest_free_gpus} on one node)"
    others = counted(short.jobs_served, "other job")
    rest = "the rest" if short.free_gpus else "them all" if short.capacity_gpus > 1 else "it"
    used = f"; {others} {'has' if short.jobs_served == 1 else 'have'} {rest}" if short.jobs_served else ""
    pool = (
        f"{short.capacity_gpus} in its pool{f' ({short.shared_gpus} more {are} shared)' if short.shared_gpus else ''}"
    )
    return f"{needs}; of {pool}, {number_are(short.free_gpus)} left{spread}{used}"


def _end_lines(ended: EndedJobView, why: str, when: FormatInstant) -> Iterator[str]:
    yield f"submitted {when(ended.submitted_at)}, {ended.outcome} after {span(ended.jct_s)}"
    if why:
        yield f"why: {why}"
    if ended.started_at is None:
        yield "no worker ever ran"
        return
    waited_s = (ended.started_at - ended.submitted_at).total_seconds()
    waits = f"waited {span(waited_s)} before its first start, {span(ended.queueing_s)} in all"
    yield f"{waits}; ran {span(ended.running_s)}"
    yield (
        f"used {ended.gpu_s / 3600:.2f} GPU-hours; {counted(ended.starts, 'start')},"
        f" {counted(ended.resizes, 'resize')}, {counted(ended.migrations, 'migration')}"
        f" ({counted(ended.workers_moved, 'worker')} moved)"
    )
    if ended.was_spanning:
        yield "its workers spanned several nodes for part of the time"
