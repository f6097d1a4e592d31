"""The registrar: every job of the log gets its object, and every object that voda shall run gets its job.

1. Notes which objects and jobs changed, by the mirror and by the log; every 30 s it looks at all of them, and in a task
   of its own at what they need beside themselves.
2. Does what is to be done about each (see ObjectDuties, Creation), several at a time.
3. Delays what failed, longer each time; nothing else waits for it.

Rule: level, not edge: whatever wakes it, it acts on what log and cluster show by then. Only a leader runs one.
"""

import asyncio
import logging
import math
from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import Final

from voda.application.journal import Journal
from voda.application.submit_job import JobSubmitter, adoption_id
from voda.backoff import Backoff
from voda.cluster.kubernetes import well_known
from voda.cluster.kubernetes.kinds.base import JobKind
from voda.cluster.kubernetes.kinds.template import TemplateValues
from voda.cluster.kubernetes.objects import JobObject
from voda.cluster.kubernetes.state.job_objects import JobMirror, KubeJob
from voda.concurrency import for_each, log_unexpected, within
from voda.domain.errors import (
    ActionRefused,
    Fenced,
    InvalidInput,
    LogDamaged,
    LogTooNew,
    NotALog,
    QuotaExceeded,
    StoreNotWritable,
    TransientError,
    VodaError,
)
from voda.events.envelope import Event
from voda.events.types import ActionFailed, JobRegistered, JobSubmitted
from voda.kubernetes_client.errors import Conflict
from voda.metrics import NO_TELEMETRY, Telemetry
from voda.operator.registration.adoption import Adoption, Announce, MarkRefused, ObjectRefused, refill
from voda.operator.registration.companions import restore_companions
from voda.operator.registration.creation import ACTOR, Creation, NameTaken
from voda.operator.registration.object_duties import UNREADY_S, Duty, ObjectDuties, SpecAnnotations, Work

_log = logging.getLogger(__name__)

_SWEEP_S: Final = 30.0
_AT_ONCE: Final = 16
"""Objects worked on at a time."""
_MOST_A_STEP: Final = 500
_FIRST_DELAY_S: Final = 0.5
_LONGEST_DELAY_S: Final = 120.0
_REFUSED_S: Final = 600.0
"""After which an object that was refused is looked at again though nobody changed it: pools come and go."""
_MOST_CONFLICTS: Final = 8
"""In a row, within a minute, after which the log says so: what somebody else just changed is not the reason."""
_RETRY_S: Final = 1.0
_UNEXPECTED_S: Final = 60.0


class Registrar:
    """Matches jobs and objects; `submits` is the API's own, so that both count a user's jobs together."""

    def __init__(  # noqa: PLR0913 - its ports
        self,
        *,
        objects: JobMirror,
        journal: Journal,
        submits: JobSubmitter,
        values: TemplateValues,
        announce: Announce,
        refused: MarkRefused = lambda uid, sentence: True,
        telemetry: Telemetry = NO_TELEMETRY,
        has_user_policy: bool = False,
        defaults_changes: Callable[[], int] = lambda: 0,
    ) -> None:
        self._mirror = objects
        self._journal = journal
        self._submits = submits
        adoption = Adoption(
            objects=objects,
            journal=journal,
            submits=submits,
            values=values,
            announce=announce,
            refused=refused,
            telemetry=telemetry,
            has_user_policy=has_user_policy,
        )
        self._creation = Creation(objects=objects, journal=journal, values=values)
        annotations = SpecAnnotations(objects=objects, journal=journal, announce=announce)
        self._backoff = Backoff(first_s=_FIRST_DELAY_S, longest_s=_LONGEST_DELAY_S)
        self._duties = ObjectDuties(
            journal=journal,
            adoption=adoption,
            creation=self._creation,
            annotations=annotations,
            backoff=self._backoff,
        )
        self._objects: dict[str, KubeJob] = {}
        """uid -> object about which there may be something to do."""
        self._jobs: dict[str, None] = {}
        """Jobs that may have no object."""
        self._unready: dict[str, tuple[float, KubeJob]] = {}
        """uid of one that its start makes ready, if that comes soon -> when to look at it again, soonest first."""
        self._defaults_changes = defaults_changes
        """Says how often what the cluster adds to pods has changed."""
        self._filled_at = -1
        """After how many of these changes the jobs were noted that may ask for other things than the log has."""
        self._unfilled: dict[str, None] = {}
        """Those of them that have not been looked at since: they have workers, or their user has written too much."""
        self._sweep_at = 0.0
        self._retry_at = math.inf
        """When the first of what failed in this step is tried again."""
        self._is_following = False
        """Whether changes are noted: a replica that does not lead would only collect them."""
        self._wake = asyncio.Event()
        objects.subscribe(self.see_object)

    def see_object(self, kind: JobKind, before: JobObject | None, now: JobObject | None) -> None:
        if not self._is_following:
            return
        if before is not None and (now is None or now.metadata.uid != before.metadata.uid):
            self._objects.pop(before.metadata.uid, None)
            self._unready.pop(before.metadata.uid, None)
            self._duties.forget(before.metadata.uid)
            self._name_is_free(before)
        if now is not None:
            if before is not None:
                self._duties.see_change(kind, before, now)
            self._objects[now.metadata.uid] = KubeJob(kind, now)
            self._unready.pop(now.metadata.uid, None)
            self._wake.set()

    def _name_is_free(self, gone: JobObject) -> None:
        """Let a job that waited for the name of an object have one at once."""
        meta = gone.metadata
        job_id = self._journal.view.job_registry.live_named(meta.namespace, meta.name)
        if job_id is not None and self._creation.missing(job_id) is not None:
            self._backoff.reset(job_id)
            self._jobs[job_id] = None
            self._wake.set()

    def see(self, event: Event) -> None:
        match event.data:
            case JobSubmitted(spec=spec):
                job_id = spec.job_id
            case JobRegistered(job_id=job_id, uid=""):
                pass
            case _:
                return
        if self._is_following:
            self._jobs[job_id] = None
            self._wake.set()

    async def run(self) -> None:
        """Match jobs and objects until cancelled.

        Fenced: another leader took over; LogDamaged, LogTooNew, NotALog: the log cannot be read.
        """
        try:
            while True:
                await self._once()
        finally:
            self._is_following, self._sweep_at, self._filled_at = False, 0.0, -1
            self._unready.clear()
            self._unfilled.clear()

    async def _once(self) -> None:
        self._wake.clear()
        wait_s = _RETRY_S
        try:
            wait_s = await self.step() - self._journal.clock.now()
        except (TransientError, StoreNotWritable) as error:
            _log.warning("registrar waits reason=%s", error)
        await within(max(0.0, wait_s), self._wake.wait())

    async def step(self) -> float:
        """Do what can be done now, and return when to look again if nothing happens."""
        journal = self._journal
        if journal.clock.now() >= self._sweep_at:
            # What others appended before this leader's time must be known before anything is done twice.
            await journal.catch_up()
            self._sweep()
            if self._filled_at != (changes := self._defaults_changes()):
                live = journal.view.cluster
                self._filled_at = changes
                self._unfilled = {job_id: None for pool in live.pools() for job_id in live.jobs(pool)}
            await self._refill()
        self._retry_at = math.inf
        due, next_at = self._due(journal.clock.now())
        await for_each(due, lambda work: work(), at_once=_AT_ONCE)
        return min(next_at, self._retry_at)

    def _sweep(self) -> None:
        now, live = self._journal.clock.now(), self._journal.view.cluster
        self._objects = {each.object.metadata.uid: each for each in self._mirror.jobs()}
        if not self._is_following:
            # What somebody applied while this replica did not lead is not known.
            ours = (uid for uid, (_, job) in self._objects.items() if well_known.JOB_ID in job.metadata.annotations)
            self._duties.touched.clear()
            self._duties.touched.update(dict.fromkeys(ours, False))
        self._sweep_at, self._is_following = now + _SWEEP_S, True
        self._jobs = {job_id: None for pool in live.pools() for job_id, job in live.jobs(pool).items() if not job.uid}
        self._backoff.forget_before(now - _LONGEST_DELAY_S - _SWEEP_S)

    async def _refill(self) -> None:
        """Look at what the pods of waiting jobs ask for, as the cluster adds other things to them than before."""
        registry, live = self._journal.view.job_registry, self._journal.view.cluster
        for job_id in [*self._unfilled]:
            job = live.job(job_id)
            if job is not None and job.workers:
                # Once they have left.
                continue
            await asyncio.sleep(0)
            if job is not None and registry.submission(adoption_id(job.uid)) is None:
                try:
                    await refill(self._journal, self._submits, job)
                except (QuotaExceeded, InvalidInput) as error:
                    _log.warning("registrar tries again key=%s reason=%s", job_id, error)
                    continue
            elif job is not None and job.uid in self._objects:
                self._duties.touched.setdefault(job.uid, False)
            del self._unfilled[job_id]

    async def keep_companions(self) -> None:
        """Make again what somebody deletes of what the objects of live jobs need, until cancelled."""
        while True:
            live = self._journal.view.cluster
            uids = {job.uid for pool in live.pools() for job in live.jobs(pool).values() if not job.is_canceling}
            jobs = [job for job in self._mirror.jobs() if job.object.metadata.uid in uids]
            with log_unexpected("restoring", "what objects need"):
                await restore_companions(self._mirror.api, [job for job in jobs if not job.object.has_finished])
            await asyncio.sleep(_SWEEP_S)

    def _due(self, now: float) -> tuple[list[Work], float]:
        """Return what is to be done now, and when there will be something else."""
        due: list[Work] = []
        for uid in [uid for uid, (due_at, _) in self._unready.items() if due_at <= now]:
            _, unready = self._unready.pop(uid)
            self._objects.setdefault(uid, unready)
        next_at = self._sweep_at
        for uid, (kind, job) in list(self._objects.items()):
            duty: Duty | None = None
            with log_unexpected("looking at an object", job.metadata.key):
                duty = self._duties.duty(kind, job)
            if duty is None:
                self._let_be(uid)
            elif not self._backoff.is_due(duty[0], now):
                next_at = min(next_at, self._backoff.due_at(duty[0]))
            else:
                due.append(partial(self._handle, job, duty))
        for job_id in list(self._jobs):
            if self._creation.missing(job_id) is None:
                del self._jobs[job_id]
            elif not self._backoff.is_due(job_id, now):
                next_at = min(next_at, self._backoff.due_at(job_id))
            else:
                create = partial(self._creation.create, job_id)
                due.append(partial(self._succeeds, (job_id, create), job_id=job_id))
        next_at = min([next_at, *(due_at for due_at, _ in islice(self._unready.values(), 1))])
        return due[:_MOST_A_STEP], now if len(due) > _MOST_A_STEP else next_at

    def _let_be(self, uid: str) -> None:
        """Look at an object no more until it changes, or soon where it is left to its job's start."""
        found = self._objects.pop(uid)
        self._unready.pop(uid, None)
        with log_unexpected("looking at an object", found.object.metadata.key):
            if self._duties.awaits_start(*found):
                self._unready[uid] = self._journal.clock.now() + UNREADY_S, found

    async def _handle(self, job: JobObject, duty: Duty) -> None:
        """Do what is to be done about an object; once done, it is looked at again when it changes."""
        job_id = self._journal.view.job_registry.submission(adoption_id(job.metadata.uid)) or ""
        if not await self._succeeds(duty, job_id=job_id, action="PrepareObject"):
            return
        latest = self._objects.get(job.metadata.uid)
        if latest is None or latest.object is not job:
            return
        other: Duty | None = None
        # After any other duty, what is known of the object is from before it, and says nothing of what is left to do.
        if self._duties.is_about_touch(duty[0]):
            other = duty
            with log_unexpected("looking at an object", job.metadata.key):
                other = self._duties.duty(*latest)
        if other is None or other[0] == duty[0]:
            self._let_be(job.metadata.uid)
        else:
            self._wake.set()

    async def _succeeds(self, duty: Duty, *, job_id: str = "", action: str = "CreateObject") -> bool:
        """Do a duty and say whether it is done; raises only what makes a leader stop."""
        key, work = duty
        try:
            await work()
        except (Fenced, LogDamaged, LogTooNew, NotALog):
            raise
        except ObjectRefused as error:
            _log.info("refused key=%s reason=%s", key[:80], error)
            self._delay(key, _REFUSED_S)
        except NameTaken:
            # Nothing failed: the name is not free yet.
            self._delay(key)
        except Conflict as error:
            # The object changed, and the mirror will show how; unless it goes on.
            attempt = self._delay(key)
            if attempt >= _MOST_CONFLICTS:
                _log.warning("registrar meets conflicts key=%s attempt=%d reason=%s", key[:80], attempt, error)
                if job_id:
                    await self._report(job_id, action, error, attempt, self._backoff.due_at(key))
        except VodaError as error:
            attempt = self._delay(key, getattr(error, "retry_after_s", 0.0))
            if attempt == 1:
                _log.warning("registrar tries again key=%s reason=%s", key[:80], error)
            if job_id and isinstance(error, ActionRefused):
                await self._report(job_id, action, error, attempt, self._backoff.due_at(key))
        except Exception:  # whatever it is, one object must not stop all others
            self._delay(key, _UNEXPECTED_S)
            _log.exception("registrar failed key=%s", key[:80])
        else:
            self._backoff.reset(key)
            return True
        return False

    def _delay(self, key: str, at_least_s: float = 0.0) -> int:
        attempt = self._backoff.failed(key, self._journal.clock.now(), at_least_s=at_least_s)
        self._retry_at = min(self._retry_at, self._backoff.due_at(key))
        return attempt

    async def _report(self, job_id: str, action: str, error: VodaError, attempt: int, retry_at: float) -> None:
        """Record what keeps a job from having its object ready, so that the log says why the job does not start."""
        failed = ActionFailed(job_id=job_id, action=action, error=str(error), attempt=attempt, retry_at=retry_at)
        try:
            await self._journal.record(failed, actor=ACTOR)
        except (TransientError, StoreNotWritable) as unwritten:
            # It is recorded with the next attempt.
            _log.warning("not recorded job_id=%s error=%s reason=%s", job_id, error, unwritten)
