"""Small jobs that come and go: what a large one grows by is taken again, and growing costs more than it gains."""

import asyncio

import pytest

from voda.domain.gpus import Gpus
from voda.domain.job import JobSpec
from voda.domain.node import Node
from voda.policies import POLICIES, gives_as_requested
from voda.simulator.compare import ComparedRun, compare
from voda.simulator.engine import SimulationOptions
from voda.simulator.workload import Arrival, Costs, SpeedupProfile, Workload

ELASTIC = [name for name, policy in POLICIES.items() if not gives_as_requested(policy)]


def an_arrival(name: str, at_s: float, *, most: int, work_s: float, restart_s: float) -> Arrival:
    epochs = round(work_s / 60)
    costs = Costs(start_s=restart_s, resize_s=restart_s, migrate_s=restart_s)
    profile = SpeedupProfile(epochs=epochs, work_s=work_s, speedup=range(most + 1), costs=costs)
    spec = JobSpec(job_id=name, max_replicas=most, requested_replicas=most, epochs=epochs)
    return Arrival(spec=spec, submitted_s=at_s, profile=profile)


@pytest.mark.parametrize("policy", ELASTIC)
def test_large_job_when_a_small_one_comes_every_few_minutes_is_seldom_resized(policy: str) -> None:
    large = an_arrival("large", 0.0, most=8, work_s=57_600.0, restart_s=300.0)
    small = [
        an_arrival(f"small-{number}", 600.0 + 400.0 * number, most=1, work_s=60.0, restart_s=5.0)
        for number in range(25)
    ]
    workload = Workload(name="thrash", source="", arrivals=(large, *small), nodes=(Node(name="n", gpus=Gpus(8)),))
    (run,) = asyncio.run(compare(workload, [ComparedRun(policy=policy, placer="steady")], SimulationOptions()))
    ended = {job.job_id: job for job in run.history.finished}
    assert ended["large"].restarts <= 10
    assert ended["large"].jct_s <= 1.2 * (300 + 57_600 / 7), "with seven GPUs all the time"
    assert max(job.queueing_s for job in ended.values()) == 0.0
