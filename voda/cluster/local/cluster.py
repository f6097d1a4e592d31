"""The local cluster: jobs run as processes of this Linux machine, which is its only node.

Rules: `observe` shows every worker that holds a device, ending ones too; all that is needed to go on after a crash lies
in the jobs' folders, so training outlives this process, and the next voda takes it over.
"""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Final

from voda import process_table
from voda.accounts import Account
from voda.cluster.attempts import Attempts
from voda.cluster.local.context import FIND_S, TRY_AGAIN_S, LocalClusterConfig, LocalContext
from voda.cluster.local.device_holders import claim_of_left, pod_of
from voda.cluster.local.devices import Slots
from voda.cluster.local.exit_policy import restart_in_s
from voda.cluster.local.folder import JobFolder, LocalJobRecord, job_ids, marked_job_ids
from voda.cluster.local.isolation.job_environment import write_package
from voda.cluster.local.job import LocalJob
from voda.cluster.local.node_health import NodeHealth
from voda.cluster.local.processes.inner_failures import InnerFailures
from voda.cluster.local.processes.marked import MarkedProcess
from voda.cluster.local.processes.silence import SilenceWatch
from voda.cluster.local.rendezvous import Transport, probe_for_users, probe_transport
from voda.cluster.port import Observed
from voda.concurrency import log_unexpected
from voda.domain.errors import ActionRefused, ClusterUnavailable, InvalidInput, TransientError
from voda.domain.plan import Action, HaltJob, ResizeJob, StartJob, StopJob, places
from voda.domain.reasons.nodes import Said
from voda.events.types import JobCompleted, JobFailed, Observation
from voda.untrusted_files import UnsafeFile

HEALTH_EVERY_S: Final = 2.0
_log = logging.getLogger(__name__)


class LocalCluster:
    """An adapter of the Cluster port; used on one event loop, between `open` and `close`."""

    def __init__(self, config: LocalClusterConfig) -> None:
        self._config = config
        self.node, self.slots = config.node.name, Slots(config.devices)
        self.jobs: dict[str, LocalJob] = {}
        self._notices: asyncio.Queue[Observation] = asyncio.Queue()
        self._context = LocalContext(config=config, slots=self.slots, tell=self._notices.put_nowait)
        self._health = NodeHealth(self._context)
        self._attempts = Attempts(
            self.apply, self._context.tell, self._context.now, pool=config.node.pool, telemetry=config.telemetry
        )
        self._watches = (SilenceWatch(self._context), InnerFailures(self._context))

    async def open(self) -> None:
        """Take over the jobs that run, and learn which ended meanwhile.

        Raises:
            OSError: the folder cannot be made or read.
        """
        context, folder = self._context, self._config.folder
        folder.mkdir(parents=True, exist_ok=True)
        context.boot_id = process_table.boot_id()
        await _probe_transport(context)
        try:
            await asyncio.to_thread(write_package, folder)
        except OSError as error:
            _log.warning("programs may find no voda.report, or an older one: %s cannot be written: %s", folder, error)
        await self._health.look()
        # In a thread: there may be many, and on a slow disk; the API answers meanwhile.
        found = await asyncio.to_thread(_find_records, folder)
        marked = await asyncio.to_thread(marked_job_ids, folder, None if self._config.account else os.geteuid())
        unrecorded = {*marked - dict(found).keys(), *(job_id for job_id, record in found if isinstance(record, str))}
        unrecorded = {job_id for job_id in unrecorded if self._config.jobs(job_id) is not None}
        left = {job_id: await asyncio.to_thread(self._folder(job_id).find_processes) for job_id in unrecorded}
        for job_id, record in found:
            self._add_found(job_id, record, left.get(job_id, ()))
        for job_id in left.keys() & marked - dict(found).keys():
            self._add_new(job_id, left[job_id])
        for job_id, job in tuple(self.jobs.items()):
            with log_unexpected("adopt", job_id):
                _take_over(job)
            # So that the API answers between two jobs.
            await asyncio.sleep(0)

    async def close(self) -> None:
        """Stop watching; training goes on."""
        self._context.cancel_timers()
        for job in self.jobs.values():
            job.close()

    async def run(self) -> None:
        """Watch the GPUs' health, where there are GPUs, and which jobs are silent or fail inside, and find the
        accounts of the jobs taken over.
        """
        while True:
            await self._find_missing_accounts()
            await asyncio.sleep(HEALTH_EVERY_S)
            await self._health.look()
            for watch in self._watches:
                watch.look({job_id: job.state for job_id, job in self.jobs.items()})

    async def observe(self) -> Observed:
        self._forget()
        jobs, now = {job_id: job.record for job_id, job in self.jobs.items()}, self._context.now()
        return Observed(
            nodes={self._config.node.name: self._health.node},
            workers={
                job_id: dict.fromkeys(sorted(record.devices), self._config.node.name)
                for job_id, record in jobs.items()
                if record.devices
            },
            sizes={job_id: record.size for job_id, record in jobs.items() if record.is_sized},
            gpus_per_replica={job_id: record.gpus_per_replica for job_id, record in jobs.items() if record.devices},
            retries={
                job_id: now + pause_s for job_id, record in jobs.items() if (pause_s := restart_in_s(record, now))
            },
            shares={self._config.node.name: self._context.slots.shares()},
            ended={job_id: _ended(record) for job_id, record in jobs.items() if record.ended},
        )

    async def set_desired(self, actions: Sequence[Action]) -> float:
        return await self._attempts.make(actions)

    async def apply(self, action: Action) -> None:
        """Begin one action.

        Raises:
            ClusterUnavailable: try again.
            PermanentError: the cluster refuses it.
        """
        problem, account = "", None
        if isinstance(action, StartJob | ResizeJob):
            _refuse_other_nodes(action, self._config.node.name)
            try:
                account = await self._account(action.job_id)
            except InvalidInput as error:
                problem = str(error)
        may_kill = _may_kill(action, is_known=action.job_id in self.jobs)
        left = await _find_left(self._context, self._folder(action.job_id, account)) if may_kill else ()
        if problem:
            self._fail(action.job_id, problem, left)
            return
        try:
            self._carry_out(action, account, left)
        except OSError as error:
            raise ClusterUnavailable(f"job {action.job_id}: its folder cannot be used: {error}") from error
        self._forget()

    def _carry_out(self, action: Action, account: Account | None, left: Sequence[MarkedProcess]) -> None:
        match action:
            case StartJob() | ResizeJob():
                size, there = len(action.nodes), places(action.nodes).keys()
                planned = action.planned if isinstance(action, ResizeJob) else 0
                placed = self._job(action.job_id, account, left)
                if problem := placed.state.use(account):
                    self._fail(action.job_id, problem)
                else:
                    placed.place(
                        there, planned=max(size, planned), start=action if isinstance(action, StartJob) else None
                    )
            case HaltJob():
                if (job := self.jobs.get(action.job_id)) is not None:
                    job.halt(left if action.is_kill else None)
            case StopJob():
                if (job := self.jobs.get(action.job_id)) is not None:
                    job.stop(action.reason, is_kill=action.is_kill)

    async def watch(self) -> AsyncIterator[Observation]:
        while True:
            yield await self._notices.get()

    def take_notices(self) -> Sequence[Observation]:
        """Return what happened since the last call, without waiting."""
        return [self._notices.get_nowait() for _ in range(self._notices.qsize())]

    def _job(self, job_id: str, account: Account | None, left: Sequence[MarkedProcess]) -> LocalJob:
        job = self.jobs.get(job_id)
        if job is None:
            # This refuses before anything is recorded; a folder that an earlier job of this id left is used again.
            self._context.run_spec(job_id)
            job = self._add_new(job_id, left, account)
        return job

    def _add_new(
        self, job_id: str, left: Sequence[MarkedProcess], account: Account | None = None, *, problem: str = ""
    ) -> LocalJob:
        """Add a job without a record, failed by a problem or about to start. What is left of its processes, as its
        record is gone, is killed, and holds its devices until then.
        """
        folder, record = self._folder(job_id, account), LocalJobRecord(job_id=job_id, pool=self._config.node.pool)
        record.boot_id = self._context.boot_id
        if problem:
            record.reason, record.ended = Said(text=problem), "failed"
        record.devices = claim_of_left(self._context, left)
        job = self._add(record, account)
        if record.devices:
            pids = folder.kill(left)
            _log.warning("job_id=%s has no record; its processes are killed: %s", job_id, " ".join(map(str, pids[:20])))
            record.state, record.leaving = "halting", {*record.devices}
            _take_over(job)
        return job

    def _add(self, record: LocalJobRecord, account: Account | None = None) -> LocalJob:
        for index, names in record.devices.items():
            self._context.slots.hold(record.job_id, index, names)
        if record.share is not None and record.devices:
            spec = self._config.jobs(record.job_id)
            pod = pod_of(spec) if spec is not None else record.job_id
            self._context.slots.hold_share(record.job_id, pod, record.share, record.share_device)
        job = LocalJob(self._context, self._folder(record.job_id, account), record)
        self.jobs[record.job_id] = job
        return job

    def _folder(self, job_id: str, account: Account | None = None) -> JobFolder:
        return JobFolder(self._config.folder, job_id, account=account)

    def _add_found(self, job_id: str, record: LocalJobRecord | str, left: Sequence[MarkedProcess]) -> None:
        if isinstance(record, str):
            self._set_aside(job_id, record, left)
        elif record.job_id != job_id:
            _log.warning("folder=%s holds a copy of job_id=%s, and is left alone", job_id, record.job_id)
        elif record.pool == self._config.node.pool:
            self._add(record)

    def _set_aside(self, job_id: str, problem: str, left: Sequence[MarkedProcess]) -> None:
        """End a job of this pool whose record cannot be read; one that is not live here is left alone."""
        if self._config.jobs(job_id) is None:
            _log.warning(
                "job_id=%s has a record that cannot be read (%s); its processes are left alone", job_id, problem
            )
            return
        reason = f"its record cannot be read: {problem}"
        _log.warning("job_id=%s %s; its processes are killed", job_id, reason)
        self._fail(job_id, reason, left)

    def _fail(self, job_id: str, problem: str, left: Sequence[MarkedProcess] = ()) -> None:
        """End a job that cannot be run, whether or not there is anything of it here."""
        if (job := self.jobs.get(job_id)) is not None:
            if not job.record.ended:
                job.fail(Said(text=problem))
            return
        self._context.tell(JobFailed(job_id=job_id, reason=Said(text=problem)))
        self._add_new(job_id, left, problem=problem)

    async def _account(self, job_id: str) -> Account | None:
        """Find the account that a job runs with.

        Raises:
            InvalidInput: its owner has none.
            ClusterUnavailable: it cannot be found now.
        """
        spec = self._config.jobs(job_id)
        if self._config.account is None or spec is None:
            return None
        try:
            return await self._config.account(spec)
        except TransientError as error:
            raise ClusterUnavailable(f"job {job_id}: {error}") from error

    async def _find_missing_accounts(self) -> None:
        for job_id, job in tuple(self.jobs.items()):
            if job.state.is_account_known or job.record.ended or self._config.jobs(job_id) is None:
                continue
            try:
                problem = job.state.use(await self._account(job_id))
            except InvalidInput as error:
                problem = str(error)
            except ClusterUnavailable as error:
                _log.warning("job_id=%s is not started again yet: %s", job_id, error)
                return
            if problem:
                self._fail(job_id, problem)
            job.settle()

    def _forget(self) -> None:
        """Drop the stopped jobs without processes, and stop the idle ones that are not live in the log any more."""
        for job_id, job in tuple(self.jobs.items()):
            if not job.is_forgotten and not job.record.devices and self._config.jobs(job_id) is None:
                job.stop("unknown")
            if job.is_forgotten:
                del self.jobs[job_id]
                self._context.run_specs.pop(job_id, None)


async def _probe_transport(context: LocalContext) -> None:
    config = context.config
    found: Transport | None = None
    if config.account is not None:
        context.agent, found = await asyncio.to_thread(probe_for_users, config.folder)
    elif config.transport is None:
        found = await asyncio.to_thread(probe_transport)
    context.transport = config.transport or found or "rank"


def _may_kill(action: Action, *, is_known: bool) -> bool:
    """Return whether an action may kill processes: of a job that is halted at once, or whose record is gone."""
    if isinstance(action, HaltJob):
        return action.is_kill and is_known
    return isinstance(action, StartJob | ResizeJob) and not is_known


async def _find_left(context: LocalContext, folder: JobFolder) -> Sequence[MarkedProcess]:
    """Find the processes of a job; ClusterUnavailable: they cannot be found now."""
    try:
        async with asyncio.timeout(FIND_S):
            return await asyncio.get_running_loop().run_in_executor(context.threads, folder.find_processes)
    except TimeoutError as error:
        raise ClusterUnavailable(f"job {folder.path.name}: its processes were not found within {FIND_S:g} s") from error


def _refuse_other_nodes(action: StartJob | ResizeJob, name: str) -> None:
    if others := sorted({node for node in action.nodes if node not in ("", name)}):
        raise ActionRefused(f"job {action.job_id}: needs GPUs on node {others[0]}, this cluster is node {name}")


def _find_records(folder: Path) -> list[tuple[str, LocalJobRecord | str]]:
    """Return the jobs of a folder with their records, or why one cannot be read."""
    return [(job_id, JobFolder(folder, job_id).load_or_problem()) for job_id in job_ids(folder)]


def _ended(record: LocalJobRecord) -> JobCompleted | JobFailed:
    if record.ended == "completed":
        return JobCompleted(job_id=record.job_id)
    return JobFailed(job_id=record.job_id, reason=record.reason)


def _take_over(job: LocalJob) -> None:
    """Adopt a job, repeatedly while the system refuses; one whose folder cannot be used is killed and fails."""
    try:
        job.adopt()
    except UnsafeFile as error:
        folder = job.state.folder
        job.state.context.in_thread(folder.find_processes, lambda found: folder.kill(found or ()), within_s=FIND_S)
        if not job.record.ended:
            job.fail(Said(text=f"its folder cannot be used: {error}"))
    except OSError as error:
        _log.warning("job_id=%s cannot be taken over: %s; tried again in %g s", job.record.job_id, error, TRY_AGAIN_S)
        job.state.later(TRY_AGAIN_S, lambda: _take_over(job))
