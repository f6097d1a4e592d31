"""How many GPUs a job's claims ask for: at its submission, and before new pods of it are made."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from tests.builders import a_job
from tests.kube.devices import CLASS, a_claim_template, a_device_class, claims_of
from tests.kube.objects import a_pytorchjob, an_indexed_job, an_mpijob
from voda.cluster.kubernetes.device_objects import DeviceClass, ResourceClaimTemplate
from voda.cluster.kubernetes.kinds.indexed_job import IndexedJobV1
from voda.cluster.kubernetes.objects import JobObject
from voda.cluster.kubernetes.state.devices import DeviceStock
from voda.cluster.kubernetes.state.job_claims import claims_obstacle, with_claimed_gpus
from voda.cluster.kubernetes.state.job_objects import KubeJob
from voda.cluster.kubernetes.state.nodes import PoolRule
from voda.domain.errors import InvalidField, MissingReference
from voda.manifests.parse import parse

POD = "spec.template.spec"
TWO = claims_of("two")


def a_stock(*, is_served: bool = True, **templates: int) -> DeviceStock:
    """Return what a cluster has: the class of GPUs, and templates of so many GPUs each."""
    devices = DeviceStock(PoolRule(device_classes=(CLASS,)), lambda _node: None)
    devices.is_served = is_served
    for name in (CLASS, "nic.example.com"):
        devices.published.put_class(name, msgspec.convert(a_device_class(name), DeviceClass))
    for name, gpus in templates.items():
        put_template(devices, name, exactly={"deviceClassName": CLASS, "count": gpus})
    return devices


def put_template(devices: DeviceStock, name: str, **request: Any) -> None:
    made = msgspec.convert(a_claim_template(name, "ns", request=request), ResourceClaimTemplate)
    devices.put_template(made.metadata.key, made)


def counted(devices: DeviceStock, **changes: Any) -> int:
    spec = changes.pop("worker_spec", TWO)
    return with_claimed_gpus(
        parse(an_indexed_job("a", "ns", worker_spec=spec, **changes)), devices
    ).spec.gpus_per_replica


@pytest.mark.parametrize("make", [an_indexed_job, an_mpijob, a_pytorchjob])
def test_gpus_of_a_replica_are_those_of_its_claims_beside_its_limits(make: Callable[..., dict[str, Any]]) -> None:
    devices = a_stock(two=2)
    for gpus in (0, 1):
        parsed = parse(make("a", "ns", gpus=gpus, worker_spec=TWO))
        assert with_claimed_gpus(parsed, devices).spec.gpus_per_replica == 2 + gpus


def test_gpus_of_a_replica_without_claims_or_where_none_are_seen_are_as_its_limits_say() -> None:
    assert counted(a_stock(), worker_spec={}, gpus=3) == 3
    assert counted(a_stock(is_served=False), gpus=3) == 3


def test_claims_of_other_devices_count_nothing_beside_a_limit_and_are_refused_without() -> None:
    devices = a_stock()
    put_template(devices, "two", exactly={"deviceClassName": "nic.example.com"})
    assert counted(devices, gpus=3) == 3
    sentence = f"{POD}.resourceClaims: asks for no GPU: expected a request of a device class {CLASS}"
    with pytest.raises(InvalidField) as refused:
        counted(devices, gpus=0)
    assert str(refused.value) == sentence


def test_claims_that_cannot_be_counted_are_refused_with_the_path_of_the_field() -> None:
    with pytest.raises(MissingReference) as missing:
        counted(a_stock(), gpus=0)
    field = f"{POD}.resourceClaims[0].resourceClaimTemplateName"
    assert str(missing.value) == f"{field}: namespace ns has no ResourceClaimTemplate 'two'"
    devices = a_stock()
    put_template(devices, "two", exactly={"deviceClassName": CLASS, "allocationMode": "All"})
    with pytest.raises(InvalidField, match=r"ResourceClaimTemplate two: request 'gpus': allocationMode All") as refused:
        counted(devices, gpus=0)
    assert refused.value.field == field
    with pytest.raises(InvalidField, match="expected 0 to 1024 GPUs for one replica, got 2000"):
        counted(a_stock(two=2000), gpus=0)


@pytest.mark.parametrize(
    ("devices", "name", "sentence"),
    [
        (a_stock(is_served=False), CLASS, "this voda sees no device classes: Kubernetes 1.34 or newer has them"),
        (a_stock(), "nic.example.com", f"expected one of cluster.gpuDeviceClasses ({CLASS}), got 'nic.example.com'"),
    ],
)
def test_device_class_that_nobody_could_allocate_is_refused(devices: DeviceStock, name: str, sentence: str) -> None:
    with pytest.raises(InvalidField) as refused:
        counted(devices, worker_spec={}, annotations={"voda.dev/device-class": name})
    assert str(refused.value) == f"metadata.annotations[voda.dev/device-class]: {sentence}"


def test_device_class_that_is_missing_may_come() -> None:
    devices = a_stock()
    annotations = {"voda.dev/device-class": CLASS}
    assert counted(devices, worker_spec={}, annotations=annotations, gpus=2) == 2
    devices.published.put_class(CLASS, None)
    with pytest.raises(MissingReference, match=f"there is no DeviceClass '{CLASS}'"):
        counted(devices, worker_spec={}, annotations=annotations)


def obstacle(devices: DeviceStock, submitted: int, **changes: Any) -> str:
    manifest = an_indexed_job("a", "ns", worker_spec=changes.pop("worker_spec", TWO), **changes)
    job = a_job("a", namespace="ns", gpus_per_replica=submitted, manifest=manifest)
    return claims_obstacle(devices, job, KubeJob(IndexedJobV1(), msgspec.convert(manifest, JobObject)))


def test_job_whose_templates_are_as_it_was_submitted_with_has_no_obstacle() -> None:
    assert not obstacle(a_stock(two=2), 2, gpus=0)
    assert not obstacle(a_stock(two=2), 3, gpus=1)
    assert not obstacle(a_stock(), 3, worker_spec={}, gpus=3)
    assert not obstacle(a_stock(is_served=False), 2, gpus=0)


def test_job_whose_template_is_gone_or_asks_for_another_number_has_an_obstacle() -> None:
    assert (
        obstacle(a_stock(), 2, gpus=0) == "its pods would get no GPUs: namespace ns has no ResourceClaimTemplate 'two'"
    )
    assert obstacle(a_stock(two=1), 2, gpus=0).startswith(
        "its claim templates ask for 1 GPUs of each replica now, and it was submitted with 2: submit it again"
    )


def test_job_whose_claims_voda_makes_has_an_obstacle_only_where_the_class_is_gone() -> None:
    own = {"resourceClaims": [{"name": "voda-gpus", "resourceClaimTemplateName": f"a-2-{CLASS}"}]}
    changes = {"worker_spec": own, "annotations": {"voda.dev/device-class": CLASS}, "gpus": 0}
    devices = a_stock()
    assert not obstacle(devices, 2, **changes)
    devices.published.put_class(CLASS, None)
    assert obstacle(devices, 2, **changes) == f"its pods would get no GPUs: there is no DeviceClass '{CLASS}'"
