"""Templates whose name says how much they ask for."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest

from tests.kube.client import Object
from tests.kube.devices import CLASS, a_card, a_device
from tests.unit.cluster.kubernetes.state.test_claim_requests import a_pod, asked, cards_of
from voda.cluster.kubernetes.objects import Pod
from voda.cluster.kubernetes.state.sized_templates import missing_templates, sized_template
from voda.domain.errors import InvalidInput
from voda.domain.gpus import GpuRequest, Gpus

CARDS = [a_card("n1", 0), a_card("n1", 1)]


def exactly(name: str, cards: Sequence[Object] = CARDS) -> Mapping[str, Any]:
    template = sized_template(name, "ns", [CLASS], cards_of(*cards))
    [request] = template["spec"]["spec"]["devices"]["requests"]
    assert template["metadata"]["name"] == name
    return dict(request["exactly"])


@pytest.mark.parametrize(
    ("core", "memory", "request_"),
    [
        (25, 4_096, GpuRequest(milli=250, memory_mib=4_096)),
        (1, 0, GpuRequest(milli=10)),
        (0, 512, GpuRequest(memory_mib=512)),
        (100, 0, GpuRequest(devices=Gpus(1))),
        (3_200, 99, GpuRequest(devices=Gpus(32))),
    ],
)
@pytest.mark.parametrize("cards", [CARDS, [a_card("n1", 0, milli=132), a_card("n1", 1, milli=108)]])
def test_template_asks_for_what_gpu_core_and_gpu_memory_mean(
    core: int, memory: int, request_: GpuRequest, cards: Sequence[Object]
) -> None:
    made = {"name": "gpu", "exactly": exactly(f"voda-gpu-core-{core}-memory-{memory}", cards)}
    assert asked(cards_of(*cards), made) == {"gpu": request_}


def test_template_asks_in_the_units_of_the_driver_and_of_no_capacity_that_there_is_not() -> None:
    sms = [a_card("n1", 0, milli=132), a_card("n1", 1, milli=108)]
    assert exactly("voda-gpu-core-25-memory-0", sms)["capacity"]["requests"] == {"milli": "27", "memory": "0Mi"}
    assert exactly("voda-gpu-core-33-memory-0", sms)["capacity"]["requests"]["milli"] == "35640m"
    plain = a_device("gpu-0", allowMultipleAllocations=True, capacity={"memory": {"value": "80Gi"}})
    assert exactly("voda-gpu-core-0-memory-512", [plain])["capacity"]["requests"] == {"memory": "512Mi"}


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("voda-gpu-core-150-memory-0", "gpu-core is 150, expected less than 100 or a multiple of it"),
        ("voda-gpu-core-0-memory-0", "it asks for nothing"),
        ("voda-gpu-core-10-memory-99999", "it takes more than any card has"),
        ("voda-gpu-core-3300-memory-0", "it asks for 33 devices, expected 32 at most"),
        ("voda-gpu-core-9000000000000000000-memory-0", "expected 32 at most"),
    ],
)
def test_size_that_nobody_can_have_is_refused_in_a_sentence(name: str, told: str) -> None:
    with pytest.raises(InvalidInput, match=f"ResourceClaimTemplate {name} cannot be made: .*{told}"):
        exactly(name)


def test_part_of_a_capacity_that_no_card_has_and_whole_cards_of_a_driver_that_gives_parts_are_refused() -> None:
    plain = a_device("gpu-0", allowMultipleAllocations=True, capacity={"memory": {"value": "80Gi"}})
    with pytest.raises(InvalidInput, match="no device that claims share has a capacity milli"):
        exactly("voda-gpu-core-10-memory-5", [plain])
    with pytest.raises(InvalidInput, match="no device that claims share has a capacity milli"):
        exactly("voda-gpu-core-10-memory-5", [])
    card = a_card("n1", 0)
    for capacity in card["capacity"].values():
        capacity["requestPolicy"] = {"default": "1"}
    with pytest.raises(InvalidInput, match="gives a part of a card to those who claim a whole one"):
        exactly("voda-gpu-core-100-memory-0", [card])


@pytest.mark.parametrize(
    "name",
    [
        "voda-gpu-core-025-memory-0",
        "voda-gpu-core-25-memory-4096-x",
        "voda-gpu-core--memory-1",
        "mine",
        "voda-gpu-core-٣-memory-1",
    ],
)
def test_other_names_are_no_business_of_ours(name: str) -> None:
    assert not missing_templates(gated(name))


def gated(template: str, claim: str = "") -> Pod:
    pod = msgspec.to_builtins(a_pod(claim=claim))
    pod["spec"]["schedulingGates"] = [{"name": "voda.dev/share"}]
    pod["spec"]["resourceClaims"][0]["resourceClaimTemplateName"] = template
    return msgspec.convert(pod, Pod)


def test_missing_templates_are_those_of_claims_that_are_still_to_be_made() -> None:
    name = "voda-gpu-core-25-memory-4096"
    assert missing_templates(gated(name)) == [name]
    assert not missing_templates(gated(name, claim="made"))
