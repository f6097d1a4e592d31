"""Workers that others evict, whose programs save and end with 0: a Job takes that for success, and voda does not."""

from pathlib import Path

import pytest

from tests.e2e.kubernetes.service import voda
from tests.kube.client import Object
from tests.kube.objects import a_jobset, an_indexed_job
from tests.kube.peers.jobs_world import JobsWorld
from tests.kube.peers.stages import SAVES_FOR_S
from voda.events.types import JobCompleted, WorkerExited

INDEX_0_ENDS = {"successPolicy": {"rules": [{"succeededIndexes": "0"}]}}
EXITS_AT_ONCE, SAVES = {SAVES_FOR_S: "0"}, {SAVES_FOR_S: "1"}


async def evict(world: JobsWorld, index: int) -> None:
    await world.request_eviction((await world.running("a"))[index]["metadata"]["name"])


@pytest.mark.parametrize("notes", [SAVES, EXITS_AT_ONCE], ids=["saves", "exits at once"])
@pytest.mark.parametrize("index", [0, 2])
async def test_worker_that_is_evicted_and_exits_0_runs_again(
    jobs_world: JobsWorld, tmp_path: Path, index: int, notes: dict[str, str]
) -> None:
    world = jobs_world
    await world.add_node("gpu-1", gpus=4)
    async with voda(world, tmp_path) as it:
        job = an_indexed_job("a", world.namespace, 4, least=1, most=4, worker_notes=notes, spec=INDEX_0_ENDS)
        await world.submit(job)
        await it.until_runs("a", 4)
        before, uid = await world.uids("a"), (await world.job("a"))["metadata"]["uid"]
        await evict(world, index)
        await it.until_lost("a", index)
        await it.until_runs("a", 4)
        if notes == SAVES:
            # Its Job never counted it.
            assert (await world.job("a"))["metadata"]["uid"] == uid
            after = await world.uids("a")
            assert {each for each in range(4) if after[each] != before[each]} == {index}
        assert "finished" not in {fact.cause for fact in await it.facts(WorkerExited, it.id("a"))}
        await world.end_worker("a", 0)
        await it.until_ended("a", "Completed")


async def test_job_that_ended_by_an_eviction_while_voda_was_away_is_made_anew_and_told_so(
    jobs_world: JobsWorld, tmp_path: Path
) -> None:
    world = jobs_world
    await world.add_node("gpu-1", gpus=2)
    async with voda(world, tmp_path) as it:
        job = an_indexed_job("a", world.namespace, 2, least=1, most=2, worker_notes=EXITS_AT_ONCE, spec=INDEX_0_ENDS)
        await world.submit(job)
        await it.until_runs("a", 2)
    uid = (await world.job("a"))["metadata"]["uid"]
    await evict(world, 0)
    await world.until_it_is(lambda: has_succeeded(world))
    async with voda(world, tmp_path) as it:
        await it.until_runs("a", 2)
        assert (await world.job("a"))["metadata"]["uid"] != uid
        assert not await it.facts(JobCompleted)

        async def is_told() -> bool:
            return any("took for the success of replica 0" in said for said in await world.told("a", "Recreated"))

        await it.until(is_told)
        await world.end_all("a")
        await it.until_ended("a", "Completed")


async def test_index_that_was_evicted_while_voda_was_away_runs_again(jobs_world: JobsWorld, tmp_path: Path) -> None:
    world = jobs_world
    await world.add_node("gpu-1", gpus=4)
    async with voda(world, tmp_path) as it:
        await world.submit(an_indexed_job("a", world.namespace, 4, least=1, most=4, worker_notes=EXITS_AT_ONCE))
        await it.until_runs("a", 4)
    before = await world.job("a"), await world.uids("a")
    await evict(world, 2)
    await world.until_it_is(lambda: has_counted(world, "2"))
    async with voda(world, tmp_path) as it:
        await it.until_runs("a", 4)
        now = await world.job("a"), await world.uids("a")
        assert now[0]["metadata"]["uid"] == before[0]["metadata"]["uid"]
        assert [now[1][index] for index in (0, 1)] == [before[1][index] for index in (0, 1)]
        await world.end_all("a")
        await it.until_ended("a", "Completed")


async def test_jobset_that_ended_by_an_eviction_is_made_anew(jobsets_world: JobsWorld, tmp_path: Path) -> None:
    world = jobsets_world
    await world.add_node("gpu-1", gpus=2)
    async with voda(world, tmp_path) as it:
        job: Object = a_jobset("a", world.namespace, 2, least=1, most=2, worker_notes=EXITS_AT_ONCE, job=INDEX_0_ENDS)
        await world.submit(job)
        await it.until_runs("a", 2)
    uid = (await world.job("a", "JobSet"))["metadata"]["uid"]
    await evict(world, 0)

    async def is_over() -> bool:
        return any(each["type"] == "Completed" for each in (await world.job("a", "JobSet"))["status"]["conditions"])

    await world.until_it_is(is_over)
    async with voda(world, tmp_path) as it:
        await it.until_runs("a", 2)
        assert (await world.job("a", "JobSet"))["metadata"]["uid"] != uid
        assert not await it.facts(JobCompleted)


async def has_succeeded(world: JobsWorld) -> bool:
    return any(each["type"] == "Complete" for each in (await world.job("a"))["status"].get("conditions", ()))


async def has_counted(world: JobsWorld, indices: str) -> bool:
    return bool((await world.job("a"))["status"].get("completedIndexes", "") == indices)
