"""The service on a Kubernetes cluster: one of several replicas, of which one leads.

Rules: nothing is decided here; what is built here is only wired. Every replica serves the API, mirrors the cluster and
follows the log; whatever acts on the cluster or decides is in `Service.lead`, which ends with the leadership.
"""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

from voda import config
from voda.api.listener import serving
from voda.api.server import application
from voda.app.forecaster import Forecaster
from voda.app.home import Home
from voda.app.initial_settings import FirstSettings, RequestedSettings, record_settings
from voda.app.kubernetes.event_logging import note
from voda.app.kubernetes.log_liveness import LogLiveness
from voda.app.kubernetes.options import KubernetesOptions, PoolSettings, Surroundings
from voda.app.kubernetes.pool_outputs import Everywhere
from voda.app.kubernetes.pools import Pools
from voda.app.kubernetes.settings_mappings import rule, shape, terms
from voda.app.leadership import Leadership
from voda.app.pool_loop_factory import CONCURRENCY, pool_loop
from voda.app.runtime import last_recorded_at, tune_garbage_collector
from voda.app.snapshots import Snapshots
from voda.application.backend import Backend, CallerLimits
from voda.application.read_model import ReadModel
from voda.application.registration.adoption import Fitting
from voda.application.registration.registrar import Registrar
from voda.application.status.status_reporter import Telling
from voda.application.submit_job import JobSubmitter
from voda.auth.tokens import Authenticator
from voda.clock import SystemClock
from voda.cluster.kubernetes.client.api import Api
from voda.cluster.kubernetes.lease import LeaseClient
from voda.cluster.kubernetes.pod_logs import KubernetesOutputs
from voda.cluster.kubernetes.pools import KubernetesSite, Setup
from voda.cluster.kubernetes.resources import well_known
from voda.cluster.kubernetes.resources.objects import NamedObject
from voda.concurrency import survived
from voda.controller.leader_epochs import Epochs
from voda.controller.pool_loop import PoolLoop
from voda.domain.errors import ClusterUnavailable, StoreNotWritable, StoreUnavailable
from voda.domain.job import Job, JobSpec
from voda.domain.lease import LeaseStore
from voda.events.envelope import Event
from voda.events.types import JobFact
from voda.log.archive.archive_backed_store import ArchivedStore
from voda.log.durable_store import DurableStore
from voda.log.factory import open_store, shown
from voda.log.instrumented_store import TimedStore
from voda.log.lease.factory import lease_of
from voda.log.store import EventStore
from voda.manifests.parsed import Omission
from voda.manifests.warnings.kubernetes_warnings import on_kubernetes, refuse_elsewhere
from voda.placement.registry import placers
from voda.reconcilers.progress import ProgressCollector
from voda.reconcilers.watcher import Watcher
from voda.telemetry.gauges import leadership_gauges
from voda.telemetry.kubernetes import kubernetes_gauges
from voda.telemetry.prometheus import PrometheusTelemetry

_log = logging.getLogger(__name__)

_OLDEST: Final = "/api/v1/namespaces/kube-system"
_SYNC_S: Final = 90.0
"""Who cannot read the cluster in that time lets another replica try."""


class KubernetesService:
    """One replica."""

    def __init__(  # noqa: PLR0913 - its ports
        self,
        options: KubernetesOptions,
        around: Surroundings,
        *,
        store: DurableStore,
        api: Api,
        clock: SystemClock,
        telemetry: PrometheusTelemetry,
    ) -> None:
        self.url = ""
        self.options = options
        self.around = around
        self.telemetry = telemetry
        self.store: EventStore = TimedStore(
            ArchivedStore(store, config.archive()), telemetry, appended=lambda outcome: self.reach.appended(outcome)
        )
        spans = terms(options.leader)
        self.reach = LogLiveness(self.store, patience_s=spans.renew_deadline_s)
        self.clock = clock
        self.view = ReadModel(self.store)
        self.access = self._access()
        self.pools = Pools(self._found_pools, options.cluster.default_pool, self._loop, self._settle)
        self.site = KubernetesSite(api, self._setup())
        self.lease = self._lease(store, api)
        epochs = Epochs(self.store, clock, self._cluster)
        self.leadership = Leadership(self.lease, epochs, around.identity, terms=spans, telemetry=telemetry)
        telemetry.read(lambda: leadership_gauges(self.leadership))
        telemetry.read(lambda: kubernetes_gauges(self.site, self.view))
        self.backend = self._backend()
        fitting = Fitting(site=shape(options.cluster), environment=self.environment)
        self.telling = Telling(site=self.site, view=self.view, clock=clock, store=self.store, telemetry=telemetry)
        self.registrar = Registrar(
            site=self.site,
            backend=self.backend,
            submits=JobSubmitter(self.backend),
            fitting=fitting,
            announce=self.telling.announce,
            telemetry=telemetry,
        )

    # ---- what the API asks

    def trouble(self) -> str:
        """Return why the replica is not ready, one sentence; empty when it is."""
        if not self.site.is_synced:
            return self.site.trouble or "starting: the cluster is being read"
        if self.leadership.is_leading:
            return self.site.trouble or self.pools.trouble
        return self.site.trouble or self.leadership.trouble

    def description(self) -> Iterable[str]:
        """Yield what a user wants to know at the start, line by line."""
        yield f"cluster {self.site.api.host}"
        yield f"log {shown(self.options.log) if self.options.log else Path(self.options.home) / 'voda.db'}"
        yield f"lease {self.lease.key}, as {self.leadership.me}"
        if self.access.has_tokens:
            yield f"token {Path(self.options.access.folder or self.options.home) / 'admin.token'}"
        else:
            yield "no tokens: whoever reaches the port may do anything"

    def live_jobs(self) -> Mapping[str, Job]:
        """Return the jobs that have not ended, by id."""
        live = self.view.live.cluster
        return {job_id: job for pool in live.pools() for job_id, job in live.jobs(pool).items()}

    def environment(self, spec: JobSpec) -> Mapping[str, str]:
        """Return what the processes of a job are told of us."""
        return {
            well_known.JOB_ID_VARIABLE: spec.job_id,
            "VODA_JOB_NAME": spec.name or spec.job_id,
            "VODA_API_URL": self.options.api.url
            or f"http://voda.{self.around.namespace}.svc:{self.options.listen.port}",
            "VODA_JOB_TOKEN": self.access.job_token(spec.job_id),
        }

    # ---- what the leader does

    async def lead(self, epoch: int) -> None:
        """Decide and act until cancelled, or until the log is out of reach: then another replica may do better."""
        try:
            async with asyncio.timeout(_SYNC_S):
                await self.site.synced()
            await self.view.wait_for(await self.store.position())
        except (StoreUnavailable, StoreNotWritable, TimeoutError) as error:
            _log.warning("does not lead epoch=%d reason=%s", epoch, str(error) or "the cluster cannot be read")
            return
        async with asyncio.TaskGroup() as group:
            leading = group.create_task(self._lead(epoch))
            losing = group.create_task(self.reach.lost())
            await asyncio.wait({leading, losing}, return_when=asyncio.FIRST_COMPLETED)
            if losing.done():
                _log.warning("leads no more epoch=%d reason=%s", epoch, losing.result())
            leading.cancel()
            losing.cancel()

    async def _lead(self, epoch: int) -> None:
        self.site.begin()
        snapshots = Snapshots(self.store, self.view)
        async with asyncio.TaskGroup() as group:
            group.create_task(self.site.work())
            group.create_task(self.pools.lead(self.leadership.me, epoch))
            group.create_task(self.registrar.run())
            group.create_task(self.telling.run())
            group.create_task(snapshots.run())
            if self.options.metrics_folder:
                watcher = Watcher(store=self.store, clock=self.clock, actor="metrics")
                folder = Path(self.options.metrics_folder)
                group.create_task(ProgressCollector(folder, watcher=watcher, jobs=self.live_jobs).run())

    def see(self, event: Event) -> None:
        """Take note of an event that was appended by anybody."""
        self.pools.see(event)
        if self.leadership.is_leading:
            note(event)
        for see in (self.telling.see, self.registrar.see):
            with survived("following the log", str(event.position)):
                see(event)
        if isinstance(event.data, JobFact):
            self.site.heed(event.data.job_id)

    # ---- inside

    def _lease(self, store: EventStore, api: Api) -> LeaseStore:
        leader = self.options.leader
        if leader.election == "log":
            return lease_of(store, leader.name, clock=self.clock)
        return LeaseClient(api, leader.namespace or self.around.namespace, leader.name, clock=self.clock)

    async def _cluster(self) -> str:
        """Return what tells this cluster from all others: a namespace that lives as long as it does."""
        found = await self.site.api.get(_OLDEST, NamedObject)
        return found.metadata.uid if found is not None else ""

    def _access(self) -> Authenticator:
        if not self.around.has_tokens:
            return Authenticator.none()
        folder = self.options.access.folder
        return (
            Authenticator.mounted(Path(folder)) if folder else Authenticator.open(Path(self.options.home), self.clock)
        )

    def _backend(self) -> Backend:
        outputs = KubernetesOutputs(self.site.api, pods=self.site.pods_of, has_ended=self._has_ended)
        return Backend(
            store=self.store,
            clock=self.clock,
            view=self.view,
            access=self.access,
            pools=self.pools,
            pool_label=self.options.cluster.pool_label,
            outputs=Everywhere(self.pools, outputs),
            omissions=self._omissions,
            not_ready=self.trouble,
            limits=CallerLimits(jobs_per_user=self.options.jobs_per_user),
            telemetry=self.telemetry,
            exposition=self.telemetry.exposition,
        )

    def _omissions(self, manifest: Mapping[str, Any]) -> Sequence[Omission]:
        if not self.site.is_synced:
            raise ClusterUnavailable("this replica is still reading the cluster: try again in a moment")
        refuse_elsewhere(manifest, self.options.cluster.namespaces)
        served = {name: kind.api_version for name, kind in self.site.kinds.items()}
        return on_kubernetes(manifest, served, self.options.cluster.gpu_resource)

    def _setup(self) -> Setup:
        return Setup(
            rule=rule(self.options.cluster),
            clock=self.clock,
            job=self._job,
            jobs=lambda: self.live_jobs().values(),
            job_pools=self._job_pools,
            past=self._past,
            stall=self._stall,
            namespaces=self.options.cluster.namespaces,
            pools=tuple(self.options.pools),
            relist_s=self.options.cluster.relist_seconds,
            telemetry=self.telemetry,
        )

    def _job_pools(self) -> Iterable[str]:
        live = self.view.live.cluster
        return [pool for pool in live.pools() if live.jobs(pool)]

    def _job(self, job_id: str) -> Job | None:
        """Return a live job, as the latest reader of the log has it."""
        latest = self.pools.latest(self.view.live)
        pool = latest.cluster.pool_of(job_id)
        return latest.cluster.jobs(pool).get(job_id) if pool is not None else None

    def _past(self, job_id: str) -> Job | None:
        record = self.view.roster.job(job_id)
        return record.job if record is not None and not record.is_live else None

    def _stall(self, job_id: str) -> str:
        record = self.view.roster.job(job_id)
        return record.stall if record is not None else ""

    def _has_ended(self, job_id: str) -> bool:
        return self._job(job_id) is None

    def _found_pools(self) -> list[str]:
        return list(self.site.pools())

    def _loop(self, pool: str) -> PoolLoop:
        return pool_loop(
            pool,
            self.site.cluster(pool),
            store=self.store,
            clock=self.clock,
            telemetry=self.telemetry,
            at_once=CONCURRENCY,
            folded=self.view.live,
        )

    async def _settle(self, pool: str) -> None:
        """Record the settings that the settings file asks for and the log does not have."""
        asked = self.options.pools.get(pool, PoolSettings())
        wish = RequestedSettings(policy=asked.policy, placer=asked.placer, ratelimit_s=asked.ratelimit_seconds)
        live = self.view.live.cluster
        position = await record_settings(self.store, self.clock, live, pool, wish, FirstSettings(), actor="serve")
        await self.view.wait_for(position)


@asynccontextmanager
async def running(options: KubernetesOptions, around: Surroundings) -> AsyncIterator[KubernetesService]:
    """Run one replica for the length of the block.

    Raises:
        AlreadyExists: another one works on the folder.
        InvalidInput: a setting cannot be meant, or names what is not there.
        VodaError: the log or the cluster cannot be used.
    """
    home = Home(Path(options.home))
    home.make()
    async with AsyncExitStack() as stack:
        stack.enter_context(home.locked())
        with home.private_files():
            store = await open_store(options.log or home.log)
        stack.push_async_callback(store.close)
        telemetry = PrometheusTelemetry("election", "kubernetes")
        api = await Api.open(around.kubeconfig, around.context, telemetry=telemetry)
        stack.push_async_callback(api.close)
        clock = SystemClock(not_before=await last_recorded_at(store))
        service = KubernetesService(options, around, store=store, api=api, clock=clock, telemetry=telemetry)
        await service.view.open()
        await _build(service, stack)
        tune_garbage_collector()
        yield service


async def _build(service: KubernetesService, stack: AsyncExitStack) -> None:
    """Start everything, each after what it needs, so that the stack ends it before."""
    options, view = service.options, service.view
    # Their solvers are large: loaded now, and not while a new leader's first decision is waited for.
    placers()
    group = await stack.enter_async_context(asyncio.TaskGroup())
    forecaster = Forecaster(options.log or str(Path(options.home) / "voda.db"), view, service.clock, service.pools)
    for see in (service.see, forecaster.see):
        view.subscribe(see)
    listen = options.listen
    app = application(service.backend)
    service.url = await stack.enter_async_context(serving(app, listen.host, listen.port))
    works = [
        view.run(),
        service.site.run(),
        forecaster.run(),
        service.leadership.run(service.lead, service.pools.follow),
    ]
    tasks = [group.create_task(work) for work in works]
    stack.callback(lambda: [task.cancel() for task in tasks])
    _log.info("serves url=%s pid=%d", service.url, os.getpid())
