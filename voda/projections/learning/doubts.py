"""Which reports of a job are not believed: what contradicts its own earlier ones, its request, or the clock.

Nothing is learned from such a report: neither its progress nor its speed. `voda describe` says so
(`voda/timetravel/report_doubts.py`). What is no number never gets into the log.
"""

import math
from typing import Final, Literal

from msgspec import Struct

from voda.events.observations import JobProgressed
from voda.projections.learning.restarts import UndisturbedSpan

DoubtKind = Literal["beyond", "over", "fell", "size", "clock"]
_SLACK_S: Final = 60.0
"""Workers are seen to start later than they do."""
_SAME_SIZE_S: Final = 300.0
"""So long after a change of the workers, no report is of the size before."""
_SLACK: Final = 1e-6
"""Of epochs done, which are rounded."""


class ReportDoubt(Struct, frozen=True):
    """Why a report is not believed."""

    kind: DoubtKind
    reported: float
    expected: float


def find_doubt(
    fact: JobProgressed, span: UndisturbedSpan, *, declared: int, processes: float, now: float
) -> ReportDoubt | None:
    """Return why a report is not believed, None where it is.

    Args:
        fact: the report.
        span: the job's running time since its last believed report.
        declared: epochs that it is to have; 0: nobody knows.
        processes: reported workers for each replica; 0: not known yet.
        now: when the report was recorded.
    """
    done, before = fact.epochs_done, span.epochs_done
    if declared and done > declared * (1.0 + _SLACK):
        return ReportDoubt("beyond", done, float(declared))
    # A restart begins anew from a checkpoint.
    if done < before * (1.0 - _SLACK) and not span.changes:
        return ReportDoubt("over" if done < math.floor(before) else "fell", done, before)
    expected = processes * len(span.workers)
    if expected and fact.workers and not math.isclose(fact.workers, expected):
        return ReportDoubt("size", float(fact.workers), expected)
    if fact.epoch_s is not None and span.workers and fact.epoch_s > now - span.started_at + _SLACK_S:
        return ReportDoubt("clock", fact.epoch_s, max(0.0, now - span.started_at))
    return None


def is_said_again(
    last: ReportDoubt | None, fact: JobProgressed, span: UndisturbedSpan, *, processes: float, now: float
) -> bool:
    """Return whether a job says its size again, long after any change: it was its first report that was of another."""
    is_same = last == ReportDoubt("size", float(fact.workers), processes * len(span.workers))
    return is_same and now - span.changed_at > _SAME_SIZE_S
