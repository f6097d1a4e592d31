"""Writes of voda's that the cluster refuses before an object has a job: its user is told why, and voda tries on."""

from collections.abc import Mapping
from typing import Any

from tests.kube.client import EVENTS, JOB_STATES, TRAINJOBS, Object, Refused
from tests.kube.memory_api import Wire
from tests.kube.memory_server import MemoryServer
from tests.kube.memory_world import POOL, MemoryWorld
from tests.kube.objects import an_mpijob
from tests.kube.operators.mpi_v2 import MpiOperatorV2
from tests.virtual_time import virtually

WEBHOOK = 'Internal error occurred: failed calling webhook "gone.example.com": connection refused'


class GuardedServer(MemoryServer):
    """Asks a webhook, which does not answer, about every patch of an MPIJob while `is_guarded`."""

    is_guarded = True

    def answer(self, method: str, path: str, query: Mapping[str, str], body: Mapping[str, Any] | None) -> Object:
        """See MemoryServer."""
        if self.is_guarded and method == "PATCH" and "/mpijobs/" in path and not path.endswith("/status"):
            raise Refused(500, "InternalError", WEBHOOK)
        return super().answer(method, path, query, body)


async def running_object_behind_a_webhook() -> tuple[list[str], str]:
    """Create a running MPIJob with voda's label, and take the webhook away once its user was told of it.

    Return the reasons of the Events about it, and what its JobState said meanwhile.
    """
    async with MemoryWorld(1, [MpiOperatorV2], server=GuardedServer) as world:
        await world.add_node("n1", 1, POOL)
        async with world.replica(Wire(1)):
            await world.submit(an_mpijob("a", world.namespace, 1, least=1, most=1, pool=POOL, suspend=False))
            await world.until(lambda: WEBHOOK in shown(world).get("explanation", ""))
            said = str(shown(world)["state"])
            assert isinstance(world.server, GuardedServer)
            world.server.is_guarded = False
            await world.until(lambda: shown(world).get("state") == "Running 1/1")
        told = [str(each["reason"]) for each in world.server.objects[EVENTS].values() if WEBHOOK in each["message"]]
        return told, said


def shown(world: MemoryWorld) -> Object:
    return world.server.objects[JOB_STATES].get((world.namespace, "a.mpijob"), {})


def test_running_object_that_a_webhook_keeps_from_being_suspended_says_so_until_it_is_adopted() -> None:
    told, said = virtually(running_object_behind_a_webhook())
    assert set(told) == {"NotAccepted"}
    assert said == "Refused"


async def running_object_of_an_absent_trainjob() -> Object:
    """Create a running MPIJob with voda's label that names a TrainJob which does not exist; return its JobState."""
    async with MemoryWorld(1, [MpiOperatorV2]) as world:
        world.server.serve(TRAINJOBS)
        await world.add_node("n1", 1, POOL)
        async with world.replica(Wire(1)):
            job = an_mpijob("a", world.namespace, 1, least=1, most=1, pool=POOL, suspend=False)
            owner = {"kind": "TrainJob", "name": "t", "uid": "t1", "controller": True}
            job["metadata"]["ownerReferences"] = [{"apiVersion": TRAINJOBS.api_version, **owner}]
            await world.submit(job)
            await world.until(lambda: bool(shown(world)))
            return shown(world)


def test_running_object_that_names_a_trainjob_which_does_not_exist_says_so() -> None:
    state = virtually(running_object_of_an_absent_trainjob())
    assert state["state"] == "Refused"
    assert "controlled by TrainJob t, which does not exist" in state["explanation"]
