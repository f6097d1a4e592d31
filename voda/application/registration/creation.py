"""Makes the objects of jobs that were submitted to the API.

Rules: an object's name and its annotation follow from the job, so that a crash between making it and recording it
leads back to the same object; whatever else has the name is never touched, but for what is left of an earlier job.
"""

from typing import Final

from voda.application.backend import Backend
from voda.application.registration.adoption import Fitting, too_old
from voda.application.registration.ports import JobSite
from voda.application.submit_job import adoption_id, registration_id
from voda.cluster.kubernetes.client.errors import Conflict, Rejected
from voda.cluster.kubernetes.client.paths import collection, named, object_path
from voda.cluster.kubernetes.kinds.base import JobKind
from voda.cluster.kubernetes.resources import well_known
from voda.cluster.kubernetes.resources.objects import JobObject, Metadata
from voda.cluster.kubernetes.state.inventory import Seen
from voda.cluster.kubernetes.state.job_annotations import has_finished
from voda.domain.errors import ActionRefused, ClusterUnavailable, InvalidInput
from voda.domain.job import Job, JobSpec
from voda.events.envelope import ANY_VERSION, Fact
from voda.events.types import AnyFact, JobFailed, JobRegistered

ACTOR: Final = "cluster/objects"
_NOT_FOUND: Final = 404


class Busy(ClusterUnavailable):
    """The name is about to become free: look again soon; nothing has failed."""


class Creation:
    """Creates and registers job objects, one by one."""

    def __init__(self, *, site: JobSite, backend: Backend, fitting: Fitting) -> None:
        self._site = site
        self._backend = backend
        self._fitting = fitting

    async def create(self, job_id: str) -> None:
        """Make the object of a live job that has none, and record whose it is; a job without prospects fails.

        Raises:
            Busy: an object of that name is about to go.
            ClusterUnavailable: try again.
            Rejected: the server refuses the object as it stands.
        """
        job = self.missing(job_id)
        if job is None:
            return
        try:
            kind = self._site.kind_of(job.spec)
            body = kind.created(job.spec, self._fitting.site, self._fitting.environment(job.spec))
        except (ActionRefused, InvalidInput) as error:
            await self._fail(job_id, str(error))
            return
        path = collection(kind, job.spec.namespace)
        try:
            made = await self._site.api.create(path, body, JobObject)
        except Conflict:
            await self._meet(kind, job)
        except Rejected as error:
            if not await self._lacks_namespace(error, job.spec):
                raise
            namespace = job.spec.namespace
            await self._fail(job_id, f"namespace {namespace!r} does not exist: create it, and submit the job again")
        else:
            if not made.spec.run_policy.suspend:
                await self._site.api.delete(named(kind, job.spec.namespace, made.metadata.name), uid=made.metadata.uid)
                await self._fail(job_id, too_old(kind))
                return
            await self.register(job.spec, made.metadata.uid)

    async def register(self, spec: JobSpec, uid: str) -> None:
        """Record which object is the job's."""
        fact = JobRegistered(job_id=spec.job_id, uid=uid, kind=spec.kind)
        await self._record(fact, registration_id(uid))

    def missing(self, job_id: str) -> Job | None:
        """Return the job if it is live and has no object; None otherwise."""
        live = self._backend.view.live.cluster
        pool = live.pool_of(job_id)
        job = live.jobs(pool).get(job_id) if pool is not None else None
        return job if job is not None and not job.uid and not job.is_canceling else None

    def is_awaited(self, kind: JobKind, found: JobObject, job: Job) -> bool:
        """Say whether an object was made for the job, and only its registration is missing."""
        meta, spec = found.metadata, job.spec
        return (
            meta.annotations.get(well_known.JOB_ID) == spec.job_id
            and (meta.namespace, meta.name) == (spec.namespace, spec.name or spec.job_id)
            and meta.deletion_timestamp is None
            and not has_finished(found)
            and not kind.is_broken(found, self._site.pods_of(spec.job_id))
        )

    async def _meet(self, kind: JobKind, job: Job) -> None:
        """Find out what has the job's name, and do what is to be done about it."""
        spec = job.spec
        path = object_path(Seen(kind, JobObject(metadata=_named(spec))))
        found = await self._site.api.get(path, JobObject)
        if found is None:
            raise Busy(f"{path} was there a moment ago")
        meta = found.metadata
        if self.is_awaited(kind, found, job):
            await self.register(spec, meta.uid)
        elif meta.deletion_timestamp is not None or self._is_own(found, spec.job_id):
            # What is left of this very job goes before it is made anew, and that is the actuator's business.
            raise Busy(f"{path} is there until its deletion is done")
        elif self._is_left_over(found):
            await self._site.api.delete(path, uid=meta.uid)
            raise Busy(f"{path} of an earlier job is being deleted")
        else:
            await self._fail(
                spec.job_id,
                f"namespace {spec.namespace} has a {kind.name} named {meta.name} already, which is not the job's:"
                " delete it, or submit the job under another name",
            )

    def _is_own(self, found: JobObject, job_id: str) -> bool:
        roster, meta = self._backend.view.roster, found.metadata
        return meta.annotations.get(well_known.JOB_ID) == job_id or roster.submission(adoption_id(meta.uid)) == job_id

    def _is_left_over(self, found: JobObject) -> bool:
        """Say whether it is the object of a job that has ended, and nothing that somebody made since."""
        roster, meta = self._backend.view.roster, found.metadata
        job_id = roster.submission(adoption_id(meta.uid)) or meta.annotations.get(well_known.JOB_ID, "")
        if not job_id or not roster.is_known(job_id):
            return False
        record = roster.job(job_id)
        if record is None:
            # Ended so long ago that its uid is forgotten: what has finished by its own account is no loss.
            return has_finished(found)
        return not record.is_live and (record.job.uid == meta.uid or has_finished(found))

    async def _lacks_namespace(self, error: Rejected, spec: JobSpec) -> bool:
        """Say whether the server refused because the job's namespace is not there."""
        return (
            error.code == _NOT_FOUND and await self._site.api.get(f"/api/v1/namespaces/{spec.namespace}", dict) is None
        )

    async def _fail(self, job_id: str, reason: str) -> None:
        if self.missing(job_id) is not None:
            # The same event again, if the answer was lost or another leader was as fast: it ends once.
            await self._record(JobFailed(job_id=job_id, reason=reason), f"unmade-{job_id}")

    async def _record(self, data: AnyFact, event_id: str) -> None:
        backend = self._backend
        fact = Fact(data=data, event_id=event_id, recorded_at=backend.clock.now(), actor=ACTOR)
        await backend.view.wait_for(await backend.store.append(data.stream, ANY_VERSION, [fact]))


def _named(spec: JobSpec) -> Metadata:
    return Metadata(name=spec.name or spec.job_id, namespace=spec.namespace)
