"""Elastic jobs and pods with parts of cards on the same cards: jobs get whole ones, and give up what they can spare."""

from pathlib import Path

import pytest

from tests.e2e.kubernetes.service import voda
from tests.e2e.kubernetes.test_device_claims import a_job
from tests.e2e.kubernetes.test_shared_claims import (
    SETTINGS,
    add_cards,
    deploy,
    notebooks,
    publish,
    scale,
    typed,
    until_run,
)
from tests.kube import client as api
from tests.kube.assets import IS_OLD
from tests.kube.devices import CLASS, a_claim_template
from tests.kube.peers.jobs_world import JobsWorld

__all__ = ["notebooks"]
pytestmark = pytest.mark.skipif(IS_OLD, reason="1.35 drops the fields by which devices are shared")
AROUND = {**SETTINGS, "cluster": {"defaultPool": "", "gpuDeviceClasses": [CLASS]}}


async def test_whole_card_of_a_pod_is_others_for_a_job_until_it_is_given_back(
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
        await add_cards(world, {"gpu-2": 1})
        await it.until_runs("train", 2)
        await scale(world, 0)
        await it.until_runs("train", 3)
