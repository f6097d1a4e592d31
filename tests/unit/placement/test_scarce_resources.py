"""Where CPUs run short before GPUs, a decision takes few steps, and the same decision follows if nothing changes."""

import sys
from types import FrameType

import pytest
from msgspec.structs import replace

from tests.builders import a_job, a_node, a_state
from tests.decisions import decide
from voda.domain.node import PodNeeds
from voda.domain.state import ClusterState
from voda.placement import PLACERS
from voda.policies import POLICIES

ALL = pytest.mark.parametrize("placer", PLACERS)
MOST_CALLS = 1_000_000


def a_view(*, nodes: int, jobs: int, at_work: int = 0, **fields: int) -> ClusterState:
    """Return nodes of 8 GPUs that have CPUs for 5 workers; of the jobs at work, two have 2 workers on each node."""
    needs = PodNeeds(requests={"cpu": 12_000})
    placement = {f"j{at}": (f"n{at // 2}",) * 2 for at in range(at_work)}
    return a_state(
        nodes=[a_node(f"n{at}", gpus=8, room={"cpu": 64_000, "pods": 110_000}) for at in range(nodes)],
        jobs=[
            a_job(
                f"j{at}",
                submitted_at=float(at),
                needs=needs,
                workers=dict(enumerate(placement.get(f"j{at}", ()))),
                **fields,
            )
            for at in range(jobs)
        ],
        placement=placement,
    )


def planned(view: ClusterState, policy: str, placer: str) -> ClusterState:
    plan = decide(view, POLICIES.choose(policy), PLACERS.choose(placer), 100.0, cause="tick")
    jobs = {
        job_id: replace(job, workers=dict(enumerate(plan.placement.get(job_id, ()))))
        for job_id, job in view.jobs.items()
    }
    return replace(view, jobs=jobs, plan=plan)


def planned_in_few_steps(view: ClusterState, policy: str, placer: str) -> ClusterState:
    """Plan, and fail at once where more functions are called than a short time allows."""
    calls = 0

    def count(frame: FrameType, event: str, arg: object) -> None:
        nonlocal calls
        calls += event == "call"
        assert calls < MOST_CALLS

    sys.setprofile(count)
    try:
        return planned(view, policy, placer)
    finally:
        sys.setprofile(None)


@ALL
def test_jobs_of_fixed_size_when_cpus_run_short_then_few_steps_show_that_no_more_start(placer: str) -> None:
    sizes = {"min_replicas": 2, "max_replicas": 2, "requested_replicas": 2}
    view = planned_in_few_steps(a_view(nodes=20, jobs=80, at_work=40, **sizes), "fifo", placer)
    assert len(view.plan.placement) == 50
    assert planned_in_few_steps(view, "fifo", placer).plan.placement == view.plan.placement


@ALL
def test_elastic_jobs_when_cpus_run_short_then_all_start_in_few_steps_and_stay_as_they_are(placer: str) -> None:
    view = a_view(nodes=25, jobs=50, min_replicas=1, max_replicas=8, requested_replicas=4)
    first = planned_in_few_steps(view, "elastic-fifo", placer)
    assert len(first.plan.placement) == 50
    assert sum(map(len, first.plan.placement.values())) == 125
    assert planned_in_few_steps(first, "elastic-fifo", placer).plan.placement == first.plan.placement
