"""Keeps the JobStates of job objects up to date with the log.

1. Reads the JobStates that there are, at the start and now and then: others may have deleted or changed them.
2. Writes those that differ from what the log says, whenever that changes.

Rules: nothing here writes to an operator's object; at most so many writes a second, however many jobs change, those
that wait longest first; what fails is tried again after a growing delay. Where the cluster does not serve JobStates,
nothing is written.
"""

import asyncio
import logging
from typing import Any, Final, NamedTuple

from voda.application.journal import JournalView
from voda.application.submit_job import adoption_id
from voda.backoff import Backoff
from voda.clock import Clock
from voda.cluster.kubernetes import well_known
from voda.cluster.kubernetes.kinds.base import JobKind
from voda.cluster.kubernetes.objects import JobObject
from voda.cluster.kubernetes.state.job_objects import JobMirror, KubeJob
from voda.concurrency import log_unexpected
from voda.domain.errors import ActionRefused, ClusterUnavailable
from voda.kubernetes_client.errors import Conflict
from voda.operator.status.job_states import (
    DISCOVERY,
    ReadState,
    job_state,
    job_states_path,
    refused_fields,
    shown_fields,
    state_name,
)
from voda.operator.status.rate_limiter import RateLimiter, TroubleLog
from voda.projections.jobs.record import JobRecord
from voda.work_queue import WorkQueue

_log = logging.getLogger(__name__)

_SWEEP_S: Final = 60.0
_AT_A_TIME: Final = 500
"""Objects compared before others get a turn."""
_FINISH_S: Final = 60.0
"""An estimate is changed at most once in this time."""
_READ_S: Final = 600.0
"""After which all JobStates are read again."""
_RETRY_S: Final = 2.0
_UNSERVED_S: Final = 60.0


class _Written(NamedTuple):
    """The fields of a JobState as they were written or read last."""

    fields: dict[str, Any]
    finish_at: float
    """Instant its estimate changed."""


class JobStateWriter:
    def __init__(self, objects: JobMirror, view: JournalView, clock: Clock, *, per_s: float) -> None:
        self.refused: dict[str, str] = {}
        """uid of an object that voda does not run -> why."""
        self._mirror = objects
        self._view = view
        self._clock = clock
        self._limiter = RateLimiter(per_s, clock)
        self._objects: dict[str, KubeJob] = {}
        """uid -> the object as it was last seen."""
        self._written: dict[str, _Written] = {}
        """By uid of the job object."""
        self._queue = WorkQueue[str](clock, Backoff(first_s=10.0, longest_s=600.0))
        """uids of objects to compare."""
        self._trouble = TroubleLog(_log, "states are not shown")

    def see_object(self, kind: JobKind, before: JobObject | None, now: JobObject | None) -> None:
        if before is not None and (now is None or now.metadata.uid != before.metadata.uid):
            self._forget(before.metadata.uid)
        if now is not None:
            uid = now.metadata.uid
            self._objects[uid] = KubeJob(kind, now)
            if uid not in self._written and well_known.JOB_ID in now.metadata.annotations:
                self.mark(uid)

    def refuse(self, uid: str, sentence: str) -> bool:
        """Show that voda does not run an object, and why; say whether that is new."""
        is_new = self.refused.get(uid) != sentence
        self.refused[uid] = sentence
        self.mark(uid)
        return is_new

    def mark(self, uid: str) -> None:
        """Have an object compared."""
        if uid in self._objects:
            self._queue.add(uid)

    async def run(self) -> None:
        await self._until_served()
        await self._read()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._sweep())
            group.create_task(self._work())
            group.create_task(self._keep_reading())

    async def _until_served(self) -> None:
        while True:
            try:
                if await self._mirror.api.get(DISCOVERY, dict) is not None:
                    return
                self._trouble.failed("the cluster serves no JobStates: apply job-states.yaml of voda's manifests")
            except (ClusterUnavailable, ActionRefused) as error:
                self._trouble.failed(error)
            await asyncio.sleep(_UNSERVED_S)

    async def _keep_reading(self) -> None:
        while True:
            await asyncio.sleep(_READ_S)
            await self._read()

    async def _read(self) -> None:
        """Note what the JobStates show, and compare them; without an answer, what was written counts as there."""
        there: dict[str, ReadState] = {}
        try:
            for namespace in self._mirror.namespaces():
                listed = await self._mirror.api.list(job_states_path(namespace), ReadState)
                there |= {each.metadata.key: each for each in listed.items}
        except (ClusterUnavailable, ActionRefused) as error:
            self._trouble.failed(error)
            return
        known, self._written = self._written, {}
        for kind, job in self._mirror.jobs():
            meta, uid = job.metadata, job.metadata.uid
            found = there.get(f"{meta.namespace}/{state_name(kind, meta)}")
            if found is not None and any(owner.uid == uid for owner in found.metadata.owner_references):
                fields, before = found.fields, known.get(uid)
                is_same = before is not None and before.fields["estimatedFinish"] == fields["estimatedFinish"]
                self._written[uid] = _Written(fields, before.finish_at if before is not None and is_same else 0.0)
            self.mark(uid)

    async def _sweep(self) -> None:
        """Compare everything now and then: forecasts change without an event."""
        while True:
            for number, (kind, job) in enumerate(list(self._mirror.jobs())):
                self._objects.setdefault(job.metadata.uid, KubeJob(kind, job))
                self.mark(job.metadata.uid)
                if number % _AT_A_TIME == _AT_A_TIME - 1:
                    await asyncio.sleep(0)
            await asyncio.sleep(_SWEEP_S)

    async def _work(self) -> None:
        while True:
            uid = await self._queue.take()
            with log_unexpected("showing the state of", uid):
                if self._changes(uid) is not None:
                    await self._limiter.turn()
                    # By now there may be more to show, and it is written together.
                    self._queue.discard(uid)
                if (fields := self._changes(uid)) is not None:
                    await self._send(uid, fields)

    async def _send(self, uid: str, fields: dict[str, Any]) -> None:
        try:
            await self._write(self._objects[uid], fields)
        except Conflict:
            # Made by somebody else just now: it is met by the next write.
            self._queue.failed(uid)
        except ClusterUnavailable as error:
            self._trouble.failed(error)
            # After all others: what keeps this one from being written may not concern them.
            self.mark(uid)
            await asyncio.sleep(max(_RETRY_S, error.retry_after_s))
        except ActionRefused as error:
            self._trouble.failed(error)
            self._queue.failed(uid)
        else:
            self._trouble.succeeded()
            self._queue.forget(uid)
            self._note(uid, fields)

    async def _write(self, kube_job: KubeJob, fields: dict[str, Any]) -> None:
        kind, meta = kube_job.kind, kube_job.object.metadata
        body = job_state(kind, meta, fields)
        path = job_states_path(meta.namespace, state_name(kind, meta))
        if meta.uid in self._written and await self._mirror.api.patch(path, body, dict) is not None:
            return
        there = {name: value for name, value in body.items() if value is not None}
        try:
            await self._mirror.api.create(job_states_path(meta.namespace), there, dict)
        except Conflict:
            # One of an earlier object of the name is still there.
            await self._mirror.api.patch(path, body, dict)

    def _note(self, uid: str, fields: dict[str, Any]) -> None:
        if uid in self._objects:
            now, before = self._clock.now(), self._written.get(uid)
            is_same = before is not None and before.fields["estimatedFinish"] == fields["estimatedFinish"]
            self._written[uid] = _Written(fields, before.finish_at if before is not None and is_same else now)

    def _changes(self, uid: str) -> dict[str, Any] | None:
        """Return the fields to write for an object; None: there is nothing to write now."""
        kube_job, now = self._objects.get(uid), self._clock.now()
        if kube_job is None or kube_job.object.metadata.deletion_timestamp is not None:
            return None
        before, record = self._written.get(uid), self._record(kube_job.object)
        if (fields := self._fields(uid, record, before, now)) is None:
            return None
        return fields if before is None or before.fields != fields else None

    def _fields(self, uid: str, record: JobRecord | None, before: _Written | None, now: float) -> dict[str, Any] | None:
        if record is None:
            return refused_fields(self.refused[uid]) if uid in self.refused else None
        self.refused.pop(uid, None)
        forecast, shown = self._view.forecasts.get(record.spec.job_id), before.fields if before is not None else {}
        finish = shown.get("estimatedFinish")
        fields = shown_fields(record, forecast.finishes_at if forecast is not None else None, now, finish)
        if before is not None and finish and fields["estimatedFinish"] and now - before.finish_at < _FINISH_S:
            fields["estimatedFinish"] = finish
        return fields

    def _record(self, job: JobObject) -> JobRecord | None:
        """Return the job that the object is of; None where the log ties it to none."""
        meta, job_registry = job.metadata, self._view.job_registry
        job_id = meta.annotations.get(well_known.JOB_ID) or job_registry.submission(adoption_id(meta.uid)) or ""
        record = job_registry.job(job_id)
        return record if record is not None and record.job.uid == meta.uid else None

    def _forget(self, uid: str) -> None:
        for by_uid in (self._objects, self._written, self.refused):
            by_uid.pop(uid, None)
        self._queue.discard(uid)
        self._queue.forget(uid)
