"""What a job object of a user's own says to voda."""

from typing import Any

import msgspec
import pytest

from tests.kube.objects import an_mpijob
from voda.cluster.kubernetes.kinds.indexed_job import IndexedJobV1
from voda.cluster.kubernetes.kinds.mpijob import MPIJobV2
from voda.cluster.kubernetes.objects import JobObject, ObjectMeta, OwnerReference
from voda.cluster.kubernetes.state.job_annotations import (
    RECORDED_SPEC,
    changed_fields,
    fingerprint,
    foreign_manager,
    manifest_of,
    recorded_text,
    spec_text,
    user_of,
)
from voda.domain.errors import InvalidField
from voda.manifests.parse import parse

LEAST, MOST, PRIORITY = "voda.dev/min-replicas", "voda.dev/max-replicas", "voda.dev/priority"
SIZES = "voda.dev/sizes"


def an_object(**changes: Any) -> JobObject:
    """Return an MPIJob as a watch brings it."""
    status = changes.pop("status", {})
    return msgspec.convert({**an_mpijob("digits", "team", **changes), "status": status}, JobObject)


def test_invitation_is_the_label_with_the_value_true() -> None:
    assert an_object().metadata.is_managed
    assert not an_object(managed=False).metadata.is_managed
    assert not an_object(labels={"voda.dev/managed": "yes"}).metadata.is_managed


@pytest.mark.parametrize("managed_by", ["", "kubeflow.org/mpi-operator", "kubeflow.org/training-operator"])
def test_object_of_its_operator_is_not_foreign(managed_by: str) -> None:
    assert foreign_manager(MPIJobV2(), an_object(policy={"managedBy": managed_by})) == ""


def test_object_of_another_manager_is_foreign_and_the_sentence_says_whose() -> None:
    multikueue = foreign_manager(MPIJobV2(), an_object(policy={"managedBy": "kueue.x-k8s.io/multikueue"}))
    assert "'kueue.x-k8s.io/multikueue'" in multikueue
    assert "Kueue" in foreign_manager(MPIJobV2(), an_object(labels={"kueue.x-k8s.io/queue-name": "research"}))


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("JobSet", "left alone: it belongs to the JobSet js"),
        ("TrainJob", ""),
        ("CronJob", ""),
    ],
)
def test_job_that_its_owner_resumes_is_left_alone(kind: str, said: str) -> None:
    owners = (OwnerReference(kind=kind, name="js", uid="u2", controller=True),)
    job = JobObject(metadata=ObjectMeta(name="js-node-0", namespace="team", uid="u1", owner_references=owners))
    found = foreign_manager(IndexedJobV1(), job)
    assert found.startswith(said)
    assert bool(found) is bool(said)


@pytest.mark.parametrize(
    ("kind", "expected"), [("Succeeded", True), ("Failed", True), ("Complete", True), ("Running", False)]
)
def test_object_has_finished_when_its_operator_says_so(kind: str, expected: bool) -> None:
    status = {"conditions": [{"type": kind, "status": "True"}]}
    assert an_object(status=status).has_finished is expected


def test_user_is_the_namespace_unless_an_annotation_that_is_checked_names_one() -> None:
    both = an_object(annotations={"voda.dev/user": "ann"}, labels={"voda.dev/user": "bob"})
    assert user_of(both.metadata, is_checked=True) == "ann"
    assert user_of(both.metadata, is_checked=False) == "team"
    assert user_of(an_object(labels={"voda.dev/user": "bob"}).metadata, is_checked=True) == "team"


@pytest.mark.parametrize("name", ["", "Ann", "a b", "x" * 64, "ann\n", "../admin"])
def test_user_that_nobody_can_be_is_refused(name: str) -> None:
    with pytest.raises(InvalidField, match=r"metadata.annotations\[voda.dev/user\]"):
        user_of(an_object(annotations={"voda.dev/user": name}).metadata, is_checked=True)


def test_manifest_is_what_the_user_wrote() -> None:
    wrote = an_mpijob("digits", "team", least=1, most=4, annotations={"team": "vision"})
    server = {"uid": "u1", "resourceVersion": "7", "generation": 2, "managedFields": [{}], "creationTimestamp": "x"}
    ours = {
        "voda.dev/job-id": "a",
        "voda.dev/worker-failures": "2",
        "kubectl.kubernetes.io/last-applied-configuration": "{}",
    }
    metadata = {**wrote["metadata"], **server}
    metadata["annotations"] = {**metadata["annotations"], **ours, "voda.dev/user": "ann"}
    found = manifest_of({**wrote, "metadata": metadata, "status": {"conditions": []}}, MPIJobV2())
    assert found == {**wrote, "metadata": {**wrote["metadata"], "labels": {}}} | {
        "metadata": {key: value for key, value in wrote["metadata"].items() if key != "labels"}
    }
    assert parse(found).warnings == ()


@pytest.mark.parametrize("broken", [{"metadata": {}}, {"metadata": {"name": "x"}, "spec": None}])
def test_manifest_of_a_broken_object_can_be_refused(broken: dict[str, Any]) -> None:
    with pytest.raises(InvalidField):
        parse(manifest_of(broken, MPIJobV2()))


def test_fingerprint_changes_with_what_users_write() -> None:
    before = fingerprint(an_object())
    assert fingerprint(an_object(annotations={"voda.dev/pool": "a100"})) != before
    assert fingerprint(an_object(labels={"voda.dev/queue": "x"})) != before
    assert fingerprint(an_object(policy={"managedBy": "kueue.x-k8s.io/multikueue"})) != before


def test_fingerprint_stays_with_what_voda_and_operators_write() -> None:
    written = {"voda.dev/worker-failures": "1", "voda.dev/counted-failures": "u1"}
    status = {"conditions": [{"type": "Created", "status": "True"}]}
    assert fingerprint(an_object(annotations=written, status=status)) == fingerprint(an_object())


def test_wishes_are_those_changed_since_they_were_taken_over() -> None:
    before = spec_text({LEAST: "1", MOST: "4"})
    assert changed_fields({LEAST: "1", MOST: " 6 ", PRIORITY: "-3"}, before) == {"max_replicas": 6, "priority": -3}
    assert changed_fields({LEAST: "1", MOST: "4"}, before) == {}


def test_wish_taken_back_asks_for_nothing() -> None:
    before = spec_text({LEAST: "1", MOST: "4"})
    assert changed_fields({LEAST: "1"}, before) == {}
    assert spec_text({LEAST: "1"}) != before


@pytest.mark.parametrize("value", ["many", "0", "5000", "1,max_replicas=9", "1=1", ""])
def test_wish_that_cannot_be_meant_is_refused_with_its_annotation(value: str) -> None:
    with pytest.raises(InvalidField, match=r"metadata.annotations\[voda.dev/min-replicas\]"):
        changed_fields({LEAST: value}, "")


def test_wishes_taken_before_are_noted_on_the_object_else_those_submitted() -> None:
    manifest = an_mpijob("digits", "team", least=1, most=4)
    noted = an_object(annotations={RECORDED_SPEC: "max_replicas=8"})
    assert recorded_text(noted, manifest) == "max_replicas=8"
    assert recorded_text(an_object(), manifest) == "min_replicas=1,max_replicas=4"
    assert recorded_text(an_object(), None) == ""


def test_sizes_when_their_annotation_changes_are_taken_over_with_the_bounds_that_annotations_say() -> None:
    before = spec_text({MOST: "8", SIZES: "1,2,4,8"})
    assert changed_fields({MOST: "8", SIZES: " 1,2,4,8"}, before) == {}
    assert changed_fields({MOST: "8", SIZES: "2-16:2"}, before) == {"sizes": "2-16:2", "max_replicas": 8}
    many = ",".join(str(size) for size in range(1, 60, 7))
    assert changed_fields({SIZES: f"{many},99"}, spec_text({SIZES: f"{many},98"})) == {"sizes": "1-57:7,99"}
    with pytest.raises(InvalidField, match=r"\[voda\.dev/sizes\]: steps of 4 from 2 do not reach 9"):
        changed_fields({SIZES: "2-9:4"}, before)
