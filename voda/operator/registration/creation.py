"""Creates the objects of jobs that were submitted to the API, and records which object is whose.

Rules: an object's name and annotation follow from the job, so that a crash between creating and recording it leads
back to the same object; another object of that name is never touched, unless it is left over from an earlier job.
"""

from dataclasses import dataclass
from typing import Final

from voda.application.journal import Journal
from voda.application.submit_job import adoption_id, registration_id
from voda.cluster.kubernetes import well_known
from voda.cluster.kubernetes.kinds.base import JobKind
from voda.cluster.kubernetes.kinds.template import TemplateValues
from voda.cluster.kubernetes.objects import JobObject
from voda.cluster.kubernetes.state.job_objects import JobMirror, KubeJob
from voda.domain.errors import ActionRefused, ClusterUnavailable, InvalidInput
from voda.domain.job import Job, JobSpec
from voda.domain.reasons.failures import JobFailure, NoNamespace
from voda.domain.reasons.nodes import Said
from voda.events.types import AnyFact, JobFailed, JobRegistered
from voda.kubernetes_client.errors import Conflict, Rejected
from voda.kubernetes_client.paths import api_path
from voda.operator.registration.adoption import too_old
from voda.operator.registration.companions import make_companions

ACTOR: Final = "cluster/objects"
_NOT_FOUND: Final = 404


class NameTaken(ClusterUnavailable):
    """The name is about to become free: look again soon; nothing has failed."""


@dataclass(frozen=True, kw_only=True)
class Creation:
    objects: JobMirror
    journal: Journal
    values: TemplateValues

    async def create(self, job_id: str) -> None:
        """Create the object of a live job that has none, and record it; a job that cannot have one fails.

        Raises:
            NameTaken: an object of that name is about to go.
            ClusterUnavailable: try again.
            Rejected: the server refuses the object as it stands.
        """
        job = self.missing(job_id)
        if job is None:
            return
        try:
            kind = self.objects.kind_of(job.spec)
            body = kind.new_object(job.spec, self.values.tolerated_taints, self.values.environment(job.spec))
        except (ActionRefused, InvalidInput) as error:
            await self._fail(job_id, Said(text=str(error)))
            return
        path = kind.path(job.spec.namespace)
        try:
            made = await self.objects.api.create(path, body, JobObject)
        except Conflict:
            await self._handle_namesake(kind, job)
        except Rejected as error:
            if not await self._lacks_namespace(error, job.spec):
                raise
            await self._fail(job_id, NoNamespace(namespace=job.spec.namespace))
        else:
            if not made.is_suspended:
                await self.objects.api.delete(kind.path(job.spec.namespace, made.metadata.name), uid=made.metadata.uid)
                await self._fail(job_id, Said(text=too_old(kind)))
                return
            await self.register(kind, made, job.spec)

    async def register(self, kind: JobKind, made: JobObject, spec: JobSpec) -> None:
        """Record an object as a job's, once all is there that it needs."""
        await make_companions(self.objects.api, kind, made)
        uid = made.metadata.uid
        fact = JobRegistered(job_id=spec.job_id, uid=uid, kind=spec.kind)
        await self._record(fact, registration_id(uid))

    def missing(self, job_id: str) -> Job | None:
        """Return the job if it is live and has no object."""
        job = self.journal.view.cluster.job(job_id)
        return job if job is not None and not job.uid and not job.is_canceling else None

    def is_awaited(self, kind: JobKind, found: JobObject, job: Job) -> bool:
        """Say whether an object was made for the job, and only its registration is missing."""
        meta, spec = found.metadata, job.spec
        pods = self.objects.pods_of(spec.job_id)
        return (
            meta.annotations.get(well_known.JOB_ID) == spec.job_id
            and (meta.namespace, meta.name) == (spec.namespace, spec.name or spec.job_id)
            and meta.deletion_timestamp is None
            and not found.has_finished
            and not kind.is_broken(KubeJob(kind, found).judged(pods, job).object, pods)
        )

    async def _handle_namesake(self, kind: JobKind, job: Job) -> None:
        """Look at the object that has the job's name, and register it, wait for it to go, delete it or fail the job."""
        spec = job.spec
        path = kind.path(spec.namespace, spec.name or spec.job_id)
        found = await self.objects.api.get(path, JobObject)
        if found is None:
            raise NameTaken(f"{path} was there a moment ago")
        meta = found.metadata
        if self.is_awaited(kind, found, job):
            await self.register(kind, found, spec)
        elif meta.deletion_timestamp is not None or self._is_own(found, spec.job_id):
            # The actuator deletes what is left of this very job, before the job gets a new object.
            raise NameTaken(f"{path} is there until its deletion is done")
        elif self._is_left_over(kind, found):
            await self.objects.api.delete(path, uid=meta.uid)
            raise NameTaken(f"{path} of an earlier job is being deleted")
        else:
            await self._fail(
                spec.job_id,
                Said(
                    text=f"namespace {spec.namespace} has a {kind.name} named {meta.name} already, which is not the"
                    " job's: delete it, or submit the job under another name"
                ),
            )

    def _is_own(self, found: JobObject, job_id: str) -> bool:
        job_registry, meta = self.journal.view.job_registry, found.metadata
        return (
            meta.annotations.get(well_known.JOB_ID) == job_id
            or job_registry.submission(adoption_id(meta.uid)) == job_id
        )

    def _is_left_over(self, kind: JobKind, found: JobObject) -> bool:
        """Say whether it is the object of a job that has ended, and not one that somebody made since."""
        job_registry, meta = self.journal.view.job_registry, found.metadata
        job_id = job_registry.submission(adoption_id(meta.uid)) or meta.annotations.get(well_known.JOB_ID, "")
        if not job_id or not job_registry.is_known(job_id):
            return False
        record = job_registry.job(job_id)
        if record is None:
            # The job ended so long ago that its uid is forgotten: an object that has finished is no loss.
            return found.has_finished
        return not record.is_live and (record.job.uid == meta.uid or found.has_finished)

    async def _lacks_namespace(self, error: Rejected, spec: JobSpec) -> bool:
        return (
            error.code == _NOT_FOUND
            and await self.objects.api.get(api_path("v1", "namespaces", name=spec.namespace), dict) is None
        )

    async def _fail(self, job_id: str, reason: JobFailure) -> None:
        if self.missing(job_id) is not None:
            # The same event again, if the answer was lost or another leader was as fast: it ends once.
            await self._record(JobFailed(job_id=job_id, reason=reason), f"unmade-{job_id}")

    async def _record(self, data: AnyFact, event_id: str) -> None:
        await self.journal.record(data, actor=ACTOR, event_id=event_id)
