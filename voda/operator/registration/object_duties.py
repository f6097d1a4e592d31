"""What is to be done about one job object, by what the log and the object show now.

Adopt it, register it, make it ready, hold it back, restore its templates, or take over changed annotations.

Rules: at most one duty of an object is returned at a time, the first that is not delayed: what fails again and again
must not hide what comes after it. Of annotations and bounds only what differs from what the object itself notes as
recorded is taken over: a change through the API in between stays, and what a user changed while nobody led is not lost.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec

from voda.application import change_job
from voda.application.change_job import JobPatch
from voda.application.journal import Journal
from voda.application.submit_job import adoption_id
from voda.auth.callers import Caller
from voda.backoff import Backoff
from voda.cluster.kubernetes import well_known
from voda.cluster.kubernetes.kinds.base import JobKind
from voda.cluster.kubernetes.kinds.first_start import is_ready_by_start
from voda.cluster.kubernetes.kinds.pytorchjob import bounds_note, recorded_bounds, stated_bounds
from voda.cluster.kubernetes.objects import JobObject
from voda.cluster.kubernetes.state.job_annotations import (
    BOUND_ANNOTATIONS,
    RECORDED_SPEC,
    changed_fields,
    fingerprint,
    recorded_text,
    spec_text,
)
from voda.cluster.kubernetes.state.job_objects import JobMirror, KubeJob
from voda.domain.errors import InvalidInput
from voda.operator.registration.adoption import Adoption, Announce, ObjectRefused, is_at_rest
from voda.operator.registration.creation import Creation
from voda.operator.status.kube_events import Announcement, Reason, subject_of
from voda.projections.jobs.record import JobRecord

Work = Callable[[], Awaitable[object]]
Duty = tuple[str, Work]
"""The key under which failures delay it, and what to do."""
_TOUCHED: Final = " touched"
UNREADY_S: Final = 2.0
"""How long a job may wait for its start, which makes its object ready too, before that is made ready alone."""


class BoundsChange(NamedTuple):
    """A user's change of the bounds that an object's spec states: least and most replicas."""

    before: tuple[int, int]
    now: tuple[int, int]

    @property
    def is_wider(self) -> bool:
        return self.now[0] < self.before[0] or self.now[1] > self.before[1]

    @classmethod
    def of(cls, kind: JobKind, job: JobObject) -> "BoundsChange | None":
        """Return how an object's bounds differ from those noted on it; without a note there is one to write."""
        now, before = stated_bounds(kind, job), recorded_bounds(job)
        return None if now is None or now == before else cls(before or now, now)

    def fields(self) -> dict[str, int]:
        """Return the fields of `JobPatch` that the user changed."""
        both = zip(BOUND_ANNOTATIONS, self.before, self.now, strict=True)
        return {name: now for name, before, now in both if now != before}


@dataclass(frozen=True, kw_only=True)
class SpecAnnotations:
    """Records what a user changes on a live job's object: by annotations replica bounds, priority and epochs; in the
    spec the bounds of kinds that state them there.
    """

    objects: JobMirror
    journal: Journal
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
            await self._record(record, changed_fields(meta.annotations, self._recorded(job, record)))
        except (InvalidInput, msgspec.ValidationError) as error:
            sentence = f"the changed annotations are not taken over: {error}"
            self._announce(kind, job, "Invalid", sentence)
            raise ObjectRefused(sentence) from error
        noted: dict[str, Any] = {RECORDED_SPEC: spec_text(meta.annotations)}
        body = {"metadata": {"uid": meta.uid, "annotations": noted}}
        await self.objects.api.patch(KubeJob(kind, job).path, body, JobObject)

    async def take_bounds(self, kind: JobKind, job: JobObject, record: JobRecord) -> None:
        """Record the bounds that a user changed in a live object's spec, as with `voda scale`.

        Workers that run were started with the bounds of before: the object gets those back, where the new ones are
        wider, and the new ones with its next start. Conflict: the object changes just now, so try again.
        """
        path, uid = KubeJob(kind, job).path, job.metadata.uid
        # The mirror may be behind what voda itself wrote.
        present = await self.objects.api.get(path, JobObject)
        if present is None or present.metadata.uid != uid or (change := BoundsChange.of(kind, present)) is None:
            return
        fields, annotations = change.fields(), present.metadata.annotations
        for name in [name for name in fields if BOUND_ANNOTATIONS[name] in annotations]:
            del fields[name]
            sentence = f"the spec's new bound has no effect: the annotation {BOUND_ANNOTATIONS[name]} wins; change that"
            self._announce(kind, job, "NotHonoured", sentence)
        try:
            await self._record(record, fields)
        except (InvalidInput, msgspec.ValidationError) as error:
            self._announce(kind, job, "Invalid", f"the changed bounds are not taken over: {error}")
        is_restored = change.is_wider and not present.is_suspended
        least, most = change.before if is_restored else change.now
        bounds = {"minReplicas": least, "maxReplicas": most}
        metadata = {
            "uid": uid,
            "resourceVersion": present.metadata.resource_version,
            "annotations": bounds_note(bounds),
        }
        body = {"metadata": metadata, **({"spec": {"elasticPolicy": bounds}} if is_restored else {})}
        await self.objects.api.patch(path, body, JobObject)

    async def _record(self, record: JobRecord, fields: Mapping[str, int | str]) -> None:
        # Checked against the job as it is now, so that impossible bounds are announced and not recorded.
        change = msgspec.convert(fields, JobPatch)
        if fields:
            await change_job.change(self.journal, record, change, Caller(user=record.spec.user, role="user"))

    def _announce(self, kind: JobKind, job: JobObject, reason: Reason, sentence: str) -> None:
        subject, now = subject_of(kind, job.metadata), self.journal.clock.now()
        self.announce(Announcement(subject=subject, reason=reason, message=sentence, at=now, key=sentence))

    def _recorded(self, job: JobObject, record: JobRecord) -> str:
        live_job = self.journal.view.cluster.job(record.spec.job_id)
        return recorded_text(job, live_job.spec.manifest if live_job is not None else None)


@dataclass(frozen=True, kw_only=True)
class ObjectDuties:
    """Finds duties, and remembers whose templates somebody else may have changed."""

    journal: Journal
    adoption: Adoption
    creation: Creation
    annotations: SpecAnnotations
    backoff: Backoff
    touched: dict[str, bool] = field(default_factory=dict)
    """uid of an object whose spec somebody else may have changed -> whether the change was seen."""

    def forget(self, uid: str) -> None:
        self.touched.pop(uid, None)

    def see_change(self, kind: JobKind, before: JobObject, now: JobObject) -> None:
        """Note whether somebody else may have changed the spec of a job's object: what voda sets follows the plan."""
        carried, uid = now.metadata.annotations.get(well_known.JOB_ID, ""), now.metadata.uid
        is_same = before.metadata.uid == uid and before.metadata.generation == now.metadata.generation
        if is_same or before.metadata.annotations.get(well_known.JOB_ID, "") != carried:
            return
        # Until it is ready it carries no id.
        if not (job_id := carried or self.journal.view.job_registry.submission(adoption_id(uid)) or ""):
            return
        record = self.journal.view.job_registry.job(job_id)
        planned = len(record.planned) if record is not None else 0
        if now.is_suspended:
            is_touched = before.is_suspended or planned > 0
        else:
            size = kind.replicas(now)
            is_unchanged = not before.is_suspended and kind.replicas(before) == size
            is_touched = is_unchanged or size != planned
        if is_touched:
            self.touched[uid] = True

    def duty(self, kind: JobKind, job: JobObject) -> Duty | None:
        """Return what is to be done about an object; None: nothing."""
        meta = job.metadata
        if meta.deletion_timestamp is not None:
            return None
        carried, job_registry = meta.annotations.get(well_known.JOB_ID, ""), self.journal.view.job_registry
        adopted = job_registry.submission(adoption_id(meta.uid))
        record = job_registry.job(carried) if carried else None
        if adopted is not None or (record is not None and record.job.uid == meta.uid):
            own = job_registry.job(adopted or carried)
            return self._of_own(kind, job, own) if own is not None else None
        missing = self.creation.missing(carried) if record is not None else None
        if missing is not None and self.creation.is_awaited(kind, job, missing):
            return carried, partial(self.creation.register, kind, job, missing.spec)
        if not meta.is_managed or job.has_finished:
            return None
        return fingerprint(job), partial(self.adoption.adopt, kind, job)

    def is_about_touch(self, key: str) -> bool:
        return key.endswith(_TOUCHED)

    def awaits_start(self, kind: JobKind, job: JobObject) -> bool:
        """Say whether an object was adopted, and is left to its job's start, which makes it ready."""
        meta, job_registry = job.metadata, self.journal.view.job_registry
        if meta.deletion_timestamp is not None or not is_ready_by_start(kind, job):
            return False
        adopted = job_registry.submission(adoption_id(meta.uid))
        record = job_registry.job(adopted) if adopted is not None else None
        return record is not None and record.is_live and not record.is_canceling and record.job.uid == meta.uid

    def _of_own(self, kind: JobKind, job: JobObject, record: JobRecord) -> Duty | None:
        meta, job_id = job.metadata, record.spec.job_id
        if not record.is_live or record.is_canceling or record.job.uid != meta.uid:
            return None
        if meta.annotations.get(well_known.JOB_ID) != job_id:
            if meta.uid in self.touched:
                return f"{meta.uid}{_TOUCHED}", partial(self._refit, kind, job, job_id)
            if is_ready_by_start(kind, job) and self._may_start_soon(record):
                return None
            return meta.uid, partial(self.adoption.prepare, kind, job, job_id)
        return min(self._of_ready(kind, job, record), key=self._delay_of, default=None)

    def _may_start_soon(self, record: JobRecord) -> bool:
        return bool(record.planned) or self.journal.clock.now() < record.job.submitted_at + UNREADY_S

    def _delay_of(self, duty: Duty) -> float:
        due_at = self.backoff.due_at(duty[0])
        return due_at if due_at > self.journal.clock.now() else 0.0

    def _of_ready(self, kind: JobKind, job: JobObject, record: JobRecord) -> Iterator[Duty]:
        """Yield all that is to be done about an object that was made ready."""
        meta, job_id = job.metadata, record.spec.job_id
        if not job.has_finished and (change := BoundsChange.of(kind, job)) is not None:
            yield f"{meta.uid} {change.now}", partial(self.annotations.take_bounds, kind, job, record)
        if meta.uid in self.touched:
            yield f"{meta.uid}{_TOUCHED}", partial(self._refit, kind, job, job_id)
        if is_at_rest(record) and not job.is_suspended and not job.has_finished:
            yield f"{meta.uid} held", partial(self.adoption.hold, kind, job, job_id)
        if self.annotations.differ(job, record):
            yield f"{meta.uid} {spec_text(meta.annotations)}", partial(self.annotations.take, kind, job, record)

    async def _refit(self, kind: JobKind, job: JobObject, job_id: str) -> None:
        uid = job.metadata.uid
        # Before the work: what changes during it is looked at again.
        was_seen = self.touched.pop(uid, False)
        try:
            await self.adoption.refit(kind, job, job_id, was_seen=was_seen)
        except BaseException:
            self.touched[uid] = was_seen or self.touched.get(uid, False)
            raise
