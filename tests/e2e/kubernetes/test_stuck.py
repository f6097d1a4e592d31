"""Jobs that make no use of the GPUs planned for them: others get these in time, and all go on once it is mended."""

from pathlib import Path
from typing import Any

import pytest

from tests.e2e.kubernetes.service import AT_ONCE, Voda, voda
from tests.kube import client as api
from tests.kube.objects import a_pytorchjob, an_mpijob
from tests.kube.peers.stages import STARTS
from tests.kube.peers.world import PeeredWorld
from voda.cluster.kubernetes import leader_loop
from voda.cluster.kubernetes.convergence import stalls
from voda.events.text.nodes import stuck_text
from voda.events.types import JobBackedOff
from voda.projections.jobs.record_text import explanation_text

TIMEOUT_S = 4.0
POOLS = {"v100": {**AT_ONCE, "startTimeoutSeconds": TIMEOUT_S}}


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have stalls told after a moment, and looked for often."""
    monkeypatch.setattr(stalls, "SOON_S", 1.0)
    monkeypatch.setattr(stalls, "OVER_S", 0.3)
    monkeypatch.setattr(leader_loop, "_SWEEP_S", 0.1)


async def test_gpus_of_a_job_whose_operator_stands_still_go_to_another_one_and_both_complete(
    world: PeeredWorld, tmp_path: Path
) -> None:
    await world.add_node("gpu-1", gpus=2)
    async with voda(world, tmp_path, pools=POOLS) as it:
        with world.cluster.mpi_operator.held():
            await world.submit(an_mpijob("a", world.namespace, least=2, most=2, priority=9))
            await it.until(lambda: is_planned(it, "a", 2))
            await world.submit(a_pytorchjob("b", world.namespace, 2, least=2, most=2))
            await it.until_runs("b", 2)
            await it.until(lambda: is_stuck(it, "a", "see whether mpi-operator runs"))
            assert (await it.facts(JobBackedOff, it.id("a")))[0].retry_after_s == 2 * TIMEOUT_S
            await world.until_it_is(lambda: has_event(world, "Stuck", "others go first for"))
        # Once it is tried again it goes first, by its priority.
        await it.until_runs("a", 2)
        await world.end_launcher("a")
        await it.until_ended("a", "Completed")
        await it.until_runs("b", 2)
        await world.kubelet.exit(world.namespace, "b-worker-0", 0)
        await it.until_ended("b", "Completed")


async def test_gpus_of_a_job_without_its_image_go_to_another_one_until_it_has_it(
    world: PeeredWorld, tmp_path: Path
) -> None:
    await world.add_node("gpu-1", gpus=2)
    async with voda(world, tmp_path, pools=POOLS) as it:
        await world.submit(a_pytorchjob("a", world.namespace, 2, least=2, most=2, worker_notes={STARTS: "never"}))
        await world.until(lambda: len(it.nodes(it.id("a"))) == 2)
        waiting = {"name": "pytorch", "ready": False, "restartCount": 0, "image": "train", "imageID": ""}
        waiting |= {"state": {"waiting": {"reason": "ImagePullBackOff"}}}
        status: dict[str, Any] = {"status": {"phase": "Pending", "containerStatuses": [waiting]}}
        await world.client.patch(api.PODS, (world.namespace, "a-worker-0"), status, "status")
        await world.submit(a_pytorchjob("b", world.namespace, 2, least=2, most=2))
        await it.until_runs("b", 2)
        await it.until(lambda: is_stuck(it, "a", "worker 0 on gpu-1: container pytorch cannot pull its image"))
        await it.until(lambda: says(it, "a", "others go first for"))
        # From now on it goes on, however often the other one is tried again.
        first = {"metadata": {"annotations": {"voda.dev/priority": "9"}}}
        await world.client.patch(api.PYTORCHJOBS, (world.namespace, "b"), first)
        await world.until(lambda: (job := it.job(it.id("b"))) is not None and job.spec.priority == 9)
        await it.until_runs("b", 2)
        await world.kubelet.exit(world.namespace, "b-worker-0", 0)
        await it.until_ended("b", "Completed")
        await world.until(lambda: len(it.nodes(it.id("a"))) == 2)
        for index in range(2):
            starts = {"metadata": {"annotations": {STARTS: None}}}
            await world.client.patch(api.PODS, (world.namespace, f"a-worker-{index}"), starts)
        await it.until_runs("a", 2)
        await world.kubelet.exit(world.namespace, "a-worker-0", 0)
        await it.until_ended("a", "Completed")


async def is_planned(it: Voda, name: str, size: int) -> bool:
    return len(it.service.view.cluster.plan("v100").placement.get(it.id(name), ())) == size


async def is_stuck(it: Voda, name: str, reason: str) -> bool:
    """Say whether voda found a job stuck for that reason; on a slow machine perhaps not at its first try."""
    return any(reason in stuck_text(fact.reason) for fact in await it.facts(JobBackedOff, it.id(name)))


async def says(it: Voda, name: str, sentence: str) -> bool:
    record = it.service.view.job_registry.job(it.id(name))
    return record is not None and sentence in explanation_text(record)


async def has_event(world: PeeredWorld, reason: str, sentence: str) -> bool:
    events = await world.client.list(api.EVENTS, world.namespace)
    return any(event["reason"] == reason and sentence in event["message"] for event in events)
