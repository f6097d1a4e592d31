"""Which object is taken for the one that a job waits for."""

from types import SimpleNamespace
from typing import cast

import msgspec

from tests.builders import a_job
from voda.application.journal import Journal
from voda.cluster.kubernetes.kinds.indexed_job import IndexedJobV1
from voda.cluster.kubernetes.kinds.template import TemplateValues
from voda.cluster.kubernetes.objects import JobObject
from voda.cluster.kubernetes.state.job_objects import JobMirror
from voda.operator.registration.creation import Creation


def test_object_that_is_to_be_replaced_for_a_success_that_is_none_is_not_awaited() -> None:
    metadata = {"name": "a", "namespace": "default", "uid": "u1", "annotations": {"voda.dev/job-id": "a"}}
    of_no_pod = cast(JobMirror, SimpleNamespace(pods_of=lambda _: ()))
    creation = Creation(objects=of_no_pod, journal=cast(Journal, None), values=TemplateValues())
    ran = a_job("a", max_replicas=4, namespace="default", first_started_at=1.0)
    for done, is_awaited in (("", True), ("0", False)):
        raw = {"metadata": metadata, "spec": {"parallelism": 4}, "status": {"completedIndexes": done}}
        assert creation.is_awaited(IndexedJobV1(), msgspec.convert(raw, JobObject), ran) == is_awaited
