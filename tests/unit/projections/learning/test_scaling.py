"""The law of scaling: found where there is one, harmless where there is none."""

import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from voda.projections.learning.means import EpochMeans, Point
from voda.projections.learning.scaling import (
    CategoryHistory,
    Scaling,
    ScalingLaw,
    Sizes,
    estimate_scaling,
    fit_law,
    is_material,
    scaling_of,
)


def measured(law: ScalingLaw, *sizes: int) -> list[Point]:
    return [Point(n, law.e1 / law.speedup(n), 3.0) for n in sizes]


laws = st.builds(ScalingLaw, e1=st.floats(0.01, 1e5), a=st.floats(0, 0.5), b=st.floats(0, 0.05))


@given(laws, st.sets(st.integers(1, 32), min_size=3, max_size=8))
def test_law_when_three_sizes_follow_it_is_found(law: ScalingLaw, sizes: set[int]) -> None:
    assume(law.speedup(min(sizes)) >= 1.0)
    scaling = scaling_of(points := measured(law, *sorted(sizes)), Sizes(64), "measured")
    found = fit_law(points)
    assert found.e1 == pytest.approx(law.e1, rel=0.02)
    for n in range(1, 65):
        if n in sizes or not min(sizes) < n < max(sizes):
            assert scaling.speedup[n] == pytest.approx(law.speedup(n), rel=0.02)


def test_law_when_only_one_size_was_seen_is_linear_from_there() -> None:
    points = [Point(4, 25.0, 1.0)]
    scaling = scaling_of(points, Sizes(8), "measured")
    assert scaling.e1 == pytest.approx(100.0)
    assert scaling.speedup == pytest.approx([float(n) for n in range(9)], rel=1e-6)
    assert scaling.source == "assumed"


def test_law_when_two_sizes_were_seen_is_that_of_amdahl() -> None:
    law = fit_law([Point(1, 100.0, 1.0), Point(2, 60.0, 1.0)])
    assert (law.a, law.b) == pytest.approx((0.2, 0.0), abs=1e-3)


def test_law_when_only_large_sizes_were_seen_and_contradict_it_keeps_one_worker_slowest() -> None:
    """Measured: 12 workers on 3 nodes, then many more on many nodes, which says nothing about one worker."""
    scaling = scaling_of([Point(12, 5.5, 1.0), Point(20, 5.3, 1.0), Point(32, 16.0, 1.0)], Sizes(12), "measured")
    assert scaling.e1 >= 5.5
    assert scaling.speedup[12] >= 1.0


def test_speedup_when_measured_is_kept_and_interpolated_between_sizes() -> None:
    points = [Point(1, 100.0, 1.0), Point(2, 80.0, 1.0), Point(4, 50.0, 1.0)]
    scaling = scaling_of(points, Sizes(6), "measured")
    assert scaling.speedup[:5] == pytest.approx((0.0, 1.0, 1.25, 1.625, 2.0))
    law = fit_law(points)
    assert scaling.speedup[6] == pytest.approx(2.0 * law.speedup(6) / law.speedup(4))
    assert scaling.source == "measured"


def test_law_when_more_workers_hurt_is_retrograde() -> None:
    law = ScalingLaw(e1=100.0, a=0.0, b=0.05)
    points = measured(law, 1, 4, 8)
    scaling = scaling_of(points, Sizes(16), "measured")
    assert scaling.speedup[16] < scaling.speedup[8] < scaling.speedup[4]


def test_law_when_no_fit_is_found_is_linear_from_the_smallest_size(monkeypatch: pytest.MonkeyPatch) -> None:
    def give_up(*_: object) -> None:
        raise RuntimeError("no convergence")

    monkeypatch.setattr("scipy.optimize.nnls", give_up)
    assert fit_law([Point(2, 30.0, 1.0), Point(4, 20.0, 1.0)]) == ScalingLaw(e1=60.0, a=0.0, b=0.0)


def means(epochs: dict[int, float]) -> EpochMeans:
    measured = EpochMeans()
    for workers, epoch_s in epochs.items():
        measured.add(workers, epoch_s, is_spanning=False)
    return measured


CATEGORY = {1: 100.0, 2: 60.0, 4: 45.0}


@pytest.mark.parametrize("longer", [1.0, 10.0, 0.001])
def test_job_when_its_epochs_differ_from_its_category_by_their_length_alone_shares_the_law(longer: float) -> None:
    history = CategoryHistory(means(CATEGORY))
    scaling = estimate_scaling(means({1: 300.0 * longer, 2: 181.0 * longer}), history, Sizes(16))
    assert scaling.speedup == history.scaling(Sizes(16)).speedup
    assert scaling.e1 == pytest.approx(100.0 * longer * (3.0 + 181.0 / 60.0) / 2)
    assert scaling.source == "measured"


def test_job_when_it_scales_otherwise_has_a_law_of_its_own_in_which_its_category_weighs_less() -> None:
    scaling = estimate_scaling(means({1: 300.0, 2: 188.0}), CategoryHistory(means(CATEGORY)), Sizes(16))
    ratio = (3.0 + 188.0 / 60.0) / 2
    assert scaling.e1 == 300.0
    assert scaling.speedup[:5] == pytest.approx(
        (0.0, 1.0, 300 / 188, (300 / 188 + 300 / 45 / ratio) / 2, 300 / 45 / ratio)
    )
    points = [Point(1, 300.0, 1), Point(2, 188.0, 1), Point(4, 45.0 * ratio, 0.5)]
    assert scaling == scaling_of(points, Sizes(16), "measured")


def test_job_of_an_unknown_category_is_assumed_linear_and_of_unknown_length() -> None:
    scaling = CategoryHistory(EpochMeans()).scaling(Sizes(2))
    assert (scaling.e1, scaling.speedup, scaling.source) == (math.inf, (0.0, 1.0, 2.0), "assumed")


@pytest.mark.parametrize(
    ("after", "is_different"),
    [
        (Scaling(100.0, (0.0, 1.0, 2.0)), False),
        (Scaling(110.0, (0.0, 1.0, 2.19)), False),
        (Scaling(90.0, (0.0, 1.0, 1.81)), False),
        (Scaling(111.0, (0.0, 1.0, 2.0)), True),
        (Scaling(100.0, (0.0, 1.0, 1.7)), True),
        (Scaling(math.inf, (0.0, 1.0, 2.0)), True),
        (Scaling(100.0, (0.0, 1.0, 2.0, 3.0)), True),
    ],
)
def test_scaling_when_time_or_speed_differ_by_more_than_a_tenth_is_another(after: Scaling, is_different: bool) -> None:
    assert is_material(Scaling(100.0, (0.0, 1.0, 2.0)), after) == is_different


def test_scaling_when_its_time_becomes_known_is_another_and_else_the_same() -> None:
    unknown = Scaling(math.inf, (0.0, 1.0))
    assert not is_material(unknown, unknown)
    assert is_material(unknown, Scaling(100.0, (0.0, 1.0)))


points = st.dictionaries(
    st.integers(1, 100_000), st.tuples(st.floats(1e-6, 1e9), st.integers(1, 10**9)), min_size=1, max_size=6
).map(lambda seen: [Point(n, *seen[n]) for n in sorted(seen)])


@given(points, st.integers(1, 40), st.integers(1, 40))
def test_speedup_when_the_measurements_make_no_sense_is_finite_and_positive(
    points: list[Point], max_replicas: int, requested: int
) -> None:
    scaling = scaling_of(points, Sizes(max_replicas, requested), "measured")
    assert 0 < scaling.e1 < math.inf
    assert len(scaling.speedup) == max_replicas + 1
    assert scaling.speedup[:2] == (0.0, 1.0)
    assert all(0 < speed < math.inf for speed in scaling.speedup[1:])
    assert scaling.spread >= 1


def test_scaling_is_assumed_until_two_sizes_were_measured() -> None:
    one, two = Point(1, 100.0, 1.0), Point(2, 60.0, 1.0)
    found = [scaling_of(points, Sizes(2), "category").source for points in ([one], [two], [one, two])]
    assert found == ["assumed", "assumed", "category"]


def test_scaling_until_two_sizes_were_measured_is_of_three_quarters_at_the_size_asked_for() -> None:
    nothing, one = (scaling_of(points, Sizes(16, 8), "measured") for points in ([], [Point(8, 10.0, 1.0)]))
    assert nothing.speedup[8] == pytest.approx(6.0)
    assert nothing.speedup[16] < 2 * nothing.speedup[8]
    assert one.speedup == nothing.speedup
    assert one.e1 == pytest.approx(60.0)


def test_spread_of_a_speedup_is_the_greater_the_farther_the_size_asked_for_is_from_those_measured() -> None:
    points = [Point(1, 100.0, 4.0), Point(2, 60.0, 4.0)]
    near, far = (scaling_of(points, Sizes(16, requested), "measured").spread for requested in (2, 16))
    assert 1 < near < far
