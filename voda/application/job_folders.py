"""Keeps the folders of jobs on one machine within their limits: deletes those of ended jobs, by retention or request.

1. A folder is deleted where its job has ended, all its workers have exited in the log, and no replica of it runs.
2. It is renamed, then the log is told (job.folder_deleted), then what was in it is deleted, in steps with pauses.

Rules: what a live job has is never touched, nor what the log does not know; a crash between any two steps is made up
for by the next round; every look at the disk is in a thread.
"""

import asyncio
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final

from msgspec import Struct, structs

from voda.application.folder_retention import DeletionCause, EndedFolder, RetentionRule, expired
from voda.application.journal import JournalView
from voda.clock import Clock
from voda.cluster.folder_emptying import FolderEmptying
from voda.cluster.folder_sizes import FolderSizes
from voda.cluster.job_folders import DeletedFolder, LocalJobFolders
from voda.concurrency import log_unexpected, within
from voda.domain.errors import ActionRefused, LogArchived, VodaError, WrongState
from voda.events.envelope import ANY_VERSION, Fact
from voda.events.types import JobCanceled, JobCompleted, JobFailed, JobFolderDeleted, JobSubmitted
from voda.log.store import EventStore
from voda.metrics import FOLDER_BYTES, FOLDER_BYTES_DELETED, FOLDERS_DELETED, Telemetry
from voda.projections.jobs.record import JobRecord
from voda.projections.usage import DAY_S
from voda.text import counted, short, size
from voda.timetravel.replay import events_between
from voda.untrusted_trees import TreeSize

_log = logging.getLogger(__name__)

_TIMEOUT_S: Final = 20.0
"""For how long a request waits until a folder is emptied; the rest is done after it."""


class FolderDeletion(Struct, frozen=True, kw_only=True):
    """When a job's folder was deleted, and who or what asked for it."""

    at: float
    by: str


class HousekeepingIntervals(Struct, frozen=True, kw_only=True):
    """The spans of the rounds, seconds."""

    first_s: float = 30.0
    """From the start to the first round: jobs are taken over meanwhile."""
    every_s: float = 600.0
    emptying_s: float = 30.0
    """For how long a round empties what was taken away, before others are looked at."""


class FolderKeeper:
    """The folders of the jobs of one machine.

    Args:
        folders: where they lie.
        store: the log.
        clock: of the service.
        view: folded from the log.
        telemetry: shows what was deleted.
        intervals: shorter ones are for tests.
        sizes: of the folders; others are for tests.
        clock_problem: returns why the clock is not trusted, by which nothing is deleted then; empty: it is.
    """

    def __init__(  # noqa: PLR0913 - its ports
        self,
        folders: LocalJobFolders,
        *,
        store: EventStore,
        clock: Clock,
        view: JournalView,
        telemetry: Telemetry,
        intervals: HousekeepingIntervals | None = None,
        sizes: FolderSizes | None = None,
        clock_problem: Callable[[], str] = str,
    ) -> None:
        self.folders = folders
        self._store = store
        self._clock = clock
        self._view = view
        self._telemetry = telemetry
        self._clock_problem = clock_problem
        self._intervals = intervals or HousekeepingIntervals()
        self._sizes = sizes or FolderSizes(folders)
        self._ended: dict[str, EndedFolder | None] = {}
        """Jobs that the view has forgotten, as the log has them; None: not ended, or unknown."""
        self._emptying = FolderEmptying(folders, round_s=self._intervals.emptying_s)
        self._unrecorded: dict[str, Fact] = {}
        """Deletions that the log does not have yet: it may be full, and deleting is what makes room."""
        self._wake = asyncio.Event()
        self._measured_ends: dict[str, float] = {}
        """Job whose folder was measured -> when the last job in it had ended."""
        self._turn = asyncio.Lock()
        """Of those who take a folder away and note that; what is in it is deleted without it."""

    async def run(self) -> None:
        """Keep all pools within their limits, round by round, until cancelled."""
        await asyncio.sleep(self._intervals.first_s)
        while True:
            self._wake.clear()
            with log_unexpected("keeping", "the folders of ended jobs"):
                if not await self.keep():
                    continue
            await within(self._intervals.every_s, self._wake.wait())

    async def keep(self) -> bool:
        """Delete what exceeds the settings of its pool, and what an earlier round left; False: there is more to do."""
        await self.empty()
        kept = await self.ended_folders()
        if kept and (problem := self._clock_problem()):
            _log.warning("retention waits: %s", problem)
            return await self.empty()
        for pool in sorted({folder.pool for folder in kept}):
            in_pool = [folder for folder in kept if folder.pool == pool]
            rule = self.rule(pool)
            for folder, cause in expired(in_pool, rule, self._clock.now()):
                try:
                    await self._delete(folder, cause, _retention_text(rule, cause), actor="retention")
                except VodaError as error:
                    _log.warning(
                        "job_id=%s its folder was not deleted, or that was not recorded: %s", folder.job_id, error
                    )
        left = await self.ended_folders()
        self._telemetry.set(FOLDER_BYTES, sum(folder.size_bytes for folder in left))
        return await self.empty()

    def rule(self, pool: str) -> RetentionRule:
        """Return what the settings of a pool ask for."""
        settings = self._view.cluster.settings(pool)
        return RetentionRule(keep_s=settings.retention_s, keep_bytes=settings.retention_bytes)

    def promise(self, pool: str) -> str:
        """Return how long folders of a pool's jobs are kept, as a line for the one who starts voda."""
        rule = self.rule(pool)
        time = f"for {_days(rule.keep_s)}" if rule.keep_s else ""
        limit = f"up to {size(rule.keep_bytes)}" if rule.keep_bytes else ""
        kept = ", ".join(part for part in (time, limit) if part) or "for good"
        return f"folders of ended jobs stay {kept} (voda settings --retention, --retention-size)"

    def output_bytes(self, pool: str) -> int:
        return self._view.cluster.settings(pool).output_bytes

    async def ended_folders(self) -> Sequence[EndedFolder]:
        """Return the folders that may be deleted, measured, in the order in which their jobs ended."""
        found, later = [], _later_runs(self._view)
        for job_id in sorted(await asyncio.to_thread(self.folders.job_ids)):
            ended = await self._ended_job(job_id)
            if ended is None or later.get(job_id) == math.inf or await self._is_in_use(job_id):
                continue
            found.append(await self._measured(_behind(ended, later), is_awaited=False))
        return sorted(found, key=lambda folder: (folder.finished_at, folder.job_id))

    async def deletion(self, job_id: str) -> FolderDeletion | None:
        """Return when and by whom a job's folder was deleted; None where it was not."""
        if (record := self._view.job_registry.job(job_id)) is not None:
            at = record.folder_deleted_at
            return FolderDeletion(at=at, by=record.folder_deleted_by) if at is not None else None
        found = None
        with suppress(LogArchived):
            async for event in events_between(self._store, stream=f"job.{job_id}"):
                if isinstance(event.data, JobFolderDeleted):
                    found = FolderDeletion(at=event.recorded_at, by=event.data.by)
        return found

    async def look(self, job_id: str) -> tuple[TreeSize, Sequence[str]]:
        """Return what a job's folder takes now, and the replicas whose output was cut; for whoever waits for it.

        Raises:
            ServerBusy: it was not measured in time.
        """
        tree = await self._sizes.now(job_id)
        return tree, await asyncio.to_thread(self.folders.cut_replicas, job_id)

    async def delete(self, job_id: str, *, actor: str) -> int:
        """Delete the folder of an ended job on request, and return what it took; a large one is emptied after that.

        Raises:
            WrongState: the job has not ended, or one of its processes runs.
            ActionRefused: the disk refuses.
            ServerBusy: it was not measured in time; the next call goes on with that.
        """
        ended = await self._ended_job(job_id)
        if ended is None:
            raise WrongState(f"job {job_id} has not ended: its folder stays; cancel it first (voda delete {job_id})")
        _refuse_continued(self._view, job_id)
        if await self._is_in_use(job_id):
            raise WrongState(f"job {job_id} has ended, but its processes have not yet: its folder stays; try again")
        folder = await self._measured(_behind(ended, _later_runs(self._view)), is_awaited=True)
        await self._delete(folder, "request", actor or "nobody", actor=actor)
        mine = [deleted for deleted in await self._taken_away() if deleted.job_id == job_id]
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                await self._emptying.run(mine)
        except TimeoutError:
            self._wake.set()
        return folder.size_bytes

    async def empty(self) -> bool:
        """Delete what is in the folders that were taken away; return False where there is more to do."""
        deleted = await self._taken_away()
        with suppress(VodaError):
            await self._record()
        return await self._emptying.run(deleted)

    async def _taken_away(self) -> Sequence[DeletedFolder]:
        """Return the folders to empty; a deletion that the log does not know, an earlier voda's, is noted."""
        async with self._turn:
            found = await asyncio.to_thread(self.folders.deleted)
            for job_id in {deleted.job_id for deleted in found}:
                record = self._view.job_registry.job(job_id)
                if job_id not in self._unrecorded and record is not None and record.folder_deleted_at is None:
                    self._note(JobFolderDeleted(job_id=job_id, by="a deletion that was cut short"), "retention")
        return found

    async def _delete(self, folder: EndedFolder, cause: DeletionCause, by: str, *, actor: str) -> None:
        job_id = folder.job_id
        async with self._turn:
            # Measuring takes its time.
            _refuse_continued(self._view, job_id)
            try:
                was_there = await asyncio.to_thread(self.folders.take_away, job_id)
            except OSError as error:
                # Such as one of the same name that is not empty yet.
                raise ActionRefused(f"job {job_id}: its folder cannot be deleted: {error.strerror}") from error
            self._sizes.forget(job_id)
            self._measured_ends.pop(job_id, None)
            if not was_there:
                return
            self._note(JobFolderDeleted(job_id=job_id, by=by, size_bytes=folder.size_bytes), actor)
        self._telemetry.count(FOLDERS_DELETED, cause)
        self._telemetry.count(FOLDER_BYTES_DELETED, cause, by=folder.size_bytes)
        _log.info("folder deleted job_id=%s cause=%s bytes=%d", job_id, cause, folder.size_bytes)
        await self._record()

    def _note(self, fact: JobFolderDeleted, actor: str) -> None:
        made = Fact(data=fact, event_id=self._clock.new_id(), recorded_at=self._clock.now(), actor=actor)
        self._unrecorded[fact.job_id] = made

    async def _record(self) -> None:
        for job_id, fact in tuple(self._unrecorded.items()):
            # A lost answer is no matter: the log takes a fact once.
            position = await self._store.append(fact.data.stream, ANY_VERSION, [fact])
            await self._view.wait_for(position)
            self._unrecorded.pop(job_id, None)

    async def _is_in_use(self, job_id: str) -> bool:
        return await asyncio.to_thread(self.folders.is_in_use, job_id)

    async def _measured(self, ended: EndedFolder, *, is_awaited: bool) -> EndedFolder:
        job_id = ended.job_id
        if self._measured_ends.setdefault(job_id, ended.finished_at) != ended.finished_at:
            # A later run has gone on there since.
            self._sizes.forget(job_id)
            self._measured_ends[job_id] = ended.finished_at
        tree = await self._sizes.of_ended(job_id, is_awaited=is_awaited)
        return structs.replace(ended, size_bytes=tree.size_bytes, exceeds=tree.exceeds)

    async def _ended_job(self, job_id: str) -> EndedFolder | None:
        """Return a job that has ended and has no workers; None for any other."""
        if (record := self._view.job_registry.job(job_id)) is not None:
            return _of_record(record)
        if not self._view.job_registry.is_known(job_id):
            return None
        if job_id not in self._ended:
            self._ended[job_id] = await self._read_end(job_id)
        return self._ended[job_id]

    async def _read_end(self, job_id: str) -> EndedFolder | None:
        """Return a job as its own stream has it: it ended so long ago that the view has forgotten it."""
        spec, ended_at = None, None
        try:
            async for event in events_between(self._store, stream=f"job.{job_id}"):
                if isinstance(event.data, JobSubmitted):
                    spec, ended_at = event.data.spec, None
                elif isinstance(event.data, JobCompleted | JobFailed | JobCanceled):
                    ended_at = event.recorded_at
        except LogArchived:
            return None
        if spec is None or ended_at is None:
            return None
        return EndedFolder(job_id=job_id, user=spec.user, pool=spec.pool, finished_at=ended_at, size_bytes=0)


def _refuse_continued(view: JournalView, job_id: str) -> None:
    if _later_runs(view).get(job_id) == math.inf:
        raise WrongState(f"a later run of job {job_id} goes on in its folder: it stays until that has ended")


def _behind(ended: EndedFolder, later: Mapping[str, float]) -> EndedFolder:
    """Return an ended job's folder, of which the last run in it says when it ended."""
    return structs.replace(ended, finished_at=max(ended.finished_at, later.get(ended.job_id, 0.0)))


def _later_runs(view: JournalView) -> Mapping[str, float]:
    """Return the jobs in whose folders later runs go on -> when the last of these has ended; infinity: not yet."""
    found: dict[str, float] = {}
    for record in view.job_registry.jobs().values():
        if first := record.spec.continues:
            is_over = record.finished_at is not None and not record.job.workers
            ended_at = record.finished_at if record.finished_at is not None and is_over else math.inf
            found[first] = max(found.get(first, 0.0), ended_at)
    return found


def _of_record(record: JobRecord) -> EndedFolder | None:
    if record.finished_at is None or record.job.workers:
        return None
    spec = record.spec
    return EndedFolder(job_id=spec.job_id, user=spec.user, pool=spec.pool, finished_at=record.finished_at, size_bytes=0)


def _retention_text(rule: RetentionRule, cause: DeletionCause) -> str:
    if cause != "age":
        return f"retention ({size(rule.keep_bytes)})"
    return f"retention ({_days(rule.keep_s)})"


def _days(span_s: float) -> str:
    days, rest_s = divmod(span_s, DAY_S)
    return short(span_s) if rest_s else counted(round(days), "day")
