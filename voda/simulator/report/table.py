"""The comparison in the terminal: one row per run, as many tables as the width asks for."""

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from voda.simulator.report.columns import COSTS, FAIRNESS, TIMES, Column, best
from voda.simulator.report.outcome import RunOutcome, labels

_WIDE = 170
_MEDIUM = 100


def comparison(runs: Sequence[RunOutcome], width: int) -> RenderableType:
    """Return the comparison for a terminal of `width` columns, >= 80; the best figures are green and bold.

    Args:
        runs: of one workload, at least one.
        width: columns of the terminal; one table needs 170, two need 100, below that there are three.
    """
    if width >= _WIDE:
        parts: Sequence[Sequence[Column]] = ((*TIMES, *COSTS, *FAIRNESS),)
    elif width >= _MEDIUM:
        parts = (TIMES, (*COSTS, *FAIRNESS))
    else:
        parts = (TIMES, COSTS, FAIRNESS)
    tables = [_table(runs, columns) for columns in parts]
    tables[0].title = Text(_title(runs), style="bold")
    tables[0].title_justify = "left"
    notes = [Text(note, style="yellow") for note in _notes(runs)]
    return Group(*tables, *notes)


def _table(runs: Sequence[RunOutcome], columns: Sequence[Column]) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("\npolicy", no_wrap=True)
    for column in columns:
        table.add_column(column.head, justify="right", no_wrap=True)
    results = [run.result for run in runs]
    champions = [best(column, results) for column in columns]
    for label, result in zip(labels(runs), results, strict=True):
        texts = [column.text(column.value(result)) for column in columns]
        cells = [
            Text(text, style="bold green" if text == champion else "")
            for text, champion in zip(texts, champions, strict=True)
        ]
        # A name in brackets is a name, not rich's markup.
        table.add_row(Text(label), *cells)
    return table


def _title(runs: Sequence[RunOutcome]) -> str:
    run = runs[0]
    sizes = run.timeline.nodes
    placers = ", ".join(dict.fromkeys(run.result.placer for run in runs))
    jobs = max(run.result.jobs for run in runs)
    return f"{run.result.workload}: {jobs:,} jobs, {len(sizes):,} nodes, {sum(sizes.values()):,} GPUs, placer {placers}"


def _notes(runs: Sequence[RunOutcome]) -> list[str]:
    return [
        f"{label}: {len(run.unfinished)} jobs could never run to their end, e.g. {run.unfinished[0]}"
        for label, run in zip(labels(runs), runs, strict=True)
        if run.unfinished
    ]
