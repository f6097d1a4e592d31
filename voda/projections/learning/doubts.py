"""Which reports of a job are not believed: what contradicts its own earlier ones, its request, or the clock.

Nothing is learned from such a report: neither its progress nor its speed. `voda describe` says so. What is no number
never gets into the log.
"""

import math
from typing import Final, Literal

from msgspec import Struct

from voda.events.observations import JobProgressed
from voda.projections.learning.restarts import UndisturbedSpan

DoubtKind = Literal["beyond", "over", "fell", "size", "clock"]
_SLACK_S: Final = 60.0
"""Workers are seen to start later than they do."""
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
        return ReportDoubt("beyond", done, declared)
    # A restart begins anew from a checkpoint.
    if done < before * (1.0 - _SLACK) and not span.changes:
        return ReportDoubt("over" if done < math.floor(before) else "fell", done, before)
    if span.workers and processes and fact.workers and fact.workers != processes * len(span.workers):
        return ReportDoubt("size", fact.workers, processes * len(span.workers))
    if fact.epoch_s is not None and span.workers and fact.epoch_s > now - span.started_at + _SLACK_S:
        return ReportDoubt("clock", fact.epoch_s, max(0.0, now - span.started_at))
    return None


def doubt_text(why: ReportDoubt) -> str:
    """Return the sentence that users read."""
    said, known = f"{why.reported:g}", f"{why.expected:g}"
    match why.kind:
        case "beyond":
            reason = f"it says {said} epochs done, and the job has {known}"
        case "over":
            reason = f"it says {said} epochs done, of an epoch that is over: {known} were done before"
        case "fell":
            reason = f"it says {said} epochs done, fewer than the {known} before, and no worker has changed since"
        case "size":
            reason = f"it is of {said} workers, and the job has {known}"
        case "clock":
            reason = f"its last epoch took {said} s by the program's clock, and it has run for {known} s"
    return f"the last report is not believed: {reason}"
