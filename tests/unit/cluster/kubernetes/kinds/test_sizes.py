"""Halting, resuming and resizing: what each kind's operator understands, and what not to ask of it at once."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from voda.cluster.kubernetes.kinds.base import JobKind, object_size
from voda.cluster.kubernetes.kinds.mpijob import MPIJobV1, MPIJobV2
from voda.cluster.kubernetes.kinds.operator_pods import index, is_launcher
from voda.cluster.kubernetes.kinds.pytorchjob import PyTorchJobV1
from voda.cluster.kubernetes.objects import (
    JobObject,
    JobObjectSpec,
    KubeElasticPolicy,
    ObjectMeta,
    Pod,
    ReplicaSpec,
)
from voda.domain.job import JobSpec

ALL: tuple[JobKind, ...] = (MPIJobV1(), MPIJobV2(), PyTorchJobV1())
SPEC = JobSpec(job_id="digits", name="digits", min_replicas=1, max_replicas=4)
_META = ObjectMeta(name="digits", namespace="default")


def mpi(workers: int | None = 2) -> JobObject:
    roles = {"Launcher": ReplicaSpec(replicas=1), "Worker": ReplicaSpec(replicas=workers)}
    return JobObject(metadata=_META, spec=_spec({"mpiReplicaSpecs": roles}))


def torch(masters: int = 0, workers: int | None = 2, elastic: tuple[int | None, int | None] | None = None) -> JobObject:
    roles = {"Master": ReplicaSpec(replicas=masters)} if masters else {}
    if workers != 0:
        roles["Worker"] = ReplicaSpec(replicas=workers)
    policy = KubeElasticPolicy(min_replicas=elastic[0], max_replicas=elastic[1]) if elastic else None
    return JobObject(metadata=_META, spec=_spec({"pytorchReplicaSpecs": roles, "elasticPolicy": policy}))


def _spec(fields: Mapping[str, Any]) -> JobObjectSpec:
    return msgspec.convert(fields, JobObjectSpec)


def a_pod(name: str, **metadata: Any) -> Pod:
    return Pod(metadata=ObjectMeta(name=name, namespace="default", **metadata))


def an_operators_pod(name: str, **metadata: Any) -> Pod:
    labels = {"training.kubeflow.org/job-name": "digits", **metadata.pop("labels", {})}
    return a_pod(name, labels=labels, **metadata)


@pytest.mark.parametrize("kind", ALL)
def test_halt_leaves_the_size_as_it_is(kind: JobKind) -> None:
    patch = kind.suspend_patch()
    assert (patch.subresource, patch.body) == ("", {"spec": {"runPolicy": {"suspend": True}}})


@pytest.mark.parametrize("kind", [MPIJobV1(), MPIJobV2()])
def test_mpi_job_is_resized_and_resumed_by_its_spec(kind: JobKind) -> None:
    workers = {"mpiReplicaSpecs": {"Worker": {"replicas": 3}}}
    assert kind.resize_patch(mpi(), 3).body == {"spec": workers}
    assert kind.resume_patch(mpi(), SPEC, 3).body == {"spec": {"runPolicy": {"suspend": False}, **workers}}
    assert kind.can_resize(mpi(), 64)


def test_torch_job_is_resized_by_its_scale_with_the_master_counted() -> None:
    patch = PyTorchJobV1().resize_patch(torch(), 3)
    assert (patch.subresource, patch.body) == ("scale", {"spec": {"replicas": 3}})
    assert PyTorchJobV1().resize_patch(torch(masters=1), 3).body == {"spec": {"replicas": 2}}
    assert PyTorchJobV1().resize_patch(torch(masters=1), 1).body == {"spec": {"replicas": 1}}


def test_torch_job_of_a_master_and_workers_asks_for_one_worker_at_least() -> None:
    kind = PyTorchJobV1()
    assert [object_size(kind, torch(masters=1), size) for size in (1, 2, 3)] == [2, 2, 3]
    assert object_size(kind, torch(), 1) == object_size(kind, torch(masters=1, workers=0), 1) == 1
    assert object_size(MPIJobV2(), mpi(), 1) == 1


def test_torch_job_is_resumed_with_size_and_bounds_in_one_patch() -> None:
    body = PyTorchJobV1().resume_patch(torch(masters=1, elastic=(2, 3)), SPEC, 4).body
    assert body == {
        "metadata": {"annotations": {"voda.dev/recorded-bounds": "1-4"}},
        "spec": {
            "runPolicy": {"suspend": False},
            "pytorchReplicaSpecs": {"Worker": {"replicas": 3}},
            "elasticPolicy": {"minReplicas": 1, "maxReplicas": 4},
        },
    }


def test_torch_job_whose_bounds_its_user_changed_is_resumed_without_a_note_until_the_log_has_them() -> None:
    for noted, is_noted in (("1-4", False), ("2-6", True)):
        job = torch(masters=1, elastic=(2, 6))
        job = replace(job, metadata=replace(job.metadata, annotations={"voda.dev/recorded-bounds": noted}))
        body = PyTorchJobV1().resume_patch(job, SPEC, 4).body
        assert body["spec"]["elasticPolicy"] == {"minReplicas": 1, "maxReplicas": 6}
        assert ("metadata" in body) == is_noted


def test_torch_job_of_a_master_alone_is_resumed_without_a_size() -> None:
    rigid = JobSpec(job_id="digits")
    assert PyTorchJobV1().resume_patch(torch(masters=1, workers=0), rigid, 1).body == {
        "spec": {"runPolicy": {"suspend": False}}
    }


def test_torch_job_that_became_elastic_gets_its_policy_at_the_next_start() -> None:
    body = PyTorchJobV1().resume_patch(torch(), SPEC, 2).body
    assert body["spec"]["elasticPolicy"] == {
        "minReplicas": 1,
        "maxReplicas": 4,
        "rdzvBackend": "c10d",
        "rdzvConf": [{"key": "last_call_timeout", "value": "2"}],
    }


@pytest.mark.parametrize("elastic", [(1, 4), (None, 4), None])
def test_torch_agents_are_never_joined_by_others_while_they_run(elastic: tuple[int | None, int | None] | None) -> None:
    assert PyTorchJobV1().starts_together(torch(elastic=elastic))
    assert not PyTorchJobV1().can_resize(torch(elastic=elastic), 3)


def test_replicas_are_counted_as_the_operator_defaults_them() -> None:
    assert MPIJobV2().replicas(mpi(3)) == 3
    assert MPIJobV1().replicas(mpi(None)) == 1
    assert MPIJobV2().replicas(JobObject(metadata=_META)) == 0
    assert PyTorchJobV1().replicas(torch(masters=1, workers=3)) == 4
    assert PyTorchJobV1().replicas(torch(workers=None)) == 1


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("digits-worker-0", 0),
        ("digits-worker-12", 12),
        ("digits-master-0", 0),
        ("digits-launcher", None),
        ("digits-launcher-x7f2k", None),
        ("digits-worker-", None),
        ("digits-worker-01", None),
        ("digits-worker-1-2", None),
        ("digits-worker-9999999999", None),
        ("digits-2-worker-1", None),
        ("-worker-1", None),
        ("worker-1", None),
    ],
)
def test_index_of_a_pod_is_told_by_its_name(name: str, expected: int | None) -> None:
    assert index(an_operators_pod(name)) == expected


def test_index_label_that_is_off_by_one_is_not_read() -> None:
    pod = an_operators_pod("digits-worker-3", labels={"training.kubeflow.org/replica-index": "4"})
    assert index(pod) == 3


def test_workers_beside_a_master_come_after_it_even_when_their_job_is_gone() -> None:
    assert index(an_operators_pod("digits-worker-0", annotations={"voda.dev/first-index": "1"})) == 1
    assert index(an_operators_pod("digits-worker-0", annotations={"voda.dev/first-index": "9"})) == 0


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ({"training.kubeflow.org/job-role": "launcher"}, True),
        ({"training.kubeflow.org/replica-type": "launcher", "training.kubeflow.org/job-role": "master"}, True),
        ({"training.kubeflow.org/replica-type": "worker"}, False),
        ({}, False),
    ],
)
def test_launcher_is_told_by_the_labels_of_either_operator(labels: dict[str, str], expected: bool) -> None:
    assert is_launcher(a_pod("digits-x", labels=labels)) is expected
