"""Jobs that are not restartable end once their run is lost, unless their cluster says how they ended."""

from tests.builders import Log, a_node, a_spec
from voda.controller.cancellations import TOLD_S, UnrestartableJobs
from voda.domain.reasons.holds import LostRun
from voda.events.types import (
    AnyFact,
    JobFailed,
    JobSubmitted,
    NodeJoined,
    PlanAdopted,
    WorkerExited,
    WorkerStarted,
)
from voda.projections.cluster.live_cluster import LiveCluster


def a_plan(number: int, **fields: object) -> PlanAdopted:
    common = {"pool": "default", "number": number, "based_on": 2, "policy": "fifo", "placer": "steady", "cause": "tick"}
    return PlanAdopted(**{**common, **fields})  # type: ignore[arg-type]


def folded(*facts: AnyFact, at: float = 100.0, is_restartable: bool = False) -> tuple[LiveCluster, UnrestartableJobs]:
    log, live, runs = Log(), LiveCluster(), UnrestartableJobs("default")
    spec = a_spec("a", min_replicas=2, max_replicas=2, is_restartable=is_restartable)
    begun = (
        NodeJoined(node=a_node("n1")),
        JobSubmitted(spec=spec),
        a_plan(1, placed={"a": ("n1", "n1")}),
        WorkerStarted(job_id="a", workers={0: "n1", 1: "n1"}),
    )
    for fact in (*begun, *facts):
        event = log.add(fact, at=at)
        live.apply(event)
        runs.see(event)
    return live, runs


RELEASED = a_plan(2, released=("a",))


def test_job_that_has_lost_its_workers_fails_after_a_while() -> None:
    live, runs = folded(WorkerExited(job_id="a", workers=(0, 1), cause="evicted"), RELEASED)
    assert not runs.ends(live, 100.0)
    assert runs.due_at == 100.0 + TOLD_S
    assert runs.ends(live, runs.due_at) == [(JobFailed(job_id="a", reason=LostRun(cause="evicted")), "lost-run-a")]


def test_job_that_is_still_planned_or_has_workers_is_waited_for() -> None:
    for facts in (
        (WorkerExited(job_id="a", workers=(0, 1), cause="evicted"),),
        (WorkerExited(job_id="a", workers=(0,), cause="evicted"), RELEASED),
        (WorkerExited(job_id="a", workers=(0, 1), cause="finished"), RELEASED),
        (RELEASED,),
    ):
        live, runs = folded(*facts)
        assert not runs.ends(live, 1_000.0)


def test_job_that_is_restartable_begins_again() -> None:
    live, runs = folded(WorkerExited(job_id="a", workers=(0, 1), cause="evicted"), RELEASED, is_restartable=True)
    assert not runs.ends(live, 1_000.0)


def test_jobs_are_found_by_a_leader_that_saw_no_submission() -> None:
    live, _ = folded(WorkerExited(job_id="a", workers=(0, 1), cause="node_lost"), RELEASED)
    runs = UnrestartableJobs("default")
    runs.begin(live)
    assert len(runs.ends(live, 1_000.0)) == 1
