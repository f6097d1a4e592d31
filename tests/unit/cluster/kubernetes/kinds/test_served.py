"""Which kinds a cluster runs, by its discovery documents; and whose a job is."""

from typing import Any

import pytest

from voda.cluster.kubernetes.kinds.indexed_job import IndexedJobV1
from voda.cluster.kubernetes.kinds.mpijob import MPIJobV1, MPIJobV2
from voda.cluster.kubernetes.kinds.served_kinds import failure, served
from voda.cluster.kubernetes.objects import JobObject, JobObjectSpec, KubeRunPolicy, ObjectMeta
from voda.cluster.kubernetes.state.job_annotations import foreign_manager

V1, V2, BATCH = "/apis/kubeflow.org/v1", "/apis/kubeflow.org/v2beta1", "/apis/batch/v1"


def resources(*kinds: str) -> dict[str, Any]:
    found = [{"name": f"{kind.lower()}s{tail}", "kind": kind} for kind in kinds for tail in ("", "/status")]
    return {"kind": "APIResourceList", "resources": [*found, {"name": "pytorchjobs/scale", "kind": "Scale"}]}


def test_the_served_version_of_mpi_jobs_is_taken() -> None:
    newer = served({V2: resources("MPIJob"), V1: resources("PyTorchJob")})
    assert isinstance(newer["MPIJob"], MPIJobV2)
    older = served({V1: resources("MPIJob", "PyTorchJob", "TFJob")})
    assert isinstance(older["MPIJob"], MPIJobV1)
    assert set(older) == set(newer) == {"MPIJob", "PyTorchJob"}


def test_one_operator_is_enough() -> None:
    kinds = served({V2: resources("MPIJob"), V1: None})
    assert set(kinds) == {"MPIJob"}
    assert failure(kinds) == ""


@pytest.mark.parametrize("answer", [{}, {V1: None}, {V1: {"resources": None}}, {V1: {"resources": ["odd"]}}])
def test_cluster_that_serves_no_kind_is_told_what_it_lacks(answer: Any) -> None:
    assert served(answer) == {}
    assert "no Job (batch/v1)" in failure(served(answer))


def test_every_cluster_runs_plain_jobs_without_any_operator() -> None:
    kinds = served({BATCH: resources("Job", "CronJob")})
    assert set(kinds) == {"Job"}
    assert failure(kinds) == ""


@pytest.mark.parametrize(
    ("labels", "managed_by", "expected"),
    [
        ({}, None, False),
        ({}, "", False),
        ({}, "kubeflow.org/mpi-operator", False),
        ({}, "kubeflow.org/training-operator", False),
        ({}, "kubernetes.io/job-controller", False),
        ({}, "kueue.x-k8s.io/multikueue", True),
        ({"kueue.x-k8s.io/queue-name": "q"}, None, True),
        ({"kueue.x-k8s.io/queue-name": ""}, None, False),
    ],
)
def test_job_of_another_manager_is_left_alone(labels: dict[str, str], managed_by: str | None, expected: bool) -> None:
    meta = ObjectMeta(name="x", labels=labels)
    for kind, spec in (
        (MPIJobV2(), JobObjectSpec(run_policy=KubeRunPolicy(managed_by=managed_by))),
        (IndexedJobV1(), JobObjectSpec(managed_by=managed_by)),
    ):
        assert bool(foreign_manager(kind, JobObject(metadata=meta, spec=spec))) is expected
