"""How a job stands is shown on an object of voda's own; the operator's object gets one write for each change."""

import asyncio

from tests.kube.client import JOB_STATES, MPIJOBS, Object
from tests.kube.memory_api import Wire
from tests.kube.memory_world import POOL, MemoryWorld
from tests.kube.objects import an_mpijob
from tests.kube.operators.mpi_v2 import MpiOperatorV2
from tests.virtual_time import virtually


def state_of(world: MemoryWorld) -> str:
    shown: Object = world.server.objects[JOB_STATES].get((world.namespace, "a.mpijob"), {})
    return str(shown.get("state", ""))


async def life() -> tuple[list[int], list[Object], list[str]]:
    """Run a job, let it grow, and delete it.

    Return how often voda wrote to the operator's object up to each of these points; the annotations that the object
    had; and the states that were shown.
    """
    wire, written, shown = Wire(1, longest_s=0.02), list[int](), list[str]()
    async with MemoryWorld(1, [MpiOperatorV2]) as world:

        def count_writes() -> None:
            path = MPIJOBS.path(world.namespace, "a")
            written.append(sum(asked == ("PATCH", path) for asked in wire.asked))
            shown.append(state_of(world))

        await world.add_node("n1", 2, POOL)
        async with world.replica(wire):
            await world.submit(an_mpijob("a", world.namespace, least=1, most=4, pool=POOL, suspend=True))
            await world.until(lambda: state_of(world) == "Running 2/2")
            count_writes()
            await world.add_node("n2", 2, POOL)
            await world.until(lambda: state_of(world) == "Running 4/4")
            count_writes()
            annotations = dict(world.server.objects[MPIJOBS][world.namespace, "a"]["metadata"]["annotations"])
            await world.client.delete(MPIJOBS, "a", world.namespace)
            await world.until(lambda: not state_of(world))
            count_writes()
    return written, [annotations], shown


def test_operators_object_gets_one_write_for_each_change_and_a_state_object_shows_the_rest() -> None:
    written, (annotations,), shown = virtually(life())
    # Made ready, resumed at a size; resized; deleted.
    assert written == [2, 3, 3]
    assert shown == ["Running 2/2", "Running 4/4", ""]
    assert not {name for name in annotations if name.startswith("voda.dev/")} - {
        *("voda.dev/job-id", "voda.dev/min-replicas", "voda.dev/max-replicas", "voda.dev/pool")
    }


async def second_leader() -> tuple[list[tuple[str, str]], list[str]]:
    """Run four jobs under one leader; while nobody leads, one JobState is changed and one replaced by others.

    Return what the next leader writes of JobStates, and what all show in the end.
    """
    first, second = Wire(1, longest_s=0.02), Wire(2, longest_s=0.02)
    async with MemoryWorld(1, [MpiOperatorV2]) as world:
        await world.add_node("n1", 4, POOL)
        async with world.replica(first):
            for name in "abcd":
                await world.submit(an_mpijob(name, world.namespace, least=1, most=1, pool=POOL, suspend=True))
            await world.until(lambda: states(world) == ["Running 1/1"] * 4)
        await world.client.patch(JOB_STATES, (world.namespace, "b.mpijob"), {"state": "Idle"})
        stolen = world.server.objects[JOB_STATES][world.namespace, "c.mpijob"]
        owners = stolen["metadata"]["ownerReferences"]
        await world.client.delete(JOB_STATES, "c.mpijob", world.namespace)
        decoy = {**stolen, "metadata": {"name": "z", "namespace": world.namespace, "ownerReferences": owners}}
        await world.client.create(JOB_STATES, decoy)
        async with world.replica(second):
            await asyncio.sleep(90.0)
        await world.client.delete(JOB_STATES, "z", world.namespace)
        asked = [(method, path.rpartition("/")[2]) for method, path in second.asked if "/jobstates" in path]
        return sorted(each for each in asked if each[0] != "GET"), states(world)


def states(world: MemoryWorld) -> list[str]:
    return [str(each["state"]) for each in world.server.objects[JOB_STATES].values()]


def test_new_leader_writes_those_job_states_alone_that_differ_from_what_is_there() -> None:
    written, shown = virtually(second_leader())
    assert written == [("PATCH", "b.mpijob"), ("POST", "jobstates")]
    assert shown == ["Running 1/1"] * 4


async def deleted_by_others() -> list[str]:
    """Delete a JobState under a leader, and return what all show ten minutes later."""
    async with MemoryWorld(1, [MpiOperatorV2]) as world:
        await world.add_node("n1", 1, POOL)
        async with world.replica(Wire(1)):
            await world.submit(an_mpijob("a", world.namespace, least=1, most=1, pool=POOL, suspend=True))
            await world.until(lambda: state_of(world) == "Running 1/1")
            await world.client.delete(JOB_STATES, "a.mpijob", world.namespace)
            await asyncio.sleep(610.0)
            return states(world)


def test_job_state_that_others_delete_is_there_again_within_ten_minutes() -> None:
    assert virtually(deleted_by_others()) == ["Running 1/1"]
