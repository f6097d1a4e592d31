"""Facts of the usual kind and size, about 330 bytes each once sealed."""

from voda.clock import SystemClock
from voda.events.envelope import Fact
from voda.events.types import JobProgressed


def some_facts(count: int, *, jobs: int) -> list[Fact]:
    """Return reports of progress, those of `jobs` jobs in turn."""
    clock = SystemClock()
    return [
        Fact(
            data=JobProgressed(job_id=f"job-{number % jobs}", epochs_done=float(number), workers=4, epoch_s=12.5),
            event_id=clock.new_id(),
            recorded_at=clock.now(),
            actor="watcher",
        )
        for number in range(count)
    ]
