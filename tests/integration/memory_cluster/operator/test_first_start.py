"""The first start of Jobs of users' own: one write makes a Job ready and starts it."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from tests.kube.client import JOBS, Object, Refused
from tests.kube.memory_api import Wire
from tests.kube.memory_server import MemoryServer
from tests.kube.memory_world import POOL, MemoryWorld, Replica
from tests.kube.objects import an_indexed_job
from tests.virtual_time import virtually
from voda.cluster.kubernetes.well_known import GATE, JOB_ID
from voda.events.envelope import ANY_VERSION, Fact
from voda.events.types import JobHaltRequested
from voda.operator.registration.object_duties import UNREADY_S

NOTE = "example.com/note"


class ServerOfJobs(MemoryServer):
    """Says that it serves Jobs."""

    def answer(self, method: str, path: str, query: Mapping[str, str], body: Mapping[str, Any] | None) -> Object:
        """See MemoryServer."""
        return (
            self._discovery(path)
            if path in ("/apis/batch", "/apis/batch/v1")
            else super().answer(method, path, query, body)
        )


class Cluster:
    """A node of four GPUs, and a leader."""

    def __init__(self, world: MemoryWorld, replica: Replica) -> None:
        self.world, self.replica = world, replica

    async def create(self, name: str, **changes: object) -> None:
        """Create a Job of one worker, which is suspended."""
        fields: Object = {"least": 1, "most": 1, "gpus": 4, "suspend": True, "pool": POOL, **changes}
        await self.world.client.create(JOBS, an_indexed_job(name, self.world.namespace, 1, **fields))

    def job(self, name: str) -> Object:
        """Return a Job as the server has it."""
        return self.world.server.objects[JOBS][self.world.namespace, name]

    def is_ready(self, name: str) -> bool:
        """Say whether a Job carries its job's id, and its pods will wait for voda."""
        made = self.job(name)
        gates = made["spec"]["template"]["spec"].get("schedulingGates", [])
        return JOB_ID in made["metadata"].get("annotations", {}) and gates == [{"name": GATE}]

    def runs(self, name: str) -> bool:
        """Say whether a Job is not suspended."""
        return not self.job(name)["spec"].get("suspend")

    def writes(self, name: str) -> Sequence[str]:
        """Return the methods of voda's requests about a Job alone."""
        path = JOBS.path(self.world.namespace, name)
        return [method for method, asked in self.replica.wire.asked if asked == path]


async def with_one_node(act: Callable[[Cluster], Awaitable[None]], server: type[MemoryServer] = ServerOfJobs) -> None:
    async with MemoryWorld(1, [], server=server) as world:
        await world.add_node("n1", gpus=4, pool=POOL)
        async with world.replica(Wire(1)) as replica:
            # Before that it lists what there is, and reads what it adopts.
            await world.until(lambda: not replica.service.failure())
            await act(Cluster(world, replica))


def test_suspended_job_that_finds_room_is_made_ready_and_started_by_one_write() -> None:
    async def act(cluster: Cluster) -> None:
        await cluster.create("a")
        await cluster.world.until(lambda: cluster.runs("a"))
        assert cluster.is_ready("a")
        assert cluster.writes("a") == ["PATCH"]

    virtually(with_one_node(act))


def test_suspended_job_that_has_to_wait_is_made_ready_soon() -> None:
    async def act(cluster: Cluster) -> None:
        await cluster.create("a")
        await cluster.world.until(lambda: cluster.runs("a"))
        await cluster.create("b")
        began = cluster.world.server.now()
        await cluster.world.until(lambda: cluster.is_ready("b"))
        assert not cluster.runs("b")
        assert cluster.world.server.now() - began < UNREADY_S + 1.0
        assert cluster.writes("b") == ["PATCH"]

    virtually(with_one_node(act))


def test_job_that_changes_between_its_adoption_and_its_start_keeps_the_change() -> None:
    async def act(cluster: Cluster) -> None:
        await cluster.create("a")
        await cluster.world.until(lambda: cluster.runs("a"))
        await cluster.create("b")
        await cluster.world.until(lambda: cluster.replica.service.jobs.live_job("ns_b") is not None)
        body = {"metadata": {"annotations": {NOTE: "kept"}}}
        await cluster.world.client.patch(JOBS, (cluster.world.namespace, "b"), body)
        await cluster.world.client.delete(JOBS, "a", cluster.world.namespace)
        await cluster.world.until(lambda: cluster.runs("b"))
        assert cluster.is_ready("b")
        assert cluster.job("b")["metadata"]["annotations"][NOTE] == "kept"

    virtually(with_one_node(act))


def test_job_that_its_user_resumes_between_its_adoption_and_its_start_waits_for_voda_all_the_same() -> None:
    async def act(cluster: Cluster) -> None:
        await cluster.create("a")
        await cluster.world.until(lambda: cluster.runs("a"))
        await cluster.create("b")
        await cluster.world.until(lambda: cluster.replica.service.jobs.live_job("ns_b") is not None)
        await cluster.world.client.patch(JOBS, (cluster.world.namespace, "b"), {"spec": {"suspend": False}})
        began = cluster.world.server.now()
        await cluster.world.until(lambda: cluster.is_ready("b") and not cluster.runs("b"))
        assert cluster.world.server.now() - began < UNREADY_S

    virtually(with_one_node(act))


def test_job_that_is_deleted_between_its_adoption_and_its_start_is_canceled_at_once() -> None:
    async def act(cluster: Cluster) -> None:
        await cluster.create("a")
        await cluster.world.until(lambda: cluster.runs("a"))
        await cluster.create("b")
        jobs = cluster.replica.service.jobs
        await cluster.world.until(lambda: jobs.live_job("ns_b") is not None)
        began = cluster.world.server.now()
        await cluster.world.client.delete(JOBS, "b", cluster.world.namespace)
        await cluster.world.until(lambda: jobs.live_job("ns_b") is None)
        assert cluster.world.server.now() - began < UNREADY_S

    virtually(with_one_node(act))


class ServerThatStartsNothing(ServerOfJobs):
    """Refuses every start."""

    def answer(self, method: str, path: str, query: Mapping[str, str], body: Mapping[str, Any] | None) -> Object:
        """See MemoryServer."""
        if method == "PATCH" and body is not None and body.get("spec", {}).get("suspend") is False:
            raise Refused(500, "InternalError", "the webhook does not answer")
        return super().answer(method, path, query, body)


def test_job_that_is_halted_before_its_start_succeeds_is_made_ready_soon() -> None:
    async def act(cluster: Cluster) -> None:
        service = cluster.replica.service
        await cluster.create("a")
        await cluster.world.until(lambda: bool(service.view.cluster.plan(POOL).placement))
        await asyncio.sleep(UNREADY_S)
        assert not cluster.is_ready("a")
        halt = JobHaltRequested(job_id="ns_a")
        fact = Fact(data=halt, event_id="halt", recorded_at=cluster.world.server.now(), actor="test")
        await service.store.append(halt.stream, ANY_VERSION, [fact])
        began = cluster.world.server.now()
        await cluster.world.until(lambda: cluster.is_ready("a"))
        assert cluster.world.server.now() - began < 2 * UNREADY_S

    virtually(with_one_node(act, ServerThatStartsNothing))
