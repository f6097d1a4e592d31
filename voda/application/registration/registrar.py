"""The registrar: every job of the log has its object, and every object that voda shall run has its job.

Rules: level, not edge: whatever wakes it, it acts on what log and cluster show by then, and looks at all of them now
and then; whoever fails is left alone for a while, and nobody waits for it; only a leader runs one.
"""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

from voda.application.backend import Backend
from voda.application.registration.adoption import Adoption, Announce, Fitting, Refused, is_at_rest
from voda.application.registration.creation import ACTOR, Busy, Creation
from voda.application.registration.ports import JobSite, SeenJob
from voda.application.registration.spec_annotations import WishesTaken
from voda.application.submit_job import JobSubmitter, adoption_id
from voda.backoff import Pauses
from voda.cluster.kubernetes.client.errors import Conflict
from voda.cluster.kubernetes.kinds.base import JobKind
from voda.cluster.kubernetes.resources import well_known
from voda.cluster.kubernetes.resources.objects import JobObject
from voda.cluster.kubernetes.state.job_annotations import fingerprint, has_finished, is_invited, wishes_text
from voda.concurrency import survived
from voda.domain.errors import (
    ActionRefused,
    Fenced,
    LogDamaged,
    LogTooNew,
    NotALog,
    StoreNotWritable,
    TransientError,
    VodaError,
)
from voda.events.envelope import ANY_VERSION, Event, Fact
from voda.events.types import ActionFailed, JobRegistered, JobSubmitted
from voda.metrics import NO_TELEMETRY, Telemetry
from voda.projections.records import JobRecord

_log = logging.getLogger(__name__)

_SWEEP_S: Final = 30.0
_AT_ONCE: Final = 16
"""Objects worked on at a time."""
_TOUCHED: Final = " touched"
_MOST_A_STEP: Final = 500
_FIRST_PAUSE_S: Final = 0.5
_LONGEST_PAUSE_S: Final = 120.0
_REFUSED_S: Final = 600.0
"""After which an object that was refused is looked at again though nobody changed it: pools come and go."""
_RETRY_S: Final = 1.0
_UNFORESEEN_S: Final = 60.0

_Work = Callable[[], Awaitable[object]]


class Registrar:
    """Matches jobs and objects.

    Args:
        site: the cluster's job objects.
        backend: log and view.
        submits: takes in jobs; the API's own, so that both count a user's jobs together.
        fitting: what every object is made to fit.
        announce: takes what is to be told on objects.
        telemetry: counts the objects that are taken in or refused.
    """

    def __init__(  # noqa: PLR0913 - its ports
        self,
        *,
        site: JobSite,
        backend: Backend,
        submits: JobSubmitter,
        fitting: Fitting,
        announce: Announce,
        telemetry: Telemetry = NO_TELEMETRY,
    ) -> None:
        self._site = site
        self._backend = backend
        self._adoption = Adoption(
            site=site, backend=backend, submits=submits, fitting=fitting, announce=announce, telemetry=telemetry
        )
        self._creation = Creation(site=site, backend=backend, fitting=fitting)
        self._wishes = WishesTaken(site=site, backend=backend, announce=announce)
        self._objects: dict[str, SeenJob] = {}
        """uid -> object about which there may be something to do."""
        self._touched: dict[str, bool] = {}
        """uid of an object whose spec somebody else may have changed -> whether that was seen."""
        self._jobs: dict[str, None] = {}
        """Jobs that may have no object."""
        self._pauses = Pauses(first_s=_FIRST_PAUSE_S, longest_s=_LONGEST_PAUSE_S)
        self._sweep_at = 0.0
        self._retry_at = math.inf
        """When the first of what failed in this step is tried again."""
        self._is_following = False
        """Whether what comes is taken note of: who does not lead would only collect it."""
        self._wake = asyncio.Event()
        site.each_job(self.see_object)

    def see_object(self, kind: JobKind, before: JobObject | None, now: JobObject | None) -> None:
        """Take note of an object that came, changed or went."""
        if not self._is_following:
            return
        if before is not None and (now is None or now.metadata.uid != before.metadata.uid):
            self._objects.pop(before.metadata.uid, None)
            self._touched.pop(before.metadata.uid, None)
            self._name_is_free(before)
        if now is not None:
            if before is not None and self._is_touched(kind, before, now):
                self._touched[now.metadata.uid] = True
            self._objects[now.metadata.uid] = (kind, now)
            self._wake.set()

    def _is_touched(self, kind: JobKind, before: JobObject, now: JobObject) -> bool:
        """Say whether somebody else may have changed the spec of a job's object: what voda sets follows the plan."""
        job_id = now.metadata.annotations.get(well_known.JOB_ID, "")
        is_same = before.metadata.uid == now.metadata.uid and before.metadata.generation == now.metadata.generation
        if is_same or not job_id or before.metadata.annotations.get(well_known.JOB_ID) != job_id:
            return False
        record = self._backend.view.roster.job(job_id)
        planned = len(record.planned) if record is not None else 0
        if now.spec.run_policy.suspend:
            return before.spec.run_policy.suspend or planned > 0
        has = kind.replicas(now)
        is_unchanged = not before.spec.run_policy.suspend and kind.replicas(before) == has
        return is_unchanged or has != planned

    def _name_is_free(self, gone: JobObject) -> None:
        """Let a job that waited for the name of an object have one at once."""
        meta = gone.metadata
        job_id = self._backend.view.roster.live_named(meta.namespace, meta.name)
        if job_id is not None and self._creation.missing(job_id) is not None:
            self._pauses.done(job_id)
            self._jobs[job_id] = None
            self._wake.set()

    def see(self, event: Event) -> None:
        """Take note of an event that was appended by anybody."""
        if not self._is_following:
            return
        match event.data:
            case JobSubmitted(spec=spec):
                self._jobs[spec.job_id] = None
                self._wake.set()
            case JobRegistered(job_id=job_id, uid=""):
                self._jobs[job_id] = None
                self._wake.set()
            case _:
                return

    async def run(self) -> None:
        """Match jobs and objects until cancelled.

        Raises:
            Fenced: another leader took over.
            LogDamaged, LogTooNew, NotALog: the log cannot be read.
        """
        try:
            while True:
                await self._once()
        finally:
            self._is_following, self._sweep_at = False, 0.0

    async def _once(self) -> None:
        """Do what is to be done, and wait until there may be something else."""
        self._wake.clear()
        pause_s = _RETRY_S
        try:
            pause_s = await self.step() - self._backend.clock.now()
        except (TransientError, StoreNotWritable) as error:
            _log.warning("registrar waits reason=%s", error)
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, pause_s)):
                await self._wake.wait()

    async def step(self) -> float:
        """Do what can be done now, and return when to look again if nothing happens."""
        backend = self._backend
        if backend.clock.now() >= self._sweep_at:
            # What others appended before this leader's time must be known before anything is done twice.
            await backend.view.wait_for(await backend.store.position())
            self._sweep()
        self._retry_at = math.inf
        due, next_at = self._due(backend.clock.now())
        queue = iter(due)

        async def work() -> None:
            for each in queue:
                await each()

        async with asyncio.TaskGroup() as group:
            for _ in range(min(_AT_ONCE, len(due))):
                group.create_task(work())
        return min(next_at, self._retry_at)

    def _sweep(self) -> None:
        """Look at everything again."""
        now, live = self._backend.clock.now(), self._backend.view.live.cluster
        self._objects = {job.metadata.uid: (kind, job) for kind, job in self._site.jobs()}
        if not self._is_following:
            # What somebody applied while nobody took note of it is not known.
            ours = (uid for uid, (_, job) in self._objects.items() if well_known.JOB_ID in job.metadata.annotations)
            self._touched = dict.fromkeys(ours, False)
        self._sweep_at, self._is_following = now + _SWEEP_S, True
        self._jobs = {job_id: None for pool in live.pools() for job_id, job in live.jobs(pool).items() if not job.uid}
        self._pauses.forget_before(now - _LONGEST_PAUSE_S - _SWEEP_S)

    def _due(self, now: float) -> tuple[list[_Work], float]:
        """Return what is to be done now, and when there will be something else."""
        due: list[_Work] = []
        next_at = self._sweep_at
        for uid, (kind, job) in list(self._objects.items()):
            key, work = "", None
            with survived("looking at an object", job.metadata.key):
                key, work = self._duty(kind, job)
            if work is None:
                del self._objects[uid]
            elif (until := self._pauses.until(key)) > now:
                next_at = min(next_at, until)
            else:
                due.append(partial(self._see_to, job, key, work))
        for job_id in list(self._jobs):
            if self._creation.missing(job_id) is None:
                del self._jobs[job_id]
            elif (until := self._pauses.until(job_id)) > now:
                next_at = min(next_at, until)
            else:
                due.append(partial(self._guarded, job_id, partial(self._creation.create, job_id), job_id=job_id))
        return due[:_MOST_A_STEP], now if len(due) > _MOST_A_STEP else next_at

    def _duty(self, kind: JobKind, job: JobObject) -> tuple[str, _Work | None]:
        """Return what is to be done about an object, if anything, and under which key it is paused."""
        meta = job.metadata
        if meta.deletion_timestamp is not None:
            return "", None
        said, roster = meta.annotations.get(well_known.JOB_ID, ""), self._backend.view.roster
        adopted = roster.submission(adoption_id(meta.uid))
        claimed = roster.job(said) if said else None
        if adopted is not None or (claimed is not None and claimed.job.uid == meta.uid):
            record = roster.job(adopted or said)
            return self._duty_of_own(kind, job, record) if record is not None else ("", None)
        missing = self._creation.missing(said) if claimed is not None else None
        if missing is not None and self._creation.is_awaited(kind, job, missing):
            return said, partial(self._creation.register, missing.spec, meta.uid)
        if not is_invited(meta) or has_finished(job):
            return "", None
        return fingerprint(job), partial(self._adoption.adopt, kind, job)

    def _duty_of_own(self, kind: JobKind, job: JobObject, record: JobRecord) -> tuple[str, _Work | None]:
        """Return what is to be done about the object of a job."""
        meta, job_id = job.metadata, record.spec.job_id
        if not record.is_live or record.is_canceling or record.job.uid != meta.uid:
            return "", None
        if meta.annotations.get(well_known.JOB_ID) != job_id:
            return meta.uid, partial(self._adoption.prepare, kind, job, job_id)
        # What fails again and again must not hide what comes after it.
        return min(self._duties_of_ready(kind, job, record), key=self._due_at, default=("", None))

    def _due_at(self, duty: tuple[str, _Work]) -> float:
        """Return when a duty may be done: its pause counts only while it lasts."""
        until = self._pauses.until(duty[0])
        return until if until > self._backend.clock.now() else 0.0

    def _duties_of_ready(self, kind: JobKind, job: JobObject, record: JobRecord) -> Sequence[tuple[str, _Work]]:
        """Return all that is to be done about an object that was made ready."""
        meta, job_id = job.metadata, record.spec.job_id
        duties: list[tuple[str, _Work]] = []
        if meta.uid in self._touched:
            duties.append((f"{meta.uid}{_TOUCHED}", partial(self._refit, kind, job, job_id)))
        if is_at_rest(record) and not job.spec.run_policy.suspend and not has_finished(job):
            duties.append((f"{meta.uid} held", partial(self._adoption.hold, kind, job, job_id)))
        if self._wishes.differ(job, record):
            key = f"{meta.uid} {wishes_text(meta.annotations)}"
            duties.append((key, partial(self._wishes.take, kind, job, record)))
        return duties

    async def _refit(self, kind: JobKind, job: JobObject, job_id: str) -> None:
        uid = job.metadata.uid
        # Before the work: what is changed during it is to be looked at again.
        was_seen = self._touched.pop(uid, False)
        try:
            await self._adoption.refit(kind, job, job_id, was_seen=was_seen)
        except BaseException:
            self._touched[uid] = was_seen or self._touched.get(uid, False)
            raise

    async def _see_to(self, job: JobObject, key: str, work: _Work) -> None:
        """Do what is to be done about an object; done, it is looked at again when it changes."""
        if await self._guarded(key, work):
            seen = self._objects.get(job.metadata.uid)
            if seen is not None and seen[1] is job:
                self._have_done(key, *seen)

    def _have_done(self, key: str, kind: JobKind, job: JobObject) -> None:
        """Look at an object no more, unless something else was to be done about it besides."""
        other = key
        if not key.endswith(_TOUCHED):
            # What is known of the object is from before this work, and says nothing of what else there is to do.
            del self._objects[job.metadata.uid]
            return
        with survived("looking at an object", job.metadata.key):
            other, _ = self._duty(kind, job)
        if other in ("", key):
            del self._objects[job.metadata.uid]
        else:
            self._wake.set()

    async def _guarded(self, key: str, work: _Work, *, job_id: str = "") -> bool:
        """Do some work, and return whether it is done; only what makes a leader stop is raised."""
        now = self._backend.clock.now
        try:
            await work()
        except (Fenced, LogDamaged, LogTooNew, NotALog):
            raise
        except Refused as error:
            _log.info("refused key=%s reason=%s", key[:80], error)
            self._pauses.failed(key, now(), at_least_s=_REFUSED_S)
        except (Busy, Conflict):
            # Nothing failed: the name is not free yet, or the object changed and is about to be seen as it is now.
            self._pauses.failed(key, now())
        except VodaError as error:
            attempt = self._pauses.failed(key, now(), at_least_s=getattr(error, "retry_after_s", 0.0))
            if attempt == 1:
                _log.warning("registrar tries again key=%s reason=%s", key[:80], error)
            if job_id and isinstance(error, ActionRefused):
                await self._report(job_id, error, attempt)
        except Exception:  # whatever it is, one object that nobody foresaw must not stop all others
            self._pauses.failed(key, now(), at_least_s=_UNFORESEEN_S)
            _log.exception("registrar failed key=%s", key[:80])
        else:
            self._pauses.done(key)
            return True
        self._retry_at = min(self._retry_at, self._pauses.until(key))
        return False

    async def _report(self, job_id: str, error: VodaError, attempt: int) -> None:
        """Record that a job's object was refused; whoever reads the log sees why the job does not start."""
        backend = self._backend
        data = ActionFailed(job_id=job_id, action="CreateObject", error=str(error), attempt=attempt)
        fact = Fact(data=data, event_id=backend.clock.new_id(), recorded_at=backend.clock.now(), actor=ACTOR)
        try:
            await backend.store.append(data.stream, ANY_VERSION, [fact])
        except (TransientError, StoreNotWritable) as unwritten:
            # It is recorded with the next attempt.
            _log.warning("not recorded job_id=%s error=%s reason=%s", job_id, error, unwritten)
