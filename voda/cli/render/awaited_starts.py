"""Workers that have their GPUs while the program still pauses after a failure.

One machine records that they have started once they hold their GPUs; the program begins at its next try.
"""

from collections.abc import Callable
from datetime import UTC, datetime

from voda.events.envelope import Event
from voda.events.event_text import describe, per_node
from voda.events.types import ProgramFailed, WorkerStarted
from voda.text import counted


class AwaitedStarts:
    """Describes events in the order of the log."""

    def __init__(self) -> None:
        self._next_try_at: dict[str, float] = {}

    def text(self, event: Event, when: Callable[[datetime], str]) -> str:
        """Return what happened; of workers that still wait, when their program begins, as `when` has it."""
        fact = event.data
        if isinstance(fact, ProgramFailed):
            self._next_try_at[fact.job_id] = fact.next_try_at or 0.0
        if not isinstance(fact, WorkerStarted):
            return describe(event)
        begins_at = self._next_try_at.get(fact.job_id, 0.0)
        if begins_at <= event.recorded_at:
            return describe(event)
        count = len(fact.workers)
        has, begins = ("has its GPUs", "begins") if count == 1 else ("have their GPUs", "begin")
        workers, nodes = counted(count, "worker"), per_node(fact.workers.values())
        return f"{workers} {has} on {nodes} and {begins} at {when(datetime.fromtimestamp(begins_at, UTC))}"
