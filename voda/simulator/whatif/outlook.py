"""When a job that waits at some position of a log will start, if nobody submits anything more.

Rule: only what was known at the position is used, unlike in a what-if, which knows how the story ends.
"""

from typing import Final

from voda.controller.follower import catch_up, restore
from voda.log.store import EventStore
from voda.projections.live import Live
from voda.simulator.whatif.forecast import Budget, forecast

_BUDGET: Final = Budget(events=500_000, wall_s=20.0)
"""Beyond that nobody wants to wait for the answer."""


async def expected_start(store: EventStore, job_id: str, position: int, *, pool: str) -> float | None:
    """Return the instant at which the job is expected to have workers again; None where it is not, or too dear to say.

    Args:
        store: the log.
        job_id: of a live job without workers.
        position: of the log, at which the question is asked, >= 1.
        pool: the job's.
    """
    live = Live()
    after = await restore(store, live, at_most=position)
    await catch_up(store, [live], after=after, until=position)
    (event,) = await store.read(position - 1, 1)
    expected = await forecast(live, pool, event.recorded_at, budget=_BUDGET)
    return expected[job_id].starts_at if job_id in expected else None
