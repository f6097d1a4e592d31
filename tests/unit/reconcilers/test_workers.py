"""The worker reconciler: what it hands over, and when it is to come again."""

import math
from collections.abc import Sequence

from msgspec.structs import replace

from tests.builders import a_job, a_node, a_spec, a_state
from voda.clock import VirtualClock
from voda.cluster.port import Observed
from voda.domain.errors import ActionRefused
from voda.domain.plan import Action, Placement, StartJob
from voda.domain.state import ClusterState, linear_speedup
from voda.reconcilers.workers import WorkerReconciler
from voda.simulator.cluster import SimulatedCluster
from voda.simulator.workload import SpeedupProfile

PROFILE = SpeedupProfile(epochs=1, work_s=1e6, speedup=linear_speedup(4))


class RetryingCluster(SimulatedCluster):
    """Starts nothing of job `a` for 8 s after its program failed, and refuses job `c`."""

    async def observe(self) -> Observed:
        return replace(await super().observe(), retries={"a": 1008.0} if self._now() < 1008 else {})

    async def apply(self, action: Action) -> None:
        if action.job_id == "c":
            raise ActionRefused("not today")
        await super().apply(action)


class Stage:
    """A reconciler before a node of four GPUs."""

    def __init__(self, cluster: type[SimulatedCluster] = RetryingCluster) -> None:
        self.clock = VirtualClock(1000.0)
        self.cluster = cluster([a_node("n1")], now=self.clock.now)
        for job_id in "abc":
            self.cluster.admit(a_spec(job_id, max_replicas=4), PROFILE)
        self.reconciler = WorkerReconciler(self.cluster)

    async def step(self, placement: Placement, *, jobs: Sequence[str] = "abc") -> None:
        async def current() -> ClusterState:
            live = [a_job(job_id, max_replicas=4) for job_id in jobs]
            return a_state(jobs=live, nodes=[a_node("n1")], placement=placement)

        await self.reconciler.step(current)

    def workers(self) -> dict[str, int]:
        return {job_id: len(indices) for job_id, indices in self.cluster.workers().items()}


async def test_step_when_a_job_waits_for_its_next_try_looks_again_then() -> None:
    stage = Stage()
    await stage.step({"a": ("n1",), "b": ("n1",)})
    assert (stage.workers(), stage.reconciler.resume_at) == ({"b": 1}, 1008.0)
    stage.clock.move_to(1008)
    await stage.step({"a": ("n1",), "b": ("n1",)})
    assert (stage.workers(), stage.reconciler.resume_at) == ({"a": 1, "b": 1}, math.inf)


async def test_step_when_an_action_failed_looks_again_when_the_cluster_asks_for_it() -> None:
    stage = Stage()
    await stage.step({"a": ("n1",), "c": ("n1",)})
    assert stage.reconciler.resume_at == 1001.0
    assert not stage.reconciler.is_settled
    await stage.step({}, jobs="a")
    assert stage.reconciler.resume_at == math.inf


async def test_job_that_is_started_by_a_successor_just_before_the_cluster_is_observed_is_not_stopped() -> None:
    log = ["b"]

    class Successor(SimulatedCluster):
        """Submits and starts job `a` while the reconciler under test is on its way to look."""

        async def observe(self) -> Observed:
            log.append("a")
            await super().apply(StartJob(job_id="a", nodes=("n1",)))
            return await super().observe()

    stage = Stage(Successor)

    async def current() -> ClusterState:
        return a_state(
            jobs=[a_job(job_id) for job_id in log], nodes=[a_node("n1")], placement=dict.fromkeys(log, ("n1",))
        )

    await stage.reconciler.step(current)
    assert set(stage.cluster.workers()) == {"a", "b"}
