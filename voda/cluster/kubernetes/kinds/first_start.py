"""The first start of an object of a user's own in one patch, which makes it ready too: one write instead of two. Pure.

Rule: only of an object that never ran, and that needs nothing beside itself: what else there has to be must be there
before its pods.
"""

from msgspec import json

from voda.cluster.kubernetes.kinds.base import JobKind, Patch, merged
from voda.cluster.kubernetes.kinds.template import TemplateValues
from voda.cluster.kubernetes.kinds.trainjob import trainjob_of
from voda.cluster.kubernetes.objects import JobObject
from voda.domain.job import JobSpec


def is_ready_by_start(kind: JobKind, job: JobObject) -> bool:
    """Say whether an object that was adopted, and not made ready yet, is made ready by its start."""
    is_new = bool(job.text) and job.is_suspended and job.status.start_time is None
    return kind.is_ready_by_start and is_new and trainjob_of(job.metadata) is None and not kind.companions(job)


def first_start_patch(kind: JobKind, job: JobObject, spec: JobSpec, values: TemplateValues, replicas: int) -> Patch:
    """Return the patch that makes an object ready, as `adoption_patch`, and starts it with that many replicas.

    The answer may be Conflict: the object has changed since a watch showed it.
    """
    ready = kind.adoption_patch(json.decode(job.text), spec, values.tolerated_taints, values.environment(spec))
    return Patch(body=merged(ready.body, kind.resume_patch(job, spec, replicas).body))
