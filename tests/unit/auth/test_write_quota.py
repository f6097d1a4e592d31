"""What a user may write to the log within an hour."""

from asyncio import CancelledError
from contextlib import suppress

import pytest

from voda.auth.callers import Caller
from voda.auth.write_quota import DEFAULT_BYTES, WriteQuota, payer, size_of
from voda.domain.errors import InvalidInput, QuotaExceeded, StoreUnavailable
from voda.events.types import JobProgressed
from voda.projections.jobs.record import MOST_METRICS, MOST_METRICS_BYTES

NOON = 1_800_000_000.0


def test_user_who_has_written_enough_is_told_when_there_is_room_again() -> None:
    quota = WriteQuota(1_000)
    quota.charge("ann", 600, NOON)
    quota.charge("ann", 300, NOON + 90)
    with pytest.raises(
        QuotaExceeded, match=r"user ann has written 1\.0 kB .* try again at 2027-01-15T09:01:00Z"
    ) as told:
        quota.charge("ann", 200, NOON + 100)
    assert told.value.retry_after_s == 3_560
    # Of others nothing is taken.
    quota.charge("bob", 1_000, NOON + 100)
    quota.charge("ann", 200, NOON + 100 + told.value.retry_after_s)


def test_user_when_written_in_all_orders_has_no_more_than_the_quota_within_any_hour() -> None:
    quota, taken = WriteQuota(1_000), list[float]()
    for second in range(0, 4 * 3600, 7):
        try:
            quota.charge("ann", 10, NOON + second)
        except QuotaExceeded:
            continue
        taken.append(NOON + second)
    within = [sum(10 for other in taken if at <= other <= at + 3600) for at in taken]
    assert max(within) == 1_000
    assert len(taken) >= 3 * 100


def test_what_is_larger_than_an_hour_allows_is_refused_for_good() -> None:
    with pytest.raises(InvalidInput, match=r"takes 1\.1 kB of the log, and a user may write 1\.0 kB within an hour"):
        WriteQuota(1_000).charge("ann", 1_100, NOON)


def test_nobody_and_users_without_a_limit_may_write_anything() -> None:
    assert WriteQuota(1).charge("", 10**12, NOON) == 0
    assert WriteQuota(0).charge("ann", 10**12, NOON) == 0


def test_job_is_charged_to_its_user_and_an_admin_to_nobody() -> None:
    callers = [Caller(user="ann", role="user"), Caller(user="", role="job", job_id="a"), Caller(user="x", role="admin")]
    assert [payer(caller, "owner") for caller in callers] == ["ann", "owner", ""]


def test_admins_are_not_counted_whoever_writes_for_them() -> None:
    quota = WriteQuota(1, lambda user: user == "root")
    assert quota.charge(payer(Caller(user="", role="job", job_id="a"), "root"), 10**12, NOON) == 0
    with pytest.raises(InvalidInput):
        quota.charge("ann", 10, NOON)


def test_what_could_not_be_written_is_given_back_and_what_was_cancelled_is_not() -> None:
    quota = WriteQuota(1_000)
    quota.charge("ann", 400, NOON)
    with suppress(StoreUnavailable), quota.charged("ann", 600, NOON):
        # The minute in which it was taken, not that in which it failed.
        quota.charge("bob", 1, NOON + 61)
        raise StoreUnavailable("no answer")
    with suppress(CancelledError), quota.charged("ann", 600, NOON + 62):
        raise CancelledError
    with pytest.raises(QuotaExceeded):
        quota.charge("ann", 1, NOON + 63)


def test_job_that_makes_the_largest_report_each_second_does_not_meet_the_default() -> None:
    letters = MOST_METRICS_BYTES // MOST_METRICS - 8
    metrics = {f"{number:03}".ljust(letters, "m"): 0.123456789 for number in range(MOST_METRICS)}
    report = JobProgressed(job_id="a", epochs_done=1.5, workers=1, metrics=metrics)
    quota = WriteQuota(DEFAULT_BYTES)
    size = size_of(report)
    assert all(quota.charge("ann", size, NOON + second) == size for second in range(3 * 3600))
