"""A Job of one pod without numbered replicas, as most are, by the real Job controller: a rigid job of one replica."""

from pathlib import Path

import aiohttp

from tests.e2e.kubernetes.service import voda
from tests.kube.client import Object
from tests.kube.objects import an_indexed_job
from tests.kube.peers.jobs_world import JobsWorld


def a_plain_job(name: str, namespace: str, *, managed: bool = True) -> Object:
    job = an_indexed_job(name, namespace, 1, least=1, most=1, managed=managed)
    for field in ("completionMode", "parallelism", "completions", "podFailurePolicy"):
        job["spec"].pop(field, None)
    return job


async def test_plain_job_of_a_user_runs_is_halted_for_others_and_completes(
    jobs_world: JobsWorld, tmp_path: Path
) -> None:
    world = jobs_world
    await world.add_node("gpu-1", gpus=1)
    async with voda(world, tmp_path) as it:
        await world.submit(a_plain_job("convert", world.namespace))
        await it.until_runs("convert", 1)
        await world.submit(an_indexed_job("first", world.namespace, 1, least=1, most=1, priority=5))
        await it.until_runs("first", 1)
        assert it.nodes(it.id("convert")) == []
        await world.end_worker("first", 0)
        await it.until_runs("convert", 1)
        await world.end_worker("convert", 0)
        await it.until_ended("convert", "Completed")


async def test_plain_job_that_is_submitted_is_made_with_numbers(jobs_world: JobsWorld, tmp_path: Path) -> None:
    world = jobs_world
    await world.add_node("gpu-1", gpus=1)
    async with voda(world, tmp_path) as it, aiohttp.ClientSession() as session:
        job = a_plain_job("convert", world.namespace, managed=False)

        async def is_taken() -> bool:
            # A replica that is still reading the cluster says 503.
            async with session.post(f"{it.service.url}/api/v1/jobs", json=job) as answer:
                return answer.status in (201, 409)

        await it.until(is_taken)
        await it.until_runs("convert", 1)
        await world.end_worker("convert", 0)
        await it.until_ended("convert", "Completed")
        assert (await world.job("convert"))["spec"]["completionMode"] == "Indexed"
