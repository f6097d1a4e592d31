"""What a job reported, as curves of characters and as CSV.

Rule: what is no finite number is a value too: a curve marks it with an x, red on a terminal.
"""

import csv
import io
import math
from collections.abc import Iterable, Sequence
from typing import Final

from rich.text import Text

from voda.cli.render.job_text import figure
from voda.cli.render.terminal import plain
from voda.domain.job import MetricValue
from voda.wire.jobs import ReportView

_STEPS: Final = "▁▂▃▄▅▆▇█"
_ODD: Final = "x"
_OWN: Final = ("epoch", "reported_at", "workers", "epoch_s")
NARROW: Final = 24


def names_of(reports: Iterable[ReportView]) -> Sequence[str]:
    """Return the names of the metrics, in the order in which they were reported first."""
    return list(dict.fromkeys(name for report in reports for name in report.metrics))


def sparkline(values: Sequence[MetricValue], width: int) -> Text:
    """Return the values as one line of at most `width` characters; of several that share one, the last."""
    shown = (
        [values[(place + 1) * len(values) // width - 1] for place in range(width)] if len(values) > width else values
    )
    numbers = [float(value) for value in values]
    finite = [number for number in numbers if math.isfinite(number)]
    least, most = (min(finite), max(finite)) if finite else (0.0, 0.0)
    line = Text()
    for value in map(float, shown):
        if not math.isfinite(value):
            line.append(_ODD, style="red")
        elif most > least:
            # Halved first: the largest numbers of all are farther apart than any.
            part = (value / 2 - least / 2) / (most / 2 - least / 2)
            line.append(_STEPS[min(len(_STEPS) - 1, int(part * len(_STEPS)))])
        else:
            line.append(_STEPS[0])
    return line


def curves(reports: Sequence[ReportView], names: Sequence[str], width: int) -> list[Text]:
    """Return a line for each metric: its curve, then the first value, the least, the most and the last."""
    longest = max((len(plain(name)) for name in names), default=0)
    lines = []
    for name in names:
        values = [report.metrics[name] for report in reports if name in report.metrics]
        if not values:
            continue
        line = Text(plain(name).ljust(min(longest, 30)) + "  ")
        line.append(sparkline(values, max(10, min(60, width - longest - 40))))
        line.append(f"  {_summary(values)}", style="" if math.isfinite(float(values[-1])) else "red")
        lines.append(line)
    return lines


def _summary(values: Sequence[MetricValue]) -> str:
    finite = [number for value in values if math.isfinite(number := float(value))]
    bounds = f" ({figure(min(finite))} to {figure(max(finite))})" if finite else ""
    odd = len(values) - len(finite)
    return f"{figure(values[0])} -> {figure(values[-1])}{bounds}" + (f", {odd} nan or inf" if odd else "")


def as_csv(reports: Sequence[ReportView], names: Sequence[str]) -> str:
    """Return the reports as CSV, a line each, heads first."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*_OWN, *names])
    for report in reports:
        own = (report.epochs_done, report.reported_at.isoformat(), report.workers, report.epoch_s)
        writer.writerow([*own, *(report.metrics.get(name, "") for name in names)])
    return text.getvalue()
