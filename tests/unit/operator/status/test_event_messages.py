"""What of the log is told on a job's object."""

from collections.abc import Sequence

import pytest

from tests.builders import Log, a_spec
from tests.reasons import worded
from voda.domain.gpus import Gpus
from voda.domain.reasons.nodes import Said
from voda.domain.reasons.outcomes import Keeps, Reason, Resized, Starts
from voda.domain.reasons.policies import Gain, InOrder
from voda.domain.reasons.requests import Requested
from voda.events.types import (
    ActionFailed,
    AnyFact,
    JobCanceled,
    JobCancelRequested,
    JobChanged,
    JobCompleted,
    JobFailed,
    JobProgressed,
    JobRegistered,
    JobSubmitted,
    LeaderElected,
    PlanAdopted,
    WorkerExited,
    WorkerGpuSick,
    WorkerRefused,
    WorkerStarted,
)
from voda.operator.status.event_messages import EventMessages
from voda.projections.jobs.registry import JobRegistry

BEGIN: Sequence[AnyFact] = (
    JobSubmitted(spec=a_spec("a", min_replicas=1, max_replicas=4, user="ann")),
    JobRegistered(job_id="a", uid="u1"),
)


def a_plan(*nodes: str, why: "str | Reason" = "", **others: tuple[str, ...]) -> PlanAdopted:
    """Return a plan that gives job `a` these nodes; none: takes all away."""
    return PlanAdopted(
        pool="default",
        number=1,
        based_on=0,
        policy="fifo",
        placer="steady",
        cause="tick",
        placed={**({"a": nodes} if nodes else {}), **others},
        released=() if nodes else ("a",),
        reasons={"a": worded(why) if isinstance(why, str) else why} if why else {},
    )


def told(*facts: AnyFact, begins_after: int = 0) -> list[tuple[str, str]]:
    """Return (reason, message) of what is told of job `a`; what came before a position is folded, not followed."""
    log, job_registry = Log(), JobRegistry()
    story = EventMessages(job_registry.job)
    found: list[tuple[str, str]] = []
    for position, fact in enumerate(facts, start=1):
        event = log.add(fact, at=float(position))
        job_registry.apply(event)
        if position == begins_after:
            story.begin(job_registry.jobs().values())
        elif position > begins_after:
            found += [(one.reason, one.text) for one in story.of(event) if one.job_id == "a"]
    return found


def test_job_is_queued_once_it_has_its_object() -> None:
    expected = [("Queued", "queued as job a in pool default: 1 to 4 workers of 1 GPU, for user ann")]
    assert told(*BEGIN) == expected


def test_start_is_told_when_workers_are_there_with_the_plans_reason() -> None:
    facts = (
        *BEGIN,
        a_plan("n1", "n1", "n2", why="fits"),
        WorkerStarted(job_id="a", workers={0: "n1", 1: "n1", 2: "n2"}),
    )
    assert told(*facts)[1:] == [("Started", "started with 3 workers on n1 x2, n2: fits")]


def test_start_of_some_of_the_planned_workers_is_told_as_such() -> None:
    plan = a_plan("n1", "n1", "n2", why="fits")
    facts = (*BEGIN, plan, WorkerStarted(job_id="a", workers={0: "n1", 1: "n1"}))
    assert told(*facts)[1:] == [("Started", "started with 2 of 3 workers on n1 x2: fits")]


def test_resize_tells_old_and_new_size_and_why() -> None:
    assert told(*BEGIN, a_plan("n1"), a_plan("n1", "n2", why="GPUs are free"))[1:] == [
        ("Resized", "1 -> 2 workers: GPUs are free")
    ]


def test_migration_tells_which_worker_goes_where() -> None:
    assert told(*BEGIN, a_plan("n1", "n2"), a_plan("n1", "n3", why="consolidates"))[1:] == [
        ("Migrated", "moves worker 1 from n2 to n3: consolidates")
    ]


def test_large_migration_is_told_short() -> None:
    old, new = ["n1"] * 96 + ["n2"] * 4, ["n3"] * 90 + [f"n{node}" for node in range(4, 14)]
    ((reason, message),) = told(*BEGIN, a_plan(*old), a_plan(*new, why=Keeps(workers=100)))[1:]
    assert reason == "Migrated"
    assert message == (
        "moves workers 0, 1, 2, 3, ... from n1 to n3, worker 90 from n1 to n4, worker 91 from n1 to n5,"
        " worker 92 from n1 to n6 and 7 more"
    )


@pytest.mark.parametrize(
    ("why", "expected"),
    [
        (Resized(had=1, workers=2, why=(Gain(per_gpu=0.5),)), "1 -> 2 workers: highest gain 0.50/GPU"),
        (Resized(had=4, workers=2), "1 -> 2 workers: as requested"),
        (Keeps(workers=2), "1 -> 2 workers"),
    ],
)
def test_size_is_said_once(why: Reason, expected: str) -> None:
    assert told(*BEGIN, a_plan("n1"), a_plan("n1", "n2", why=why))[1:] == [("Resized", expected)]


def test_start_on_other_nodes_is_a_resumption_whose_reason_is_not_that_of_the_size() -> None:
    facts = (
        *BEGIN,
        a_plan("n1", why=Starts(workers=1, why=(InOrder(running=1, others=1, gpus=Gpus(2)),))),
        WorkerStarted(job_id="a", workers={0: "n1"}),
        a_plan("n2", why=Keeps(workers=1)),
        WorkerExited(job_id="a", workers=(0,), cause="migrated"),
        WorkerStarted(job_id="a", workers={0: "n2"}),
    )
    assert told(*facts)[1:] == [
        ("Started", "started with 1 worker on n1: 1 of 2 jobs has 2 GPUs, first submitted first"),
        ("Migrated", "moves worker 0 from n1 to n2"),
        ("Resumed", "resumed with 1 worker on n2"),
    ]


def test_plan_that_changes_nothing_for_the_job_is_not_told() -> None:
    assert told(*BEGIN, a_plan("n1"), a_plan("n1", why="as before"))[1:] == []


def test_preemption_and_resumption_are_told() -> None:
    facts = (
        *BEGIN,
        a_plan("n1"),
        WorkerStarted(job_id="a", workers={0: "n1"}),
        a_plan(why="others were served less"),
        WorkerExited(job_id="a", workers=(0,)),
        a_plan("n2", why="its turn"),
        WorkerStarted(job_id="a", workers={0: "n2"}),
    )
    assert told(*facts)[2:] == [
        ("Preempted", "gives up 1 worker: others were served less"),
        ("Resumed", "resumed with 1 worker on n2: its turn"),
    ]


def test_release_of_a_job_that_is_canceled_or_over_is_no_preemption() -> None:
    canceling = (*BEGIN, a_plan("n1"), JobCancelRequested(job_id="a", reason=Requested(by="ann")), a_plan())
    assert told(*canceling)[1:] == [("Canceling", "cancellation requested by ann")]
    assert told(*BEGIN, a_plan("n1"), JobCompleted(job_id="a"), a_plan())[1:] == [("Completed", "completed")]


@pytest.mark.parametrize(
    ("fact", "expected"),
    [
        (WorkerExited(job_id="a", workers=(0,), cause="evicted"), ("WorkerLost", "worker 0 was evicted")),
        (WorkerExited(job_id="a", workers=(0, 1), cause="node_lost"),
         ("WorkerLost", "workers 0, 1 were lost with their nodes")),
        (
            WorkerExited(job_id="a", workers=(2,), cause="failed", exit_code=137),
            ("WorkerLost", "worker 2 failed by itself with exit code 137"),
        ),
        (WorkerRefused(job_id="a", node="n1", reason=Said(text="2 CPUs free, 4 needed")),
         ("WorkerRefused", "node n1 cannot take its workers: 2 CPUs free, 4 needed")),
        (WorkerGpuSick(job_id="a", worker=2, node="n1"), ("SickGpu", "the GPU of worker 2 on n1 is well again")),
        (ActionFailed(job_id="a", action="StartJob", error="no quota", attempt=3),
         ("ActionFailed", "StartJob failed (attempt 3): no quota")),
        (JobChanged(job_id="a", max_replicas=8, priority=0),
         ("Changed", "settings changed: max_replicas = 8, priority = 0")),
        (JobFailed(job_id="a", reason=Said(text="exit code 1")), ("Failed", "failed: exit code 1")),
        (JobCanceled(job_id="a"), ("Canceled", "canceled")),
    ],
)  # fmt: skip
def test_what_befalls_a_job_is_told(fact: AnyFact, expected: tuple[str, str]) -> None:
    assert told(*BEGIN, fact)[1:] == [expected]


@pytest.mark.parametrize(
    "fact",
    [
        WorkerExited(job_id="a", workers=(0,), cause="stopped"),
        WorkerRefused(job_id="a", node="n1"),
        JobProgressed(job_id="a", epochs_done=1.0, workers=1),
        LeaderElected(pool="default", leader="x"),
    ],
)
def test_what_changes_nothing_for_its_owner_is_not_told(fact: AnyFact) -> None:
    assert told(*BEGIN, fact)[1:] == []


def test_object_made_anew_is_told_instead_of_a_second_queueing() -> None:
    facts = (*BEGIN, WorkerStarted(job_id="a", workers={0: "n1"}), JobRegistered(job_id="a", uid=""))
    assert told(*facts, JobRegistered(job_id="a", uid="u2"))[2:] == [
        ("Recreated", "voda made a new object for the job, which goes on from its last checkpoint")
    ]


def test_story_taken_up_in_the_middle_knows_the_size_before() -> None:
    facts = (*BEGIN, a_plan("n1"), a_plan("n1", "n2", why="grows"))
    assert told(*facts, begins_after=3) == [("Resized", "1 -> 2 workers: grows")]


def test_story_that_does_not_know_the_size_before_tells_none() -> None:
    log, job_registry = Log(), JobRegistry()
    for fact in (*BEGIN, a_plan("n1")):
        job_registry.apply(log.add(fact, at=1.0))
    story = EventMessages(job_registry.job)
    event = log.add(a_plan("n1", "n2"), at=2.0)
    job_registry.apply(event)
    assert story.of(event) == ()


def test_plan_for_jobs_that_are_not_known_is_no_trouble() -> None:
    assert told(a_plan("n1"), a_plan(), WorkerExited(job_id="a", workers=(0,), cause="evicted")) == []
