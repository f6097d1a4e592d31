"""The placer `frugal`: a job is brought together where that pays for all who move for it."""

import pytest
from hypothesis import given

from tests.builders import a_job, a_node, a_state
from tests.contract.test_placers import ANY, MIXED, Request
from voda.domain.job import Job
from voda.domain.plan import Placement
from voda.domain.state import ClusterState, Estimate, linear_speedup
from voda.placement import PLACERS
from voda.placement.costs import PlacementCosts
from voda.placement.steady import settled

FRUGAL = PLACERS["frugal"]


def estimated(left_s: float, *, penalty: float = 0.5, restart_s: float = 30.0) -> Estimate:
    """Return what is believed of a job that needs so many seconds more on each number of workers."""
    speedup = (0.0, *([1.0] * 8))
    return Estimate(
        speedup=speedup,
        remaining_s=left_s,
        span_penalty=penalty,
        resize_cost_s=restart_s,
    )


def at_work(job_id: str, *nodes: str) -> Job:
    return a_job(job_id, min_replicas=len(nodes), max_replicas=8, workers=dict(enumerate(nodes)))


def placed(in_force: Placement, estimates: dict[str, Estimate], *jobs: Job, **sizes: int) -> Placement:
    """Return what the placer makes of jobs on two nodes of four GPUs; each keeps its size unless `sizes` has one."""
    everyone = [*(at_work(job_id, *nodes) for job_id, nodes in in_force.items()), *jobs]
    nodes = [a_node(f"n{number}", gpus=4) for number in (1, 2)]
    state = a_state(jobs=everyone, nodes=nodes, placement=in_force, estimates=estimates)
    return FRUGAL.place(state, {job_id: len(nodes) for job_id, nodes in in_force.items()} | sizes, 0.0)


SPANNING = {"wide": ("n1", "n1", "n2"), "small": ("n1",), "other": ("n2", "n2")}
"""One GPU is free, on n1 or n2 as `other` has it."""


@pytest.mark.parametrize(
    ("wide_left_s", "small_left_s", "moves"),
    [
        pytest.param(1000.0, 1000.0, True, id="it saves 500 s, and two restarts cost 60"),
        pytest.param(110.0, 1000.0, False, id="it saves 55 s, and two restarts cost 60"),
        pytest.param(1000.0, 30.0, False, id="the other ends before its own restart is over"),
    ],
)
def test_job_that_spans_when_another_could_leave_then_both_move_where_that_pays(
    wide_left_s: float, small_left_s: float, moves: bool
) -> None:
    estimates = {"wide": estimated(wide_left_s), "small": estimated(small_left_s), "other": estimated(10.0)}
    together = {"wide": ("n1",) * 3, "small": ("n2",), "other": ("n2", "n2")}
    in_force = {**SPANNING, "fourth": ("n1",)}
    held = {"fourth": ("n1",)}
    answer = placed(in_force, {**estimates, "fourth": estimated(10.0)})
    assert answer == ({**together, **held} if moves else in_force)


def test_job_that_ends_soon_when_it_spans_then_it_stays() -> None:
    in_force = {"wide": ("n1", "n2")}
    assert placed(in_force, {"wide": estimated(61.0)}) == {"wide": ("n1", "n1")}
    assert placed(in_force, {"wide": estimated(59.0)}) == in_force


def test_jobs_when_one_starts_and_one_of_them_must_span_then_the_one_that_loses_less_does() -> None:
    in_force = {"a": ("n1", "n1"), "b": ("n2", "n2")}
    estimates = {"a": estimated(9000.0, penalty=0.0), "b": estimated(9000.0, penalty=0.0)}
    new = a_job("new", min_replicas=2, max_replicas=8)
    answer = placed({**in_force, "c": ("n1",), "d": ("n2",)}, {**estimates, "new": estimated(9000.0)}, new, new=2)
    assert answer["new"] in (("n1", "n1"), ("n2", "n2"))


def losses(request: Request, placement: Placement) -> tuple[float, int]:
    """Return what a placement costs all jobs by the placer's own figures: seconds, and nodes beyond the first."""
    state, replicas = request
    costs = PlacementCosts(state, replicas, 0.0)
    each = [costs.of(job_id, nodes) for job_id, nodes in placement.items()]
    return round(sum(loss.seconds for loss in each), 3), sum(loss.nodes for loss in each)


@given(request=ANY)
def test_frugal_when_given_anything_then_it_is_no_worse_than_moving_nobody_by_its_own_figures(request: Request) -> None:
    still, answer = settled(*request, keeps_spans=True), FRUGAL.place(*request, 0.0)
    sizes = {job_id: len(nodes) for job_id, nodes in still.items()}
    assert all(len(answer[job_id]) >= size for job_id, size in sizes.items())
    if {job_id: len(nodes) for job_id, nodes in answer.items()} == sizes:
        assert losses(request, answer) <= losses(request, still)


@given(request=MIXED)
def test_frugal_when_a_job_ends_within_the_cost_of_its_move_then_it_moves_for_nobody(request: Request) -> None:
    state, replicas = request
    costs = PlacementCosts(state, replicas, 0.0)
    still, answer = settled(*request, keeps_spans=True), FRUGAL.place(*request, 0.0)
    if {job_id: len(nodes) for job_id, nodes in answer.items()} == {
        job_id: len(nodes) for job_id, nodes in still.items()
    }:
        assert {job_id: answer[job_id] for job_id in still if costs.ends_soon(job_id)} == {
            job_id: nodes for job_id, nodes in still.items() if costs.ends_soon(job_id)
        }


def test_costs_when_a_jobs_length_is_unknown_then_it_is_to_last_as_long_as_it_has() -> None:
    job = a_job("a", max_replicas=4, workers={0: "n1", 1: "n2"}, attained_service_gpu_s=600.0)
    unknown = Estimate(speedup=linear_speedup(4), span_penalty=0.5, resize_cost_s=30.0)
    state: ClusterState = a_state(
        jobs=[job], nodes=[a_node("n1"), a_node("n2")], placement={"a": ("n1", "n2")}, estimates={"a": unknown}
    )
    costs = PlacementCosts(state, {"a": 2}, 0.0)
    assert costs.left_s("a") == 300.0
    assert costs.spanning_s("a") == 150.0
    assert [costs.moving_s("a", nodes) for nodes in (("n1", "n2"), ("n1", "n1"), ("n3", "n3"))] == [0.0, 30.0, 30.0]
