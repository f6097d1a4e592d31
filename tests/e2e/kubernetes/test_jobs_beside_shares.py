"""Elastic jobs and pods with parts of GPUs on the same GPUs: jobs get whole ones, and give up what they can spare."""

from pathlib import Path

import pytest

from tests.e2e.kubernetes.service import voda
from tests.e2e.kubernetes.test_device_claims import a_job
from tests.e2e.kubernetes.test_shared_claims import (
    SETTINGS,
    add_gpus,
    deploy,
    gpus,
    notebooks,
    publish,
    recorded,
    results,
    scale,
    told,
    typed,
    until_run,
)
from tests.kube import client as api
from tests.kube.assets import IS_OLD
from tests.kube.client import Object
from tests.kube.devices import CLASS, a_claim_template
from tests.kube.peers.jobs_world import JobsWorld
from voda.domain.reasons.pods import NoGpuFree
from voda.events.types import ShareRequested, ShareRequestWithdrawn, WorkerRefused

__all__ = ["notebooks"]
pytestmark = pytest.mark.skipif(IS_OLD, reason="1.35 drops the fields by which devices are shared")
AROUND = {**SETTINGS, "cluster": {"defaultPool": "", "gpuDeviceClasses": [CLASS]}}


async def test_elastic_job_gives_up_a_gpu_for_pods_that_share_it_and_gets_it_back(
    notebooks: JobsWorld, tmp_path: Path
) -> None:
    world = notebooks
    await publish(world, {"gpu-1": 2, "gpu-2": 2})
    await world.client.create(api.CLAIM_TEMPLATES, a_claim_template("one", world.namespace))
    async with voda(world, tmp_path, **AROUND) as it:
        await world.submit(a_job("train", world, "one", least=1, most=4))
        await it.until_runs("train", 4)
        assert len(await gpus_of_job(world, "train")) == 4
        # No account has what workers have: plans count it.
        assert not any(recorded(it).values())
        await deploy(world, replicas=2)
        await until_pods_share(world, 2, gpus_=1)
        await it.until_runs("train", 3)
        await scale(world, 5)
        await until_pods_share(world, 5, gpus_=3)
        await it.until_runs("train", 1)
        await scale(world, 6)
        await until_pods_share(world, 6, gpus_=3)
        # The job needs its last GPU: the seventh pod waits.
        await scale(world, 7)

        async def is_told() -> bool:
            return any("in use by jobs" in each for each in await told(world, "WaitsForGpus"))

        await world.until_it_is(is_told, what="the seventh pod is told why it waits")
        await it.until_runs("train", 1)
        await scale(world, 0)
        await it.until_runs("train", 4)
        await world.until(lambda: not it.service.view.cluster.shares.requests())
        assert await it.facts(ShareRequested)
        assert not await it.facts(WorkerRefused)
        # GPUs may go to other pods than those that asked for them, and none of these waits in vain.
        assert not any(isinstance(each.reason, NoGpuFree) for each in await it.facts(ShareRequestWithdrawn))


async def test_whole_gpu_of_a_pod_is_others_for_a_job_until_it_is_given_back(
    notebooks: JobsWorld, tmp_path: Path
) -> None:
    world = notebooks
    await publish(world, {"gpu-1": 2})
    await world.client.create(api.CLAIM_TEMPLATES, a_claim_template("one", world.namespace))
    async with voda(world, tmp_path, **AROUND) as it:
        await deploy(world, replicas=1)
        await until_run(world, 1)
        await world.submit(a_job("train", world, "one", least=1, most=4))
        await it.until_runs("train", 1)
        assert "train" in await typed(it, "nodes", "describe", "gpu-1")
        await add_gpus(world, {"gpu-2": 1})
        await it.until_runs("train", 2)
        await scale(world, 0)
        await it.until_runs("train", 3)


async def until_pods_share(world: JobsWorld, pods: int, *, gpus_: int) -> None:
    """Wait until so many pods of the Deployment run, on so many GPUs, none of which a worker has."""

    async def share() -> bool:
        found = {name: gpu for name, gpu in (await gpus(world)).items() if name.startswith("notebook")}
        return len(found) == pods and len(set(found.values())) == gpus_

    await world.until_it_is(share, what=f"{pods} pods share {gpus_} GPUs")


async def gpus_of_job(world: JobsWorld, name: str) -> set[str]:
    """Return the GPUs that the workers of a job have, POOL/DEVICE."""
    claims = {each["metadata"]["name"]: each for each in await world.client.list(api.CLAIMS, world.namespace)}
    pods: list[Object] = await world.pods_of(name)
    named = [status["resourceClaimName"] for pod in pods for status in pod["status"].get("resourceClaimStatuses", ())]
    return {f"{each['pool']}/{each['device']}" for name in named for each in results(claims[name])}
