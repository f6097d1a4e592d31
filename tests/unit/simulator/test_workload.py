"""Claims about jobs known by their work and speedup."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import a_spec
from voda.domain.errors import InvalidInput
from voda.domain.job import validated
from voda.domain.sizes import JobSizes
from voda.simulator.workload import Arrival, SpeedupProfile, Workload, at_sizes, speedup_law


def test_epoch_when_replicas_span_nodes_takes_longer_by_the_penalty() -> None:
    profile = SpeedupProfile(epochs=10, work_s=100.0, speedup=(0.0, 1.0, 1.6), span_penalty=0.25)
    assert profile.epoch_s(0, (1,)) == pytest.approx(10.0)
    assert profile.epoch_s(9, (2,)) == pytest.approx(10.0 / 1.6)
    assert profile.epoch_s(9, (1, 1)) == pytest.approx(10.0 / 1.6 * 1.25)


@given(a=st.floats(0, 100), b=st.floats(0, 100), most=st.integers(1, 300))
def test_speedup_law_for_any_a_and_b_starts_at_one_and_is_never_better_than_linear(
    a: float, b: float, most: int
) -> None:
    speedup = speedup_law(a, b, most)
    assert len(speedup) == most + 1
    assert speedup[:2] == (0.0, 1.0)
    assert all(0.0 < speedup[n] <= n for n in range(1, most + 1))


def test_speedup_law_without_losses_is_linear() -> None:
    assert speedup_law(0.0, 0.0, 4) == (0.0, 1.0, 2.0, 3.0, 4.0)


def test_speedup_law_with_communication_falls_beyond_its_peak() -> None:
    speedup = speedup_law(0.0, 0.04, 10)
    assert max(range(11), key=speedup.__getitem__) == 5


def test_workload_when_sizes_are_given_has_jobs_that_run_at_these_within_their_bounds() -> None:
    specs = [a_spec("a", max_replicas=6, requested_replicas=3), a_spec("b", min_replicas=3, max_replicas=9)]
    profile = SpeedupProfile(epochs=1, work_s=1.0, speedup=speedup_law(0.0, 0.0, 9))
    arrivals = tuple(Arrival(spec=spec, submitted_s=0.0, profile=profile) for spec in specs)
    workload = Workload(name="w", source="", arrivals=arrivals, nodes=())
    found = [each.spec for each in at_sizes(workload, JobSizes.of([1, 2, 4, 8])).arrivals]
    assert [(spec.min_replicas, spec.requested, spec.max_replicas) for spec in found] == [(1, 2, 4), (4, 4, 8)]
    assert [validated(spec) for spec in found] == found
    with pytest.raises(InvalidInput, match=r"^sizes 7: none is between 1 and 6, as job a asks$"):
        at_sizes(workload, JobSizes.of([7]))
