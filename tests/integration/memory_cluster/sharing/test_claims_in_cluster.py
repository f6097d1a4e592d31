"""Pods that claim parts of GPUs on a cluster in memory, on virtual time; what kube-scheduler does is done by hand.

Rule: whatever happens, the log comes to say what claims were given, and what nobody uses comes back.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.kube.client import (
    CLAIM_TEMPLATES,
    CLAIMS,
    DEVICE_CLASSES,
    EVENTS,
    NAMESPACES,
    PODS,
    SLICES,
    Object,
    Refused,
)
from tests.kube.devices import CLASS, DRIVER, a_claim_template, a_device_class, a_gpu, a_slice, claims_of
from tests.kube.memory_api import Wire
from tests.kube.memory_world import MemoryWorld, Replica
from tests.kube.objects import a_node, a_pod
from tests.kube.operators.base import phase_of
from tests.kube.operators.mpi_v2 import MpiOperatorV2
from voda.cluster.kubernetes.objects import Pod
from voda.cluster.kubernetes.state.claimed_amounts import asked_of_gpus
from voda.domain.errors import ActionRefused
from voda.domain.gpus import ContainerGpus, GpuRequest
from voda.events.text.pods import pod_text
from voda.events.types import ShareAssigned, ShareReleased
from voda.kubernetes_client.api import Api
from voda.operator.sharing.claims import claimants, round

SETTINGS: Mapping[str, Any] = {
    "cluster": {"defaultPool": "default", "gpuDeviceClasses": [CLASS], "relistSeconds": 60.0},
    "sharing": {"claims": True, "rater": "binpack"},
}
BY_HAND = "by-hand"
PART = {"milli": "400", "memory": "20Gi"}
WHOLE = {"milli": "1000", "memory": "80Gi"}
pytestmark = pytest.mark.virtual_time


class Story:
    """A cluster with GPUs, and a kube-scheduler by hand."""

    def __init__(self, world: MemoryWorld, replica: Replica) -> None:
        self.world = world
        self.replica = replica

    async def submit(self, name: str, *, is_gated: bool = True, **spec: Any) -> None:
        """Create a pod that claims a part."""
        gates = [{"name": "voda.dev/share"}] if is_gated else []
        own = {"schedulingGates": gates, "schedulerName": BY_HAND, "restartPolicy": "Never"}
        spec = {**claims_of("part"), **own, **spec}
        await self.world.client.create(PODS, a_pod(name, "ns", spec=spec))

    async def pod(self, name: str) -> Object:
        return await self.world.client.get(PODS, name, "ns")

    async def claim(self, name: str) -> Object:
        """Return the claim that the status of a pod names."""
        return await self.world.client.get(CLAIMS, await self.claim_name(name), "ns")

    async def claim_name(self, name: str) -> str:
        """Return the name of the claim that the status of a pod names."""
        [status] = (await self.pod(name))["status"]["resourceClaimStatuses"]
        return str(status["resourceClaimName"])

    async def selected(self, name: str) -> str:
        """Return the GPU that the claim of a pod without a gate selects, NODE-NUMBER; empty: none yet."""
        pod = await self.pod(name)
        if pod["spec"].get("schedulingGates") or not pod["status"].get("resourceClaimStatuses"):
            return ""
        [request] = (await self.claim(name))["spec"]["devices"]["requests"]
        found = [each["cel"]["expression"] for each in request["exactly"].get("selectors", ())]
        return found[0].partition("GPU-")[2].removesuffix('"') if found else ""

    async def until_selects(self, name: str, gpu: str) -> None:
        async def selects() -> bool:
            try:
                return await self.selected(name) == gpu
            except Refused:
                # The claim was replaced between the two requests.
                return False

        await self.world.until_it_is(selects, what=f"pod {name} selects {gpu}")

    async def until_runs(self, name: str) -> None:
        async def runs() -> bool:
            return phase_of(await self.pod(name)) == "Running"

        await self.world.until_it_is(runs, what=f"pod {name} runs")

    async def until_one_claim(self) -> None:
        """Wait until the claims are gone whose place was taken."""

        async def is_one() -> bool:
            return len(await self.world.client.list(CLAIMS, "ns")) == 1

        await self.world.until_it_is(is_one, what="one claim is left")

    async def allocate(self, name: str, node: str, number: int, **part: str) -> None:
        """Give a pod's claim a part of a GPU, and the pod its node, as kube-scheduler does."""
        claim = await self.claim(name)
        at = {"driver": DRIVER, "pool": node, "device": f"gpu-{number}", "request": "gpus", "shareID": name}
        results = [{**at, "consumedCapacity": {**PART, **part}}]
        key = ("ns", claim["metadata"]["name"])
        status = {"allocation": {"devices": {"results": results}}}
        await self.world.client.patch(CLAIMS, key, {"status": status}, "status")
        await self.world.bind(name, node)

    async def refuse(self, name: str, message: str = "no CPU", **status: Any) -> None:
        """Say that a pod cannot be scheduled."""
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
        await self.world.client.patch(PODS, ("ns", name), {"status": {"conditions": [condition], **status}}, "status")

    async def wait(self, seconds: float) -> None:
        """Let time pass."""
        clock = self.replica.service.clock
        end = clock.now() + seconds
        while (now := clock.now()) < end:
            await self.world.until(lambda: clock.now() > min(now + 300, end))

    def recorded(self) -> Mapping[str, tuple[str, int, int]]:
        """Return pod -> node, GPU and milli, by the log."""
        nodes = self.replica.service.view.cluster.shares.nodes.items()
        return {
            each.pod.partition("/")[2]: (node, share.gpus[0], share.request.milli)
            for node, account in nodes
            for each in account.pods.values()
            for share in each.containers.values()
        }

    async def until_recorded(self, **pods: tuple[str, int, int]) -> None:
        await self.world.until(lambda: self.recorded() == pods, what=f"{pods} are recorded")

    async def reasons(self) -> list[str]:
        events = await self.world.store.read(0, 100_000)
        return [pod_text(event.data.reason) for event in events if isinstance(event.data, ShareReleased)]


@asynccontextmanager
async def a_story(gpus: Mapping[str, int], **settings: Any) -> AsyncIterator[Story]:
    async with MemoryWorld(1, (MpiOperatorV2,), Wire(1, longest_s=0.01)) as world:
        await world.client.create(DEVICE_CLASSES, a_device_class())
        part = {"exactly": {"deviceClassName": CLASS, "capacity": {"requests": PART}}}
        await world.client.create(CLAIM_TEMPLATES, a_claim_template("part", "ns", request=part))
        large = {"exactly": {"deviceClassName": CLASS, "capacity": {"requests": WHOLE}}}
        await world.client.create(CLAIM_TEMPLATES, a_claim_template("large", "ns", request=large))
        for node, count in gpus.items():
            await add_node(world, node, count)
        async with world.replica(Wire(2, longest_s=0.01), **{**SETTINGS, **settings}) as replica:
            yield Story(world, replica)


async def add_node(world: MemoryWorld, node: str, gpus: int) -> None:
    await world.add_nodes(a_node(node, 0))
    await world.client.create(SLICES, a_slice(node, [a_gpu(node, number) for number in range(gpus)]))


STEPS = ("append", "create resourceclaims", "patch status", "patch a")


def hold(replica: Replica, when: str, step: str) -> asyncio.Event:
    """Have a replica stop for good before or after its first write of a kind; return what is set then."""
    reached, service = asyncio.Event(), replica.service

    def holding(verb: str, call: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def held(*arguments: Any, **options: Any) -> Any:
            if verb == "append":
                name = "append" if isinstance(arguments[0][0].facts[0].data, ShareAssigned) else ""
            else:
                name = f"{verb} {arguments[0].rpartition('/')[2]}"
            result = await call(*arguments, **options) if name != step or when == "after" else None
            if name == step:
                reached.set()
                await asyncio.Event().wait()
            return result

        return held

    for owner, verb, method in (
        (service.store, "append", "append_all"),
        (service.mirror.api, "create", "create"),
        (service.mirror.api, "patch", "patch"),
    ):
        setattr(owner, method, holding(verb, getattr(owner, method)))
    return reached


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("when", ["before", "after"])
async def test_leader_when_it_is_killed_between_any_two_writes_loses_and_leaks_nothing(when: str, step: str) -> None:
    async with a_story({"n1": 1}) as it:
        reached = hold(it.replica, when, step)
        await it.submit("a")
        await reached.wait()
        await it.replica.kill()
        async with it.world.replica(Wire(3, longest_s=0.01), **SETTINGS) as second:
            it.replica = second
            await it.until_selects("a", "n1-0")
            await it.allocate("a", "n1", 0)
            await it.until_one_claim()
            await it.until_recorded(a=("n1", 0, 400))
            await it.world.client.delete(PODS, "a", "ns", grace_s=0)
            await it.until_recorded()
            await it.world.until_it_is(lambda: has_no_claim(it), what="no claim is left")
        events = [event.data for event in await it.world.store.read(0, 100_000)]
        assert len([fact for fact in events if isinstance(fact, ShareAssigned)]) == 1


@pytest.mark.parametrize("step", ["create resourceclaims", "patch status"])
async def test_pod_of_several_whole_gpus_when_the_leader_is_killed_midway_gets_those_that_were_chosen(
    step: str,
) -> None:
    async with a_story({"n1": 3}) as it:
        pair = {"exactly": {"deviceClassName": CLASS, "allocationMode": "ExactCount", "count": 2}}
        await it.world.client.create(CLAIM_TEMPLATES, a_claim_template("pair", "ns", request=pair))
        await it.submit("part")
        await it.until_selects("part", "n1-0")
        reached = hold(it.replica, "after", step)
        await it.submit("a", **claims_of("pair"))
        await reached.wait()
        await it.replica.kill()
        async with it.world.replica(Wire(3, longest_s=0.01), **SETTINGS) as second:
            it.replica = second
            await it.until_selects("a", 'n1-1", "GPU-n1-2"]')
            whole = {"driver": DRIVER, "pool": "n1", "request": "gpus", "consumedCapacity": WHOLE}
            # In whatever order kube-scheduler tries them.
            results = [{**whole, "device": f"gpu-{number}", "shareID": f"a{number}"} for number in (2, 1)]
            key = ("ns", (await it.claim("a"))["metadata"]["name"])
            status = {"allocation": {"devices": {"results": results}}}
            await it.world.client.patch(CLAIMS, key, {"status": status}, "status")
            await it.world.bind("a", "n1")
            await it.until_runs("a")
            await it.until_recorded(part=("n1", 0, 400), a=("n1", 1, 0))
            await it.world.kubelet.exit("ns", "a")
            await it.until_recorded(part=("n1", 0, 400))
            assert await it.reasons() == ["the pod has ended"]


async def has_no_claim(it: Story) -> bool:
    return not await it.world.client.list(CLAIMS, "ns")


async def test_pod_when_its_share_is_recorded_selects_the_gpu_and_gives_it_back_in_the_end() -> None:
    async with a_story({"n1": 1}) as it:
        await it.submit("a")
        await it.until_selects("a", "n1-0")
        assert (await it.pod("a"))["status"]["nominatedNodeName"] == "n1"
        assert it.recorded() == {"a": ("n1", 0, 400)}
        await it.allocate("a", "n1", 0)

        await it.until_one_claim()
        await it.until_runs("a")
        await it.world.kubelet.exit("ns", "a")
        await it.until_recorded()
        assert await it.reasons() == ["the pod has ended"]


async def test_pod_that_may_not_preempt_keeps_no_room_on_its_node() -> None:
    async with a_story({"n1": 1}) as it:
        await it.submit("a", preemptionPolicy="Never")
        await it.until_selects("a", "n1-0")
        assert "nominatedNodeName" not in (await it.pod("a"))["status"]


async def test_what_kube_scheduler_gave_is_recorded_in_place_of_what_was_meant() -> None:
    async with a_story({"n1": 1, "n2": 1}) as it:
        await it.submit("a")
        await it.until_selects("a", "n1-0")
        # It looked at an older state of the pod, and its driver rounds up.
        await it.allocate("a", "n2", 0, milli="500")
        await it.until_recorded(a=("n2", 0, 500))
        assert await it.reasons() == ["its claims were given GPUs of another node"]


async def test_claims_of_others_count_and_a_share_that_is_only_meant_gives_way() -> None:
    async with a_story({"n1": 1}) as it:
        await it.submit("a")
        await it.until_selects("a", "n1-0")
        await it.submit("other", is_gated=False)
        await it.world.until_it_is(lambda: has_claim(it, "other"))
        await it.allocate("other", "n1", 0, milli="700")
        await it.until_recorded(other=("n1", 0, 700))
        await it.until_runs("other")
        await it.world.kubelet.exit("ns", "other")
        await it.until_recorded(a=("n1", 0, 400))
        assert await it.selected("a") == "n1-0"


async def has_claim(it: Story, name: str) -> bool:
    return bool((await it.pod(name))["status"].get("resourceClaimStatuses"))


async def test_pod_that_is_unschedulable_moves_once_there_is_room_elsewhere() -> None:
    async with a_story({"n1": 1}) as it:
        await it.submit("a")
        await it.until_selects("a", "n1-0")
        await it.refuse("a")
        await add_node(it.world, "n2", 1)
        await it.until_selects("a", "n2-0")
        await it.until_recorded(a=("n2", 0, 400))
        assert await it.reasons() == ["kube-scheduler cannot place the pod there: no CPU"]


async def test_pod_whose_gpu_goes_before_it_is_allocated_gets_another_one() -> None:
    async with a_story({"n1": 1}) as it:
        await it.submit("a")
        await it.until_selects("a", "n1-0")
        await it.world.client.delete(SLICES, "n1-gpus")
        await add_node(it.world, "n2", 1)
        await it.until_recorded(a=("n2", 0, 400))
        assert await it.reasons() == ["the GPU is gone"]


async def test_share_of_a_pod_that_runs_stays_while_its_driver_publishes_nothing() -> None:
    async with a_story({"n1": 1}) as it:
        await it.submit("a")
        await it.until_selects("a", "n1-0")
        await it.allocate("a", "n1", 0)
        await it.world.client.delete(SLICES, "n1-gpus")
        nodes = it.replica.service.view.cluster.shares.nodes
        await it.world.until(lambda: not nodes["n1"].devices)
        now = it.replica.service.clock.now()
        await it.world.until(lambda: it.replica.service.clock.now() > now + 120)
        assert it.recorded() == {"a": ("n1", 0, 400)}
        await it.world.client.delete(PODS, "a", "ns", grace_s=0)
        await it.until_recorded()
        assert await it.reasons() == ["the pod is gone"]


async def test_wait_in_vain_tells_what_there_is() -> None:
    async with a_story({"n1": 1}) as it:
        await it.submit("a")
        with pytest.raises(AssertionError, match=r"(?s)until pigs fly; there is\n.*pod ns/a: Pending"):
            await it.world.until(lambda: False, what="pigs fly", within_s=1.0)


async def test_pod_that_claims_no_part_is_told_so_and_keeps_its_gate() -> None:
    async with a_story({"n1": 1}) as it:
        await it.submit("a", resourceClaims=[])
        await it.world.until_it_is(lambda: is_told(it, "claims no part of a GPU"))
        assert (await it.pod("a"))["spec"]["schedulingGates"]
        assert it.recorded() == {}


async def test_pods_whose_claims_cannot_be_made_leave_their_turn_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(round, "MOST_UNDER_WAY", 1)
    async with a_story({"n1": 2}) as it:
        refuse_claims_of(it.replica, "a-")
        await it.submit("a")
        await it.until_recorded(a=("n1", 0, 400))
        await it.submit("b")
        await it.until_selects("b", "n1-0")
        assert await it.selected("a") == ""
        await it.world.until_it_is(lambda: is_told(it, "refuses to name them in its claims: exceeded quota"))


def refuse_claims_of(replica: Replica, start: str) -> None:
    refuse(replica, "ResourceClaim", start)


def refuse(replica: Replica, kind: str, start: str) -> None:
    """Have the API server refuse objects whose names begin like that, as a quota does."""
    api = replica.service.mirror.api
    create = api.create

    async def created(path: str, body: Any, *arguments: Any) -> Any:
        if body["kind"] == kind and body["metadata"]["name"].startswith(start):
            raise ActionRefused("exceeded quota")
        return await create(path, body, *arguments)

    api.create = created  # type: ignore[method-assign, assignment]


async def test_share_by_which_the_extender_is_about_to_bind_a_pod_that_claims_too_stays() -> None:
    async with a_story({"n1": 1}) as it:
        await it.world.add_nodes(a_node("n2", 0, amounts={"elasticgpu.io/gpu-core": "100"}))
        nodes = it.replica.service.view.cluster.shares.nodes
        await it.world.until(lambda: "n2" in nodes)
        amounts = {"requests": {"elasticgpu.io/gpu-core": "60"}, "limits": {"elasticgpu.io/gpu-core": "60"}}
        await it.submit("a", is_gated=False, containers=[{"name": "main", "image": "work", "resources": amounts}])
        uid = (await it.pod("a"))["metadata"]["uid"]
        share = {"main": ContainerGpus(gpus=(0,), request=GpuRequest(milli=600))}
        fact = ShareAssigned(node="n2", pod_uid=uid, pod="ns/a", containers=share)
        await it.replica.service.backend.journal.record(fact, actor="extender", version=nodes["n2"].version)
        # Anybody may write it.
        await it.world.client.patch(PODS, ("ns", "a"), {"metadata": {"annotations": {"voda.dev/cards": "gpus=x"}}})
        await it.world.until_it_is(lambda: is_told(it, "by resources and by claims"))
        assert it.recorded() == {"a": ("n2", 0, 600)}


async def is_told(it: Story, what: str) -> bool:
    return any(what in event["message"] for event in await it.world.client.list(EVENTS, "ns"))


@pytest.mark.parametrize("node", ["n1", "n2"])
async def test_all_that_claims_have_counts_though_they_say_that_they_are_the_same_claim_of_a_pod(node: str) -> None:
    async with a_story({"n1": 1, "n2": 1}) as it:
        await it.submit("a")
        await it.until_selects("a", "n1-0")
        await it.allocate("a", "n1", 0)
        await it.until_recorded(a=("n1", 0, 400))
        nodes = it.replica.service.view.cluster.shares.nodes
        before = nodes[node].free()[0].milli

        like = await it.claim("a")
        metadata = {key: like["metadata"][key] for key in ("annotations", "ownerReferences")}
        await it.world.client.create(
            CLAIMS, {"metadata": {"name": "b", "namespace": "ns", **metadata}, "spec": like["spec"]}
        )
        at = {"driver": DRIVER, "pool": node, "device": "gpu-0", "request": "gpus", "shareID": "b"}
        status = {"allocation": {"devices": {"results": [{**at, "consumedCapacity": PART}]}}}
        await it.world.client.patch(CLAIMS, ("ns", "b"), {"status": status}, "status")
        await it.world.until(lambda: nodes[node].free()[0].milli == before - 400)

        await it.world.client.delete(CLAIMS, "b", "ns")
        await it.until_recorded(a=("n1", 0, 400))
        await it.world.until(lambda: nodes[node].free()[0].milli == before)


async def test_claims_are_deleted_one_after_the_other_however_slow_the_api_server_is() -> None:
    async with a_story({"n1": 1}) as it:
        api, waiting, clock = it.replica.service.mirror.api, list[str](), it.replica.service.clock

        async def delete(path: str, **_: str) -> None:
            waiting.append(path)
            await asyncio.Event().wait()

        api.delete = delete  # type: ignore[method-assign, assignment]
        await it.submit("a")
        await it.until_selects("a", "n1-0")
        await it.allocate("a", "n1", 0)
        await it.world.until(lambda: bool(waiting))
        now = clock.now()
        await it.world.until(lambda: clock.now() > now + 60)
        assert len(waiting) == 1


async def test_pod_that_another_gate_holds_keeps_no_gpu_from_others() -> None:
    async with a_story({"n1": 1}) as it:
        gates = [{"name": "voda.dev/share"}, {"name": "example.com/quota"}]
        for name in ("a", "b", "c"):
            await it.submit(name, schedulingGates=gates)
        await it.submit("d")
        await it.until_selects("d", "n1-0")
        assert it.recorded().keys() == {"d"}
        await it.world.client.patch(PODS, ("ns", "a"), {"spec": {"schedulingGates": gates[:1]}})
        await it.until_selects("a", "n1-0")


async def test_pod_that_fits_nowhere_moves_the_more_seldom_the_oftener_it_has_moved() -> None:
    async with a_story({f"n{number}": 1 for number in range(10)}) as it:
        await it.submit("a")
        await it.until_selects("a", "n0-0")
        await it.refuse("a")
        clock = it.replica.service.clock
        end = clock.now() + 60
        while clock.now() < end:
            # kube-scheduler says the same of each node, and so takes away the node's name alone.
            await it.refuse("a", nominatedNodeName=None)
            await it.wait(1)
        assert 2 <= len(await it.reasons()) <= 4


async def test_pod_that_cannot_be_looked_at_keeps_no_other_from_its_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    def asked_but_of_a(pod: Pod, *arguments: Any) -> Mapping[str, GpuRequest]:
        if pod.metadata.name == "a":
            raise KeyError(pod.metadata.key)
        return asked_of_gpus(pod, *arguments)

    monkeypatch.setattr(claimants, "asked_of_gpus", asked_but_of_a)
    async with a_story({"n1": 1}) as it:
        await it.submit("a")
        await it.submit("b")
        await it.until_selects("b", "n1-0")
        assert it.recorded().keys() == {"b"}


async def test_pod_that_cannot_be_decided_on_keeps_no_other_from_its_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    look_at = round.RoundPlan.look_at

    def look(self: round.RoundPlan, waiting: round.UnplacedPod) -> None:
        if waiting.pod.metadata.name == "odd":
            raise ValueError("unforeseen")
        look_at(self, waiting)

    monkeypatch.setattr(round.RoundPlan, "look_at", look)
    async with a_story({"n1": 1}) as it:
        await it.submit("odd")
        await it.submit("a")
        await it.until_selects("a", "n1-0")


async def test_pod_that_asks_for_a_whole_gpu_gets_none_with_less_memory_than_it_asks_for() -> None:
    async with a_story({"n1": 1}) as it:
        asked = {"exactly": {"deviceClassName": CLASS, "capacity": {"requests": {"milli": "1000", "memory": "90Gi"}}}}
        await it.world.client.create(CLAIM_TEMPLATES, a_claim_template("larger", "ns", request=asked))
        await it.world.add_nodes(a_node("n2", 0))
        await it.world.client.create(SLICES, a_slice("n2", [a_gpu("n2", 0, memory="141Gi")]))
        # Sorted by name, n1 would come first.
        nodes = it.replica.service.view.cluster.shares.nodes
        await it.world.until(lambda: "n2" in nodes)
        await it.submit("other", **claims_of("larger"))
        await it.until_selects("other", "n2-0")
        assert await it.reasons() == []
        await it.submit("late", **claims_of("larger"))
        await it.world.until_it_is(lambda: is_told(it, "1 the node's GPUs are too few or too small"))


async def test_pod_is_not_held_up_by_a_claim_of_another_namespace_that_says_it_is_the_pods() -> None:
    async with a_story({"n1": 1}) as it:
        gates = [{"name": "voda.dev/share"}, {"name": "example.com/quota"}]
        await it.submit("a", schedulingGates=gates)
        meta = (await it.pod("a"))["metadata"]
        owner = {"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": meta["uid"], "controller": True}
        await it.world.client.create(NAMESPACES, {"metadata": {"name": "elsewhere"}})
        metadata = {"name": "x", "namespace": "elsewhere", "ownerReferences": [owner]}
        request = {"name": "gpus", "exactly": {"deviceClassName": CLASS}}
        await it.world.client.create(CLAIMS, {"metadata": metadata, "spec": {"devices": {"requests": [request]}}})
        at = {"driver": DRIVER, "pool": "n1", "device": "gpu-0", "request": "gpus", "shareID": "x"}
        status = {"allocation": {"devices": {"results": [{**at, "consumedCapacity": {**PART, "milli": "500"}}]}}}
        await it.world.client.patch(CLAIMS, ("elsewhere", "x"), {"status": status}, "status")
        nodes = it.replica.service.view.cluster.shares.nodes
        await it.world.until(lambda: "n1" in nodes and nodes["n1"].free()[0].milli == 500)
        await it.world.client.patch(PODS, ("ns", "a"), {"spec": {"schedulingGates": gates[:1]}})
        await it.until_selects("a", "n1-0")
        assert nodes["n1"].free()[0].milli == 100


async def test_claim_that_names_a_pod_which_never_was_counts_as_its_own_after_a_minute() -> None:
    async with a_story({"n1": 2}) as it:
        owner = {"apiVersion": "v1", "kind": "Pod", "name": "ghost", "uid": "ghost", "controller": True}
        # As of a claim in use: it stays, whatever is collected.
        metadata = {"name": "x", "namespace": "ns", "ownerReferences": [owner], "finalizers": ["in.use/x"]}
        request = {"name": "gpus", "exactly": {"deviceClassName": CLASS}}
        await it.world.client.create(CLAIMS, {"metadata": metadata, "spec": {"devices": {"requests": [request]}}})
        at = {"driver": DRIVER, "pool": "n1", "device": "gpu-0", "request": "gpus", "shareID": "x"}
        status = {"allocation": {"devices": {"results": [{**at, "consumedCapacity": WHOLE}]}}}
        await it.world.client.patch(CLAIMS, ("ns", "x"), {"status": status}, "status")
        await it.submit("a")
        # Meanwhile nobody is given that GPU.
        await it.until_selects("a", "n1-1")
        await it.wait(90)
        cluster = it.replica.service.view.cluster
        assert [left.is_whole for left in cluster.shares.nodes["n1"].free()] == [False, False]
        nodes = [node for pool in cluster.pools() for node in cluster.state(pool).nodes.values()]
        assert [(node.gpus, node.foreign_gpus) for node in nodes] == [(2, 2)]


async def test_pod_that_no_scheduler_looks_at_gives_its_gpu_back_and_gets_it_once_one_does() -> None:
    async with a_story({"n1": 1}) as it:
        await it.submit("a", schedulerName="nobody", **claims_of("large"))
        await it.submit("b", **claims_of("large"))
        await it.until_selects("a", "n1-0")
        await it.until_selects("b", "n1-0")
        assert it.recorded().keys() == {"b"}
        reason = "no scheduler has looked at the pod for 300 s: its schedulerName is nobody"
        assert (await it.reasons())[0] == reason
        await it.world.until_it_is(lambda: is_told(it, reason))
        # It holds nothing again before somebody has looked at it.
        await it.world.client.delete(PODS, "b", "ns", grace_s=0)
        await it.until_recorded()
        now = it.replica.service.clock.now()
        await it.world.until(lambda: it.replica.service.clock.now() > now + 60)
        assert it.recorded() == {}
        await it.refuse("a")
        await it.until_recorded(a=("n1", 0, 0))


async def test_claim_is_made_anew_so_that_kube_scheduler_looks_at_a_pod_again() -> None:
    async with a_story({"n1": 1}) as it:
        await it.submit("a")
        await it.until_selects("a", "n1-0")
        first, since = await it.claim_name("a"), it.replica.service.clock.now()
        await it.refuse("a")
        for number, after_s in enumerate((3, 12), 1):

            async def is_renewed(name: str = f"{first}-{number}") -> bool:
                return await it.claim_name("a") == name

            await it.world.until_it_is(is_renewed)
            # Where nothing changes, it is looked at every 5 s.
            assert after_s - 1 <= it.replica.service.clock.now() - since < after_s + 6
            await it.until_selects("a", "n1-0")
        await it.allocate("a", "n1", 0)
        await it.until_one_claim()
        assert it.recorded() == {"a": ("n1", 0, 400)}
        assert not await it.reasons()


async def test_pod_whose_claims_somebody_deleted_changes_so_that_they_are_made_anew() -> None:
    async with a_story({"n1": 1}) as it:
        await it.submit("a")
        await it.until_selects("a", "n1-0")
        it.world.server.objects[CLAIMS].clear()
        it.world.server.cut(forgets=True)
        await it.world.until_it_is(lambda: names_no_gpus(it, "a"), what="the pod names no GPUs any more")


async def names_no_gpus(it: Story, name: str) -> bool:
    return "voda.dev/cards" not in (await it.pod(name))["metadata"].get("annotations", {})


async def test_claim_that_somebody_made_by_the_next_name_is_not_taken_for_the_pods() -> None:
    async with a_story({"n1": 1}) as it:
        await it.submit("a")
        await it.until_selects("a", "n1-0")
        first, spec = await it.claim_name("a"), (await it.claim("a"))["spec"]
        there = len(await it.world.client.list(CLAIMS, "ns"))
        await it.world.client.create(CLAIMS, {"metadata": {"name": f"{first}-1", "namespace": "ns"}, "spec": spec})
        await it.refuse("a")
        await it.wait(50)
        assert await it.claim_name("a") == first
        assert len(await it.world.client.list(CLAIMS, "ns")) == there + 1


async def test_claim_that_cannot_be_made_anew_is_tried_ever_more_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    async with a_story({"n1": 1}) as it:
        await it.submit("a")
        await it.until_selects("a", "n1-0")
        api, tries = it.replica.service.mirror.api, list[str]()

        async def refuse_claims(path: str, *given: Any) -> Any:
            if path.endswith("resourceclaims"):
                tries.append(path)
                raise ActionRefused("exceeded quota")
            return await Api.create(api, path, *given)

        monkeypatch.setattr(api, "create", refuse_claims)
        await it.refuse("a")
        for number in range(500):
            await it.wait(0.1)
            # Something changes all the time.
            await it.world.client.patch(PODS, ("ns", "a"), {"metadata": {"annotations": {"x": str(number)}}})
        assert 2 <= len(tries) <= 3


async def test_pod_that_kube_scheduler_cannot_place_gives_its_gpu_back_after_a_minute() -> None:
    async with a_story({"n1": 1}) as it:
        clock = it.replica.service.clock
        await it.submit("a", **claims_of("large"))
        await it.until_selects("a", "n1-0")
        now = clock.now()
        await it.refuse("a")
        await it.submit("b", **claims_of("large"))
        await it.until_selects("b", "n1-0")
        assert 50 <= clock.now() - now < 90
        assert await it.reasons() == ["kube-scheduler cannot place the pod there: no CPU"]
        # Whichever of the two kube-scheduler comes to place has the GPU.
        await it.allocate("a", "n1", 0, milli="1000", memory="80Gi")
        await it.until_recorded(a=("n1", 0, 0))


async def test_pod_that_is_being_deleted_and_is_kept_by_a_finalizer_gives_its_gpu_back() -> None:
    async with a_story({"n1": 1}) as it:
        await it.submit("a", **claims_of("large"))
        await it.until_selects("a", "n1-0")
        await it.world.client.patch(PODS, ("ns", "a"), {"metadata": {"finalizers": ["example.com/kept"]}})
        await it.world.client.delete(PODS, "a", "ns", grace_s=0)
        await it.submit("b", **claims_of("large"))
        await it.until_recorded(b=("n1", 0, 0))
        assert await it.reasons() == ["the pod is being deleted"]
        assert (await it.pod("a"))["metadata"]["deletionTimestamp"]


async def test_pod_whose_claims_the_api_server_refuses_leaves_its_gpu_to_others_after_a_minute() -> None:
    async with a_story({"n1": 1}) as it:
        refuse_claims_of(it.replica, "a-")
        await it.submit("a", **claims_of("large"))
        await it.until_recorded(a=("n1", 0, 0))
        await it.submit("b", **claims_of("large"))
        await it.wait(50)
        assert it.recorded().keys() == {"a"}
        await it.wait(20)
        await it.until_selects("b", "n1-0")
        reason = "the API server refuses claims that select the GPUs"
        assert await it.reasons() == [reason]
        await it.allocate("b", "n1", 0, milli="1000", memory="80Gi")
        # Once that one is gone, another one that waits comes before it.
        await it.submit("c", **claims_of("large"))
        await it.wait(600)
        await it.world.client.delete(PODS, "b", "ns", grace_s=0)
        await it.until_selects("c", "n1-0")
        assert it.recorded().keys() == {"c"}
        assert await it.reasons() == [reason, "the pod is gone"]


async def test_pod_whose_claims_are_refused_again_and_again_holds_the_gpu_ever_more_seldom() -> None:
    async with a_story({"n1": 1}) as it:
        refuse_claims_of(it.replica, "a-")
        await it.submit("a", **claims_of("large"))
        await it.until_recorded(a=("n1", 0, 0))
        await it.wait(1800)
        assert it.recorded() == {}
        assert 3 <= len(await it.reasons()) <= 10


async def test_pod_that_was_moved_is_not_moved_again_for_what_was_said_of_the_former_node() -> None:
    async with a_story({"n1": 1}) as it:
        await it.submit("a", **claims_of("large"))
        await it.until_selects("a", "n1-0")
        await it.refuse("a")
        await add_node(it.world, "n2", 1)
        await it.until_selects("a", "n2-0")
        await it.wait(250)
        assert it.recorded().keys() == {"a"}
        await it.wait(60)
        said = "kube-scheduler has said nothing new of the pod for 300 s"
        assert await it.reasons() == ["kube-scheduler cannot place the pod there: no CPU", said]
        await it.wait(60)
        await it.until_selects("a", "n1-0")
        await it.refuse("a", "no memory")
        await it.world.until_it_is(lambda: has_reasons(it, 3))
        assert (await it.reasons())[2] == "kube-scheduler cannot place the pod there: no memory"


async def has_reasons(it: Story, count: int) -> bool:
    return len(await it.reasons()) >= count


async def test_pod_that_fits_on_its_only_node_no_more_gives_its_gpu_back_ever_more_seldom() -> None:
    async with a_story({"n1": 1}) as it:
        await it.submit("a", **claims_of("large"))
        await it.until_selects("a", "n1-0")
        await it.refuse("a")
        await it.wait(3600)
        assert 3 <= len(await it.reasons()) <= 4


@pytest.mark.parametrize("scheduler", [BY_HAND, "nobody"])
async def test_pod_that_gives_its_gpu_back_keeps_no_room_on_the_node(scheduler: str) -> None:
    async with a_story({"n1": 1}) as it:
        await it.submit("a", schedulerName=scheduler, **claims_of("large"))
        await it.until_selects("a", "n1-0")
        stock = it.replica.service.kubernetes.inventory.stock
        await it.world.until(lambda: "ns/a" in stock.pods_on("n1"))
        if scheduler == BY_HAND:
            await it.refuse("a")
        await it.world.until(lambda: not it.recorded() and "ns/a" not in stock.pods_on("n1"))
        assert "nominatedNodeName" not in (await it.pod("a"))["status"]


async def test_pod_that_requests_more_cpu_than_any_node_has_is_told_so_and_holds_no_gpu() -> None:
    async with a_story({"n1": 1}) as it:
        amounts = {"requests": {"cpu": "65"}}
        await it.submit("a", containers=[{"name": "main", "image": "work", "resources": amounts}])
        await it.world.until_it_is(lambda: is_told(it, "1 the node has less CPU or memory than the pod requests"))
        assert it.recorded() == {}
        await it.world.add_nodes(a_node("n2", 0, cpu="128"))
        await it.world.client.create(SLICES, a_slice("n2", [a_gpu("n2", 0)]))
        await it.until_selects("a", "n2-0")
