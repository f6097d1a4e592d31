"""Claims of GPUs that voda makes for a job whose manifest names a device class, and those that users write."""

import re
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from tests.kube.devices import CLASS, claims_of
from tests.kube.objects import a_jobset, a_pytorchjob, an_indexed_job, an_mpijob
from voda.cluster.kubernetes.kinds.base import JobKind
from voda.cluster.kubernetes.kinds.gpu_claims import gpu_claim_template, replica_claims
from voda.cluster.kubernetes.kinds.indexed_job import IndexedJobV1
from voda.cluster.kubernetes.kinds.jobset import JobSetV1Alpha2
from voda.cluster.kubernetes.kinds.mpijob import MPIJobV2
from voda.cluster.kubernetes.kinds.pytorchjob import PyTorchJobV1
from voda.cluster.kubernetes.objects import JobObject, ObjectMeta
from voda.kinds.base import role_mappings
from voda.manifests.parse import parse

KINDS = [
    pytest.param(IndexedJobV1(), an_indexed_job, id="Job"),
    pytest.param(JobSetV1Alpha2(), a_jobset, id="JobSet"),
    pytest.param(MPIJobV2(), an_mpijob, id="MPIJob"),
    pytest.param(PyTorchJobV1(), a_pytorchjob, id="PyTorchJob"),
]
Make = Callable[..., dict[str, Any]]


def made(kind: JobKind, manifest: dict[str, Any]) -> dict[str, Any]:
    spec = parse(manifest).spec
    return kind.new_object(replace(spec, job_id="a-2"), (), {})


def as_object(job: dict[str, Any]) -> JobObject:
    metadata = {**job["metadata"], "uid": "u1"}
    return msgspec.convert({**job, "metadata": metadata}, JobObject)


@pytest.mark.parametrize(("kind", "make"), KINDS)
def test_job_that_names_a_device_class_claims_its_gpus_instead_of_the_resource(kind: JobKind, make: Make) -> None:
    job = made(kind, make("a", "ns", 2, gpus=2, annotations={"voda.dev/device-class": CLASS}))
    roles = role_mappings(kind.kind, job["spec"])
    for name in roles.keys() & set(kind.kind.placed_roles):
        pod = roles[name]["template"]["spec"]
        claim = {"name": "voda-gpus", "resourceClaimTemplateName": f"a-2-{CLASS}"}
        assert pod["resourceClaims"] == [claim]
        assert pod["containers"][0]["resources"] == {"limits": {}, "claims": [{"name": "voda-gpus"}]}
    assert all("resourceClaims" not in roles[name]["template"]["spec"] for name in roles.keys() & {"Launcher"})
    companions = [body for path, body in kind.companions(as_object(job)) if path.endswith("resourceclaimtemplates")]
    [template] = companions
    assert template["metadata"]["name"] == f"a-2-{CLASS}"
    assert template["metadata"]["ownerReferences"] == [
        {"apiVersion": kind.api_version, "kind": kind.name, "name": "a", "uid": "u1"}
    ]
    [request] = template["spec"]["spec"]["devices"]["requests"]
    assert request["exactly"] == {"deviceClassName": CLASS, "count": 2}


@pytest.mark.parametrize(("kind", "make"), KINDS)
def test_job_without_a_device_class_keeps_its_resources_and_needs_no_template(kind: JobKind, make: Make) -> None:
    job = made(kind, make("a", "ns", 2, gpus=2))
    assert not [path for path, _ in kind.companions(as_object(job)) if path.endswith("resourceclaimtemplates")]
    roles = role_mappings(kind.kind, job["spec"])
    assert roles[kind.kind.placed_roles[-1]]["template"]["spec"]["containers"][0]["resources"] == {
        "limits": {"nvidia.com/gpu": "2"}
    }


@pytest.mark.parametrize(("kind", "make"), [each for each in KINDS if each.id != "JobSet"])
def test_claims_of_a_job_are_those_of_its_replicas(kind: JobKind, make: Make) -> None:
    job = as_object(make("a", "ns", 2, gpus=0, worker_spec=claims_of("two")))
    assert [each.resource_claim_template_name for each in replica_claims(kind.kind, job)] == ["two"]
    assert not replica_claims(kind.kind, as_object(make("a", "ns", 2)))


def test_claims_of_a_jobset_are_those_of_its_job_once_that_is_there() -> None:
    kind, child = JobSetV1Alpha2(), as_object(an_indexed_job("a-node-0", "ns", worker_spec=claims_of("two")))
    job = as_object(a_jobset("a", "ns", worker_spec=claims_of("two")))
    assert not replica_claims(kind.kind, job)
    assert [each.resource_claim_template_name for each in replica_claims(kind.kind, replace(job, child=child))] == [
        "two"
    ]


def test_first_container_gets_the_claim_where_none_names_gpus() -> None:
    manifest = an_indexed_job("a", "ns", 1, gpus=0, annotations={"voda.dev/device-class": CLASS})
    manifest["spec"]["template"]["spec"]["containers"].append({"name": "beside", "image": "x"})
    containers = made(IndexedJobV1(), manifest)["spec"]["template"]["spec"]["containers"]
    assert [each["resources"].get("claims") for each in containers] == [[{"name": "voda-gpus"}], None]


def templates_of(name: str, device_class: str, gpus: str) -> list[dict[str, Any]]:
    annotations = {"voda.dev/device-class": device_class, "voda.dev/gpus-claimed": gpus}
    meta = ObjectMeta(name=name, namespace="ns", uid="u1", annotations=annotations)
    return [body for _, body in gpu_claim_template({}, meta)]


@pytest.mark.parametrize("gpus", ["", "0", "-1", "1.5", "1025", "9" * 5_000, "²", "٣", "x"])
def test_object_that_claims_no_number_of_gpus_that_a_replica_can_have_gets_no_template(gpus: str) -> None:
    assert templates_of("a", CLASS, gpus) == []
    assert len(templates_of("a", CLASS, "1024")) == 1


def test_name_of_a_template_is_shortened_where_the_server_would_refuse_it_and_stays_its_own() -> None:
    longest = ".".join(["g" * 60] * 4)
    names = [templates_of("a" * 63, f"{longest}{end}", "8")[0]["metadata"]["name"] for end in (".x1", ".x2")]
    assert names[0] != names[1]
    assert all(len(name) <= 253 and is_dns_name(name) for name in names)
    assert templates_of("a", longest, "8")[0]["metadata"]["name"] == f"a-8-{longest}"


def is_dns_name(name: str) -> bool:
    """Say whether the API server takes it: what is between dots begins and ends with a letter or digit."""
    return all(re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", label) for label in name.split("."))
