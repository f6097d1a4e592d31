"""One trial: a world, what goes wrong in it, what its users do, and what the checker says.

Rule: a trial is data, so the same trial ends the same way, wherever and however often it is run.
"""

import asyncio
import gc
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from aiohttp import web_app
from msgspec import Struct
from msgspec.structs import replace

from tests.dst import faults
from tests.dst.checker import Checker
from tests.dst.journal import Journal
from tests.dst.sharers import Sharers
from tests.dst.users import Act, Users
from tests.dst.users import drawn as drawn_acts
from tests.dst.world import Setup, World, simulate
from voda.domain.rng import rng_at
from voda.events.envelope import Event
from voda.log.append_plan import plan_copy
from voda.log.archive.verify import verify_log
from voda.log.memory import MemoryStore
from voda.timetravel.verify import verify

_SHARED: Final = 0.15
"""Of the seeds have GPUs that pods share: such a seed takes longer by half or more."""
_GPUS: Final = {"c1": 2, "c2": 1}


class Trial(Struct, frozen=True, kw_only=True):
    """What is tried."""

    setup: Setup
    acts: tuple[Act, ...]


class Verdict(Struct, frozen=True, kw_only=True):
    """What became of it."""

    breach: str
    """Rule and sentence; empty where all held."""
    at_s: float
    """Virtual seconds it went on for."""
    events: int
    requests: int
    acknowledged: int
    """Of them: what the log is held against."""
    jobs: int
    digest: str
    """Of the run's trace."""
    faults: Mapping[str, int]
    """Kind -> how many were injected."""
    trace: Sequence[str]
    log: Sequence[Event]

    @property
    def rule(self) -> str:
        """The rule that was broken."""
        return self.breach.partition(":")[0]


def trial_of(seed: int, *, hours: float, quiet_s: float) -> Trial:
    """Return the trial of a seed.

    Args:
        seed: everything is drawn from it.
        hours: virtual ones, the quiet time in which every job has to end included.
        quiet_s: without faults, at the end.
    """
    setup = Setup(seed=seed, hours=hours, quiet_s=quiet_s)
    until_s = hours * 3600 - quiet_s
    replicas = [f"r{number}" for number in range(setup.replicas)]
    nodes = sorted(node for pool in setup.pools.values() for node in pool)
    if rng_at(seed, "GPUs that pods share").random() < _SHARED:
        setup = replace(setup, gpus=_GPUS)
    wrong = faults.drawn(seed, until_s=until_s, replicas=replicas, nodes=nodes)
    troubles = [(fault.at_s, fault.span_s) for fault in wrong]
    acts = drawn_acts(seed, until_s=until_s, pools=setup.pools, troubles=troubles)
    return Trial(setup=replace(setup, faults=wrong), acts=acts)


def tried(trial: Trial) -> Verdict:
    """Run a trial to its end, or to the first rule that is broken."""
    verdict = _tried(trial)
    # Handlers with their applications, and so whole worlds: a thousand of them would be kept.
    web_app._cached_build_middleware.cache_clear()
    gc.collect()
    return verdict


def _tried(trial: Trial) -> Verdict:
    journal = Journal()
    users = Users(trial.acts, journal)
    checkers: list[Checker] = []
    worlds: list[World] = []

    def watches(world: World) -> Sequence[Checker]:
        worlds.append(world)
        checkers.append(Checker(world, journal))
        return checkers

    def finish(_world: World) -> Iterable[str]:
        return checkers[0].finish()

    sharers = Sharers(trial.setup.hours * 3600 - trial.setup.quiet_s)

    async def load(world: World) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(users.run(world))
            if trial.setup.gpus:
                group.create_task(sharers.run(world))

    outcome = simulate(trial.setup, load, watches, finish)
    breach = outcome.breach or asyncio.run(_proven(worlds[0]))
    return Verdict(
        breach=breach,
        at_s=outcome.at_s,
        events=len(outcome.events),
        requests=users.requests,
        acknowledged=sum(answer.is_acknowledged for answer in journal.answers),
        jobs=len(checkers[0].plans.specs),
        digest=outcome.digest,
        faults=Counter(fault.kind for fault in trial.setup.faults if fault.at_s <= outcome.at_s),
        trace=outcome.trace,
        log=outcome.events,
    )


async def _proven(world: World) -> str:
    """Return what is wrong with the log as a whole: its chain, or a plan that comes out differently."""
    store = MemoryStore()
    await store.take_over(plan_copy(world.log.sealed), after=0)
    found = await verify_log(store)
    if not found.is_intact:
        return f"chain: {found.problem}"
    difference = (await verify(store)).difference
    if difference is None:
        return ""
    what = f"{difference.what} of job {difference.job_id}" if difference.job_id else difference.what
    return (
        f"recomputed: the decision at position {difference.position} differs in {what}: {difference.recorded} is"
        f" recorded, {difference.recomputed} comes out"
    )
