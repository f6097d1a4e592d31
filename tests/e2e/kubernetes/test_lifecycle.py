"""One MPIJob from kubectl to its end, on a real API server."""

from pathlib import Path

import pytest

from tests.e2e.kubernetes.service import voda
from tests.kube import client as api
from tests.kube.objects import an_mpijob
from tests.kube.world import World
from voda.events.types import JobCompleted, JobSubmitted


async def test_job_when_created_by_kubectl_runs_on_what_is_free_and_completes(world: World, tmp_path: Path) -> None:
    await world.add_node("gpu-1", gpus=4)
    async with voda(world, tmp_path) as it:
        await world.submit(an_mpijob("digits", world.namespace, workers=2, least=1, most=8))
        job_id = it.id("digits")
        await it.until_runs("digits", 4)
        await world.until_it_is(lambda: world.has_condition("digits", "Running"))
        assert it.nodes(job_id) == ["gpu-1"] * 4
        await world.end_launcher("digits")
        await it.until_ended("digits", "Completed")
        assert len(await it.facts(JobSubmitted)) == 1
        assert len(await it.facts(JobCompleted)) == 1
    assert (await world.job("digits"))["metadata"]["annotations"]["voda.dev/job-id"] == job_id


@pytest.mark.parametrize("is_suspended", [True, False])
async def test_launcher_of_an_adopted_job_is_told_where_to_report(
    world: World, tmp_path: Path, is_suspended: bool
) -> None:
    # mpi-operator makes the launcher's Job at once, from the templates as they were before they were made ready.
    await world.submit(an_mpijob("digits", world.namespace, workers=1, least=1, most=1, suspend=is_suspended))
    await world.until_it_is(lambda: has_launcher_job(world))
    await world.add_node("gpu-1", gpus=1)
    async with voda(world, tmp_path) as it:
        await it.until_runs("digits", 1)
        # Its Job may be left without a pod for five minutes (https://github.com/kubernetes/kubernetes/issues/131917),
        # and mpi-operator's queue may stall for as long beside that.
        await world.until_it_is(lambda: world.launcher_of("digits"), within_s=900.0)
        launcher = await world.launcher_of("digits")
        assert launcher is not None
        told = {each["name"]: each.get("value") for each in launcher["spec"]["containers"][0]["env"]}
        assert told["VODA_JOB_ID"] == it.id("digits")
        assert told["VODA_API_URL"].startswith("http://")


async def has_launcher_job(world: World) -> bool:
    return await world.client.find(api.JOBS, "digits-launcher", world.namespace) is not None
