"""When pods whose claims could not be made are tried again, and when others get their turn."""

from collections.abc import Callable

import pytest

from voda.application.sharing.claims.bind_failures import BindFailures


def test_pod_that_is_refused_for_a_minute_is_hopeless_and_left_out_for_as_long_again_up_to_ten_minutes() -> None:
    failures = BindFailures()
    assert failures.is_due("a", 100.0)
    assert not failures.is_hopeless("a", 1e9)
    failures.refused("a", 100.0)
    failures.failed("a", 100.0)
    assert [failures.is_due("a", now) for now in (100.0, 100.1)] == [False, True]
    assert [failures.is_hopeless("a", now) for now in (159.9, 160.0)] == [False, True]
    assert not failures.is_last("a")
    failures.gave_up("a", 170.0)
    assert failures.is_last("a")
    assert [failures.is_due("a", now) for now in (239.9, 240.0)] == [False, True]
    failures.gave_up("a", 10_000.0)
    assert [failures.is_due("a", now) for now in (10_599.9, 10_600.0)] == [False, True]


@pytest.mark.parametrize("end", [lambda them: them.succeeded("a"), lambda them: them.forget({"b"})])
def test_pod_whose_claims_are_made_or_that_is_gone_begins_anew(end: Callable[[BindFailures], None]) -> None:
    failures = BindFailures()
    failures.refused("a", 100.0)
    failures.gave_up("a", 170.0)
    failures.forget({"a"})
    assert failures.is_last("a")
    end(failures)
    assert not failures.is_last("a")
    assert failures.is_due("a", 100.0)
    assert not failures.is_hopeless("a", 1e9)


def test_pod_that_fails_because_the_server_does_not_answer_is_tried_again_and_keeps_its_cards() -> None:
    failures = BindFailures()
    failures.failed("a", 100.0)
    assert [failures.is_due("a", now) for now in (100.0, 100.1)] == [False, True]
    assert not failures.is_hopeless("a", 1e9)
    failures.refused("a", 1_000.0)
    assert [failures.is_hopeless("a", now) for now in (1_059.9, 1_060.0)] == [False, True]


def test_pod_that_is_gone_is_forgotten_though_nothing_was_refused() -> None:
    failures = BindFailures()
    failures.failed("a", 100.0)
    failures.forget(())
    assert failures.is_due("a", 100.0)
