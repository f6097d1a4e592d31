"""The recent changes of plans, job by job.

Rule: the size before a change is shown only if an earlier plan in the window set it.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from voda.api.schemas import EventView
from voda.cli.http.remote_log import known_event
from voda.events.types import PlanAdopted

PLANS = PlanAdopted.TYPE
_CAPACITY = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanChange:
    """What a plan changes for one job."""

    at: datetime
    job_id: str
    size: str
    """Replicas: 1 -> 3, -> 3 where the number before is unknown, 3 moved, waits."""
    reason: str


class PlanChanges:
    """The last changes, newest first.

    Args:
        is_complete: whether all plans of the log are added; then an unknown size is 0.
    """

    def __init__(self, *, is_complete: bool = False) -> None:
        self._unknown = 0 if is_complete else None
        self._last: deque[PlanChange] = deque(maxlen=_CAPACITY)
        self._sizes: dict[str, int] = {}

    def __iter__(self) -> Iterator[PlanChange]:
        return reversed(self._last)

    def add(self, event: EventView) -> None:
        """Add an event; only plans count."""
        known = known_event(event) if event.type == PLANS else None
        if known is None or not isinstance(plan := known.data, PlanAdopted):
            return
        for job_id in sorted({*plan.placed, *plan.released, *plan.reasons}):
            self._last.append(
                PlanChange(
                    at=event.recorded_at,
                    job_id=job_id,
                    size=self._size(job_id, plan),
                    reason=plan.reasons.get(job_id, "the job had ended"),
                )
            )

    def _size(self, job_id: str, plan: PlanAdopted) -> str:
        after = len(plan.placed.get(job_id, ()))
        before = self._sizes.get(job_id, self._unknown)
        self._sizes[job_id] = after
        if job_id not in plan.placed and job_id not in plan.released:
            return "waits"
        if before is None:
            return f"-> {after}"
        return f"{after} moved" if before == after else f"{before} -> {after}"
