"""Patches: what is sent, and what the object is after it."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kube.merge_patch import apply_patch
from tests.manifests import a_torch_job, an_mpi_job
from voda.cluster.kubernetes.kinds.base import JobKind, difference
from voda.cluster.kubernetes.kinds.mpijob import MPIJobV1, MPIJobV2
from voda.cluster.kubernetes.kinds.pytorchjob import PyTorchJobV1
from voda.cluster.kubernetes.kinds.template import GPU_TAINTS
from voda.manifests.parse import parse

ENVIRONMENT = {"VODA_JOB_ID": "digits", "VODA_API_URL": "http://voda:8080"}
ELASTIC = {"voda.dev/min-replicas": "1", "voda.dev/max-replicas": "4"}
KINDS: tuple[tuple[JobKind, dict[str, Any]], ...] = (
    (MPIJobV2(), an_mpi_job(annotations=ELASTIC)),
    (MPIJobV1(), an_mpi_job(api_version="kubeflow.org/v1")),
    (PyTorchJobV1(), a_torch_job(masters=1, annotations=ELASTIC)),
    (PyTorchJobV1(), a_torch_job()),
)

json_values = st.recursive(
    st.booleans() | st.integers(-3, 3) | st.text("ab", max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abcd"), inner, max_size=3),
    max_leaves=12,
)
json_objects = st.dictionaries(st.sampled_from("abcd"), json_values, max_size=4)


def in_cluster(manifest: dict[str, Any]) -> dict[str, Any]:
    """Return a manifest as the API server has it."""
    found = copy.deepcopy(manifest)
    found["metadata"] |= {"uid": "u-1", "resourceVersion": "41", "namespace": "default"}
    found["status"] = {"conditions": []}
    return found


def adopted(kind: JobKind, manifest: dict[str, Any]) -> dict[str, Any]:
    patch = kind.adoption_patch(manifest, parse(manifest).spec, GPU_TAINTS, ENVIRONMENT)
    assert patch.subresource == ""
    return apply_patch(manifest, patch.body)


@given(json_objects, json_objects)
def test_difference_applied_leads_to_what_was_wanted(before: dict[str, Any], after: dict[str, Any]) -> None:
    patch = difference(before, after)
    assert apply_patch(before, patch) == after
    assert not difference(after, apply_patch(before, patch))


def test_difference_tells_numbers_from_booleans_and_leaves_what_is_alike() -> None:
    assert difference({"a": 1, "b": {"c": [1]}}, {"a": True, "b": {"c": [1]}}) == {"a": True}


@pytest.mark.parametrize(("kind", "manifest"), KINDS)
def test_adopted_object_is_as_one_that_was_made_but_for_its_size(kind: JobKind, manifest: dict[str, Any]) -> None:
    made = kind.new_object(parse(manifest).spec, GPU_TAINTS, ENVIRONMENT)
    found = adopted(kind, in_cluster(manifest))
    for part in (made, found):
        part["metadata"] = {name: part["metadata"][name] for name in ("name", "labels", "annotations")}
    assert {**found, "status": None} == {**made, "status": None}


@pytest.mark.parametrize(("kind", "manifest"), KINDS)
def test_object_that_is_adopted_again_stays_as_it_is(kind: JobKind, manifest: dict[str, Any]) -> None:
    once = adopted(kind, in_cluster(manifest))
    assert kind.adoption_patch(once, parse(once).spec, GPU_TAINTS, ENVIRONMENT).body == {}


@pytest.mark.parametrize(("kind", "manifest"), KINDS)
def test_adoption_holds_for_the_version_that_was_read_alone(kind: JobKind, manifest: dict[str, Any]) -> None:
    found = in_cluster(manifest)
    body = kind.adoption_patch(found, parse(manifest).spec, GPU_TAINTS, ENVIRONMENT).body
    assert body["metadata"]["resourceVersion"] == "41"
    assert "status" not in body


def test_adoption_replaces_lists_as_a_whole() -> None:
    manifest = in_cluster(an_mpi_job())
    pod = manifest["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["spec"]
    pod["containers"].append({"name": "sidecar", "image": "proxy"})
    pod["tolerations"] = [{"key": "spot", "operator": "Exists"}]
    body = MPIJobV2().adoption_patch(manifest, parse(manifest).spec, GPU_TAINTS, ENVIRONMENT).body
    sent = body["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["spec"]
    assert [(each["name"], each["image"]) for each in sent["containers"]] == [("worker", "train"), ("sidecar", "proxy")]
    assert [each["key"] for each in sent["tolerations"]] == ["spot", "nvidia.com/gpu", "amd.com/gpu"]


def test_adoption_leaves_size_and_managed_by_as_they_are() -> None:
    manifest = in_cluster(
        an_mpi_job(annotations={"voda.dev/max-replicas": "2"}, replicas=5, spec={"runPolicy": {"managedBy": ""}})
    )
    found = adopted(MPIJobV2(), manifest)
    assert found["spec"]["mpiReplicaSpecs"]["Worker"]["replicas"] == 5
    assert found["spec"]["runPolicy"] == {"managedBy": "", "suspend": True}


def test_adoption_takes_a_node_out_of_the_workers_template() -> None:
    manifest = in_cluster(an_mpi_job())
    manifest["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["spec"]["nodeName"] = "gpu-1"
    assert "nodeName" not in adopted(MPIJobV2(), manifest)["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["spec"]
