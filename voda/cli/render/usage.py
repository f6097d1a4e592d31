"""Usage as a table for people and as CSV for spreadsheets."""

import csv
import io
from collections.abc import Sequence
from datetime import datetime

from msgspec.structs import asdict
from rich.text import Text

from voda.cli.render.job_text import NONE
from voda.cli.render.tables import Column, table
from voda.cli.render.terminal import plain
from voda.text import count, counted, full, number, short
from voda.wire.housekeeping import UsageRowView, UsageView

_COLUMNS = (
    Column(head="GPU-HOURS", right=True),
    Column(head="HOURS", right=True, drop=4),
    Column(head="JOBS", right=True),
    Column(head="COMPLETED", right=True),
    Column(head="FAILED", right=True),
    Column(head="CANCELED", right=True),
    Column(head="WAIT", right=True),
    Column(head="WAIT P95", right=True, drop=3),
    Column(head="RESTARTS", right=True, drop=2),
    Column(head="RESIZES", right=True, drop=1),
)


def usage_table(usage: UsageView, at: datetime, *, width: int | None) -> list[Text]:
    """Return the window, and a line for each row and for the total, heads first."""
    head = Text(f"{full(usage.since, at)} to {full(usage.until, at)}", style="dim")
    if not usage.rows:
        return [head, Text("no job ran, was submitted or ended")]
    first = Column(head=usage.by.upper(), cut=1, least=12)
    rows: list[Sequence[str | Text]] = [_cells(row) for row in usage.rows]
    if len(rows) > 1:
        rows.append([Text(cell, style="bold") for cell in _cells(usage.total)])
    lines = [head, *table((first, *_COLUMNS), rows, width=width)]
    return [*lines, Text(left_out_text(usage), style="yellow")] if usage.left_out else lines


def left_out_text(usage: UsageView) -> str:
    """Return how many rows are not shown, and how to see them."""
    more = counted(usage.left_out, "row")
    return f"{more} more not shown, though the total counts them: ask for less time or one --user, or read a --log"


def usage_csv(usage: UsageView) -> str:
    """Return the rows as CSV (RFC 4180), heads first; without the total, so that columns can be summed."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow([usage.by, *UsageRowView.__struct_fields__[1:]])
    for row in usage.rows:
        # A spreadsheet must not take what a user calls a job for a formula.
        key, *figures = asdict(row).values()
        writer.writerow([f"'{key}" if key[:1] in ("=", "+", "-", "@") else key, *figures])
    return text.getvalue()


def _cells(row: UsageRowView) -> list[str]:
    return [
        plain(row.key) or NONE,
        number(row.gpu_hours),
        number(row.wall_hours),
        count(row.jobs),
        count(row.completed),
        count(row.failed),
        count(row.canceled),
        NONE if row.wait_mean_s is None else short(row.wait_mean_s),
        NONE if row.wait_p95_s is None else short(row.wait_p95_s),
        count(row.restarts),
        count(row.resizes),
    ]
