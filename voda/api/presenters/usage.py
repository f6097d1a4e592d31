"""Usage as the API and the command line show it."""

from voda.projections.usage import Usage, UsageKey, UsageRow
from voda.wire.base import view_of
from voda.wire.housekeeping import UsageRowView, UsageView

_HOUR_S = 3_600
MOST_ROWS = 10_000


def usage_of(usage: Usage, by: UsageKey, user: str, *, most: int = MOST_ROWS) -> UsageView:
    """Return the usage in rows, no more than so many; of a long log this takes seconds, so it is for a thread."""
    rows = usage.rows(by)
    return view_of(
        UsageView,
        usage,
        by=by,
        user=user,
        rows=tuple(map(_row, rows[:most])),
        total=_row(usage.total()),
        left_out=max(0, len(rows) - most),
    )


def _row(row: UsageRow) -> UsageRowView:
    return view_of(UsageRowView, row, gpu_hours=row.gpu_s / _HOUR_S, wall_hours=row.running_s / _HOUR_S)
