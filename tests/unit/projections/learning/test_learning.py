"""Learning: what is believed after which reports, and that nothing else but the log decides it."""

import math
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.builders import Log, a_job, a_spec
from voda.domain.job import Job
from voda.domain.reasons.nodes import Said
from voda.domain.settings import Settings
from voda.domain.state import Belief, Estimate
from voda.events.envelope import Event
from voda.events.types import (
    JobCanceled,
    JobCompleted,
    JobFailed,
    JobProgressed,
    JobSubmitted,
    WorkerExited,
    WorkerStarted,
)
from voda.projections.learning import Learning
from voda.projections.learning.categories import Categories

SETTINGS = Settings(resize_cost_s=60.0, span_penalty=0.1)
AMDAHL = {1: 100.0, 2: 60.0, 3: 140 / 3, 4: 40.0, 8: 30.0}
"""100 s on one worker, a = 0.2."""


def folded(events: Sequence[Event]) -> Learning:
    learning = Learning()
    for event in events:
        learning.apply(event)
    return learning


def asked(learning: Learning, job_id: str = "a", *, done: float = 0.0, **fields: Any) -> Estimate:
    fields = {"category": "resnet", "max_replicas": 8, "epochs": 50, **fields}
    return learning.estimate(a_job(job_id, epochs_done=done, **fields), SETTINGS)


def a_log(*job_ids: str) -> Log:
    log = Log()
    for job_id in job_ids or ("a",):
        log.add(JobSubmitted(spec=a_spec(job_id, category="resnet", max_replicas=8, epochs=50)), at=0)
    return log


def report(log: Log, sizes: Sequence[int], *, job_id: str = "a", times: float = 1.0, at: float = 1000) -> None:
    for done, workers in enumerate(sizes, start=1):
        fact = JobProgressed(job_id=job_id, epochs_done=done, workers=workers, epoch_s=AMDAHL[workers] * times)
        log.add(fact, at=at + done)


def test_job_when_nothing_is_known_of_its_kind_is_assumed_linear() -> None:
    assert asked(folded(a_log().events)) == Estimate(
        speedup=(0, 1, 2, 3, 4, 5, 6, 7, 8),
        speedup_belief=Belief("assumed", 4 / 3),
        resize_cost_s=60.0,
        resize_cost_belief=Belief("declared"),
        span_penalty=0.1,
    )
    assert asked(Learning(), "never-submitted").remaining_s == math.inf


def test_job_when_it_reported_some_sizes_is_known_at_all() -> None:
    log = a_log()
    report(log, [1, 2, 4])
    estimate = asked(folded(log.events), done=3)
    assert estimate.speedup[:3] == pytest.approx((0, 1, 100 / 60))
    assert estimate.speedup[4] == pytest.approx(2.5)
    assert estimate.speedup[8] == pytest.approx(10 / 3, rel=1e-3)
    assert estimate.remaining_s == pytest.approx(4700.0)
    assert not estimate.is_assumed


def test_job_when_it_never_ran_on_one_worker_has_its_time_derived() -> None:
    log = a_log()
    report(log, [2, 4, 8])
    estimate = asked(folded(log.events), done=10)
    assert estimate.remaining_s == pytest.approx(4000.0, rel=1e-3)
    assert estimate.speedup[1] == 1.0


def test_new_job_when_its_category_is_known_starts_with_its_history() -> None:
    log = a_log("a")
    report(log, [1, 2, 4])
    log.add(JobCompleted(job_id="a"), at=2000)
    log.add(JobSubmitted(spec=a_spec("b", category="resnet", max_replicas=4, epochs=10)), at=3000)
    estimate = asked(folded(log.events), "b", max_replicas=4, epochs=10)
    assert estimate.speedup == pytest.approx((0, 1, 100 / 60, (100 / 60 + 2.5) / 2, 2.5))
    assert estimate.remaining_s == pytest.approx(1000.0)
    assert not estimate.is_assumed


def of_users(**jobs: str) -> Log:
    """Return the log of jobs of one category, job id -> user."""
    log = Log()
    for job_id, user in jobs.items():
        spec = a_spec(job_id, category="resnet", max_replicas=8, epochs=50, user=user)
        log.add(JobSubmitted(spec=spec), at=0)
    return log


def test_job_when_another_user_reports_under_the_name_of_its_category_is_estimated_as_before() -> None:
    log = of_users(a="ada", b="bob")
    report(log, [1, 2], job_id="a")
    log.add(WorkerStarted(job_id="a", workers={0: "n1"}), at=2000)
    before = asked(folded(log.events), "next", user="ada")
    report(log, [1, 2, 4, 8], job_id="b", times=9e6, at=3000)
    learning = folded(log.events)
    assert asked(learning, "next", user="ada") == before
    assert asked(learning, "next", user="bob").remaining_s == pytest.approx(9e6 * before.remaining_s)


def test_job_of_a_user_who_reported_nothing_yet_starts_with_what_others_reported() -> None:
    log = of_users(a="ada", b="bob")
    report(log, [1, 2], job_id="a")
    learning = folded(log.events)
    assert asked(learning, "b", user="bob").remaining_s == pytest.approx(5000)
    assert asked(learning, "next", user="cleo").remaining_s == pytest.approx(5000)
    report(log, [1], job_id="b", times=2.0, at=3000)
    assert asked(folded(log.events), "next", user="bob").remaining_s == pytest.approx(10_000)


def test_measurements_when_an_admin_says_so_are_shared_by_all_users() -> None:
    log, shares = of_users(a="ada", b="bob"), replace(SETTINGS, share_measurements=True)
    report(log, [1], job_id="a")
    report(log, [1], job_id="b", times=3.0, at=3000)
    learning = folded(log.events)
    estimate = learning.estimate(a_job("next", category="resnet", max_replicas=8, epochs=50, user="ada"), shares)
    assert estimate.remaining_s == pytest.approx(50 * 200)


def test_estimate_when_measurements_come_to_be_shared_is_that_of_who_reads_them_for_the_first_time() -> None:
    log, shares = of_users(a="ada", b="bob"), replace(SETTINGS, share_measurements=True)
    report(log, [1], job_id="a")
    report(log, [1], job_id="b", times=3.0, at=3000)
    learning, job = folded(log.events), a_job("next", category="resnet", max_replicas=8, epochs=50, user="ada")
    before = learning.estimate(job, SETTINGS)
    assert learning.estimate(job, shares) == folded(log.events).estimate(job, shares) != before


def test_restart_of_a_job_when_another_user_measured_longer_ones_costs_what_its_own_did() -> None:
    log = of_users(a="ada", b="bob", c="cleo")
    for job_id, lost_s in (("a", 7.0), ("b", 1_000.0)):
        log.add(WorkerStarted(job_id=job_id, workers={0: "n1"}), at=0)
        log.add(JobProgressed(job_id=job_id, epochs_done=1, workers=1, epoch_s=100.0), at=100)
        log.add(JobProgressed(job_id=job_id, epochs_done=2, workers=1, epoch_s=100.0), at=200)
        log.add(WorkerExited(job_id=job_id, workers=(0,)), at=200)
        log.add(WorkerStarted(job_id=job_id, workers={0: "n1"}), at=210)
        log.add(JobProgressed(job_id=job_id, epochs_done=3, workers=1, epoch_s=100.0), at=310 + lost_s)
    learning = folded(sorted(log.events, key=lambda event: event.recorded_at))
    assert asked(learning, "a", user="ada").resize_cost_s == pytest.approx(3.5)
    assert asked(learning, "b", user="bob").resize_cost_s == pytest.approx(500.0)
    assert asked(learning, "c", user="cleo").resize_cost_s == pytest.approx(3.5), "the median of 0, 0, 7, 1,000"


def test_job_when_its_epochs_are_longer_than_usual_keeps_the_shape_of_its_category() -> None:
    log = a_log("a", "b")
    report(log, [1, 2, 4] * 20, job_id="b")
    report(log, [2], times=3.0)
    estimate = asked(folded(log.events), done=1)
    usual_s = (20 * 60.0 + 180.0) / 21
    assert estimate.remaining_s == pytest.approx(49 * 300.0, rel=0.2)
    assert estimate.speedup[4] / estimate.speedup[2] == pytest.approx(usual_s / 40.0, rel=0.2)


def test_job_when_it_scales_otherwise_than_its_category_is_believed() -> None:
    log = a_log("a", "b")
    report(log, [1, 2, 4] * 20, job_id="b")
    for done, workers in enumerate((1, 2, 4), start=1):
        log.add(JobProgressed(job_id="a", epochs_done=done, workers=workers, epoch_s=100.0), at=3000 + done)
    speedup = asked(folded(log.events), done=3).speedup
    assert speedup[1:5] == pytest.approx((1, 1, 1, 1), rel=0.01)
    assert speedup[8] == pytest.approx(1.0, rel=0.1)


def test_estimate_when_read_before_the_job_reported_is_read_anew_though_its_category_stays() -> None:
    log, job = a_log("a", "b"), a_job("a", category="resnet", max_replicas=8, epochs=50)
    report(log, [1] * 60, job_id="b")
    learning = folded(log.events)
    assert learning.estimate(job, SETTINGS).remaining_s == pytest.approx(50 * 100.0)
    learning.apply(log.add(JobProgressed(job_id="a", epochs_done=1, workers=1, epoch_s=300.0), at=3000))
    assert learning.estimate(job, SETTINGS).remaining_s == pytest.approx(50 * 300.0)


def test_epochs_when_their_number_is_unknown_leave_the_time_unknown() -> None:
    log = a_log()
    report(log, [1])
    assert asked(folded(log.events), epochs=0).remaining_s == math.inf
    assert asked(folded(log.events), done=50.0).remaining_s == 0.0


def test_estimate_when_nothing_was_learned_is_the_same_object() -> None:
    log = a_log()
    report(log, [1, 2, 4])
    learning, job = folded(log.events), a_job("a", category="resnet", max_replicas=8, epochs=50)
    assert learning.estimate(job, SETTINGS) is learning.estimate(job, SETTINGS)


def test_estimate_when_the_job_may_grow_further_reaches_as_far() -> None:
    learning = folded(a_log().events)
    assert len(asked(learning).speedup) == 9
    assert len(asked(learning, max_replicas=16).speedup) == 17


def test_speed_when_it_moves_by_a_tenth_has_changed_materially_until_asked_again() -> None:
    log = a_log()
    report(log, [1, 2])
    learning = folded(log.events)
    assert not learning.changed_materially()
    asked(learning)
    log.add(JobProgressed(job_id="a", epochs_done=3, workers=2, epoch_s=61.0), at=2000)
    learning.apply(log.events[-1])
    assert not learning.changed_materially()
    log.add(JobProgressed(job_id="a", epochs_done=4, workers=8, epoch_s=90.0), at=2001)
    learning.apply(log.events[-1])
    assert learning.changed_materially()
    assert learning.changed_materially()
    asked(learning)
    assert not learning.changed_materially()


def test_change_when_the_job_ends_or_nobody_asked_is_immaterial() -> None:
    log = a_log("a", "b")
    learning = folded(log.events)
    asked(learning)
    report(log, [1, 2])
    report(log, [1], job_id="b")
    log.add(JobFailed(job_id="a", reason=Said(text="out of memory")), at=5000)
    for event in log.events[2:]:
        learning.apply(event)
    assert not learning.changed_materially()


def disturbed(log: Log, *, at: float, done: float, workers: int) -> None:
    log.add(JobProgressed(job_id="a", epochs_done=done, workers=workers, epoch_s=None), at=at)


def test_restart_when_one_fell_between_two_reports_is_costed() -> None:
    log = a_log()
    log.add(WorkerStarted(job_id="a", workers={0: "n1"}), at=100)
    disturbed(log, at=230, done=1, workers=1)
    assert asked(folded(log.events)).resize_cost_s == 60.0
    log.add(JobProgressed(job_id="a", epochs_done=2, workers=1, epoch_s=100.0), at=330)
    assert asked(folded(log.events)).resize_cost_s == pytest.approx(30.0)
    log.add(JobProgressed(job_id="a", epochs_done=3, workers=1, epoch_s=100.0), at=430)
    # Half an epoch on one worker, 20 s of standing still, half an epoch on two.
    log.add(WorkerStarted(job_id="a", workers={1: "n1"}), at=480)
    disturbed(log, at=530, done=4, workers=2)
    log.add(JobProgressed(job_id="a", epochs_done=5, workers=2, epoch_s=60.0), at=590)
    assert asked(folded(log.events)).resize_cost_s == pytest.approx(25.0)


def test_restart_when_two_changes_fell_between_reports_is_not_costed() -> None:
    log = a_log()
    log.add(WorkerStarted(job_id="a", workers={0: "n1"}), at=100)
    log.add(WorkerStarted(job_id="a", workers={1: "n1"}), at=150)
    disturbed(log, at=330, done=1, workers=2)
    log.add(JobProgressed(job_id="a", epochs_done=2, workers=2, epoch_s=60.0), at=390)
    assert asked(folded(log.events)).resize_cost_s == 60.0


@pytest.mark.parametrize(("epoch_s", "is_learned"), [(90.0, False), (20.0, True)])
def test_raw_epoch_when_the_workers_changed_within_it_is_not_learned_from(epoch_s: float, is_learned: bool) -> None:
    log = a_log()
    log.add(WorkerStarted(job_id="a", workers={0: "n1"}), at=0)
    log.add(JobProgressed(job_id="a", epochs_done=1, workers=1, epoch_s=70.0, is_raw=True), at=100)
    log.add(WorkerStarted(job_id="a", workers={1: "n1"}), at=130)
    log.add(JobProgressed(job_id="a", epochs_done=2, workers=2, epoch_s=epoch_s, is_raw=True), at=160)
    *before, last = log.events
    untimed = replace(last, data=replace(last.data, epoch_s=None))
    assert (folded(log.events).dump() != folded([*before, untimed]).dump()) == is_learned


def test_cost_when_a_restart_was_measured_is_that_of_the_next_reading() -> None:
    log, job = a_log("a"), a_job("a", category="resnet", max_replicas=8, epochs=50)
    log.add(WorkerStarted(job_id="a", workers={0: "n1"}), at=0)
    log.add(JobProgressed(job_id="a", epochs_done=1, workers=1, epoch_s=100.0), at=100)
    learning = folded(log.events)
    assert learning.estimate(job, SETTINGS).resize_cost_s == 0.0
    learning.apply(log.add(WorkerExited(job_id="a", workers=(0,), cause="migrated"), at=150))
    learning.apply(log.add(WorkerStarted(job_id="a", workers={0: "n2"}), at=150))
    disturbed(log, at=280, done=2, workers=1)
    learning.apply(log.events[-1])
    assert learning.estimate(job, SETTINGS).resize_cost_s == pytest.approx((0.0 + 80.0) / 2)


@pytest.mark.parametrize(
    ("workers", "epoch_s", "is_learned"),
    [
        (1, 1e-6, True),
        (1, 9e-7, False),
        (1, 1e9, True),
        (1, 1.1e9, False),
        (100_000, 1.0, True),
        (100_001, 1.0, False),
        (0, 1.0, False),
    ],
)
def test_epoch_when_no_cluster_could_have_taken_it_is_not_learned_from(
    workers: int, epoch_s: float, is_learned: bool
) -> None:
    log = a_log()
    log.add(JobProgressed(job_id="a", epochs_done=1, workers=workers, epoch_s=epoch_s), at=100)
    assert (asked(folded(log.events)).remaining_s < math.inf) == is_learned


def test_waiting_when_a_job_was_halted_is_no_cost_of_its_restart() -> None:
    log = a_log()
    log.add(WorkerStarted(job_id="a", workers={0: "n1"}), at=0)
    disturbed(log, at=100, done=1, workers=1)
    log.add(JobProgressed(job_id="a", epochs_done=2, workers=1, epoch_s=100.0), at=200)
    log.add(WorkerExited(job_id="a", workers=(0,)), at=250)
    log.add(WorkerStarted(job_id="a", workers={0: "n2"}), at=9000)
    disturbed(log, at=9090, done=3, workers=1)
    assert asked(folded(log.events)).resize_cost_s == pytest.approx((0.0 + 40.0) / 2)


def test_penalty_when_one_size_was_seen_packed_and_spanning_is_their_ratio() -> None:
    log = a_log()
    log.add(WorkerStarted(job_id="a", workers={0: "n1", 1: "n1"}), at=0)
    log.add(JobProgressed(job_id="a", epochs_done=1, workers=2, epoch_s=60.0), at=60)
    assert asked(folded(log.events)).span_penalty == 0.1
    log.add(WorkerExited(job_id="a", workers=(1,), cause="migrated"), at=61)
    log.add(WorkerStarted(job_id="a", workers={1: "n2"}), at=61)
    log.add(JobProgressed(job_id="a", epochs_done=2, workers=2, epoch_s=75.0), at=200)
    assert asked(folded(log.events)).span_penalty == pytest.approx(0.25)


def test_prediction_when_the_job_is_done_is_compared_with_what_it_took() -> None:
    log = a_log("a")
    report(log, [1, 2, 4])
    log.add(JobCompleted(job_id="a"), at=2000)
    log.add(JobSubmitted(spec=a_spec("b", category="resnet", epochs=10)), at=3000)
    log.add(JobProgressed(job_id="b", epochs_done=10, workers=1, epoch_s=80.0), at=4000)
    log.add(JobCompleted(job_id="b"), at=4001)
    error = folded(log.events).errors()["resnet"]
    assert error.count == 1
    assert error.mean == pytest.approx(0.25)


def test_memory_when_jobs_end_keeps_their_categories_alone() -> None:
    log = a_log("a", "b", "c")
    for job_id in ("a", "b", "c"):
        report(log, [1, 2, 4], job_id=job_id)
    log.add(JobCompleted(job_id="a"), at=2000)
    log.add(JobFailed(job_id="b", reason=Said(text="x")), at=2000)
    log.add(JobCanceled(job_id="c"), at=2000)
    assert folded(log.events)._known.jobs == {}


def test_memory_when_jobs_end_that_reported_nothing_keeps_nothing_of_their_categories() -> None:
    log, learning = Log(), Learning()
    for number in range(3):
        job = a_job(f"j{number}", category=f"c{number}", user="ada")
        learning.apply(log.add(JobSubmitted(spec=job.spec), at=number))
        learning.estimate(job, SETTINGS)
        learning.apply(log.add(JobCanceled(job_id=job.spec.job_id), at=number))
        # Who asks late has nothing kept either.
        learning.estimate(job, SETTINGS)
    assert (learning._known.members, learning._known._histories) == ({}, {})


def reported(log: Log, number: int, user: str, category: str) -> None:
    """Let a job of a user report an epoch of 9 s and end."""
    job_id = f"j{number}"
    log.add(JobSubmitted(spec=a_spec(job_id, category=category, user=user)), at=number)
    log.add(JobProgressed(job_id=job_id, epochs_done=1, workers=1, epoch_s=9.0), at=number)
    log.add(JobCanceled(job_id=job_id), at=number)


def epoch_s_of(learning: Learning, user: str, category: str) -> float:
    job = a_job("new", user=user, category=category, epochs=1)
    return learning.estimate(job, SETTINGS).remaining_s


def test_categories_used_longest_ago_are_forgotten_of_the_user_who_has_too_many() -> None:
    log = Log()
    reported(log, 0, "ann", "own")
    for number in range(1, 9):
        reported(log, number, "bob", f"c{number}")
        if number == 7:
            reported(log, 100, "bob", "c1")
    learning = Learning(Categories(most_of_user=3, most=100))
    for event in log.events:
        learning.apply(event)
    assert set(learning._known.categories.dump()) >= {"ann\nown", "bob\nc1", "bob\nc7", "bob\nc8"}
    assert [key for key in learning._known.categories.dump() if key.startswith("bob")] == [
        "bob\nc7",
        "bob\nc1",
        "bob\nc8",
    ]
    assert epoch_s_of(learning, "ann", "own") == pytest.approx(9.0)


def test_of_all_categories_whoever_has_most_loses_those_used_longest_ago_and_snapshots_tell_which() -> None:
    log = Log()
    reported(log, 0, "ann", "own")
    for number in range(1, 9):
        reported(log, number, f"u{number % 2}", f"c{number}")
    whole, tail = (Learning(Categories(most_of_user=3, most=6)) for _ in range(2))
    for position, event in enumerate(log.events):
        whole.apply(event)
        if position < len(log.events) - 5:
            tail.apply(event)
    restored = Learning(Categories(most_of_user=3, most=6))
    restored.load(tail.dump())
    for event in log.events[-5:]:
        restored.apply(event)
    assert restored.dump() == whole.dump()
    kept = list(whole._known.categories.dump())
    assert len(kept) == 6
    assert "ann\nown" in kept
    assert epoch_s_of(whole, "ann", "own") == pytest.approx(9.0)


def test_of_users_who_have_equally_many_categories_a_snapshot_loses_those_that_the_log_does() -> None:
    log = Log()
    for number, user in enumerate(["cat", "bob", "ann", "dan"]):
        reported(log, number, user, "own")
    whole, tail, restored = (Learning(Categories(most_of_user=9, most=3)) for _ in range(3))
    for event in log.events:
        whole.apply(event)
    for event in log.events:
        tail.apply(event)
        restored.load(tail.dump())
        tail, restored = restored, tail
    assert tail.dump() == whole.dump()


def test_user_with_many_categories_does_not_empty_those_of_all_users_and_a_snapshot_tells_whose_they_are() -> None:
    log = Log()
    reported(log, 0, "ann", "own")
    reported(log, 1, "cat", "bobs")
    for number in range(2, 100):
        reported(log, number, "bob", f"c{number}")
    reported(log, 100, "ann", "c98")
    reported(log, 101, "bob", "c101")
    whole, tail, restored = (Learning(Categories(most_of_user=3, most=20)) for _ in range(3))
    for event in log.events[:-3]:
        tail.apply(event)
    restored.load(tail.dump())
    for learning, events in ((whole, log.events), (restored, log.events[-3:])):
        for event in events:
            learning.apply(event)
    assert list(whole._known.categories.of_all_users()) == ["own", "bobs", "c99", "c98", "c101"]
    assert restored.dump() == whole.dump()


def test_job_whose_category_is_forgotten_while_it_lives_keeps_its_own_measurements_and_ends() -> None:
    log = Log()
    log.add(JobSubmitted(spec=a_spec("a", user="bob", category="mine", epochs=9)), at=0)
    log.add(JobProgressed(job_id="a", epochs_done=1, workers=1, epoch_s=9.0), at=1)
    for number in range(1, 5):
        reported(log, number, "bob", f"c{number}")
    log.add(JobCompleted(job_id="a"), at=9)
    learning = Learning(Categories(most_of_user=2, most=4))
    for event in log.events[:-1]:
        learning.apply(event)
    job = a_job("a", user="bob", category="mine", epochs=9, epochs_done=1.0)
    assert learning.estimate(job, SETTINGS).remaining_s == pytest.approx(72.0)
    learning.apply(log.events[-1])
    assert len(learning._known.categories.dump()) <= 4


def test_sizes_that_a_job_reports_beyond_a_bound_do_not_count() -> None:
    log = Log()
    log.add(JobSubmitted(spec=a_spec("a")), at=0)
    for workers in range(1, 1_000):
        log.add(JobProgressed(job_id="a", epochs_done=workers, workers=workers, epoch_s=9.0), at=workers)
    learning = folded(log.events)
    assert len(learning._known.jobs["a"].epochs.points()) == 64


job_ids = st.sampled_from(["a", "b", "c"])
indices = st.integers(0, 3)
facts = st.one_of(
    st.builds(
        JobSubmitted,
        spec=st.builds(a_spec, job_ids, category=st.sampled_from(["x", "y"]), user=st.sampled_from(["", "ada", "bob"])),
    ),
    st.builds(
        WorkerStarted, job_id=job_ids, workers=st.dictionaries(indices, st.sampled_from(["n1", "n2"]), min_size=1)
    ),
    st.builds(
        WorkerExited,
        job_id=job_ids,
        workers=st.lists(indices).map(tuple),
        cause=st.sampled_from(["stopped", "migrated"]),
    ),
    st.builds(
        JobProgressed,
        job_id=job_ids,
        epochs_done=st.floats(-5, 60),
        workers=st.integers(-1, 9),
        epoch_s=st.none() | st.sampled_from([50.0, 60.0, 100.0]) | st.floats(-1.0, 1e12),
        samples_per_s=st.none() | st.sampled_from([5e-324, 1.0, 2.0, 1e308]) | st.floats(-1.0, 1e308),
    ),
    st.builds(JobCompleted, job_id=job_ids),
    st.builds(JobCanceled, job_id=job_ids),
)
histories = st.lists(st.tuples(facts, st.floats(-10, 300)), max_size=40)


def logged(history: Sequence[tuple[Any, float]]) -> Log:
    log, at = Log(), 0.0
    for fact, passed_s in history:
        at += passed_s
        log.add(fact, at=at)
    return log


def jobs_of(done: float) -> list[Job]:
    return [a_job(job_id, category="x", max_replicas=6, epochs=50, epochs_done=done) for job_id in "abc"]


@given(histories, st.data())
def test_state_when_loaded_from_a_snapshot_goes_on_as_if_folded_whole(
    history: Sequence[tuple[Any, float]], data: st.DataObject
) -> None:
    events = logged(history).events
    cut = data.draw(st.integers(0, len(events)))
    whole, restored = Learning(), Learning()
    for event in events:
        whole.apply(event)
        # Questions in between must not change any later answer.
        whole.changed_materially()
        for job in jobs_of(event.position):
            whole.estimate(job, SETTINGS)
    restored.load(folded(events[:cut]).dump())
    for event in events[cut:]:
        restored.apply(event)
    assert restored.dump() == whole.dump()
    for job in jobs_of(3.0):
        assert restored.estimate(job, SETTINGS) == whole.estimate(job, SETTINGS)


@given(histories, st.data())
def test_estimates_of_a_pool_when_some_are_kept_are_those_of_every_job(
    history: Sequence[tuple[Any, float]], data: st.DataObject
) -> None:
    learning, fresh, jobs = Learning(), Learning(), {job.spec.job_id: job for job in jobs_of(0.0)}
    for event in logged(history).events:
        learning.apply(event)
        fresh.apply(event)
        changed = data.draw(st.sampled_from(sorted(jobs)))
        jobs[changed] = replace(jobs[changed], epochs_done=float(event.position))
        # Another pool asks for the job, with settings of its own.
        learning.estimate(jobs[data.draw(st.sampled_from(sorted(jobs)))], Settings(resize_cost_s=5.0))
        there = {job_id: job for job_id, job in jobs.items() if data.draw(st.booleans())}
        settings = data.draw(st.sampled_from((SETTINGS, Settings(resize_cost_s=1.0))))
        expected = {job_id: fresh.estimate(job, settings) for job_id, job in there.items()}
        assert learning.estimates("pool", there, settings) == expected


@given(histories, st.data())
def test_estimates_whenever_they_are_read_are_those_of_what_was_learned_and_of_nothing_kept(
    history: Sequence[tuple[Any, float]], data: st.DataObject
) -> None:
    learning = Learning()
    jobs = {job.spec.job_id: job for job in jobs_of(1.0)}
    jobs["a"] = replace(jobs["a"], spec=replace(jobs["a"].spec, epochs=0))
    for event in logged(history).events:
        learning.apply(event)
        if data.draw(st.booleans()):
            cold = Learning()
            cold.load(learning.dump())
            assert learning.estimates("pool", jobs, SETTINGS) == cold.estimates("pool", jobs, SETTINGS)


@given(histories)
def test_estimates_when_reports_are_nonsense_are_still_numbers(history: Sequence[tuple[Any, float]]) -> None:
    learning = folded(logged(history).events)
    for job in jobs_of(-1.0):
        estimate = learning.estimate(job, SETTINGS)
        assert estimate.speedup[:2] == (0.0, 1.0)
        assert len(estimate.speedup) == 7
        assert all(0 < speed < math.inf for speed in estimate.speedup[1:])
        assert estimate.remaining_s >= 0
        assert 0 <= estimate.resize_cost_s < math.inf
        assert 0 <= estimate.span_penalty < math.inf


def test_dump_when_the_same_was_learned_in_another_order_is_the_same() -> None:
    logs = []
    for order in ("ab", "ba"):
        log = a_log(*order)
        for job_id in order:
            report(log, [2, 1] if order == "ab" else [1, 2], job_id=job_id, at=0)
        logs.append(log)
    ab, ba = (folded(log.events) for log in logs)
    assert ab.dump() == ba.dump()


def test_scaling_when_epochs_grow_but_throughput_is_reported_is_that_of_the_throughput() -> None:
    log = a_log()
    for done, workers in enumerate([1, 1, 2, 2, 4, 4], start=1):
        samples = 1000.0 * done
        samples_per_s = 10.0 * 100 / AMDAHL[workers]
        epoch_s = samples / samples_per_s
        fact = JobProgressed(
            job_id="a", epochs_done=done, workers=workers, epoch_s=epoch_s, samples_per_s=samples_per_s
        )
        log.add(fact, at=1000 * done)
    estimate = asked(folded(log.events), done=6)
    assert [estimate.speedup[n] for n in (1, 2, 4)] == pytest.approx([1.0, 100 / 60, 2.5])
    assert estimate.remaining_s == pytest.approx(44 * 600), "an epoch takes 600 s on one worker by now"


def test_throughput_when_it_is_nonsense_is_not_learned_from() -> None:
    log = a_log()
    for done, samples_per_s in enumerate((0.0, -5.0), start=1):
        fact = JobProgressed(job_id="a", epochs_done=done, workers=1, epoch_s=100.0, samples_per_s=samples_per_s)
        log.add(fact, at=done)
    assert asked(folded(log.events), done=2).remaining_s == pytest.approx(48 * 100)


@pytest.mark.parametrize("rates", [(1e308, 1.0), (5e-324, 100.0), (1e300, 1e-300, 1.0)])
def test_throughput_when_it_is_beyond_all_bounds_then_the_epochs_count_as_timed(rates: Sequence[float]) -> None:
    log = a_log()
    for done, samples_per_s in enumerate(rates, start=1):
        fact = JobProgressed(job_id="a", epochs_done=done, workers=1, epoch_s=100.0, samples_per_s=samples_per_s)
        log.add(fact, at=done)
    assert asked(folded(log.events), done=2).remaining_s == pytest.approx(48 * 100)


def timed(log: Log, *, done: int, epoch_s: float, samples_per_s: float, job_id: str = "a") -> Event:
    fact = JobProgressed(job_id=job_id, epochs_done=done, workers=1, epoch_s=epoch_s, samples_per_s=samples_per_s)
    return log.add(fact, at=1000 * done)


@pytest.mark.parametrize(
    ("samples_per_s", "is_learned"),
    [(1e15, True), (math.nextafter(1e15, math.inf), False), (1e-9, True), (math.nextafter(1e-9, 0.0), False)],
)
def test_throughput_when_within_the_bounds_tells_growing_epochs_from_slow_ones(
    samples_per_s: float, is_learned: bool
) -> None:
    log = a_log()
    timed(log, done=1, epoch_s=100.0, samples_per_s=samples_per_s)
    timed(log, done=2, epoch_s=200.0, samples_per_s=samples_per_s)
    assert asked(folded(log.events), epochs=3).remaining_s == pytest.approx(500.0 if is_learned else 450.0)


def test_estimate_when_epochs_grow_at_one_throughput_is_made_anew() -> None:
    log, job = a_log(), a_job("a", category="resnet", max_replicas=8, epochs=50)
    timed(log, done=1, epoch_s=100.0, samples_per_s=10.0)
    learning = folded(log.events)
    assert learning.estimate(job, SETTINGS).remaining_s == pytest.approx(50 * 100)
    learning.apply(timed(log, done=2, epoch_s=101.0, samples_per_s=10.0))
    assert not learning.changed_materially()
    assert learning.estimate(job, SETTINGS).remaining_s == pytest.approx(100 + 49 * 101)
    learning.apply(timed(log, done=3, epoch_s=200.0, samples_per_s=10.0))
    assert learning.changed_materially()
    assert learning.estimate(job, SETTINGS).remaining_s == pytest.approx(100 + 101 + 48 * 200)


def test_new_job_when_first_epochs_of_its_category_are_the_longest_has_the_work_of_each_epoch() -> None:
    log = a_log()
    for done, epoch_s in enumerate((1300.0, 400.0, 100.0, 100.0), start=1):
        timed(log, done=done, epoch_s=epoch_s, samples_per_s=10.0)
    learning = folded(log.events)
    for epochs_done, left_s in ((0, 2000), (1, 700), (1.5, 500), (3, 200), (4, 100), (5, 0)):
        assert asked(learning, "next", epochs=5, done=epochs_done).remaining_s == pytest.approx(left_s)


def test_job_when_its_epochs_are_longer_than_those_of_its_category_has_so_much_more_left() -> None:
    others = [f"a{number}" for number in range(40)]
    log = a_log(*others, "b")
    for done, epoch_s in enumerate((1300.0, 100.0, 100.0), start=1):
        for job_id in others:
            timed(log, done=done, epoch_s=epoch_s, samples_per_s=10.0, job_id=job_id)
    fact = JobProgressed(job_id="b", epochs_done=1, workers=1, epoch_s=2600.0, samples_per_s=10.0)
    log.add(fact, at=9000)
    learning = folded(log.events)
    assert asked(learning, "b", epochs=10, done=1).remaining_s == pytest.approx(2 * 9 * 100, rel=0.03)
    assert asked(learning, "next", epochs=10, done=1).remaining_s == pytest.approx(9 * 100, rel=0.03)


def test_job_that_tells_its_throughput_within_an_epoch_is_known_to_scale_and_not_how_long_it_takes() -> None:
    log = a_log()
    for done, workers, samples_per_s in ((0.2, 1, 10.0), (0.4, 2, 16.0)):
        fact = JobProgressed(job_id="a", epochs_done=done, workers=workers, samples_per_s=samples_per_s)
        log.add(fact, at=1000 * done)
    estimate = asked(folded(log.events), done=0.4)
    assert estimate.speedup[:3] == pytest.approx((0, 1, 1.6))
    assert not estimate.is_assumed
    assert estimate.remaining_s == math.inf


def test_category_when_some_jobs_tell_their_throughput_and_others_do_not_knows_both() -> None:
    log = a_log("a", "b")
    report(log, [1, 2], job_id="b")
    timed(log, done=1, epoch_s=50.0, samples_per_s=10.0)
    learning = folded(log.events)
    assert asked(learning, "next").remaining_s == pytest.approx(50 * 50)
    assert asked(learning, "b", done=2).remaining_s == pytest.approx(48 * 100), "b goes on as it has reported"


def test_category_when_one_job_tells_a_throughput_and_no_epoch_keeps_what_was_known() -> None:
    log = a_log("a", "b")
    report(log, [1, 2], job_id="b")
    before = asked(folded(log.events), "next")
    log.add(JobProgressed(job_id="a", epochs_done=0.001, workers=1, samples_per_s=50.0), at=5000)
    learning = folded(log.events)
    assert asked(learning, "next") == before
    assert asked(learning, "a") == before
    log.add(JobCompleted(job_id="a"), at=6000)
    assert asked(folded(log.events), "next") == before


def test_job_that_tells_nothing_but_its_throughput_is_resized_and_ends() -> None:
    log = a_log()
    log.add(WorkerStarted(job_id="a", workers={0: "n1"}), at=0)
    for done, workers, samples_per_s in ((0.5, 1, 50.0), (1.0, 1, 50.0), (1.5, 2, 90.0)):
        if workers == 2:
            log.add(WorkerStarted(job_id="a", workers={1: "n1"}), at=1100)
        fact = JobProgressed(job_id="a", epochs_done=done, workers=workers, samples_per_s=samples_per_s)
        log.add(fact, at=1000 * done)
    assert asked(folded(log.events)).speedup[:3] == pytest.approx((0, 1, 1.8))
    log.add(JobCompleted(job_id="a"), at=9000)
    assert folded(log.events).errors() == {}


def test_job_whose_category_counted_epochs_ends_after_one_report_of_throughput() -> None:
    log = a_log("b")
    report(log, [1, 2], job_id="b")
    log.add(JobSubmitted(spec=a_spec("a", category="resnet", max_replicas=8, epochs=50)), at=2000)
    log.add(JobProgressed(job_id="a", epochs_done=1, workers=1, samples_per_s=50.0), at=3000)
    log.add(JobCompleted(job_id="a"), at=9000)
    assert folded(log.events).errors() == {}


def test_work_of_a_part_of_an_epoch_is_not_that_of_the_epoch() -> None:
    log = a_log()
    for done in (0.5, 1.0):
        fact = JobProgressed(job_id="a", epochs_done=done, workers=1, epoch_s=100.0 * done, samples_per_s=10.0)
        log.add(fact, at=1000 * done)
    assert asked(folded(log.events), epochs=2).remaining_s == pytest.approx(2 * 100)


def test_job_when_measurements_are_shared_is_as_much_longer_as_it_is_than_those_of_all() -> None:
    log, shares = of_users(a="ada", b="bob", next="ada"), replace(SETTINGS, share_measurements=True)
    for job_id, samples_per_s in (("a", 100.0), ("b", 10.0), ("next", 100.0)):
        fact = JobProgressed(job_id=job_id, epochs_done=1, workers=1, epoch_s=100.0, samples_per_s=samples_per_s)
        log.add(fact, at=1000)
    job = a_job("next", category="resnet", max_replicas=8, epochs=10, user="ada", epochs_done=1)
    learning = folded(log.events)
    assert learning.estimate(job, SETTINGS).remaining_s == pytest.approx(9 * 100)
    # Of all: 7,000 samples an epoch at 1 / 70 s; its own have 10,000, at 100 a second.
    assert learning.estimate(job, shares).remaining_s == pytest.approx(9 * 100, rel=0.01)


def test_throughput_of_an_epoch_into_which_a_restart_fell_is_not_learned() -> None:
    log = a_log()
    log.add(WorkerStarted(job_id="a", workers={0: "n1"}), at=0)
    timed(log, done=1, epoch_s=100.0, samples_per_s=10.0)
    before = asked(folded(log.events))
    log.add(WorkerStarted(job_id="a", workers={1: "n1"}), at=1050)
    fact = JobProgressed(job_id="a", epochs_done=2, workers=2, epoch_s=100.0, samples_per_s=3.0, is_raw=True)
    log.add(fact, at=1100)
    assert asked(folded(log.events)).speedup == before.speedup


def test_throughput_of_a_disturbed_epoch_is_not_learned_where_a_report_came_within_it() -> None:
    log = a_log()
    log.add(WorkerStarted(job_id="a", workers={0: "n1"}), at=0)
    timed(log, done=1, epoch_s=100.0, samples_per_s=10.0)
    log.add(WorkerStarted(job_id="a", workers={1: "n1"}), at=1050)
    log.add(JobProgressed(job_id="a", epochs_done=1.6, workers=2), at=1060)
    before = asked(folded(log.events))
    fact = JobProgressed(job_id="a", epochs_done=2, workers=2, epoch_s=100.0, samples_per_s=3.0, is_raw=True)
    log.add(fact, at=1100)
    assert asked(folded(log.events)).speedup == before.speedup


def test_estimate_when_an_equal_job_is_asked_for_is_the_same_object() -> None:
    log = a_log()
    report(log, [1, 2, 4])
    learning, job = folded(log.events), a_job("a", category="resnet", max_replicas=8, epochs=50, epochs_done=2.5)
    estimate = learning.estimate(job, SETTINGS)
    assert learning.estimate(replace(job, epochs_done=float("2.5")), SETTINGS) is estimate
    assert learning.estimate(replace(job, epochs_done=3.0), SETTINGS) is not estimate


@pytest.mark.parametrize(
    ("epochs", "counted"), [(10**15 - 10**6, 10**15 - 10**6), (10**15, 10**15), (10**15 + 10**6, 10**15)]
)
def test_epochs_when_nobody_could_train_them_count_up_to_a_bound(epochs: int, counted: int) -> None:
    log = a_log()
    report(log, [1])
    assert asked(folded(log.events), epochs=epochs).remaining_s == counted * 100.0
