"""Measurements: when a mean settles anew, what a job's work is worth, and what its restarts cost."""

import math

import pytest

from voda.projections.learning.epoch_work import EpochWork
from voda.projections.learning.means import EpochMeans, RunningMean
from voda.projections.learning.restarts import UndisturbedSpan


def settled_after(*values: float) -> list[float]:
    mean, settled = RunningMean(), []
    for value in values:
        if mean.add(value):
            settled.append(mean.settled)
    return settled


def test_mean_when_it_moves_by_no_more_than_a_twentieth_stays_where_it_settled() -> None:
    assert settled_after(100.0, 110.0) == [100.0]
    assert settled_after(100.0, 110.5) == [100.0, 105.25]
    assert settled_after(100.0, 90.0, 97.0) == [100.0]


def test_mean_when_its_count_is_a_power_of_four_settles_by_a_hundredth() -> None:
    assert settled_after(100.0, 100.0, 100.0, 104.0) == [100.0]
    assert settled_after(100.0, 100.0, 100.0, 108.0) == [100.0, 102.0]
    assert settled_after(100.0, 100.0, 108.0, 100.0, 100.0) == [100.0, 102.0]
    assert settled_after(*[100.0] * 15, 148.0) == [100.0, 103.0]
    assert settled_after(*[100.0] * 16, 148.0) == [100.0]


def test_mean_of_nothing_is_new_and_its_first_value_settles() -> None:
    assert RunningMean() == RunningMean(count=0, mean=0.0, settled_count=0, settled=0.0)
    mean = RunningMean()
    assert mean.add(0.0)
    assert (mean.count, mean.mean, mean.settled_count, mean.settled) == (1, 0.0, 1, 0.0)


def work(**epochs: float) -> EpochWork:
    found = EpochWork()
    for epoch, samples in epochs.items():
        assert found.add(int(epoch[1:]), samples)
    return found


def test_work_of_epochs_that_were_never_seen_is_that_of_the_nearest_before_else_of_the_first() -> None:
    assert EpochWork().left(0.0, 5.0) is None
    assert EpochWork().samples(0) is None
    found = work(e1=400.0, e4=100.0)
    assert [found.samples(epoch) for epoch in range(6)] == [400.0, 400.0, 400.0, 400.0, 100.0, 100.0]
    assert found.left(0.0, 6.0) == 4 * 400 + 2 * 100
    assert found.left(3.5, 6.0) == 200 + 2 * 100
    assert found.left(0.5, 1.0) == 200
    assert found.left(7.0, 6.0) == 0.0
    assert found.left(0.0, 1e15) == pytest.approx(1e17)


def test_work_when_a_program_reports_more_epochs_than_are_kept_apart_keeps_the_first() -> None:
    found = EpochWork()
    for epoch in range(-1, 1000):
        found.add(epoch, 1.0 + epoch)
    assert sorted(found.epochs) == list(range(256))
    assert found.ordered() == found
    assert list(work(e2=1.0, e0=1.0).ordered().epochs) == [0, 2]


def means(packed: dict[int, list[float]], spanning: dict[int, list[float]]) -> EpochMeans:
    epochs = EpochMeans()
    for is_spanning, sizes in ((False, packed), (True, spanning)):
        for size, values in sizes.items():
            for value in values:
                epochs.add(size, value, is_spanning=is_spanning)
    return epochs


def test_points_when_a_size_was_seen_packed_and_spanning_weigh_both() -> None:
    epochs = means({4: [40.0], 2: [60.0, 90.0]}, {2: [100.0], 1: [110.0]})
    points = [(point.workers, point.seconds, point.weight) for point in epochs.points()]
    assert points == [(1, 110.0, 1), (2, pytest.approx(250.0 / 3), 3), (4, 40.0, 1)]


def test_seconds_when_only_the_other_placement_was_seen_are_those() -> None:
    epochs = means({2: [60.0], 4: [40.0]}, {2: [75.0], 8: [30.0]})
    assert [epochs.seconds(size, is_spanning=False) for size in (2, 4, 8, 16)] == [60.0, 40.0, 30.0, None]
    assert [epochs.seconds(size, is_spanning=True) for size in (2, 4, 8, 16)] == [75.0, 40.0, 30.0, None]


def test_penalty_when_several_sizes_were_compared_weighs_each_by_the_lesser_count() -> None:
    epochs = means({1: [100.0], 2: [60.0, 90.0]}, {1: [150.0, 160.0], 2: [90.0, 120.0], 4: [1.0]})
    assert (epochs.packed[2].settled_count, epochs.spanning[1].settled_count) == (2, 1)
    assert epochs.span_penalty() == pytest.approx((1 * 0.5 + 2 * (105.0 / 75.0 - 1.0)) / 3)
    assert means({1: [100.0]}, {1: [50.0]}).span_penalty() == 0.0
    assert means({1: [100.0]}, {2: [50.0]}).span_penalty() is None


def a_span() -> UndisturbedSpan:
    """Return the span of a job on one worker since 100 that reported its first epoch at 200."""
    span = UndisturbedSpan()
    span.start({0: "n1"}, 100.0)
    span.report(1.0, 1, 200.0)
    span.sample = None
    return span


def test_work_when_nothing_changed_is_the_time_since_the_report() -> None:
    assert a_span().work_since_report(230.0, 10.0) == [(1, False, 30.0)]
    assert UndisturbedSpan().work_since_report(230.0, 10.0) == [(0, False, 0.0)]


def test_work_when_the_workers_changed_is_split_and_the_restart_is_no_work() -> None:
    span = a_span()
    span.start({1: "n2"}, 220.0)
    assert span.work_since_report(250.0, 10.0) == [(1, False, 20.0), (2, True, 20.0)]
    assert span.work_since_report(225.0, 10.0) == [(1, False, 20.0), (2, True, 0.0)]
    span.exit((0, 1), 260.0, is_migration=False)
    assert span.work_since_report(900.0, 10.0) == [(1, False, 20.0), (2, True, 30.0)]


def test_changes_within_five_seconds_are_one_and_later_ones_another() -> None:
    for later_s, changes in ((5.0, 1), (5.1, 2)):
        span = a_span()
        span.start({1: "n1"}, 220.0)
        span.start({2: "n1"}, 220.0 + later_s)
        assert span.changes == changes, f"{later_s} s later"


@pytest.mark.parametrize(("epochs", "is_sampled"), [(0.0, False), (0.5, True), (3.0, True), (3.1, False)])
def test_sample_is_taken_of_a_change_within_up_to_three_epochs(epochs: float, is_sampled: bool) -> None:
    span = a_span()
    span.start({1: "n1"}, 220.0)
    span.report(1.0 + epochs, 2, 300.0)
    assert (span.sample is not None) == is_sampled
    assert (span.changes, span.ran_s, span.counted_at, span.epochs_done) == (0, 0.0, 300.0, 1.0 + epochs)


def test_sample_when_the_report_was_made_by_other_workers_is_not_taken() -> None:
    span = a_span()
    span.start({1: "n1"}, 220.0)
    span.report(2.0, 1, 300.0)
    assert span.sample is None


def test_cost_of_a_change_is_the_time_beyond_what_its_epochs_take() -> None:
    span = a_span()
    span.start({1: "n2"}, 220.0)
    span.report(2.0, 2, 300.0)
    assert span.take_cost(means({1: [80.0]}, {}), 1.0) is None, "two workers were never timed"
    assert span.take_cost(means({2: [60.0]}, {}), 1.0) is None, "one worker was never timed"
    assert span.sample is not None
    # Of the epoch, 20 / 80 was done before; the rest takes 45 of the 80 seconds.
    assert span.take_cost(means({1: [80.0]}, {2: [60.0]}), 1.0) == pytest.approx(35.0)
    assert span.take_cost(means({1: [80.0]}, {2: [60.0]}), 1.0) is None, "it is taken once"


def test_cost_of_a_change_when_epochs_grow_is_measured_by_their_present_length() -> None:
    span = a_span()
    span.start({1: "n2"}, 220.0)
    span.report(2.0, 2, 300.0)
    # 20 / 160 of an epoch, then 7 / 8 of 40 s times 2.
    assert span.take_cost(means({1: [80.0]}, {2: [40.0]}), 2.0) == pytest.approx(80.0 - 70.0)


def test_cost_of_a_change_is_never_below_nothing() -> None:
    span = a_span()
    span.start({1: "n1"}, 220.0)
    span.report(3.0, 2, 300.0)
    assert span.take_cost(means({1: [80.0], 2: [60.0]}, {}), 1.0) == 0.0


def test_cost_of_a_first_start_needs_no_time_before_it() -> None:
    span = UndisturbedSpan()
    assert (span.changed_at, span.size, span.counted_at, span.ran_s) == (-math.inf, 0, 0.0, 0.0)
    assert (span.epochs_done, span.before_s, span.before_workers) == (0.0, 0.0, 0)
    assert (span.is_spanning, span.was_spanning, span.changes) == (False, False, 0)
    span.start({0: "n1"}, 100.0)
    span.report(1.0, 1, 230.0)
    assert span.take_cost(means({1: [100.0]}, {}), 1.0) == pytest.approx(30.0)


def test_workers_that_move_leave_their_job_its_size_until_others_arrive() -> None:
    span = a_span()
    span.exit((0,), 210.0, is_migration=True)
    assert (span.workers, span.size, span.changes) == ({}, 1, 0)
    span.start({0: "n2"}, 260.0)
    assert (span.size, span.changes, span.before_s, span.before_workers) == (1, 1, 10.0, 1)
