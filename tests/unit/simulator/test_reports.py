"""What simulated jobs report within their epochs: as programs do with the callbacks."""

from tests.builders import a_node, a_spec
from voda.domain.plan import ResizeJob, StartJob
from voda.events.types import JobProgressed
from voda.simulator.cluster import SimulatedCluster
from voda.simulator.workload import Costs, SpeedupProfile


class MeteredProfile(SpeedupProfile, frozen=True, kw_only=True):
    """A job of 1,000 samples an epoch."""

    def samples_per_s(self, per_node: tuple[int, ...]) -> float:
        return 1000.0 / self.epoch_s(0, per_node)


class Clock:
    now = 0.0


async def reports(profile: SpeedupProfile, *, until: float, resize_at: float | None = None) -> list[JobProgressed]:
    clock = Clock()
    cluster = SimulatedCluster([a_node("n1", gpus=4)], now=lambda: clock.now)
    cluster.admit(a_spec("a", max_replicas=4), profile)
    await cluster.apply(StartJob(job_id="a", nodes=("n1",)))
    found: list[JobProgressed] = []
    while (at := cluster.next_at()) <= until:
        if resize_at is not None and at > resize_at:
            clock.now, resize_at = resize_at, None
            await cluster.apply(ResizeJob(job_id="a", nodes=("n1", "n1")))
            continue
        clock.now = at
        cluster.advance(at)
        found += [fact for fact in cluster.take_notices() if isinstance(fact, JobProgressed)]
    return found


PROFILE = MeteredProfile(
    epochs=3, work_s=600.0, speedup=(0.0, 1.0, 2.0, 3.0, 4.0), costs=Costs(start_s=30.0, resize_s=30.0)
)


async def test_job_reports_soon_after_its_start_and_every_minute_within_an_epoch() -> None:
    found = await reports(PROFILE, until=430.0)
    assert [round(fact.epochs_done, 3) for fact in found] == [0.05, 0.35, 0.65, 0.95, 1.0, 1.3, 1.6, 1.9, 2.0]
    assert {(fact.samples_per_s, fact.epoch_samples) for fact in found} == {(5.0, 1000.0)}
    assert [fact.epoch_s for fact in found if fact.epoch_s is not None] == [200.0]


async def test_job_reports_its_throughput_soon_after_a_resize() -> None:
    found = await reports(PROFILE, until=200.0, resize_at=130.0)
    # Half an epoch is done when the resize begins; it goes on 30 s later, at twice the pace.
    assert [(round(fact.epochs_done, 3), fact.workers, fact.samples_per_s) for fact in found] == [
        (0.05, 1, 5.0),
        (0.35, 1, 5.0),
        (0.6, 2, 10.0),
    ]


async def test_job_of_long_epochs_reports_each_twentieth() -> None:
    found = await reports(MeteredProfile(epochs=1, work_s=36_000.0, speedup=(0.0, 1.0)), until=36_000.0)
    assert len(found) == 21


async def test_job_that_measures_no_throughput_reports_its_epochs_alone() -> None:
    plain = SpeedupProfile(epochs=3, work_s=600.0, speedup=(0.0, 1.0))
    assert [fact.epochs_done for fact in await reports(plain, until=600.0)] == [1.0, 2.0, 3.0]
