"""What is told of a job's object that goes: a wish to cancel, or the end that it told of before."""

from collections.abc import Sequence
from typing import Any

import msgspec

from tests.builders import a_job
from voda.cluster.kubernetes.inventory import Inventory, Seen
from voda.cluster.kubernetes.kinds.pytorchjob import PyTorchJobV1
from voda.cluster.kubernetes.nodes import PoolRule
from voda.cluster.kubernetes.notices import Notices
from voda.cluster.kubernetes.objects import JobObject
from voda.cluster.port import Notice
from voda.domain.job import Job
from voda.events.types import JobCancelRequested, JobCompleted

TORCH = PyTorchJobV1()
SUCCEEDED: dict[str, Any] = {
    "conditions": [{"type": "Succeeded", "status": "True"}],
    "completionTime": "2026-01-01T00:00:00Z",
}


class Told:
    """Notices of a cluster with one live job, `a`, whose object has the uid u1."""

    def __init__(self, job: Job | None = None) -> None:
        live = job or a_job("a", name="a", namespace="ns", uid="u1")
        self.facts: list[Notice] = []
        self.inventory = Inventory(PoolRule(), {"a": live}.get)
        self.notices = Notices(self.inventory, lambda pool, fact: self.facts.append(fact))

    def see(self, job: JobObject) -> None:
        self.inventory.see_object(job.metadata.uid, TORCH, job)

    def lose(self, job: JobObject) -> None:
        self.notices.part(Seen(TORCH, job))
        self.inventory.see_object(job.metadata.uid, TORCH, None)

    def look(self) -> Sequence[Notice]:
        self.facts.clear()
        self.notices.job("a", {})
        return tuple(self.facts)


def an_object(uid: str = "u1", **status: Any) -> JobObject:
    metadata = {"name": "a", "namespace": "ns", "uid": uid, "annotations": {"voda.dev/job-id": "a"}}
    return msgspec.convert({"metadata": metadata, "status": status}, JobObject)


def test_object_that_is_deleted_while_its_job_goes_on_cancels_it() -> None:
    told = Told()
    told.see(an_object())
    told.look()
    told.lose(an_object())
    assert told.look() == (JobCancelRequested(job_id="a", reason="its MPIJob was deleted"),)


def test_object_that_is_deleted_before_anybody_looked_at_its_end_tells_the_end() -> None:
    told = Told()
    told.see(an_object())
    told.look()
    told.see(an_object(**SUCCEEDED))
    told.lose(an_object(**SUCCEEDED))
    assert told.look() == (JobCompleted(job_id="a"),)
    assert told.look() == ()


def test_object_that_is_deleted_after_its_end_was_told_tells_nothing_more() -> None:
    told = Told()
    told.see(an_object(**SUCCEEDED))
    assert told.look() == (JobCompleted(job_id="a"),)
    told.lose(an_object(**SUCCEEDED))
    assert told.look() == ()


def test_end_that_an_object_told_before_this_replica_leads_is_known_when_it_begins() -> None:
    told = Told()
    told.see(an_object(**SUCCEEDED))
    told.lose(an_object(**SUCCEEDED))
    told.notices.begin([a_job("a", name="a", namespace="ns", uid="u1")])
    assert told.notices.ends == {"a": JobCompleted(job_id="a")}


def test_end_of_another_object_that_says_it_is_the_jobs_is_not_the_jobs() -> None:
    told = Told()
    told.see(an_object())
    told.look()
    told.lose(an_object("u2", **SUCCEEDED))
    assert told.look() == ()
