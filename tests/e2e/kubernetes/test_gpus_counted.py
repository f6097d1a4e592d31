"""GPUs are counted by the resource that the settings name, by the real controllers; jobs without any wait for none."""

import asyncio
from pathlib import Path

from tests.e2e.kubernetes.service import voda
from tests.e2e.kubernetes.test_jobs_submitted import submit
from tests.kube.objects import a_node, an_indexed_job
from tests.kube.peers.jobs_world import JobsWorld
from voda.client import Client
from voda.programs.program import Program

NPU = "huawei.com/Ascend910"


async def test_accelerators_of_any_name_are_counted_by_it(jobs_world: JobsWorld, tmp_path: Path) -> None:
    world = jobs_world
    await world.add_nodes(*(a_node(f"npu-{number}", 8, resource=NPU) for number in range(4)))
    async with voda(world, tmp_path, cluster={"defaultPool": "", "gpuResource": NPU}) as it:
        own = {"limits": {NPU: "8"}, "requests": {NPU: "8"}}
        await world.submit(an_indexed_job("npu", world.namespace, 2, least=2, most=4, gpus=0, resources=own))
        await it.until_runs("npu", 4)
        assert sorted(it.nodes(it.id("npu"))) == [f"npu-{number}" for number in range(4)]


async def test_program_asks_for_gpus_by_the_resource_that_the_server_counts(
    jobs_world: JobsWorld, tmp_path: Path
) -> None:
    world = jobs_world
    await world.add_nodes(a_node("npu-1", 4, resource=NPU))
    async with voda(world, tmp_path, cluster={"defaultPool": "", "gpuResource": NPU}) as it:
        words = ("--image", "train:1", "--gpus-per-worker", "2", "--name", "typed", "--", "python", "train.py")
        await submit(it, *words)
        await it.until_runs("typed", 1)
        program = Program(["python", "train.py"], name="coded", image="train:1", namespace=world.namespace)
        await asyncio.to_thread(lambda: Client(it.service.url).submit(program))
        await it.until_runs("coded", 1)
        pods = [pod for name in ("typed", "coded") for pod in await world.pods_of(name)]
        assert [pod["spec"]["containers"][0]["resources"]["limits"] for pod in pods] == [{NPU: "2"}, {NPU: "1"}]


async def test_job_without_gpus_runs_on_a_node_whose_gpus_are_all_taken(jobs_world: JobsWorld, tmp_path: Path) -> None:
    world = jobs_world
    await world.add_node("gpu-1", gpus=2)
    async with voda(world, tmp_path) as it:
        await world.submit(an_indexed_job("rigid", world.namespace, 2, least=2, most=2))
        await it.until_runs("rigid", 2)
        await world.submit(an_indexed_job("prep", world.namespace, 1, least=1, most=1, gpus=0))
        await it.until_runs("prep", 1)
        assert it.nodes(it.id("prep")) == ["gpu-1"]
        assert len(it.nodes(it.id("rigid"))) == 2
        assert await world.told("rigid", "Preempted") == []
