"""Jobs that make no use of the GPUs planned for them: others go first after a time, and they are tried again later."""

import math
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.builders import Log, a_job, a_node, a_spec, a_state
from tests.decisions import decide
from tests.reasons import said
from voda.domain.gpus import ContainerGpus, GpuDevice, GpuRequest, Gpus
from voda.domain.job import Job, Obstacle, StartBackoff
from voda.domain.plan import Plan
from voda.domain.reasons.nodes import Said
from voda.domain.reasons.requests import Requested
from voda.domain.reasons.stalls import Attaching
from voda.domain.settings import Settings
from voda.domain.shares import PodShares, SharingNode
from voda.domain.state import ClusterState
from voda.events.text.nodes import stuck_text
from voda.events.types import (
    AnyFact,
    JobBackedOff,
    JobChanged,
    JobCompleted,
    JobHaltRequested,
    JobResumeRequested,
    JobStalled,
    JobSubmitted,
    LeaderElected,
    NodeJoined,
    PlanAdopted,
    WorkerExited,
    WorkerStarted,
)
from voda.placement import PLACERS
from voda.planner.start_backoff import overdue, overdue_at, retry_at
from voda.policies import POLICIES
from voda.projections.live import Live

NOW = 1_000.0
EAGER = Settings(heeds_resize_cost=False)
PLACER_NAMES = tuple(PLACERS)


def planned(view: ClusterState, now: float = NOW, *, policy: str = "elastic-fifo", placer: str = "steady") -> Plan:
    return decide(view, POLICIES.choose(policy), PLACERS.choose(placer), now, cause="tick")


def a_backoff(*, at_work: int = 0, planned: int = 4, failures: int = 1, retry_at: float = NOW + 240) -> StartBackoff:
    return StartBackoff(
        reason=Said(text="no pods"),
        at_work=at_work,
        planned=planned,
        failures=failures,
        retry_at=retry_at,
        retry_after_s=240.0 * 2 ** (failures - 1),
    )


def a_view(*jobs: Job, placed_at: float = NOW, placement: Mapping[str, tuple[str, ...]] | None = None) -> ClusterState:
    """Return a node of four GPUs, all planned for `a` since then."""
    placement = {"a": ("n1",) * 4} if placement is None else placement
    view = a_state(jobs=jobs, nodes=[a_node("n1", gpus=4)], placement=placement, settings=EAGER)
    return replace(view, placed_at=dict.fromkeys(placement, placed_at))


def rigid(job_id: str, size: int = 4, **fields: Any) -> Job:
    return a_job(job_id, **{"min_replicas": size, "max_replicas": size, **fields})


def folded(*facts: tuple[float, AnyFact]) -> Live:
    log, live = Log(), Live()
    for at, fact in facts:
        live.apply(log.add(fact, at=at))
    return live


def a_plan(number: int = 1, **fields: object) -> PlanAdopted:
    common = {"pool": "default", "number": number, "based_on": 2, "policy": "fifo", "placer": "steady", "cause": "tick"}
    return PlanAdopted(**{**common, **fields})  # type: ignore[arg-type]


BEGINNING: tuple[tuple[float, AnyFact], ...] = (
    (0.0, NodeJoined(node=a_node("n1", gpus=4))),
    (0.0, NodeJoined(node=a_node("n2", gpus=4))),
    (0.0, JobSubmitted(spec=a_spec("a", min_replicas=4, max_replicas=4))),
)


# ---- which jobs are overdue


def test_job_that_holds_nothing_of_its_free_gpus_is_overdue_after_the_timeout() -> None:
    view = a_view(rigid("a"))
    assert (overdue(view, NOW + 119.9), overdue_at(view, NOW)) == ([], NOW + 120)
    [late] = overdue(view, NOW + 120)
    assert (late.at_work, late.planned, late.since, late.retry_after_s) == (0, 4, NOW, 240.0)
    assert overdue_at(view, NOW + 120) == math.inf


def test_reason_is_what_a_node_or_an_action_said_of_it() -> None:
    jobs = {
        "its GPUs are free, and none of its workers holds one": rigid("a"),
        "StartJob: quota exceeded": rigid("a", last_error="StartJob: quota exceeded"),
        "n1: 2 CPUs free, 4 needed": rigid("a", last_error="x", refusals={"n1": "2 CPUs free, 4 needed"}),
    }
    for reason, job in jobs.items():
        assert [stuck_text(late.reason) for late in overdue(a_view(job), NOW + 120)] == [reason]


def test_job_of_which_all_planned_replicas_are_done_is_not_overdue() -> None:
    job = a_job("a", kind="Job", done=(0, 1, 2, 3), done_of=4)
    assert overdue_at(a_view(job), NOW) == math.inf
    assert not overdue(a_view(job), NOW + 1_000)


def test_no_job_is_overdue_where_the_timeout_is_0() -> None:
    view = replace(a_view(rigid("a")), settings=Settings(start_timeout_s=0.0))
    assert (overdue(view, 1e9), overdue_at(view, NOW)) == ([], math.inf)


def test_job_whose_gpus_another_one_still_holds_is_not_overdue_until_long_after_they_are_free() -> None:
    view = a_view(rigid("a"), rigid("b", workers=dict.fromkeys(range(4), "n1")))
    assert overdue(view, 1e9) == []
    outlived = {"b": view.jobs["b"]}
    assert overdue(replace(view, jobs={"a": view.jobs["a"]}, outlived=outlived), 1e9) == []
    freed = replace(view, jobs={"a": view.jobs["a"]}, freed_at={"n1": NOW + 500})
    assert overdue_at(freed, NOW) == NOW + 620


def test_job_with_a_part_of_a_gpu_is_not_overdue_until_a_gpu_is_free_or_others_are_on_its_gpu() -> None:
    share = {"share": GpuRequest(milli=250), "gpus_per_replica": Gpus(0)}
    shares = [a_job("a", **share), a_job("b", **share)]
    placement = {"a": ("n1",), "b": ("n1",)}
    view = replace(a_view(*shares, placement=placement), nodes={"n1": a_node("n1", gpus=1, foreign_gpus=1)})
    view = replace(view, plan=replace(view.plan, devices={"a": ((0,),), "b": ((0,),)}))
    assert overdue(view, NOW + 9_999) == []
    free = replace(view, nodes={"n1": a_node("n1", gpus=1)})
    assert [each.job_id for each in overdue(free, NOW + 9_999)] == ["a", "b"]
    runs = {**view.jobs, "b": replace(view.jobs["b"], workers={0: "n1"})}
    assert [each.job_id for each in overdue(replace(view, jobs=runs), NOW + 9_999)] == ["a"]


def test_job_whose_gpu_another_one_still_leaves_is_not_overdue() -> None:
    jobs = [a_job(name, share=GpuRequest(milli=500), gpus_per_replica=Gpus(0)) for name in "ab"]
    view = a_view(replace(jobs[0], workers={0: "n1"}), jobs[1], placement={"a": ("n1",), "b": ("n1",)})
    view = replace(view, plan=replace(view.plan, devices={"a": ((0,),), "b": ((0,),)}))
    held = {"share": ContainerGpus(gpus=(0,), request=GpuRequest(milli=500))}
    pods = {uid: PodShares(pod=uid, containers=held, assigned_at=0.0) for uid in ("a", "leaving")}
    account = SharingNode(devices=(GpuDevice(memory_mib=16_000),), pods=pods)
    full = replace(view, shares={"n1": account})
    assert overdue(full, NOW + 9_999) == []
    account.pods.pop("leaving")
    assert [each.job_id for each in overdue(full, NOW + 9_999)] == ["b"]


def test_time_counts_anew_under_a_new_leader() -> None:
    assert overdue_at(replace(a_view(rigid("a")), led_at=NOW + 50), NOW) == NOW + 170


def test_halted_canceled_and_running_jobs_are_not_overdue() -> None:
    working = rigid("a", workers=dict.fromkeys(range(4), "n1"))
    for job in (rigid("a", halt=Requested()), rigid("a", is_canceling=True), working):
        assert overdue(a_view(job), 1e9) == []


def test_job_with_workers_is_overdue_where_the_cluster_says_what_keeps_them_from_work() -> None:
    job = rigid("a", workers=dict.fromkeys(range(4), "n1"), obstacle=Obstacle(Said(text="no image"), NOW + 10, 1))
    [late] = overdue(a_view(job), NOW + 130)
    assert (late.at_work, late.planned, late.reason) == (1, 4, Said(text="no image"))


def test_job_that_is_planned_elsewhere_again_and_again_does_not_begin_to_wait_anew() -> None:
    live = folded(
        *BEGINNING,
        (10.0, a_plan(placed={"a": ("n1",) * 4})),
        (100.0, a_plan(2, placed={"a": ("n2",) * 4})),
    )
    assert overdue_at(live.state("default"), 100.0) == 130.0


def test_gpus_that_an_ended_job_leaves_are_free_from_then_on() -> None:
    live = folded(
        *BEGINNING,
        (0.0, JobSubmitted(spec=a_spec("b", min_replicas=4, max_replicas=4))),
        (1.0, WorkerStarted(job_id="b", workers=dict.fromkeys(range(4), "n1"))),
        (5.0, JobCompleted(job_id="b")),
        (10.0, a_plan(placed={"a": ("n1",) * 4})),
        (300.0, WorkerExited(job_id="b", workers=(0, 1, 2, 3))),
        (310.0, LeaderElected(pool="default", leader="me")),
    )
    assert (live.state("default").freed_at, live.state("default").led_at) == ({"n1": 300.0}, 310.0)
    assert overdue_at(live.state("default"), 310.0) == 430.0


# ---- others go first


@pytest.mark.parametrize("placer", PLACER_NAMES)
def test_gpus_of_a_stuck_job_are_planned_for_others_whatever_its_priority(placer: str) -> None:
    stuck, other = rigid("a", priority=9, backoff=a_backoff()), rigid("b", submitted_at=5.0)
    plan = planned(a_view(stuck, other), placer=placer)
    assert plan.placement == {"b": ("n1",) * 4}
    assert said(plan.reasons["a"]) == (
        "waits: stuck with 0 of 4 planned workers at work: no pods; others go first for 4m 00s"
    )


def test_stuck_job_keeps_what_nobody_else_wants() -> None:
    plan = planned(a_view(rigid("a", backoff=a_backoff()), rigid("b", size=5)))
    assert plan.placement == {"a": ("n1",) * 4}
    assert said(plan.reasons["a"]).endswith(
        "stuck with 0 of 4 planned workers at work: no pods; others go first for 4m 00s"
    )


def test_stuck_job_is_planned_as_any_other_from_its_retry_on() -> None:
    view = a_view(rigid("a", priority=9, backoff=a_backoff()), rigid("b"), placement={"b": ("n1",) * 4})
    assert retry_at(view, NOW) == NOW + 240
    assert planned(view, NOW + 239.9).placement == {"b": ("n1",) * 4}
    assert planned(view, NOW + 240).placement == {"a": ("n1",) * 4}
    assert retry_at(view, NOW + 240) == math.inf


def test_stuck_jobs_keep_their_order_among_themselves() -> None:
    jobs = [rigid("a", backoff=a_backoff()), rigid("b", priority=3, backoff=a_backoff())]
    assert planned(a_view(*jobs)).placement == {"b": ("n1",) * 4}


def test_job_that_works_with_fewer_workers_keeps_them_and_gets_no_more() -> None:
    workers = dict.fromkeys(range(2), "n1")
    stuck = a_job("a", max_replicas=4, workers=workers, backoff=a_backoff(at_work=2))
    plan = planned(a_view(stuck, a_job("b", priority=9, min_replicas=1, max_replicas=2)))
    assert plan.replicas == {"a": 2, "b": 2}
    assert "stuck with 2 of 4 planned workers at work" in said(plan.reasons["a"])
    assert planned(a_view(stuck), NOW + 240).replicas == {"a": 4}


def test_job_that_holds_its_gpus_again_is_stuck_no_more() -> None:
    healed = rigid("a", workers=dict.fromkeys(range(4), "n1"), backoff=a_backoff())
    assert planned(a_view(healed, rigid("b", submitted_at=5.0))).placement == {"a": ("n1",) * 4}
    ill = replace(healed, obstacle=Obstacle(Said(text="no image"), NOW, 0))
    assert planned(a_view(ill, rigid("b", submitted_at=5.0))).placement == {"b": ("n1",) * 4}


@pytest.mark.parametrize(
    "request_", [JobChanged(job_id="a", priority=1), JobHaltRequested(job_id="a"), JobResumeRequested(job_id="a")]
)
def test_request_of_the_user_begins_anew(request_: AnyFact) -> None:
    backed_off = JobBackedOff(
        pool="default", job_id="a", at_work=0, planned=4, since=10.0, reason=Said(text="no pods"), retry_after_s=240.0
    )
    live = folded(*BEGINNING, (10.0, a_plan(placed={"a": ("n1",) * 4})), (130.0, backed_off))
    job = live.cluster.job("a")
    assert job is not None
    assert job.backoff == StartBackoff(
        reason=Said(text="no pods"), at_work=0, planned=4, failures=1, retry_at=370.0, retry_after_s=240.0
    )
    assert live.cluster.undecided("default") == {"a"}
    again = folded(*BEGINNING, (10.0, a_plan(placed={"a": ("n1",) * 4})), (130.0, backed_off), (140.0, request_))
    job = again.cluster.job("a")
    assert job is not None
    assert job.backoff is None
    if not job.is_halted:
        assert overdue_at(again.state("default"), 140.0) == 260.0


def test_obstacle_ends_with_the_stall_and_when_the_worker_starts_that_had_no_gpu() -> None:
    stalled = JobStalled(job_id="a", reason=Said(text="no pod"), at_work=1, since=5.0)
    for end in (JobStalled(job_id="a"), WorkerStarted(job_id="a", workers={0: "n1", 1: "n1"})):
        job = folded(*BEGINNING, (10.0, stalled), (20.0, end)).cluster.job("a")
        assert job is not None
        assert job.obstacle is None
    job = folded(*BEGINNING, (10.0, stalled), (20.0, WorkerStarted(job_id="a", workers={0: "n1"}))).cluster.job("a")
    assert job is not None
    assert job.obstacle == Obstacle(Said(text="no pod"), 5.0, 1)


# ---- delays


def test_delay_doubles_with_each_failure_in_a_row_up_to_an_hour() -> None:
    spans = []
    for failures in range(6):
        backoff = a_backoff(failures=failures, retry_at=NOW) if failures else None
        [late] = overdue(a_view(rigid("a", backoff=backoff)), NOW + 120)
        spans.append((late.failures, late.retry_after_s))
    assert spans == [(1, 240.0), (2, 480.0), (3, 960.0), (4, 1_920.0), (5, 3_600.0), (6, 3_600.0)]


def test_job_is_not_found_stuck_again_before_it_was_tried_again() -> None:
    assert overdue_at(a_view(rigid("a", backoff=a_backoff())), NOW) == NOW + 240 + 120


def test_failures_begin_anew_after_a_job_has_worked_for_long() -> None:
    ran: dict[str, Any] = {"last_started_at": NOW + 10, "last_halted_at": NOW + 900, "last_run_s": 890.0}
    [late] = overdue(a_view(rigid("a", backoff=a_backoff(failures=1), **ran)), NOW + 2_000)
    assert late.failures == 1
    [late] = overdue(a_view(rigid("a", backoff=a_backoff(failures=1), **{**ran, "last_run_s": 20.0})), NOW + 2_000)
    assert late.failures == 2


# ---- properties

SIZES = st.integers(1, 4)


@st.composite
def views(draw: st.DrawFn) -> ClusterState:
    """Return jobs of which some are stuck, and a former plan in which those may have GPUs."""
    nodes = [a_node(f"n{number}", gpus=draw(st.integers(1, 4))) for number in range(draw(st.integers(1, 3)))]
    jobs = []
    for number in range(draw(st.integers(1, 5))):
        least = draw(SIZES)
        fields = {"min_replicas": least, "max_replicas": least + draw(st.integers(0, 3)), "submitted_at": number}
        backoff = a_backoff() if draw(st.booleans()) else None
        jobs.append(a_job(f"j{number}", priority=draw(st.integers(0, 2)), backoff=backoff, **fields))
    free = a_state(jobs=[replace(job, backoff=None) for job in jobs], nodes=nodes, settings=EAGER)
    before = planned(free).placement
    return a_state(jobs=jobs, nodes=nodes, placement=before, settings=EAGER)


@given(view=views(), policy=st.sampled_from(("elastic-fifo", "elastic-srjf")), placer=st.sampled_from(PLACER_NAMES))
def test_others_get_as_much_as_if_the_stuck_jobs_were_not_there(view: ClusterState, policy: str, placer: str) -> None:
    plan = planned(view, policy=policy, placer=placer)
    others = {job_id: job for job_id, job in view.jobs.items() if job.backoff is None}
    before = {job_id: nodes for job_id, nodes in view.plan.placement.items() if job_id in others}
    alone = planned(replace(view, jobs=others, plan=replace(view.plan, placement=before)), policy=policy, placer=placer)
    assert {job_id: plan.replicas.get(job_id, 0) for job_id in others} == {
        job_id: alone.replicas.get(job_id, 0) for job_id in others
    }
    assert plan.reasons.keys() == view.jobs.keys()


def test_job_whose_devices_are_being_attached_is_overdue_only_after_kube_scheduler_has_waited_for_them() -> None:
    reason = Attaching(worker=0, node="n1", conditions=("fabric/attached",))
    view = a_view(rigid("a", obstacle=Obstacle(reason, NOW, 0)))
    due_at = NOW + 600.0 + view.settings.start_timeout_s
    assert overdue_at(view, NOW) == due_at
    assert overdue(view, due_at - 1.0) == []
    [fact] = overdue(view, due_at)
    assert (fact.reason, fact.at_work) == (reason, 0)


def test_job_whose_devices_are_attached_has_its_time_to_start_from_then_on() -> None:
    reason = Attaching(worker=0, node="n1", conditions=())
    view = a_view(rigid("a", obstacle=Obstacle(reason, NOW, 0)))
    assert overdue_at(view, NOW) == NOW + view.settings.start_timeout_s
