"""One job in full, for a terminal of 80 columns.

Rule: what the caller may not read (output, an explanation) is left out; the rest is shown.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from voda.cli.http.client import Client, decode, resource_path
from voda.cli.http.remote_log import RemoteEvent, RemoteLog, known_event
from voda.cli.render.arrays import after_text, bound_text, pool_text
from voda.cli.render.awaited_starts import AwaitedStarts
from voda.cli.render.explanation import decisions_table, estimate_text, outlook
from voda.cli.render.job_text import (
    NOT_CONSIDERED,
    exactly,
    figure,
    forecast,
    gpu_hours,
    gpus_text,
    has_ended,
    held_up,
    interruption,
    launcher,
    next_try,
    progress,
    ran_s,
    silence,
    state_text,
    waited_s,
)
from voda.cli.render.metrics import NARROW, names_of, sparkline
from voda.cli.render.terminal import plain
from voda.domain.errors import PermanentError
from voda.domain.job import Phase
from voda.events.event_text import TYPES, per_node
from voda.text import clock, counted, full, short, since, size
from voda.wire.explanations import ExplanationView
from voda.wire.housekeeping import JobFolderView
from voda.wire.jobs import JobView, ReportList, ReportView

T = TypeVar("T")

_EVENTS = 8
_CURVES = 3
_NO_REPORTS = (
    "three lines bring curves, an ETA and better sizes: `from voda.report import report`, and after each epoch on rank"
    ' 0 `report(epoch + 1, metrics={"loss": loss})`; --epochs N at the submit says of how many'
)
_QUIET = {"job.progressed", "plan.adopted", "job.queue_level_changed"}
"""Event types that are frequent, or shown elsewhere in the description."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobContext:
    """What the description shows beside the job itself."""

    explanation: ExplanationView | None
    events: Sequence[RemoteEvent]
    """The last ones, oldest first."""
    replicas: Sequence[str] | None
    """Replicas that printed something; None = the caller may not read output."""
    reports: Sequence[ReportView] = ()
    folder: JobFolderView | None = None
    """None: the cluster keeps none, or the caller may not see it."""


def load_context(client: Client, job: JobView) -> JobContext:
    """Fetch what the description shows beside the job itself."""
    types = [kind for kind in TYPES if kind not in _QUIET]
    log = RemoteLog(client, {"job": exactly(job), "type": types})
    events = list(log.between(0, log.position()))
    return JobContext(
        explanation=_if_allowed(_explanation, client, job),
        events=events[-_EVENTS:],
        replicas=_if_allowed(replicas_with_output, client, job),
        reports=(_if_allowed(_reports, client, job) or ()) if job.progress.metrics else (),
        folder=_if_allowed(_folder, client, job),
    )


def _if_allowed(answer: Callable[[Client, str], T], client: Client, job: JobView) -> T | None:
    try:
        return answer(client, exactly(job))
    except PermanentError:
        return None


def _explanation(client: Client, job: str) -> ExplanationView:
    return decode(client.get(resource_path("jobs", job, "explain")), ExplanationView)


def _reports(client: Client, job: str) -> Sequence[ReportView]:
    return decode(client.get(resource_path("jobs", job, "progress")), ReportList).items


def _folder(client: Client, job: str) -> JobFolderView:
    return decode(client.get(resource_path("jobs", job, "folder")), JobFolderView)


def replicas_with_output(client: Client, job: str) -> Sequence[str]:
    """Return the replicas that printed something, the most useful one first."""
    return decode(client.get(resource_path("jobs", job, "logs", "replicas")), list[str])


def description(job: JobView, context: JobContext, at: datetime) -> RenderableType:
    """Return the job in full; `at` is now, in the reader's time zone."""
    facts = Table.grid(padding=(0, 2, 0, 0))
    facts.add_column(no_wrap=True, style="bold")
    facts.add_column(overflow="fold")
    for name, value in _facts(job, context, at):
        facts.add_row(name, value if isinstance(value, Text) else Text(plain(value)))
    parts: list[RenderableType] = [facts]
    if context.explanation and context.explanation.decisions:
        parts += [
            Text("\nRecent decisions", style="bold"),
            decisions_table(context.explanation.decisions, lambda instant: full(instant, at)),
        ]
    if context.events:
        parts += [Text("\nRecent events", style="bold"), Padding(_events(context.events, at), (0, 0, 0, 2))]
    return Group(*parts)


def _facts(job: JobView, context: JobContext, at: datetime) -> Iterator[tuple[str, str | Text]]:
    yield "Job", job.job_id if job.name == job.job_id else f"{job.job_id} (submitted as {job.name})"
    yield "State", _state(job, at)
    if said := silence(job, at):
        yield "Silence", f"{said}: it has printed and reported nothing; voda logs {job.job_id}"
    if not has_ended(job):
        # What troubles it, before what a plan once gave it.
        yield from _failures(job, at)
        if context.explanation and context.explanation.obstacle:
            yield "Held up", held_up(context.explanation, lambda instant: clock(instant, at))
    yield from _origin(job)
    if job.array is not None:
        array = job.array
        yield "Array", f"task {array.index} of {array.name}[{array.indices}], {bound_text(array.at_once)}"
    if job.after:
        yield "After", after_text(job.after)
    if job.labels:
        yield "Labels", ", ".join(f"{key}={value}" for key, value in sorted(job.labels.items()))
    yield "Replicas", _size(job)
    if job.message or not has_ended(job):
        yield "Why", _why(job, context.explanation)
    if context.explanation and not has_ended(job):
        # The forecast already shows the expected start.
        yield from (("", line) for line in outlook(context.explanation) if not line.startswith("expected"))
    yield "Progress", _progress(job, at)
    yield from _metrics(job, context)
    if context.explanation and context.explanation.estimate is not None:
        yield "Believed", estimate_text(context.explanation.estimate)
    if expected := forecast(job, at):
        yield "Forecast", expected
    yield "Submitted", f"{full(job.submitted_at, at)} ({since(job.submitted_at, at)} ago)"
    if job.started_at:
        yield "Started", f"{full(job.started_at, at)} ({since(job.started_at, at)} ago)"
    if job.finished_at:
        yield "Ended", f"{full(job.finished_at, at)} ({since(job.finished_at, at)} ago)"
    yield "Time", f"waited {short(waited_s(job, at))}, ran {short(ran_s(job, at))}, {gpu_hours(job, at):.2f} GPU-hours"
    yield "Changes", _changes(job)
    if has_ended(job):
        yield from _failures(job, at)
    if job.phase is Phase.FAILED and context.folder is not None and not context.folder.deleted_at:
        yield "Go on", f"voda rerun --continue {job.job_id}: from its folder, with the program as it is now"
    if context.replicas is not None:
        yield "Output", _output(job, context.replicas, context.folder, at)
    if context.folder is not None and not context.folder.deleted_at:
        yield from _folder_facts(context.folder)


def _failures(job: JobView, at: datetime) -> Iterator[tuple[str, str]]:
    if job.program_failures:
        yield "Failures", f"{job.program_failures:,} of its program, the last: {job.last_failure}"
        if not has_ended(job) and (tries := next_try(job, at, lambda instant: clock(instant, at))):
            yield "", tries


def _why(job: JobView, explanation: ExplanationView | None) -> str:
    """Return the reason; what holds the job up has a line of its own."""
    if explanation and explanation.obstacle and not has_ended(job):
        return explanation.message or NOT_CONSIDERED
    return job.message or NOT_CONSIDERED


def _state(job: JobView, at: datetime) -> Text:
    text = state_text(job, at)
    if said := interruption(job):
        text.append(f": {said}")
    return text


def _origin(job: JobView) -> Iterator[tuple[str, str]]:
    yield "Launcher", launcher(job)
    if job.interpreter:
        yield "Python", job.interpreter
    if job.kept_script:
        yield "Code", f"as it was submitted: {job.kept_script}"
    if job.continues:
        yield "Goes on", f"in the folder of {job.continues}"
    if job.user:
        yield "User", job.user
    others = [pool for pool in job.pools if pool != job.pool]
    or_others = f" (or {', '.join(others)})" if others and job.phase in (Phase.SUBMITTED, Phase.WAITING) else ""
    if not job.is_restartable:
        yield "Restartable", "never: once its program has begun, it is not stopped for others, resized or begun again"
    yield "Pool", f"{pool_text(job.pool, job.namespace)}{or_others}, priority {job.priority}"
    if job.virtual_cluster:
        pin = f", in its pinned cell {job.pinned_cell}" if job.pinned_cell else ""
        yield "Virtual cluster", f"{job.virtual_cluster}{'' if job.priority >= 0 else ', opportunistic'}{pin}"


def _size(job: JobView) -> str:
    gpus = gpus_text(job)
    nodes = per_node(worker.node for worker in job.workers)
    has = f"{job.replicas}{gpus} on {nodes}" if job.replicas else "none"
    planned = ""
    if job.planned_replicas != job.replicas and not has_ended(job):
        planned = f"; the plan gives it {job.planned_replicas}"
    sizes = f", sizes {job.sizes}" if job.sizes else ""
    bounds = f"minimum {job.min_replicas}, maximum {job.max_replicas}{sizes}, requested {job.requested_replicas}"
    return f"{has} ({bounds}){planned}"


def _progress(job: JobView, at: datetime) -> str:
    made = job.progress
    if not made.epochs_done and not made.metrics:
        return f"no epoch reported yet{f', of {made.epochs}' if made.epochs else ''}"
    parts = [f"{progress(job)} epochs"]
    if made.epoch_s is not None:
        parts.append(f"the last took {made.epoch_s:.3g}s")
    parts += [f"{name} {figure(value)}" for name, value in made.metrics.items()]
    if made.reported_at:
        parts.append(f"reported {since(made.reported_at, at)} ago")
    return ", ".join(parts)


def _metrics(job: JobView, context: JobContext) -> Iterator[tuple[str, Text]]:
    """Yield the curves of what it reported; once it ran for a while and reported nothing, what three lines bring."""
    names = names_of(context.reports)
    for number, name in enumerate(names[:_CURVES]):
        values = [report.metrics[name] for report in context.reports if name in report.metrics]
        more = (
            f"  and {len(names) - _CURVES} more: voda metrics {job.job_id}"
            if number + 1 == _CURVES < len(names)
            else ""
        )
        line = Text("").append(sparkline(values, NARROW)).append(f"  {plain(name)} {figure(values[-1])}{more}")
        yield ("Metrics" if number == 0 else ""), line
    if not job.progress.reported_at and job.started_at:
        yield "", Text(_NO_REPORTS)


def _changes(job: JobView) -> str:
    counts = f"{counted(job.resizes, 'resize')}, started again {counted(job.restarts, 'time')}"
    return f"{counts}, {counted(job.failures, 'action')} refused by the cluster" if job.failures else counts


def _folder_facts(folder: JobFolderView) -> Iterator[tuple[str, str]]:
    least = "" if folder.is_complete else "at least "
    yield "Folder", f"{least}{size(folder.size_bytes)} in {counted(folder.files, 'file')}: {folder.path}"
    if folder.cut_replicas:
        limit = size(folder.output_limit_bytes)
        names = ", ".join(folder.cut_replicas)
        yield "", f"of {names} only the end of the output is there: a job's output may take {limit}, and outgrew it"


def _output(job: JobView, names: Sequence[str], folder: JobFolderView | None, at: datetime) -> str:
    if folder is not None and folder.deleted_at is not None:
        return f"deleted {full(folder.deleted_at, at)} by {folder.deleted_by}, with all of the job's folder"
    if not names:
        return "none: it was deleted with the replicas" if job.started_at and job.finished_at else "nothing printed yet"
    others = f" --replica {names[1]}" if len(names) > 1 else ""
    more = f"; {', '.join(names[:6])}{' ...' if len(names) > 6 else ''}" if len(names) > 1 else ""
    return f"voda logs {job.job_id}{f' [{others.strip()}]' if others else ''}{more}"


def _events(events: Sequence[RemoteEvent], at: datetime) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    starts = AwaitedStarts()
    for seen in events:
        what = (
            starts.text(known, lambda instant: clock(instant, at)) if (known := known_event(seen.event)) else seen.what
        )
        table.add_row(full(seen.event.recorded_at, at), Text(plain(what)))
    return table
