"""Accounting by hand, and against two other readers of the same log: the timeline and the sums of each job."""

import math
from collections import defaultdict
from datetime import UTC, datetime
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import Log, a_spec
from voda.domain.reasons.nodes import Said
from voda.events.types import (
    JobCanceled,
    JobCompleted,
    JobFailed,
    JobSubmitted,
    WorkerExited,
    WorkerStarted,
)
from voda.projections.jobs.registry import JobRegistry
from voda.projections.timeline import Timeline
from voda.projections.usage import DAY_S, Usage, UsageKey, UsageRow


def usage_of(log: Log, since: float, until: float, user: str = "") -> Usage:
    usage = Usage(since, until, user)
    for event in log.events:
        if event.recorded_at < until:
            usage.apply(event)
    usage.close()
    return usage


def two_users() -> Log:
    """Ada's job of two GPUs a worker waits 10 s, grows, is halted and goes on; Bob's fails; Ada's other one waits."""
    log = Log()
    log.add(JobSubmitted(spec=a_spec("a", user="ada", gpus_per_replica=2, max_replicas=2)), at=0)
    log.add(WorkerStarted(job_id="a", workers={0: "n1"}), at=10)
    log.add(WorkerStarted(job_id="a", workers={1: "n2"}), at=20)
    log.add(JobSubmitted(spec=a_spec("b", user="bob", pool="a100")), at=20)
    log.add(WorkerExited(job_id="a", workers=(0, 1)), at=30)
    log.add(WorkerStarted(job_id="b", workers={0: "n1"}), at=50)
    log.add(WorkerStarted(job_id="a", workers={0: "n1"}), at=60)
    log.add(JobFailed(job_id="b", reason=Said(text="no")), at=70)
    log.add(WorkerExited(job_id="b", workers=(0,)), at=75)
    log.add(JobSubmitted(spec=a_spec("c", user="ada")), at=80)
    log.add(JobCanceled(job_id="c"), at=90)
    return log


def by_key(rows: list[UsageRow]) -> dict[str, UsageRow]:
    return {row.key: row for row in rows}


def test_usage_when_summed_by_user_tells_gpu_time_ends_waits_and_changes() -> None:
    rows = by_key(usage_of(two_users(), 0, 100).rows("user"))
    assert rows["ada"] == UsageRow(
        key="ada",
        jobs=2,
        submitted=2,
        started=1,
        completed=0,
        failed=0,
        canceled=1,
        gpu_s=2 * 10 + 4 * 10 + 2 * 40,
        running_s=20 + 40,
        wait_mean_s=10,
        wait_p95_s=10,
        restarts=1,
        resizes=1,
    )
    assert (rows["bob"].gpu_s, rows["bob"].running_s, rows["bob"].failed) == (25, 20, 1)
    assert (rows["bob"].wait_mean_s, rows["bob"].restarts) == (30, 0)


@pytest.mark.parametrize(("since", "until", "gpu_s"), [(15, 25, 2 * 5 + 4 * 5), (65, 100, 2 * 35), (0, 5, 0)])
def test_usage_when_a_window_cuts_a_run_counts_up_to_its_borders(since: float, until: float, gpu_s: float) -> None:
    assert usage_of(two_users(), since, until, "ada").total().gpu_s == gpu_s


def test_usage_when_a_job_started_at_the_end_of_the_window_belongs_to_the_next_one() -> None:
    assert usage_of(two_users(), 0, 10).total().started == 0
    assert usage_of(two_users(), 10, 11).total().started == 1


def test_usage_when_a_run_passes_midnight_is_divided_there() -> None:
    log = Log()
    log.add(JobSubmitted(spec=a_spec("a")), at=DAY_S - 20)
    log.add(WorkerStarted(job_id="a", workers={0: "n1"}), at=DAY_S - 10)
    log.add(JobCompleted(job_id="a"), at=2 * DAY_S + 5)
    rows = usage_of(log, 0, 9 * DAY_S).rows("day")
    assert [(row.key, row.running_s, row.started, row.completed) for row in rows[:3]] == [
        ("1970-01-01", 10, 1, 0),
        ("1970-01-02", DAY_S, 0, 0),
        ("1970-01-03", 5, 0, 1),
    ]
    # The worker has not exited, and holds its GPU to the end of the window.
    assert math.fsum(row.gpu_s for row in usage_of(log, 0, 9 * DAY_S).rows("day")) == 8 * DAY_S + 10


def test_usage_when_a_worker_outlives_its_job_counts_its_gpu_until_it_exits_too() -> None:
    log = Log()
    log.add(JobSubmitted(spec=a_spec("a", max_replicas=2)), at=0)
    log.add(WorkerStarted(job_id="a", workers={0: "n1", 1: "n1"}), at=10)
    log.add(JobCompleted(job_id="a"), at=20)
    log.add(WorkerExited(job_id="a", workers=(0,)), at=30)
    log.add(WorkerExited(job_id="a", workers=(1,)), at=50)
    total = usage_of(log, 0, 100).total()
    assert (total.gpu_s, total.running_s, total.completed) == (2 * 20 + 20, 10, 1)


@pytest.mark.parametrize(("user", "gpu_s", "ends"), [("", 50 + 15, (1, 1)), ("ada", 50, (1, 0)), ("bob", 15, (0, 1))])
def test_usage_when_it_begins_with_a_snapshot_counts_the_jobs_that_are_live_or_have_workers(
    user: str, gpu_s: float, ends: tuple[int, int]
) -> None:
    log = Log()
    log.add(JobSubmitted(spec=a_spec("a", user="ada")), at=0)
    log.add(WorkerStarted(job_id="a", workers={0: "n1"}), at=50)
    log.add(JobSubmitted(spec=a_spec("b", user="bob")), at=60)
    log.add(JobSubmitted(spec=a_spec("gone", user="bob")), at=60)
    log.add(JobCanceled(job_id="gone"), at=70)
    registry, usage = JobRegistry(), Usage(100, 200, user)
    for event in log.events:
        registry.apply(event)
    usage.begin_with(registry.jobs().values())
    later = Log()
    later.add(JobCompleted(job_id="a"), at=150)
    later.add(WorkerExited(job_id="a", workers=(0,)), at=150)
    later.add(WorkerStarted(job_id="b", workers={0: "n1"}), at=160)
    later.add(JobFailed(job_id="b", reason=Said(text="no")), at=175)
    later.add(WorkerExited(job_id="b", workers=(0,)), at=175)
    for event in later.events:
        usage.apply(event)
    usage.close()
    total = usage.total()
    assert (total.gpu_s, (total.completed, total.failed), total.submitted) == (gpu_s, ends, 0)
    assert total.wait_mean_s == (None if user == "ada" else 100.0)


_STEPS = st.lists(
    st.tuples(st.integers(0, 3), st.sampled_from(["submit", "start", "exit", "complete"]), st.integers(0, 2 * DAY_S)),
    max_size=40,
)


def drawn_log(steps: list[tuple[int, str, int]]) -> Log:
    log, now = Log(), 0.0
    for job, what, span_s in steps:
        job_id, worker = f"j{job}", span_s % 3
        # Now and then the clock is set back.
        now += span_s / 7 - (DAY_S / 2 if span_s % 11 == 0 else 0)
        now = max(now, 0.0)
        match what:
            case "submit":
                log.add(JobSubmitted(spec=a_spec(job_id, user=f"u{job % 2}", gpus_per_replica=1 + job)), at=now)
            case "start":
                log.add(WorkerStarted(job_id=job_id, workers={worker: f"n{span_s % 2}"}), at=now)
            case "exit":
                log.add(WorkerExited(job_id=job_id, workers=(worker,)), at=now)
            case _:
                log.add(JobCompleted(job_id=job_id), at=now)
    return log


@given(steps=_STEPS, cut=st.integers(0, 40), borders=st.tuples(st.integers(0, 20), st.integers(1, 20)))
def test_usage_when_drawn_equals_the_intervals_of_the_timeline(
    steps: list[tuple[int, str, int]], cut: int, borders: tuple[int, int]
) -> None:
    log, timeline = drawn_log(steps), Timeline()
    since = borders[0] * DAY_S / 4
    until = since + borders[1] * DAY_S / 4
    end = max((event.recorded_at for event in log.events), default=0.0)
    held: dict[str, float] = defaultdict(float)
    for event in log.events:
        timeline.apply(event)
    for segment in timeline.segments():
        held[segment.job_id] += segment.gpus * max(0.0, min(segment.to_s, until) - max(segment.from_s, since))
    usage = Usage(since, until)
    for event in log.events:
        usage.apply(event)
    usage.until = min(until, max(since, timeline.ends_at, end))
    usage.close()
    rows = {by: usage.rows(by) for by in get_args(UsageKey)}
    for by, some in rows.items():
        assert math.fsum(row.gpu_s for row in some) == pytest.approx(math.fsum(held.values())), by
    assert {row.key: row.gpu_s for row in rows["job"] if row.gpu_s} == pytest.approx(
        {job_id: gpu_s for job_id, gpu_s in held.items() if gpu_s}
    )
    # The same from a snapshot that lies before the window.
    before = [event for event in log.events[:cut] if event.recorded_at <= since]
    if len(before) == len(log.events[:cut]):
        registry, resumed = JobRegistry(), Usage(since, until)
        for event in before:
            registry.apply(event)
        restored = JobRegistry()
        restored.load(registry.dump())
        resumed.begin_with(restored.jobs().values())
        for event in log.events[cut:]:
            resumed.apply(event)
        resumed.until = usage.until
        resumed.close()
        assert resumed.total() == usage.total()


def test_rows_have_the_most_gpu_time_first_and_days_their_order() -> None:
    log = Log()
    for job_id, user, begin, span_s in (("a", "ann", 0, 10), ("b", "bob", DAY_S, 30), ("c", "cid", 0, 10)):
        log.add(JobSubmitted(spec=a_spec(job_id, user=user)), at=begin)
        log.add(WorkerStarted(job_id=job_id, workers={0: "n1"}), at=begin)
        log.add(WorkerExited(job_id=job_id, workers=(0,)), at=begin + span_s)
    log.events.sort(key=lambda event: event.recorded_at)
    usage = usage_of(log, 0, 2 * DAY_S)
    assert [(row.key, row.gpu_s) for row in usage.rows("user")] == [("bob", 30), ("ann", 10), ("cid", 10)]
    assert [(row.key, row.gpu_s) for row in usage.rows("day")] == [("1970-01-01", 20), ("1970-01-02", 30)]


@pytest.mark.parametrize(("jobs", "p95_s"), [(1, 1), (19, 19), (20, 19), (40, 38)])
def test_wait_that_95_of_100_jobs_do_not_exceed_is_one_of_the_waits(jobs: int, p95_s: float) -> None:
    log = Log()
    for number in range(jobs):
        log.add(JobSubmitted(spec=a_spec(f"j{number}")), at=0)
    for number in range(jobs):
        log.add(WorkerStarted(job_id=f"j{number}", workers={0: "n1"}), at=number + 1)
    total = usage_of(log, 0, 100).total()
    assert (total.started, total.wait_p95_s, total.wait_mean_s) == (jobs, p95_s, (jobs + 1) / 2)


def test_days_are_those_of_utc_also_many_years_after_1970() -> None:
    midnight = datetime(2026, 11, 24, tzinfo=UTC).timestamp()
    log = Log()
    log.add(JobSubmitted(spec=a_spec("a")), at=midnight - 1)
    log.add(WorkerStarted(job_id="a", workers={0: "n1"}), at=midnight - 1)
    log.add(JobCompleted(job_id="a"), at=midnight)
    log.add(WorkerExited(job_id="a", workers=(0,)), at=midnight + 2)
    rows = usage_of(log, midnight - DAY_S, midnight + DAY_S).rows("day")
    assert [(row.key, row.gpu_s, row.submitted, row.completed) for row in rows] == [
        ("2026-11-23", 1, 1, 0),
        ("2026-11-24", 2, 0, 1),
    ]


def test_what_happens_at_the_end_of_the_window_or_later_is_not_counted() -> None:
    log = Log()
    log.add(JobSubmitted(spec=a_spec("a")), at=5)
    log.add(WorkerStarted(job_id="a", workers={0: "n1"}), at=8)
    log.add(JobSubmitted(spec=a_spec("b")), at=10)
    log.add(JobSubmitted(spec=a_spec("c")), at=11)
    log.add(WorkerStarted(job_id="b", workers={0: "n1"}), at=12)
    log.add(JobCompleted(job_id="a"), at=13)
    usage = Usage(0, 10)
    for event in log.events:
        usage.apply(event)
    usage.close()
    total = usage.total()
    assert (total.jobs, total.submitted, total.started, total.completed, total.gpu_s) == (1, 1, 1, 0, 2)
