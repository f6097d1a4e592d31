"""Claims about what users are told on their objects, on a real API server: Events and JobStates."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from tests.kube import client
from tests.kube.objects import an_mpijob
from tests.kube.registry import Registry, a_registry
from tests.kube.world import World
from tests.reasons import worded
from voda.cluster.kubernetes.objects import JobObject
from voda.domain.plan import ExpectedTimes
from voda.domain.reasons.nodes import Said
from voda.events.types import (
    JobCompleted,
    JobFailed,
    JobRegistered,
    PlanAdopted,
    WorkerExited,
    WorkerStarted,
)
from voda.log.memory import MemoryStore

NODES = ("n1", "n1")


@asynccontextmanager
async def a_told_job(world: World, store: MemoryStore | None = None) -> AsyncIterator[Registry]:
    """Yield a registry that tells, with a job `digits` whose object is there; of a new log, if none is given."""
    async with a_registry(world, store, announces=True) as registry:
        if await registry.backend.journal.store.position() == 0:
            await world.submit(an_mpijob("digits", world.namespace, least=1, most=4, pool="v100", suspend=True))
        job_id = job_of(world)
        await registry.settle(lambda: bool(registry.uid(job_id)))
        await world.until_it_is(lambda: registry.note("digits", "voda.dev/job-id"))
        reporter = asyncio.create_task(registry.reporter.run())
        try:
            yield registry
        finally:
            reporter.cancel()
            with suppress(asyncio.CancelledError):
                await reporter


def job_of(world: World) -> str:
    """Return the id of the job `digits`."""
    return f"{world.namespace}_digits"


def a_plan(number: int, world: World, *nodes: str, why: str = "fits") -> PlanAdopted:
    """Return a plan that gives the job these nodes; none: takes all away."""
    job_id = job_of(world)
    return PlanAdopted(
        pool="v100",
        number=number,
        based_on=0,
        policy="elastic-fifo",
        placer="steady",
        cause="job.submitted",
        placed={job_id: nodes} if nodes else {},
        released=() if nodes else (job_id,),
        reasons={job_id: worded(why)},
    )


async def has_told(registry: Registry, reason: str) -> bool:
    """Say whether an Event of that reason is there."""
    return reason in await registry.told("digits")


async def shows(registry: Registry, field: str, value: str | None) -> bool:
    """Say whether the JobState has a field of that value."""
    return (await registry.state("digits")).get(field) == value


async def finish_of(world: World, registry: Registry) -> str:
    """Return the estimated finish that is shown, once there is one."""

    async def is_shown() -> bool:
        return bool((await registry.state("digits")).get("estimatedFinish"))

    await world.until_it_is(is_shown)
    return str((await registry.state("digits"))["estimatedFinish"])


async def test_job_tells_its_life_on_its_object(world: World) -> None:
    async with a_told_job(world) as registry:
        job_id = job_of(world)
        await world.until_it_is(lambda: shows(registry, "state", "Waiting"))
        await registry.happens(a_plan(1, world, *NODES, why="2 of 2 GPUs it wishes"))
        await world.until_it_is(lambda: shows(registry, "state", "Starting 0/2"))
        await world.until_it_is(lambda: shows(registry, "explanation", "2 of 2 GPUs it wishes"))
        await registry.happens(WorkerStarted(job_id=job_id, workers={0: "n1", 1: "n1"}))
        await world.until_it_is(lambda: shows(registry, "state", "Running 2/2"))
        await registry.happens(a_plan(2, world, *NODES, "n2", why="GPUs became free"))
        await registry.happens(a_plan(3, world, "n1", "n3", "n2", why="consolidates"))
        await registry.happens(WorkerExited(job_id=job_id, workers=(1,), cause="evicted"))
        await registry.happens(a_plan(4, world, why="makes room for other"))
        await registry.happens(WorkerExited(job_id=job_id, workers=(0,)))
        await world.until_it_is(lambda: shows(registry, "state", "Preempted"))
        await registry.happens(a_plan(5, world, "n1", why="its turn"))
        await registry.happens(WorkerStarted(job_id=job_id, workers={0: "n1"}))
        await registry.happens(JobCompleted(job_id=job_id))
        await world.until_it_is(lambda: shows(registry, "state", "Completed"))
        await world.until_it_is(lambda: has_told(registry, "Completed"))
        told = await registry.told("digits")
    assert told == {
        "Queued": f"queued as job {job_id} in pool v100: 1 to 4 workers of 1 GPU, for user {world.namespace}",
        "Started": "started with 2 workers on n1 x2: 2 of 2 GPUs it wishes",
        "Resized": "2 -> 3 workers: GPUs became free",
        "Migrated": "moves worker 1 from n1 to n3: consolidates",
        "WorkerLost": "worker 1 was evicted",
        "Preempted": "gives up 3 workers: makes room for other",
        "Resumed": "resumed with 1 worker on n1: its turn",
        "Completed": "completed",
    }


async def test_event_says_what_it_is_about_and_how_grave_it_is(world: World) -> None:
    async with a_told_job(world) as registry:
        await registry.happens(JobFailed(job_id=job_of(world), reason=Said(text="exit code 1")))
        await world.until_it_is(lambda: has_told(registry, "Failed"))
        events = await world.client.list(client.EVENTS, world.namespace)
        about = (await world.job("digits"))["metadata"]["uid"]
        await world.until_it_is(lambda: shows(registry, "explanation", "exit code 1"))
    kinds = {event["reason"]: event["type"] for event in events if event["involvedObject"].get("uid") == about}
    assert kinds["Failed"] == "Warning"
    assert kinds["Queued"] == "Normal"


async def test_new_process_tells_what_the_one_before_had_no_time_for_and_nothing_twice(world: World) -> None:
    store = MemoryStore()
    async with a_told_job(world, store) as registry:
        await world.until_it_is(lambda: has_told(registry, "Queued"))
    async with a_registry(world, store) as registry:
        # Nobody tells here: this leader dies too soon.
        await registry.happens(JobFailed(job_id=job_of(world), reason=Said(text="exit code 1")))
    async with a_told_job(world, store) as registry:
        await world.until_it_is(lambda: has_told(registry, "Failed"))
        await world.until_it_is(lambda: shows(registry, "state", "Failed"))
        events = await world.client.list(client.EVENTS, world.namespace)
    told = [event["reason"] for event in events if event["source"].get("component") == "voda"]
    assert sorted(told) == ["Failed", "Queued"]


async def test_estimated_finish_is_shown_and_goes_when_the_job_has_ended(world: World) -> None:
    async with a_told_job(world) as registry:
        job_id = job_of(world)
        registry.backend.journal.view.forecasts = {
            job_id: ExpectedTimes(finishes_at=registry.backend.journal.clock.now() + 3600.0)
        }
        await registry.happens(a_plan(1, world, *NODES))
        first = await finish_of(world, registry)
        assert str(first).endswith(":00Z")
        registry.backend.journal.view.forecasts = {
            job_id: ExpectedTimes(finishes_at=registry.backend.journal.clock.now() + 7200.0)
        }
        await registry.happens(WorkerStarted(job_id=job_id, workers={0: "n1", 1: "n1"}))
        await world.until_it_is(lambda: shows(registry, "state", "Running 2/2"))
        # It was changed a moment ago.
        assert (await registry.state("digits"))["estimatedFinish"] == first
        await registry.happens(JobCompleted(job_id=job_id))
        await world.until_it_is(lambda: shows(registry, "estimatedFinish", None))


async def test_state_goes_with_the_object_that_owns_it_and_is_never_written_to_that_object(world: World) -> None:
    async with a_told_job(world) as registry:
        await world.until_it_is(lambda: shows(registry, "state", "Waiting"))
        before = (await world.job("digits"))["metadata"]
        await registry.happens(a_plan(1, world, *NODES))
        await world.until_it_is(lambda: shows(registry, "state", "Starting 0/2"))
        assert (await world.job("digits"))["metadata"] == before
        await world.client.delete(client.MPIJOBS, "digits", world.namespace)
        await world.until_it_is(lambda: shows(registry, "state", None))


async def test_object_that_is_refused_says_so_and_why(world: World) -> None:
    async with a_told_job(world) as registry:
        await world.submit(an_mpijob("other", world.namespace, least=1, most=4, pool="a100", suspend=True))
        await registry.settle(lambda: bool(registry.reporter.states.refused))

        async def says() -> bool:
            state = await registry.state("other")
            return state.get("state") == "Refused" and "no pool 'a100'" in state["explanation"]

        await world.until_it_is(says)


async def test_object_of_another_uid_under_the_name_is_not_told_on(world: World) -> None:
    async with a_told_job(world) as registry:
        await world.until_it_is(lambda: shows(registry, "state", "Waiting"))
        copy = await world.job("digits")
        await world.client.delete(client.MPIJOBS, "digits", world.namespace)
        metadata = {"name": "digits", "namespace": world.namespace}
        await world.submit({**copy, "metadata": metadata})
        await registry.happens(JobCompleted(job_id=job_of(world)))
        await world.until_it_is(lambda: has_told(registry, "Completed"))
        await world.until_it_is(lambda: shows(registry, "state", None))


async def test_size_set_by_hand_is_told(world: World) -> None:
    async with a_told_job(world) as registry:
        job_id, key = job_of(world), (world.namespace, "digits")
        started = {"runPolicy": {"suspend": False}, "mpiReplicaSpecs": {"Worker": {"replicas": 2}}}
        await registry.happens(a_plan(1, world, *NODES))
        await world.client.patch(client.MPIJOBS, key, {"spec": started})
        await registry.happens(WorkerStarted(job_id=job_id, workers={0: "n1", 1: "n1"}))
        await world.until(lambda: any(_replicas(job) == 2 for _, job in registry.objects.jobs()))
        await world.client.patch(client.MPIJOBS, key, {"spec": {"mpiReplicaSpecs": {"Worker": {"replicas": 7}}}})
        await world.until_it_is(lambda: has_told(registry, "ScaledByHand"))
        told = await registry.told("digits")
    assert told["ScaledByHand"] == "somebody set 7 replicas; the plan gives the job 2, so voda sets that again"


async def test_job_made_anew_says_so_on_its_new_object(world: World) -> None:
    async with a_told_job(world) as registry:
        job_id = job_of(world)
        await registry.happens(a_plan(1, world, *NODES))
        await registry.happens(WorkerStarted(job_id=job_id, workers={0: "n1", 1: "n1"}))
        await registry.happens(JobRegistered(job_id=job_id, uid=""))
        await world.client.delete(client.MPIJOBS, "digits", world.namespace)
        await registry.settle(lambda: bool(registry.uid(job_id)))
        await world.until_it_is(lambda: has_told(registry, "Recreated"))
        await world.until_it_is(lambda: shows(registry, "state", "Running 2/2"))


def _replicas(job: JobObject) -> int | None:
    return job.spec.roles("mpiReplicaSpecs")["Worker"].replicas if not job.spec.run_policy.suspend else None
