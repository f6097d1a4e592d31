"""Pods that share GPUs on a cluster in memory, on virtual time: placed, bound, released, adopted; nothing is lost.

Rule: whatever happens, no GPU gives more than it has (`GpuBreaches`), and what nobody uses comes back.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.kube.client import NODES, PODS, Object
from tests.kube.memory_api import Wire
from tests.kube.memory_world import MemoryWorld, Replica
from tests.kube.operators.mpi_v2 import MpiOperatorV2
from tests.kube.sharing import ASSUMED, GPUS_OF, GpuBreaches, HandScheduler, a_gpu_node, a_sharing_pod, gpus_of
from voda.cluster.kubernetes.pod_binding import FREED
from voda.domain.errors import VersionConflict
from voda.domain.gpus import ContainerGpus, GpuRequest
from voda.domain.reasons.pods import PodGone
from voda.domain.shares import PodShares
from voda.events.text.pods import pod_text
from voda.events.types import ShareAssigned, ShareReleased
from voda.log import append_plan
from voda.operator import extender as extender_module
from voda.operator.extender import Extender
from voda.operator.sharing.share_extender import ShareExtender
from voda.operator.sharing.share_reconciler import record_shares

SHARING = {"enabled": True, "rater": "binpack"}
pytestmark = pytest.mark.virtual_time


class Story:
    """A cluster with GPUs, the replica that is asked, and a kube-scheduler by hand."""

    def __init__(self, world: MemoryWorld, replica: Replica) -> None:
        self.world = world
        self.replica = replica
        self.scheduler = HandScheduler(world.client)

    @property
    def extender(self) -> Extender[ShareExtender]:
        extender = self.replica.service.backend.pods.shares
        assert extender is not None
        return extender

    async def pod(self, name: str, core: int = 50, memory: int = 0, **changes: Any) -> Object:
        """Create a pod."""
        return await self.world.client.create(PODS, a_sharing_pod(name, "ns", core, memory, **changes))

    async def place(self, name: str, core: int = 50, memory: int = 0, **changes: Any) -> str:
        """Create a pod and place it, and return why that failed."""
        return await self.scheduler.place(self.extender, await self.pod(name, core, memory, **changes))

    async def got(self, name: str) -> tuple[str, str]:
        """Return node and GPUs of a pod."""
        pod = await self.world.client.get(PODS, name, "ns")
        return pod["spec"].get("nodeName", ""), ";".join(gpus_of(pod).values())

    def recorded(self) -> dict[str, str]:
        """Return pod -> its node, by the log."""
        nodes = self.replica.service.view.cluster.shares.nodes
        return {each.pod: name for name, node in nodes.items() for each in node.pods.values()}

    def shares(self, name: str) -> PodShares | None:
        """Return what a pod has by the log."""
        nodes = self.replica.service.view.cluster.shares.nodes.values()
        return next((each for node in nodes for each in node.pods.values() if each.pod == f"ns/{name}"), None)

    async def until(self, holds: Callable[[], object]) -> None:
        """Wait until something holds."""
        await self.world.until(holds)

    async def reasons(self) -> list[str]:
        """Return why shares were released."""
        events = await self.world.store.read(0, 100_000)
        return [pod_text(event.data.reason) for event in events if isinstance(event.data, ShareReleased)]


@asynccontextmanager
async def a_story(nodes: int = 1, gpus: int = 2, **sharing: Any) -> AsyncIterator[Story]:
    async with MemoryWorld(1, (MpiOperatorV2,), Wire(1, longest_s=0.01)) as world:
        breaches = GpuBreaches(world.server)
        world.server.on_change = breaches.see
        await world.add_nodes(*(a_gpu_node(f"n{number}", gpus) for number in range(nodes)))
        async with world.replica(Wire(2, longest_s=0.01), sharing={**SHARING, **sharing}) as replica:
            story = Story(world, replica)
            accounts = replica.service.view.cluster.shares
            await world.until(lambda: len(accounts.nodes) == nodes and replica.service.mirror.is_synced)
            yield story
        assert breaches.found == []


async def test_two_pods_share_a_gpu_and_a_third_is_refused_in_a_sentence() -> None:
    async with a_story(gpus=1) as it:
        assert await it.place("a", 50, 4_000) == ""
        assert await it.place("b", 50, 4_000) == ""
        assert await it.got("a") == await it.got("b") == ("n0", "0")
        assert await it.place("c", 50) == "too little is left of the node's GPUs for main (gpu-core 50)"
        assert it.shares("a") is not None
        pod = await it.world.client.get(PODS, "a", "ns")
        assert (pod["metadata"]["labels"][ASSUMED], pod["metadata"]["annotations"][ASSUMED]) == ("true", "true")


async def test_pods_that_are_bound_to_one_node_at_once_do_not_refuse_one_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    refused = list[Exception]()
    check = append_plan.check_append

    def checked(*arguments: Any) -> None:
        try:
            check(*arguments)
        except VersionConflict as error:
            refused.append(error)
            raise

    async with a_story(gpus=4) as it:
        pods = [await it.pod(f"p{number}", 100) for number in range(4)]
        monkeypatch.setattr(append_plan, "check_append", checked)
        said = await asyncio.gather(*(it.scheduler.bind(it.extender, pod, "n0") for pod in pods))
        assert said == ["", "", "", ""]
        assert {gpus for number in range(4) for _, gpus in [await it.got(f"p{number}")]} == {"0", "1", "2", "3"}
    assert refused == []


async def test_share_when_its_pod_ends_or_is_deleted_is_released() -> None:
    async with a_story(gpus=1) as it:
        assert [await it.place(name) for name in "ab"] == ["", ""]
        await it.world.until_it_is(lambda: runs(it, "a"))
        await it.world.kubelet.exit("ns", "a")
        await it.until(lambda: it.recorded() == {"ns/b": "n0"})
        await it.world.client.delete(PODS, "b", "ns", grace_s=0)
        await it.until(lambda: it.recorded() == {})
        assert await it.reasons() == ["the pod has ended", "the pod is gone"]
        assert await it.place("c", 100) == ""


async def test_share_that_is_looked_at_while_another_pod_is_bound_is_released_without_an_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with a_story(gpus=2) as it:
        assert await it.place("a", 100) == ""
        held = Holding(it.replica, "before", "get", 1)
        await it.world.client.delete(PODS, "a", "ns", grace_s=0)
        await held.reached.wait()
        assert await it.place("b", 100) == ""
        held.release()
        await it.until(lambda: it.recorded() == {"ns/b": "n0"})
        assert [each.getMessage() for each in caplog.records if each.levelname == "ERROR"] == []


@pytest.fixture
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a replica that stands still for minutes go on where it was."""
    monkeypatch.setattr(extender_module, "_MOST_S", 3_600.0)


@pytest.mark.usefixtures("patience")
async def test_share_of_a_pod_that_is_not_bound_is_withdrawn_and_no_earlier_try_can_bind_it() -> None:
    async with a_story(gpus=1) as it:
        held = Holding(it.replica, "before", "create", 1)
        first = await it.pod("a", 100)
        trying = asyncio.create_task(it.scheduler.place(it.extender, first))
        await held.reached.wait()
        assert it.recorded() == {"ns/a": "n0"}
        await it.until(lambda: it.recorded() == {})
        assert await it.reasons() == ["the pod was not bound within 60 s"]
        assert await it.place("b", 100) == ""
        held.release()
        assert (await trying).startswith("pod ns/a cannot be bound to node n0: too little is left")
        assert (await it.got("a"), await it.got("b")) == (("", ""), ("n0", "0"))


@pytest.mark.usefixtures("patience")
async def test_share_that_is_about_to_be_withdrawn_is_kept_where_its_pod_is_bound_meanwhile() -> None:
    async with a_story(gpus=1) as it:
        first, withdrawing = Holding(it.replica, "before", "create", 1), Holding(it.replica, "after", "patch", 1)
        pod = await it.pod("a", 100)
        trying = asyncio.create_task(it.scheduler.place(it.extender, pod))
        await withdrawing.reached.wait()
        # The leader has changed the pod, and has not released its share yet.
        assert await it.scheduler.place(it.extender, pod) == ""
        withdrawing.release()
        first.release()
        assert await trying == ""
        await asyncio.sleep(30)
        assert set(await it.reasons()) == {"it is about to be bound again"}
        assert (it.recorded(), await it.got("a")) == ({"ns/a": "n0"}, ("n0", "0"))


async def test_pod_is_bound_with_one_write_and_without_a_look_at_it_unless_it_changed_since_the_mirror_saw_it() -> None:
    async with a_story(gpus=1) as it:
        looks = [Holding(it.replica, "before", verb, -1) for verb in ("get", "patch")]
        pod = await it.pod("a", 50)
        await it.until(lambda: pod["metadata"]["uid"] in it.extender.decider.pods.by_uid)
        assert await it.scheduler.place(it.extender, pod) == ""
        assert [each.calls for each in looks] == [0, 0]
        mirrored = it.extender.decider.pods.by_uid
        other = await it.pod("b", 50)
        await it.until(lambda: other["metadata"]["uid"] in mirrored)
        seen = mirrored[other["metadata"]["uid"]]
        await it.world.client.patch(PODS, ("ns", "b"), {"metadata": {"labels": {"x": "y"}}})
        await it.until(lambda: mirrored[other["metadata"]["uid"]] != seen)
        it.extender.decider.pods.by_uid[other["metadata"]["uid"]] = seen
        assert await it.scheduler.place(it.extender, other) == ""
        assert (looks[0].calls, await it.got("b")) == (1, ("n0", "0"))


async def test_label_that_an_old_api_server_does_not_take_from_a_binding_is_written_by_the_leader() -> None:
    async with a_story(gpus=1) as it:
        assert await it.place("a", 50) == ""
        await it.world.client.patch(PODS, ("ns", "a"), {"metadata": {"labels": {ASSUMED: None}}})
        await it.world.until_it_is(lambda: has_label(it, "a"))


async def test_pod_that_kube_scheduler_now_places_elsewhere_leaves_nothing_behind() -> None:
    async with a_story(nodes=2, gpus=1) as it:
        held = Holding(it.replica, "before", "create", 1)
        pod = await it.pod("a", 100)
        trying = asyncio.create_task(it.scheduler.place(it.extender, pod, node="n0"))
        await held.reached.wait()
        assert await it.scheduler.place(it.extender, pod, node="n1") == ""
        held.release()
        assert (await trying) == "pod ns/a is on node n1, and cannot be bound to n0"
        assert (it.recorded(), await it.got("a")) == ({"ns/a": "n1"}, ("n1", "0"))
        assert await it.place("b", 100) == ""


async def test_pod_whose_former_node_is_forgotten_while_it_is_withdrawn_is_bound() -> None:
    async with a_story(nodes=2, gpus=1) as it:
        journal = it.extender.decider.journal
        accounts = journal.view.cluster.shares
        binding, withdrawn = Holding(it.replica, "before", "create", 1), Holding(it.replica, "after", "patch", 1)
        pod = await it.pod("a", 100)
        first = asyncio.create_task(it.scheduler.place(it.extender, pod, node="n0"))
        await binding.reached.wait()
        await it.world.client.delete(NODES, "n0")
        await it.until(lambda: not accounts.nodes["n0"].devices)
        second = asyncio.create_task(it.scheduler.place(it.extender, pod, node="n1"))
        await withdrawn.reached.wait()
        released = ShareReleased(node="n0", pod_uid=pod["metadata"]["uid"], pod="ns/a", reason=PodGone())
        await record_shares(journal, released, actor="test", version=accounts.nodes["n0"].version)
        assert "n0" not in accounts.nodes
        withdrawn.release()
        assert await second == ""
        assert (it.recorded(), await it.got("a")) == ({"ns/a": "n1"}, ("n1", "0"))
        binding.release()
        assert await first != ""


async def test_bind_when_it_is_asked_twice_at_once_binds_once() -> None:
    async with a_story(gpus=2) as it:
        pod = await it.pod("a", 50)
        said = await asyncio.gather(*(it.scheduler.place(it.extender, pod) for _ in range(4)))
        assert said == [""] * 4
        assert it.recorded() == {"ns/a": "n0"}


async def test_pods_when_many_are_bound_at_once_get_no_more_than_there_is() -> None:
    async with a_story(nodes=2, gpus=2) as it:
        pods = [await it.pod(f"p{number}", 40) for number in range(12)]
        said = await asyncio.gather(*(it.scheduler.place(it.extender, pod) for pod in pods))
        again = [await it.scheduler.place(it.extender, pod) for pod, why in zip(pods, said, strict=True) if why]
        assert len([why for why in (*said, *again) if not why]) == 8
        assert len(it.recorded()) == 8


async def test_pod_that_others_bound_is_adopted_with_the_gpus_that_it_names() -> None:
    async with a_story(gpus=2) as it:
        notes = {f"{GPUS_OF}main": "1", ASSUMED: "true"}
        await it.pod("a", 80, annotations=notes)
        await it.world.bind("a", "n0", "ns")
        await it.until(lambda: it.recorded() == {"ns/a": "n0"})
        share = it.shares("a")
        assert share is not None
        assert share.containers == {"main": ContainerGpus(gpus=(1,), request=GpuRequest(milli=800))}
        assert await it.place("b", 80) == ""
        assert await it.got("b") == ("n0", "0")


async def test_pod_that_names_its_node_itself_gets_gpus_and_annotations() -> None:
    async with a_story(gpus=2) as it:
        await it.place("a", 80)
        await it.pod("b", 80, spec={"nodeName": "n0"})
        await it.until(lambda: len(it.recorded()) == 2)
        await it.world.until_it_is(lambda: has_gpus(it, "b", "1"))
        assert await it.got("b") == ("n0", "1")


async def test_pod_that_others_bound_where_there_is_no_room_closes_its_node_until_it_is_gone() -> None:
    async with a_story(gpus=1) as it:
        await it.place("a", 80)
        await it.pod("b", 80, annotations={f"{GPUS_OF}main": "0", ASSUMED: "true"})
        found = await it.world.client.get(PODS, "b", "ns")
        # The breach is theirs.
        it.world.server.on_change = lambda change: None
        await it.world.bind("b", "n0", "ns")
        await it.until(lambda: found["metadata"]["uid"] in it.extender.decider.pods.on("n0"))
        assert await it.place("c", 10) == "GPUs that pod ns/b uses there are not recorded yet"
        await it.world.client.delete(PODS, "b", "ns", grace_s=0)
        await it.until(lambda: len(it.extender.decider.pods.on("n0")) == 1)
        assert await it.scheduler.place(it.extender, await it.world.client.get(PODS, "c", "ns")) == ""


async def test_annotations_that_are_lost_or_wrong_are_restored_from_the_log() -> None:
    async with a_story(gpus=2) as it:
        await it.place("a", 50)
        for notes in ({f"{GPUS_OF}main": None, ASSUMED: None}, {f"{GPUS_OF}main": "1"}, {f"{GPUS_OF}main": "no"}):
            await it.world.client.patch(PODS, ("ns", "a"), {"metadata": {"annotations": notes}})
            await it.world.until_it_is(lambda: has_gpus(it, "a", "0"))
        assert await it.got("a") == ("n0", "0")


async def test_share_of_a_gpu_that_is_gone_for_long_is_released_and_the_rest_stays() -> None:
    async with a_story(gpus=2) as it:
        amounts = {"elasticgpu.io/gpu-core": "60"}
        assert await it.place("a", containers={"x": amounts, "y": amounts}) == ""
        assert await it.place("b", 10) == ""
        it.world.server.on_change = lambda change: None
        offered = {"elasticgpu.io/gpu-core": "100", "elasticgpu.io/gpu-memory": "16000"}
        await it.world.client.patch(NODES, "n0", {"status": {"allocatable": offered}}, "status")
        await it.until(lambda: len(it.replica.service.view.cluster.shares.nodes["n0"].devices) == 1)
        await asyncio.sleep(200)
        assert await it.reasons() == []
        await it.world.until_it_is(lambda: released(it))
        assert await it.reasons() == ["GPU 1 of the node is gone"]
        share = it.shares("a")
        assert share is not None
        assert [each.gpus for each in share.containers.values()] == [(0,)]
        # Its GPU may be given to others once it is there again.
        await it.world.until_it_is(lambda: names_gpus(it, "a", {"x": "0"}))
        assert await it.place("c", 40) != ""


async def test_node_that_comes_back_after_its_account_was_forgotten_gives_its_gpus_as_before() -> None:
    async with a_story(gpus=1) as it:
        nodes = it.replica.service.view.cluster.shares.nodes
        assert await it.place("a", 100) == ""
        await it.world.client.delete(PODS, "a", "ns", grace_s=0)
        await it.until(lambda: it.recorded() == {})
        await it.world.client.delete(NODES, "n0")
        await it.until(lambda: not nodes)
        await it.world.add_nodes(a_gpu_node("n0", 1))
        await it.until(lambda: nodes)
        assert [await it.place("b", 60), await it.place("c", 60) != ""] == ["", True]
        assert it.recorded() == {"ns/b": "n0"}


async def test_gpus_that_come_back_at_once_change_nothing() -> None:
    async with a_story(gpus=1) as it:
        assert await it.place("a", 100) == ""
        for core in ("0", "100"):
            offered = {"elasticgpu.io/gpu-core": core, "elasticgpu.io/gpu-memory": "16000"}
            await it.world.client.patch(NODES, "n0", {"status": {"allocatable": offered}}, "status")
            await asyncio.sleep(60)
        assert (await it.reasons(), it.recorded()) == ([], {"ns/a": "n0"})
        assert await it.place("b", 10) != ""


async def test_pod_that_kube_scheduler_has_put_aside_is_changed_once_its_gpus_are_free_and_not_before() -> None:
    async with a_story(gpus=1) as it:
        assert await it.place("a", 100) == ""
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
        for name, core in (("b", 60), ("c", 200), ("d", 150)):
            pod = await it.pod(name, core)
            assert await it.scheduler.place(it.extender, pod) != ""
            await it.world.client.patch(PODS, ("ns", name), {"status": {"conditions": [condition]}}, "status")
        await asyncio.sleep(60)
        assert await touched(it) == []
        await it.world.client.delete(PODS, "a", "ns", grace_s=0)
        await it.until(lambda: it.recorded() == {})
        await it.world.until_it_is(lambda: touched(it))
        # What else the pod that went leaves of the node is told a little later.
        await asyncio.sleep(60)
        before = await it.world.client.get(PODS, "b", "ns")
        await asyncio.sleep(60)
        assert await touched(it) == ["b"]
        assert (await it.world.client.get(PODS, "b", "ns")) == before


@pytest.mark.parametrize(("rater", "gpus"), [("binpack", {"0"}), ("spread", {"0", "1"})])
async def test_rater_as_set_packs_or_spreads(rater: str, gpus: set[str]) -> None:
    async with a_story(gpus=2, rater=rater) as it:
        assert [await it.place(name, 30) for name in "ab"] == ["", ""]
        assert {(await it.got(name))[1] for name in "ab"} == gpus


class Holding:
    """Holds a replica at the nth call of a kind (append, patch, create), before or after it, until it is released."""

    def __init__(self, replica: Replica, when: str, verb: str, count: int) -> None:
        self.reached = asyncio.Event()
        self._on = asyncio.Event()
        self._left = count
        self.calls = 0
        service = replica.service
        owner, name = (service.store, "append_all") if verb == "append" else (service.mirror.api, verb)
        call = getattr(owner, name)

        async def holding(*arguments: Any, **options: Any) -> Any:
            if not self._concerns(verb, arguments):
                return await call(*arguments, **options)
            self.calls += 1
            if when == "before":
                await self._meet()
            result = await call(*arguments, **options)
            if when == "after":
                await self._meet()
            return result

        setattr(owner, name, holding)

    def release(self) -> None:
        """Let it go on."""
        self._on.set()

    async def _meet(self) -> None:
        self._left -= 1
        if self._left == 0:
            self.reached.set()
            await self._on.wait()

    @staticmethod
    def _concerns(verb: str, arguments: Any) -> bool:
        if verb == "append":
            return isinstance(arguments[0][0].facts[0].data, ShareAssigned | ShareReleased)
        return "/pods/" in arguments[0]


@pytest.mark.parametrize("again", ["n0", "n1", ""])
@pytest.mark.parametrize("verb", ["append", "patch", "create"])
@pytest.mark.parametrize("when", ["before", "after"])
async def test_replica_when_it_is_killed_between_any_two_writes_leaves_nothing_that_is_not_put_right(
    when: str, verb: str, again: str
) -> None:
    async with a_story(nodes=2, gpus=1) as it:
        held = Holding(it.replica, when, verb, 1)
        # A binding takes no annotation away: what the pod has of others is patched away before.
        pod = await it.pod("a", 60, annotations={f"{GPUS_OF}other": "7"} if verb == "patch" else {})
        trying = asyncio.create_task(it.scheduler.place(it.extender, pod, node="n0"))
        await held.reached.wait()
        await it.replica.kill()
        trying.cancel()
        async with it.world.replica(Wire(3, longest_s=0.01), sharing=SHARING) as second:
            it.replica = second
            await it.until(lambda: second.service.mirror.is_synced and second.service.leadership.is_leading)
            found = await it.world.client.get(PODS, "a", "ns")
            if again and not found["spec"].get("nodeName"):
                assert await it.scheduler.place(it.extender, found, node=again) == ""
            node, gpus = await it.got("a")
            if node:
                await it.until(lambda: it.recorded() == {"ns/a": node})
                assert gpus == "0"
            else:
                await it.until(lambda: it.recorded() == {})
            # Nothing is leaked: what is left can be had.
            others = {"n0", "n1"} - {node}
            for number, free in enumerate(sorted(others)):
                whole = await it.pod(f"whole-{number}", 100)
                assert await it.scheduler.place(it.extender, whole, node=free) == ""
            await it.world.client.delete(PODS, "a", "ns", grace_s=0)
            await it.until(lambda: "ns/a" not in it.recorded())


@pytest.mark.parametrize(("verb", "count"), [("patch", 1), ("append", 2)])
@pytest.mark.parametrize("when", ["before", "after"])
async def test_leader_when_it_is_killed_between_the_writes_of_a_withdrawal_leaves_it_to_the_next_one(
    when: str, verb: str, count: int
) -> None:
    async with a_story(gpus=1) as it:
        binding, withdrawing = Holding(it.replica, "before", "create", 1), Holding(it.replica, when, verb, count)
        trying = asyncio.create_task(it.scheduler.place(it.extender, await it.pod("a", 100)))
        await binding.reached.wait()
        await withdrawing.reached.wait()
        await it.replica.kill()
        trying.cancel()
        async with it.world.replica(Wire(3, longest_s=0.01), sharing=SHARING) as second:
            it.replica = second
            await it.until(lambda: second.service.mirror.is_synced and second.service.leadership.is_leading)
            await it.until(lambda: it.recorded() == {})
            assert await it.got("a") == ("", "")
            assert await it.place("b", 100) == ""


@pytest.mark.parametrize("verb", ["append", "patch"])
@pytest.mark.parametrize("when", ["before", "after"])
async def test_leader_when_it_is_killed_between_the_writes_of_an_adoption_leaves_it_to_the_next_one(
    when: str, verb: str
) -> None:
    async with a_story(gpus=1) as it:
        adopting = Holding(it.replica, when, verb, 1)
        await it.pod("a", 80, spec={"nodeName": "n0"})
        await adopting.reached.wait()
        await it.replica.kill()
        async with it.world.replica(Wire(3, longest_s=0.01), sharing=SHARING) as second:
            it.replica = second
            await it.until(lambda: it.recorded() == {"ns/a": "n0"})
            await it.world.until_it_is(lambda: has_gpus(it, "a", "0"))
            assert await it.place("b", 30) != ""


async def touched(it: Story) -> list[str]:
    pods = await it.world.client.list(PODS, "ns")
    return [pod["metadata"]["name"] for pod in pods if FREED in pod["metadata"].get("annotations", {})]


async def runs(it: Story, name: str) -> bool:
    return bool((await it.world.client.get(PODS, name, "ns"))["status"].get("phase") == "Running")


async def has_gpus(it: Story, name: str, gpus: str) -> bool:
    pod = await it.world.client.get(PODS, name, "ns")
    return gpus_of(pod) == {"main": gpus} and pod["metadata"]["annotations"].get(ASSUMED) == "true"


async def names_gpus(it: Story, name: str, gpus: dict[str, str]) -> bool:
    return gpus_of(await it.world.client.get(PODS, name, "ns")) == gpus


async def has_label(it: Story, name: str) -> bool:
    pod = await it.world.client.get(PODS, name, "ns")
    return bool(pod["metadata"].get("labels", {}).get(ASSUMED) == "true")


async def released(it: Story) -> bool:
    return bool(await it.reasons())
