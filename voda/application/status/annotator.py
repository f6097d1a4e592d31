"""Keeps the status annotations of job objects up to date with the log.

Rules: level, not edge: only what differs from what the object shows is patched, and nobody else is writing to it just
then; of those objects the one that changed last comes first; at most so many patches a second, however many jobs
change.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Final

from voda.application.read_model import ReadModel
from voda.application.status.rate_limiter import RateLimiter, TroubleLog
from voda.application.status.status_annotations import differing, wanted_annotations
from voda.application.submit_job import adoption_id
from voda.backoff import Backoff
from voda.clock import Clock
from voda.cluster.kubernetes import well_known
from voda.cluster.kubernetes.client.errors import Conflict
from voda.cluster.kubernetes.kinds.base import JobKind
from voda.cluster.kubernetes.objects import JobObject
from voda.cluster.kubernetes.state.job_objects import JobObjects, KubeJob
from voda.concurrency import log_unexpected
from voda.domain.errors import ActionRefused, ClusterUnavailable
from voda.projections.job_record import JobRecord

_log = logging.getLogger(__name__)

_SWEEP_S: Final = 60.0
_AT_A_TIME: Final = 500
"""Objects compared before others get a turn."""
_FINISH_S: Final = 60.0
"""An estimate is changed at most once in this time."""
_RETRY_S: Final = 2.0
_QUIET_S: Final = 1.0
"""For so long nobody has written to an object, nor has its job changed, before it is annotated: a write of mpi-operator
fails where the object has changed since it read it, and it then waits for seconds to minutes."""
_LONGEST_S: Final = 10.0
"""An object that changes all the time is annotated nevertheless."""
_LOOK_S: Final = 0.2


class Annotator:
    def __init__(self, objects: JobObjects, view: ReadModel, clock: Clock, *, per_s: float) -> None:
        self._mirror = objects
        self._view = view
        self._clock = clock
        self._limiter = RateLimiter(per_s, clock)
        self._objects: dict[str, KubeJob] = {}
        """uid -> the object as it was last seen, or as the last patch left it."""
        self._stale: OrderedDict[str, float] = OrderedDict()
        """uid of an object to compare -> instant since when; the last one changed last."""
        self._changed_at: dict[str, float] = {}
        """uid -> instant its object or job was last seen to change."""
        self._finish_at: dict[str, float] = {}
        """uid -> instant its estimate was changed."""
        self._backoff = Backoff(first_s=10.0, longest_s=600.0)
        self._wake = asyncio.Event()
        self._trouble = TroubleLog(_log, "annotations are not written")

    def see_object(self, kind: JobKind, before: JobObject | None, now: JobObject | None) -> None:
        if before is not None and (now is None or now.metadata.uid != before.metadata.uid):
            self._forget(before.metadata.uid)
        if now is not None:
            self._objects[now.metadata.uid] = KubeJob(kind, now)
            if well_known.JOB_ID in now.metadata.annotations:
                self.mark(now.metadata.uid)

    def mark(self, uid: str) -> None:
        """Have an object compared, before all others."""
        if uid in self._objects:
            self._changed_at[uid] = self._clock.now()
            self._stale.setdefault(uid, self._clock.now())
            self._stale.move_to_end(uid)
            self._wake.set()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._sweep())
            group.create_task(self._work())

    async def _sweep(self) -> None:
        """Compare everything now and then: forecasts change without an event."""
        while True:
            for number, (kind, job) in enumerate(list(self._mirror.jobs())):
                with log_unexpected("comparing annotations", job.metadata.key):
                    self._compare(kind, job)
                if number % _AT_A_TIME == _AT_A_TIME - 1:
                    await asyncio.sleep(0)
            await asyncio.sleep(_SWEEP_S)

    async def _work(self) -> None:
        while True:
            # Again: by the time one is woken, what was stale may be gone.
            while not self._stale:
                self._wake.clear()
                await self._wake.wait()
            uid = next(filter(self._is_due, reversed(self._stale)), "")
            if not uid:
                await asyncio.sleep(_LOOK_S)
                continue
            del self._stale[uid]
            with log_unexpected("annotating", uid):
                await self._update(uid)

    def _is_due(self, uid: str) -> bool:
        now = self._clock.now()
        return now >= min(self._changed_at.get(uid, 0.0) + _QUIET_S, self._stale[uid] + _LONGEST_S)

    def _compare(self, kind: JobKind, job: JobObject) -> None:
        uid = job.metadata.uid
        self._objects.setdefault(uid, KubeJob(kind, job))
        if self._changes(*self._objects[uid]):
            self._stale.setdefault(uid, self._clock.now())
            self._wake.set()

    async def _update(self, uid: str) -> None:
        seen = self._objects.get(uid)
        if seen is None or not self._changes(*seen):
            return
        await self._limiter.turn()
        # By now there may be more to say, and it is said in the same patch.
        if (seen := self._objects.get(uid)) is not None and (changes := self._changes(*seen)):
            await self._send(*seen, changes)

    async def _send(self, kind: JobKind, job: JobObject, changes: Mapping[str, str | None]) -> None:
        uid = job.metadata.uid
        try:
            await self._patch(kind, job, changes)
        except Conflict:
            # Another object has the name by now.
            self._forget(uid)
        except ClusterUnavailable as error:
            self._trouble.failed(error)
            # After all others: what keeps this one from being patched may not concern them.
            self._stale.setdefault(uid, self._clock.now())
            self._stale.move_to_end(uid, last=False)
            await asyncio.sleep(max(_RETRY_S, error.retry_after_s))
        except ActionRefused as error:
            self._trouble.failed(error)
            self._backoff.failed(uid, self._clock.now())
        else:
            self._trouble.succeeded()
            self._backoff.reset(uid)

    async def _patch(self, kind: JobKind, job: JobObject, changes: Mapping[str, str | None]) -> None:
        uid = job.metadata.uid
        if well_known.ESTIMATED_FINISH in changes:
            self._finish_at[uid] = self._clock.now()
        body: dict[str, Any] = {"metadata": {"uid": uid, "annotations": dict(changes)}}
        now = await self._mirror.api.patch(KubeJob(kind, job).path, body, JobObject)
        if now is None:
            self._forget(uid)
        elif uid in self._objects:
            self._objects[uid] = KubeJob(kind, now)

    def _changes(self, kind: JobKind, job: JobObject) -> Mapping[str, str | None]:
        """Return what an object shall say that it does not say."""
        meta, now = job.metadata, self._clock.now()
        record = self._record(job)
        if record is None or meta.deletion_timestamp is not None or not self._backoff.is_due(meta.uid, now):
            return {}
        forecast = self._view.forecasts.get(record.spec.job_id)
        finishes_at = forecast.finishes_at if forecast is not None else None
        changes = dict(differing(wanted_annotations(record, finishes_at, now, meta.annotations), meta.annotations))
        is_new = changes.get(well_known.ESTIMATED_FINISH) is not None
        if is_new and now - self._finish_at.get(meta.uid, -_FINISH_S) < _FINISH_S:
            del changes[well_known.ESTIMATED_FINISH]
        return changes

    def _record(self, job: JobObject) -> JobRecord | None:
        """Return the job that the object is of; None where the log ties it to none."""
        meta, job_registry = job.metadata, self._view.job_registry
        job_id = meta.annotations.get(well_known.JOB_ID) or job_registry.submission(adoption_id(meta.uid)) or ""
        record = job_registry.job(job_id)
        return record if record is not None and record.job.uid == meta.uid else None

    def _forget(self, uid: str) -> None:
        self._objects.pop(uid, None)
        for known in (self._finish_at, self._changed_at, self._stale):
            known.pop(uid, None)
        self._backoff.reset(uid)
