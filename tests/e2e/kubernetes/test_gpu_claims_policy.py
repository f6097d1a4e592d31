"""Pods that ask in the old way, by gpu-core and gpu-memory, are served by claims.

The chart's policy, voda, and the real kube-controller-manager and kube-scheduler do that together.

Rule: the policy is what Helm renders of the chart, and voda has the chart's rights and no other.
"""

from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.kubernetes.replica import Replica
from tests.e2e.kubernetes.test_shared_claims import SETTINGS, publish, results, told, until_runs
from tests.kube import client as api
from tests.kube import deployed
from tests.kube.assets import IS_OLD
from tests.kube.client import Object, Refused
from tests.kube.peers.jobs_world import JobsWorld
from tests.waiting import wait_until
from voda.domain.gpus import CardShare, GpuRequest, Gpus
from voda.events.types import ShareAssigned
from voda.log.factory import open_log

pytestmark = pytest.mark.skipif(IS_OLD, reason="1.35 drops the fields by which devices are shared")

CORE, MEMORY = "elasticgpu.io/gpu-core", "elasticgpu.io/gpu-memory"
RIGHTS = ("--set", "sharedClaims.enabled=true,sharedClaims.resources=true")
POLICIES = ("MutatingAdmissionPolicy", "ValidatingAdmissionPolicy")
_MORTAL = str(Path(__file__).with_name("mortal.py"))


@pytest.fixture
async def world(jobs_world: JobsWorld) -> AsyncIterator[JobsWorld]:
    """A cluster with the policy."""
    found = [each for each in deployed.rendered("sqlite", *RIGHTS) if each["kind"].startswith(POLICIES)]
    policies = [each for each in found if each["metadata"]["name"].startswith("gpu-claims.")]
    assert len(policies) == 4
    deployed.apply(jobs_world.plane, policies)

    async def is_in_force() -> bool:
        bad, good = (asking("probe", jobs_world, {CORE: core}) for core in ("150", "25"))
        try:
            await jobs_world.client.create(api.PODS, good)
        except Refused:
            # One of the two is in force.
            return False
        made = await jobs_world.client.get(api.PODS, "probe", jobs_world.namespace)
        await jobs_world.client.delete(api.PODS, "probe", jobs_world.namespace, grace_s=0)
        try:
            await jobs_world.client.create(api.PODS, bad)
        except Refused:
            return "schedulingGates" in made["spec"]
        await jobs_world.client.delete(api.PODS, "probe", jobs_world.namespace, grace_s=0)
        return False

    await jobs_world.until_it_is(is_in_force, what="the policy is in force")
    yield jobs_world
    for each in policies:
        deployed.run_kubectl("delete", each["kind"], each["metadata"]["name"], plane=jobs_world.plane)


def asking(name: str, world: JobsWorld, *containers: Mapping[str, str], **spec: Any) -> Object:
    """Return a pod with the label; each of its containers, c0 and so on, asks for these resources, as a limit."""
    made = [
        {"name": f"c{number}", "image": "x", "resources": {"limits": dict(amounts)}}
        for number, amounts in enumerate(containers)
    ]
    metadata = {"name": name, "namespace": world.namespace, "labels": {"voda.dev/gpu-claims": "true"}}
    return {"metadata": metadata, "spec": {"containers": made, **spec}}


async def given(world: JobsWorld) -> dict[str, list[tuple[str, Mapping[str, str]]]]:
    """Return pod -> device and what was consumed of it, by the claims."""
    found: dict[str, list[tuple[str, Mapping[str, str]]]] = {}
    for claim in await world.client.list(api.CLAIMS, world.namespace):
        pod = claim["metadata"]["ownerReferences"][0]["name"]
        for each in results(claim):
            found.setdefault(pod, []).append((each["device"], each["consumedCapacity"]))
    return {pod: sorted(cards, key=str) for pod, cards in found.items()}


def a_replica(world: JobsWorld, folder: Path, log: Path, **options: Any) -> Replica:
    leader = {"namespace": deployed.NAMESPACE, "leaseSeconds": 1.0, "renewSeconds": 0.8, "retrySeconds": 0.1}
    kubeconfig = deployed.service_account_kubeconfig(world.plane, "sqlite", *RIGHTS)
    settings = {**SETTINGS, "leader": leader}
    return Replica(world, folder, str(log), settings=settings, kubeconfig=kubeconfig, **options)


def end(replica: Replica) -> None:
    replica.terminate()
    replica.process.wait(30)


async def test_pods_that_ask_in_the_old_way_share_a_card_and_have_it_by_claims_alone(
    world: JobsWorld, tmp_path: Path
) -> None:
    await publish(world, {"gpu-1": 3})
    log = tmp_path / "voda.db"
    replica = a_replica(world, tmp_path, log)
    try:
        both = ({CORE: "40", MEMORY: "20480"}, {"elasticgpu.com/gpu-core": "200"}, {"cpu": "1"})
        await world.client.create(api.PODS, asking("a", world, *both))
        await until_runs(world, "a")
        await world.client.create(api.PODS, asking("b", world, {CORE: "40", MEMORY: "20Ki"}))
        await until_runs(world, "b")
        part, whole = {"milli": "400", "memory": "20Gi"}, {"milli": "1k", "memory": "80Gi"}
        found = await given(world)
        [(one, _), *others] = [each for each in found["a"] if each[1]["milli"] == "400"]
        assert not others
        assert found["b"] == [(one, part)]
        assert found["a"].count((one, part)) == 1
        assert {device for device, _ in found["a"]} == {"gpu-0", "gpu-1", "gpu-2"}
        assert [consumed for _, consumed in found["a"] if consumed != part] == [whole, whole]
        pod = await world.client.get(api.PODS, "a", world.namespace)
        asked = [container["resources"] for container in pod["spec"]["containers"]]
        assert asked == [{"claims": [{"name": "c0"}]}, {"claims": [{"name": "c1"}]}, asked[2]]
        await world.client.create(api.PODS, asking("c", world, {CORE: "40"}))
        await world.client.create(api.PODS, asking("d", world, {MEMORY: "99999"}))

        async def are_told() -> bool:
            there = await told(world, "WaitsForCards")
            room, size = "too little is left of the node's cards for c0 (400 milli)", "it takes more than any card has"
            return all(any(part in each for each in there) for part in (room, size))

        await world.until_it_is(are_told, what="both are told why they wait")
    finally:
        end(replica)
    store = await open_log(log)
    try:
        events = [event.data for event in await store.read(0, 10_000, stream="shares.gpu-1")]
    finally:
        await store.close()
    first = next(each for each in events if isinstance(each, ShareAssigned))
    card = int(one.removeprefix("gpu-"))
    assert first.containers["c0"] == CardShare(cards=(card,), request=GpuRequest(milli=400, memory_mib=20_480))
    assert first.containers["c1"].request == GpuRequest(devices=Gpus(2))
    assert {each.pod.partition("/")[2] for each in events if isinstance(each, ShareAssigned)} == {"a", "b"}


REFUSED: tuple[tuple[dict[str, str], str], ...] = (
    ({CORE: "150"}, "container c0: gpu-core is above 100 and no multiple of it"),
    ({CORE: "25", "elasticgpu.com/gpu-core": "25"}, "container c0: it asks for two names of one resource"),
    ({CORE: "25", MEMORY: "500m"}, "must be an integer"),
)


async def test_pod_that_asks_for_what_cannot_be_is_refused_in_a_sentence_and_others_are_as_they_were(
    world: JobsWorld,
) -> None:
    for amounts, sentence in REFUSED:
        with pytest.raises(Refused, match=sentence):
            await world.client.create(api.PODS, asking("a", world, amounts))
    init = [{"name": "i", "image": "x", "resources": {"limits": {CORE: "25"}}}]
    with pytest.raises(Refused, match="init container i asks for a GPU"):
        await world.client.create(api.PODS, asking("a", world, {CORE: "25"}, initContainers=init))
    own = [{"name": "c0", "resourceClaimName": "mine"}]
    with pytest.raises(Refused, match="container c0: the pod has a claim of its name already"):
        await world.client.create(api.PODS, asking("a", world, {CORE: "25"}, resourceClaims=own))
    plain = asking("plain", world, {CORE: "25"})
    del plain["metadata"]["labels"]
    for pod in (plain, asking("none", world, {"cpu": "1"}), asking("zero", world, {CORE: "0"})):
        await world.client.create(api.PODS, pod)
        made = await world.client.get(api.PODS, pod["metadata"]["name"], world.namespace)
        assert not {"schedulingGates", "resourceClaims"} & made["spec"].keys()
    init = [{"name": "i", "image": "x", "resources": {"limits": {CORE: "0"}}}]
    await world.client.create(api.PODS, asking("init-zero", world, {CORE: "25"}, initContainers=init))
    made = await world.client.get(api.PODS, "plain", world.namespace)
    assert made["spec"]["containers"][0]["resources"]["limits"] == {CORE: "25"}
    # What others have put there stays.
    gate, claim = {"name": "example.com/quota"}, {"name": "nic", "resourceClaimName": "n"}
    both = asking("both", world, {CORE: "25"}, schedulingGates=[gate], resourceClaims=[claim])
    both["spec"]["containers"][0]["resources"]["claims"] = [{"name": "nic"}]
    await world.client.create(api.PODS, both)
    spec = (await world.client.get(api.PODS, "both", world.namespace))["spec"]
    assert [gate["name"] for gate in spec["schedulingGates"]] == ["example.com/quota", "voda.dev/share"]
    assert [claim["name"] for claim in spec["resourceClaims"]] == ["nic", "c0"]
    assert spec["containers"][0]["resources"]["claims"] == [{"name": "nic"}, {"name": "c0"}]


@pytest.mark.parametrize("when", ["before", "after"])
async def test_pod_that_came_while_no_voda_ran_gets_its_card_also_where_the_first_leader_dies_at_the_template(
    world: JobsWorld, tmp_path: Path, when: str
) -> None:
    await publish(world, {"gpu-1": 1})
    await world.client.create(api.PODS, asking("a", world, {CORE: "40", MEMORY: "20480"}))
    log = tmp_path / "voda.db"
    death = {"MORTAL": f"{when} create resourceclaimtemplates 1"}
    first = a_replica(world, tmp_path, log, program=(_MORTAL,), environment=death)
    wait_until(lambda: first.process.poll() is not None)
    assert first.process.returncode == 137, first.text
    last = a_replica(world, tmp_path, log)
    try:
        await until_runs(world, "a")
        [(device, _)] = (await given(world))["a"]
        assert device == "gpu-0"
    finally:
        end(last)
