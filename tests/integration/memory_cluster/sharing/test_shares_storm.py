"""Shares in a storm: requests that are lost, replicas that are killed in the midst of a bind, pods that come and go.

Rule: no GPU ever gives more than it has, and once it is calm, the log has exactly the pods that are bound.
"""

import asyncio
from contextlib import suppress
from random import Random

import pytest

from tests.kube.client import PODS, Object, Refused
from tests.kube.memory_api import Wire
from tests.kube.memory_world import MemoryWorld, Replica
from tests.kube.operators.mpi_v2 import MpiOperatorV2
from tests.kube.sharing import GpuBreaches, HandScheduler, a_gpu_node, a_sharing_pod, gpus_of
from tests.virtual_time import virtually
from voda.domain.rng import rng_at

SHARING = {"enabled": True, "rater": "binpack"}
STEPS = 60


class Storm:
    """One history, drawn from a seed."""

    def __init__(self, world: MemoryWorld, seed: int) -> None:
        self.world = world
        self.chance: Random = rng_at(seed, "storm")
        self.scheduler = HandScheduler(world.client)
        self.replicas: list[Replica] = []
        self.binds = set[asyncio.Task[str]]()
        self._pods = 0

    async def step(self) -> None:
        """Do one thing."""
        [work] = self.chance.choices([self.add, self.place, self.delete, self.exit, self.crash], [4, 8, 2, 2, 1])
        with suppress(Refused, AssertionError):
            await work()
        await asyncio.sleep(self.chance.choice([0.0, 0.05, 0.5, 5.0]))

    async def add(self) -> None:
        """Create a pod."""
        self._pods += 1
        core, memory = self.chance.choice([(30, 0), (50, 4_000), (70, 12_000), (100, 0), (200, 0)])
        await self.world.client.create(PODS, a_sharing_pod(f"p{self._pods}", "ns", core, memory))

    async def place(self) -> None:
        """Have some pod placed that is not bound, by any replica, and do not wait for it."""
        if waiting := [pod for pod in self.pods() if not pod["spec"].get("nodeName")]:
            extender = self.chance.choice(self.replicas).service.backend.pods.shares
            assert extender is not None
            node = self.chance.choice(["", "", "n0", "n1"])
            task = asyncio.create_task(self.scheduler.place(extender, self.chance.choice(waiting), node=node))
            self.binds.add(task)

    async def delete(self) -> None:
        """Delete some pod."""
        if pods := self.pods():
            name = self.chance.choice(pods)["metadata"]["name"]
            await self.world.client.delete(PODS, name, "ns", grace_s=self.chance.choice([0, 30]))

    async def exit(self) -> None:
        """End the program of some pod."""
        if pods := self.pods():
            await self.world.kubelet.exit("ns", self.chance.choice(pods)["metadata"]["name"])

    async def crash(self) -> None:
        """Kill a replica, with what it was doing, and start another one."""
        await self.replicas.pop(self.chance.randrange(len(self.replicas))).kill()
        await self.start()

    async def start(self) -> None:
        """Start a replica."""
        wire = Wire(self.chance.randrange(1_000), longest_s=0.05, loses=0.05)
        replica = self.world.replica(wire, sharing=SHARING)
        await replica.__aenter__()
        self.replicas.append(replica)

    def pods(self) -> list[Object]:
        """Return the pods that are there."""
        return [pod for key, pod in sorted(self.world.server.objects[PODS].items()) if key[0] == "ns"]

    def is_settled(self) -> bool:
        """Say whether the log has the pods that hold GPUs, on their nodes, with the GPUs that they name."""
        held = {
            pod["metadata"]["uid"]: (pod["spec"]["nodeName"], dict(gpus_of(pod)))
            for pod in self.pods()
            if pod["spec"].get("nodeName") and pod["status"]["phase"] not in ("Succeeded", "Failed")
        }
        nodes = self.replicas[0].service.view.cluster.shares.nodes
        recorded = {
            uid: (name, {each: ",".join(map(str, share.gpus)) for each, share in shares.containers.items()})
            for name, node in nodes.items()
            for uid, shares in node.pods.items()
        }
        return held == recorded


async def live_through(seed: int) -> int:
    async with MemoryWorld(seed, (MpiOperatorV2,), Wire(seed, longest_s=0.02)) as world:
        breaches = GpuBreaches(world.server)
        world.server.on_change = breaches.see
        await world.add_nodes(*(a_gpu_node(f"n{number}", 2) for number in range(2)))
        storm = Storm(world, seed)
        for _ in range(2):
            await storm.start()
        try:
            await asyncio.sleep(60)
            for _ in range(STEPS):
                await storm.step()
                assert breaches.found == []
            for replica in storm.replicas:
                replica.wire.loses = 0.0
            await asyncio.gather(*storm.binds, return_exceptions=True)
            await world.until(storm.is_settled)
            assert breaches.found == []
            return sum(not task.cancelled() and task.exception() is None and not task.result() for task in storm.binds)
        finally:
            for replica in storm.replicas:
                await replica.stop()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_shares_in_a_storm_are_never_too_much_and_none_is_lost_or_left_over(
    seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    assert virtually(live_through(seed)) > 0
    assert [each.getMessage() for each in caplog.records if each.levelname == "ERROR"] == []
