"""The claims of the Cluster port, of the adapters that need nothing but this machine.

KubernetesCluster is held to them twice: here on a cluster in memory, in tests/integration/kubernetes on a real one.
"""

import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.builders import a_node, a_spec
from tests.contract.cluster_claims import ActingCluster, Bench, ClusterClaims
from tests.kube.cluster_bench import a_kubernetes_bench
from tests.kube.memory_api import MemoryApi
from tests.kube.memory_world import MemoryWorld
from tests.kube.operators.mpi_v2 import MpiOperatorV2
from tests.local_jobs import FOREVER, Ground, a_ground, a_torch_job
from tests.pool_loops import LoopClock
from tests.waiting import until, until_it_is
from voda.clock import VirtualClock
from voda.cluster.port import Notice
from voda.domain.errors import ActionRefused
from voda.events.types import Observation
from voda.simulator.cluster import SimulatedCluster
from voda.simulator.workload import Costs


class OneEpoch:
    """One epoch of 100 s on one worker."""

    epochs = 1
    costs = Costs()

    def epoch_s(self, epoch: int, per_node: tuple[int, ...]) -> float:
        return 100 / sum(per_node)


class PromptBench:
    """Of clusters that do at once, or refuse, what they are asked for."""

    cluster: ActingCluster
    is_patient = False

    def watch(self) -> AsyncIterator[Notice]:
        return self.cluster.watch()

    def refusing(self, match: str) -> AbstractContextManager[object]:
        return pytest.raises(ActionRefused, match=match)

    async def rest(self) -> None:
        return

    async def until_it_is(self, holds: Callable[[], Awaitable[bool]]) -> None:
        await until_it_is(holds)


class SimulatedBench(PromptBench):
    """On virtual time: whatever happens has happened at once."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.simulated = SimulatedCluster([a_node("n1")], now=self.clock.now)
        self.cluster = self.simulated
        self._told: list[Observation] = []
        for job_id in "ab":
            self.simulated.admit(a_spec(job_id, max_replicas=4), OneEpoch())

    def notices(self) -> Sequence[Observation]:
        self._told += self.simulated.take_notices()
        return self._told

    def finish(self, job_id: str) -> None:
        self.clock.move_to(self.simulated.next_at())
        self.simulated.advance(self.clock.now())

    async def fail_worker(self, job_id: str, index: int) -> None:
        self.simulated.fail_worker(job_id, index)


class LocalBench(PromptBench):
    """Real processes, which take their time."""

    def __init__(self, ground: Ground) -> None:
        self.ground = ground
        self.cluster = ground.cluster
        self._end = ground.folder / "end"
        script = f"echo $$$$; until [ -e {self._end} ]; do sleep 0.02; done"
        for job_id in "ab":
            ground.admit(a_torch_job(job_id, script if job_id == "a" else FOREVER, min_replicas=1))

    def notices(self) -> Sequence[Observation]:
        return self.ground.notices()

    def finish(self, job_id: str) -> None:
        self._end.touch()

    async def fail_worker(self, job_id: str, index: int) -> None:
        await until(lambda: self.ground.log(job_id, f"worker-{index}").endswith("\n"))
        os.kill(int(self.ground.log(job_id, f"worker-{index}")), signal.SIGKILL)


class TestSimulatedCluster(ClusterClaims):
    """The claims, of the simulator's."""

    @pytest.fixture
    async def bench(self) -> Bench:
        return SimulatedBench()


class TestLocalCluster(ClusterClaims):
    """The claims, of this machine's."""

    @pytest.fixture
    async def bench(self, tmp_path: Path) -> AsyncIterator[Bench]:
        async with a_ground(tmp_path) as ground:
            yield LocalBench(ground)


@pytest.mark.virtual_time
class TestKubernetesCluster(ClusterClaims):
    """The claims, of Kubernetes'."""

    @pytest.fixture
    async def bench(self) -> AsyncIterator[Bench]:
        async with (
            MemoryWorld(0, [MpiOperatorV2]) as world,
            a_kubernetes_bench(world, MemoryApi(world.server), LoopClock()) as bench,
        ):
            yield bench
