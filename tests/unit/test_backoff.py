"""When a key that failed may be tried again."""

import pytest

from voda.backoff import Backoff, delay_s


@pytest.fixture
def backoff() -> Backoff:
    return Backoff(first_s=1.0, longest_s=4.0)


def test_delays_grow_up_to_the_longest(backoff: Backoff) -> None:
    delays = []
    for attempt in range(1, 5):
        assert backoff.failed("a", 100.0) == attempt
        delays.append(backoff.due_at("a") - 100.0)
    assert delays == [1.0, 2.0, 4.0, 4.0]
    assert delay_s(10_000, first_s=1.0, longest_s=4.0) == 4.0


def test_delay_is_as_long_as_the_server_asks_for(backoff: Backoff) -> None:
    backoff.failed("a", 100.0, at_least_s=60.0)
    assert backoff.due_at("a") == 160.0


def test_success_ends_the_delay_and_begins_anew(backoff: Backoff) -> None:
    backoff.failed("a", 100.0)
    backoff.reset("a")
    assert backoff.due_at("a") == 0.0
    assert backoff.failed("a", 100.0) == 1


def test_key_is_due_once_its_delay_is_over_and_always_where_it_did_not_fail(backoff: Backoff) -> None:
    backoff.failed("a", 100.0)
    assert (backoff.is_due("a", 100.9), backoff.is_due("a", 101.0), backoff.is_due("b", 0.0)) == (False, True, True)
    assert (backoff.due(100.9), backoff.due(101.0)) == ([], ["a"])


def test_jitter_makes_delays_longer_by_up_to_its_share_and_the_same_way_each_time() -> None:
    first, second = (Backoff(first_s=10.0, longest_s=10.0, jitter=0.5) for _ in range(2))
    for key in "abcdef":
        first.failed(key, 0.0)
        second.failed(key, 0.0)
    delays = [first.due_at(key) for key in "abcdef"]
    assert len(set(delays)) == 6
    assert all(10.0 <= delay <= 15.0 for delay in delays)
    assert delays == [second.due_at(key) for key in "abcdef"]


def test_keys_that_nobody_asks_about_are_forgotten(backoff: Backoff) -> None:
    backoff.failed("a", 100.0)
    backoff.failed("b", 200.0)
    backoff.forget_before(150.0)
    assert (backoff.due_at("a"), backoff.due_at("b")) == (0.0, 201.0)
    backoff.clear()
    assert backoff.due_at("b") == 0.0
