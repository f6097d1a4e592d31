"""When a waiting job will start, if nobody submits anything more: the scheduler is deterministic, so run it.

Rule: only what was known at the position is used, unlike in a what-if, which knows how the story ends.
"""

from typing import Final

from voda.events.group import taken_over
from voda.events.memory import MemoryStore
from voda.events.store import EventStore
from voda.events.types import WorkerStarted
from voda.simulator.whatif.trial import Choice, record, sealed_until, what_if

_MOST_EPOCHS: Final = 20_000
"""Still to be simulated; beyond that nobody wants to wait for the answer."""
_MOST_EVENTS: Final = 200_000


async def expected_start(store: EventStore, job_id: str, position: int, *, pool: str) -> float | None:
    """Return the instant at which the job is expected to have workers again; None where it is not, or too dear to say.

    Args:
        store: the log.
        job_id: of a live job without workers.
        position: of the log, at which the question is asked.
        pool: the job's.
    """
    if position > _MOST_EVENTS:
        return None
    known = MemoryStore()
    await known.restore(iter([taken_over(await sealed_until(store, position))]))
    recording = await record(known, position, pool=pool)
    left = sum(training.profile.epochs - training.epoch for training in recording.trainings())
    if left > _MOST_EPOCHS:
        return None
    run = await what_if(recording, Choice())
    starts = await run.store.read(0, _MOST_EVENTS, stream=f"job.{job_id}")
    after = (e for e in starts if e.position > position and isinstance(e.data, WorkerStarted))
    return next((event.recorded_at for event in after), None)
