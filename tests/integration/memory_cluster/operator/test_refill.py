"""What a cluster adds to pods changes: jobs are planned by what their pods ask for then, one by one."""

from collections.abc import Mapping

from tests.kube.client import Resource
from tests.kube.memory_api import Wire
from tests.kube.memory_world import POOL, MemoryWorld, Replica
from tests.kube.objects import an_mpijob
from tests.kube.operators.mpi_v2 import MpiOperatorV2
from tests.virtual_time import virtually
from voda.application.halt_job import halt
from voda.auth.callers import Caller
from voda.domain.node import PodNeeds

LIMIT_RANGES = Resource("LimitRange", "v1", "limitranges")
MOST_BYTES = 20_000
CPUS = PodNeeds(requests={"cpu": 2_000})


async def submitted(world: MemoryWorld, replica: Replica, user: str) -> str:
    manifest = an_mpijob(f"of-{user}", world.namespace, 1, least=1, most=1, pool=POOL)
    outcome = await replica.service.backend.submits.submit(manifest, Caller(user=user, role="admin"))
    return outcome.record.spec.job_id


async def ask_for_two_cpus(world: MemoryWorld) -> None:
    """Let containers that say nothing ask for two CPUs."""
    metadata = {"name": "by-default", "namespace": world.namespace}
    limits = [{"type": "Container", "defaultRequest": {"cpu": "2"}}]
    await world.client.create(LIMIT_RANGES, {"metadata": metadata, "spec": {"limits": limits}})


def needs(replica: Replica, *job_ids: str) -> Mapping[str, PodNeeds | None]:
    live = replica.service.view.cluster
    return {job_id: job.spec.needs for job_id in job_ids if (job := live.job(job_id)) is not None}


async def user_who_has_written_too_much() -> None:
    async with MemoryWorld(1, [MpiOperatorV2]) as world:
        world.server.serve(LIMIT_RANGES)
        async with world.replica(Wire(1), logBytesPerUser=MOST_BYTES) as replica:
            await world.until(lambda: replica.service.leadership.is_leading and replica.service.mirror.is_synced)
            ada, bob = [await submitted(world, replica, user) for user in ("ada", "bob")]
            journal = replica.service.backend.journal
            journal.quota.charge("ada", MOST_BYTES, journal.clock.now())
            await ask_for_two_cpus(world)
            await world.until(lambda: needs(replica, bob) == {bob: CPUS})
            assert needs(replica, ada) == {ada: None}
            await world.until(lambda: needs(replica, ada) == {ada: CPUS}, within_s=5_000.0)


def test_user_who_has_written_too_much_keeps_nobody_elses_job_from_what_its_pods_ask_for_now() -> None:
    virtually(user_who_has_written_too_much())


async def job_at_work() -> None:
    async with MemoryWorld(1, [MpiOperatorV2]) as world:
        world.server.serve(LIMIT_RANGES)
        await world.add_node("n1", 1, POOL)
        async with world.replica(Wire(1)) as replica:
            await world.until(lambda: replica.service.leadership.is_leading and replica.service.mirror.is_synced)
            ada, bob = [await submitted(world, replica, user) for user in ("ada", "bob")]
            live = replica.service.view.cluster
            await world.until(lambda: bool((job := live.job(ada)) and job.workers))
            await ask_for_two_cpus(world)
            await world.until(lambda: needs(replica, bob) == {bob: CPUS})
            assert needs(replica, ada) == {ada: None}
            record = replica.service.view.job_registry.job(ada)
            assert record is not None
            await halt(replica.service.backend.journal, record, Caller(user="ada", role="user"))
            await world.until(lambda: needs(replica, ada) == {ada: CPUS})


def test_job_at_work_asks_for_what_its_next_pods_will_once_its_workers_have_left() -> None:
    virtually(job_at_work())
