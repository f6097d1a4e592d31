"""A what-if as tables for a terminal of 80 columns."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from voda.simulator.report.units import counted, number, percent, span

if TYPE_CHECKING:
    from voda.simulator.whatif.comparison import JobShift, RunFigures, WhatIfComparison

_ROWS: "Sequence[tuple[str, Callable[[RunFigures], float], Callable[[float], str]]]" = (
    ("average JCT", lambda run: run.avg_jct_s, span),
    ("median JCT", lambda run: run.p50_jct_s, span),
    ("p90 JCT", lambda run: run.p90_jct_s, span),
    ("makespan", lambda run: run.makespan_s, span),
    ("average queueing", lambda run: run.avg_queueing_s, span),
    ("restarts per job", lambda run: run.restarts_per_job, number),
    ("utilisation", lambda run: run.utilisation, percent),
)

_MOST_ERROR = 0.1
_FAR_OFF = (
    " So large an error has a cause: deaths of single workers are not repeated, and sizes that jobs never ran at are"
    " guessed (docs/time-travel.md)."
)


def comparison_tables(verdict: "WhatIfComparison") -> RenderableType:
    """Return the three runs side by side, and the jobs for which it matters most."""
    parts: list[RenderableType] = [Text(_title(verdict)), _figures(verdict)]
    if verdict.jobs:
        parts.append(Text(_model_error(verdict)))
    for title, shifts in (("Jobs that win most", verdict.winners), ("Jobs that lose most", verdict.losers)):
        if shifts:
            parts += [Text(f"\n{title}"), _shifts(shifts, verdict.policy)]
    return Group(*parts)


def _title(verdict: "WhatIfComparison") -> str:
    others = f"; {counted(verdict.left_out, 'other job')} did not complete in all three" if verdict.left_out else ""
    return (
        f"What if {verdict.policy} ({verdict.placer}) had decided from position {verdict.position} on:"
        f" {counted(verdict.jobs, 'job')}{others}"
    )


def _figures(verdict: "WhatIfComparison") -> Table:
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


def _model_error(verdict: "WhatIfComparison") -> str:
    recorded, same = verdict.recorded.avg_jct_s, verdict.resimulated.avg_jct_s
    error = abs(same - recorded) / recorded if recorded else 0.0
    return (
        f"The model gives the recorded run's average JCT with an error of {error:.1%}:"
        " differences between policies that are not clearly larger mean nothing."
        + (_FAR_OFF if error > _MOST_ERROR else "")
    )


def _shifts(shifts: "Sequence[JobShift]", policy: str) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for index, head in enumerate(("job", "recorded JCT", "re-simulated", policy, "difference")):
        table.add_column(head, justify="right" if index else "left", overflow="fold", no_wrap=bool(index))
    for shift in shifts:
        difference_s = -shift.gain_s
        table.add_row(
            Text(shift.job_id),
            span(shift.recorded_jct_s),
            span(shift.resimulated_jct_s),
            span(shift.what_if_jct_s),
            f"{'+' if difference_s > 0 else '-'}{span(abs(difference_s))}",
        )
    return table
