"""Speedups beyond the sizes that were measured."""

import pytest

from tests.builders import a_job, a_state
from voda.domain.state import Estimate
from voda.policies.toolkit.estimates import speedup


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
