"""The tables of a comparison: the virtual clusters of each policy in all modes, and the modes of all policies."""

from collections.abc import Mapping, Sequence
from typing import Final

from rich.box import SIMPLE_HEAD
from rich.console import Group
from rich.table import Table
from rich.text import Text

from voda.simulator.virtual_clusters.experiment import Anomalies, PolicyFigures
from voda.simulator.virtual_clusters.modes import Mode
from voda.text import count, percent, span

TITLES: Final[Mapping[Mode, str]] = {
    Mode.PRIVATE: "private",
    Mode.NUMBERS: "number quotas",
    Mode.CELLS: "cells",
    Mode.CELLS_LENT: "cells, lent",
    Mode.PRIVATE_ELASTIC: "private, elastic",
    Mode.CELLS_ELASTIC: "cells, elastic",
}
Row = tuple[str, ...]


def anomaly_text(anomalies: Anomalies | None) -> str:
    """Return how many jobs have an anomaly, and how much later the worst one started."""
    if anomalies is None:
        return "-"
    return f"{count(anomalies.jobs)} ({later_text(anomalies.worst_s)})"


def later_text(seconds: float) -> str:
    """Return how much later, or earlier, something is."""
    if seconds == float("inf"):
        return "never"
    return f"{'+' if seconds > 0 else '-' if seconds < 0 else ''}{span(abs(seconds))}"


def queueing_heads(figures: PolicyFigures) -> Row:
    """Return the heads of `queueing_rows`."""
    return ("virtual cluster", "GPUs", "jobs", *(TITLES[each.mode] for each in figures.modes))


def queueing_rows(figures: PolicyFigures) -> Sequence[Row]:
    """Return the mean queueing of each virtual cluster in each mode."""
    return [
        (each.name, count(each.gpus), count(each.jobs), *map(span, each.queueing_s.values()))
        for each in figures.clusters
    ]


def anomaly_heads(figures: PolicyFigures) -> Row:
    """Return the heads of `anomaly_rows`."""
    return ("virtual cluster", *(TITLES[mode] for mode in _compared(figures)))


def anomaly_rows(figures: PolicyFigures) -> Sequence[Row]:
    """Return the anomalies of each virtual cluster, and how much later its worst job starts, in each shared mode."""
    modes = _compared(figures)
    return [
        (each.name, *(anomaly_text(each.anomalies.get(mode)) for mode in modes))
        for each in figures.clusters
        if each.anomalies
    ]


def _compared(figures: PolicyFigures) -> Sequence[Mode]:
    return [each.mode for each in figures.modes if each.anomalies is not None]


MODE_HEADS: Final = (
    "policy",
    "mode",
    "queueing",
    "in\nuse",
    "late\njobs",
    "worst",
    "GPU-h\nlent",
    "reclaims",
    "GPU-h\nlost",
    "if\nkilled",
)


def mode_rows(results: Sequence[PolicyFigures]) -> Sequence[Row]:
    """Return a row for each mode of each policy."""
    return [
        (
            result.policy,
            each.mode,
            span(each.queueing_s),
            percent(each.utilisation),
            "-" if each.anomalies is None else count(each.anomalies.jobs),
            "-" if each.anomalies is None else later_text(each.anomalies.worst_s),
            count(round(each.borrowed_gpu_h)),
            count(each.reclaims),
            f"{each.lost_gpu_h:,.1f}",
            f"{each.lost_by_kill_gpu_h:,.1f}",
        )
        for result in results
        for each in result.modes
    ]


def tables(results: Sequence[PolicyFigures]) -> Group:
    """Return all tables for a terminal."""
    parts = []
    for each in results:
        parts.append(_table(f"{each.policy}: mean queueing", queueing_heads(each), queueing_rows(each)))
        if rows := anomaly_rows(each):
            parts.append(_table(f"{each.policy}: {anomaly_title(each)}", anomaly_heads(each), rows))
        parts.append(
            _table(f"{each.policy}: all virtual clusters", MODE_HEADS[1:], [row[1:] for row in mode_rows([each])])
        )
    return Group(*parts)


def anomaly_title(figures: PolicyFigures) -> str:
    """Return what an anomaly is."""
    return f"jobs that start over {span(figures.reclaim_s)} later than in their private cluster (worst job)"


def _table(title: str, heads: Row, rows: Sequence[Row]) -> Table:
    table = Table(
        box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True, title_justify="left", title=Text(title, style="bold")
    )
    for number, head in enumerate(heads):
        # All six modes fit 80 columns.
        table.add_column(head.replace(" ", "\n"), justify="right" if number else "left", no_wrap=True)
    for row in rows:
        table.add_row(*map(Text, row))
    return table
