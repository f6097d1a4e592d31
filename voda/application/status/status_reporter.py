"""Tells users on their own objects what becomes of their jobs: as Events what happened, as annotations how it is.

Rules: nothing is decided here and nobody waits for it; every replica follows the log, so that a new leader tells what
the one before it had no time for, and what was told already is told by the same name again, which changes nothing.
"""

import asyncio
import logging
from typing import Final

from voda.application.read_model import ReadModel
from voda.application.registration.ports import JobSite
from voda.application.status.annotator import Annotator
from voda.application.status.announcer import RECENT_S, Announcer
from voda.clock import Clock
from voda.cluster.kubernetes.kinds.base import JobKind
from voda.cluster.kubernetes.reporting.event_messages import Story, Told
from voda.cluster.kubernetes.reporting.kube_events import Announcement, Subject, subject_of
from voda.cluster.kubernetes.resources import well_known
from voda.cluster.kubernetes.resources.objects import JobObject
from voda.domain.errors import ActionRefused, VodaError
from voda.events.envelope import Event
from voda.events.types import PlanAdopted
from voda.log.store import EventStore
from voda.metrics import NO_TELEMETRY, Telemetry

_log = logging.getLogger(__name__)

_MOST_READ: Final = 2_000
"""Events of the log's end that a process which has just started tells from."""


class Telling:
    """Follows the log, and tells.

    Args:
        site: the cluster's job objects.
        view: its roster has each event folded before `see` is told of it.
        clock: of ages and paces.
        store: the log, to tell from its end what happened before this process began; None: that is not told.
        per_s: patches a second, and Events a second.
        settled_s: time after a plan within which a size that is seen may be one that voda set for the plan before.
        telemetry: counts what became of each announcement.
    """

    def __init__(  # noqa: PLR0913 - its ports
        self,
        *,
        site: JobSite,
        view: ReadModel,
        clock: Clock,
        store: EventStore | None = None,
        per_s: float = 20.0,
        settled_s: float = 5.0,
        telemetry: Telemetry = NO_TELEMETRY,
    ) -> None:
        self._site = site
        self._view = view
        self._clock = clock
        self._store = store
        self._settled_s = settled_s
        self._announcer = Announcer(site.api, clock, per_s=per_s, telemetry=telemetry)
        self._annotator = Annotator(site, view, clock, per_s=per_s)
        self._story: Story | None = None
        self._planned_at: dict[str, float] = {}
        """Live job -> instant of the last plan that named it."""
        site.each_job(self.see_object)

    def announce(self, told: Announcement) -> None:
        """Have something told on an object."""
        self._announcer.put(told)

    def see(self, event: Event) -> None:
        """Take note of an event that was appended by anybody."""
        if self._story is None:
            self._story = self._begun()
        if isinstance(event.data, PlanAdopted):
            self._planned_at |= dict.fromkeys((*event.data.placed, *event.data.released), event.recorded_at)
        self._tell_all(self._story, event)
        for job_id in self._view.roster.touched:
            record = self._view.roster.job(job_id)
            if record is not None and record.job.uid:
                self._annotator.mark(record.job.uid)
            if record is None or not record.is_live:
                self._planned_at.pop(job_id, None)

    def see_object(self, kind: JobKind, before: JobObject | None, now: JobObject | None) -> None:
        """Take note of an object that came, changed or went."""
        self._annotator.see_object(kind, before, now)
        if before is not None and now is not None and before.metadata.uid == now.metadata.uid:
            self._see_size(kind, before, now)

    async def run(self) -> None:
        """Tell until cancelled."""
        if self._story is None:
            self._story = self._begun()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._catch_up())
            group.create_task(self._announcer.run())
            group.create_task(self._annotator.run())

    def _begun(self) -> Story:
        story = Story(self._view.roster.job)
        story.begin([record for record in self._view.roster.jobs().values() if record.is_live])
        return story

    async def _catch_up(self) -> None:
        """Tell what happened just before this process began; another one may have ended before it told it."""
        store, self._store = self._store, None
        if store is None:
            return
        try:
            end = self._view.position
            events = await store.read(max(0, end - _MOST_READ), _MOST_READ)
        except VodaError as error:
            _log.warning("what happened before is not told reason=%s", error)
            return
        story, since = Story(self._view.roster.job), self._clock.now() - RECENT_S
        for event in events:
            if event.position <= end and event.recorded_at >= since:
                self._tell_all(story, event)

    def _tell_all(self, story: Story, event: Event) -> None:
        for told in story.tell(event):
            if (subject := self._subject(told)) is not None:
                self.announce(
                    Announcement(
                        subject=subject,
                        reason=told.reason,
                        message=told.message,
                        at=event.recorded_at,
                        key=str(event.position),
                    )
                )

    def _subject(self, told: Told) -> Subject | None:
        """Return the object of the job; None where it has none that it could be told on."""
        record = self._view.roster.job(told.job_id)
        if record is None or not record.job.uid:
            return None
        spec = record.spec
        try:
            kind = self._site.kind_of(spec)
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
        """Tell of a size that somebody else set: the plan's was there, and no plan has changed it."""
        if before.spec.run_policy.suspend or now.spec.run_policy.suspend:
            return
        had, has = kind.replicas(before), kind.replicas(now)
        record = self._view.roster.job(now.metadata.annotations.get(well_known.JOB_ID, "")) if had != has else None
        if record is None or not record.is_live or record.is_canceling or record.job.uid != now.metadata.uid:
            return
        planned, at = len(record.planned), self._clock.now()
        if not planned or had != planned or at - self._planned_at.get(record.spec.job_id, 0.0) < self._settled_s:
            return
        self.announce(
            Announcement(
                subject=subject_of(kind, now.metadata),
                reason="ScaledByHand",
                message=f"somebody set {has} replicas; the plan gives it {planned}, and they are set again",
                at=at,
                key=now.metadata.resource_version,
            )
        )
