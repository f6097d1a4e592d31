"""Takes over what a user changes on a live job's object: least, most, priority and epochs, by their annotations.

Rule: only what was changed on the object since the log last heard of it is taken over, so that what was changed
through the API meanwhile stays; what was taken over is noted on the object.
"""

from typing import Any

import msgspec

from voda.application import change_job
from voda.application.backend import Backend
from voda.application.change_job import JobChange
from voda.application.registration.adoption import Announce, Refused
from voda.application.registration.ports import JobSite
from voda.auth.callers import Caller
from voda.cluster.kubernetes.client.paths import object_path
from voda.cluster.kubernetes.kinds.base import JobKind
from voda.cluster.kubernetes.reporting.kube_events import Announcement, subject_of
from voda.cluster.kubernetes.resources.objects import JobObject
from voda.cluster.kubernetes.state.inventory import Seen
from voda.cluster.kubernetes.state.job_annotations import WISHES_TAKEN, taken_before, wishes_of, wishes_text
from voda.domain.errors import InvalidInput
from voda.projections.records import JobRecord


class WishesTaken:
    """Compares objects with what the log took over from them."""

    def __init__(self, *, site: JobSite, backend: Backend, announce: Announce) -> None:
        self._site = site
        self._backend = backend
        self._announce = announce

    def differ(self, job: JobObject, record: JobRecord) -> bool:
        """Say whether the object's wishes are others than those the log took over last."""
        return wishes_text(job.metadata.annotations) != self._taken(job, record)

    async def take(self, kind: JobKind, job: JobObject, record: JobRecord) -> None:
        """Record the changed wishes of an object, and note on it that they are recorded.

        Raises:
            Refused: they cannot be meant; this was told on the object.
            VodaError: try again.
        """
        meta = job.metadata
        try:
            given = wishes_of(meta.annotations, self._taken(job, record))
            # Checked against the job as it is by now, so that impossible bounds are told and not recorded.
            wishes = msgspec.convert(given, JobChange)
            if given:
                await change_job.change(self._backend, record, wishes, Caller(user=record.spec.user, role="user"))
        except (InvalidInput, msgspec.ValidationError) as error:
            subject, now = subject_of(kind, meta), self._backend.clock.now()
            sentence = f"the changed wishes are not taken over: {error}"
            self._announce(Announcement(subject=subject, reason="Invalid", message=sentence, at=now, key=sentence))
            raise Refused(sentence) from error
        noted: dict[str, Any] = {WISHES_TAKEN: wishes_text(meta.annotations)}
        body = {"metadata": {"uid": meta.uid, "annotations": noted}}
        await self._site.api.patch(object_path(Seen(kind, job)), body, JobObject)

    def _taken(self, job: JobObject, record: JobRecord) -> str:
        live = self._backend.view.live.cluster
        live_job = live.jobs(record.spec.pool).get(record.spec.job_id)
        return taken_before(job, live_job.spec.manifest if live_job is not None else None)
