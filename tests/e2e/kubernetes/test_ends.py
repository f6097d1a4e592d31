"""Jobs that end: objects that their operator deletes at once, and pods that users asked to keep."""

import asyncio
from functools import partial
from pathlib import Path

import pytest

from tests.e2e.kubernetes.service import voda
from tests.kube import client as api
from tests.kube.objects import a_pytorchjob, an_mpijob, an_mpijob_v1
from tests.kube.world import World
from voda.events.types import JobCancelRequested

JOBS = 6
"""So many that some are gone before their end is looked at."""


@pytest.mark.parametrize("kind", ["MPIJob", "PyTorchJob"])
async def test_jobs_whose_objects_go_when_they_have_finished_are_completed_and_not_canceled(
    world_v1: World, tmp_path: Path, kind: str
) -> None:
    world, names = world_v1, [f"a{number}" for number in range(JOBS)]
    await world.add_node("gpu-1", gpus=JOBS)
    make = an_mpijob_v1 if kind == "MPIJob" else a_pytorchjob
    async with voda(world, tmp_path) as it:
        for name in names:
            # Suspended, or its operator's first pods would hold GPUs until voda has taken the job in.
            policy = {"ttlSecondsAfterFinished": 0, "suspend": True}
            await world.submit(make(name, world.namespace, 1, least=1, most=1, policy=policy))
        for name in names:
            await it.until_runs(name, 1)
            if kind == "MPIJob":
                await world.until_it_is(partial(world.launcher_of, name))
        last = "launcher" if kind == "MPIJob" else "worker-0"
        await asyncio.gather(*(world.kubelet.exit(world.namespace, f"{name}-{last}", 0) for name in names))
        for name in names:
            await it.until_ended(name, "Completed")
        assert not await it.facts(JobCancelRequested)
        resource = api.MPIJOBS_V1 if kind == "MPIJob" else api.PYTORCHJOBS
        await world.until_it_is(lambda: _is_empty(world, resource))


async def test_job_whose_namespace_is_not_looked_at_any_more_goes_on_to_its_end(world: World, tmp_path: Path) -> None:
    await world.add_node("gpu-1", gpus=2)
    async with voda(world, tmp_path) as it:
        await world.submit(an_mpijob("a", world.namespace, 1, least=1, most=1))
        await it.until_runs("a", 1)
    elsewhere = {"defaultPool": "", "namespaces": ["default"]}
    async with voda(world, tmp_path, cluster=elsewhere) as it:
        await world.submit(an_mpijob("b", "default", 1, least=1, most=1))
        await world.until(lambda: it.phase("b") == "Running")
        await world.end_launcher("a")
        await it.until_ended("a", "Completed")


async def test_pods_that_have_ended_stay_for_their_output_where_the_manifest_says_so(
    world_v1: World, tmp_path: Path
) -> None:
    world = world_v1
    await world.add_node("gpu-1", gpus=4)
    async with voda(world, tmp_path) as it:
        kept = a_pytorchjob("a", world.namespace, 2, least=2, most=2, policy={"cleanPodPolicy": "None"})
        await world.submit(kept)
        await it.until_runs("a", 2)
        await world.kubelet.exit(world.namespace, "a-worker-0", 0)
        await it.until_ended("a", "Completed")
        await world.submit(a_pytorchjob("b", world.namespace, 4, least=4, most=4))
        await it.until_runs("b", 4)
        [ended] = await world.workers_of("a")
        assert (ended["metadata"]["name"], ended["status"]["phase"]) == ("a-worker-0", "Succeeded")


async def test_job_that_failed_too_often_keeps_nothing(world: World, tmp_path: Path) -> None:
    await world.add_node("gpu-1", gpus=2)
    async with voda(world, tmp_path) as it:
        await world.submit(an_mpijob("a", world.namespace, least=1, most=2, policy={"backoffLimit": 0}))
        await it.until_runs("a", 2)
        await world.kubelet.exit(world.namespace, "a-worker-0", 3)
        await it.until_ended("a", "Failed")
        await world.until_condition("a", "Suspended")
        await world.until_gone("a")


async def _is_empty(world: World, resource: api.Resource) -> bool:
    return not await world.client.list(resource, world.namespace)
