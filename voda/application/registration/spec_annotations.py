"""Records what a user changes on a live job's object by annotations: replica bounds, priority and epochs.

Rule: only what changed on the object since the last time is recorded, so that a change through the API in between
stays; what was recorded is noted on the object.
"""

from dataclasses import dataclass
from typing import Any

import msgspec

from voda.application import change_job
from voda.application.backend import Backend
from voda.application.change_job import JobChange
from voda.application.registration.adoption import Announce, ObjectRefused
from voda.application.registration.ports import JobObjects
from voda.auth import Caller
from voda.cluster.kubernetes.kinds.base import JobKind
from voda.cluster.kubernetes.reporting.kube_events import Announcement, subject_of
from voda.cluster.kubernetes.resources.objects import JobObject
from voda.cluster.kubernetes.state.job_annotations import RECORDED_SPEC, changed_fields, recorded_text, spec_text
from voda.cluster.kubernetes.state.job_objects import KubeJob
from voda.domain.errors import InvalidInput
from voda.projections.job_record import JobRecord


@dataclass(frozen=True, kw_only=True)
class SpecAnnotations:
    """Compares objects with what the log recorded of them."""

    objects: JobObjects
    backend: Backend
    announce: Announce

    def differ(self, job: JobObject, record: JobRecord) -> bool:
        """Say whether the object's annotations differ from what the log recorded last."""
        return spec_text(job.metadata.annotations) != self._recorded(job, record)

    async def take(self, kind: JobKind, job: JobObject, record: JobRecord) -> None:
        """Record the changed annotations of an object, and note on it that they are recorded.

        Raises:
            ObjectRefused: they are invalid; an Event on the object says so.
            VodaError: try again.
        """
        meta = job.metadata
        try:
            given = changed_fields(meta.annotations, self._recorded(job, record))
            # Checked against the job as it is now, so that impossible bounds are announced and not recorded.
            change = msgspec.convert(given, JobChange)
            if given:
                await change_job.change(self.backend, record, change, Caller(user=record.spec.user, role="user"))
        except (InvalidInput, msgspec.ValidationError) as error:
            subject, now = subject_of(kind, meta), self.backend.clock.now()
            sentence = f"the changed annotations are not taken over: {error}"
            self.announce(Announcement(subject=subject, reason="Invalid", message=sentence, at=now, key=sentence))
            raise ObjectRefused(sentence) from error
        noted: dict[str, Any] = {RECORDED_SPEC: spec_text(meta.annotations)}
        body = {"metadata": {"uid": meta.uid, "annotations": noted}}
        await self.objects.api.patch(KubeJob(kind, job).path, body, JobObject)

    def _recorded(self, job: JobObject, record: JobRecord) -> str:
        live = self.backend.view.live.cluster
        live_job = live.jobs(record.spec.pool).get(record.spec.job_id)
        return recorded_text(job, live_job.spec.manifest if live_job is not None else None)
