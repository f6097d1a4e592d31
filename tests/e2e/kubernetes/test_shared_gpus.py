"""Pods that share GPUs, placed by the real kube-scheduler, whose extender voda is.

Rule: kube-scheduler is set up as docs/migrating-from-elastic-gpu-scheduler.md says, with a token of the role scheduler.
"""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.kubernetes.replica import Replica
from tests.e2e.kubernetes.service import Voda, voda
from tests.kube import client as api
from tests.kube import deployed
from tests.kube.client import Object
from tests.kube.operators.base import phase_of
from tests.kube.peers.cluster import PeeredCluster
from tests.kube.peers.jobs_world import JobsWorld
from tests.kube.sharing import a_gpu_node, a_sharing_pod, gpus_of, scheduler_configuration
from tests.ports import free_port
from voda.auth.tokens import Authenticator
from voda.clock import SystemClock
from voda.cluster.kubernetes.state.shared_gpus import GPUS_OF
from voda.domain.reasons.pods import BoundAgain, PodEnded
from voda.events.types import ShareAssigned, ShareReleased
from voda.log.factory import open_log

_MORTAL = str(Path(__file__).with_name("mortal.py"))
ANY = "default-scheduler"


@pytest.fixture
def port(jobs_cluster: PeeredCluster, tmp_path: Path) -> Iterator[int]:
    """The port of voda, whose clients kube-scheduler is one of, with a token that is made here."""
    port = free_port()
    home = tmp_path / "home"
    home.mkdir()
    token = Authenticator.open(home, SystemClock()).add("kube-scheduler", "scheduler")
    plane = jobs_cluster.plane
    plane.stop("kube-scheduler")
    text = scheduler_configuration(f"http://kube-scheduler:{token}@127.0.0.1:{port}/scheduler", plane.kubeconfig())
    config = tmp_path / "scheduler.yaml"
    config.write_text(text)
    plane.start_scheduler(f"--config={config}")
    yield port
    plane.stop("kube-scheduler")
    plane.start_scheduler()


@asynccontextmanager
async def sharing_voda(world: JobsWorld, folder: Path, port: int, rater: str = "binpack") -> AsyncIterator[Voda]:
    settings: dict[str, Any] = {"sharing": {"enabled": True, "rater": rater}}
    settings["listen"] = {"host": "127.0.0.1", "port": port}
    async with voda(world, folder / "home", has_tokens=True, **settings) as it:
        yield it


async def submit(world: JobsWorld, name: str, core: int = 50, memory: int = 0, **changes: Any) -> None:
    await world.client.create(api.PODS, a_sharing_pod(name, world.namespace, core, memory, scheduler=ANY, **changes))


async def pod(world: JobsWorld, name: str) -> Object:
    return await world.client.get(api.PODS, name, world.namespace)


async def until_runs(world: JobsWorld, name: str) -> tuple[str, str]:
    """Wait until a pod runs, and return its node and its GPUs."""

    async def runs() -> bool:
        return phase_of(await pod(world, name)) == "Running"

    await world.until_it_is(runs, what=f"pod {name} runs")
    found = await pod(world, name)
    return found["spec"]["nodeName"], ";".join(gpus_of(found).values())


async def until_told(world: JobsWorld, name: str, sentence: str) -> None:
    """Wait until kube-scheduler says of a pod that it is unschedulable for that reason."""

    async def is_told() -> bool:
        conditions = (await pod(world, name))["status"].get("conditions", ())
        return any(sentence in each.get("message", "") for each in conditions)

    await world.until_it_is(is_told, what=f"pod {name}: {sentence}")


def recorded(it: Voda) -> set[str]:
    nodes = it.service.view.cluster.shares.nodes.values()
    return {each.pod.partition("/")[2] for node in nodes for each in node.pods.values()}


async def test_two_pods_share_a_gpu_a_third_waits_and_a_restart_loses_nothing(
    jobs_world: JobsWorld, port: int, tmp_path: Path
) -> None:
    world = jobs_world
    await world.add_nodes(a_gpu_node("gpu-1", 2))
    async with sharing_voda(world, tmp_path, port) as it:
        await submit(world, "a", 60, 4_000)
        assert await until_runs(world, "a") == ("gpu-1", "0")
        await submit(world, "b", 40, 4_000)
        assert await until_runs(world, "b") == ("gpu-1", "0")
        # kube-scheduler alone would bind it: 100 of 200 are free, and 90 of two GPUs are not one.
        await submit(world, "c", 70)
        assert await until_runs(world, "c") == ("gpu-1", "1")
        await submit(world, "d", 30, 13_000)
        assert await until_runs(world, "d") == ("gpu-1", "1")
        await world.kubelet.exit(world.namespace, "b")
        await world.until(lambda: recorded(it) == {"a", "c", "d"})
        await submit(world, "e", 30, 13_000)
        await until_told(world, "e", "too little is left of the node's GPUs for main (gpu-core 30, gpu-memory 13000)")
    async with sharing_voda(world, tmp_path, port) as it:
        assert recorded(it) == {"a", "c", "d"}
        await world.kubelet.exit(world.namespace, "d")
        assert await until_runs(world, "e") == ("gpu-1", "1")
        assert {each.reason for each in await it.facts(ShareReleased)} <= {PodEnded(), BoundAgain()}
        assert len({each.pod_uid for each in await it.facts(ShareAssigned)}) == 5


@pytest.mark.parametrize(("rater", "nodes"), [("binpack", 1), ("spread", 2)])
async def test_rater_packs_or_spreads_over_nodes(
    jobs_world: JobsWorld, port: int, tmp_path: Path, rater: str, nodes: int
) -> None:
    world = jobs_world
    await world.add_nodes(a_gpu_node("gpu-1", 2), a_gpu_node("gpu-2", 2))
    async with sharing_voda(world, tmp_path, port, rater):
        found = []
        for name in "ab":
            await submit(world, name, 50)
            found.append(await until_runs(world, name))
        assert len({node for node, _ in found}) == nodes


async def test_pods_that_can_never_be_are_refused_in_a_sentence(
    jobs_world: JobsWorld, port: int, tmp_path: Path
) -> None:
    world = jobs_world
    await world.add_nodes(a_gpu_node("gpu-1", 2))
    async with sharing_voda(world, tmp_path, port):
        await submit(world, "a", 150)
        await until_told(world, "a", "gpu-core is 150, expected less than 100 or a multiple of it")
        await submit(world, "b", 30, 16_001)
        await until_told(
            world, "b", "the node's GPUs are too few or too small for main (gpu-core 30, gpu-memory 16001)"
        )


async def test_pod_of_higher_priority_preempts_the_pod_whose_gpu_it_needs(
    jobs_world: JobsWorld, port: int, tmp_path: Path
) -> None:
    world = jobs_world
    await world.add_nodes(a_gpu_node("gpu-1", 2))
    kind = api.Resource("PriorityClass", "scheduling.k8s.io/v1", "priorityclasses", is_namespaced=False)
    for name, value in (("low", 1), ("high", 1_000)):
        body = {"metadata": {"name": f"{name}-{world.namespace}"}, "value": value}
        await world.client.create(kind, body)
    async with sharing_voda(world, tmp_path, port):
        for name in "ab":
            await submit(world, name, 80, spec={"priorityClassName": f"low-{world.namespace}"})
            await until_runs(world, name)
        await submit(world, "c", 100, spec={"priorityClassName": f"high-{world.namespace}"})
        await until_runs(world, "c")


POINTS = [
    f"{when} {step} 1"
    for step in ("append share.assigned", "patch pods", "create pods/binding")
    for when in ("before", "after")
]


@pytest.mark.parametrize("point", POINTS)
async def test_voda_when_it_is_killed_at_any_write_of_a_binding_loses_and_leaks_nothing(
    jobs_world: JobsWorld, port: int, tmp_path: Path, point: str
) -> None:
    world = jobs_world
    await world.add_nodes(a_gpu_node("gpu-1", 1))
    home, log = tmp_path / "home", tmp_path / "home" / "voda.db"
    settings = {
        "sharing": {"enabled": True, "rater": "binpack"},
        "listen": {"host": "127.0.0.1", "port": port},
        "leader": {"namespace": deployed.NAMESPACE, "leaseSeconds": 2.0, "renewSeconds": 1.5, "retrySeconds": 0.2},
    }
    # With the rights that the chart gives, and no other.
    kubeconfig = deployed.service_account_kubeconfig(world.plane, "sqlite", "--set", "extender.enabled=true")
    around: dict[str, Any] = {"settings": settings, "kubeconfig": kubeconfig}
    first = Replica(world, home, str(log), program=(_MORTAL,), environment={"MORTAL": point}, **around)
    # What another scheduler left behind has to be taken out first: that is a patch.
    await submit(world, "a", 60, annotations={f"{GPUS_OF}gone": "3"} if "patch" in point else {})
    await world.until(lambda: first.process.poll() is not None, what="the first replica is dead")
    second = Replica(world, home, str(log), **around)
    try:
        assert await until_runs(world, "a") == ("gpu-1", "0")
        await submit(world, "b", 40)
        assert await until_runs(world, "b") == ("gpu-1", "0")
        await submit(world, "c", 60)
        await until_told(world, "c", "Insufficient elasticgpu.io/gpu-core")
        await world.kubelet.exit(world.namespace, "a")
        assert await until_runs(world, "c") == ("gpu-1", "0")
    finally:
        second.terminate()
        second.process.wait(30)
    store = await open_log(log)
    try:
        events = await store.read(0, 10_000, stream="shares.gpu-1")
    finally:
        await store.close()
    balance = [1 if isinstance(event.data, ShareAssigned) else -1 for event in events]
    assert sum(balance) == 2
