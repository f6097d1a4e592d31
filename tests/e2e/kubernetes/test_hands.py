"""People who change, suspend or delete objects by hand, and jobs of other managers, on a real API server."""

from pathlib import Path
from typing import Any

from tests.e2e.kubernetes.service import voda
from tests.kube import client as api
from tests.kube.objects import an_mpijob
from tests.kube.world import World
from voda.domain.reasons.requests import ObjectGone
from voda.events.types import JobCancelRequested, JobChanged, WorkerExited


def sized(workers: int) -> dict[str, Any]:
    return {"spec": {"mpiReplicaSpecs": {"Worker": {"replicas": workers}}}}


async def changed(world: World, change: dict[str, Any]) -> None:
    """Change job `a` as its user does by kubectl."""
    await world.client.patch(api.MPIJOBS, (world.namespace, "a"), change)


async def test_job_when_its_object_is_deleted_is_canceled(world: World, tmp_path: Path) -> None:
    await world.add_node("gpu-1", gpus=2)
    async with voda(world, tmp_path) as it:
        await world.submit(an_mpijob("a", world.namespace, least=1, most=2))
        await it.until_runs("a", 2)
        await world.client.delete(api.MPIJOBS, "a", world.namespace)
        await it.until_ended("a", "Canceled")
        [asked] = await it.facts(JobCancelRequested, it.id("a"))
        assert asked.reason == ObjectGone(object="MPIJob")
        await world.submit(an_mpijob("a", world.namespace, least=1, most=2))
        await it.until_runs_as("a", f"{it.id('a')}-2", 2)


async def test_job_when_deleted_while_voda_was_away_is_canceled_at_the_next_start(world: World, tmp_path: Path) -> None:
    await world.add_node("gpu-1", gpus=2)
    async with voda(world, tmp_path) as it:
        await world.submit(an_mpijob("a", world.namespace, least=1, most=2))
        await it.until_runs("a", 2)
    await world.client.delete(api.MPIJOBS, "a", world.namespace)
    async with voda(world, tmp_path) as it:
        await it.until_ended("a", "Canceled")


async def test_job_when_scaled_by_hand_is_set_back_to_the_plan(world: World, tmp_path: Path) -> None:
    await world.add_node("gpu-1", gpus=4)
    async with voda(world, tmp_path) as it:
        await world.submit(an_mpijob("a", world.namespace, least=1, most=4))
        await it.until_runs("a", 4)
        for by_hand in (6, 2):
            await changed(world, sized(by_hand))
            await world.until_it_is(lambda: has_size(world, "a", 4))
            await it.until_runs("a", 4)


async def test_job_when_scaled_while_voda_was_away_is_set_back_at_the_next_start(world: World, tmp_path: Path) -> None:
    await world.add_node("gpu-1", gpus=4)
    async with voda(world, tmp_path) as it:
        await world.submit(an_mpijob("a", world.namespace, least=1, most=4))
        await it.until_runs("a", 4)
    await changed(world, sized(6))
    async with voda(world, tmp_path) as it:
        await world.until_it_is(lambda: has_size(world, "a", 4))
        await it.until_runs("a", 4)


async def test_job_when_suspended_by_hand_is_resumed(world: World, tmp_path: Path) -> None:
    await world.add_node("gpu-1", gpus=2)
    async with voda(world, tmp_path) as it:
        await world.submit(an_mpijob("a", world.namespace, least=1, most=2))
        await it.until_runs("a", 2)
        suspended = {"spec": {"runPolicy": {"suspend": True}}}
        await changed(world, suspended)
        await it.until_lost("a", 0)
        await it.until_runs("a", 2)


async def test_job_when_its_annotations_ask_for_less_shrinks(world: World, tmp_path: Path) -> None:
    await world.add_node("gpu-1", gpus=4)
    async with voda(world, tmp_path) as it:
        await world.submit(an_mpijob("a", world.namespace, least=1, most=4))
        await it.until_runs("a", 4)
        less = {"metadata": {"annotations": {"voda.dev/max-replicas": "2"}}}
        await changed(world, less)
        await it.until_runs("a", 2)
        assert [fact.max_replicas for fact in await it.facts(JobChanged, it.id("a"))] == [2]


async def test_worker_when_its_pod_is_deleted_by_hand_comes_back(world: World, tmp_path: Path) -> None:
    await world.add_node("gpu-1", gpus=2)
    async with voda(world, tmp_path) as it:
        await world.submit(an_mpijob("a", world.namespace, least=2, most=2))
        await it.until_runs("a", 2)
        await world.client.delete(api.PODS, "a-worker-0", world.namespace)
        await it.until_lost("a", 0)
        await it.until_runs("a", 2)
        assert [fact.cause for fact in await it.facts(WorkerExited, it.id("a"))] == ["evicted"]


async def test_jobs_of_others_are_left_alone(world: World, tmp_path: Path) -> None:
    await world.add_node("gpu-1", gpus=4)
    ns = world.namespace
    async with voda(world, tmp_path) as it:
        await world.submit(an_mpijob("plain", ns, managed=False))
        await world.submit(an_mpijob("kueues", ns, labels={"kueue.x-k8s.io/queue-name": "q"}, suspend=True))
        await world.submit(an_mpijob("ours", ns, workers=1, least=1, most=1))
        await it.until_runs("ours", 1)
        assert it.phase(it.id("plain")) == it.phase(it.id("kueues")) == ""
        assert (await world.job("plain"))["spec"].get("runPolicy", {}).get("suspend") in (None, False)
        assert "voda.dev/job-id" not in (await world.job("kueues"))["metadata"].get("annotations", {})


async def has_size(world: World, name: str, workers: int) -> bool:
    return bool((await world.job(name))["spec"]["mpiReplicaSpecs"]["Worker"]["replicas"] == workers)
