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
from voda.domain.settings import Settings
from voda.domain.state import Estimate
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
        speedup=(0, 1, 2, 3, 4, 5, 6, 7, 8), resize_cost_s=60.0, span_penalty=0.1, is_assumed=True
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
    log.add(JobFailed(job_id="a", reason="out of memory"), at=5000)
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
    accuracy = folded(log.events).accuracy()["resnet"]
    assert accuracy.jobs == 1
    assert accuracy.mean_error == pytest.approx(0.25)


def test_memory_when_jobs_end_keeps_their_categories_alone() -> None:
    log = a_log("a", "b", "c")
    for job_id in ("a", "b", "c"):
        report(log, [1, 2, 4], job_id=job_id)
    log.add(JobCompleted(job_id="a"), at=2000)
    log.add(JobFailed(job_id="b", reason="x"), at=2000)
    log.add(JobCanceled(job_id="c"), at=2000)
    assert folded(log.events)._jobs == {}


job_ids = st.sampled_from(["a", "b", "c"])
indices = st.integers(0, 3)
facts = st.one_of(
    st.builds(JobSubmitted, spec=st.builds(a_spec, job_ids, category=st.sampled_from(["x", "y"]))),
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


def timed(log: Log, *, done: int, epoch_s: float, samples_per_s: float) -> Event:
    fact = JobProgressed(job_id="a", epochs_done=done, workers=1, epoch_s=epoch_s, samples_per_s=samples_per_s)
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
    assert asked(folded(log.events), epochs=1).remaining_s == pytest.approx(200.0 if is_learned else 150.0)


def test_estimate_when_epochs_grow_at_one_throughput_is_made_anew() -> None:
    log, job = a_log(), a_job("a", category="resnet", max_replicas=8, epochs=50)
    timed(log, done=1, epoch_s=100.0, samples_per_s=10.0)
    learning = folded(log.events)
    assert learning.estimate(job, SETTINGS).remaining_s == pytest.approx(50 * 100)
    learning.apply(timed(log, done=2, epoch_s=101.0, samples_per_s=10.0))
    assert learning.estimate(job, SETTINGS).remaining_s == pytest.approx(50 * 100)
    learning.apply(timed(log, done=3, epoch_s=200.0, samples_per_s=10.0))
    assert learning.changed_materially()
    assert learning.estimate(job, SETTINGS).remaining_s == pytest.approx(50 * 200)


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
