"""When templates are made; what is written is in test_claims_in_cluster."""

import asyncio
from typing import Any

import msgspec
import pytest

from tests.kube.devices import CLASS, a_card, a_claim_template
from tests.unit.cluster.kubernetes.state.test_claim_requests import an_inventory
from voda.application.sharing.claims.template_maker import TemplateMaker
from voda.cluster.kubernetes.claim_binding import ClaimBinding
from voda.cluster.kubernetes.device_objects import ResourceClaimTemplate
from voda.cluster.kubernetes.objects import Pod
from voda.cluster.kubernetes.state.devices import DeviceStock
from voda.cluster.kubernetes.state.sharing_pods import ClaimingPods
from voda.kubernetes_client.api import Api

SIZED = "voda-gpu-core-25-memory-4096"


def a_pod(
    template: str = SIZED, claim: str = "", gate: str = "voda.dev/share", uid: str = "a", namespace: str = "ns"
) -> Pod:
    spec = {
        "schedulingGates": [{"name": gate}],
        "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": template}],
    }
    statuses = [{"name": "gpu", "resourceClaimName": claim}] if claim else []
    metadata = {"name": "a", "namespace": namespace, "uid": uid}
    return msgspec.convert({"metadata": metadata, "spec": spec, "status": {"resourceClaimStatuses": statuses}}, Pod)


@pytest.fixture
def maker() -> TemplateMaker:
    devices: DeviceStock = an_inventory([a_card("n1", 0)]).stock.devices
    return TemplateMaker(binding=ClaimBinding(AnyApi()), devices=devices, pods=ClaimingPods())


def due(maker: TemplateMaker, now: float = 0.0, *, answers: bool = True) -> list[str]:
    """Return what is due, once the API server has answered, or is slow to."""
    found = list(maker.due(now))
    if answers:
        for each in found:
            asyncio.run(maker.make(each))
    return [each.key for each in found]


class AnyApi(Api):
    """One that takes everything."""

    def __init__(self) -> None:
        pass

    async def create(self, *_: object, **__: object) -> Any:
        return None


def test_template_is_made_once_for_all_pods_and_again_only_where_it_is_gone_after_a_while(maker: TemplateMaker) -> None:
    for uid in "ab":
        maker.pods.put(None, a_pod(uid=uid))
    key = f"ns/{SIZED}"
    assert [now for now in range(100) if due(maker, float(now)) == [key]] == [0, 5, 15, 35, 75]
    maker.devices.put_template(key, msgspec.convert(a_claim_template(SIZED, "ns"), ResourceClaimTemplate))
    assert due(maker, 1_000.0) == []
    maker.devices.put_template(key, None)
    assert due(maker, 1_001.0) == [key]
    maker.pods.put(a_pod(), a_pod(claim="a-gpu-x1"))
    maker.pods.put(a_pod(uid="b"), None)
    assert due(maker, 2_000.0) == []


@pytest.mark.parametrize("pod", [a_pod("part"), a_pod(gate="other"), a_pod("voda-gpu-core-150-memory-0")])
def test_nothing_is_made_for_pods_with_other_templates_or_without_the_gate_or_of_no_possible_size(
    maker: TemplateMaker, pod: Pod
) -> None:
    maker.pods.put(None, pod)
    assert due(maker) == []


def test_obstacle_is_why_no_pod_can_have_a_size(maker: TemplateMaker) -> None:
    assert maker.obstacle(a_pod()) == ""
    told = (
        "ResourceClaimTemplate voda-gpu-core-150-memory-0 cannot be made: gpu-core is 150, expected less than 100 or a"
    )
    assert maker.obstacle(a_pod("voda-gpu-core-150-memory-0")).startswith(told)
    maker.devices.put_class(CLASS, None)
    assert maker.obstacle(a_pod()).endswith("no device class of cluster.gpuDeviceClasses is there")


def test_templates_are_made_a_few_at_once_of_each_namespace_in_turn(maker: TemplateMaker) -> None:
    for number in range(1_000):
        namespace = f"many-{number % 20:02}"
        maker.pods.put(None, a_pod(f"voda-gpu-core-25-memory-{number}", uid=str(number), namespace=namespace))
    maker.pods.put(None, a_pod(uid="one", namespace="quiet"))
    rounds = [due(maker, 0.0), due(maker, 0.05)]
    assert [len(each) for each in rounds] == [16, 16]
    assert f"quiet/{SIZED}" in rounds[1]
    # None is begun before the API server has answered.
    assert len(due(maker, 0.1, answers=False)) == 16
    assert due(maker, 0.15) == []
