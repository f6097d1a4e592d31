"""Elastic-Value: who gets GPUs, at which sizes, and why."""

from msgspec.structs import replace

from tests.builders import a_job, a_node, a_state
from tests.reasons import said
from voda.domain.gpus import Gpus
from voda.domain.settings import Settings
from voda.domain.state import Belief, ClusterState, Estimate, Surplus
from voda.policies.elastic_value import ElasticValue


def an_estimate(remaining_s: float, *, serial: float = 0.05, cost_s: float = 30.0) -> Estimate:
    speedup = (0.0, *(n / (1 + serial * (n - 1)) for n in range(1, 17)))
    return Estimate(speedup=speedup, remaining_s=remaining_s, resize_cost_s=cost_s, speedup_belief=Belief("measured"))


def two_jobs(*, first_s: float, second_s: float, gpus: int = 8) -> ClusterState:
    return a_state(
        jobs=[
            a_job("first", max_replicas=8, requested_replicas=8),
            a_job("second", max_replicas=8, requested_replicas=8, submitted_at=1.0),
        ],
        nodes=[a_node("n1", gpus=gpus)],
        estimates={"first": an_estimate(first_s), "second": an_estimate(second_s)},
    )


def test_short_job_goes_before_a_long_one_whoever_came_first() -> None:
    for first_s, second_s, goes_first in ((1e5, 100.0, "second"), (100.0, 1e5, "first")):
        answer = ElasticValue().allocate(two_jobs(first_s=first_s, second_s=second_s, gpus=1), 1.0)
        assert [job_id for job_id, size in answer.replicas.items() if size] == [goes_first]


def test_sizes_fit_together_and_leave_no_node_torn() -> None:
    jobs = [a_job(name, max_replicas=16, requested_replicas=4) for name in "abc"]
    estimates = {name: an_estimate(1e4) for name in "abc"}
    view = a_state(jobs=jobs, nodes=[a_node(f"n{number}", gpus=4) for number in range(8)], estimates=estimates)
    sizes = ElasticValue().allocate(view, 0.0).replicas.values()
    assert all(size in (1, 2) or size % 4 == 0 for size in sizes)
    assert sum(sizes) == 32


def test_job_that_scales_badly_leaves_gpus_free_for_which_it_would_have_to_restart() -> None:
    job = a_job("a", max_replicas=8, requested_replicas=4, workers={0: "n1", 1: "n1"})
    estimate = an_estimate(1e5, serial=0.95, cost_s=300.0)
    view = a_state(jobs=[job], nodes=[a_node("n1", gpus=8)], placement={"a": ("n1",) * 2}, estimates={"a": estimate})
    answer = ElasticValue().allocate(view, 0.0)
    assert (answer.replicas, said(answer.reasons["a"])) == ({"a": 2}, "keeps 2 workers")


def test_running_job_grows_only_by_what_stays_free_for_long_enough() -> None:
    job = a_job("a", max_replicas=8, requested_replicas=8, workers=dict.fromkeys(range(4), "n1"))
    estimate = an_estimate(1e6, serial=0.0, cost_s=100.0)
    view = a_state(jobs=[job], nodes=[a_node("n1", gpus=8)], placement={"a": ("n1",) * 4}, estimates={"a": estimate})
    surplus = Surplus(runs=((950.0, Gpus(4)),), taken_at=950.0, lasted_s=50.0)
    assert ElasticValue().allocate(replace(view, surplus=surplus), 1000.0).replicas == {"a": 4}
    assert ElasticValue().allocate(replace(view, surplus=surplus), 2000.0).replicas == {"a": 8}


def test_job_whose_length_nobody_knows_is_believed_to_need_what_its_like_have_had() -> None:
    served = a_job("known-1", max_replicas=1, workers={0: "n1"}, attained_service_gpu_s=1e6)
    unknown = a_job("known-2", max_replicas=1, submitted_at=1.0)
    fresh = a_job("other", max_replicas=1, submitted_at=2.0)
    view = a_state(jobs=[served, unknown, fresh], nodes=[a_node("n1", gpus=2)], placement={"known-1": ("n1",)})
    assert ElasticValue().allocate(view, 2.0).replicas == {"known-1": 1, "known-2": 0, "other": 1}


def test_job_whose_length_nobody_knows_waits_no_longer_because_another_user_uses_its_name() -> None:
    served = a_job("known-1", user="bob", max_replicas=1, workers={0: "n1"}, attained_service_gpu_s=1e6)
    unknown = a_job("known-2", user="ada", max_replicas=1, submitted_at=1.0)
    fresh = a_job("other", user="ada", max_replicas=1, submitted_at=2.0)
    view = a_state(jobs=[served, unknown, fresh], nodes=[a_node("n1", gpus=2)], placement={"known-1": ("n1",)})
    assert ElasticValue().allocate(view, 2.0).replicas["known-2"] == 1
    trusting = replace(view, settings=Settings(share_measurements=True))
    assert ElasticValue().allocate(trusting, 2.0).replicas["known-2"] == 0


def long_job_behind_short_ones(fairness: float, waited_s: float) -> int:
    """Return what a long job gets that has waited, where a short one has the GPU."""
    jobs = [a_job("long"), a_job("short", submitted_at=waited_s)]
    view = a_state(
        jobs=jobs,
        nodes=[a_node("n1", gpus=1)],
        estimates={"long": an_estimate(1e4), "short": an_estimate(1e3)},
        settings=Settings(parameters={"elastic-value": {"fairness": fairness}}),
    )
    return ElasticValue().allocate(view, waited_s).replicas["long"]


def test_job_that_waits_goes_first_in_the_end_where_fairness_has_a_price() -> None:
    assert [long_job_behind_short_ones(1.0, waited_s) for waited_s in (0.0, 1e3, 1e6)] == [0, 0, 1]
    assert long_job_behind_short_ones(0.0, 1e6) == 0


def test_reasons_say_what_a_gpu_is_worth_here_and_elsewhere() -> None:
    view = two_jobs(first_s=1e5, second_s=100.0, gpus=1)
    reasons = ElasticValue().allocate(view, 1.0).reasons
    assert said(reasons["second"]) == (
        "starts with 1 worker, each GPU hour here ends all jobs together 3.58 h sooner, for the next in line 3.24 h"
    )
    assert said(reasons["first"]) == (
        "waits: needs 1 GPU, none is free; each GPU hour here would end all jobs together 1.96 h sooner,"
        " elsewhere 3.58 h or more"
    )


def test_job_that_only_lacks_gpus_is_not_said_to_be_worth_less() -> None:
    jobs = [a_job("small", submitted_at=1e4), a_job("large", min_replicas=8, max_replicas=8, requested_replicas=8)]
    estimates = {"small": an_estimate(1e5), "large": an_estimate(100.0)}
    view = a_state(jobs=jobs, nodes=[a_node("n1", gpus=4)], estimates=estimates)
    assert said(ElasticValue().allocate(view, 1e4).reasons["large"]) == "waits: needs 8 GPUs, 3 are free"
