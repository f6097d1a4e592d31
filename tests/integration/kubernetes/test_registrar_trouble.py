"""The registrar when something goes wrong about one object, on a real API server: all others go on."""

from collections.abc import Sequence
from typing import Any

from tests.kube.objects import a_pytorchjob, an_mpijob
from tests.kube.registry import a_registry
from tests.kube.world import World
from voda.domain.errors import StoreUnavailable
from voda.events.envelope import Fact
from voda.events.types import ActionFailed, JobCanceled
from voda.log.memory import MemoryStore


class Reluctant(MemoryStore):
    """Does not take what failed."""

    async def append(self, stream: str, expected_version: int, facts: Sequence[Fact], *, epoch: int = 0) -> int:
        if isinstance(facts[0].data, ActionFailed):
            raise StoreUnavailable("the log is away")
        return await super().append(stream, expected_version, facts, epoch=epoch)


def a_job(world: World, name: str, **changes: Any) -> dict[str, Any]:
    """Return an MPIJob as it is submitted to the API."""
    return an_mpijob(name, world.namespace, least=1, most=4, pool="v100", managed=False, **changes)


def unacceptable(world: World) -> dict[str, Any]:
    """Return an MPIJob that the API server refuses to make."""
    return a_job(world, "bad", worker_spec={"priority": "a word"})


async def test_registrar_when_a_failure_cannot_be_recorded_makes_the_other_objects_all_the_same(world: World) -> None:
    async with a_registry(world, Reluctant()) as registry:
        await registry.submit(unacceptable(world))
        good = (await registry.submit(a_job(world, "good"))).spec.job_id
        await registry.settle(lambda: bool(registry.uid(good)))


async def test_registrar_when_the_server_refuses_an_object_says_so_in_the_log(world: World) -> None:
    async with a_registry(world) as registry:
        bad = (await registry.submit(unacceptable(world))).spec.job_id
        await registry.settle(lambda: bool(registry.record(bad).last_error))
        assert "priority" in registry.record(bad).last_error


async def test_object_of_the_name_of_a_live_job_of_another_kind_waits_until_that_job_has_ended(world: World) -> None:
    await world.submit(an_mpijob("twin", world.namespace, least=1, most=2, pool="v100"))
    async with a_registry(world) as registry:
        job_id = f"{world.namespace}_twin"
        await registry.settle(lambda: bool(registry.uid(job_id)))
        await world.submit(a_pytorchjob("twin", world.namespace, workers=1, pool="v100"))
        await registry.settle(lambda: any("another name" in told.message for told in registry.announced))
        assert "another name" in await registry.why_refused("twin", "PyTorchJob")
        await registry.happens(JobCanceled(job_id=job_id))
        await registry.settle(lambda: bool(registry.uid(f"{job_id}-2")))
        assert registry.record(f"{job_id}-2").spec.kind == "PyTorchJob"
