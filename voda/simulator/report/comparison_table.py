"""A run as it is reported, and the columns by which runs are compared, in the terminal and on the page alike."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from msgspec import Struct
from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from voda.projections.history import History
from voda.projections.timeline import Timeline
from voda.simulator.metrics import UNFAIR_ABOVE, RunResult
from voda.text import count, counted, instant_span, number, percent, span


class RunOutcome(Struct, frozen=True, kw_only=True):
    result: RunResult
    history: History
    timeline: Timeline
    source: str
    """Where the workload's figures come from, one line."""
    unfinished: Sequence[str] = ()
    """Jobs that cannot run to their end on this cluster."""
    log: Path | None = None
    """The run's event log, where it was kept."""


def labels(runs: Sequence[RunOutcome]) -> tuple[str, ...]:
    """Return a name for each run: its policy, with the placer where the runs differ in it."""
    has_many_placers = len({run.result.placer for run in runs}) > 1
    names = (f"{run.result.policy} / {run.result.placer}" if has_many_placers else run.result.policy for run in runs)
    return tuple(names)


def warnings(runs: Sequence[RunOutcome]) -> Sequence[str]:
    """Return one sentence for each run with unfinished jobs: its averages are over the others."""
    return [
        f"{label}: {counted(len(run.unfinished), 'job')} could never run to their end on this cluster, e.g. "
        f"{run.unfinished[0][:60]}; the figures are of the others."
        for label, run in zip(labels(runs), runs, strict=True)
        if run.unfinished
    ]


def about(runs: Sequence[RunOutcome]) -> str:
    """Return jobs, nodes and GPUs of the workload in words."""
    sizes = runs[0].timeline.nodes
    jobs = max(run.result.jobs + len(run.unfinished) for run in runs)
    return f"{counted(jobs, 'job')} on {counted(len(sizes), 'node')} with {counted(sum(sizes.values()), 'GPU')}"


class RunColumn(Struct, frozen=True):
    head: str
    """Two short lines."""
    value: Callable[[RunResult], float]
    text: Callable[[float], str]
    meaning: str
    """One line."""
    better: Literal["low", "high"] | None = "low"
    """None = neither is."""


TIMES: Sequence[RunColumn] = (
    RunColumn("avg\nJCT", lambda r: r.avg_jct_s, span, "mean job completion time: submission to end"),
    RunColumn("median\nJCT", lambda r: r.p50_jct_s, span, "half of the jobs took no longer"),
    RunColumn("p90\nJCT", lambda r: r.p90_jct_s, span, "nine of ten jobs took no longer"),
    RunColumn("p99\nJCT", lambda r: r.p99_jct_s, span, "99 of 100 jobs took no longer"),
    RunColumn("make-\nspan", lambda r: r.makespan_s, span, "first submission to last end"),
    RunColumn("avg\nqueueing", lambda r: r.avg_queueing_s, span, "mean time without GPUs, preemptions included"),
)
COSTS: Sequence[RunColumn] = (
    RunColumn(
        "restarts\nper job",
        lambda r: r.restarts_per_job,
        number,
        "starts, resizes and migrations after the first start",
    ),
    RunColumn("moves\nper job", lambda r: r.migrations_per_job, number, "migrations of workers to other nodes"),
    RunColumn("jobs\nspanning", lambda r: r.spanning_jobs, count, "jobs that were ever spread over several nodes"),
    RunColumn("GPU\nhours", lambda r: r.gpu_hours, number, "GPU time held by jobs, working or not"),
    RunColumn("util-\nisation", lambda r: r.utilisation, percent, "GPU time held / GPU time there was", "high"),
)
FAIRNESS: Sequence[RunColumn] = (
    RunColumn(
        "unfair\njobs",
        lambda r: r.unfair_share,
        percent,
        f"jobs with ρ > {UNFAIR_ABOVE}; ρ = JCT / time the job needs alone on its fair share of the GPUs",
    ),
    RunColumn("worst\nρ", lambda r: r.worst_rho, number, "largest ρ of any job: finish-time fairness after Themis"),
    RunColumn("p95\ndecision", lambda r: r.decision_p95_s, instant_span, "computing time of a decision", None),
    RunColumn("wall\ntime", lambda r: r.wall_s, instant_span, "computing time of the whole simulation", None),
)
ALL: Sequence[RunColumn] = (*TIMES, *COSTS, *FAIRNESS)


def best(column: RunColumn, results: Sequence[RunResult]) -> str | None:
    """Return the text of the best figure, None where no figure is better than another."""
    texts = {column.text(column.value(result)) for result in results}
    if column.better is None or len(texts) < 2:
        return None
    values = [column.value(result) for result in results]
    return column.text(min(values) if column.better == "low" else max(values))


_LAYOUTS: Sequence[Sequence[Sequence[RunColumn]]] = (
    (ALL,),
    (TIMES, (*COSTS, *FAIRNESS)),
    (TIMES, COSTS, FAIRNESS),
    (TIMES[:3], TIMES[3:], COSTS, FAIRNESS),
)
"""From one wide table to four narrow ones."""


def comparison_table(runs: Sequence[RunOutcome], width: int) -> RenderableType:
    """Return the comparison for a terminal of `width` columns, >= 80; the best figures are green and bold.

    The columns are split over up to four tables until they fit.
    """
    measure = Console(width=10_000).measure
    for layout in _LAYOUTS:
        tables = [_table(runs, columns) for columns in layout]
        if all(measure(table).maximum <= width for table in tables):
            break
    placers = ", ".join(dict.fromkeys(run.result.placer for run in runs))
    tables[0].title = Text(f"{runs[0].result.workload}: {about(runs)}, placer {placers}", style="bold")
    tables[0].title_justify = "left"
    notes = [Text(note, style="yellow") for note in warnings(runs)]
    return Group(*tables, *notes)


def _table(runs: Sequence[RunOutcome], columns: Sequence[RunColumn]) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("\npolicy", no_wrap=True)
    for column in columns:
        table.add_column(column.head, justify="right", no_wrap=True)
    results = [run.result for run in runs]
    best_texts = [best(column, results) for column in columns]
    for label, result in zip(labels(runs), results, strict=True):
        texts = [column.text(column.value(result)) for column in columns]
        cells = [
            Text(text, style="bold green" if text == best_text else "")
            for text, best_text in zip(texts, best_texts, strict=True)
        ]
        # A name in brackets is a name, not rich's markup.
        table.add_row(Text(label), *cells)
    return table
