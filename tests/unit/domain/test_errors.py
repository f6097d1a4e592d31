"""What errors say beside their message."""

import pytest

from voda.domain.errors import ClusterUnavailable, LogDamaged, closest


def test_cluster_that_did_not_say_how_long_to_leave_it_alone_says_0() -> None:
    error = ClusterUnavailable("no answer")
    assert (str(error), error.retry_after_s) == ("no answer", 0.0)
    assert ClusterUnavailable(retry_after_s=3.0).retry_after_s == 3.0


def test_damage_whose_place_is_unknown_has_no_position() -> None:
    assert (LogDamaged("torn").position, LogDamaged("torn", 7).position) == (None, 7)


@pytest.mark.parametrize(
    ("written", "known", "suggested"),
    [
        ("fifi", ["fifo", "srjf"], "fifo"),
        ("mnist", ["list", "twist"], ""),
        ("resnet", ["net", "res"], ""),
        ("digits-" + "x" * 200, ["digits"], ""),
        ("digits", [], ""),
    ],
)
def test_suggested_name_is_close_or_there_is_none(written: str, known: list[str], suggested: str) -> None:
    assert closest(written, known) == suggested
