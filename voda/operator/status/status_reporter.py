"""Reports to users of kubectl: Events say what happened to a job, its JobState says how it stands.

Rules: nothing is decided here and nothing waits for it; every replica follows the log, so that a new leader reports
what its predecessor had no time for. What was sent already is sent under the same name again, which changes nothing.
"""

import asyncio
import logging
from typing import Final

from voda.application.journal import JournalView
from voda.clock import Clock
from voda.cluster.kubernetes import well_known
from voda.cluster.kubernetes.kinds.base import JobKind
from voda.cluster.kubernetes.objects import JobObject
from voda.cluster.kubernetes.state.job_objects import JobMirror
from voda.domain.errors import ActionRefused, VodaError
from voda.events.envelope import Event
from voda.events.types import PlanAdopted
from voda.log.store import EventStore
from voda.metrics import NO_TELEMETRY, Telemetry
from voda.operator.status.announcer import RECENT_S, Announcer
from voda.operator.status.event_messages import EventMessages, JobMessage
from voda.operator.status.job_state_writer import JobStateWriter
from voda.operator.status.kube_events import Announcement, Subject, subject_of

_log = logging.getLogger(__name__)

_PER_S: Final = 20.0
"""JobStates a second, and Events a second."""
_MOST_READ: Final = 2_000
"""Events at the log's end that a process which has just started looks at."""


class StatusReporter:
    """Follows the log, and reports.

    The view's job_registry has each event folded before `see` gets it. What happened just before this process began is
    read from the store; None: it is not reported. For `settled_s` after a plan an observed size may be one that voda
    set for the plan before.
    """

    def __init__(  # noqa: PLR0913 - its ports
        self,
        *,
        objects: JobMirror,
        view: JournalView,
        clock: Clock,
        store: EventStore | None = None,
        settled_s: float = 5.0,
        telemetry: Telemetry = NO_TELEMETRY,
    ) -> None:
        self._mirror = objects
        self._view = view
        self._clock = clock
        self._store = store
        self._settled_s = settled_s
        self._announcer = Announcer(objects.api, clock, per_s=_PER_S, telemetry=telemetry)
        self.states = JobStateWriter(objects, view, clock, per_s=_PER_S)
        self._messages: EventMessages | None = None
        self._planned_at: dict[str, float] = {}
        """Live job -> instant of the last plan that named it."""
        objects.subscribe(self.see_object)

    def announce(self, announcement: Announcement) -> None:
        self._announcer.put(announcement)

    def see(self, event: Event) -> None:
        if self._messages is None:
            self._messages = self._begin()
        if isinstance(event.data, PlanAdopted):
            self._planned_at |= dict.fromkeys((*event.data.placed, *event.data.released), event.recorded_at)
        self._announce_all(self._messages, event)
        for job_id in self._view.job_registry.changed_jobs:
            record = self._view.job_registry.job(job_id)
            if record is not None and record.job.uid:
                self.states.mark(record.job.uid)
            if record is None or not record.is_live:
                self._planned_at.pop(job_id, None)

    def see_object(self, kind: JobKind, before: JobObject | None, now: JobObject | None) -> None:
        self.states.see_object(kind, before, now)
        if before is not None and now is not None and before.metadata.uid == now.metadata.uid:
            self._see_size(kind, before, now)

    async def run(self) -> None:
        if self._messages is None:
            self._messages = self._begin()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._catch_up())
            group.create_task(self._announcer.run())
            group.create_task(self.states.run())

    def _begin(self) -> EventMessages:
        messages = EventMessages(self._view.job_registry.job)
        messages.begin([record for record in self._view.job_registry.jobs().values() if record.is_live])
        return messages

    async def _catch_up(self) -> None:
        """Report what happened just before this process began: its predecessor may have had no time to."""
        store, self._store = self._store, None
        if store is None:
            return
        try:
            end = self._view.position
            events = await store.read(max(0, end - _MOST_READ), _MOST_READ)
        except VodaError as error:
            _log.warning("what happened before is not reported reason=%s", error)
            return
        messages, since = EventMessages(self._view.job_registry.job), self._clock.now() - RECENT_S
        for event in events:
            if event.position <= end and event.recorded_at >= since:
                self._announce_all(messages, event)

    def _announce_all(self, messages: EventMessages, event: Event) -> None:
        for message in messages.of(event):
            if (subject := self._subject(message)) is not None:
                self.announce(
                    Announcement(
                        subject=subject,
                        reason=message.reason,
                        message=message.text,
                        at=event.recorded_at,
                        key=str(event.position),
                    )
                )

    def _subject(self, message: JobMessage) -> Subject | None:
        record = self._view.job_registry.job(message.job_id)
        if record is None or not record.job.uid:
            return None
        spec = record.spec
        try:
            kind = self._mirror.kind_of(spec)
        except ActionRefused:
            return None
        return Subject(
            api_version=kind.api_version,
            kind=kind.name,
            namespace=spec.namespace,
            name=spec.name or spec.job_id,
            uid=record.job.uid,
        )

    def _see_size(self, kind: JobKind, before: JobObject, now: JobObject) -> None:
        """Report a size that somebody else set: the object had the plan's, and no plan has changed since."""
        if before.is_suspended or now.is_suspended:
            return
        had, has = kind.replicas(before), kind.replicas(now)
        record = (
            self._view.job_registry.job(now.metadata.annotations.get(well_known.JOB_ID, "")) if had != has else None
        )
        if record is None or not record.is_live or record.is_canceling or record.job.uid != now.metadata.uid:
            return
        planned, at = len(record.planned), self._clock.now()
        if not planned or had != planned or at - self._planned_at.get(record.spec.job_id, 0.0) < self._settled_s:
            return
        self.announce(
            Announcement(
                subject=subject_of(kind, now.metadata),
                reason="ScaledByHand",
                message=f"somebody set {has} replicas; the plan gives the job {planned}, so voda sets that again",
                at=at,
                key=now.metadata.resource_version,
            )
        )
