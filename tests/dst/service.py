"""One life of one replica: what `voda serve` is made of, over the world's log, Lease and cluster.

Rule: only wiring; whatever decides, records or acts is the product's own.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from aiohttp import web

from tests.dst.door import Door
from tests.dst.lease import LeaseConnection
from tests.dst.log import LogConnection
from tests.dst.loop import SeededLoop
from tests.dst.pods import PodConnection
from tests.dst.sight import ClusterConnection
from voda.api.admission import CallerLimits
from voda.api.backend import Backend
from voda.api.origin_check import LISTEN_HOST
from voda.api.server import application
from voda.app.election import ElectionTimeouts
from voda.app.kubernetes.log_liveness import LogLiveness
from voda.app.leadership import Leadership
from voda.app.pool_setup import pool_loop, record_settings
from voda.app.runtime import Snapshots
from voda.application.job_rules import JobRules
from voda.application.journal import Journal
from voda.application.read_model import ReadModel
from voda.application.submit_job import JobSubmitter
from voda.application.virtual_clusters.quota_size import quota_shortage
from voda.auth.tokens import Authenticator
from voda.clock import Clock
from voda.cluster.kubernetes.pod_binding import PodBinding
from voda.controller.leader_epochs import LeaderEpochs
from voda.controller.pool_loop import PoolLoop
from voda.domain.errors import StoreNotWritable, StoreUnavailable, TransientError
from voda.domain.job import JobSpec
from voda.events.envelope import Event
from voda.log.instrumented_store import InstrumentedStore
from voda.log.store import EventStore
from voda.operator.extender import Extender
from voda.operator.pod_ports import NO_PODS, PodPorts
from voda.operator.sharing.extender_loop import ExtenderLoop
from voda.operator.sharing.share_extender import ShareExtender
from voda.sharing.rating.gpu_chooser import GpuChooser
from voda.sharing.rating.raters import RATERS
from voda.telemetry.prometheus import PrometheusTelemetry

_LOOK_S: Final = 5.0
"""At shared GPUs; seldom, for a virtual hour is short."""
_SNAPSHOT_S: Final = 1_200.0
"""Far more often than in the product, so that restarts find one."""


class Service:
    """A replica's parts, wired."""

    def __init__(  # noqa: PLR0913 - its ports
        self,
        me: str,
        *,
        log: LogConnection,
        lease: LeaseConnection,
        clusters: Mapping[str, Callable[[Callable[[str], JobSpec | None]], ClusterConnection]],
        clock: Clock,
        telemetry: PrometheusTelemetry,
        terms: ElectionTimeouts,
        pods: PodConnection | None = None,
    ) -> None:
        self.me = me
        self.log = log
        self.lease = lease
        self.clock = clock
        self.store: EventStore = InstrumentedStore(log, appended=lambda outcome: self.reach.appended(outcome))
        self.reach = LogLiveness(self.store, tolerance_s=terms.renew_deadline_s)
        self.view = ReadModel(self.store)
        self.clusters = {pool: connect(self.spec) for pool, connect in clusters.items()}
        self.loops: Mapping[str, PoolLoop] = {
            pool: pool_loop(
                pool,
                cluster,
                store=self.store,
                clock=clock,
                telemetry=telemetry,
                folded=self.view.live,
            )
            for pool, cluster in self.clusters.items()
        }
        self.leadership = Leadership(lease, LeaderEpochs(self.store, clock), me, timings=terms)
        self.limits = CallerLimits()
        self.journal = Journal(store=self.store, clock=clock, view=self.view)
        pools = tuple(self.clusters)
        self.pods = pods
        self.extender_loop: ExtenderLoop | None = None
        self.backend = Backend(
            journal=self.journal,
            live=self.view.live,
            submits=JobSubmitter(self.journal, JobRules(pools=pools, quota_shortage=quota_shortage)),
            access=Authenticator.none(),
            pools=pools,
            limits=self.limits,
            pods=NO_PODS if pods is None else self._share_gpus(pods),
            telemetry=telemetry,
            exposition=telemetry.exposition,
        )
        self.door: Door | None = None

    def _share_gpus(self, pods: PodConnection) -> PodPorts:
        binding, rater = PodBinding(pods.api), RATERS["binpack"]
        self.extender_loop = ExtenderLoop(
            journal=self.journal, binding=binding, pods=pods.sight, rater=rater, look_s=_LOOK_S
        )
        shares = ShareExtender(
            journal=self.journal,
            binding=binding,
            pods=pods.sight,
            chooser=GpuChooser(rater),
            is_synced=lambda: True,
        )
        return PodPorts(shares=Extender(shares))

    def spec(self, job_id: str) -> JobSpec | None:
        """Return the spec of a live job, as the latest reader of the log has it."""
        for live in (*(loop.live for loop in self.loops.values()), self.view.live):
            if (job := live.cluster.job(job_id)) is not None:
                return job.spec
        return None

    def sever(self) -> None:
        """Cut it off from everything, for good."""
        self.log.sever()
        self.lease.sever()
        for cluster in self.clusters.values():
            cluster.sever()
        if self.pods is not None:
            self.pods.sever()
        if self.door is not None:
            self.door.shut()

    async def run(self) -> None:
        """Serve and campaign until cancelled, then end in order.

        Raises:
            StoreUnavailable: the log could not be read at the start.
        """
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SeededLoop), "the world's"
        await self.view.open()
        self.view.subscribe(self._see)
        app = application(self.backend)
        app[LISTEN_HOST] = "127.0.0.1"
        runner = web.AppRunner(app, shutdown_timeout=5.0)
        await runner.setup()
        try:
            self.door = Door(loop, runner, self.limits)
            async with asyncio.TaskGroup() as group:
                group.create_task(self.view.run())
                group.create_task(self._keep_snapshots())
                group.create_task(self.leadership.run(self._lead, self._follow))
        finally:
            await runner.cleanup()

    async def _keep_snapshots(self) -> None:
        snapshots = Snapshots(self.store, self.view)
        while True:
            await asyncio.sleep(_SNAPSHOT_S)
            await snapshots.take()

    async def _follow(self) -> None:
        async with asyncio.TaskGroup() as group:
            for loop in self.loops.values():
                group.create_task(loop.follow())

    async def _lead(self, epoch: int) -> None:
        """Decide and act until cancelled, or until the log is out of reach; as the service on Kubernetes does."""
        try:
            await self.view.wait_for(await self.store.position())
        except (StoreUnavailable, StoreNotWritable):
            return
        async with asyncio.TaskGroup() as group:
            leading = group.create_task(self._lead_pools(epoch))
            losing = group.create_task(self.reach.lost())
            await asyncio.wait({leading, losing}, return_when=asyncio.FIRST_COMPLETED)
            leading.cancel()
            losing.cancel()

    async def _lead_pools(self, epoch: int) -> None:
        async with asyncio.TaskGroup() as group:
            for pool in self.loops:
                group.create_task(self._lead_pool(pool, epoch))
            if self.extender_loop is not None:
                group.create_task(self.extender_loop.run())

    async def _lead_pool(self, pool: str, epoch: int) -> None:
        while True:
            try:
                live = self.view.cluster
                position = await record_settings(self.store, self.clock, live, pool, {}, {}, actor="serve")
                await self.view.wait_for(position)
            except (TransientError, StoreNotWritable):
                await asyncio.sleep(1.0)
            else:
                break
        await self.loops[pool].run(self.me, epoch)

    def _see(self, event: Event) -> None:
        for loop in self.loops.values():
            loop.see(event)
