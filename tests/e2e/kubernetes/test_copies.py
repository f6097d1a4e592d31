"""Objects and pods that say they are a job's and are not: copied with kubectl, made again, or forged."""

from copy import deepcopy
from pathlib import Path

from tests.e2e.kubernetes.service import Voda, voda
from tests.kube import client as api
from tests.kube.client import Object
from tests.kube.objects import a_pod, an_mpijob
from tests.kube.world import World
from voda.domain.node import Node
from voda.events.types import JobCanceled, WorkerExited

COPIED = ("uid", "resourceVersion", "creationTimestamp", "generation", "selfLink", "managedFields")
"""What kubectl create drops, or the server."""


def a_copy(found: Object, name: str = "") -> Object:
    """Return what `kubectl get -o yaml | kubectl create -f -` sends, under another name if one is given."""
    copy = deepcopy(found)
    for field in COPIED:
        copy["metadata"].pop(field, None)
    copy["metadata"]["name"] = name or found["metadata"]["name"]
    copy.pop("status", None)
    return copy


async def test_job_when_its_saved_object_is_created_again_after_a_deletion_runs_as_a_new_job(
    world: World, tmp_path: Path
) -> None:
    await world.add_node("gpu-1", gpus=2)
    async with voda(world, tmp_path) as it:
        await world.submit(an_mpijob("a", world.namespace, least=2, most=2))
        await it.until_runs("a", 2)
        saved = a_copy(await world.job("a"))
        await world.client.delete(api.MPIJOBS, "a", world.namespace)
        await it.until_ended("a", "Canceled")
        await world.until_gone("a")
        made = await world.submit(saved)
        await it.until_runs_as("a", f"{it.id('a')}-2", 2)
        now = await world.job("a")
        assert now["metadata"]["uid"] == made["metadata"]["uid"]
        assert [fact.job_id for fact in await it.facts(JobCanceled)] == [it.id("a")]


async def test_job_when_its_object_is_copied_under_another_name_is_not_disturbed(world: World, tmp_path: Path) -> None:
    await world.add_node("gpu-1", gpus=4)
    async with voda(world, tmp_path) as it:
        await world.submit(an_mpijob("a", world.namespace, least=2, most=2))
        await it.until_runs("a", 2)
        await world.submit(a_copy(await world.job("a"), "b"))
        await it.until_runs("b", 2)
        assert it.nodes(it.id("a")) == ["gpu-1", "gpu-1"]
        assert not await it.facts(WorkerExited, it.id("a"))


async def test_job_when_an_unmanaged_copy_of_its_object_makes_pods_is_not_disturbed(
    world: World, tmp_path: Path
) -> None:
    await world.add_node("gpu-1", gpus=4)
    async with voda(world, tmp_path) as it:
        await world.submit(an_mpijob("a", world.namespace, least=1, most=2))
        await it.until_runs("a", 2)
        copy = a_copy(await world.job("a"), "b")
        del copy["metadata"]["labels"]["voda.dev/managed"]
        await world.submit(copy)
        await world.until_it_is(lambda: _has_pods(world, "b", 2))
        await world.client.delete(api.PODS, "a-worker-0", world.namespace)
        await it.until_lost("a", 0)
        await it.until_runs("a", 2)
        await world.end_launcher("a")
        await it.until_ended("a", "Completed")
        await world.until_it_is(lambda: _has_pods(world, "a", 0))
        assert [len(await world.workers_of(name)) for name in "ab"] == [0, 2]
        assert not (await world.job("b"))["spec"]["runPolicy"].get("suspend")


async def test_pod_of_a_stranger_that_says_it_is_a_worker_is_neither_counted_nor_deleted(
    world: World, tmp_path: Path
) -> None:
    await world.add_node("gpu-1", gpus=4)
    stranger = f"{world.namespace}-stranger"
    await world.add_namespace(stranger)
    async with voda(world, tmp_path) as it:
        await world.submit(an_mpijob("a", world.namespace, least=1, most=2))
        await it.until_runs("a", 2)
        forged = await world.client.get(api.PODS, "a-worker-1", world.namespace)
        notes, labels = forged["metadata"]["annotations"], forged["metadata"]["labels"]
        said = {"annotations": notes, "labels": labels}
        await world.client.create(api.PODS, a_pod("a-worker-1", stranger, gpus=1, node="gpu-1", **said))
        await world.until(lambda: _node(it, "gpu-1").foreign_gpus == 1)
        await world.end_launcher("a")
        await it.until_ended("a", "Completed")
        await world.until_it_is(lambda: _has_pods(world, "a", 0))
        assert await world.client.find(api.PODS, "a-worker-1", stranger) is not None
        assert not [fact for fact in await it.facts(WorkerExited, it.id("a")) if fact.cause == "evicted"]


async def test_copied_worker_pod_is_counted_as_anothers(world: World, tmp_path: Path) -> None:
    await world.add_node("gpu-1", gpus=4)
    async with voda(world, tmp_path) as it:
        await world.submit(an_mpijob("a", world.namespace, least=2, most=2))
        await it.until_runs("a", 2)
        pod = a_copy(await world.client.get(api.PODS, "a-worker-1", world.namespace), "a-debug")
        await world.client.create(api.PODS, pod)
        await world.until(lambda: _node(it, "gpu-1").foreign_gpus == 1)
        await world.client.delete(api.PODS, "a-debug", world.namespace)
        await world.until(lambda: _node(it, "gpu-1").foreign_gpus == 0)
        assert len(it.nodes(it.id("a"))) == 2


async def _has_pods(world: World, name: str, count: int) -> bool:
    return len(await world.workers_of(name)) == count


def _node(it: Voda, name: str) -> Node:
    return it.service.view.cluster.nodes("v100")[name]
