"""Arrays and dependencies of objects in a cluster: by annotations, and by a submit that creates all objects."""

from typing import Any

from tests.integration.kubernetes.test_adoption import a_job, an_unmanaged
from tests.kube.registry import Registry, a_registry
from tests.kube.world import World


def annotated(**annotations: str) -> dict[str, Any]:
    return {"annotations": {f"voda.dev/{name.replace('_', '-')}": value for name, value in annotations.items()}}


def job_id(world: World, name: str) -> str:
    return f"{world.namespace}_{name}"


async def has_object(registry: Registry, world: World, *names: str) -> None:
    await registry.settle(lambda: all(registry.uid(job_id(world, name)) for name in names))


async def test_object_waits_for_another_that_is_applied_after_it(world: World) -> None:
    await world.submit(a_job(world, "report", suspend=True, **annotated(after="train:any")))
    async with a_registry(world) as registry:
        await registry.settle(lambda: bool(registry.announced))
        assert [told.reason for told in registry.announced] == ["NotAccepted"]
        assert "there is no job or array 'train'" in await registry.why_refused("report")
        await world.submit(a_job(world, "train", suspend=True))
        await has_object(registry, world, "train", "report")
        spec = registry.record(job_id(world, "report")).spec
        assert [(each.job_id, each.condition) for each in spec.after] == [(job_id(world, "train"), "any")]


async def test_objects_of_an_array_are_its_tasks(world: World) -> None:
    async with a_registry(world) as registry:
        for index in (2, 0, 1):
            task = annotated(array="0-2%1", array_name="sweep", array_task=str(index))
            await world.submit(a_job(world, f"sweep-{index}", suspend=True, **task))
        await has_object(registry, world, "sweep-0", "sweep-1", "sweep-2")
        specs = [registry.record(job_id(world, f"sweep-{index}")).spec for index in range(3)]
        found = await world.job("sweep-1")
    assert len({spec.array and spec.array.array_id for spec in specs}) == 1
    assert [spec.array and (spec.array.index, spec.array.at_once) for spec in specs] == [(0, 1), (1, 1), (2, 1)]
    env = found["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]["env"]
    assert {"name": "VODA_ARRAY_TASK_ID", "value": "1"} in env


async def test_object_that_says_that_it_is_a_whole_array_is_refused(world: World) -> None:
    await world.submit(a_job(world, "sweep", suspend=True, **annotated(array="0-2")))
    async with a_registry(world) as registry:
        await registry.settle(lambda: bool(registry.announced))
        assert [told.reason for told in registry.announced] == ["Invalid"]
        assert "an object is one task" in await registry.why_refused("sweep")


async def test_submitted_array_gets_an_object_for_each_task(world: World) -> None:
    async with a_registry(world) as registry:
        record = await registry.submit(an_unmanaged(world, "sweep", **annotated(array="0-2%2")))
        assert record.spec.job_id == job_id(world, "sweep-0")
        await has_object(registry, world, "sweep-0", "sweep-1", "sweep-2")
        found = await world.job("sweep-2")
        await registry.step()
        assert len(await registry.events("job.submitted")) == 3
    assert found["metadata"]["annotations"]["voda.dev/array-task"] == "2"
    env = found["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"][0]["env"]
    assert {"name": "VODA_ARRAY_TASK_COUNT", "value": "3"} in env
