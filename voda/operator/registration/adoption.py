"""Adopts objects that users create with kubectl: submits them as jobs, and makes them ready to run.

Rules: an object is adopted once, whatever crashes in between, because its uid is the key; it is suspended before its
job is submitted, and cannot start before its templates are voda's, because the patch that names the job sets both, and
may start it (kinds/first_start.py). An object that voda cannot run, or that another controller runs, gets an Event that
says so and stays as it is.
"""

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from voda.application.journal import Journal
from voda.application.submit_job import JobSubmitter, adoption_id
from voda.auth.callers import Caller
from voda.cluster.kubernetes import well_known
from voda.cluster.kubernetes.convergence.trainjobs import patch_trainjob
from voda.cluster.kubernetes.kinds.base import JobKind
from voda.cluster.kubernetes.kinds.first_start import is_ready_by_start
from voda.cluster.kubernetes.kinds.pytorchjob import bounds_note, stated_bounds
from voda.cluster.kubernetes.kinds.template import TemplateValues
from voda.cluster.kubernetes.kinds.trainjob import trainjob_of
from voda.cluster.kubernetes.objects import JobObject, ObjectMeta
from voda.cluster.kubernetes.state.job_annotations import foreign_manager, manifest_of, user_of, user_warnings
from voda.cluster.kubernetes.state.job_objects import JobMirror
from voda.domain.errors import (
    ActionRefused,
    AlreadyExists,
    InvalidInput,
    MissingReference,
    NotAllowed,
    PermanentError,
    QuotaExceeded,
    TooManyJobs,
)
from voda.domain.job import Job, JobSpec
from voda.domain.node import PodNeeds
from voda.events.types import JobChanged
from voda.kinds.base import FieldWarning
from voda.kubernetes_client.errors import Conflict
from voda.manifests.parse import DEVICE_CLASS
from voda.metrics import ADOPTIONS, NO_TELEMETRY, Telemetry
from voda.operator.registration.companions import make_companions
from voda.operator.status.kube_events import Announcement, Reason, subject_of
from voda.projections.jobs.record import JobRecord

_log = logging.getLogger(__name__)

Announce = Callable[[Announcement], None]
MarkRefused = Callable[[str, str], bool]
"""(uid of an object, why voda does not run it) -> whether that is new."""
_BOUNDS: Final = "elasticPolicy"
"""Field of spec that is not restored where the change was not seen."""
_MOST_TRIES: Final = 3
"""Of one patch; each but the last lost to somebody who changed the object at the same moment."""
_MOST_WARNINGS: Final = 5
"""Of one object that an Event spells out; the rest are counted."""


_SUSPENDED: Final = (
    "suspended once, so that voda can place its pods; a manifest that suspends it from the start saves that"
)


_FIRST_TO_FREE: Final = (1, 36)
"""Kubernetes from which the template of a Job that ran can be changed once the Job is suspended."""
_RAN_BEFORE: Final = (
    "it has started already, and Kubernetes older than 1.36 lets nobody change the template of such a Job again: delete"
    " it, and create it with suspend: true"
)
_STILL_STARTED: Final = (
    "the Job is suspended, and its status still has a startTime; if that stays so, delete it and create it with"
    " suspend: true"
)


class ObjectRefused(InvalidInput):
    """voda does not adopt the object as it stands; an Event on it says why."""


def too_old(kind: JobKind) -> str:
    """Return why voda cannot run jobs of a kind whose objects forget that they are suspended."""
    return (
        f"the {kind.name} of this cluster ({kind.api_version}) knows no suspend, so voda cannot halt it:"
        " install mpi-operator v0.4 or training-operator v1.7, or newer"
    )


class _Version(Struct, frozen=True):
    major: str = ""
    minor: str = ""


@dataclass(frozen=True, kw_only=True)
class Adoption:
    objects: JobMirror
    journal: Journal
    submits: JobSubmitter
    values: TemplateValues
    announce: Announce
    refused: MarkRefused = lambda uid, sentence: True
    telemetry: Telemetry = NO_TELEMETRY
    has_user_policy: bool = False
    """Whether admission lets nobody write another's name into an object."""

    async def adopt(self, kind: JobKind, job: JobObject) -> None:
        """Adopt an object, unless voda must not or cannot run it.

        Raises:
            ObjectRefused: it must not, or cannot; look again when the object changes.
            VodaError: it cannot be adopted now: try again.
        """
        meta = job.metadata
        if reason := foreign_manager(kind, job):
            self._announce_on(kind, meta, "NotManaged", reason)
            raise ObjectRefused(reason)
        if (found := await self._whole(kind, job)) is None:
            return
        try:
            user = user_of(meta, is_checked=self.has_user_policy)
            who, manifest = Caller(user=user, role="user"), manifest_of(found, kind)
            self._refuse_namesake(kind, meta)
            checked = self.submits.check(manifest, who)
            precondition = await self._precondition(kind, job, found)
            if not job.is_suspended:
                # Pods that the operator has made by now are not placed by voda: they go first.
                self._announce_on(kind, meta, "Suspended", _SUSPENDED)
                found = await self._suspended(kind, meta, precondition)
            submitted = await self.submits.adopt(manifest, who, uid=meta.uid, checked=checked)
        except (AlreadyExists, TooManyJobs, QuotaExceeded, MissingReference, NotAllowed, ActionRefused) as error:
            # Soon it may be possible: what it names may be applied right behind it, a member added, a webhook mended.
            self._refuse(kind, meta, str(error), "NotAccepted")
            raise
        except InvalidInput as error:
            self._refuse(kind, meta, str(error), "Invalid")
            raise ObjectRefused(str(error)) from error
        if submitted.is_new:
            self.telemetry.count(ADOPTIONS, "adopted")
            _log.info("adopted job_id=%s object=%s uid=%s", submitted.record.spec.job_id, meta.key, meta.uid)
        self._warn(kind, meta, (*user_warnings(meta, is_checked=self.has_user_policy), *checked.warnings))
        if not is_ready_by_start(kind, job):
            # Even if it says that it is ready: it may be a copy of an object that was ready elsewhere.
            await self._make_ready(kind, meta, found, submitted.record.spec.job_id, is_new=True)

    async def _precondition(self, kind: JobKind, job: JobObject, found: Mapping[str, Any]) -> Mapping[str, str]:
        """Return what must hold of an object to suspend it; ObjectRefused: it could never be made ready after that."""
        precondition = {"uid": job.metadata.uid}
        is_fixed = _is_fixed(kind, found)
        if kind.has_fixed_templates and (is_fixed or not job.is_suspended) and not await self._frees_templates():
            if is_fixed:
                raise ObjectRefused(_RAN_BEFORE)
            # It may start at this very moment.
            precondition["resourceVersion"] = found["metadata"]["resourceVersion"]
        return precondition

    async def _frees_templates(self) -> bool:
        """Say whether the server lets templates of suspended Jobs that ran be changed; it may be upgraded meanwhile."""
        version = await self.objects.api.get("/version", _Version) or _Version()
        major, minor = (re.match(r"\d{1,9}", part) for part in (version.major, version.minor))
        # Clouds write "35+".
        return major is not None and minor is not None and (int(major[0]), int(minor[0])) >= _FIRST_TO_FREE

    def _refuse_namesake(self, kind: JobKind, meta: ObjectMeta) -> None:
        """Raise where a live job of another kind has the object's name: the pods of both would be named alike."""
        job_registry = self.journal.view.job_registry
        record = job_registry.job(job_registry.live_named(meta.namespace, meta.name) or "")
        if record is not None and record.spec.kind != kind.name:
            raise AlreadyExists(
                f"job {record.spec.job_id} is a {record.spec.kind} of the name {meta.name!r} and is live: the pods of"
                f" both would be named alike; delete one of them, or create the {kind.name} under another name"
            )

    async def prepare(self, kind: JobKind, job: JobObject, job_id: str) -> None:
        """Make the object of a live job ready to run, suspended until the job is started."""
        await self._make_ready(kind, job.metadata, await self._whole(kind, job), job_id)

    async def hold(self, kind: JobKind, job: JobObject, job_id: str) -> None:
        """Suspend an object that somebody resumed though its job shall wait."""
        journal = self.journal
        # Before voda resumes an object, the log says that its job shall run.
        await journal.catch_up()
        record = journal.view.job_registry.job(job_id)
        if record is not None and is_at_rest(record):
            known = {"uid": job.metadata.uid, "resourceVersion": job.metadata.resource_version}
            await self._suspended(kind, job.metadata, known)

    async def refit(self, kind: JobKind, job: JobObject, job_id: str, *, was_seen: bool) -> None:
        """Record what the pods of a suspended object ask for now, and restore what somebody removed from its templates:
        new pods need it.

        Applying a manifest again replaces its containers as a whole. The object keeps the bounds that it states: the
        agents that run were started with them. If the change was not seen, it gets none where it states none.
        """
        found, spec = await self._read_object(kind, job.metadata), self._spec(job_id)
        if found is None or spec is None:
            return
        if not _is_fixed(kind, found) and _is_noted(found, job_id):
            await self._restore(kind, job, found, spec, was_seen=was_seen)
        await self._take_templates(kind, job, found, spec)

    async def _restore(
        self, kind: JobKind, job: JobObject, found: Mapping[str, Any], spec: JobSpec, *, was_seen: bool
    ) -> None:
        body = dict(kind.adoption_patch(found, spec, self.values.tolerated_taints, self.values.environment(spec)).body)
        # Where the object states bounds, they are those of its agents: only a start makes them wider.
        keeps_bounds = not was_seen or stated_bounds(kind, msgspec.convert(found, JobObject)) is not None
        kept = {*kind.kept_fields, _BOUNDS} if keeps_bounds else kind.kept_fields
        lacking = {name: value for name, value in body.get("spec", {}).items() if name not in kept}
        if lacking:
            known = {"uid": job.metadata.uid, "resourceVersion": found["metadata"]["resourceVersion"]}
            noted = bounds_note(body["spec"][_BOUNDS]) if _BOUNDS in lacking else None
            await self._patched(kind, job.metadata, {"spec": lacking}, known, annotations=noted)

    async def _take_templates(self, kind: JobKind, job: JobObject, found: Mapping[str, Any], spec: JobSpec) -> None:
        """Record what the pods of a suspended object ask for now, if that is not what its job was submitted with."""
        meta, live = job.metadata, self.journal.view.cluster.job(spec.job_id)
        if live is None or live.workers or not msgspec.convert(found, JobObject).is_suspended or spec.share is not None:
            return
        if DEVICE_CLASS in meta.annotations or self.journal.view.job_registry.submission(adoption_id(meta.uid)) is None:
            # Its templates are voda's own, which no manifest says so.
            return
        accepted = (live.spec.manifest or {}).get("metadata") or {}
        try:
            # What its annotations and labels say now is taken over, or refused, by itself.
            manifest = {**manifest_of(found, kind), "metadata": accepted}
            asked = self.submits.read(manifest, Caller(user=spec.user, role="user")).spec
            if asked.share is not None:
                raise InvalidInput("its pods ask for a part of a GPU, and had whole ones")
        except PermanentError as error:
            self._announce_on(kind, meta, "Invalid", f"the changed templates are not taken over: {error}")
            return
        needs, had = asked.needs or PodNeeds(), spec.needs or PodNeeds()
        # Those that voda adds say nothing of what somebody changed.
        own = [each for each in needs.tolerations if each.key not in self.values.tolerated_taints]
        needs = replace(needs, tolerations=tuple(own)) if own == [*had.tolerations] else needs
        if (asked.gpus_per_replica, asked.launcher_gpus, needs) == (spec.gpus_per_replica, spec.launcher_gpus, had):
            return
        fact = JobChanged(
            job_id=spec.job_id,
            gpus_per_replica=asked.gpus_per_replica,
            launcher_gpus=asked.launcher_gpus,
            needs=needs,
        )
        await self.journal.record(fact, actor=spec.user, payer=spec.user)

    async def _make_ready(
        self, kind: JobKind, meta: ObjectMeta, found: Mapping[str, Any] | None, job_id: str, *, is_new: bool = False
    ) -> None:
        for tries_left in reversed(range(_MOST_TRIES)):
            if found is None or (not is_new and _is_noted(found, job_id)):
                # It is gone; or it is ready, and may have been resumed since.
                return
            try:
                await self._fit(kind, meta, found, job_id)
            except Conflict:
                if not tries_left:
                    raise
                # Its operator has just written its first conditions.
                found = await self._read_object(kind, meta)
            else:
                return

    async def _fit(self, kind: JobKind, meta: ObjectMeta, found: Mapping[str, Any], job_id: str) -> None:
        if (spec := self._spec(job_id)) is None:
            return
        if _is_fixed(kind, found):
            raise Conflict(f"the template of {meta.key} cannot be changed yet: {await self._freed(kind, meta, found)}")
        if kind.has_fixed_templates and not msgspec.convert(found, JobObject).is_suspended:
            # Somebody resumed it, and it has not started: a template cannot be changed in the patch that suspends it.
            known = {"uid": meta.uid, "resourceVersion": found["metadata"]["resourceVersion"]}
            found = await self._suspended(kind, meta, known)
        await make_companions(self.objects.api, kind, msgspec.convert(found, JobObject))
        body = kind.adoption_patch(found, spec, self.values.tolerated_taints, self.values.environment(spec)).body
        # The patch must meet the version that was read: it replaces lists as a whole.
        known = {"uid": meta.uid, "resourceVersion": found["metadata"]["resourceVersion"]}
        now = await self._patched(kind, meta, body, known, annotations={well_known.JOB_ID: job_id})
        if not msgspec.convert(now, JobObject).is_suspended:
            raise ObjectRefused(too_old(kind))
        for path in kind.outdated_paths(meta.namespace, meta.name):
            await self.objects.api.delete(path)

    async def _freed(self, kind: JobKind, meta: ObjectMeta, found: Mapping[str, Any]) -> str:
        """Suspend an object that somebody resumed before it was ready; return why its template is still fixed."""
        if not msgspec.convert(found, JobObject).is_suspended:
            if not await self._frees_templates():
                return _RAN_BEFORE
            await self._suspended(kind, meta, {"uid": meta.uid})
        return _STILL_STARTED

    async def _suspended(self, kind: JobKind, meta: ObjectMeta, known: Mapping[str, str]) -> Mapping[str, Any]:
        """Suspend an object and return it.

        Conflict: it will be suspended by the TrainJob that it was made of; ActionRefused: that does not exist.
        """
        body = kind.suspend_patch().body
        if (made_of := trainjob_of(meta)) is None:
            return await self._patched(kind, meta, body, known)
        await patch_trainjob(self.objects.api, made_of, body, meta)
        raise Conflict(f"{meta.key} is about to be suspended by its TrainJob")

    def _spec(self, job_id: str) -> JobSpec | None:
        job = self.journal.view.cluster.job(job_id)
        return job.spec if job is not None else None

    async def _whole(self, kind: JobKind, job: JobObject) -> Mapping[str, Any] | None:
        """Return all of an object that has no job yet; None where it is gone, or is going."""
        # What the watch brought saves a request; where it is outdated, the object is read once it cannot be patched.
        return msgspec.json.decode(job.text) if job.text else await self._read_object(kind, job.metadata)

    async def _read_object(self, kind: JobKind, meta: ObjectMeta) -> Mapping[str, Any] | None:
        """Return the whole object; None where it is gone, or is going."""
        found: Mapping[str, Any] | None = await self.objects.api.get(kind.path(meta.namespace, meta.name), dict)
        if found is None or found["metadata"].get("uid") != meta.uid or found["metadata"].get("deletionTimestamp"):
            return None
        return found

    async def _patched(
        self,
        kind: JobKind,
        meta: ObjectMeta,
        body: Mapping[str, Any],
        known: Mapping[str, str],
        *,
        annotations: Mapping[str, str | None] | None = None,
    ) -> Mapping[str, Any]:
        """Patch an object that is still the one known, and return it; Conflict: it changed, or it is gone."""
        metadata = {**body.get("metadata", {}), **known}
        if annotations:
            metadata["annotations"] = {**metadata.get("annotations", {}), **annotations}
        path = kind.path(meta.namespace, meta.name)
        now: Mapping[str, Any] | None = await self.objects.api.patch(path, {**body, "metadata": metadata}, dict)
        if now is None:
            raise Conflict(f"{path} is gone")
        return now

    def _refuse(self, kind: JobKind, meta: ObjectMeta, sentence: str, reason: Reason) -> None:
        self._announce_on(kind, meta, reason, sentence)
        if self.refused(meta.uid, sentence):
            self.telemetry.count(ADOPTIONS, "refused")

    def _warn(self, kind: JobKind, meta: ObjectMeta, warnings: Sequence[FieldWarning]) -> None:
        if warnings:
            spelled = [f"{warned.field}: {warned.message}" for warned in warnings[:_MOST_WARNINGS]]
            more = [f"and {len(warnings) - _MOST_WARNINGS} more"] if len(warnings) > _MOST_WARNINGS else []
            self._announce_on(kind, meta, "NotHonoured", "; ".join([*spelled, *more]))

    def _announce_on(self, kind: JobKind, meta: ObjectMeta, reason: Reason, message: str) -> None:
        now = self.journal.clock.now()
        subject = subject_of(kind, meta)
        self.announce(Announcement(subject=subject, reason=reason, message=message, at=now, key=message))


async def refill(journal: Journal, submits: JobSubmitter, job: Job) -> None:
    """Record what pods of a job ask for now by its manifest, which voda makes or made its object of.

    ClusterUnavailable: it is not known yet what the cluster adds to them.
    """
    spec = job.spec
    if job.workers or spec.manifest is None or spec.share is not None:
        return
    try:
        asked = submits.read(spec.manifest, Caller(user=spec.user, role="user")).spec
    except PermanentError:
        # It was accepted: what it cannot have now, its pods show.
        return
    if (asked.needs or PodNeeds()) != (spec.needs or PodNeeds()):
        fact = JobChanged(job_id=spec.job_id, needs=asked.needs or PodNeeds())
        await journal.record(fact, actor=spec.user, payer=spec.user)


def is_at_rest(record: JobRecord) -> bool:
    """Say whether a job is live, has no workers and shall have none."""
    return record.is_live and not record.is_canceling and not record.planned and not record.job.workers


def _is_fixed(kind: JobKind, found: Mapping[str, Any]) -> bool:
    """Say whether nobody can change the templates of an object now."""
    return kind.has_fixed_templates and bool((found.get("status") or {}).get("startTime"))


def _is_noted(found: Mapping[str, Any], job_id: str) -> bool:
    return (found["metadata"].get("annotations") or {}).get(well_known.JOB_ID) == job_id
