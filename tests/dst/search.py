"""The search: many seeds on several processes, and what they come to in all.

Rule: which process runs a seed, and when, changes nothing of it.
"""

import signal
from collections import Counter
from collections.abc import Generator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Final

from msgspec import Struct

from tests.dst.mutations import without
from tests.dst.trial import trial_of, tried
from voda.clock import stopwatch

_AHEAD: Final = 4
"""Seeds that wait for each process."""


class Plan(Struct, frozen=True, kw_only=True):
    """How each seed is tried."""

    hours: float = 5.0
    """Virtual, quiet time included."""
    quiet_s: float = 3 * 3600.0
    """Without faults, at the end; every job has to end in it."""
    mutation: str = ""
    """What of the product is switched off; empty = nothing."""


class Seed(Struct, frozen=True, kw_only=True):
    """What one seed came to."""

    seed: int
    breach: str
    virtual_s: float
    wall_s: float
    events: int
    requests: int
    acknowledged: int
    jobs: int
    faults: dict[str, int]


@dataclass(slots=True)
class Totals:
    """What all seeds came to."""

    seeds: int = 0
    virtual_s: float = 0.0
    wall_s: float = 0.0
    """Of all processes together."""
    events: int = 0
    requests: int = 0
    acknowledged: int = 0
    jobs: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    failed: list[Seed] = field(default_factory=list)

    def add(self, seed: Seed) -> None:
        """Count one more seed."""
        self.seeds += 1
        self.virtual_s += seed.virtual_s
        self.wall_s += seed.wall_s
        self.events += seed.events
        self.requests += seed.requests
        self.acknowledged += seed.acknowledged
        self.jobs += seed.jobs
        self.faults.update(seed.faults)
        if seed.breach:
            self.failed.append(seed)


def try_seed(seed: int, plan: Plan) -> Seed:
    """Run one seed from its beginning to its end."""
    laps: list[float] = []
    with stopwatch(laps), without(plan.mutation):
        verdict = tried(trial_of(seed, hours=plan.hours, quiet_s=plan.quiet_s))
    return Seed(
        seed=seed,
        breach=verdict.breach,
        virtual_s=verdict.at_s,
        wall_s=laps[0],
        events=verdict.events,
        requests=verdict.requests,
        acknowledged=verdict.acknowledged,
        jobs=verdict.jobs,
        faults=dict(verdict.faults),
    )


def search(seeds: Sequence[int], plan: Plan, *, jobs: int) -> Generator[Seed, None, None]:
    """Yield what each seed came to, as they are done; who closes the iterator ends the processes.

    Args:
        seeds: to be tried.
        plan: how.
        jobs: processes, >= 1.
    """
    if jobs == 1:
        yield from (try_seed(seed, plan) for seed in seeds)
        return
    pool = ProcessPoolExecutor(jobs, initializer=_ignore_interrupts)
    try:
        waiting: set[Future[Seed]] = set()
        for seed in seeds:
            waiting.add(pool.submit(try_seed, seed, plan))
            if len(waiting) >= jobs * _AHEAD:
                done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                yield from (one.result() for one in done)
        while waiting:
            done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            yield from (one.result() for one in done)
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _ignore_interrupts() -> None:
    # An interrupt ends the search once; the processes end with it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
