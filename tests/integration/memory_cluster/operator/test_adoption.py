"""Adoption of objects that are created while voda looks: what the watch brought of them is enough."""

from collections.abc import Mapping
from typing import Any

from tests.kube.client import MPIJOBS, Object, Refused
from tests.kube.memory_api import Wire
from tests.kube.memory_server import MemoryServer
from tests.kube.memory_world import POOL, MemoryWorld
from tests.kube.objects import an_mpijob
from tests.kube.operators.mpi_v2 import MpiOperatorV2
from tests.virtual_time import virtually

JOB_ID = "voda.dev/job-id"


class SparingServer(MemoryServer):
    """Lets nobody read a single MPIJob."""

    def answer(self, method: str, path: str, query: Mapping[str, str], body: Mapping[str, Any] | None) -> Object:
        """See MemoryServer."""
        if method == "GET" and "/mpijobs/" in path:
            raise Refused(500, "InternalError", "no single MPIJob can be read")
        return super().answer(method, path, query, body)


async def adopted_where_no_object_can_be_read() -> tuple[Object, Object]:
    """Return an MPIJob as it was created while voda ran, and as it is once it has its job."""
    async with MemoryWorld(1, [MpiOperatorV2], server=SparingServer) as world:
        async with world.replica(Wire(1)):
            job = an_mpijob("a", world.namespace, 1, least=1, most=1, pool=POOL)
            job["metadata"]["annotations"]["example.com/note"] = "kept"
            made = await world.submit(job)
            await world.until(lambda: JOB_ID in world.server.objects[MPIJOBS]["ns", "a"]["metadata"]["annotations"])
        return made, world.server.objects[MPIJOBS]["ns", "a"]


def test_object_that_is_created_while_voda_looks_is_adopted_without_being_read_again() -> None:
    made, now = virtually(adopted_where_no_object_can_be_read())
    before, after = (each["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["spec"] for each in (made, now))
    assert now["metadata"]["uid"] == made["metadata"]["uid"]
    assert (now["metadata"]["annotations"][JOB_ID], now["metadata"]["annotations"]["example.com/note"]) == (
        "ns_a",
        "kept",
    )
    assert after["containers"][0]["image"] == before["containers"][0]["image"]
    assert after["schedulingGates"] == [{"name": "voda.dev/placement"}]
