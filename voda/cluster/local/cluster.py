"""The local cluster: jobs run as processes of this Linux machine, which is its only node.

Rules: what holds a device is observed, ending workers too; all that is needed to go on after a crash lies in the
jobs' folders, so training outlives this process and whoever opens the cluster next takes it over.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Sequence
from typing import Final

from msgspec.structs import replace

from voda.cluster.local import mpi
from voda.cluster.local.context import Setup, Site
from voda.cluster.local.devices import Slots
from voda.cluster.local.gpus import Health
from voda.cluster.local.job import LocalJob
from voda.cluster.local.processes import process_table
from voda.cluster.local.processes.folder import Folder, job_ids
from voda.cluster.local.processes.record import Record
from voda.cluster.port import Observed
from voda.domain.errors import ActionRefused, ClusterUnavailable
from voda.domain.plan import Action, HaltJob, MigrateWorkers, ResizeJob, StartJob, StopJob
from voda.events.types import JobCompleted, JobFailed, NodeChanged, Observation

HEALTH_EVERY_S: Final = 2.0
_HEALTH_TIMEOUT_S: Final = 10.0
_log = logging.getLogger(__name__)


class LocalCluster:
    """An adapter of the Cluster port; used on one event loop, between `open` and `close`."""

    def __init__(self, setup: Setup) -> None:
        """Build it; nothing is looked at before `open`."""
        self._setup = setup
        self._node = replace(setup.node, gpus=len(setup.devices))
        self._jobs: dict[str, LocalJob] = {}
        self._notices: deque[Observation] = deque()
        self._has_notices = asyncio.Event()
        self._looking: asyncio.Future[Health] | None = None
        """The look at the GPUs that is under way."""
        self._site = Site(setup=setup, slots=Slots(setup.devices), tell=self._tell)

    async def open(self) -> None:
        """Take over what runs, and learn what ended meanwhile.

        Raises:
            OSError: the folder cannot be made or read.
        """
        site, folder = self._site, self._setup.folder
        folder.mkdir(parents=True, exist_ok=True)
        site.boot_id = process_table.boot_id()
        chosen = self._setup.transport
        site.transport = await asyncio.to_thread(mpi.probed) if chosen is None else chosen
        await self._look_at_gpus()
        for job_id in job_ids(folder):
            record = Folder(folder, job_id).load()
            if record is None:
                _log.warning("job_id=%s has a record that cannot be read; its processes are left alone", job_id)
            elif record.job_id != job_id:
                _log.warning("folder=%s holds a copy of job_id=%s, and is left alone", job_id, record.job_id)
            elif record.pool == self._node.pool:
                self._add(record)
        for job in tuple(self._jobs.values()):
            job.find()

    async def close(self) -> None:
        """Look no longer; training goes on."""
        self._site.cancel_timers()
        for job in self._jobs.values():
            job.close()

    async def run(self) -> None:
        """Watch the GPUs' health for ever; without GPUs there is nothing to watch."""
        while True:
            await asyncio.sleep(HEALTH_EVERY_S)
            await self._look_at_gpus()

    async def observe(self) -> Observed:
        """See Cluster.observe."""
        self._forget()
        jobs = {job_id: job.record for job_id, job in self._jobs.items()}
        return Observed(
            nodes={self._node.name: self._node},
            workers={
                job_id: dict.fromkeys(sorted(record.devices), self._node.name)
                for job_id, record in jobs.items()
                if record.devices
            },
            sizes={job_id: record.size for job_id, record in jobs.items() if record.is_sized},
            gpus_per_replica={job_id: record.gpus_per_replica for job_id, record in jobs.items() if record.devices},
            ended={job_id: _ended(record) for job_id, record in jobs.items() if record.ended},
        )

    async def apply(self, action: Action) -> None:
        """See Cluster.apply.

        Raises:
            ActionRefused: no such job or node, or no room.
            ClusterUnavailable: the job's folder cannot be written.
        """
        try:
            self._carry_out(action)
        except OSError as error:
            raise ClusterUnavailable(f"job {action.job_id}: its folder cannot be used: {error}") from error
        self._forget()

    def _carry_out(self, action: Action) -> None:
        match action:
            case StartJob() | ResizeJob():
                self._refuse_other_nodes(action.job_id, action.nodes)
                self._job(action.job_id).place(len(action.nodes))
            case MigrateWorkers():
                self._refuse_other_nodes(action.job_id, tuple(action.moves.values()))
            case HaltJob():
                if (job := self._jobs.get(action.job_id)) is not None:
                    job.halt()
            case StopJob():
                if (job := self._jobs.get(action.job_id)) is not None:
                    job.stop(action.reason)

    async def watch(self) -> AsyncIterator[Observation]:
        """See Cluster.watch."""
        while True:
            while self._notices:
                yield self._notices.popleft()
            self._has_notices.clear()
            await self._has_notices.wait()

    def take_notices(self) -> Sequence[Observation]:
        """Return what happened since the last call, for who does not want to wait."""
        taken = tuple(self._notices)
        self._notices.clear()
        return taken

    def _job(self, job_id: str) -> LocalJob:
        job = self._jobs.get(job_id)
        if job is None:
            # Refused before anything is noted; a folder that an earlier job of this id left is used again.
            self._site.blueprint(job_id)
            job = self._add(Record(job_id=job_id, pool=self._node.pool, boot_id=self._site.boot_id))
        return job

    def _add(self, record: Record) -> LocalJob:
        for index, names in record.devices.items():
            self._site.slots.hold(record.job_id, index, names)
        job = LocalJob(self._site, Folder(self._setup.folder, record.job_id), record)
        self._jobs[record.job_id] = job
        return job

    def _forget(self) -> None:
        """Drop the jobs that are stopped and gone, and those without processes that the log knows to have ended."""
        for job_id, job in tuple(self._jobs.items()):
            if not job.is_forgotten and not job.record.devices and self._setup.jobs(job_id) is None:
                job.stop("unknown")
            if job.is_forgotten:
                del self._jobs[job_id]
                self._site.blueprints.pop(job_id, None)

    def _refuse_other_nodes(self, job_id: str, nodes: Sequence[str]) -> None:
        if others := sorted({node for node in nodes if node != self._node.name}):
            raise ActionRefused(f"job {job_id}: needs GPUs on node {others[0]}, this cluster is node {self._node.name}")

    async def _look_at_gpus(self) -> None:
        if self._setup.health is None:
            return
        if self._looking is None:
            look, held = self._setup.health.look, self._site.slots.held()
            self._looking = asyncio.get_running_loop().run_in_executor(None, look, held)
        # A driver that hangs keeps its thread; another one must not be given to it.
        done, _ = await asyncio.wait((self._looking,), timeout=_HEALTH_TIMEOUT_S)
        if not done:
            _log.warning("node=%s its GPUs' driver did not answer within %g s", self._node.name, _HEALTH_TIMEOUT_S)
            return
        looked, self._looking = self._looking, None
        try:
            health = looked.result()
        except Exception as error:  # the driver's library raises its own family
            _log.warning("node=%s its GPUs' driver does not tell how they are: %s", self._node.name, error)
            return
        self._heed(health)

    def _heed(self, health: Health) -> None:
        """Take in how the GPUs are, and tell if the node offers another number than before."""
        names = {device.name for device in self._setup.devices}
        broken, foreign = health.broken.keys() & names, health.foreign & names
        self._site.barred = frozenset(broken | foreign)
        node = replace(self._node, gpus=len(names - broken), foreign_gpus=len(foreign - broken))
        if node != self._node:
            for name in sorted(broken):
                _log.warning("node=%s gpu=%s is not used: %s", node.name, name, health.broken[name])
            self._node = node
            self._tell(NodeChanged(node=node))

    def _tell(self, notice: Observation) -> None:
        self._notices.append(notice)
        self._has_notices.set()


def _ended(record: Record) -> JobCompleted | JobFailed:
    if record.ended == "completed":
        return JobCompleted(job_id=record.job_id)
    return JobFailed(job_id=record.job_id, reason=record.reason)
