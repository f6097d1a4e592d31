"""Programs that must not begin a second time: the annotation voda.dev/restartable on a real Kubernetes."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.kubernetes.service import AT_ONCE, Voda, voda
from tests.e2e.kubernetes.user_kinds import JOB, JOBSET, UserKind, kind_world
from tests.kube.client import PODS, Object
from tests.kube.objects import a_pytorchjob, an_indexed_job, an_mpijob
from tests.kube.peers.jobs_world import JobsWorld
from tests.kube.peers.world import PeeredWorld
from voda.events.types import WorkerStarted
from voda.projections.jobs.record_text import explanation_text

__all__ = ["kind_world"]
ONCE = {"voda.dev/restartable": "never"}


async def until_failed(it: Voda, why: str) -> None:
    """Wait until the job has failed for a reason; its workers were started once."""
    await it.until_ended("once", "Failed")
    assert why in explanation_text(it.record("once"))
    started = [index for fact in await it.facts(WorkerStarted, it.id("once")) for index in fact.workers]
    assert sorted(started) == [0, 1]


async def lose_and_check(world: PeeredWorld, log: Path, job: Object, why: str = "not restartable") -> None:
    """Run a job of two workers, have one evicted by its node, and look that nothing begins again."""
    await world.add_node("gpu-1", 2)
    async with voda(world, log, pools={"v100": dict(AT_ONCE)}) as it:
        await world.submit(job)
        await it.until_runs("once", 2)
        # Nobody takes it away.
        await world.submit(
            {**job, "metadata": {**job["metadata"], "name": "rival", "annotations": {"voda.dev/priority": "10"}}}
        )

        async def is_known() -> bool:
            return it.job(it.id("rival")) is not None and bool(it.record("rival").reason)

        await it.until(is_known)
        await it.until_runs("once", 2)
        [pod, *_] = sorted(
            pod["metadata"]["name"]
            for pod in await world.client.list(PODS, world.namespace)
            if pod["status"].get("phase") == "Running"
            and pod["metadata"]["name"].startswith("once")
            and "launcher" not in pod["metadata"]["name"]
        )
        await world.kubelet.evict(world.namespace, pod)
        await until_failed(it, why)
        # Its GPUs are for others.
        await it.until_runs("rival", 2)


@pytest.mark.parametrize("kind", [JOB, JOBSET], ids=str)
async def test_job_of_its_own_controller_is_not_preempted_and_fails_with_its_first_worker(
    kind: UserKind, kind_world: JobsWorld, tmp_path: Path
) -> None:
    await lose_and_check(kind_world, tmp_path, kind.make("once", kind_world.namespace, 2, annotations=ONCE))


@pytest.mark.parametrize("make", [a_pytorchjob], ids=["PyTorchJob"])
async def test_job_of_training_operator_is_not_preempted_and_fails_with_its_first_worker(
    make: Callable[..., Object], world_v1: PeeredWorld, tmp_path: Path
) -> None:
    job = make("once", world_v1.namespace, annotations=ONCE, restart="Never", least=2, most=2)
    # Its operator is as fast to say so.
    await lose_and_check(world_v1, tmp_path, job, why="")


async def test_mpijob_is_not_preempted_and_fails_with_its_first_worker(world: PeeredWorld, tmp_path: Path) -> None:
    await lose_and_check(world, tmp_path, an_mpijob("once", world.namespace, annotations=ONCE))


async def test_job_whose_node_is_lost_has_failed_and_another_node_stays_empty(
    jobs_world: JobsWorld, tmp_path: Path
) -> None:
    world = jobs_world
    await world.add_node("gpu-1", 2)
    async with voda(world, tmp_path, pools={"v100": dict(AT_ONCE)}) as it:
        await world.submit(an_indexed_job("once", world.namespace, 2, annotations=ONCE))
        await it.until_runs("once", 2)
        await world.add_node("gpu-2", 2)
        await world.remove_node("gpu-1")
        await until_failed(it, "not restartable")
