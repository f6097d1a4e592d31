"""What `voda replay` shows, as tables for a terminal of 80 columns: one moment of a cluster, or a what-if."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from voda.text import counted, number, percent, span
from voda.timetravel.moment import rfc3339

if TYPE_CHECKING:
    from voda.domain.state import Source
    from voda.projections.learning import RunningMean
    from voda.timetravel.estimate_accuracy import AccuracyRow
    from voda.timetravel.snapshot_tables import ClusterSnapshot, JobRow, NodeRow
    from voda.wire.what_ifs import ComparisonView, JobShiftView, RunFiguresView

_SOURCES: "Mapping[Source, str]" = {
    "measured": "its own reports",
    "category": "its category",
    "declared": "its user",
    "assumed": "not known",
}
_WITHIN = "Within spread: off by no more than `voda explain` says; two of three are to be."
_LEGEND = "size: replicas/min-max (>planned); served: GPU hours; prio: priority/queue"


def snapshot_tables(scene: "ClusterSnapshot") -> RenderableType:
    """Return the tables of nodes and jobs at one moment."""
    parts: list[RenderableType] = [Text(_title(scene)), _nodes(scene.nodes), _jobs(scene.jobs, scene.at)]
    return Group(*parts, Text(_LEGEND)) if scene.jobs else Group(*parts)


def errors_table(errors: "Mapping[str, RunningMean]") -> RenderableType:
    """Return how far predictions at submission were from the measured work of finished jobs."""
    table = _table("category", "predicted", "mean error")
    for category, error in errors.items():
        table.add_row(Text(category), counted(error.count, "job"), f"{error.mean:.0%}")
    return Group(Text("Time of an epoch on one replica, predicted at submission against measured:"), table)


def estimates_table(rows: "Sequence[AccuracyRow]", moment: str) -> RenderableType:
    """Return how far off estimates of jobs' work were, by moment, for one of which there is a goal."""
    table = _table("estimate", "known by", "jobs", "unknown", "median", "p90", "within spread")
    for row in rows:
        figures = [f"x{figure:.2f}" if figure is not None else "-" for figure in (row.median, row.p90)]
        within = percent(row.within) if row.within is not None else "-"
        table.add_row(row.moment, _SOURCES[row.source], str(row.jobs), str(row.unknown), *figures, within)
    notes = [Text(_WITHIN)]
    if sum(row.jobs for row in rows if row.moment == moment) >= _FEW_JOBS:
        notes.append(Text(f"{moment.capitalize()}, the goal is x1.20 in the median and x1.80 for nine of ten."))
    return Group(Text("Factor by which the work left was over- or underestimated:"), table, *notes)


def _title(scene: "ClusterSnapshot") -> str:
    used = sum(sum(node.held_gpus.values()) for node in scene.nodes)
    return (
        f"Pool {scene.pool} at position {scene.position}, {rfc3339(scene.at, decimals=0)}: {used} of"
        f" {counted(scene.capacity_gpus, 'GPU')} held, plan {scene.plan}, {scene.policy}, {scene.placer}"
    )


def _nodes(nodes: "Sequence[NodeRow]") -> Table:
    table = _table("node", "GPUs", "free", "held by")
    for node in nodes:
        held = [f"{job_id} x{gpus}" if gpus > 1 else job_id for job_id, gpus in node.held_gpus.items()]
        held += [f"others x{node.foreign_gpus}"] if node.foreign_gpus else []
        notes = [] if node.is_ready else ["NOT READY"]
        notes += [] if node.is_schedulable else ["cordoned"]
        table.add_row(Text(node.name), str(node.gpus), str(node.free_gpus), Text(", ".join([*notes, *held]) or "-"))
    return table


def _jobs(jobs: "Sequence[JobRow]", at: float) -> Table:
    table = _table("job", "phase", "size", "GPUs", "waited", "served", "epochs", "ends in", "prio")
    for job in jobs:
        size = f"{job.replicas}/{job.min_replicas}-{job.max_replicas}"
        size += f">{job.planned}" if job.planned != job.replicas else ""
        epochs = f"{job.epochs_done:g}/{job.epochs or '?'}"
        table.add_row(
            Text(job.job_id),
            job.phase,
            size,
            str(job.gpus),
            span(job.waited_s),
            f"{job.attained_gpu_s / 3600:.2f}h",
            epochs,
            "-" if job.ends_at is None else span(max(0.0, job.ends_at - at)),
            f"{job.priority}/{job.queue_level}",
        )
    if not jobs:
        table.add_row("no live jobs")
    return table


def _table(*heads: str) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for index, head in enumerate(heads):
        # On a narrow terminal names are folded, figures never.
        is_text = index == 0 or head in ("held by", "phase")
        table.add_column(head, justify="left" if is_text else "right", no_wrap=not is_text, overflow="fold")
    return table


_ROWS: "Sequence[tuple[str, Callable[[RunFiguresView], float], Callable[[float], str]]]" = (
    ("average JCT", lambda run: run.avg_jct_s, span),
    ("median JCT", lambda run: run.p50_jct_s, span),
    ("p90 JCT", lambda run: run.p90_jct_s, span),
    ("makespan", lambda run: run.makespan_s, span),
    ("average queueing", lambda run: run.avg_queueing_s, span),
    ("restarts per job", lambda run: run.restarts_per_job, number),
    ("utilisation", lambda run: run.utilisation, percent),
)

_MOST_ERROR = 0.1
_FEW_JOBS = 10
_NOTHING_COMPARED = (
    "Nothing to compare yet: only jobs that completed as recorded, re-simulated and under the other policy count."
)
_FAR_OFF = (
    " So large an error has a cause: deaths of single workers are not repeated, and sizes that jobs never ran at are"
    " guessed (docs/time-travel.md)."
)


def comparison_tables(verdict: "ComparisonView") -> RenderableType:
    """Return the three runs side by side, and the jobs for which it matters most."""
    if not verdict.jobs:
        return Text(f"{_comparison_title(verdict)}\n{_NOTHING_COMPARED}")
    parts: list[RenderableType] = [Text(_comparison_title(verdict)), _figures(verdict), Text(_model_error(verdict))]
    if verdict.jobs < _FEW_JOBS:
        parts.append(Text(f"With {counted(verdict.jobs, 'job')}, averages and percentiles say little."))
    for title, shifts in (("Jobs that win most", verdict.winners), ("Jobs that lose most", verdict.losers)):
        if shifts:
            parts += [Text(f"\n{title}"), _shifts(shifts, verdict.policy)]
    return Group(*parts)


def _comparison_title(verdict: "ComparisonView") -> str:
    left_out = counted(verdict.left_out, "other job")
    others = (
        f"; {left_out} did not complete in all three runs (recorded, re-simulated, what-if)" if verdict.left_out else ""
    )
    return (
        f"What if {verdict.policy} ({verdict.placer}) had decided from position {verdict.position} on:"
        f" {counted(verdict.jobs, 'job')}{others}"
    )


def _figures(verdict: "ComparisonView") -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("\n")
    for head in (
        "\nrecorded",
        "recorded policy,\nre-simulated",
        f"{verdict.policy},\nsimulated",
        "effect of\nthe policy",
    ):
        table.add_column(head, justify="right", no_wrap=True)
    for name, figure, words in _ROWS:
        recorded, same, other = (figure(run) for run in (verdict.recorded, verdict.resimulated, verdict.what_if))
        change = f"{(other - same) / same:+.1%}" if same else "-"
        table.add_row(name, words(recorded), words(same), words(other), change)
    return table


def _model_error(verdict: "ComparisonView") -> str:
    recorded, same = verdict.recorded.avg_jct_s, verdict.resimulated.avg_jct_s
    error = abs(same - recorded) / recorded if recorded else 0.0
    return (
        f"The model gives the recorded run's average JCT with an error of {error:.1%}:"
        " differences between policies that are not clearly larger mean nothing."
        + (_FAR_OFF if error > _MOST_ERROR else "")
    )


def _shifts(shifts: "Sequence[JobShiftView]", policy: str) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for index, head in enumerate(("job", "recorded JCT", "re-simulated", policy, "difference")):
        table.add_column(head, justify="right" if index else "left", overflow="fold", no_wrap=bool(index))
    for shift in shifts:
        difference_s = shift.what_if_jct_s - shift.resimulated_jct_s
        table.add_row(
            Text(shift.job_id),
            span(shift.recorded_jct_s),
            span(shift.resimulated_jct_s),
            span(shift.what_if_jct_s),
            f"{'+' if difference_s > 0 else '-'}{span(abs(difference_s))}",
        )
    return table
