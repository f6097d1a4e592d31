"""What pods that ask for GPUs are told, and what a user sees of it."""

import pytest

from tests.integration.memory_cluster.sharing.test_claims_in_cluster import Story, a_story
from tests.integration.memory_cluster.sharing.test_shares_in_cluster import a_story as an_extender_story
from tests.kube.client import CLAIM_TEMPLATES, PODS
from tests.kube.devices import CLASS, a_claim_template, claims_of
from tests.kube.objects import a_pod
from tests.kube.sharing import a_sharing_pod
from voda.api.presenters.pods import sharing_pod_of
from voda.cli.render.pod_details import pod_text
from voda.cli.render.terminal import console
from voda.domain.errors import ClusterUnavailable, NotFound
from voda.domain.shares import SharingNode
from voda.operator.sharing.pod_explanations import PodExplanation, PodExplanations

pytestmark = pytest.mark.virtual_time


def explanations(it: Story) -> PodExplanations:
    found = it.replica.service.backend.pods.explanations
    assert found is not None
    return found


def explained(it: Story, name: str) -> PodExplanation:
    return explanations(it).explain("ns", name)


async def until_explained(it: Story, name: str, reason: str) -> PodExplanation:
    """Wait until a pod is told so."""

    def is_told() -> bool:
        try:
            return explained(it, name).reason == reason
        except (ClusterUnavailable, NotFound):
            return False

    await it.world.until(is_told, what=f"pod {name} is told {reason}")
    return explained(it, name)


def shown(it: Story, name: str) -> list[str]:
    """Return what a user sees, without the time."""
    found = explained(it, name)
    account = it.replica.service.view.cluster.shares.nodes.get(found.node, SharingNode())
    screen = console()
    with screen.capture() as captured:
        screen.print(pod_text(sharing_pod_of(found, account), lambda instant: "TIME"))
    return [line.rstrip() for line in captured.get().splitlines()]


async def test_pod_that_claims_a_part_and_waits_is_told_what_is_left_and_one_that_runs_its_gpu_and_neighbours() -> None:
    async with a_story({"n1": 1}) as it:
        for name in ("a", "b"):
            await it.submit(name)
            await it.until_selects(name, "n1-0")
        assert shown(it, "a") == [
            "ns/a: Reserved on n1, its GPUs since TIME",
            "  asks by claims for gpus (400 milli, 20480 MiB)",
            "  gpus: 400 milli and 20,480 MiB of GPU 0 (gpu.example.com/n1/gpu-0), beside",
            "  ns/b (400 milli and 20,480 MiB)",
            "  why: voda has chosen n1 for it; by-hand has not placed it yet",
        ]
        await it.refuse("a")
        await until_explained(it, "a", "voda has chosen n1 for it; kube-scheduler cannot place it there: no CPU")
        await it.allocate("a", "n1", 0)
        await it.submit("c")
        room = "0/1 nodes with GPUs to claim have room: 1 too little is left of the node's GPUs for gpus"
        await until_explained(it, "c", f"{room} (400 milli, 20480 MiB)")
        assert shown(it, "c") == [
            "ns/c: Waiting",
            "  asks by claims for gpus (400 milli, 20480 MiB)",
            "  why: 0/1 nodes with GPUs to claim have room: 1 too little is left of the",
            "  node's GPUs for gpus (400 milli, 20480 MiB)",
        ]
        await it.until_runs("a")
        await until_explained(it, "a", "")
        assert shown(it, "a")[0] == "ns/a: Scheduled on n1, its GPUs since TIME"
        assert explained(it, "a").containers["gpus"].gpus == (0,)


async def test_pod_that_cannot_get_gpus_as_it_is_is_told_what_to_change() -> None:
    async with a_story({"n1": 1}) as it:
        await it.submit("gated", schedulingGates=[{"name": "voda.dev/share"}, {"name": "example.com/quota"}])
        await until_explained(it, "gated", "other scheduling gates hold it: example.com/quota")
        await it.submit("early", **claims_of("later"))
        missing = "claim gpus waits for its template: ns has no ResourceClaimTemplate later"
        await until_explained(it, "early", missing)
        await it.world.client.create(CLAIM_TEMPLATES, a_claim_template("later", "ns"))
        await until_explained(it, "early", "voda has chosen n1 for it; by-hand has not placed it yet")
        await it.submit("none", resourceClaims=[])
        gate = "pod ns/none has the scheduling gate voda.dev/share and claims no part of a GPU: expected a"
        template = f"resourceClaimTemplateName whose template asks for a device class {CLASS}"
        await until_explained(it, "none", f"{gate} {template}")


async def test_pod_that_gave_its_gpus_back_is_told_what_kube_scheduler_says() -> None:
    async with a_story({"n1": 1}) as it:
        await it.submit("a", **claims_of("large"))
        await it.until_selects("a", "n1-0")
        await it.refuse("a")
        told = "it holds no GPUs any more; kube-scheduler cannot place it there: no CPU"
        await until_explained(it, "a", told)
        assert it.recorded() == {}


async def test_pod_that_gave_its_gpus_back_unseen_is_told_that_no_scheduler_has_looked_at_it() -> None:
    async with a_story({"n1": 1}) as it:
        await it.submit("a", schedulerName="nobody", **claims_of("large"))
        await it.until_selects("a", "n1-0")
        told = "it holds no GPUs any more; no scheduler has looked at it: its schedulerName is nobody"
        await until_explained(it, "a", told)
        assert it.recorded() == {}


async def test_pod_that_is_being_deleted_is_told_so() -> None:
    async with a_story({"n1": 1}) as it:
        await it.submit("a")
        await it.until_selects("a", "n1-0")
        await it.world.client.patch(PODS, ("ns", "a"), {"metadata": {"finalizers": ["example.com/kept"]}})
        await it.world.client.delete(PODS, "a", "ns", grace_s=0)
        await until_explained(it, "a", "the pod is being deleted")


async def test_pod_that_asks_for_no_gpus_or_is_not_there_is_not_found() -> None:
    async with a_story({"n1": 1}) as it:
        await it.world.client.create(PODS, a_pod("plain", "ns"))
        pods = it.replica.service.kubernetes.inventory.pods_by_key
        await it.world.until(lambda: "ns/plain" in pods and it.replica.service.mirror.is_synced)
        # Whether there is one is nobody's business here.
        for name in ("plain", "nobody"):
            with pytest.raises(NotFound, match=f"^there is no pod ns/{name} that asks for GPUs which voda chooses$"):
                explained(it, name)


async def test_pod_that_asks_through_the_extender_is_told_in_the_same_words() -> None:
    async with an_extender_story(gpus=1) as it:
        assert await it.place("a", 60) == ""
        await it.pod("b", 60)
        pods = it.replica.service.backend.pods.explanations
        assert pods is not None
        known = it.replica.service.kubernetes.inventory.sharing.by_uid
        await it.until(lambda: len(known) == 2 and not pods.explain("ns", "a").reason)
        assert pods.explain("ns", "b").reason == (
            "0/1 nodes with GPUs have room: 1 too little is left of the node's GPUs for main (gpu-core 60)"
        )
        assert pods.explain("ns", "a").state == "Scheduled"
        await it.world.client.create(PODS, a_sharing_pod("c", "ns", 40, 0))
        await it.until(lambda: len(known) == 3)
        assert pods.explain("ns", "c").reason == "its GPUs are free on n0; by-hand has not placed it yet"
