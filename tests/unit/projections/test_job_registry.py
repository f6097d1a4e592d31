"""The job_registry: what users see of each job, that it says what decisions and statistics say, and what it forgets."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.builders import Log, a_spec
from tests.manifests import a_torch_job
from tests.reasons import said, worded
from voda.domain.gpus import Gpus
from voda.domain.job import Phase
from voda.domain.job_array import ArrayTask
from voda.domain.node import PodNeeds
from voda.domain.reasons.nodes import Said
from voda.domain.reasons.requests import Requested
from voda.events.types import (
    ActionFailed,
    AnyFact,
    ExitCause,
    JobCanceled,
    JobCancelRequested,
    JobChanged,
    JobCompleted,
    JobFailed,
    JobFolderDeleted,
    JobHaltRequested,
    JobProgressed,
    JobQueueLevelChanged,
    JobRegistered,
    JobResumeRequested,
    JobSilent,
    JobStalled,
    JobSubmitted,
    NodeDrainRequested,
    PlanAdopted,
    ProgramFailed,
    WorkerExited,
    WorkerStarted,
)
from voda.projections.cluster.live_cluster import LiveCluster
from voda.projections.history import FinishedJob, History
from voda.projections.jobs.record import MOST_METRICS, JobRecord
from voda.projections.jobs.record_text import explanation_text, last_failure_text, obstacle_text
from voda.projections.jobs.registry import EndedJobs, JobRegistry
from voda.projections.usage import Usage, UsageRow
from voda.timetravel.job_reports import newest_reports


def folded(log: Log, job_registry: JobRegistry | None = None) -> JobRegistry:
    job_registry = job_registry or JobRegistry()
    for event in log.events:
        job_registry.apply(event)
    return job_registry


def the(log: Log, job_id: str = "a") -> JobRecord:
    record = folded(log).job(job_id)
    assert record is not None
    return record


def a_submitted_job(job_id: str = "a", **fields: object) -> Log:
    log = Log()
    log.add(JobSubmitted(spec=a_spec(job_id, **fields)), at=0)
    return log


def a_plan(number: int, based_on: int, **fields: object) -> PlanAdopted:
    given = {"pool": "default", "policy": "fifo", "placer": "steady", "cause": "tick", **fields}
    return PlanAdopted(number=number, based_on=based_on, **given)  # type: ignore[arg-type]


def test_job_that_a_log_submits_twice_is_the_first_while_that_lives_and_then_the_second() -> None:
    log = a_submitted_job(max_replicas=2)
    log.add(JobSubmitted(spec=a_spec("a", max_replicas=3)), at=1)
    assert the(log).job.spec.max_replicas == 2
    log.add(JobCompleted(job_id="a"), at=2)
    log.add(JobSubmitted(spec=a_spec("a", max_replicas=4)), at=3)
    assert (the(log).job.spec.max_replicas, the(log).is_live) == (4, True)


def test_job_that_has_ended_without_workers_is_not_changed_by_what_comes_late() -> None:
    log = a_submitted_job()
    log.add(JobCompleted(job_id="a"), at=2)
    before = the(log)
    log.add(WorkerStarted(job_id="a", workers={0: "n1"}), at=3)
    assert (the(log).revision, the(log).job) == (before.revision, before.job)


def test_job_from_submission_to_completion_is_told_as_it_happened() -> None:
    log = a_submitted_job(max_replicas=4, gpus_per_replica=2)
    log.add(a_plan(1, 1, placed={"a": ("n1", "n1")}, reasons={"a": worded("room for 2")}), at=1)
    log.add(WorkerStarted(job_id="a", workers={0: "n1", 1: "n1"}), at=10)
    log.add(JobProgressed(job_id="a", epochs_done=1, workers=2, epoch_s=5.0, metrics={"loss": 0.5}), at=15)
    log.add(WorkerExited(job_id="a", workers=(1,)), at=20)
    log.add(JobProgressed(job_id="a", epochs_done=2, workers=1, metrics={"accuracy": 0.9}), at=28)
    record = the(log)
    assert (record.phase, record.planned, said(record.reason)) == (Phase.RUNNING, ("n1", "n1"), "room for 2")
    assert (record.job.first_started_at, record.resizes, record.job.workers, record.revision) == (10, 0, {0: "n1"}, 6)
    assert (record.job.epochs_done, record.epoch_s, record.reported_at) == (2, 5.0, 28)
    assert record.metrics == {"loss": 0.5, "accuracy": 0.9}
    assert [(one.epochs_done, one.workers) for one in newest_reports(log.events)] == [(1, 2), (2, 1)]
    log.add(JobCompleted(job_id="a"), at=30)
    log.add(WorkerExited(job_id="a", workers=(0,), cause="finished"), at=31)
    record = the(log)
    assert (record.phase, record.finished_at, record.planned, record.job.workers) == (Phase.COMPLETED, 30, (), {})
    assert (record.job.waiting_s, record.job.running_s, record.job.attained_service_gpu_s) == (10, 20, 10 * 4 + 11 * 2)


def test_job_when_preempted_waits_again_and_says_so() -> None:
    log = a_submitted_job()
    log.add(WorkerStarted(job_id="a", workers={0: "n1"}), at=1)
    log.add(a_plan(1, 1, released=("a",), reasons={"a": worded("b goes first")}), at=2)
    log.add(WorkerExited(job_id="a", workers=(0,)), at=3)
    record = the(log)
    assert (record.is_preempted, record.planned, said(record.reason)) == (True, (), "b goes first")


def exits(cause: ExitCause, *workers: int) -> WorkerExited:
    return WorkerExited(job_id="a", workers=workers, cause=cause)


def placed(*nodes: str) -> PlanAdopted:
    return a_plan(2, 1, placed={"a": nodes})


RELEASED = a_plan(2, 1, released=("a",))
DRAINED = replace(RELEASED, cause=NodeDrainRequested.TYPE)
HALT, RESUME = JobHaltRequested(job_id="a"), JobResumeRequested(job_id="a")


@pytest.mark.parametrize(
    ("happened", "expected"),
    [
        ([RELEASED, exits("stopped", 0, 1)], "preempted"),
        ([DRAINED, exits("stopped", 0, 1)], "drained"),
        ([DRAINED, placed("n1", "n1"), RELEASED, exits("stopped", 0, 1)], "preempted"),
        ([DRAINED, HALT, exits("stopped", 0, 1)], "halted"),
        ([exits("failed", 0), DRAINED, exits("stopped", 1)], "failed"),
        ([HALT, RELEASED, exits("stopped", 0, 1)], "halted"),
        ([HALT, RELEASED, RESUME, exits("stopped", 0, 1)], "halted"),
        ([HALT, RELEASED, RESUME, placed("n2", "n2"), exits("stopped", 0), exits("failed", 1)], "halted"),
        ([HALT, RESUME, RELEASED, exits("stopped", 0, 1)], "preempted"),
        ([exits("failed", 0), exits("stopped", 1)], "failed"),
        ([exits("node_lost", 0), RELEASED, exits("stopped", 1)], "node_lost"),
        ([exits("evicted", 0), exits("failed", 1)], "evicted"),
        (
            [exits("failed", 0), WorkerStarted(job_id="a", workers={0: "n1"}), RELEASED, exits("stopped", 0, 1)],
            "preempted",
        ),
        ([placed("n1"), exits("evicted", 0), exits("stopped", 1)], ""),
        ([placed("n1", "n1", "n1"), exits("evicted", 0, 1)], ""),
        ([placed("n1"), exits("stopped", 1), exits("evicted", 0)], "evicted"),
        ([RELEASED, placed("n2", "n2"), exits("stopped", 0, 1)], ""),
        ([JobCancelRequested(job_id="a"), RELEASED, exits("stopped", 0, 1)], ""),
        ([exits("stopped", 0), exits("finished", 1)], "finished"),
    ],
)
def test_interruption_is_what_took_the_workers_and_preemption_only_a_plan_that_released_them(
    happened: list[AnyFact], expected: str
) -> None:
    log = a_submitted_job(max_replicas=3)
    log.add(a_plan(1, 1, placed={"a": ("n1", "n1")}), at=1)
    log.add(WorkerStarted(job_id="a", workers={0: "n1", 1: "n1"}), at=2)
    for at, fact in enumerate(happened, start=3):
        log.add(fact, at=at)
    live = LiveCluster()
    for event in log.events:
        live.apply(event)
    record, job = the(log), live.job("a")
    assert job is not None
    assert (record.phase, record.job.interruption, job.interruption) == (Phase.WAITING, expected, expected)
    assert record.is_preempted == (expected == "preempted")


def test_job_that_failed_or_was_canceled_says_why() -> None:
    log = a_submitted_job()
    log.add(JobSubmitted(spec=a_spec("b")), at=1)
    log.add(JobCancelRequested(job_id="b", reason=Requested(text="not needed")), at=2)
    assert the(log, "b").is_canceling
    log.add(JobFailed(job_id="a", reason=Said(text="out of memory")), at=3)
    log.add(JobCanceled(job_id="b"), at=3)
    assert (the(log, "a").phase, said(the(log, "a").reason)) == (Phase.FAILED, "out of memory")
    record = the(log, "b")
    assert (record.phase, said(record.reason), record.is_canceling) == (Phase.CANCELED, "not needed", False)


def test_stall_is_told_until_it_is_over_or_the_job_is() -> None:
    log = a_submitted_job()
    log.add(JobStalled(job_id="a", reason=Said(text="no image")), at=7)
    assert (obstacle_text(the(log)), explanation_text(the(log))) == ("no image", "no image")
    assert folded(log).changed_jobs == {"a"}
    log.add(JobStalled(job_id="a"), at=8)
    assert the(log).stall is None
    log.add(JobStalled(job_id="a", reason=Said(text="no image")), at=9)
    log.add(JobFailed(job_id="a", reason=Said(text="out of memory")), at=10)
    log.add(JobStalled(job_id="a", reason=Said(text="no pods")), at=11)
    assert (the(log).stall, explanation_text(the(log))) == (None, "out of memory")


def test_action_that_failed_is_counted_and_told() -> None:
    log = a_submitted_job()
    log.add(ActionFailed(job_id="a", action="start", error="no such command", retry_at=9.0), at=7)
    record = the(log)
    assert (record.job.failures, record.last_error, record.action_retry_at) == (1, "start: no such command", 9.0)


def test_error_of_an_action_holds_up_a_job_until_it_succeeds_or_another_plan_changes_the_job() -> None:
    log = a_submitted_job(max_replicas=3)
    log.add(a_plan(1, 1, placed={"a": ("n1",)}), at=1)
    log.add(ActionFailed(job_id="a", action="start", error="no such command", retry_at=4.0), at=2)
    assert (obstacle_text(the(log)), the(log).retry_at) == ("start: no such command", 4.0)
    log.add(WorkerStarted(job_id="a", workers={0: "n1"}), at=3)
    log.add(exits("failed", 0), at=4)
    assert (the(log).last_error, obstacle_text(the(log)), the(log).retry_at) == ("", "", None)
    log.add(ActionFailed(job_id="a", action="start", error="no such command"), at=5)
    log.add(a_plan(2, 5, placed={"a": ("n2", "n2")}), at=6)
    assert obstacle_text(the(log)) == ""


def test_job_that_has_ended_has_no_next_try() -> None:
    log = a_submitted_job()
    log.add(
        ProgramFailed(
            job_id="a", replica="worker-0", reason=Said(text="ended"), next_try=2, most_tries=7, next_try_at=9.0
        ),
        at=2,
    )
    assert (the(log).next_try, the(log).next_try_at) == (2, 9.0)
    log.add(JobCanceled(job_id="a"), at=3)
    assert (the(log).next_try, the(log).next_try_at, the(log).program_failures) == (0, None, 1)


def test_touched_names_the_jobs_of_the_last_event_alone() -> None:
    log = a_submitted_job("a")
    log.add(JobSubmitted(spec=a_spec("b")), at=1)
    job_registry = folded(log)
    assert job_registry.changed_jobs == {"b"}
    job_registry.apply(log.add(a_plan(1, 2, placed={"a": ("n1",)}), at=2))
    assert job_registry.changed_jobs == {"a", "b"}  # b waits from now on
    job_registry.apply(log.add(JobProgressed(job_id="unknown", epochs_done=1, workers=1), at=3))
    assert job_registry.changed_jobs == set()


def test_find_returns_the_live_job_of_a_name_else_its_latest_run_else_the_job_of_that_id() -> None:
    log = a_submitted_job("train", name="train")
    job_registry = folded(log)

    def found(named: str) -> str | None:
        record = job_registry.find(named)
        return record.spec.job_id if record else None

    assert (found("train"), found("@train")) == ("train", "train")
    job_registry.apply(log.add(JobCompleted(job_id="train"), at=1))
    assert (found("train"), job_registry.live_named("default", "train")) == ("train", None)
    job_registry.apply(log.add(JobSubmitted(spec=a_spec("train-2", name="train")), at=2))
    assert (found("train"), found("train-2"), found("@train"), found("@train-2")) == (
        "train-2",
        "train-2",
        "train",
        "train-2",
    )
    job_registry.apply(log.add(JobCompleted(job_id="train-2"), at=3))
    assert (found("train"), found("@train"), job_registry.live_named("default", "train")) == ("train-2", "train", None)
    job_registry.apply(log.add(JobSubmitted(spec=a_spec("lab_train", name="train", namespace="lab")), at=4))
    job_registry.apply(log.add(JobSubmitted(spec=a_spec("lab_train-2", name="train", namespace="lab")), at=5))
    assert (found("train"), found("lab_train"), job_registry.live_named("lab", "train")) == (
        "train-2",
        "lab_train-2",
        "lab_train-2",
    )
    job_registry.apply(log.add(JobSubmitted(spec=a_spec("x", name="y")), at=6))
    assert (found("y"), found("x"), found("@y"), found("nobody"), found("@")) == ("x", "x", None, None, None)


def test_name_that_is_also_the_id_of_another_run_means_the_job_of_that_name() -> None:
    log = a_submitted_job("train", name="train")
    log.add(JobCompleted(job_id="train"), at=1)
    log.add(JobSubmitted(spec=a_spec("train-2", name="train")), at=2)
    log.add(JobSubmitted(spec=a_spec("train-2-2", name="train-2")), at=3)
    record = folded(log).find("train-2")
    assert record is not None
    assert record.spec.job_id == "train-2-2"


def test_name_that_two_live_jobs_share_means_the_later_one_until_it_ends() -> None:
    log = a_submitted_job("train", name="train")
    log.add(JobSubmitted(spec=a_spec("train-2", name="train")), at=1)
    job_registry = folded(log)
    assert job_registry.live_named("default", "train") == "train-2"
    job_registry.apply(log.add(JobCompleted(job_id="train-2"), at=2))
    found = job_registry.find("train")
    assert found is not None
    assert (found.spec.job_id, job_registry.live_named("default", "train")) == ("train", "train")


def test_name_means_the_users_own_job_first_also_after_a_load() -> None:
    log = a_submitted_job("train", name="train", user="ann")
    log.add(JobCompleted(job_id="train"), at=1)
    log.add(JobSubmitted(spec=a_spec("train-2", name="train", user="bob")), at=2)
    job_registry = folded(log)
    loaded = JobRegistry()
    loaded.load(job_registry.dump())
    for one in (job_registry, loaded):
        found = {user: one.find("train", user) for user in ("ann", "bob", "eve", None)}
        ids = {user: record and record.spec.job_id for user, record in found.items()}
        assert ids == {"ann": "train", "bob": "train-2", "eve": "train-2", None: "train-2"}
        assert [one.find(named) is not None for named in ("ann/train", "bob/train", "eve/train")] == [True, True, False]
        # An id is named with its owner too, as the lines that show what a job waits for do.
        assert [one.find(named) is not None for named in ("bob/train-2", "ann/train-2")] == [True, False]
        assert set(one.names.users_of("train")) == {"ann", "bob"}


def test_name_means_the_users_live_job_rather_than_a_later_run_that_has_ended() -> None:
    log = a_submitted_job("train", name="train", user="ann")
    log.add(JobSubmitted(spec=a_spec("train-2", name="train", user="ann")), at=1)
    log.add(JobSubmitted(spec=a_spec("train-3", name="train", user="bob")), at=2)
    log.add(JobCompleted(job_id="train-2"), at=3)
    registry, loaded = folded(log), JobRegistry()
    loaded.load(registry.dump())
    for one in (registry, loaded):
        found = one.find("train", "ann")
        assert found is not None
        assert found.spec.job_id == "train"


def test_run_whose_id_is_a_name_is_found_until_a_job_has_that_name() -> None:
    log = a_submitted_job("train", name="train")
    log.add(JobCompleted(job_id="train"), at=1)
    registry = folded(log)
    registry.apply(log.add(JobSubmitted(spec=a_spec("train-2", name="train")), at=2))
    run = registry.run_with_id("train-2")
    assert run is not None
    assert run.spec.job_id == "train-2"
    assert (registry.run_with_id("train"), registry.run_with_id("other")) == (None, None)
    registry.apply(log.add(JobSubmitted(spec=a_spec("train-2-2", name="train-2")), at=3))
    assert registry.run_with_id("train-2") is None


def test_deleted_folder_is_noted_of_ended_jobs_alone() -> None:
    log = a_submitted_job("ended")
    log.add(JobSubmitted(spec=a_spec("live")), at=1)
    log.add(JobCompleted(job_id="ended"), at=2)
    for job_id in ("ended", "live", "forgotten"):
        log.add(JobFolderDeleted(job_id=job_id, by="ann"), at=3)
    registry = folded(log)
    noted = {job_id: (record.folder_deleted_at, record.folder_deleted_by) for job_id, record in registry.jobs().items()}
    assert noted == {"ended": (3, "ann"), "live": (None, "")}
    assert registry.changed_jobs == set()


def task(job_id: str, array_id: str, *, name: str = "sweep", user: str = "ann", index: int = 0) -> JobSubmitted:
    array = ArrayTask(array_id=array_id, name=name, index=index, indices="0-1")
    return JobSubmitted(spec=a_spec(job_id, user=user, array=array))


def test_array_when_its_last_task_is_forgotten_has_no_name_any_more() -> None:
    log, registry = Log(), JobRegistry(most_ended=0)
    for index in range(2):
        log.add(task(f"sweep-{index}", "sweep-0", index=index), at=0)
    log.add(JobCompleted(job_id="sweep-0"), at=1)
    folded(log, registry)
    assert registry.arrays.find("sweep", "ann") == "sweep-0"
    assert registry.arrays.find("sweep[0-1]", "ann") == registry.arrays.find("ann/sweep[0-1]") == "sweep-0"
    assert [registry.arrays.find(text) for text in ("sweep[0-2]", "sweep[", "[0-1]", "sweep[0-1", "other[0-1]")] == [
        None
    ] * 5
    assert [record.spec.job_id for record in registry.arrays.tasks("sweep-0")] == ["sweep-1"]
    registry.apply(log.add(JobCompleted(job_id="sweep-1"), at=2))
    assert registry.arrays.find("sweep", "ann") is None
    assert registry.arrays.find("sweep") is None
    assert registry.arrays.live("sweep") is None


def test_array_when_an_older_one_of_its_name_is_forgotten_keeps_the_name() -> None:
    log, registry = Log(), JobRegistry(most_ended=0)
    log.add(task("sweep-0", "sweep-0"), at=0)
    log.add(task("sweep-0-2", "sweep-0-2"), at=1)
    log.add(JobCompleted(job_id="sweep-0"), at=2)
    folded(log, registry)
    assert [registry.arrays.find("sweep", user) for user in ("ann", "bob", None)] == ["sweep-0-2"] * 3
    assert registry.arrays.live("sweep") == "sweep-0-2"


def test_arrays_when_the_newest_of_a_name_is_forgotten_mean_the_one_of_another_user() -> None:
    log, registry = Log(), JobRegistry(most_ended=0)
    log.add(task("sweep-0", "sweep-0", user="bob"), at=0)
    log.add(task("sweep-0-2", "sweep-0-2"), at=1)
    log.add(task("sweep-0-3", "sweep-0-3"), at=2)
    folded(log, registry)
    assert set(registry.arrays.users_of("sweep")) == {"ann", "bob"}
    registry.apply(log.add(JobCompleted(job_id="sweep-0-3"), at=3))
    registry.apply(log.add(JobCompleted(job_id="sweep-0-2"), at=4))
    assert [registry.arrays.find("sweep", user) for user in ("ann", "bob", None)] == ["sweep-0"] * 3
    assert set(registry.arrays.users_of("sweep")) == {"bob"}


def test_live_jobs_are_counted_by_user() -> None:
    log = a_submitted_job("a", user="ann")
    log.add(JobSubmitted(spec=a_spec("b", user="ann")), at=1)
    log.add(JobCompleted(job_id="a"), at=2)
    log.add(JobCompleted(job_id="a"), at=3)
    job_registry = folded(log)
    assert (job_registry.live.jobs("ann"), job_registry.live.jobs("bob")) == (1, 0)


def test_manifest_is_left_in_the_event_and_found_by_its_position() -> None:
    log = Log()
    log.add(JobSubmitted(spec=a_spec("b")), at=0)
    log.add(JobSubmitted(spec=a_spec("a", manifest={"kind": "MPIJob"})), at=0)
    record = the(log)
    assert record.spec.manifest is None
    fact = log.events[record.submitted_position - 1].data
    assert isinstance(fact, JobSubmitted)
    assert fact.spec.manifest == {"kind": "MPIJob"}


def test_forgotten_jobs_are_known_and_their_submissions_are_found() -> None:
    log, job_registry = Log(), JobRegistry(most_ended=2)
    for number in range(6):
        log.add(JobSubmitted(spec=a_spec(f"j{number}", name="n")), at=number)
    for number in (3, 0, 1, 2):
        log.add(JobCompleted(job_id=f"j{number}"), at=10)
    folded(log, job_registry)
    assert list(job_registry.jobs()) == ["j1", "j2", "j4", "j5"]
    assert [job_registry.is_known(f"j{number}") for number in range(7)] == [True] * 6 + [False]
    assert [job_registry.submission(f"e{number}") for number in range(1, 7)] == [f"j{number}" for number in range(6)]
    assert job_registry.submission("e7") is None
    again = JobRegistry(most_ended=2)
    again.load(job_registry.dump())
    assert again.submission("e1") == "j0"
    assert again.dump() == job_registry.dump()


def test_record_of_a_job_that_reports_grows_by_a_few_positions_and_no_metrics() -> None:
    def size_after(reports: int) -> int:
        log = a_submitted_job()
        for number in range(reports):
            metrics = {f"{number}-{one}-{'x' * 190}": 1.0 for one in range(MOST_METRICS)}
            log.add(JobProgressed(job_id="a", epochs_done=number, workers=1, metrics=metrics), at=number)
        return len(msgspec.msgpack.encode(the(log)))

    assert size_after(120) < size_after(1) + 200 < 10_000


def test_latest_metrics_stay_within_the_bounds_of_a_report_those_reported_last_first() -> None:
    log = a_submitted_job()
    for number in range(3 * MOST_METRICS):
        log.add(JobProgressed(job_id="a", epochs_done=1, workers=1, metrics={f"m{number}": float(number)}), at=1)
    log.add(JobProgressed(job_id="a", epochs_done=1, workers=1, metrics={"m200": 0.5}), at=2)
    assert the(log).metrics == {f"m{number}": float(number) for number in range(200, 300)} | {"m200": 0.5}
    log.add(JobProgressed(job_id="a", epochs_done=1, workers=1, metrics={"y" * 8_000: 1.0, "z": 2.0}), at=3)
    assert list(the(log).metrics) == [*(f"m{number}" for number in range(286, 300)), "y" * 8_000, "z"]
    log.add(JobProgressed(job_id="a", epochs_done=1, workers=1, metrics={"a": 1.0, "b" * 9_000: 2.0}), at=4)
    assert the(log).metrics == {"a": 1.0}


def test_programs_that_fail_are_counted_and_the_last_is_kept() -> None:
    log = a_submitted_job()
    for number in range(3):
        log.add(
            ProgramFailed(job_id="a", replica="worker-0", reason=Said(text=f"ended with exit code {number}")), at=number
        )
    assert (the(log).program_failures, last_failure_text(the(log))) == (3, "worker-0 ended with exit code 2")


def test_failures_inside_a_replica_are_counted_and_leave_the_tries_alone() -> None:
    log = a_submitted_job()
    log.add(ProgramFailed(job_id="a", replica="worker-0", reason=Said(text="ended"), next_try=2, most_tries=7), at=1)
    log.add(
        ProgramFailed(job_id="a", replica="worker-0", reason=Said(text="was killed for memory"), times_inside=3), at=2
    )
    assert (the(log).program_failures, the(log).next_try, the(log).most_tries) == (4, 2, 7)
    assert last_failure_text(the(log)) == "a process of worker-0 was killed for memory"


@pytest.mark.parametrize(
    ("then", "since"),
    [
        ((), 9.0),
        ((JobSilent(job_id="a"),), None),
        ((JobProgressed(job_id="a", epochs_done=1, workers=1),), None),
        ((WorkerStarted(job_id="a", workers={1: "n1"}),), None),
        ((WorkerExited(job_id="a", workers=(0,)),), None),
        ((JobFailed(job_id="a", reason=Said(text="oom")),), None),
        ((ProgramFailed(job_id="a", replica="worker-0", reason=Said(text="oom")),), 9.0),
    ],
)
def test_job_is_silent_until_it_prints_reports_or_changes(then: tuple[AnyFact, ...], since: float | None) -> None:
    log = a_submitted_job()
    log.add(WorkerStarted(job_id="a", workers={0: "n1"}), at=9)
    log.add(JobSilent(job_id="a", since=9.0, workers_before=0), at=69)
    for fact in then:
        log.add(fact, at=70)
    assert the(log).silent_since == since


def test_job_that_has_reported_meanwhile_is_not_silent() -> None:
    log = a_submitted_job()
    log.add(JobProgressed(job_id="a", epochs_done=1, workers=1), at=20)
    log.add(JobSilent(job_id="a", since=9.0), at=69)
    assert the(log).silent_since is None


JOBS = st.sampled_from(["a", "b", "c"])
NODES = st.sampled_from(["n1", "n2"])
CAUSES = st.sampled_from(["stopped", "migrated", "finished", "failed"])
INDICES = st.lists(st.integers(0, 4), unique=True, max_size=4).map(tuple)
FACTS: st.SearchStrategy[AnyFact] = st.one_of(
    st.builds(WorkerStarted, job_id=JOBS, workers=st.dictionaries(st.integers(0, 4), NODES, min_size=1)),
    st.builds(WorkerExited, job_id=JOBS, workers=INDICES, cause=CAUSES),
    st.builds(ProgramFailed, job_id=JOBS, replica=st.just("worker-0"), reason=st.just(Said(text="oom"))),
    st.builds(JobSilent, job_id=JOBS, since=st.none() | st.floats(0, 60), workers_before=st.integers(0, 8)),
    st.builds(JobProgressed, job_id=JOBS, epochs_done=st.floats(0, 100), workers=st.integers(0, 8)),
    st.builds(JobChanged, job_id=JOBS, min_replicas=st.integers(-1, 9), max_replicas=st.integers(-1, 9)),
    st.builds(JobQueueLevelChanged, pool=st.just("default"), job_id=JOBS, queue_level=st.integers(0, 1)),
    st.builds(JobCompleted, job_id=JOBS),
    st.builds(JobFailed, job_id=JOBS, reason=st.just(Said(text="oom"))),
    st.builds(JobCanceled, job_id=JOBS),
    st.builds(JobCancelRequested, job_id=JOBS),
    st.builds(JobHaltRequested, job_id=JOBS),
    st.builds(JobResumeRequested, job_id=JOBS),
    st.builds(JobRegistered, job_id=JOBS, uid=st.just("u1")),
    st.builds(ActionFailed, job_id=JOBS, action=st.just("start"), error=st.just("no")),
    st.builds(
        a_plan,
        st.integers(1, 9),
        st.integers(0, 60),
        placed=st.dictionaries(JOBS, st.lists(NODES, min_size=1, max_size=4).map(tuple)),
        released=st.lists(JOBS, unique=True).map(tuple),
        reasons=st.dictionaries(JOBS, st.sampled_from([worded("because"), worded("therefore")])),
    ),
)


@st.composite
def logs(draw: st.DrawFn) -> Log:
    """Facts in any order, some at one instant; every job is submitted once at most."""
    facts: list[AnyFact] = draw(st.lists(FACTS, max_size=40))
    for job_id in draw(st.lists(JOBS, unique=True)):
        spec = a_spec(job_id, max_replicas=4, gpus_per_replica=2, user="u", name=draw(st.sampled_from(["", "n"])))
        facts.insert(draw(st.integers(0, len(facts))), JobSubmitted(spec=spec))
    log, at = Log(), 0
    for fact in facts:
        at += draw(st.integers(0, 3))
        log.add(fact, at=at)
    return log


@given(logs())
def test_roster_says_of_live_jobs_what_decisions_read(log: Log) -> None:
    live, job_registry = LiveCluster(), JobRegistry()
    for event in log.events:
        live.apply(event)
        job_registry.apply(event)
        jobs, plan = live.jobs("default"), live.plan("default")
        assert {job_id: record.job for job_id, record in job_registry.jobs().items() if record.is_live} == jobs
        assert job_registry.live.jobs("u") == len(jobs)
        for job_id in jobs:
            record = job_registry.job(job_id)
            assert record is not None
            if record.revision == event.position:
                assert job_id in job_registry.changed_jobs
            # A plan may place a job before it is submitted, in logs like these: the job_registry cannot know it yet.
            if record.submitted_position < plan.based_on and all(
                not isinstance(one.data, PlanAdopted) for one in log.events[: record.submitted_position]
            ):
                assert record.planned == plan.placement.get(job_id, ())
                assert record.reason == plan.reasons.get(job_id)


@given(logs())
def test_roster_says_of_ended_jobs_what_the_history_says(log: Log) -> None:
    history, job_registry = History(), JobRegistry()
    for event in log.events:
        history.apply(event)
        job_registry.apply(event)
    ended = {record.spec.job_id: record for record in job_registry.jobs().values() if not record.is_live}
    assert set(ended) == {job.job_id for job in history.finished}
    for job in history.finished:
        record = ended[job.job_id]
        assert record.phase.lower() == job.outcome
        assert (record.finished_at, record.resizes, record.migrations) == (
            job.finished_at,
            job.resizes,
            job.migrations,
        )
        assert record.job.running_s == job.running_s
        assert record.job.waiting_s == pytest.approx(job.queueing_s)
        if not record.job.workers:
            assert record.job.attained_service_gpu_s == pytest.approx(job.gpu_s)


@given(logs(), st.integers(0, 43))
def test_snapshot_and_tail_give_the_state_of_a_full_fold(log: Log, cut: int) -> None:
    whole, tail = folded(log, JobRegistry(most_ended=1)), JobRegistry(most_ended=1)
    tail.load(folded(log.until(cut), JobRegistry(most_ended=1)).dump())
    for event in log.events[cut:]:
        tail.apply(event)
    assert tail.dump() == whole.dump()
    assert tail.live.users() == whole.live.users()
    assert tail.live_named("default", "n") == whole.live_named("default", "n")
    assert [tail.is_known(job_id) for job_id in "abc"] == [whole.is_known(job_id) for job_id in "abc"]


def test_reason_is_that_of_the_last_plan_that_gave_one_until_one_releases_the_job() -> None:
    log = a_submitted_job()
    log.add(a_plan(1, 1, placed={"a": ("n1",)}, reasons={"a": worded("starts on 1")}), at=1)
    log.add(a_plan(2, 2, placed={"a": ("n2",)}), at=2)
    assert said(the(log).reason) == "starts on 1"
    log.add(a_plan(3, 3, released=("a",)), at=3)
    assert (said(the(log).reason), the(log).planned) == ("", ())
    log.add(a_plan(4, 4, reasons={"a": worded("waits: needs 1 GPU, none is free")}), at=4)
    log.add(a_plan(5, 5, released=("a",), reasons={"a": worded("b goes first")}), at=5)
    assert said(the(log).reason) == "b goes first"


@pytest.mark.parametrize(("reason", "shown"), [(Requested(by="ada"), "halted by ada"), (Requested(), "halted")])
def test_job_when_halted_says_why(reason: Requested, shown: str) -> None:
    log = a_submitted_job()
    log.add(JobHaltRequested(job_id="a", reason=reason), at=1)
    assert (the(log).is_halted, explanation_text(the(log))) == (True, shown)


def test_job_that_was_preempted_and_has_ended_waits_no_more() -> None:
    log = a_submitted_job()
    log.add(WorkerStarted(job_id="a", workers={0: "n1"}), at=1)
    log.add(a_plan(1, 1, released=("a",)), at=2)
    log.add(WorkerExited(job_id="a", workers=(0,)), at=3)
    assert the(log).is_preempted
    log.add(JobCanceled(job_id="a"), at=4)
    assert not the(log).is_preempted


def test_job_that_has_ended_is_changed_by_the_exits_of_its_last_workers() -> None:
    log = a_submitted_job(max_replicas=2)
    log.add(WorkerStarted(job_id="a", workers={0: "n1", 1: "n1"}), at=1)
    log.add(JobCompleted(job_id="a"), at=2)
    registry = folded(log)
    registry.apply(log.add(WorkerExited(job_id="a", workers=(0,)), at=5))
    record = registry.job("a")
    assert record is not None
    assert (registry.changed_jobs, record.revision, record.job.workers) == ({"a"}, 4, {1: "n1"})
    registry.apply(log.add(JobProgressed(job_id="a", epochs_done=1, workers=1), at=6))
    assert (registry.changed_jobs, record.revision) == (set(), 4)


def test_epoch_into_which_a_change_fell_is_no_time_of_an_epoch_and_the_next_one_is() -> None:
    def reported(at: float, epoch_s: float) -> list[float | None]:
        done = 1 + the(log).reports.count
        log.add(JobProgressed(job_id="a", epochs_done=done, workers=1, epoch_s=epoch_s, is_raw=True), at=at)
        return [the(log).epoch_s, newest_reports(log.events)[-1].epoch_s]

    log = a_submitted_job(max_replicas=2)
    log.add(WorkerStarted(job_id="a", workers={0: "n1"}), at=0)
    assert reported(100, 70.0) == [70.0, 70.0]
    log.add(WorkerStarted(job_id="a", workers={1: "n1"}), at=130)
    assert reported(160, 90.0) == [70.0, None]
    # The change came before the last report: this epoch began after it, whatever its clock says.
    assert reported(200, 80.0) == [80.0, 80.0]


@pytest.mark.parametrize("changed_at", [210, 240])
def test_epoch_with_a_report_and_a_change_in_it_has_no_time(changed_at: float) -> None:
    log = a_submitted_job(max_replicas=2)
    log.add(WorkerStarted(job_id="a", workers={0: "n1"}), at=0)
    log.add(JobProgressed(job_id="a", epochs_done=1, workers=1, epoch_s=100.0, is_raw=True), at=100)
    log.add(WorkerStarted(job_id="a", workers={1: "n1"}), at=changed_at)
    for done, at in ((1.6, changed_at + 10), (1.9, changed_at + 70)):
        log.add(JobProgressed(job_id="a", epochs_done=done, workers=2, samples_per_s=9.0), at=at)
    log.add(JobProgressed(job_id="a", epochs_done=2, workers=2, epoch_s=200.0, is_raw=True), at=320)
    assert the(log).epoch_s == 100.0
    assert newest_reports(log.events)[-1].epoch_s is None
    log.add(JobProgressed(job_id="a", epochs_done=3, workers=2, epoch_s=60.0, is_raw=True), at=380)
    assert (the(log).epoch_s, newest_reports(log.events)[-1].epoch_s) == (60.0, 60.0)


def test_error_of_a_large_job_is_over_once_all_planned_workers_have_started() -> None:
    log = a_submitted_job(max_replicas=300)
    log.add(a_plan(1, 1, placed={"a": ("n1",) * 300}), at=1)
    log.add(ActionFailed(job_id="a", action="start", error="no such command"), at=2)
    log.add(WorkerStarted(job_id="a", workers=dict.fromkeys(range(299), "n1")), at=3)
    assert the(log).last_error == "start: no such command"
    log.add(WorkerStarted(job_id="a", workers={299: "n1"}), at=4)
    assert the(log).last_error == ""


def the_planned_job(*changes: tuple[str, ...] | dict[int, str] | int) -> JobRecord:
    """Return job a after plans (nodes), starts of workers (index -> node) and ends of one (index), in this order."""
    log = a_submitted_job(max_replicas=4)
    for at, change in enumerate(changes, start=1):
        match change:
            case tuple():
                placed = {"a": change} if change else {}
                log.add(a_plan(at, at, placed=placed, released=() if change else ("a",)), at=at)
            case dict():
                log.add(WorkerStarted(job_id="a", workers=change), at=at)
            case int():
                log.add(exits("stopped", change), at=at)
    assert the(log).resizes == usage_of(log).resizes == ended_job(log).resizes
    return the(log)


def usage_of(log: Log) -> UsageRow:
    usage = Usage(0, 1_000)
    for event in log.events:
        usage.apply(event)
    usage.close()
    return usage.total()


def ended_job(log: Log) -> FinishedJob:
    ended, history = Log(), History()
    ended.events = list(log.events)
    ended.add(JobCompleted(job_id="a"), at=1_000)
    for event in ended.events:
        history.apply(event)
    (job,) = history.finished
    return job


N1, N4 = "n1", ("n1",) * 4


@pytest.mark.parametrize(
    ("changes", "resizes"),
    [
        ((N4, {0: N1}, {1: N1, 2: N1}, {3: N1}), 0),
        ((N4, dict.fromkeys(range(4), N1), N4[:2], 3, 2), 1),
        ((N4[:1], {0: N1}, N4, {1: N1}, {2: N1}, {3: N1}, N4[:3], 3), 2),
        ((N4, dict.fromkeys(range(4), N1), 3, {3: N1}), 0),
        ((N4, dict.fromkeys(range(4), N1), 3, N4[:3]), 1),
        ((N4, dict.fromkeys(range(4), N1), (), 3, 2, 1, 0, N4[:2], {0: N1}, {1: N1}), 0),
    ],
    ids=["start by parts", "shrink by parts", "grown and shrunk", "lost and back", "lost for good", "preempted"],
)
def test_resizes_are_counted_when_workers_come_and_go_by_parts_once_for_each_new_size(
    changes: tuple[tuple[str, ...] | dict[int, str] | int, ...], resizes: int
) -> None:
    assert the_planned_job(*changes).resizes == resizes


def test_worker_that_starts_again_on_its_node_has_not_moved() -> None:
    log = a_submitted_job(max_replicas=2)
    log.add(WorkerStarted(job_id="a", workers={0: "n1"}), at=1)
    log.add(exits("failed", 0), at=5)
    log.add(WorkerStarted(job_id="a", workers={0: "n1", 1: "n1"}), at=5)
    assert (the(log).resizes, the(log).migrations) == (1, 0)
    log.add(WorkerStarted(job_id="a", workers={0: "n2"}), at=7)
    assert (the(log).resizes, the(log).migrations) == (1, 1)


def test_job_that_waits_already_is_not_changed_by_the_first_plan_that_considers_it() -> None:
    log = a_submitted_job()
    log.add(WorkerStarted(job_id="a", workers={0: "n1"}), at=1)
    log.add(exits("failed", 0), at=2)
    registry = folded(log)
    registry.apply(log.add(a_plan(1, 3), at=3))
    assert registry.changed_jobs == set()
    assert the(log).phase == Phase.WAITING


def test_ended_jobs_when_too_many_are_forgotten_of_the_user_who_has_most() -> None:
    log, registry = Log(), JobRegistry(most_ended=4)
    for job_id, user in (("a1", "ann"), ("a2", "ann"), ("b1", "bob"), ("b2", "bob"), ("b3", "bob"), ("b4", "bob")):
        log.add(JobSubmitted(spec=a_spec(job_id, user=user)), at=0)
        log.add(JobCompleted(job_id=job_id), at=1)
    assert list(folded(log, registry).jobs()) == ["a1", "a2", "b3", "b4"]
    again = JobRegistry(most_ended=4)
    again.load(registry.dump())
    more = [log.add(fact, at=2) for fact in (JobSubmitted(spec=a_spec("a3", user="ann")), JobCompleted(job_id="a3"))]
    for one in (registry, again):
        for event in more:
            one.apply(event)
    assert list(again.jobs()) == list(registry.jobs()) == ["a2", "b3", "b4", "a3"]
    assert again.dump() == registry.dump()


def test_ended_jobs_when_too_large_together_are_forgotten_of_the_user_who_has_most() -> None:
    log, registry = Log(), JobRegistry(most_ended_bytes=20_000)
    large = {f"key-{number}": "v" * 60 for number in range(50)}
    for number in range(12):
        user = "bob" if number else "ann"
        log.add(JobSubmitted(spec=a_spec(f"j{number}", user=user, labels=large if number else {})), at=0)
        log.add(JobCompleted(job_id=f"j{number}"), at=1)
    left = folded(log, registry).jobs()
    assert 3 <= len(left) <= 6
    assert list(left) == ["j0", *(f"j{number}" for number in range(13 - len(left), 12))]
    assert sum(len(msgspec.msgpack.encode(record)) for record in left.values()) <= 20_000
    assert registry.is_known("j1")


def test_record_says_what_starts_the_job_and_nothing_where_no_manifest_does() -> None:
    manifest = a_torch_job(container={"command": ["torchrun", "train.py"]})
    assert the(a_submitted_job(kind="PyTorchJob", manifest=manifest)).launcher == "torchrun"
    for unreadable in (None, {}, {"kind": "PyTorchJob", "spec": 3}):
        assert the(a_submitted_job(kind="PyTorchJob", manifest=unreadable)).launcher == ""
    assert the(a_submitted_job(kind="Sweep", manifest=manifest)).launcher == ""


def test_only_job_of_a_user_is_remembered_before_the_many_of_another() -> None:
    ended = EndedJobs(100, 1_000)
    for number in range(10):
        ended.add("ann", f"a{number}", 65)
    ended.add("bob", "b", 700)
    forgotten = []
    for job_id in ended.surplus():
        forgotten.append(job_id)
        ended.remove("bob" if job_id == "b" else "ann", job_id)
    assert forgotten == [f"a{number}" for number in range(6)]


def test_needs_that_a_job_is_given_later_count_among_the_bytes_of_its_user() -> None:
    log, registry = Log(), JobRegistry()
    registry.apply(log.add(JobSubmitted(spec=a_spec("a", user="ann")), at=0))
    before = registry.live.bytes("ann")
    needs = PodNeeds(selector={f"label-{number}": "x" * 60 for number in range(100)})
    registry.apply(log.add(JobChanged(job_id="a", gpus_per_replica=Gpus(2), needs=needs), at=1))
    assert registry.live.bytes("ann") - before >= len(msgspec.json.encode(needs)) - 10
    registry.apply(log.add(JobCanceled(job_id="a"), at=2))
    assert (registry.live.bytes("ann"), registry.live.jobs("ann")) == (0, 0)
