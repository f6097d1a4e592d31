"""KubernetesCluster as the contract of all clusters has it: one node, two jobs, and a log that hears what is told.

Rule: of the service there is nothing but the site; what it asks of the log is answered by projections of it.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial

from tests.builders import Log, a_spec
from tests.contract.cluster_claims import POOL, Quiet
from tests.kube.objects import an_mpijob
from tests.kube.world import World
from voda.clock import SystemClock
from voda.cluster.kubernetes.client.api import Api
from voda.cluster.kubernetes.kinds.base import Site
from voda.cluster.kubernetes.pools import KubernetesSite, Setup
from voda.cluster.kubernetes.resources.objects import JobObject
from voda.cluster.kubernetes.state.nodes import PoolRule
from voda.cluster.kubernetes.state.paths import collection
from voda.cluster.port import Cluster, Notice
from voda.domain.job import Job
from voda.events.types import AnyFact, JobRegistered, JobSubmitted
from voda.projections.job_registry import Roster
from voda.projections.live import Live


class KubernetesBench:
    """A Bench; see tests/contract/cluster_claims.py."""

    is_patient = True

    def __init__(self, world: World, api: Api) -> None:
        self.world = world
        self._log, self._live, self._roster = Log(), Live(), Roster()
        self._clock = SystemClock()
        self._told: list[Notice] = []
        self._has_told = asyncio.Event()
        setup = Setup(
            rule=PoolRule(),
            clock=self._clock,
            job=self._job,
            past=self._past,
            jobs=lambda: self._live.cluster.jobs(POOL).values(),
            job_pools=lambda: [POOL],
        )
        self.site = KubernetesSite(api, setup)
        self.cluster: Cluster = self.site.cluster(POOL)

    async def prepare(self) -> None:
        """Make node and jobs known, and begin to act; to be called once the site runs."""
        await self.world.add_node("n1", gpus=4, pool=POOL)
        await self.site.synced()
        for job_id in "ab":
            manifest = an_mpijob(job_id, self.world.namespace, pool=POOL)
            fields = {"name": job_id, "namespace": self.world.namespace, "pool": POOL, "manifest": manifest}
            spec = a_spec(job_id, max_replicas=4, **fields)
            kind = self.site.kinds["MPIJob"]
            body = kind.created(spec, Site(), {})
            made = await self.site.api.create(collection(kind, self.world.namespace), body, JobObject)
            self._happens(JobSubmitted(spec=spec))
            self._happens(JobRegistered(job_id=job_id, uid=made.metadata.uid, kind="MPIJob"))
        await self.world.until(lambda: len(list(self.site.jobs())) == 2 and "n1" in self.site.inventory.stock.nodes)
        self.site.begin()

    async def listen(self) -> None:
        """Write down what the cluster tells, for ever."""
        async for notice in self.cluster.watch():
            self._told.append(notice)
            self._happens(notice)
            self._has_told.set()

    def notices(self) -> Sequence[Notice]:
        """See Bench."""
        return self._told

    async def watch(self) -> AsyncIterator[Notice]:
        """See Bench."""
        place = 0
        while True:
            while place < len(self._told):
                yield self._told[place]
                place += 1
            self._has_told.clear()
            await self._has_told.wait()

    def finish(self, job_id: str) -> None:
        """See Bench."""
        self._ending = asyncio.ensure_future(self.world.end_launcher(job_id))

    async def fail_worker(self, job_id: str, index: int) -> None:
        """See Bench."""
        name = f"{job_id}-worker-{index}"

        async def runs() -> bool:
            return name in await self.world.running_workers(job_id)

        await self.world.until_it_is(runs)
        await self.world.kubelet.exit(self.world.namespace, name, 3)

    @contextmanager
    def refusing(self, match: str) -> Iterator[None]:
        """See Bench: what cannot be done now is done once it can."""
        yield

    async def rest(self) -> None:
        """See Bench: wait until nothing has changed for a while."""
        quiet = Quiet()
        await self.world.until_it_is(partial(self._is_quiet, quiet))

    async def _is_quiet(self, quiet: Quiet) -> bool:
        pods = [pod["metadata"]["resourceVersion"] for name in "ab" for pod in await self.world.pods_of(name)]
        objects = [job.metadata.resource_version for _, job in self.site.jobs()]
        return quiet.holds((pods, objects, len(self._told), self.site.inventory.dirty_jobs.copy()))

    def _job(self, job_id: str) -> Job | None:
        return self._live.cluster.jobs(POOL).get(job_id)

    def _past(self, job_id: str) -> Job | None:
        record = self._roster.job(job_id)
        return record.job if record is not None and not record.is_live else None

    def _happens(self, data: AnyFact) -> None:
        event = self._log.add(data, at=self._clock.now())
        self._live.apply(event)
        self._roster.apply(event)
        if (job_id := getattr(data, "job_id", "")) and not isinstance(data, JobSubmitted):
            self.site.mark_job(job_id)


@asynccontextmanager
async def a_kubernetes_bench(world: World, api: Api) -> AsyncIterator[KubernetesBench]:
    """Run the cluster of a pool on a world."""
    bench = KubernetesBench(world, api)
    running = [asyncio.create_task(work) for work in (bench.site.run(), bench.listen())]
    try:
        await bench.prepare()
        running.append(asyncio.create_task(bench.site.work()))
        yield bench
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        await api.close()
