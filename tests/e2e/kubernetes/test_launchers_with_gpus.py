"""Launchers that ask for GPUs: plans say where they go, and workers of their own jobs do not take them all."""

from pathlib import Path
from typing import Any

from tests.e2e.kubernetes.service import Voda, voda
from tests.kube.client import Object
from tests.kube.objects import GPU, a_node, an_mpijob, an_mpijob_v1
from tests.kube.world import World
from voda.events.types import PlanAdopted

ONE: Object = {"containers": [{"name": "launcher", "image": "train", "command": ["mpirun", "train.py"]}]}
ONE["containers"][0]["resources"] = {"limits": {GPU: "1"}, "requests": {GPU: "1"}}


def with_gpu(world: World, name: str, make: Any = an_mpijob, **changes: Any) -> Object:
    job: Object = make(name, world.namespace, launcher_spec=ONE, policy={"suspend": True}, **changes)
    return job


async def assert_where_it_is_planned(world: World, it: Voda, name: str) -> None:
    launcher, job_id = await world.launcher_of(name), it.id(name)
    assert launcher is not None
    planned = {fact.launchers[job_id] for fact in await it.facts(PlanAdopted) if job_id in fact.launchers}
    assert planned == {launcher["spec"]["nodeName"]} == {launcher["spec"]["nodeSelector"]["kubernetes.io/hostname"]}


async def gets_its_gpu(world: World, tmp_path: Path, make: Any, **changes: Any) -> None:
    await world.add_nodes(*(a_node(f"gpu-{number}", 4) for number in range(2)))
    async with voda(world, tmp_path) as it:
        await world.submit(with_gpu(world, "mpi", make, least=2, most=32, **changes))
        await world.until_it_is(lambda: world.launcher_of("mpi"))
        await it.until_runs("mpi", 7)
        await assert_where_it_is_planned(world, it, "mpi")
        await world.end_launcher("mpi")
        await it.until_ended("mpi", "Completed")


async def test_launcher_that_asks_for_a_gpu_gets_it_and_workers_the_others(world: World, tmp_path: Path) -> None:
    await gets_its_gpu(world, tmp_path, an_mpijob)


async def test_launcher_that_is_made_once_all_workers_are_ready_gets_its_gpu(world: World, tmp_path: Path) -> None:
    policy = {"launcherCreationPolicy": "WaitForWorkersReady"}
    await gets_its_gpu(world, tmp_path, an_mpijob, workers=8, spec=policy)


async def test_launcher_of_v1_that_asks_for_a_gpu_gets_it_and_workers_the_others(
    world_v1: World, tmp_path: Path
) -> None:
    await gets_its_gpu(world_v1, tmp_path, an_mpijob_v1)


async def test_rigid_job_waits_until_its_launcher_has_room_too(world: World, tmp_path: Path) -> None:
    await world.add_node("gpu-1", gpus=4)
    async with voda(world, tmp_path) as it:
        await world.submit(an_mpijob("first", world.namespace, 1, least=1, most=1))
        await it.until_runs("first", 1)
        await world.submit(with_gpu(world, "mpi", workers=3, least=3, most=3))
        await world.until(lambda: it.phase(it.id("mpi")) == "Waiting")
        await world.end_launcher("first")
        await it.until_runs("mpi", 3)
        await world.until_it_is(lambda: world.launcher_of("mpi"))


async def test_job_of_higher_priority_gets_the_gpu_of_a_launcher_too(world: World, tmp_path: Path) -> None:
    await world.add_node("gpu-1", gpus=4)
    async with voda(world, tmp_path) as it:
        await world.submit(with_gpu(world, "mpi", least=1, most=4))
        await it.until_runs("mpi", 3)
        await world.until_it_is(lambda: world.launcher_of("mpi"))
        await world.submit(an_mpijob("urgent", world.namespace, 1, least=1, most=1, gpus=4, priority=10))
        await it.until_runs("urgent", 1)
        await world.end_launcher("urgent")
        await it.until_runs("mpi", 3)
        await world.until_it_is(lambda: world.launcher_of("mpi"))
