"""What is queued to be told, where there is too much of it."""

from collections import Counter
from typing import cast

from tests.telemetry import RecordingTelemetry
from voda.clock import VirtualClock
from voda.kubernetes_client.api import Api
from voda.metrics import ANNOUNCEMENTS, NO_TELEMETRY, Telemetry
from voda.operator.status.announcer import Announcer
from voda.operator.status.kube_events import Announcement, Reason, Subject


def an_announcer(telemetry: Telemetry = NO_TELEMETRY) -> Announcer:
    """Return one that nobody lets send."""
    return Announcer(cast("Api", None), VirtualClock(), per_s=20.0, telemetry=telemetry)


def about(uid: str, key: int, *, at: float = 0.0, reason: Reason = "Resized") -> Announcement:
    """Return something to tell of an object."""
    subject = Subject(api_version="v1", kind="MPIJob", namespace="team", name="digits", uid=uid)
    return Announcement(subject=subject, reason=reason, message="x", at=at, key=str(key))


def test_queue_is_bounded_however_many_jobs_there_are() -> None:
    announcer = an_announcer()
    for number in range(5_000):
        announcer.put(about(f"u{number}", 1))
    assert len(announcer) == 2_000


def test_one_job_cannot_crowd_out_the_others() -> None:
    announcer = an_announcer()
    for number in range(1_000):
        announcer.put(about("loud", number))
    announcer.put(about("quiet", 1))
    assert len(announcer) == 26


def test_job_that_told_too_much_may_tell_more_after_a_while() -> None:
    announcer = an_announcer()
    for number in range(100):
        announcer.put(about("loud", number))
    for number in range(100):
        announcer.put(about("loud", 1_000 + number, at=90.0))
    assert len(announcer) == 28


def test_end_is_told_however_much_was_told_before() -> None:
    announcer = an_announcer()
    for number in range(100):
        announcer.put(about("loud", number))
    announcer.put(about("loud", 1, reason="Failed"))
    assert len(announcer) == 26


def test_same_thing_is_queued_once() -> None:
    announcer = an_announcer()
    for _ in range(10):
        announcer.put(about("u1", 7))
    assert len(announcer) == 1


def test_what_is_dropped_is_told_with_the_reason() -> None:
    telemetry = RecordingTelemetry()
    announcer = an_announcer(telemetry)
    for number in range(30):
        announcer.put(about("loud", number))
    for number in range(2_000):
        announcer.put(about(f"u{number}", 1))
    assert Counter(telemetry.counts(ANNOUNCEMENTS)) == {("crowded",): 5, ("overflowed",): 25}
