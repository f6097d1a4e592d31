"""What claims ask for, and what device classes select."""

from typing import Any

import msgspec
import pytest

from voda.cluster.kubernetes.device_objects import ClaimSpec, DeviceClass, PublishedDevice
from voda.cluster.kubernetes.state.published.classes import attribute, requested_classes, requested_gpus, selector_of
from voda.domain.errors import InvalidInput

GPU, NIC = "gpu.example.com", "nic.example.com"
NAMED = f'device.driver == "{GPU}"'


def a_claim(*requests: dict[str, Any]) -> ClaimSpec:
    return msgspec.convert({"devices": {"requests": list(requests)}}, ClaimSpec)


def exactly(name: str = GPU, **fields: Any) -> dict[str, Any]:
    return {"name": "gpus", "exactly": {"deviceClassName": name, **fields}}


def a_class(*expressions: str) -> DeviceClass:
    selectors = [{"cel": {"expression": each}} for each in expressions]
    return msgspec.convert({"metadata": {"name": GPU}, "spec": {"selectors": selectors}}, DeviceClass)


def a_device(**attributes: Any) -> PublishedDevice:
    kinds = {str: "string", bool: "bool", int: "int"}
    typed = {name: {kinds[type(value)]: value} for name, value in attributes.items()}
    return msgspec.convert({"name": "gpu-0", "attributes": typed}, PublishedDevice)


@pytest.mark.parametrize(
    ("requests", "gpus"),
    [
        ([exactly()], 1),
        ([exactly(count=2, allocationMode="ExactCount"), exactly(NIC, count=4), exactly(count=1)], 3),
        ([exactly(NIC)], 0),
        ([exactly(NIC, allocationMode="All")], 0),
        ([exactly(adminAccess=True, allocationMode="All")], 0),
        ([{"name": "a", "firstAvailable": [{"deviceClassName": GPU, "count": 2}] * 2}], 2),
        ([], 0),
    ],
)
def test_gpus_of_a_claim_are_the_devices_of_gpu_classes_that_it_takes(
    requests: list[dict[str, Any]], gpus: int
) -> None:
    assert requested_gpus(a_claim(*requests), [GPU]) == gpus


@pytest.mark.parametrize(
    ("request_", "sentence"),
    [
        (exactly(allocationMode="All"), "request 'gpus': allocationMode All takes whatever a node has: expected Exact"),
        (
            {"name": "a", "firstAvailable": [{"deviceClassName": GPU, "count": 2}, {"deviceClassName": GPU}]},
            "request 'a': firstAvailable asks for 1 or 2 GPUs: expected one number in all",
        ),
        (
            {"name": "a", "firstAvailable": [{"deviceClassName": GPU}, {"deviceClassName": NIC}]},
            "request 'a': firstAvailable asks for 0 or 1 GPUs",
        ),
    ],
)
def test_claim_whose_number_of_gpus_is_open_is_refused_with_a_sentence(request_: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        requested_gpus(a_claim(request_), [GPU])
    assert GPU in requested_classes(a_claim(request_))


@pytest.mark.parametrize(
    ("expressions", "selects"),
    [
        ([NAMED], True),
        ([f"device.driver == '{GPU}'"], True),
        (["device.driver == 'other'"], False),
        ([NAMED, "device.driver == 'other'"], False),
        ([f"{NAMED}  &&\n device.attributes['{GPU}'].type == 'gpu'"], True),
        ([f"{NAMED} && device.attributes['{GPU}'].type == 'mig'"], False),
        ([NAMED, f"device.attributes['{GPU}'].type == 'mig'"], False),
        ([f"{NAMED} && device.attributes['{GPU}'].index == 3"], True),
        ([f"{NAMED} && device.attributes['{GPU}'].index == '3'"], False),
        ([f"{NAMED} && device.attributes['{GPU}'].ecc == true"], True),
        ([f"{NAMED} && device.attributes['{GPU}'].ecc == 1"], False),
        ([f"{NAMED} && device.attributes['{GPU}'].absent == 'x'"], False),
        ([f'{NAMED} && device.capacity["{GPU}"].memory.isGreaterThan(quantity("40Gi"))'], True),
        ([f"{NAMED} || true"], False),
        (["true"], False),
        ([], False),
    ],
)
def test_class_selects_what_its_comparisons_say_and_takes_the_rest_for_true(
    expressions: list[str], selects: bool
) -> None:
    device = a_device(type="gpu", index=3, ecc=True)
    assert selector_of(a_class(*expressions)).selects(GPU, device) is selects


def test_attribute_of_a_driver_is_found_with_its_domain_and_without_and_that_of_others_with_theirs_alone() -> None:
    device = a_device(**{"type": "gpu", "other.example.com/zone": "a"})
    assert [attribute(GPU, device, name) for name in (f"{GPU}/type", "type")] == ["gpu", "gpu"]
    assert attribute(GPU, device, "other.example.com/type") is None
    assert attribute(GPU, device, "other.example.com/zone") == "a"
