"""Speedups beyond the sizes that were measured, and work that nobody knows."""

import pytest

from tests.builders import a_job, a_state
from voda.domain.settings import Settings
from voda.domain.state import Estimate
from voda.policies.toolkit.estimates import expected_remaining_s, speedup


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        ((), [0, 1, 2, 3, 4]),
        ((0, 1, 1.5), [0, 1, 1.5, 2.25, 3.0]),
        ((0, 1, 1.8, 2.4, 2.8, 3.0), [0, 1, 1.8, 2.4, 2.8, 3.0]),
    ],
)
def test_speedup_when_sizes_are_not_known_grows_by_what_the_known_replicas_are_worth(
    known: tuple[float, ...], expected: list[float]
) -> None:
    job = a_job("a", max_replicas=4)
    view = a_state(jobs=[job], estimates={"a": Estimate(speedup=known)})
    assert list(speedup(view, job)) == pytest.approx(expected)


def test_work_that_nobody_knows_is_what_the_oldest_of_the_category_will_need_and_that_one_as_much_again() -> None:
    old = a_job("old", category="resnet", attained_service_gpu_s=1000.0)
    young = a_job("young", category="resnet", attained_service_gpu_s=100.0)
    other = a_job("other", category="bert")
    known = a_job("known", category="resnet", attained_service_gpu_s=5.0)
    view = a_state(jobs=[old, young, other, known], estimates={"known": Estimate(speedup=(0.0, 1.0), remaining_s=7.0)})
    assert expected_remaining_s(view, 0.0) == {"old": 512.0, "young": 900.0 + 512.0, "other": 60.0 + 32.0, "known": 7.0}


def test_work_that_nobody_knows_is_no_more_because_another_user_runs_long_jobs_under_the_same_name() -> None:
    mine = a_job("mine", user="ada", category="resnet", attained_service_gpu_s=100.0)
    long = a_job("long", user="bob", category="resnet", attained_service_gpu_s=100_000.0)
    alone, beside = a_state(jobs=[mine]), a_state(jobs=[mine, long])
    assert expected_remaining_s(beside, 0.0)["mine"] == expected_remaining_s(alone, 0.0)["mine"] == 64.0
    trusting = a_state(jobs=[mine, long], settings=Settings(share_measurements=True))
    assert expected_remaining_s(trusting, 0.0)["mine"] > 100_000.0
