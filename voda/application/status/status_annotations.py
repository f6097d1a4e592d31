"""The status annotations of a job's object: state, explanation and estimated finish.

Rule: pure, and level-based: they follow from the log's present, whatever was written before; only the estimated finish
considers what the object shows, because an estimate that moves at every look is of no use.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from voda.application.status.kube_events import rfc3339, shortened
from voda.cluster.kubernetes import well_known
from voda.projections.job_record import JobRecord

_MOST_LETTERS: Final = 512
_MINUTE_S: Final = 60.0
_LEAST_MOVE_S: Final = 60.0
_LEAST_MOVE: Final = 0.05
"""Share of the time left by which an estimate has to move to be written anew."""
_MOST_YEARS_S: Final = 10 * 365 * 86_400.0
"""An end that is further away is no estimate, and the calendar ends somewhere, too."""
REFUSED: Final = "Refused"


def wanted_annotations(
    record: JobRecord, finishes_at: float | None, now: float, shown: Mapping[str, str]
) -> Mapping[str, str | None]:
    """Return what the object of a job, live or ended, shall say, None = nothing under that name; `shown`: as it is."""
    finish = settled_finish(shown.get(well_known.ESTIMATED_FINISH), finishes_at, now) if record.is_live else None
    return {
        well_known.STATE: state_of(record),
        well_known.EXPLANATION: shortened(record.explanation, _MOST_LETTERS) or None,
        well_known.ESTIMATED_FINISH: finish,
    }


def refused_annotations(sentence: str) -> Mapping[str, str | None]:
    """Return what an object says that voda does not run, and why."""
    return {
        well_known.STATE: REFUSED,
        well_known.EXPLANATION: shortened(sentence, _MOST_LETTERS),
        well_known.ESTIMATED_FINISH: None,
    }


def differing(wanted: Mapping[str, str | None], shown: Mapping[str, str]) -> Mapping[str, str | None]:
    """Return those of the wanted annotations that are not as shown."""
    return {name: value for name, value in wanted.items() if shown.get(name) != value}


def state_of(record: JobRecord) -> str:
    """Return a job's state in a word, with workers observed/planned while it has or gets any: `Running 4/8`."""
    have, planned = len(record.job.workers), len(record.planned)
    if not record.is_live:
        return str(record.phase.value)
    if record.is_canceling:
        return "Canceling"
    if have:
        return f"{'Running' if planned else 'Halting'} {have}/{planned}"
    if planned:
        return f"Starting 0/{planned}"
    if record.is_halted:
        return "Halted"
    return "Preempted" if record.is_preempted else "Waiting"


def settled_finish(shown: str | None, expected: float | None, now: float) -> str | None:
    """Return the estimated finish to show, in whole minutes; the one shown where the new one hardly differs."""
    before = _instant(shown)
    if expected is None or not expected < now + _MOST_YEARS_S:
        # Now and then no forecast can be made; the last one stays until it is plainly over.
        return shown if before is not None and now < before + _LEAST_MOVE_S else None
    minute = -(-expected // _MINUTE_S) * _MINUTE_S
    if before is None or abs(minute - before) > max(_LEAST_MOVE_S, _LEAST_MOVE * (expected - now)):
        return rfc3339(minute)
    return shown


def _instant(text: str | None) -> float | None:
    """Return the instant that an annotation names; None where it names none: others may write there, too."""
    if not text:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found.replace(tzinfo=found.tzinfo or UTC).timestamp()
