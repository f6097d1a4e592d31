"""Claims about the generator."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from voda.domain.errors import InvalidInput
from voda.simulator.workload import SpeedupProfile, Workload
from voda.simulator.workloads.catalogue import load_workload
from voda.simulator.workloads.poisson import mean_gpu_s
from voda.simulator.workloads.request import WorkloadOptions, parse_nodes
from voda.simulator.workloads.traces import EFFICIENCY, SPAN_PENALTY

BIG = parse_nodes("128x8")


def _durations_s(workload: Workload) -> list[float]:
    """Return the run times that were drawn: on the size asked for, packed."""
    durations = []
    for arrival in workload.arrivals:
        profile = arrival.profile
        assert isinstance(profile, SpeedupProfile)
        per_node = (8,) * (arrival.spec.requested // 8) or (arrival.spec.requested,)
        durations.append(profile.epochs * profile.epoch_s(0, per_node))
    return durations


def test_run_times_and_sizes_follow_the_published_quantiles() -> None:
    workload = load_workload("poisson", nodes=BIG, options=WorkloadOptions(jobs=20_000))
    published = {0.25: 115.0, 0.5: 1_144.0, 0.75: 2_932.0, 0.95: 43_648.0, 0.99: 254_884.0}
    drawn = np.quantile(_durations_s(workload), list(published))
    np.testing.assert_allclose(drawn, list(published.values()), rtol=0.15)
    assert np.mean([a.spec.requested == 1 for a in workload.arrivals]) == pytest.approx(0.932, abs=0.006)


def test_jobs_arrive_at_the_rate_asked_for() -> None:
    workload = load_workload("poisson", options=WorkloadOptions(jobs=5_000, rate_per_h=60.0))
    assert workload.arrivals[-1].submitted_s / 4_999 == pytest.approx(60.0, rel=0.05)


def test_jobs_without_a_rate_arrive_so_that_the_cluster_is_loaded_as_asked_for() -> None:
    workload = load_workload("poisson", nodes=BIG, options=WorkloadOptions(jobs=5_000, load=0.5))
    gap_s = workload.arrivals[-1].submitted_s / 4_999
    assert mean_gpu_s() / gap_s == pytest.approx(0.5 * 1_024, rel=0.05)


@settings(max_examples=15)
@given(seed=st.integers(), few=st.integers(1, 20), more=st.integers(20, 60), rate=st.floats(0.1, 1e4))
def test_job_number_i_is_the_same_however_many_are_drawn_and_however_fast_they_come(
    seed: int, few: int, more: int, rate: float
) -> None:
    some = load_workload("poisson", seed=seed, options=WorkloadOptions(jobs=few))
    all_of_them = load_workload("poisson", seed=seed, options=WorkloadOptions(jobs=more, rate_per_h=rate))
    assert [a.profile for a in some.arrivals] == [a.profile for a in all_of_them.arrivals[:few]]


def test_speedups_stay_within_the_documented_ranges() -> None:
    for arrival in load_workload("poisson", nodes=BIG, options=WorkloadOptions(jobs=2_000)).arrivals:
        profile = arrival.profile
        assert isinstance(profile, SpeedupProfile)
        size = max(2, arrival.spec.requested)
        low, high = EFFICIENCY
        assert low - 1e-9 <= profile.speedup[size] / size <= high + 1e-9
        assert SPAN_PENALTY[0] <= profile.span_penalty <= SPAN_PENALTY[1]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (WorkloadOptions(jobs=-1), "expected 1 to"),
        (WorkloadOptions(jobs=10_000_000), "expected 1 to"),
        (WorkloadOptions(rate_per_h=-1.0), "rate_per_h is -1.0"),
        (WorkloadOptions(rate_per_h=float("nan")), "rate_per_h is nan"),
        (WorkloadOptions(load=float("inf")), "load is inf"),
        (WorkloadOptions(load=0.0), "both 0"),
    ],
)
def test_option_out_of_range_is_refused(options: WorkloadOptions, reason: str) -> None:
    with pytest.raises(InvalidInput, match=reason):
        load_workload("poisson", options=options)
