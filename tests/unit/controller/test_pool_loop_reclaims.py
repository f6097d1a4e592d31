"""A job that never leaves by itself: the whole loop takes cells back for a guarantee when the deadline is over."""

import asyncio

from tests.builders import a_node, a_spec
from tests.leases import ended
from tests.pool_loops import LogStage, LoopClock
from tests.unit.planner.virtual_clusters.pools import some_cells
from tests.virtual_time import virtually
from voda.domain.plan import Action, HaltJob, ResizeJob
from voda.domain.state import linear_speedup
from voda.events.types import JobSubmitted, SettingsChanged, VirtualClustersApplied
from voda.log.memory import MemoryStore
from voda.simulator.cluster import SimulatedCluster
from voda.simulator.workload import SpeedupProfile

GRACE_S = 60.0
PROFILE = SpeedupProfile(epochs=1, work_s=1e9, speedup=linear_speedup(8))


class StubbornCluster(SimulatedCluster):
    """Its job `elastic` grows, and leaves only when it is killed."""

    async def apply(self, action: Action) -> None:
        is_less = isinstance(action, ResizeJob) and len(action.nodes) < len(self.workers().get(action.job_id, ()))
        is_asked = is_less or (isinstance(action, HaltJob) and not action.is_kill)
        if action.job_id != "elastic" or not is_asked:
            await super().apply(action)


class Stage(LogStage):
    """A pool of two nodes, one for each of two virtual clusters."""

    def __init__(self) -> None:
        self.clock, self.store = LoopClock(), MemoryStore()
        self.cluster = StubbornCluster([a_node("n1"), a_node("n2")], now=self.clock.now)
        self.loop = self.a_loop(self.cluster)

    async def submit(self, job_id: str, cluster: str, **fields: int) -> None:
        spec = a_spec(job_id, virtual_cluster=cluster, **fields)
        self.cluster.admit(spec, PROFILE)
        await self.add(JobSubmitted(spec=spec))

    def sizes(self) -> dict[str, int]:
        return {job_id: len(workers) for job_id, workers in self.cluster.workers().items() if workers}

    async def run(self) -> None:
        """Lead the pool, and let it see every event."""
        position = 0
        async with asyncio.TaskGroup() as group:
            group.create_task(self.loop.run("me"))
            while True:
                for event in await self.store.read(position, 100):
                    self.loop.see(event)
                    position = event.position
                await asyncio.sleep(0.1)


def test_reclaim_when_a_job_never_leaves_kills_it_at_the_deadline_and_starts_both() -> None:
    async def play() -> None:
        stage = Stage()
        await stage.add(SettingsChanged(pool="default", settings={"ratelimit_s": 0.0}))
        await stage.add(SettingsChanged(pool="default", settings={"reclaim_grace_s": GRACE_S}))
        cells = some_cells({"vision": {"node": 1}, "speech": {"node": 1}})
        await stage.add(VirtualClustersApplied(pool="default", cells=cells))
        leading = asyncio.get_running_loop().create_task(stage.run())
        await asyncio.sleep(1.0)
        await stage.submit("elastic", "vision", min_replicas=2, max_replicas=8)
        await asyncio.sleep(1.0)
        assert stage.sizes() == {"elastic": 8}
        await stage.submit("gang", "speech", min_replicas=4, max_replicas=4)
        await asyncio.sleep(GRACE_S - 1.0)
        assert stage.sizes() == {"elastic": 8}
        await asyncio.sleep(3.0)
        assert stage.sizes() == {"elastic": 4, "gang": 4}
        await ended(leading)

    virtually(play())
