"""What must hold once the hostile ones are gone: by what the honest one wrote down, and by the log."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct

from tests.hostile.honest import Deed
from tests.hostile.people import HONEST
from voda.events.envelope import Event
from voda.events.types import JobCompleted, JobProgressed, JobSubmitted

SERVED_WITHIN_S: Final = 1.0
_TIMES_CALM: Final = 3.0
"""As long as this many calm requests may take is borne too, for the machine may be busy with other work."""
TIMED: Final = ("whoami", "explain")
_MOST_BYTES: Final = 500_000_000


class Remains(Struct, frozen=True, kw_only=True):
    """What is left of a run."""

    deeds: Sequence[Deed]
    calm: Sequence[Deed] = ()
    """Those before anybody attacked."""
    events: Sequence[Event]
    seconds: float
    most_bytes: int
    """The most memory that voda held."""
    failures: Sequence[str] = ()
    """What went wrong outside of deeds and log, a sentence each."""
    within_s: float = SERVED_WITHIN_S
    has_jobs: bool = True
    """Whether an attack submits jobs."""


def broken(remains: Remains) -> Mapping[str, Sequence[str]]:
    """Return claim -> what breaks it, a sentence each."""
    return {
        "the honest user is served in time": list(_late(remains)),
        "each of the honest user's requests is answered": [
            f"{deed.what} {deed.job_id}: {deed.error}" for deed in remains.deeds if deed.error
        ],
        "the honest user's jobs complete and their reports arrive": list(_lost(remains)),
        "nobody else does anything to the honest user's jobs": list(_meddling(remains)),
        "voda keeps its memory": [f"{remains.most_bytes:,} bytes"] if remains.most_bytes > _MOST_BYTES else [],
        "voda goes on, and its log is sound": remains.failures,
        "something happened at all": list(_idle(remains)),
    }


def p99(deeds: Sequence[Deed], what: str) -> float:
    """Return the 99th percentile of how long a kind of request took, in seconds; NaN where there was none."""
    took = sorted(deed.took_s for deed in deeds if deed.what == what)
    return took[math.ceil(0.99 * len(took)) - 1] if took else math.nan


def _late(remains: Remains) -> Iterator[str]:
    for what in TIMED:
        calm_s = [deed.took_s for deed in remains.calm if deed.what in TIMED]
        within_s = max(remains.within_s, _TIMES_CALM * max(calm_s, default=0.0))
        if (took_s := p99(remains.deeds, what)) > within_s:
            yield f"{what}: p99 {took_s:.2f} s, expected {within_s:.2g} s"


def _lost(remains: Remains) -> Iterator[str]:
    completed = {event.data.job_id for event in remains.events if isinstance(event.data, JobCompleted)}
    reports = {
        (event.data.job_id, event.data.epochs_done) for event in remains.events if isinstance(event.data, JobProgressed)
    }
    for deed in remains.deeds:
        if deed.what == "submitted" and deed.job_id not in completed:
            yield f"job {deed.job_id} did not complete"
        if deed.what == "report" and not deed.error and (deed.job_id, deed.epoch) not in reports:
            yield f"epoch {deed.epoch} of job {deed.job_id} was acknowledged, and is not in the log"


def _meddling(remains: Remains) -> Iterator[str]:
    own = {
        event.stream
        for event in remains.events
        if isinstance(event.data, JobSubmitted) and event.data.spec.user == HONEST
    }
    for event in remains.events:
        is_of_a_person = "/" not in event.actor and event.actor not in (HONEST, "cluster", "")
        is_of_another_job = event.actor.startswith("job/") and event.actor.removeprefix("job/") != event.stream[4:]
        if event.stream in own and (is_of_a_person or is_of_another_job):
            yield f"{event.actor} recorded {event.type} of {event.stream} at position {event.position}"


def _idle(remains: Remains) -> Iterator[str]:
    asked = sum(deed.what == "whoami" for deed in remains.deeds)
    jobs = sum(deed.what == "submitted" for deed in remains.deeds)
    hostile = sum(isinstance(event.data, JobSubmitted) and event.data.spec.user != HONEST for event in remains.events)
    if asked < remains.seconds or not jobs or (remains.has_jobs and not hostile):
        yield f"{asked} requests in {remains.seconds:g} s, {jobs} honest jobs, {hostile} hostile ones"
