"""The service on one machine: builds the adapters, runs everything together, and ends it in order.

Jobs are processes that outlive the voda that started them, so the next one takes them over. Rule: nothing is decided
here; what is built here is only wired.
"""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from urllib.parse import quote

from voda import __version__, config
from voda.accounts import Account, Accounts, unmapped_uid
from voda.api.backend import Backend
from voda.api.listener import answering, serving_socket
from voda.api.server import application
from voda.api.sockets import PortListener
from voda.app import runtime
from voda.app.clock_guard import ClockGuard, read_clock
from voda.app.forecasts.forecaster import Forecaster
from voda.app.home import Home, ServerFile
from voda.app.log_health import LogHealth
from voda.app.machine import (
    Machine,
    MachineOptions,
    authenticator,
    exposure_warning,
    refuse_contradictions,
    socket_path,
    users_line,
)
from voda.app.pool_setup import pool_loop, pool_watcher, record_settings
from voda.app.reachability import other_voda, reach_warnings
from voda.app.runtime import Snapshots, cancel_and_wait, last_recorded_at, load_solver, tune_garbage_collector
from voda.app.usable_paths import refuse_unusable
from voda.app.what_if.runner import WhatIfRunner
from voda.application.change_settings import check_settings
from voda.application.halt_all import halt_all
from voda.application.job_folders import FolderKeeper
from voda.application.job_rules import JobRules
from voda.application.journal import Journal
from voda.application.read_model import ReadModel
from voda.application.submit_job import JobSubmitter
from voda.application.virtual_clusters.quota_size import quota_shortage
from voda.auth.local_users import ROOT, LocalUsers
from voda.auth.tokens import ADMIN, Authenticator
from voda.auth.write_quota import WriteQuota
from voda.clock import SystemClock
from voda.cluster.job_folders import LocalJobFolders
from voda.cluster.local.cluster import LocalCluster
from voda.cluster.local.exec.commands import LocalCommands
from voda.cluster.local.isolation.cgroups import find_cgroups
from voda.cluster.local.isolation.user_folders import has_user_folders
from voda.cluster.local.outputs import LocalOutputs
from voda.controller.pool_loop import PoolLoop
from voda.domain.errors import AlreadyExists, InvalidInput, StoreNotWritable
from voda.domain.job import Job, JobSpec
from voda.domain.settings import ON_ONE_MACHINE
from voda.events.envelope import Event
from voda.log.archive.archive_backed_store import ArchiveBackedStore
from voda.log.factory import display_name, open_store
from voda.log.instrumented_store import InstrumentedStore
from voda.log.store import DurableStore
from voda.reconcilers.progress import ProgressCollector
from voda.reconcilers.watcher import Watcher
from voda.telemetry.prometheus import PrometheusTelemetry

_log = logging.getLogger(__name__)


class MachineService:
    """One process of voda on this machine."""

    def __init__(  # noqa: PLR0913 - its ports
        self,
        options: MachineOptions,
        home: Home,
        store: DurableStore,
        clock: SystemClock,
        access: Authenticator,
        *,
        guard: ClockGuard,
    ) -> None:
        self.guard = guard
        self.port: PortListener | None = None
        self.options = options
        self.home = home
        self.telemetry = PrometheusTelemetry()
        self.store = InstrumentedStore(ArchiveBackedStore(store, config.archive()), self.telemetry)
        self.log_health = LogHealth(self.store, str(options.log or home.log), self.telemetry)
        self.clock = clock
        self.view = ReadModel(self.store)
        self.access = access
        self.users = LocalUsers(Accounts(), unmapped_uid=unmapped_uid()) if options.is_multi_user else None
        """The users of this machine; None where jobs of all users run as the one who runs voda."""
        self.socket = socket_path(options)
        self.keeper = FolderKeeper(
            LocalJobFolders(home.jobs.absolute()),
            store=self.store,
            clock=clock,
            view=self.view,
            telemetry=self.telemetry,
            clock_problem=lambda: guard.problem,
        )
        self.machine = Machine(options, find_cgroups(), self.telemetry)
        self.pools = tuple(self.machine.pools)
        self.what_ifs = WhatIfRunner(str(options.log or home.log), clock)
        self.loops: Sequence[PoolLoop] = ()
        self.clusters: Collection[LocalCluster] = ()
        """Of the pools, while this process leads them; clusters once their jobs were found."""
        self.unpublished = ""
        """Why the command line does not find this service by itself, one sentence; empty where it does."""
        self._starting = "starting: the log is being read"
        """What a service that is not ready yet waits for, one sentence."""

    @property
    def url(self) -> str:
        """The address to ask: of its port, or of its Unix socket where another program has the port."""
        return (self.port.url if self.port is not None else "") or f"unix://{self.socket}"

    @property
    def warning(self) -> str:
        """What is wrong though the service works, one sentence; empty where nothing is."""
        taken = self.port.problem if self.port is not None else ""
        asked = f"only the socket {self.socket} is asked: {taken}" if taken else ""
        return "; ".join(filter(None, [self.log_health.warning, self.guard.problem, self.unpublished, asked]))

    def failure(self) -> str:
        """Return why the service is not ready, one sentence; empty when it is."""
        for loop in self.loops:
            if loop.failure or not loop.is_leading:
                return loop.failure or self._starting
        return self.log_health.failure if self.loops else self._starting

    def description(self) -> Sequence[str]:
        """Return what a user wants to know at the start, line by line."""
        lines = [
            users_line(self.options),
            *self.machine.description(),
            f"log {(self.options.log and display_name(self.options.log)) or self.home.log}",
        ]
        lines += sorted({self.keeper.promise(pool) for pool in self.pools})
        if self.access.has_tokens:
            needed = "for programs over TCP" if self.socket else "the command line finds it by itself"
            lines.append(f"token {self.home.folder / 'admin.token'} ({needed})")
        else:
            lines.append("no tokens: whoever reaches the port may do anything")
        lines += reach_warnings(self.home.folder) if self.users is not None else filter(None, [other_voda()])
        if self.warning:
            lines.append(f"warning: {self.warning}")
        if warning := exposure_warning(self.options.host, has_tls=self.options.tls is not None):
            lines.append(warning)
        return lines

    def live_jobs(self) -> Mapping[str, Job]:
        live = self.view.cluster
        return {job_id: job for pool in self.pools for job_id, job in live.jobs(pool).items()}

    def spec(self, pool: str, job_id: str) -> JobSpec | None:
        """Return the spec of a job that is live in the pool, as the latest reader of the log has it."""
        readers = [loop.live for loop in self.loops if loop.pool == pool]
        for live in (*readers, self.view.live):
            if (job := live.cluster.jobs(pool).get(job_id)) is not None:
                return job.spec
        return None

    def environment(self, spec: JobSpec) -> Mapping[str, str]:
        """Return the variables by which a job's processes find this service."""
        # Where there is a socket, nobody but its owner can take its name, and so the reports and the token.
        url = f"unix://{quote(str(self.socket.absolute()))}" if self.socket is not None else self.url
        # Jobs report over TLS even with a self-made certificate; a manifest may name another.
        trusted = {"VODA_CA": str(self.options.tls[0].absolute())} if self.options.tls else {}
        return {
            **trusted,
            **spec.environment,
            "VODA_API_URL": url,
            "VODA_JOB_TOKEN": self.access.job_token(spec.job_id),
        }

    async def job_account(self, spec: JobSpec) -> Account | None:
        """Return the account that a job runs with, None = that of the user who runs voda; see `LocalUsers`."""
        account = None if self.users is None else await self.users.job_account(spec.user)
        return None if account is None or account.uid == os.geteuid() else account

    async def _job_uid(self, spec: JobSpec) -> int | None:
        """Return the user id that a job runs with; None where those of all users run with one."""
        account = await self.job_account(spec)
        return None if self.users is None else account.uid if account is not None else os.geteuid()

    def backend(self) -> Backend:
        known = [self.access.is_admin, *([] if self.users is None else [self.users.is_admin])]
        quota = WriteQuota(self.options.log_bytes_per_user, lambda user: any(is_admin(user) for is_admin in known))
        journal = Journal(store=self.store, clock=self.clock, view=self.view, quota=quota)
        return Backend(
            journal=journal,
            live=self.view.live,
            submits=JobSubmitter(journal, self._job_rules()),
            access=self.access,
            local_users=self.users,
            pools=self.pools,
            outputs=LocalOutputs(self.home.jobs.absolute()),
            commands=LocalCommands(lambda: self.clusters),
            job_gpus=self._job_gpus,
            folders=self.keeper,
            what_ifs=self.what_ifs,
            page_url=lambda: self.port.url if self.port is not None else "",
            not_ready=self.failure,
            health_warning=lambda: self.warning,
            limits=self.options.caller_limits(),
            telemetry=self.telemetry,
            exposition=self.telemetry.exposition,
        )

    def _job_rules(self) -> JobRules:
        rules = JobRules(
            pools=self.pools,
            jobs_per_user=self.options.jobs_per_user,
            live_bytes_per_user=self.options.live_bytes_per_user,
            warnings=self.machine.warnings,
            counted=self.machine.gpu_shares().counted,
            refuse_unusable=lambda parsed: refuse_unusable(parsed, self.job_account),
            quota_shortage=quota_shortage,
        )
        return rules if self.users is None else replace(rules, account=self.users.job_account)

    def _job_gpus(self, node: str) -> Mapping[int, str]:
        return next((each.slots.jobs_by_gpu() for each in self.clusters if each.node == node), {})

    def see(self, event: Event) -> None:
        for loop in self.loops:
            loop.see(event)

    def publish(self) -> None:
        tls = self.options.tls
        certificate = str(tls[0].absolute()) if tls else ""
        socket = str(self.socket.absolute()) if self.socket else ""
        url = self.port.url if self.port is not None else ""
        server = ServerFile(url=url, pid=os.getpid(), version=__version__, certificate=certificate, socket=socket)
        try:
            self.home.publish(server)
            self.unpublished = ""
        except StoreNotWritable as error:
            self.unpublished = f"{error}; tried again until there is room: meanwhile commands need --server {self.url}"

    async def lead(self, leader: str) -> None:
        """Decide, and act on this machine, until cancelled; after `settle`.

        Args:
            leader: identity of this process in the log.

        Raises:
            ExceptionGroup: of Fenced where another process leads on the same log.
        """
        account = None if self.users is None else self.job_account
        clusters = self.machine.clusters(self.clock, self.spec, self.environment, self.view.cluster.settings, account)
        begin = partial(pool_loop, store=self.store, clock=self.clock, telemetry=self.telemetry, folded=self.view.live)
        self.loops = [begin(pool, cluster) for pool, cluster in clusters.items()]
        snapshots = Snapshots(self.store, self.view)
        async with AsyncExitStack() as stack:
            stack.callback(self._drop_loops)
            stack.push_async_callback(snapshots.take)
            for pool, cluster in clusters.items():
                self._starting = f"starting: the jobs of pool {pool} are being looked for"
                # The view has read the log by now: a cluster forgets jobs that the log does not know.
                stack.push_async_callback(cluster.close)
                await runtime.when_there_is_room(cluster.open, self.home.folder)
            self.clusters, self._starting = [*clusters.values()], "starting: the log is being read"
            if self.options.halts_on_exit:
                watched = [(cluster, pool_watcher(pool, self.store, self.clock)) for pool, cluster in clusters.items()]
                stack.push_async_callback(halt_all, watched)
            await self._work(clusters.values(), snapshots, leader)

    async def settle(self) -> None:
        """Record the settings that the options ask for and the log does not have.

        Raises:
            InvalidInput: there is no such policy or placer, or users' jobs would run as root.
        """
        await self.view.wait_for(await self.store.position())
        self._refuse_jobs_of_users()
        requested = check_settings(self.options.settings)
        for pool in self.pools:
            live = self.view.cluster
            position = await record_settings(self.store, self.clock, live, pool, requested, ON_ONE_MACHINE, actor="up")
            await self.view.wait_for(position)

    def _refuse_jobs_of_users(self) -> None:
        """Raise InvalidInput where jobs that were to run as their users would run as root from now on."""
        if self.users is not None or os.geteuid() != 0 or not has_user_folders(self.home.jobs):
            return
        owners = {job.spec.user for job in self.live_jobs().values()} - {"", ADMIN, ROOT}
        if owners:
            named = ", ".join(sorted(owners)[:5])
            raise InvalidInput(
                f"live jobs of other users ({named}) would run as root: start without --single-user and --no-tokens"
            )

    async def _work(self, clusters: Iterable[LocalCluster], snapshots: Snapshots, leader: str) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(snapshots.run())
            group.create_task(self.log_health.verify())
            group.create_task(self.keeper.run())
            for loop in self.loops:
                group.create_task(loop.run(leader))
            for cluster in clusters:
                group.create_task(cluster.run())
            if self.options.metrics_folder is not None:
                watcher = Watcher(store=self.store, clock=self.clock, actor="metrics")
                folder = self.options.metrics_folder
                group.create_task(
                    ProgressCollector(folder, watcher=watcher, jobs=self.live_jobs, owner=self._job_uid).run()
                )

    def _drop_loops(self) -> None:
        self.loops = self.clusters = ()


@asynccontextmanager
async def running(options: MachineOptions) -> AsyncIterator[MachineService]:
    """Run the service for the length of the block, alone on its folder.

    Raises:
        AlreadyExists: another one works on the folder.
        InvalidInput: an option is wrong, or names something that does not exist.
        VodaError: the log cannot be used; see open_store.
    """
    refuse_contradictions(options)
    home = Home(options.home)
    home.make()
    if options.is_multi_user:
        home.let_users_through(public=options.tls[:1] if options.tls else ())
    with home.locked():
        async with serving_from(options, home) as (service, group):
            await runtime.when_there_is_room(service.settle, home.folder)
            service.publish()
            leading = group.create_task(service.lead(f"up/{os.getpid()}"))
            waiting = group.create_task(announce(service))
            try:
                yield service
            finally:
                await cancel_and_wait(waiting)
                home.withdraw(os.getpid())
                # The API answers until then: halted programs report how far they got.
                await cancel_and_wait(leading)


async def announce(service: MachineService) -> None:
    """Publish where a service is asked, once there is room for that, and listen at its port once nobody else does."""
    if service.warning:
        _log.warning("%s", service.warning)
    while service.unpublished:
        await asyncio.sleep(runtime.ROOM_AGAIN_S)
        service.publish()
    if service.port is not None and service.port.problem:
        await service.port.open_when_free()
        _log.warning("the port is free again: listening at %s", service.url)
        service.publish()


@asynccontextmanager
async def serving_from(options: MachineOptions, home: Home) -> AsyncIterator[tuple[MachineService, asyncio.TaskGroup]]:
    """Serve the API and follow the log for the length of the block; the group takes further tasks."""
    async with AsyncExitStack() as stack:
        home.bind(display_name(options.log or home.log.name))
        # Manifests may hold secrets, and an existing folder may be open to others.
        with home.private_files():
            store = await runtime.when_there_is_room(lambda: open_store(options.log or home.log), home.folder)
        stack.push_async_callback(store.close)
        last = await last_recorded_at(store)
        guard = ClockGuard(home.folder, last, read_clock())
        clock = SystemClock(not_before=last, believed=guard.believed)
        service = MachineService(options, home, store, clock, await authenticator(options, clock), guard=guard)
        await service.view.open()
        group = await stack.enter_async_context(asyncio.TaskGroup())
        forecaster = Forecaster(str(options.log or home.log), service.view, service.clock, service.pools)
        for see in (service.see, forecaster.see):
            service.view.subscribe(see)
        app = application(service.backend())
        service.port = await stack.enter_async_context(answering(app, options.host, options.port, tls=options.tls))
        # Where there is a socket, a job's process that took the port must not keep all users from their voda.
        with suppress(AlreadyExists) if service.socket is not None else nullcontext():
            await service.port.open()
        if service.socket is not None:
            await stack.enter_async_context(serving_socket(app, service.socket))
        works = (
            service.view.run(),
            service.log_health.follow(),
            forecaster.run(),
            service.what_ifs.run(),
            guard.run(),
            load_solver(),
        )
        tasks = [*map(group.create_task, works)]
        stack.callback(lambda: [task.cancel() for task in tasks])
        tune_garbage_collector()
        yield service, group
