"""Who is left alone, and for how long."""

from voda.backoff import Pauses


def test_pauses_grow_up_to_the_longest() -> None:
    pauses = Pauses(first_s=1.0, longest_s=4.0)
    lengths = []
    for attempt in range(1, 5):
        assert pauses.failed("a", 100.0) == attempt
        lengths.append(pauses.until("a") - 100.0)
    assert lengths == [1.0, 2.0, 4.0, 4.0]


def test_pause_is_as_long_as_the_server_asks_for() -> None:
    pauses = Pauses(first_s=1.0, longest_s=4.0)
    pauses.failed("a", 100.0, at_least_s=60.0)
    assert pauses.until("a") == 160.0


def test_success_ends_the_pause_and_begins_anew() -> None:
    pauses = Pauses(first_s=1.0, longest_s=4.0)
    pauses.failed("a", 100.0)
    pauses.done("a")
    assert pauses.until("a") == 0.0
    assert pauses.failed("a", 100.0) == 1


def test_pauses_that_nobody_asks_about_are_forgotten() -> None:
    pauses = Pauses(first_s=1.0, longest_s=4.0)
    pauses.failed("a", 100.0)
    pauses.failed("b", 200.0)
    pauses.forget_before(150.0)
    assert (pauses.until("a"), pauses.until("b")) == (0.0, 201.0)
