"""Indexed Jobs whose pods fail, are evicted or are lost with their node, and voda killed in between."""

from pathlib import Path
from typing import Any

import pytest

from tests.e2e.kubernetes.replica import Replica
from tests.e2e.kubernetes.service import AT_ONCE, refuse_unverified, voda
from tests.kube.objects import a_node, an_indexed_job
from tests.kube.peers.jobs_world import JobsWorld
from voda.events.text.failures import failure_text
from voda.events.types import JobFailed, WorkerExited


async def test_pod_that_fails_is_made_again_as_backoff_limit_allows(jobs_world: JobsWorld, tmp_path: Path) -> None:
    world = jobs_world
    await world.add_node("gpu-1", gpus=2)
    async with voda(world, tmp_path) as it:
        await world.submit(an_indexed_job("a", world.namespace, 2, least=1, most=2, spec={"backoffLimit": 1}))
        await it.until_runs("a", 2)
        await world.end_worker("a", 1, exit_code=3)
        await it.until_lost("a", 1)
        await it.until_runs("a", 2)
        await world.end_worker("a", 1, exit_code=4)
        await it.until_ended("a", "Failed")
        [end] = await it.facts(JobFailed, it.id("a"))
        assert "ended with exit code 4" in failure_text(end.reason)
        assert "backoffLimit" in failure_text(end.reason)
        exits = [(fact.cause, fact.exit_code) for fact in await it.facts(WorkerExited, it.id("a"))]
        assert ("failed", 3) in exits
        await world.submit(an_indexed_job("b", world.namespace, 2, least=2, most=2))
        await it.until_runs("b", 2)


async def test_exit_code_that_pod_failure_policy_names_fails_the_job_at_once(
    jobs_world: JobsWorld, tmp_path: Path
) -> None:
    world = jobs_world
    await world.add_node("gpu-1", gpus=2)
    rule = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}
    async with voda(world, tmp_path) as it:
        policy = {"podFailurePolicy": {"rules": [rule]}}
        await world.submit(an_indexed_job("a", world.namespace, 2, least=1, most=2, spec=policy))
        await it.until_runs("a", 2)
        await world.end_worker("a", 0, exit_code=42)
        await it.until_ended("a", "Failed")
        [end] = await it.facts(JobFailed, it.id("a"))
        assert "exit code 42" in failure_text(end.reason)
        assert "PodFailurePolicy" in failure_text(end.reason)


async def test_index_that_fails_too_often_fails_the_job_only_where_it_says_so(
    jobs_world: JobsWorld, tmp_path: Path
) -> None:
    world = jobs_world
    await world.add_node("gpu-1", gpus=2)
    limits: dict[str, Any] = {"backoffLimitPerIndex": 0, "maxFailedIndexes": 0}
    async with voda(world, tmp_path) as it:
        await world.submit(an_indexed_job("a", world.namespace, 2, least=1, most=2, spec=limits))
        await it.until_runs("a", 2)
        await world.end_worker("a", 1, exit_code=5)
        await it.until_ended("a", "Failed")
        [end] = await it.facts(JobFailed, it.id("a"))
        assert "exit code 5" in failure_text(end.reason)


async def test_index_that_failed_for_good_gives_its_gpu_away_and_is_told(jobs_world: JobsWorld, tmp_path: Path) -> None:
    world = jobs_world
    await world.add_node("gpu-1", gpus=8)
    async with voda(world, tmp_path) as it:
        spec = {"backoffLimitPerIndex": 0}
        await world.submit(an_indexed_job("a", world.namespace, 4, least=4, most=4, spec=spec))
        await it.until_runs("a", 4)
        await world.submit(an_indexed_job("b", world.namespace, 5, least=5, most=5))
        await world.end_worker("a", 2, exit_code=5)
        await it.until_runs("b", 5)
        job = it.job(it.id("a"))
        assert job is not None
        assert (sorted(job.workers), job.done) == ([0, 1, 3], (2,))
        assert ("failed_for_good", (2,)) in [(e.cause, e.workers) for e in await it.facts(WorkerExited, it.id("a"))]
        await world.until_it_is(lambda: is_told_of_it(world))
        await world.end_all("a")
        await it.until_ended("a", "Failed")


async def is_told_of_it(world: JobsWorld) -> bool:
    return any("failed for good" in said for said in await world.told("a"))


async def test_evicted_pod_counts_against_nothing(jobs_world: JobsWorld, tmp_path: Path) -> None:
    world = jobs_world
    await world.add_node("gpu-1", gpus=2)
    async with voda(world, tmp_path) as it:
        await world.submit(an_indexed_job("a", world.namespace, 2, least=1, most=2, spec={"backoffLimit": 0}))
        await it.until_runs("a", 2)
        before = await world.uids("a")
        await world.request_eviction((await world.running("a"))[1]["metadata"]["name"])
        await it.until_lost("a", 1)
        await it.until_runs("a", 2)
        assert (await world.uids("a"))[0] == before[0]
        assert it.phase(it.id("a")) == "Running"
        assert (await world.job("a"))["status"].get("failed", 0) == 0


@pytest.mark.parametrize("is_deleted", [True, False])
async def test_lost_node_is_no_failure_and_its_indices_run_elsewhere(
    jobs_world: JobsWorld, tmp_path: Path, is_deleted: bool
) -> None:
    world = jobs_world
    await world.add_nodes(a_node("gpu-1", 2), a_node("gpu-2", 2))
    pools = {"v100": {**AT_ONCE, "nodeGraceSeconds": 2.0}}
    async with voda(world, tmp_path, pools=pools) as it:
        # A silent node is waited for until the grace is over, and then for half a minute.
        hasty = {"terminationGracePeriodSeconds": 1}
        limit = {"backoffLimit": 0}
        await world.submit(an_indexed_job("a", world.namespace, 4, least=2, most=4, spec=limit, worker_spec=hasty))
        await it.until_runs("a", 4)
        if is_deleted:
            await world.remove_node("gpu-2")
        else:
            await world.lose_node("gpu-2")
        await it.until_runs("a", 2)
        assert set(it.nodes(it.id("a"))) == {"gpu-1"}
        await world.add_node("gpu-3", gpus=2)
        await it.until_runs("a", 4)
        assert it.phase(it.id("a")) == "Running"
        await world.end_all("a")
        await it.until_ended("a", "Completed")


async def test_job_goes_on_though_voda_is_killed_while_it_grows_and_ends(jobs_world: JobsWorld, tmp_path: Path) -> None:
    world, log = jobs_world, tmp_path / "voda.db"
    await world.add_node("gpu-1", gpus=2)
    replicas: list[Replica] = []

    def start() -> Replica:
        replicas.append(Replica(world, tmp_path / f"replica-{len(replicas)}", str(log)))
        return replicas[-1]

    try:
        replica = start()
        await world.submit(an_indexed_job("a", world.namespace, 1, least=1, most=6))
        await world.until_running("a", 2)
        replica.kill()
        before = await world.uids("a")
        await world.add_node("gpu-2", gpus=2)
        replica = start()
        # Killed as soon as the size is written, before any gate of the new pods is lifted.
        await world.until_it_is(lambda: is_sized(world, 4))
        replica.kill()
        replica = start()
        await world.until_running("a", 4)
        now = await world.uids("a")
        assert {index: now[index] for index in before} == before
        replica.kill()
        await world.end_all("a")
        start()
        await world.until_it_is(lambda: has_completed(world))
    finally:
        for each in replicas:
            each.kill()
    async with voda(world, tmp_path) as it:
        await it.until_ended("a", "Completed")
    await refuse_unverified(log)


async def is_sized(world: JobsWorld, replicas: int) -> bool:
    return bool((await world.job("a"))["spec"]["parallelism"] == replicas)


async def has_completed(world: JobsWorld) -> bool:
    return await world.has_condition("a", "Complete", "Job")
