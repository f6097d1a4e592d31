"""Workers and launchers that fail or are evicted, on a real API server, for both MPIJob versions and PyTorchJobs."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.e2e.kubernetes.service import Voda, voda
from tests.kube.objects import a_node, a_pytorchjob, an_mpijob, an_mpijob_v1
from tests.kube.world import World
from voda.events.text.failures import failure_text
from voda.events.types import JobFailed, WorkerExited


async def causes(it: Voda, name: str) -> Sequence[str]:
    return [fact.cause for fact in await it.facts(WorkerExited, it.id(name))]


async def test_mpijob_when_a_worker_is_evicted_loses_that_worker_and_gets_it_back(world: World, tmp_path: Path) -> None:
    await world.add_node("gpu-1", gpus=4)
    async with voda(world, tmp_path) as it:
        await world.submit(an_mpijob("a", world.namespace, least=1, most=4))
        await it.until_runs("a", 4)
        await world.kubelet.evict(world.namespace, "a-worker-1")
        await it.until_lost("a", 1)
        await it.until_runs("a", 4)
        assert await causes(it, "a") == ["evicted"]
        assert it.phase(it.id("a")) == "Running"
        await world.end_launcher("a")
        await it.until_ended("a", "Completed")


async def test_mpijob_when_a_worker_fails_by_itself_gets_it_back(world: World, tmp_path: Path) -> None:
    await world.add_node("gpu-1", gpus=2)
    async with voda(world, tmp_path) as it:
        await world.submit(an_mpijob("a", world.namespace, least=1, most=2))
        await it.until_runs("a", 2)
        await world.kubelet.exit(world.namespace, "a-worker-0", 3)
        await it.until_lost("a", 0)
        await it.until_runs("a", 2)
        exits = await it.facts(WorkerExited, it.id("a"))
        assert [(each.workers, each.cause, each.exit_code) for each in exits] == [((0,), "failed", 3)]


async def test_mpijob_when_workers_fail_more_often_than_allowed_has_failed(world: World, tmp_path: Path) -> None:
    await world.add_node("gpu-1", gpus=2)
    async with voda(world, tmp_path) as it:
        await world.submit(an_mpijob("a", world.namespace, least=1, most=2, policy={"backoffLimit": 1}))
        for turn in range(2):
            await it.until_runs("a", 2)
            await world.kubelet.exit(world.namespace, "a-worker-0", 3)
            await it.until_lost("a", 0, times=turn + 1)
        await it.until_ended("a", "Failed")
        [end] = await it.facts(JobFailed, it.id("a"))
        assert "backoffLimit 1" in failure_text(end.reason)
        await world.until_it_is(lambda: is_empty(world, "a"))


async def test_mpijob_when_its_launcher_fails_for_good_has_failed_and_frees_its_gpus(
    world: World, tmp_path: Path
) -> None:
    await world.add_node("gpu-1", gpus=2)
    async with voda(world, tmp_path) as it:
        await world.submit(an_mpijob("a", world.namespace, least=1, most=2, policy={"backoffLimit": 0}))
        await it.until_runs("a", 2)
        await world.end_launcher("a", exit_code=7)
        await it.until_ended("a", "Failed")
        [end] = await it.facts(JobFailed, it.id("a"))
        assert "backoffLimit" in failure_text(end.reason)
        # With cleanPodPolicy None the operator leaves the workers where they are: their GPUs are freed all the same.
        await world.until_it_is(lambda: is_empty(world, "a"))


async def test_mpijob_v1_when_a_worker_is_evicted_is_made_anew_and_goes_on(world_v1: World, tmp_path: Path) -> None:
    world = world_v1
    await world.add_node("gpu-1", gpus=2)
    async with voda(world, tmp_path) as it:
        await world.submit(an_mpijob_v1("a", world.namespace, least=1, most=2))
        await it.until_runs("a", 2)
    # While voda runs it may clear the pod away before its operator has seen that it failed.
    await world.kubelet.evict(world.namespace, "a-worker-1")
    await world.until_restarting("a")
    async with voda(world, tmp_path) as it:
        await it.until_lost("a", 1)
        await it.until_runs("a", 2)
        await world.end_launcher("a")
        await it.until_ended("a", "Completed")


@pytest.mark.parametrize("masters", [0, 1])
async def test_pytorchjob_when_a_worker_is_evicted_gets_it_back_and_completes(
    world: World, tmp_path: Path, masters: int
) -> None:
    await world.add_node("gpu-1", gpus=3)
    async with voda(world, tmp_path) as it:
        await world.submit(a_pytorchjob("a", world.namespace, workers=2, least=1, most=3, masters=masters))
        await it.until_runs("a", 3)
        await world.kubelet.evict(world.namespace, "a-worker-1")
        await it.until_lost("a", 1 + masters)
        await it.until_runs("a", 3)
        # The others end for it, and all start together.
        found = await causes(it, "a")
        assert (set(found), found.count("evicted")) == ({"evicted", "stopped"}, 1)
        await world.kubelet.exit(world.namespace, "a-master-0" if masters else "a-worker-0", 0)
        await it.until_ended("a", "Completed")


async def test_pytorchjob_that_never_restarts_survives_a_migration(world: World, tmp_path: Path) -> None:
    await world.add_nodes(a_node("gpu-1", 1), a_node("gpu-2", 1))
    async with voda(world, tmp_path) as it:
        await world.submit(a_pytorchjob("a", world.namespace, workers=1, least=1, most=1, restart="Never"))
        await it.until_runs("a", 1)
        [first] = it.nodes(it.id("a"))
        await world.give_to_pool(first, "a100")
        await it.until_lost("a", 0)
        await it.until_runs("a", 1)
        assert it.nodes(it.id("a")) != [first]
        # training-operator deletes a pod that has failed by its name alone: at times that is its successor's by then.
        cause, *others = await causes(it, "a")
        assert cause == "migrated"
        assert {*others} <= {"evicted"}


async def is_empty(world: World, name: str) -> bool:
    return not await world.running_workers(name)
