"""The service on one machine: builds the adapters, lets everything run together, and takes it down in order.

Rule: nothing is decided here; what is built here is only wired.
"""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from voda import __version__
from voda.api.access import Access
from voda.api.backend import Backend, Limits
from voda.api.metrics.instruments import Metrics
from voda.api.serve import serving
from voda.api.server import application
from voda.api.view import View
from voda.app.ending import halt_all
from voda.app.forecaster import Forecaster
from voda.app.home import Home, Server
from voda.app.loops import pool_loop, pool_watcher
from voda.app.machine import Machine
from voda.app.options import Options, refuse_contradictions
from voda.app.pool import PoolLoop
from voda.app.process import last_at, spare_the_collector
from voda.app.settings import ON_ONE_MACHINE, Wish, settle
from voda.app.snapshots import Snapshots
from voda.clock import SystemClock
from voda.cluster.local.cluster import LocalCluster
from voda.cluster.local.outputs import LocalOutputs
from voda.domain.job import Job, JobSpec
from voda.events.opening import open_store, shown
from voda.events.store import EventStore
from voda.events.timed import TimedStore
from voda.manifests.omissions import on_this_machine, refuse_unrunnable
from voda.manifests.parsed import Omission
from voda.reconcilers.progress import ProgressCollector
from voda.reconcilers.watcher import Watcher

_log = logging.getLogger(__name__)


class Service:
    """A running voda."""

    def __init__(self, options: Options, home: Home, store: EventStore, clock: SystemClock) -> None:
        self.url = ""
        self.options = options
        self.home = home
        self.metrics = Metrics()
        self.store: EventStore = TimedStore(store, self.metrics.appended)
        self.clock = clock
        self.view = View(self.store)
        self.access = Access.open(home.folder, clock) if options.has_tokens else Access.none()
        self.machine = Machine(options)
        self.clusters: Mapping[str, LocalCluster] = self.machine.clusters(clock, self.spec, self.environment)
        self.loops: Sequence[PoolLoop] = ()

    def trouble(self) -> str:
        """Return why the service is not ready, one sentence; empty when it is."""
        for loop in self.loops:
            if loop.trouble or not loop.is_leading:
                return loop.trouble or "starting: the log is being read"
        return "" if self.loops else "starting: the log is being read"

    def described(self) -> Sequence[str]:
        """Return what a user wants to know at the start, line by line."""
        told = [*self.machine.described(), f"log {(self.options.log and shown(self.options.log)) or self.home.log}"]
        if self.access.has_tokens:
            told.append(f"token {self.home.folder / 'admin.token'} (the command line finds it by itself)")
        else:
            told.append("no tokens: whoever reaches the port may do anything")
        return told

    def live_jobs(self) -> Mapping[str, Job]:
        """Return the jobs that have not ended, by id."""
        live = self.view.live.cluster
        return {job_id: job for pool in self.clusters for job_id, job in live.jobs(pool).items()}

    def spec(self, pool: str, job_id: str) -> JobSpec | None:
        """Return the spec of a job that is live in the pool, as the latest reader of the log has it."""
        readers = [loop.live for loop in self.loops if loop.pool == pool]
        for live in (*readers, self.view.live):
            if (job := live.cluster.jobs(pool).get(job_id)) is not None:
                return job.spec
        return None

    def environment(self, spec: JobSpec) -> Mapping[str, str]:
        """Return what the processes of a job are told of us."""
        # So that jobs report over TLS with a certificate of the user's own making; a manifest may name another.
        trusted = {"VODA_CA": str(self.options.tls[0].absolute())} if self.options.tls else {}
        return {
            **trusted,
            "VODA_JOB_ID": spec.job_id,
            "VODA_JOB_NAME": spec.name or spec.job_id,
            "VODA_API_URL": self.url,
            "VODA_JOB_TOKEN": self.access.job_token(spec.job_id),
        }

    def backend(self) -> Backend:
        """Return what the API works with."""
        return Backend(
            store=self.store,
            clock=self.clock,
            view=self.view,
            access=self.access,
            pools=tuple(self.clusters),
            outputs=dict.fromkeys(self.clusters, LocalOutputs(self.home.jobs.absolute())),
            omissions=_honoured,
            not_ready=self.trouble,
            limits=Limits(jobs_per_user=self.options.jobs_per_user),
            metrics=self.metrics,
        )


@asynccontextmanager
async def running(options: Options) -> AsyncIterator[Service]:
    """Run the service for the length of the block.

    Raises:
        AlreadyExists: another one works on the folder.
        InvalidInput: an option cannot be meant, or names what is not there.
        VodaError: the log cannot be used; see open_store.
    """
    refuse_contradictions(options)
    home = Home(options.home)
    home.make()
    async with AsyncExitStack() as stack:
        stack.enter_context(home.locked())
        home.bind(shown(options.log or home.log.name))
        # Manifests may hold secrets, and the folder may have been there before, open to others.
        with home.private_files():
            store = await open_store(options.log or home.log)
        stack.push_async_callback(store.close)
        service = Service(options, home, store, SystemClock(not_before=await last_at(store)))
        await service.view.open()
        await _build(service, stack)
        spare_the_collector()
        yield service


async def _build(service: Service, stack: AsyncExitStack) -> None:
    """Start everything, each after what it needs, so that the stack ends it before."""
    options, view, store, clock = service.options, service.view, service.store, service.clock
    wish = Wish(policy=options.policy, placer=options.placer, ratelimit_s=options.ratelimit_s)
    for pool in service.clusters:
        await settle(store, clock, view.live.cluster, pool, wish, ON_ONE_MACHINE, actor="up")
    snapshots = Snapshots(store, view)
    stack.push_async_callback(snapshots.take)
    group = await stack.enter_async_context(asyncio.TaskGroup())
    service.loops = [
        pool_loop(pool, cluster, store=store, clock=clock, metrics=service.metrics)
        for pool, cluster in service.clusters.items()
    ]
    forecaster = Forecaster(str(options.log or service.home.log), view, clock, tuple(service.clusters))
    for see in (*(loop.see for loop in service.loops), forecaster.see):
        view.each(see)
    app = application(service.backend())
    service.url = await stack.enter_async_context(serving(app, options.host, options.port, tls=options.tls))
    for cluster in service.clusters.values():
        # What the log has by now is in the view: a cluster forgets jobs that the log does not know.
        await cluster.open()
        stack.push_async_callback(cluster.close)
    if options.halts_on_exit:
        stack.push_async_callback(
            halt_all, [(cluster, pool_watcher(pool, store, clock)) for pool, cluster in service.clusters.items()]
        )
    leader = f"up/{os.getpid()}"
    works = [view.run(), snapshots.run(), forecaster.run(), *(loop.run(leader) for loop in service.loops)]
    works += [cluster.run() for cluster in service.clusters.values()]
    if options.metrics_folder is not None:
        watcher = Watcher(store=store, clock=clock, actor="metrics")
        works.append(ProgressCollector(options.metrics_folder, watcher=watcher, jobs=service.live_jobs).run())
    tasks = [group.create_task(work) for work in works]
    stack.callback(lambda: [task.cancel() for task in tasks])
    certificate = str(options.tls[0].absolute()) if options.tls else ""
    service.home.publish(Server(url=service.url, pid=os.getpid(), version=__version__, certificate=certificate))
    stack.callback(service.home.withdraw)


def _honoured(manifest: Mapping[str, Any]) -> Sequence[Omission]:
    """Return what of a manifest plain processes do not honour.

    Raises:
        InvalidField: nothing of it could run here.
    """
    refuse_unrunnable(manifest)
    return on_this_machine(manifest)
