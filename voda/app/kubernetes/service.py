"""The service on a Kubernetes cluster: one of several replicas, of which one leads.

1. Every replica serves the API, mirrors the cluster and follows the log.
2. The one that holds the Lease leads: it decides, acts on the cluster and writes to job objects (`lead`).
3. It stops when it loses the Lease, or when the log is out of reach for too long.

Rule: nothing is decided here; what is built here is only wired.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from voda import config
from voda.api.backend import Backend
from voda.app.kubernetes.log_liveness import LogLiveness
from voda.app.kubernetes.log_queries import LoggedJobs, unadopted
from voda.app.kubernetes.options import KubernetesOptions, ReplicaContext
from voda.app.kubernetes.pools import Pools
from voda.app.kubernetes.sharing import Sharing
from voda.app.leadership import Leadership
from voda.app.log_health import LogHealth
from voda.app.machine import exposure_warning
from voda.app.pool_setup import pool_loop, record_settings
from voda.app.runtime import Snapshots
from voda.app.what_if.runner import WhatIfRunner
from voda.application.job_rules import JobRules
from voda.application.journal import Journal
from voda.application.read_model import ReadModel
from voda.application.submit_job import JobSubmitter
from voda.application.virtual_clusters.quota_size import quota_shortage
from voda.auth.tokens import Authenticator
from voda.auth.write_quota import WriteQuota
from voda.clock import SystemClock
from voda.cluster.kubernetes.annotated_pods import AnnotatedPods
from voda.cluster.kubernetes.kinds.template import TemplateValues
from voda.cluster.kubernetes.pod_logs import KubernetesOutputs
from voda.cluster.kubernetes.pools import KubernetesPools
from voda.cluster.kubernetes.setup import KubernetesSetup
from voda.cluster.kubernetes.state.job_claims import job_gpus, with_claimed_gpus
from voda.cluster.kubernetes.state.pod_defaults import with_pod_defaults
from voda.concurrency import log_unexpected
from voda.controller.leader_epochs import LeaderEpochs
from voda.controller.pool_loop import PoolLoop
from voda.domain.errors import ClusterUnavailable, StoreNotWritable, StoreUnavailable
from voda.domain.job import JobSpec
from voda.domain.lease import LeaseStore
from voda.events.envelope import Event
from voda.events.event_text import describe, subject_of
from voda.events.records import JobFact
from voda.events.types import JobProgressed
from voda.kinds.base import FieldWarning
from voda.kubernetes_client.api import Api
from voda.kubernetes_client.lease import LeaseClient
from voda.kubernetes_client.metadata import PartialObject
from voda.log.archive.archive_backed_store import ArchiveBackedStore
from voda.log.factory import display_name, lease_of
from voda.log.instrumented_store import InstrumentedStore
from voda.log.store import DurableStore, EventStore
from voda.manifests.kubernetes_warnings import kubernetes_warnings, refuse_elsewhere
from voda.manifests.parse import ParsedManifest
from voda.operator.authorization.submit_rights import SubmitRights
from voda.operator.extender import Extender
from voda.operator.hived.pod_scheduler import PodScheduler
from voda.operator.hived.pod_watch import PodWatch
from voda.operator.pod_ports import PodPorts
from voda.operator.registration.registrar import Registrar
from voda.operator.status.status_reporter import StatusReporter
from voda.reconcilers.progress import ProgressCollector
from voda.reconcilers.watcher import Watcher
from voda.telemetry.gauges import kubernetes_gauges, leadership_gauges
from voda.telemetry.prometheus import PrometheusTelemetry

_log = logging.getLogger(__name__)

_OLDEST: Final = "/api/v1/namespaces/kube-system"
_MOST_SKEW_S: Final = 10.0
"""Of clocks, that nobody is told of."""
_SYNC_S: Final = 90.0
"""A replica that cannot read the cluster in that time lets another one try."""


class KubernetesService:
    """One replica."""

    def __init__(  # noqa: PLR0913 - its ports
        self,
        options: KubernetesOptions,
        context: ReplicaContext,
        *,
        store: DurableStore,
        api: Api,
        clock: SystemClock,
        telemetry: PrometheusTelemetry,
    ) -> None:
        self.url = ""
        self.options, self.context = options, context
        self.telemetry, self.clock = telemetry, clock
        self.store = InstrumentedStore(
            ArchiveBackedStore(store, config.archive()),
            telemetry,
            appended=lambda outcome: self.log_liveness.appended(outcome),
        )
        timings = options.leader.timings()
        self.log_liveness = LogLiveness(self.store, tolerance_s=timings.renew_deadline_s)
        self.log_health = LogHealth(self.store, options.log or str(Path(options.home) / "voda.db"), telemetry)
        self.view = ReadModel(self.store)
        self.what_ifs = WhatIfRunner(options.log or str(Path(options.home) / "voda.db"), clock)
        self.access = _access(options, context, clock)
        self.pools = Pools(lambda: self.kubernetes.names(), options.cluster.default_pool, self._loop, self._settle)
        self.jobs = LoggedJobs(self.view, self.pools.latest)
        setup = self._setup()
        self.kubernetes = KubernetesPools(api, setup)
        self.mirror = self.kubernetes.mirror
        self.lease = _lease(store, api, options, context, clock)
        epochs = LeaderEpochs(self.store, clock, self._cluster_uid)
        self.leadership = Leadership(self.lease, epochs, context.identity, timings=timings, telemetry=telemetry)
        telemetry.read(lambda: leadership_gauges(is_leading=self.leadership.is_leading, epoch=self.leadership.epoch))
        telemetry.read(lambda: kubernetes_gauges(self.mirror.counts(), self._unadopted()))
        self.pod_scheduler = self._pod_scheduler(api)
        quota = WriteQuota(options.log_bytes_per_user, self.access.is_admin)
        journal = Journal(store=self.store, clock=clock, view=self.view, quota=quota)
        submits = JobSubmitter(journal, self._job_rules())
        self.shares = Sharing(
            journal,
            self.mirror,
            self.kubernetes.inventory,
            options.sharing,
            lambda announcement: self.reporter.announce(announcement),
        )
        self.backend = self._backend(journal, submits)
        self.reporter = StatusReporter(
            objects=self.mirror, view=self.view, clock=clock, store=self.store, telemetry=telemetry
        )
        self.registrar = Registrar(
            objects=self.mirror,
            journal=journal,
            submits=submits,
            values=setup.values,
            announce=self.reporter.announce,
            refused=self.reporter.states.refuse,
            telemetry=telemetry,
            has_user_policy=options.cluster.user_policy,
            defaults_changes=lambda: self.mirror.defaults.changes,
        )

    # ---- what the API asks

    def failure(self) -> str:
        """Return why the replica is not ready, one sentence; empty when it is."""
        if not self.mirror.is_synced:
            return self.mirror.failure or "starting: the cluster is being read"
        if self.leadership.is_leading:
            return self.mirror.failure or self.pools.failure or self.log_health.failure
        return self.mirror.failure or self.leadership.failure or self.log_health.failure

    def description(self) -> Iterable[str]:
        """Yield what a user wants to know at the start, line by line."""
        yield f"cluster {self.mirror.api.host}"
        yield f"log {display_name(self.options.log) if self.options.log else Path(self.options.home) / 'voda.db'}"
        yield f"lease {self.lease.key}, as {self.leadership.me}"
        if self.access.has_tokens:
            yield f"token {Path(self.options.access.folder or self.options.home) / 'admin.token'}"
        else:
            yield "no tokens: anybody who reaches the port may do anything"
        if warning := exposure_warning(self.options.listen.host, has_tls=False):
            yield warning

    def environment(self, spec: JobSpec) -> Mapping[str, str]:
        return {
            **spec.environment,
            "VODA_API_URL": self.options.api.url
            or f"http://voda.{self.context.namespace}.svc:{self.options.listen.port}",
            "VODA_JOB_TOKEN": self.access.job_token(spec.job_id),
        }

    # ---- what the leader does

    async def lead(self, epoch: int) -> None:
        """Decide and act until cancelled, or until the log is out of reach: then another replica may do better."""
        try:
            async with asyncio.timeout(_SYNC_S):
                await self.mirror.synced()
            await self.view.wait_for(await self.store.position())
        except (StoreUnavailable, StoreNotWritable, TimeoutError) as error:
            _log.warning("does not lead epoch=%d reason=%s", epoch, str(error) or "the cluster cannot be read")
            return
        async with asyncio.TaskGroup() as group:
            leading = group.create_task(self._lead(epoch))
            losing = group.create_task(self.log_liveness.lost())
            await asyncio.wait({leading, losing}, return_when=asyncio.FIRST_COMPLETED)
            if losing.done():
                _log.warning("leads no more epoch=%d reason=%s", epoch, losing.result())
            leading.cancel()
            losing.cancel()

    async def _lead(self, epoch: int) -> None:
        self.kubernetes.leader.begin()
        snapshots = Snapshots(self.store, self.view)
        async with asyncio.TaskGroup() as group:
            group.create_task(self.kubernetes.leader.run())
            group.create_task(self.pools.lead(self.leadership.me, epoch))
            group.create_task(self.registrar.run())
            group.create_task(self.registrar.keep_companions())
            group.create_task(self.reporter.run())
            group.create_task(snapshots.run())
            group.create_task(PodWatch(self.pod_scheduler).run())
            group.create_task(self.shares.lead())
            if self.options.metrics_folder:
                watcher = Watcher(store=self.store, clock=self.clock, actor="metrics")
                folder = Path(self.options.metrics_folder)
                group.create_task(ProgressCollector(folder, watcher=watcher, jobs=self.jobs.by_id).run())

    def see(self, event: Event) -> None:
        self.pools.see(event)
        if self.leadership.is_leading:
            log_event(event)
        for see in (self.reporter.see, self.registrar.see, self.pod_scheduler.see):
            with log_unexpected("following the log", str(event.position)):
                see(event)
        if isinstance(event.data, JobFact):
            self.kubernetes.leader.mark_job(event.data.job_id)

    # ---- inside

    async def _cluster_uid(self) -> str:
        """Return the uid of a namespace that lives as long as the cluster: it tells clusters apart."""
        found = await self.mirror.api.get(_OLDEST, PartialObject)
        return found.metadata.uid if found is not None else ""

    def _job_rules(self) -> JobRules:
        return JobRules(
            pools=self.pools,
            pool_label=self.options.cluster.pool_label,
            gpu_resource=self.options.cluster.gpu_resource,
            jobs_per_user=self.options.jobs_per_user,
            live_bytes_per_user=self.options.live_bytes_per_user,
            warnings=self._warnings,
            counted=self._counted,
            refuse_forbidden=self._submit_rights().refuse_forbidden,
            quota_shortage=quota_shortage,
        )

    def _submit_rights(self) -> SubmitRights:
        cluster = self.options.cluster
        return SubmitRights(
            api=self.mirror.api,
            kind_of=self.mirror.kind_of,
            own_namespace=self.context.own_namespace,
            user_prefix=cluster.user_prefix,
            unlabelled=cluster.pod_security,
        )

    def _backend(self, journal: Journal, submits: JobSubmitter) -> Backend:
        shares = self.shares
        outputs = KubernetesOutputs(self.mirror.api, pods=self.mirror.pods_of, has_ended=self.jobs.has_ended)
        return Backend(
            journal=journal,
            live=self.view.live,
            submits=submits,
            access=self.access,
            pools=self.pools,
            gpu_resource=self.options.cluster.gpu_resource,
            outputs=outputs,
            job_gpus=lambda node: job_gpus(self.kubernetes.inventory, node),
            pods=PodPorts(hived=Extender(self.pod_scheduler), shares=shares.extender, explanations=shares.explanations),
            what_ifs=self.what_ifs,
            not_ready=self.failure,
            health_warning=self._health_warning,
            telemetry=self.telemetry,
            exposition=self.telemetry.exposition,
        )

    def _pod_scheduler(self, api: Api) -> PodScheduler:
        leading = self.leadership
        return PodScheduler(
            store=self.store,
            clock=self.clock,
            view=self.view,
            pods=AnnotatedPods(api, self.kubernetes.inventory),
            not_leading=lambda: "" if leading.is_leading else leading.failure or "another one leads",
        )

    def _unadopted(self) -> Mapping[str, int]:
        # Whoever leads alone knows what was refused.
        if not self.leadership.is_leading:
            return {}
        return unadopted(self.mirror.jobs(), self.view.job_registry, self.reporter.states.refused)

    def _health_warning(self) -> str:
        live = self.view.cluster
        silent = [pool for pool in live.pools() if live.state(pool).is_mostly_silent]
        if silent:
            return (
                f"more than half of the nodes of {', '.join(silent)} are silent, or say fewer GPUs than their workers"
                " hold: what they share is believed ill, and no worker is moved for it"
            )
        return self.log_health.warning or self._clock_warning()

    def _clock_warning(self) -> str:
        there = self.mirror.api.server_time
        ahead_s = self.clock.now() - there if there is not None else 0.0
        if abs(ahead_s) <= _MOST_SKEW_S:
            return ""
        way = "ahead of" if ahead_s > 0 else "behind"
        return (
            f"the clock of this replica is {abs(ahead_s):.0f} s {way} that of the API server: times in the log and in"
            " Events are off by that; see that both machines keep time by NTP"
        )

    def _counted(self, parsed: ParsedManifest) -> ParsedManifest:
        if not self.mirror.is_synced:
            raise ClusterUnavailable("this replica is still reading the cluster: try again in a moment")
        filled = with_pod_defaults(parsed, self.mirror.defaults, self.options.cluster.gpu_resource)
        return with_claimed_gpus(filled, self.kubernetes.inventory.stock.devices)

    def _warnings(self, parsed: ParsedManifest) -> Sequence[FieldWarning]:
        refuse_elsewhere(parsed, self.options.cluster.namespaces, self.options.cluster.kinds)
        served = {name: kind.api_version for name, kind in self.mirror.kinds.items()}
        counts_claims = self.kubernetes.inventory.stock.devices.is_served
        return kubernetes_warnings(parsed, served, self.options.cluster.gpu_resource, counts_claims=counts_claims)

    def _setup(self) -> KubernetesSetup:
        cluster = self.options.cluster
        return KubernetesSetup(
            rule=self.options.pool_rule(),
            clock=self.clock,
            log=self.jobs,
            namespaces=cluster.namespaces,
            kinds=cluster.kinds,
            pools=tuple(self.options.pools),
            relist_s=cluster.relist_seconds,
            values=TemplateValues(tolerated_taints=cluster.tolerated_taints, environment=self.environment),
            settings=self.view.cluster.settings,
            telemetry=self.telemetry,
        )

    def _loop(self, pool: str) -> PoolLoop:
        return pool_loop(
            pool,
            self.kubernetes.cluster(pool),
            store=self.store,
            clock=self.clock,
            telemetry=self.telemetry,
            folded=self.view.live,
        )

    async def _settle(self, pool: str) -> None:
        """Record the settings that the settings file asks for and the log does not have."""
        requested, live = self.options.pool_settings(pool), self.view.cluster
        position = await record_settings(self.store, self.clock, live, pool, requested, {}, actor="serve")
        await self.view.wait_for(position)


def _lease(
    store: EventStore, api: Api, options: KubernetesOptions, context: ReplicaContext, clock: SystemClock
) -> LeaseStore:
    leader = options.leader
    if leader.election == "log":
        return lease_of(store, leader.name, clock=clock)
    return LeaseClient(api, leader.namespace or context.namespace, leader.name, clock=clock)


def _access(options: KubernetesOptions, context: ReplicaContext, clock: SystemClock) -> Authenticator:
    if not context.has_tokens:
        return Authenticator.none()
    folder = options.access.folder
    return Authenticator.mounted(Path(folder), clock) if folder else Authenticator.open(Path(options.home), clock)


def log_event(event: Event) -> None:
    """Write an event to the leader's own log, in the words of `voda events`; progress reports of jobs are DEBUG."""
    level = logging.DEBUG if isinstance(event.data, JobProgressed) else logging.INFO
    if _log.isEnabledFor(level):
        # In one line, whatever text of users is in it.
        what = " ".join(describe(event).split())
        _log.log(level, "%s position=%d about=%s: %s", event.type, event.position, subject_of(event), what)
