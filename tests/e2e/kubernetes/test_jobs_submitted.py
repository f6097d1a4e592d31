"""`voda submit --image` on a cluster without operators: a Job and its headless Service."""

import asyncio
import sys
from pathlib import Path

import pytest

from tests.e2e.kubernetes.service import Voda, voda
from tests.kube import client as api
from tests.kube.client import Object
from tests.kube.peers.jobs_world import JobsWorld
from tests.served_process import PROGRAM
from voda.operator.registration import registrar

TORCHRUN = ("--image", "train:1", "--workers", "1-3", "--name", "digits", "--", "torchrun", "train.py")


async def test_submitted_program_becomes_a_job_and_a_service_and_runs(jobs_world: JobsWorld, tmp_path: Path) -> None:
    world = jobs_world
    await world.add_node("gpu-1", gpus=3)
    async with voda(world, tmp_path) as it:
        await submit(it, *TORCHRUN)
        await it.until_runs("digits", 3)
        spec = (await world.job("digits"))["spec"]
        assert (spec["completionMode"], spec["parallelism"], spec["completions"]) == ("Indexed", 3, 3)
        assert spec["successPolicy"]["rules"][0]["succeededIndexes"] == "0"
        pods = await world.pods_of("digits")
        assert [(pod["spec"]["hostname"], pod["spec"]["subdomain"]) for pod in pods] == [
            (f"digits-{index}", "digits") for index in range(3)
        ]
        env = {each["name"]: each.get("value") for each in pods[0]["spec"]["containers"][0]["env"]}
        assert {pod["metadata"]["annotations"]["voda.dev/env.PET_NNODES"] for pod in pods} == {"3"}
        assert env["PET_RDZV_ENDPOINT"] == f"digits-0.digits.{world.namespace}.svc.cluster.local:29500"
        service = await world.client.get(api.SERVICES, "digits", world.namespace)
        labels = pods[0]["metadata"]["labels"]
        assert service["spec"]["clusterIP"] == "None"
        assert service["spec"]["publishNotReadyAddresses"] is True
        assert service["spec"]["selector"].items() <= labels.items()
        await world.end_worker("digits", 0)
        await it.until_ended("digits", "Completed")
        await world.client.delete(api.JOBS, "digits", world.namespace)
        await world.until_it_is(lambda: is_gone(world))


async def test_service_that_somebody_deleted_is_made_again(
    jobs_world: JobsWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registrar, "_SWEEP_S", 0.5)
    world = jobs_world
    await world.add_node("gpu-1", gpus=3)
    async with voda(world, tmp_path) as it:
        await submit(it, *TORCHRUN)
        await it.until_runs("digits", 3)
        before = await world.client.get(api.SERVICES, "digits", world.namespace)
        await world.client.delete(api.SERVICES, "digits", world.namespace)
        await world.until_it_is(lambda: is_another(world, before))
        assert len(await world.running("digits")) == 3


async def submit(it: Voda, *words: str) -> None:
    """Call `voda submit` as a user does."""
    command = [sys.executable, *PROGRAM, "submit", "--server", it.service.url, "-n", it.world.namespace, *words]
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    said, _ = await process.communicate()
    assert process.returncode == 0, said.decode()


async def is_gone(world: JobsWorld) -> bool:
    return await world.client.find(api.SERVICES, "digits", world.namespace) is None


async def is_another(world: JobsWorld, before: Object) -> bool:
    now = await world.client.find(api.SERVICES, "digits", world.namespace)
    return now is not None and now["metadata"]["uid"] != before["metadata"]["uid"]
