"""The comparison in the terminal: one row per run, as many tables as the width asks for."""

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from voda.simulator.report.columns import ALL, COSTS, FAIRNESS, TIMES, Column, best
from voda.simulator.report.run_summary import RunOutcome, about, labels, warnings

_LAYOUTS: Sequence[Sequence[Sequence[Column]]] = (
    (ALL,),
    (TIMES, (*COSTS, *FAIRNESS)),
    (TIMES, COSTS, FAIRNESS),
    (TIMES[:3], TIMES[3:], COSTS, FAIRNESS),
)
"""From one wide table to four narrow ones."""


def comparison(runs: Sequence[RunOutcome], width: int) -> RenderableType:
    """Return the comparison for a terminal of `width` columns, >= 80; the best figures are green and bold.

    Args:
        runs: of one workload, at least one.
        width: columns of the terminal; the columns are split over up to four tables until they fit.
    """
    measure = Console(width=10_000).measure
    for layout in _LAYOUTS:
        tables = [_table(runs, columns) for columns in layout]
        if all(measure(table).maximum <= width for table in tables):
            break
    tables[0].title = Text(_title(runs), style="bold")
    tables[0].title_justify = "left"
    notes = [Text(note, style="yellow") for note in warnings(runs)]
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
    placers = ", ".join(dict.fromkeys(run.result.placer for run in runs))
    return f"{runs[0].result.workload}: {about(runs)}, placer {placers}"
