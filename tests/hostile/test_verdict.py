"""The verdict on a run finds what it looks for."""

from typing import Any

import pytest
from msgspec.structs import replace

from tests.builders import Log, a_spec
from tests.hostile.honest import Deed
from tests.hostile.people import HONEST, HOSTILE
from tests.hostile.verdict import Remains, broken
from voda.events.types import JobCanceled, JobCompleted, JobProgressed, JobSubmitted


def sound() -> Remains:
    """Return what a run leaves in which nothing went wrong."""
    log = Log()
    log.add(JobSubmitted(spec=a_spec("honest-1", user=HONEST)), at=0)
    log.add(JobSubmitted(spec=a_spec("evil-1", user=HOSTILE)), at=1)
    log.add(JobProgressed(job_id="honest-1", epochs_done=1, workers=1), at=2)
    log.add(JobCompleted(job_id="honest-1"), at=3)
    deeds = [Deed(what="whoami", took_s=0.1), Deed(what="explain", took_s=0.2)] * 100
    deeds += [
        Deed(what="submitted", took_s=0.1, job_id="honest-1"),
        Deed(what="report", took_s=0.1, job_id="honest-1", epoch=1),
    ]
    events = [replace(event, actor=HONEST) for event in log.events]
    return Remains(deeds=deeds, events=events, seconds=10.0, most_bytes=1)


def found(remains: Remains) -> list[str]:
    return [what for sentences in broken(remains).values() for what in sentences]


def test_run_in_which_nothing_went_wrong_breaks_no_claim() -> None:
    assert found(sound()) == []


@pytest.mark.parametrize(
    ("deed", "sentence"),
    [
        ({"what": "whoami", "took_s": 3.0}, "whoami: p99 3.00 s, expected 1 s"),
        ({"what": "explain", "took_s": 3.0}, "explain: p99 3.00 s, expected 1 s"),
        ({"what": "get", "took_s": 0.1, "job_id": "a", "error": "lost"}, "get a: lost"),
        ({"what": "submitted", "took_s": 0.1, "job_id": "honest-2"}, "job honest-2 did not complete"),
        (
            {"what": "report", "took_s": 0.1, "job_id": "honest-1", "epoch": 2},
            "epoch 2 of job honest-1 was acknowledged, and is not in the log",
        ),
    ],
)
def test_deed_that_came_to_nothing_is_found(deed: dict[str, Any], sentence: str) -> None:
    remains = sound()
    assert found(replace(remains, deeds=[*remains.deeds, *[Deed(**deed)] * 5]))[0] == sentence


def test_what_another_user_or_job_does_to_an_honest_job_is_found() -> None:
    remains = sound()
    end, report = remains.events[3], remains.events[2]
    theirs = [replace(end, actor=HOSTILE, data=JobCanceled(job_id="honest-1")), replace(report, actor="job/evil-1")]
    assert len(found(replace(remains, events=[*remains.events, *theirs]))) == 2
    own = [replace(end, actor=HONEST), replace(end, actor="controller/r1"), replace(report, actor="job/honest-1")]
    assert found(replace(remains, events=[*remains.events, *own])) == []


def test_voda_that_takes_all_memory_or_ends_and_a_run_of_nothing_are_found() -> None:
    remains = sound()
    assert found(replace(remains, most_bytes=2_000_000_000)) == ["2,000,000,000 bytes"]
    assert found(replace(remains, failures=["voda ended with 1"])) == ["voda ended with 1"]
    assert found(replace(remains, deeds=[]))[-1] == "0 requests in 10 s, 0 honest jobs, 1 hostile ones"
