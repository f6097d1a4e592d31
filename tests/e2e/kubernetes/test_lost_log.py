"""A log that is lost, or restored from an older copy, while the cluster went on: no object is deleted for it."""

import asyncio
import shutil
from collections.abc import Mapping
from pathlib import Path

import aiohttp
import pytest

from tests.builders import a_spec
from tests.e2e.kubernetes.service import Voda, voda
from tests.kube import client as api
from tests.kube.client import Object
from tests.kube.objects import an_mpijob
from tests.kube.world import World
from voda.concurrency import single_error
from voda.events.envelope import Fact
from voda.events.types import JobCanceled, JobRegistered, JobSubmitted, LeaderElected
from voda.log.factory import open_log, open_store


async def uids(world: World) -> Mapping[str, str]:
    """Return the uids of all job objects, by name."""
    return {job["metadata"]["name"]: job["metadata"]["uid"] for job in await world.client.list(api.MPIJOBS)}


async def submit(it: Voda, job: Object) -> None:
    """Submit a job to the API."""
    async with aiohttp.ClientSession() as session, session.post(f"{it.service.url}/api/v1/jobs", json=job) as answer:
        assert answer.status == 201, await answer.text()


def a_job(world: World, name: str, *, managed: bool = True) -> Object:
    return an_mpijob(name, world.namespace, workers=1, least=1, most=2, managed=managed)


async def test_log_when_lost_altogether_leaves_all_objects_and_takes_their_jobs_in_again(
    world: World, tmp_path: Path
) -> None:
    await world.add_node("gpu-1", gpus=4)
    async with voda(world, tmp_path / "first") as it:
        await world.submit(a_job(world, "ctl"))
        await it.until_runs("ctl", 2)
        await submit(it, a_job(world, "api", managed=False))
        await it.until_runs("api", 2)
        before = await uids(world)
    async with voda(world, tmp_path / "second") as it:
        await it.until_runs("ctl", 2)
        await it.until_runs("api", 2)
        assert await uids(world) == before
        await world.end_launcher("ctl")
        await it.until_ended("ctl", "Completed")


async def test_log_when_restored_from_an_older_copy_leaves_all_objects_that_it_does_not_know(
    world: World, tmp_path: Path
) -> None:
    await world.add_node("gpu-1", gpus=4)
    home = tmp_path / "home"
    async with voda(world, home) as it:
        await world.submit(a_job(world, "a"))
        await it.until_runs("a", 2)
    shutil.copytree(home, tmp_path / "copy")
    async with voda(world, home) as it:
        await world.client.delete(api.MPIJOBS, "a", world.namespace)
        await it.until_ended("a", "Canceled")
        await world.submit(a_job(world, "a"))
        await world.submit(a_job(world, "b"))
        await it.until_runs_as("a", f"{it.id('a')}-2", 2)
        await it.until_runs("b", 2)
        before = await uids(world)
    async with voda(world, tmp_path / "copy") as it:
        # The job that the copy knows has lost its object; the one of its name is another job's.
        await it.until_ended("a", "Canceled")
        await it.until_runs_as("a", f"{it.id('a')}-2", 2)
        await it.until_runs("b", 2)
        assert await uids(world) == before
        assert await it.facts(JobCanceled) == [JobCanceled(job_id=it.id("a"))]


async def test_log_of_another_cluster_is_refused_and_no_job_is_canceled(world: World, tmp_path: Path) -> None:
    store = await open_store(tmp_path / "voda.db")
    claim = LeaderElected(pool="", leader="elsewhere", cluster="another")
    fact = Fact(data=claim, event_id="1", recorded_at=1.0)
    await store.append(claim.stream, 0, [fact], epoch=1)
    spec = JobSubmitted(spec=a_spec("a"))
    await store.append(spec.stream, 0, [Fact(data=spec, event_id="2", recorded_at=2.0)])
    known = JobRegistered(job_id="a", uid="of-another")
    await store.append(known.stream, 1, [Fact(data=known, event_id="3", recorded_at=3.0)])
    await store.close()

    async def serve() -> None:
        async with voda(world, tmp_path):
            await asyncio.Event().wait()

    with pytest.raises(ExceptionGroup) as refused:
        async with asyncio.timeout(60):
            await serve()
    assert "belongs to another cluster (another; this one is " in str(single_error(refused.value))
    log = await open_log(tmp_path / "voda.db")
    assert [event.type for event in await log.read(0, 100)] == ["leader.elected", "job.submitted", "job.registered"]
    await log.close()
