"""An API server that is away, slow, or forgets: the plan is kept, readiness says so, and everything goes on."""

import os
import signal
from pathlib import Path

from tests.e2e.kubernetes.service import voda
from tests.kube.objects import an_mpijob
from tests.kube.world import World
from voda.events.types import JobCanceled, JobCancelRequested, WorkerExited


async def test_api_server_when_restarted_finds_the_jobs_as_they_were(world: World, tmp_path: Path) -> None:
    await world.add_node("gpu-1", gpus=4)
    async with voda(world, tmp_path) as it:
        await world.submit(an_mpijob("a", world.namespace, workers=1, least=1, most=2))
        await it.until_runs("a", 2)
        before = {pod["metadata"]["uid"] for pod in await world.workers_of("a")}
        world.plane.stop("kube-apiserver")
        await world.until(lambda: it.service.failure())
        # Every watch goes on from a version that the new server has never heard of: 410, and a new list.
        world.plane.start_api_server()
        await world.submit(an_mpijob("b", world.namespace, workers=1, least=1, most=2))
        await it.until_runs("b", 2)
        await it.until_runs("a", 2)
        assert {pod["metadata"]["uid"] for pod in await world.workers_of("a")} == before
        await world.until(lambda: not it.service.failure())
        assert [*await it.facts(JobCancelRequested), *await it.facts(JobCanceled)] == []
        assert await it.facts(WorkerExited) == []


async def test_api_server_when_it_hangs_loses_no_job_and_no_plan(world: World, tmp_path: Path) -> None:
    await world.add_node("gpu-1", gpus=4)
    async with voda(world, tmp_path) as it:
        await world.submit(an_mpijob("a", world.namespace, workers=1, least=1, most=4))
        await it.until_runs("a", 4)
        plan = it.service.view.cluster.plan("v100").placement
        pid = world.plane.pid("kube-apiserver")
        os.kill(pid, signal.SIGSTOP)
        try:
            # The lease is not renewed in time: another replica may lead by then, so this one must not.
            await world.until(lambda: not it.service.leadership.is_leading)
            assert it.service.failure()
            assert it.service.view.cluster.plan("v100").placement == plan
        finally:
            os.kill(pid, signal.SIGCONT)
        await world.until(lambda: it.service.leadership.is_leading and not it.service.failure())
        await it.until_runs("a", 4)
        await world.end_launcher("a")
        await it.until_ended("a", "Completed")
