"""Jobs that get no further though they have a plan: their objects, and the API, say what they wait for."""

from pathlib import Path
from typing import Any

import pytest

from tests.e2e.kubernetes.service import Voda, voda
from tests.kube import client as api
from tests.kube.objects import an_mpijob
from tests.kube.peers.stages import STARTS
from tests.kube.peers.world import PeeredWorld
from tests.kube.world import World
from voda.cluster.kubernetes import leader_loop
from voda.cluster.kubernetes.convergence import stalls
from voda.events.text.stalls import stall_text
from voda.events.types import JobStalled


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have whatever lasts for a moment told, and looked for often."""
    monkeypatch.setattr(stalls, "SOON_S", 0.3)
    monkeypatch.setattr(leader_loop, "_SWEEP_S", 0.1)


async def said(world: World, name: str) -> str:
    state = await world.client.find(api.JOB_STATES, f"{name}.mpijob", world.namespace)
    return str((state or {}).get("explanation", ""))


async def told(it: Voda, name: str) -> list[str]:
    return [stall_text(fact.reason) for fact in await it.facts(JobStalled, it.id(name))]


async def test_worker_without_its_image_is_told_on_the_object_until_it_runs(world: World, tmp_path: Path) -> None:
    await world.add_node("gpu-1", gpus=2)
    job = an_mpijob("a", world.namespace, least=2, most=2, suspend=True, worker_notes={STARTS: "never"})
    async with voda(world, tmp_path) as it:
        await world.submit(job)
        await world.until(lambda: len(it.nodes(it.id("a"))) == 2)
        waiting = {"name": "worker", "ready": False, "restartCount": 0, "image": "train", "imageID": ""}
        waiting |= {"state": {"waiting": {"reason": "ImagePullBackOff"}}}
        status: dict[str, Any] = {"status": {"phase": "Pending", "containerStatuses": [waiting]}}
        await world.client.patch(api.PODS, (world.namespace, "a-worker-1"), status, "status")
        sentence = "worker 1 on gpu-1: container worker cannot pull its image"
        await world.until_it_is(lambda: _says(world, "a", sentence))
        await world.until_it_is(lambda: _has_event(world, "Stalled", sentence))
        for index in range(2):
            starts = {"metadata": {"annotations": {STARTS: None}}}
            await world.client.patch(api.PODS, (world.namespace, f"a-worker-{index}"), starts)
        await it.until_runs("a", 2)
        await world.until_it_is(lambda: _says(world, "a", sentence, is_said=False))
        assert (await told(it, "a"))[-1] == ""


async def test_job_without_an_operator_says_so(world: PeeredWorld, tmp_path: Path) -> None:
    await world.add_node("gpu-1", gpus=2)
    absent = {"managedBy": "kubeflow.org/mpi-operator"}
    with world.cluster.mpi_operator.held():
        async with voda(world, tmp_path) as it:
            await world.submit(an_mpijob("a", world.namespace, least=2, most=2, policy=absent))
            await world.until_it_is(lambda: _says(world, "a", "see whether mpi-operator runs"))
            assert len(await told(it, "a")) == 1


async def test_hold_up_by_a_pod_that_does_not_go_is_over_once_it_goes(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.add_node("gpu-1", gpus=2)
    async with voda(world, tmp_path) as it:
        await world.submit(an_mpijob("a", world.namespace, least=2, most=2))
        await it.until_runs("a", 2)
        held = {"metadata": {"finalizers": ["tests.voda.dev/stays"]}}
        await world.client.patch(api.PODS, (world.namespace, "a-worker-1"), held)
        await world.client.delete(api.PODS, "a-worker-1", world.namespace, grace_s=1)
        await world.until_it_is(lambda: _says(world, "a", "a-worker-1 was deleted and does not go"))
        for span in ("SOON_S", "OVER_S"):
            monkeypatch.setattr(stalls, span, 3_600.0)
        await world.client.patch(api.PODS, (world.namespace, "a-worker-1"), {"metadata": {"finalizers": None}})
        await world.until_it_is(lambda: _says(world, "a", "does not go", is_said=False))
        await it.until_runs("a", 2)
        assert sum("does not go" in each for each in await told(it, "a")) == 1


async def _says(world: World, name: str, sentence: str, *, is_said: bool = True) -> bool:
    return (sentence in await said(world, name)) == is_said


async def _has_event(world: World, reason: str, sentence: str) -> bool:
    events = await world.client.list(api.EVENTS, world.namespace)
    return any(event["reason"] == reason and sentence in event["message"] for event in events)
