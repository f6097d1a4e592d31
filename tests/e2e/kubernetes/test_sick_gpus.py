"""A GPU that is sick, by its kubelet's or its driver's word: the worker that has it moves, and no other."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.kubernetes.service import AT_ONCE, Voda, voda
from tests.e2e.kubernetes.test_device_claims import CLUSTER, a_job, device_of, publish
from tests.kube import client as api
from tests.kube.assets import IS_OLD
from tests.kube.client import Object
from tests.kube.devices import a_claim_template, a_device, a_slice
from tests.kube.objects import a_node, an_indexed_job
from tests.kube.peers.jobs_world import JobsWorld
from voda.cluster.kubernetes import leader_loop
from voda.events.types import WorkerGpuSick
from voda.projections.jobs.record_text import explanation_text

POOLS = {"v100": {**AT_ONCE, "nodeGraceSeconds": 4.0}}


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have it looked for often."""
    monkeypatch.setattr(leader_loop, "_SWEEP_S", 0.2)


@pytest.mark.skipif(IS_OLD, reason="ResourceHealthStatus is an alpha feature of 1.35, off by default")
async def test_worker_whose_gpu_a_kubelet_calls_unhealthy_moves_alone(jobs_world: JobsWorld, tmp_path: Path) -> None:
    world = jobs_world
    await world.add_nodes(a_node("gpu-1", 4), a_node("gpu-2", 1))
    async with voda(world, tmp_path, pools=POOLS) as it:
        await world.submit(an_indexed_job("a", world.namespace, 4, least=4, most=4))
        await it.until_runs("a", 4)
        before, pods = await world.uids("a"), await world.running("a")
        sick = min(index for index in range(1, 4) if pods[index]["spec"]["nodeName"] == "gpu-1")
        await say(world, pods[sick], "Unhealthy")
        await it.until(lambda: is_told(it, sick, "Unhealthy"))
        await world.until(lambda: "is unhealthy: the worker moves" in explanation_text(it.record("a")))
        await say(world, pods[sick], "Healthy")
        await it.until(lambda: is_told(it, sick, ""))
        assert await world.uids("a") == before
        await say(world, pods[sick], "Unhealthy")
        await offer(world, "gpu-1", 3)
        await until_moved(it, before, sick)
        assert [*it.nodes(it.id("a"))].count("gpu-1") <= 3
        assert any("of worker" in said and "is unhealthy" in said for said in await world.told("a", "SickGpu"))


async def test_worker_whose_device_its_driver_drops_moves_alone(jobs_world: JobsWorld, tmp_path: Path) -> None:
    world = jobs_world
    await publish(world, {"gpu-1": 4, "gpu-2": 1})
    await world.client.create(api.CLAIM_TEMPLATES, a_claim_template("one", world.namespace))
    async with voda(world, tmp_path, pools=POOLS, cluster=CLUSTER) as it:
        await world.submit(a_job("a", world, "one", least=4, most=4, workers=4))
        await it.until_runs("a", 4)
        before, pods = await world.uids("a"), await world.running("a")
        sick = min(index for index in range(1, 4) if pods[index]["spec"]["nodeName"] == "gpu-1")
        gone = await device_of(world, pods[sick])
        left = [a_device(f"gpu-{number}") for number in range(4) if f"gpu-{number}" != gone]
        await world.client.patch(api.SLICES, "gpu-1-gpus", {"spec": a_slice("gpu-1", left, generation=2)["spec"]})
        await it.until(lambda: is_told(it, sick, "gone"))
        await until_moved(it, before, sick)


async def until_moved(it: Voda, before: Mapping[int, str], sick: int) -> None:
    """Wait until all run, one worker anew and no other."""
    assert isinstance(it.world, JobsWorld)
    world = it.world

    async def has_moved() -> bool:
        now = await world.uids("a")
        return now.keys() == before.keys() and now[sick] != before[sick]

    await it.until(has_moved)
    await it.until_runs("a", len(before))
    now = await world.uids("a")
    assert {index for index in before if now[index] != before[index]} == {sick}


async def is_told(it: Voda, worker: int, reason: str) -> bool:
    facts = await it.facts(WorkerGpuSick, it.id("a"))
    return bool(facts) and (facts[-1].worker, facts[-1].reason) == (worker, reason)


async def say(world: JobsWorld, pod: Object, health: str) -> None:
    """Have its kubelet say how the GPU of a pod is."""
    gpu = {"name": "nvidia.com/gpu", "resources": [{"resourceID": "gpu-1-gpu-3", "health": health}]}
    statuses: list[dict[str, Any]] = [
        {**each, "allocatedResourcesStatus": [gpu]} for each in pod["status"]["containerStatuses"]
    ]
    name = (world.namespace, pod["metadata"]["name"])
    await world.client.patch(api.PODS, name, {"status": {"containerStatuses": statuses}}, "status")


async def offer(world: JobsWorld, node: str, gpus: int) -> None:
    """Have a node offer so many GPUs to pods; it has as many as before."""
    await world.client.patch(api.NODES, node, {"status": {"allocatable": {"nvidia.com/gpu": str(gpus)}}}, "status")
