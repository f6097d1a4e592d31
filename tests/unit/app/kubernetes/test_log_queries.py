"""Which objects count as labelled for voda, and not taken in."""

from typing import Any

import msgspec

from tests.builders import Log, a_spec
from tests.kube.objects import an_mpijob
from voda.app.kubernetes.log_queries import unadopted
from voda.cluster.kubernetes import well_known
from voda.cluster.kubernetes.kinds.mpijob import MPIJobV2
from voda.cluster.kubernetes.objects import JobObject
from voda.cluster.kubernetes.state.job_objects import KubeJob
from voda.events.types import JobRegistered, JobSubmitted
from voda.projections.jobs.registry import JobRegistry


def an_object(uid: str, **changes: Any) -> KubeJob:
    manifest = an_mpijob("digits", "team", **{key: changes[key] for key in changes if key != "status"})
    metadata = {**manifest["metadata"], "uid": uid}
    whole = {**manifest, "metadata": metadata, "status": changes.get("status", {})}
    return KubeJob(MPIJobV2(), msgspec.convert(whole, JobObject))


def test_objects_that_nobody_knows_wait_until_they_are_refused() -> None:
    assert unadopted([an_object("1"), an_object("2")], JobRegistry(), {"2"}) == {"waiting": 1, "refused": 1}


def test_objects_that_voda_is_not_asked_to_run_do_not_count() -> None:
    ended = {"conditions": [{"type": "Succeeded", "status": "True"}]}
    others = [an_object("1", managed=False), an_object("2", status=ended)]
    assert unadopted(others, JobRegistry(), ()) == {"waiting": 0, "refused": 0}


def test_objects_of_jobs_do_not_count_adopted_or_made_by_voda() -> None:
    log, job_registry = Log(), JobRegistry()
    for fact in (JobSubmitted(spec=a_spec("made")), JobRegistered(job_id="made", uid="1", kind="MPIJob")):
        job_registry.apply(log.add(fact, at=0.0))
    assert unadopted([an_object("1", annotations={well_known.JOB_ID: "made"})], job_registry, ())["waiting"] == 0
    assert unadopted([an_object("9", annotations={well_known.JOB_ID: "made"})], job_registry, ())["waiting"] == 1
