"""What others do to the nodes and workers of jobs: kube-scheduler preempts, an administrator drains and relabels."""

from pathlib import Path

from tests.e2e.kubernetes.service import AT_ONCE, voda
from tests.kube import client as api
from tests.kube.client import Resource
from tests.kube.objects import POOL, a_pod, an_mpijob
from tests.kube.world import World
from voda.events.types import WorkerStarted

PRIORITY_CLASSES = Resource("PriorityClass", "scheduling.k8s.io/v1", "priorityclasses", is_namespaced=False)


async def test_worker_when_preempted_by_kube_scheduler_does_not_take_the_room_back(
    world: World, tmp_path: Path
) -> None:
    await world.add_node("gpu-1", gpus=2)
    if await world.client.find(PRIORITY_CLASSES, "urgent") is None:
        await world.client.create(PRIORITY_CLASSES, {"metadata": {"name": "urgent"}, "value": 1000})
    async with voda(world, tmp_path) as it:
        await world.submit(an_mpijob("a", world.namespace, least=1, most=2))
        await it.until_runs("a", 2)
        urgent = a_pod("urgent", world.namespace, gpus=1, spec={"priorityClassName": "urgent"})
        await world.client.create(api.PODS, urgent)
        await world.until_it_is(lambda: _runs(world, "urgent"))
        await it.until_runs("a", 1)
        starts = [fact.workers for fact in await it.facts(WorkerStarted, it.id("a"))]
        assert sum(len(workers) for workers in starts) <= 3
        await world.client.delete(api.PODS, "urgent", world.namespace)
        await it.until_runs("a", 2)


async def test_node_when_drained_is_left_for_good(world: World, tmp_path: Path) -> None:
    await world.add_node("gpu-1", gpus=2)
    async with voda(world, tmp_path) as it:
        await world.submit(an_mpijob("a", world.namespace, least=1, most=2))
        await it.until_runs("a", 2)
        await world.cordon("gpu-1")
        for worker in await world.running_workers("a"):
            await world.request_eviction(worker)
        await world.until(lambda: not it.nodes(it.id("a")))
        await world.add_node("gpu-2", gpus=1)
        await it.until_runs("a", 1)
        assert it.nodes(it.id("a")) == ["gpu-2"]
        await world.cordon("gpu-1", is_cordoned=False)
        await it.until_runs("a", 2)


async def test_node_when_relabelled_goes_to_the_other_pool_once_its_workers_have_left(
    world: World, tmp_path: Path
) -> None:
    await world.add_node("gpu-1", gpus=2)
    await world.add_node("gpu-2", gpus=2)
    async with voda(world, tmp_path, pools={"v100": dict(AT_ONCE), "a100": dict(AT_ONCE)}) as it:
        await world.submit(an_mpijob("a", world.namespace, least=1, most=4, pool="v100"))
        await it.until_runs("a", 4)
        await world.client.patch(api.NODES, "gpu-1", {"metadata": {"labels": {POOL: "a100"}}})
        await world.submit(an_mpijob("b", world.namespace, least=2, most=2, pool="a100"))
        await it.until_runs("b", 2)
        assert it.nodes(it.id("b")) == ["gpu-1"] * 2
        # Two that its operator is about to take away may run until the two have come that are to stay.
        await world.until(lambda: it.nodes(it.id("a")) == ["gpu-2"] * 2)
        await it.until_runs("a", 2)


async def _runs(world: World, pod: str) -> bool:
    found = await world.client.find(api.PODS, pod, world.namespace)
    return found is not None and found["status"].get("phase") == "Running"
