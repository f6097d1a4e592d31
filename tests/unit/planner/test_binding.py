"""What binds a job is what its reason says: its maximum, who set it, where it is alone, and who took its GPUs."""

from collections.abc import Mapping

from msgspec.structs import replace

from tests.builders import a_job, a_node, a_state
from tests.decisions import decide
from tests.reasons import said
from voda.domain.gpus import Gpus
from voda.domain.job import Job
from voda.domain.plan import Placement, Plan
from voda.domain.reasons.outcomes import Preempted, Starts
from voda.domain.reasons.policies import InOrder
from voda.domain.reasons.requests import Requested
from voda.domain.settings import Settings
from voda.domain.state import ClusterState
from voda.events.types import JobChanged
from voda.placement import PLACERS
from voda.planner.allocation.binding import BindingReasons
from voda.policies import POLICIES
from voda.projections.jobs.requests import requested_job

NINE_PAST_THREE = 15 * 3600.0 + 9 * 60.0


def a_view(*jobs: Job, gpus: int = 4, placement: Placement | None = None, fair: bool = False) -> ClusterState:
    view = a_state(jobs=jobs, nodes=[a_node("n1", gpus=gpus)], placement=placement)
    return replace(view, settings=Settings(fair_share="users")) if fair else view


def decided(view: ClusterState, policy: str = "elastic-fifo") -> Plan:
    return decide(view, POLICIES[policy], PLACERS["steady"], 0.0, cause="tick")


def running(job_id: str, workers: int, *, user: str = "", **fields: int) -> Job:
    return a_job(job_id, user=user, workers=dict.fromkeys(range(workers), "n1"), **fields)


def test_elastic_job_when_it_has_its_maximum_is_told_so() -> None:
    plan = decided(a_view(a_job("a", max_replicas=3), a_job("b", submitted_at=1.0)))
    assert said(plan.reasons["a"]) == "starts with 3 workers, 3 is its maximum"


def test_job_when_somebody_sets_its_maximum_is_told_who_and_when() -> None:
    job = running("a", 4, max_replicas=4)
    lowered = requested_job(job, JobChanged(job_id="a", max_replicas=1, by="ann"), NINE_PAST_THREE, stays=True)
    plan = decided(a_view(lowered, placement={"a": ("n1",) * 4}))
    assert said(plan.reasons["a"]) == "shrunk from 4 to 1 worker: ann set its maximum to 1 at 15:09 UTC, Jan 01"


def test_job_when_an_unknown_user_set_its_maximum_names_the_time_alone() -> None:
    lowered = requested_job(a_job("a", max_replicas=4), JobChanged(job_id="a", max_replicas=2), 0.0, stays=False)
    plan = decided(a_view(lowered))
    assert said(plan.reasons["a"]) == "starts with 2 workers, its maximum was set to 2 at 00:00 UTC, Jan 01"


def test_job_when_only_its_priority_is_set_has_the_maximum_of_its_submission() -> None:
    job = requested_job(a_job("a", max_replicas=2), JobChanged(job_id="a", priority=3, by="ann"), 5.0, stays=True)
    assert job.maximum is None


def test_job_when_it_is_alone_among_those_of_its_priority_is_no_only_job() -> None:
    plan = decided(a_view(a_job("a", max_replicas=8), a_job("b", max_replicas=2, priority=1)))
    assert said(plan.reasons["b"]) == "starts with 2 workers, 2 is its maximum"
    assert "it is the only job of priority 0" in said(plan.reasons["a"])


def test_job_when_it_is_alone_for_a_policy_but_not_in_the_pool_is_no_only_job() -> None:
    view = a_view(a_job("a"), a_job("b"))
    alone = Starts(workers=1, why=(InOrder(running=1, gpus=Gpus(3)),))
    reasons = BindingReasons(view, {"a": alone}, {})
    assert said(reasons["a"]) == "starts with 1 worker, no other job may have its 3 GPUs now"
    halted = a_view(a_job("a"), a_job("b", halt=Requested(by="ann")))
    assert said(BindingReasons(halted, {"a": alone}, {})["a"]) == "starts with 1 worker, it is the only job for 3 GPUs"


def test_job_when_preempted_is_told_by_which_jobs_of_which_users() -> None:
    low = running("low", 4, min_replicas=4, max_replicas=4)
    above: Mapping[str, int] = {"x": 1, "y": 2, "z": 1}
    higher = [
        a_job(name, user=f"{name}-user", priority=5, min_replicas=size, max_replicas=size)
        for name, size in above.items()
    ]
    plan = decided(a_view(low, *higher, placement={"low": ("n1",) * 4}))
    assert said(plan.reasons["low"]).startswith(
        "preempted by job y of y-user, job x of x-user and 1 more: 3 jobs of higher priority have 4 GPUs"
    )


def test_job_when_others_get_no_more_than_was_free_is_preempted_by_none_of_them() -> None:
    low = running("low", 1)
    view = a_view(low, a_job("other"), placement={"low": ("n1",)})
    lost = {"low": Preempted(needs=Gpus(1))}
    assert said(BindingReasons(view, lost, {"other": ("n1",) * 3})["low"]) == "preempted: needs 1 GPU, none is free"
    assert "preempted by job other" in said(BindingReasons(view, lost, {"other": ("n1",) * 4})["low"])
