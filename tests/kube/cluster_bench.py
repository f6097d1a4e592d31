"""KubernetesCluster as the contract of all clusters has it: one node, two jobs, and a log that hears what is told.

Rule: of the service there is nothing but its pools; what it asks of the log is answered by projections of it.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial

from tests.builders import Log, a_spec
from tests.contract.cluster_claims import POOL, ActingCluster, Quiet
from tests.kube.objects import an_mpijob
from tests.kube.world import World
from voda.clock import Clock, SystemClock
from voda.cluster.kubernetes.kinds.template import GPU_TAINTS
from voda.cluster.kubernetes.objects import JobObject
from voda.cluster.kubernetes.pools import KubernetesPools
from voda.cluster.kubernetes.setup import KubernetesSetup
from voda.cluster.kubernetes.state.nodes import PoolRule
from voda.cluster.port import Notice
from voda.domain.job import Job
from voda.domain.reasons.stalls import StallReason
from voda.events.envelope import Event
from voda.events.types import AnyFact, JobRegistered, JobSubmitted
from voda.kubernetes_client.api import Api
from voda.projections.jobs.registry import JobRegistry
from voda.projections.live import Live


class KnownJobs:
    """A log with some live jobs; see JobLog."""

    def __init__(self, *jobs: Job) -> None:
        self.live = {job.spec.job_id: job for job in jobs}

    def live_job(self, job_id: str) -> Job | None:
        """See JobLog."""
        return self.live.get(job_id)

    def ended_job(self, job_id: str) -> Job | None:
        """See JobLog."""
        return None

    def adopted_job(self, uid: str) -> str | None:
        """See JobLog."""
        return next((job_id for job_id, job in self.live.items() if job.uid == uid), None)

    def live_jobs(self) -> Iterable[Job]:
        """See JobLog."""
        return self.live.values()

    def job_pools(self) -> Iterable[str]:
        """See JobLog."""
        return {job.spec.pool for job in self.live_jobs()}

    def stall(self, job_id: str) -> StallReason | None:
        """See JobLog."""
        return None

    def launcher_node(self, job_id: str) -> str:
        """See JobLog."""
        return ""

    def is_mostly_silent(self, pool: str) -> bool:
        """See JobLog."""
        return False


class FoldedJobs(KnownJobs):
    """A log whose events are folded as they come."""

    def __init__(self) -> None:
        super().__init__()
        self._folded, self._job_registry = Live(), JobRegistry()

    def apply(self, event: Event) -> None:
        """Fold an event."""
        self._folded.apply(event)
        self._job_registry.apply(event)
        self.live = dict(self._folded.cluster.jobs(POOL))

    def ended_job(self, job_id: str) -> Job | None:
        """See JobLog."""
        record = self._job_registry.job(job_id)
        return record.job if record is not None and not record.is_live else None


class KubernetesBench:
    """A Bench; see tests/contract/cluster_claims.py."""

    is_patient = True

    def __init__(self, world: World, api: Api, clock: Clock) -> None:
        self.world = world
        self._log, self._jobs = Log(), FoldedJobs()
        self._clock = clock
        self._told: list[Notice] = []
        self._has_told = asyncio.Event()
        setup = KubernetesSetup(rule=PoolRule(), clock=self._clock, log=self._jobs)
        self.pools = KubernetesPools(api, setup)
        self.mirror, self.leader = self.pools.mirror, self.pools.leader
        self.cluster: ActingCluster = self.pools.cluster(POOL)

    async def prepare(self) -> None:
        """Make node and jobs known, and begin to act; to be called once the mirror runs."""
        await self.world.add_node("n1", gpus=4, pool=POOL)
        await self.world.until(lambda: self.mirror.is_synced, what="the mirror has listed the cluster")
        for job_id in "ab":
            manifest = an_mpijob(job_id, self.world.namespace, pool=POOL)
            fields = {"name": job_id, "namespace": self.world.namespace, "pool": POOL, "manifest": manifest}
            spec = a_spec(job_id, max_replicas=4, **fields)
            kind = self.mirror.kinds["MPIJob"]
            body = kind.new_object(spec, GPU_TAINTS, {})
            made = await self.mirror.api.create(kind.path(self.world.namespace), body, JobObject)
            self._happens(JobSubmitted(spec=spec))
            self._happens(JobRegistered(job_id=job_id, uid=made.metadata.uid, kind="MPIJob"))
        await self.world.until(self._is_mirrored, what="the mirror shows node n1 and jobs a and b, and nothing else")
        self.leader.begin()

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
        await self.until_it_is(partial(self._is_quiet, Quiet()))

    async def until_it_is(self, holds: Callable[[], Awaitable[bool]]) -> None:
        """See Bench: operators that stand still are started anew."""
        await self.world.until_it_is(holds)

    def _is_mirrored(self) -> bool:
        jobs = sorted(job.metadata.name for kind, job in self.mirror.jobs() if kind.name == "MPIJob")
        return jobs == ["a", "b"] and set(self.pools.inventory.stock.nodes) == {"n1"}

    async def _is_quiet(self, quiet: Quiet) -> bool:
        pods = [pod["metadata"]["resourceVersion"] for name in "ab" for pod in await self.world.pods_of(name)]
        objects = [job.metadata.resource_version for _, job in self.mirror.jobs()]
        return quiet.holds((pods, objects, len(self._told), self.pools.inventory.dirty_jobs.copy()))

    def _happens(self, data: AnyFact) -> None:
        self._jobs.apply(self._log.add(data, at=self._clock.now()))
        if (job_id := getattr(data, "job_id", "")) and not isinstance(data, JobSubmitted):
            self.leader.mark_job(job_id)


@asynccontextmanager
async def a_kubernetes_bench(world: World, api: Api, clock: Clock | None = None) -> AsyncIterator[KubernetesBench]:
    """Run the cluster of a pool on a world; the clock is that of its loop."""
    bench = KubernetesBench(world, api, clock or SystemClock())
    running = [asyncio.create_task(work) for work in (bench.mirror.run(), bench.listen())]
    try:
        await bench.prepare()
        running.append(asyncio.create_task(bench.leader.run()))
        yield bench
    finally:
        for task in running:
            task.cancel()
        ends = await asyncio.gather(*running, return_exceptions=True)
        await api.close()
        broken = [end for end in ends if not isinstance(end, asyncio.CancelledError)]
        assert not broken, f"the bench broke: {broken}"
