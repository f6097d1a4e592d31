"""What is believed of a server that has just started (on virtual time), and of objects that only an answer shows."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec
import pytest

from tests.builders import a_job
from tests.kube.client import (
    CLAIM_TEMPLATES,
    CLAIMS,
    DEVICE_CLASSES,
    MPIJOBS,
    NODES,
    PODS,
    PYTORCHJOBS,
    SLICES,
    Refused,
)
from tests.kube.cluster_bench import KnownJobs
from tests.kube.devices import CLASS, a_claim_template, a_device_class, a_slice
from tests.kube.memory_api import MemoryApi, MemoryClient
from tests.kube.memory_server import MemoryServer
from tests.kube.memory_world import CountingClock, wall_s
from tests.kube.objects import a_node, an_mpijob
from tests.kube.objects import a_pod as a_kube_pod
from tests.virtual_time import now_s, virtually
from voda.clock import VirtualClock
from voda.cluster.kubernetes.kinds.mpijob import MPIJobV2
from voda.cluster.kubernetes.mirror import ClusterMirror, MissingObjects
from voda.cluster.kubernetes.objects import JobObject, NodeObject, Pod
from voda.cluster.kubernetes.pools import KubernetesPools
from voda.cluster.kubernetes.setup import KubernetesSetup
from voda.cluster.kubernetes.state.inventory import Inventory
from voda.cluster.kubernetes.state.nodes import PoolRule
from voda.domain.errors import ActionRefused
from voda.domain.job import Job
from voda.kinds.pod_template import PodClaim


def some_pools(
    server: MemoryServer, *jobs: Job, kinds: Sequence[str] = (), rule: PoolRule | None = None
) -> KubernetesPools:
    log, rule = KnownJobs(*jobs), rule or PoolRule()
    setup = KubernetesSetup(rule=rule, clock=CountingClock("mirror"), log=log, relist_s=60.0, kinds=kinds)
    return KubernetesPools(MemoryApi(server), setup)


def a_mirror(server: MemoryServer, *jobs: Job) -> ClusterMirror:
    return some_pools(server, *jobs).mirror


async def synced_after(mirror: ClusterMirror) -> float:
    """Run a mirror, and return after how many seconds it knows the cluster."""
    began = now_s()
    async with running(mirror):
        return now_s() - began


def test_jobs_of_a_kind_that_is_not_served_yet_are_waited_for() -> None:
    async def story() -> None:
        server = MemoryServer(wall_s, [])
        asyncio.get_running_loop().call_later(5.0, server.serve, MPIJOBS)
        mirror = a_mirror(server, a_job("a", name="a", namespace="ns", kind="MPIJob", uid="u1"))
        assert 5.0 <= await synced_after(mirror) < 10.0
        assert list(mirror.kinds) == ["MPIJob"]

    virtually(story())


def test_kind_that_stays_unserved_is_believed_to_be_so_after_a_while() -> None:
    async def story() -> None:
        mirror = a_mirror(MemoryServer(wall_s, []), a_job("a", name="a", namespace="ns", kind="MPIJob", uid="u1"))
        assert 30.0 <= await synced_after(mirror) < 35.0

    virtually(story())


def test_kind_that_the_settings_leave_out_is_neither_listed_nor_run() -> None:
    async def story() -> None:
        mirror = some_pools(MemoryServer(wall_s, [MPIJOBS, PYTORCHJOBS]), kinds=["MPIJob"]).mirror
        await synced_after(mirror)
        assert list(mirror.kinds) == ["MPIJob"]
        assert "pytorchjobs" not in mirror.counts()
        with pytest.raises(ActionRefused, match=r"runs no PyTorchJob: cluster\.kinds of its settings is MPIJob"):
            mirror.kind_of(a_job("a", kind="PyTorchJob").spec)

    virtually(story())


def test_gpus_that_nodes_publish_as_devices_are_mirrored_and_go_with_their_slices() -> None:
    async def story() -> None:
        server = MemoryServer(wall_s, [MPIJOBS])
        async with MemoryClient(server) as client:
            await client.create(NODES, a_node("n1", 0))
            await client.create(SLICES, a_slice("n1", 4))
            pools = some_pools(server, rule=PoolRule(device_classes=(CLASS,)))
            async with running(pools.mirror):
                stock = pools.inventory.stock
                assert stock.devices.of("n1").gpus == 0
                await client.create(DEVICE_CLASSES, a_device_class())
                await client.create(CLAIM_TEMPLATES, a_claim_template("two", "ns", 2))
                await asyncio.sleep(1.0)
                assert stock.devices.of("n1").gpus == 4
                assert stock.devices.claimed("ns", [PodClaim(resource_claim_template_name="two")]) == 2
                await client.delete(SLICES, "n1-gpus")
                await asyncio.sleep(1.0)
                assert stock.devices.of("n1").gpus == 0

    virtually(story())


@pytest.mark.parametrize(
    ("path", "refusal"),
    [
        pytest.param("/apis/resource.k8s.io/v1", Refused(404, "NotFound", "no such version"), id="not served"),
        *(
            pytest.param(each.path(), Refused(403, "Forbidden", "no such right"), id=f"no right to {each.plural}")
            for each in (DEVICE_CLASSES, SLICES, CLAIMS, CLAIM_TEMPLATES)
        ),
    ],
)
def test_cluster_whose_devices_voda_cannot_read_is_mirrored_without(path: str, refusal: Refused) -> None:
    class Older(MemoryServer):
        def answer(
            self, method: str, path_: str, query: Mapping[str, str], body: Mapping[str, Any] | None
        ) -> dict[str, Any]:
            if path_ == path:
                raise refusal
            return super().answer(method, path_, query, body)

    async def story() -> None:
        pools = some_pools(Older(wall_s, [MPIJOBS]), rule=PoolRule(device_classes=(CLASS,)))
        assert await synced_after(pools.mirror) < 1.0
        assert not pools.inventory.stock.devices.is_served
        assert "resourceslices" not in pools.mirror.counts()
        assert not pools.mirror.failure

    virtually(story())


def test_cluster_whose_jobs_are_all_of_kinds_that_are_served_is_known_at_once() -> None:
    async def story() -> None:
        assert await synced_after(a_mirror(MemoryServer(wall_s, []))) < 1.0
        served = a_mirror(MemoryServer(wall_s, [MPIJOBS]), a_job("a", name="a", namespace="ns", kind="MPIJob"))
        assert await synced_after(served) < 1.0

    virtually(story())


KIND = MPIJobV2()


class Stage:
    """A server with the object of a live job, which no watch has shown."""

    def __init__(self) -> None:
        self.clock = VirtualClock(1_000.0)
        self.server = MemoryServer(self.clock.now, [MPIJOBS])
        self.client = MemoryClient(self.server)
        self.live: dict[str, Job] = {}
        self.inventory = Inventory(PoolRule(), self.live.get)
        self.missing = MissingObjects(
            inventory=self.inventory,
            api=MemoryApi(self.server),
            clock=self.clock,
            kinds={"MPIJob": KIND},
            jobs=lambda: self.live.values(),
        )

    async def begin(self) -> JobObject:
        """Make the job and its object."""
        made = await self.client.create(MPIJOBS, an_mpijob("a", "ns", annotations={"voda.dev/job-id": "a"}))
        found = msgspec.convert(made, JobObject)
        self.live["a"] = a_job("a", name="a", namespace="ns", pool="v100", uid=found.metadata.uid)
        return found

    async def is_there_after_fetch(self, *, later_s: float = 60.0) -> bool:
        """Fetch, and say whether the object is believed to be there."""
        self.clock.move_to(self.clock.now() + later_s)
        await self.missing.fetch("v100")
        return self.inventory.object_of("a") is not None


async def test_object_that_no_watch_has_shown_is_asked_for() -> None:
    stage = Stage()
    await stage.begin()
    assert await stage.is_there_after_fetch()


async def test_object_that_went_while_no_watch_was_up_is_known_to_be_gone() -> None:
    stage = Stage()
    await stage.begin()
    assert await stage.is_there_after_fetch()
    await stage.client.delete(MPIJOBS, "a", "ns")
    stage.inventory.dirty_jobs.clear()
    assert not await stage.is_there_after_fetch()
    assert stage.inventory.dirty_jobs == {"a"}


async def test_object_that_a_watch_shows_is_left_to_the_watch() -> None:
    stage = Stage()
    found = await stage.begin()
    assert await stage.is_there_after_fetch()
    stage.missing.watched(found.metadata.uid)
    await stage.client.delete(MPIJOBS, "a", "ns")
    assert await stage.is_there_after_fetch()


async def test_object_that_was_made_anew_under_its_name_is_not_the_jobs() -> None:
    stage = Stage()
    await stage.begin()
    assert await stage.is_there_after_fetch()
    await stage.client.delete(MPIJOBS, "a", "ns")
    await stage.client.create(MPIJOBS, an_mpijob("a", "ns"))
    assert not await stage.is_there_after_fetch()


def test_answer_about_what_went_meanwhile_does_not_bring_it_back() -> None:
    inventory = Inventory(PoolRule(), lambda job_id: None)
    job, pod = an_object("1"), a_pod("1")
    hear: tuple[Callable[[], None], ...] = (
        lambda: inventory.update_object(KIND, an_object("2")),
        lambda: inventory.update_pod(a_pod("2")),
    )
    inventory.put_object("u1", KIND, job)
    inventory.put_pod("ns/a-worker-0", pod)
    for each in hear:
        each()
    assert inventory.objects["u1"].object.metadata.resource_version == "2"
    assert inventory.pods_by_key.get("ns/a-worker-0") == a_pod("2")
    inventory.put_object("u1", KIND, None)
    inventory.put_pod("ns/a-worker-0", None)
    for each in hear:
        each()
    assert inventory.objects == {}
    assert inventory.pods_by_key.get("ns/a-worker-0") is None


def test_inventory_when_it_differs_from_a_list_is_healed_by_the_next_one() -> None:
    async def story() -> None:
        server = MemoryServer(wall_s, [MPIJOBS])
        client = MemoryClient(server)
        await client.create(NODES, a_node("n1", 4, "v100"))
        await client.create(PODS, a_kube_pod("one", "ns", gpus=1))
        await client.create(MPIJOBS, an_mpijob("a", "ns", annotations={"voda.dev/job-id": "a"}))
        pools = some_pools(server, a_job("a", name="a", namespace="ns", kind="MPIJob"))
        async with running(pools.mirror):
            before = what_is_kept(pools.inventory)
            pods, nodes, objects = before
            assert pods
            assert nodes
            assert objects
            await asyncio.sleep(1.0)
            pools.inventory.put_node("n1", None)
            pools.inventory.put_pod("ns/one", None)
            pools.inventory.put_object(next(iter(objects)), KIND, None)
            pools.inventory.put_pod("ns/a-worker-0", a_pod("9"))
            pools.inventory.put_object("u1", pools.mirror.kinds["MPIJob"], an_object("9"))
            await asyncio.sleep(90.0)
            assert what_is_kept(pools.inventory) == before

    virtually(story())


def what_is_kept(inventory: Inventory) -> tuple[dict[str, Pod], dict[str, NodeObject], dict[str, JobObject]]:
    objects = {uid: each.object for uid, each in inventory.objects.items()}
    return dict(inventory.pods_by_key), dict(inventory.stock.nodes), objects


@asynccontextmanager
async def running(mirror: ClusterMirror) -> AsyncIterator[None]:
    """Run a mirror that has read everything."""
    task = asyncio.create_task(mirror.run())
    try:
        await mirror.synced()
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def an_object(version: str) -> JobObject:
    return msgspec.convert({"metadata": _metadata("a", "u1", version)}, JobObject)


def a_pod(version: str) -> Pod:
    spec = {"nodeName": "n1", "containers": [{"name": "worker"}]}
    return msgspec.convert({"metadata": _metadata("a-worker-0", "p1", version), "spec": spec}, Pod)


def _metadata(name: str, uid: str, version: str) -> dict[str, Any]:
    return {"name": name, "namespace": "ns", "uid": uid, "resourceVersion": version}
