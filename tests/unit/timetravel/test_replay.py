"""Plans of the past, by their numbers."""

import pytest

from tests.reasons import worded
from voda.domain.plan import Plan
from voda.events.envelope import ANY_VERSION, Fact
from voda.events.types import AnyFact, JobProgressed, JobQueueLevelChanged, LeaderElected, PlanAdopted
from voda.log.memory import MemoryStore
from voda.projections.cluster.pool_changes import adopted
from voda.timetravel import replay
from voda.timetravel.replay import plan_numbered, position_of


class Pool:
    """A log of one pool's plans, and what they came to one by one."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.plans = [Plan(pool="default")]
        self.positions = [0]
        self.at = 0.0

    async def add(self, data: AnyFact) -> int:
        self.at += 1.0
        fact = Fact(data=data, event_id=f"e{self.at}", recorded_at=self.at)
        return await self.store.append(data.stream, ANY_VERSION, [fact])

    async def adopt(self, *, placed: dict[str, tuple[str, ...]] | None = None, released: tuple[str, ...] = ()) -> None:
        fact = PlanAdopted(
            pool="default",
            number=len(self.plans),
            based_on=await self.store.position(),
            policy="fifo",
            placer="steady",
            cause="job.submitted",
            placed=placed or {},
            released=released,
            reasons=dict.fromkeys(placed or {}, worded(f"by plan {len(self.plans)}")),
        )
        self.positions.append(await self.add(fact))
        self.plans.append(adopted(self.plans[-1], fact, self.at))


async def a_pool(count: int) -> Pool:
    """Return a pool with that many plans, with other events between them and in their stream."""
    pool = Pool()
    await pool.add(LeaderElected(pool="default", leader="me"))
    for number in range(1, count + 1):
        for _ in range(number % 3):
            await pool.add(JobProgressed(job_id="j1", epochs_done=float(number), workers=1))
        if number % 4 == 0:
            await pool.add(JobQueueLevelChanged(pool="default", job_id="j1", queue_level=1))
        await pool.adopt(placed={f"j{number % 5}": ("n1",) * (number % 2 + 1)}, released=(f"j{(number + 2) % 5}",))
    return pool


async def test_plan_numbered_when_asked_for_each_then_is_what_was_in_force_after_it() -> None:
    pool = await a_pool(40)
    for number in range(1, 41):
        found = await plan_numbered(pool.store, "default", number)
        assert found is not None
        assert found.plan == pool.plans[number]
        assert found.position == pool.positions[number]
        assert await position_of(pool.store, pool.plans[number]) == found.position


async def test_plan_numbered_when_there_was_none_then_is_none() -> None:
    pool = await a_pool(5)
    assert await plan_numbered(pool.store, "default", 6) is None
    assert await plan_numbered(pool.store, "default", 0) is None
    assert await plan_numbered(pool.store, "other", 1) is None
    assert await position_of(pool.store, Plan(pool="default")) == 0


async def test_plan_numbered_when_asked_then_names_the_jobs_it_changed() -> None:
    pool = await a_pool(7)
    found = await plan_numbered(pool.store, "default", 7)
    assert found is not None
    assert found.changed == ("j2", "j4")


async def test_plan_numbered_when_begun_from_a_snapshot_then_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    from voda.controller.follower import catch_up
    from voda.controller.snapshots import take_snapshots
    from voda.projections.live import Live

    pool = await a_pool(30)
    live = Live()
    until = await catch_up(pool.store, [live], after=0, until=pool.positions[20] + 1)
    await take_snapshots(pool.store, [live], until)
    monkeypatch.setattr(replay, "_WORTH_A_SNAPSHOT", 3)
    for number in (20, 21, 25, 30):
        found = await plan_numbered(pool.store, "default", number)
        assert found is not None
        assert found.plan == pool.plans[number]
