"""What events come to, in counters: starts, resizes and preemptions, each counted once."""

from tests.builders import Log, a_spec
from voda.events.types import (
    AnyFact,
    JobCanceled,
    JobCancelRequested,
    JobCompleted,
    JobSubmitted,
    PlanAdopted,
    WorkerExited,
    WorkerStarted,
)
from voda.projections.jobs.registry import JobRegistry
from voda.telemetry.job_counters import JobCounters
from voda.telemetry.prometheus import PrometheusTelemetry


class Told:
    """A log whose every event the trail sees."""

    def __init__(self) -> None:
        self.log, self.job_registry, self.telemetry = Log(), JobRegistry(), PrometheusTelemetry()
        self.trail = JobCounters(self.telemetry, self.job_registry)

    def add(self, fact: AnyFact, at: float) -> None:
        event = self.log.add(fact, at=at)
        self.job_registry.apply(event)
        self.trail.see(event)

    def submit(self, at: float = 0) -> None:
        self.add(JobSubmitted(spec=a_spec("a", max_replicas=8)), at)

    def plan(self, at: float, nodes: int, cause: str = "job.submitted") -> None:
        self.add(
            PlanAdopted(
                pool="default",
                number=1,
                based_on=0,
                policy="fifo",
                placer="steady",
                cause=cause,
                placed={"a": ("n1",) * nodes} if nodes else {},
                released=() if nodes else ("a",),
            ),
            at,
        )

    def start(self, at: float, *workers: int, node: str = "n1") -> None:
        self.add(WorkerStarted(job_id="a", workers=dict.fromkeys(workers, node)), at)

    def exit(self, at: float, *workers: int, cause: str = "stopped") -> None:
        self.add(WorkerExited(job_id="a", workers=workers, cause=cause), at)  # type: ignore[arg-type]

    def value(self, name: str, **labels: str) -> float:
        self.trail.settle()
        return self.telemetry.registry.get_sample_value(f"voda_{name}", {"pool": "default", **labels}) or 0.0

    def resizes(self, direction: str, reason: str) -> float:
        return self.value("resizes_total", direction=direction, reason=reason)


def a_running_job(size: int = 2) -> Told:
    told = Told()
    told.submit()
    told.plan(3, size)
    told.start(5, *range(size))
    return told


def test_first_start_tells_the_wait_in_the_queue_and_what_the_start_took() -> None:
    told = a_running_job()
    assert told.value("job_starts_total") == 1
    assert told.value("job_queue_wait_seconds_sum") == 5
    assert told.value("start_duration_seconds_sum") == 2
    assert told.value("workers_started_total") == 2


def test_growth_whose_workers_come_one_by_one_is_one_resize_until_the_last() -> None:
    told = a_running_job()
    told.plan(10, 4, cause="job.completed")
    told.start(11, 2)
    assert told.resizes("grow", "job.completed") == 0
    told.start(14, 3)
    assert told.resizes("grow", "job.completed") == 1
    assert told.value("resize_duration_seconds_sum", direction="grow") == 4
    assert told.value("resize_duration_seconds_count", direction="grow") == 1


def test_shrink_is_a_resize_with_the_cause_of_its_plan() -> None:
    told = a_running_job()
    told.plan(10, 1)
    told.exit(10.5, 1)
    assert told.resizes("shrink", "job.submitted") == 1
    assert told.value("resize_duration_seconds_sum", direction="shrink") == 0.5


def test_worker_that_dies_and_comes_back_shrinks_and_grows_without_a_plan() -> None:
    told = a_running_job()
    told.exit(20, 1, cause="failed")
    told.start(25, 1)
    assert told.resizes("shrink", "worker.exited") == told.resizes("grow", "worker.exited") == 1
    assert told.value("workers_exited_total", cause="failed") == 1


def test_restart_of_all_workers_at_one_instant_is_no_change_at_all() -> None:
    told = a_running_job()
    told.exit(20, 0, 1)
    told.start(20, 0, 1)
    assert told.value("preemptions_total") == told.value("job_interruptions_total") == 0
    assert told.value("job_starts_total") == 1


def test_job_that_loses_all_workers_is_preempted_by_a_plan_and_interrupted_without() -> None:
    told = a_running_job()
    told.exit(20, 0, 1, cause="node_lost")
    assert (told.value("preemptions_total"), told.value("job_interruptions_total")) == (0, 1)
    told.start(30, 0, 1)
    assert told.value("job_starts_total") == 2
    told.plan(40, 0)
    told.exit(41, 0, 1)
    assert (told.value("preemptions_total"), told.value("job_interruptions_total")) == (1, 1)


def test_migration_is_counted_and_is_no_resize() -> None:
    told = a_running_job()
    told.exit(20, 1, cause="migrated")
    told.start(22, 1, node="n2")
    assert told.value("migrations_total") == 1
    assert told.resizes("shrink", "worker.exited") == told.resizes("grow", "worker.exited") == 0


def test_end_tells_how_and_after_how_long_and_its_workers_are_no_shrink() -> None:
    told = a_running_job()
    told.exit(20, 1, cause="finished")
    told.exit(21, 0, cause="finished")
    told.add(JobCompleted(job_id="a"), 21)
    assert told.value("jobs_ended_total", phase="Completed") == 1
    assert told.value("job_completion_seconds_sum", phase="Completed") == 21
    assert told.resizes("shrink", "worker.exited") == told.value("job_interruptions_total") == 0


def test_canceled_job_is_neither_preempted_nor_interrupted() -> None:
    told = a_running_job()
    told.add(JobCancelRequested(job_id="a"), 9)
    told.exit(10, 0, 1)
    told.add(JobCanceled(job_id="a"), 11)
    assert told.value("preemptions_total") == told.value("job_interruptions_total") == 0
    assert told.value("job_cancel_requests_total") == told.value("jobs_ended_total", phase="Canceled") == 1


def test_trail_that_begins_late_knows_the_sizes_of_running_jobs() -> None:
    told = a_running_job()
    later = JobCounters(told.telemetry, told.job_registry)
    told.trail = later
    told.plan(30, 3)
    told.start(31, 2)
    assert told.resizes("grow", "job.submitted") == 1
    assert told.value("job_queue_wait_seconds_count") == 1


def test_change_when_a_new_plan_is_content_with_half_of_it_is_counted_as_far_as_it_came() -> None:
    told = Told()
    told.submit()
    told.plan(3, 4)
    told.start(5, 0, 1)
    told.plan(6, 2, cause="job.completed")
    assert (told.value("job_starts_total"), told.value("start_duration_seconds_sum")) == (1, 3)
    told.plan(10, 6, cause="node.joined")
    told.start(11, 2)
    told.plan(12, 3, cause="job.submitted")
    assert told.resizes("grow", "node.joined") == 1
    told.plan(13, 3, cause="job.changed")
    assert told.resizes("grow", "node.joined") == 1
