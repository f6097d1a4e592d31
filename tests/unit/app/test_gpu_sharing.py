"""Which jobs of one machine get a part of a GPU, and what the others are told."""

from typing import Any

import pytest

from voda.app.gpu_sharing import GpuSharing, ShareAdmission
from voda.domain.errors import InvalidField
from voda.domain.gpus import GpuRequest
from voda.manifests.parse import ParsedManifest, parse

CORE, MEMORY = "elasticgpu.io/gpu-core", "elasticgpu.io/gpu-memory"


def a_manifest(
    limits: dict[str, Any], requests: dict[str, Any] | None = None, *, replicas: int = 1, kind: str = "PyTorchJob"
) -> dict[str, Any]:
    resources = {"limits": limits, **({"requests": requests} if requests else {})}
    container = {"name": "pytorch", "command": ["true"], "resources": resources}
    role = {"replicas": replicas, "template": {"spec": {"containers": [container]}}}
    roles = {"pytorchReplicaSpecs": {"Worker": role}}
    if kind == "MPIJob":
        roles = {"mpiReplicaSpecs": {"Launcher": role, "Worker": role}}
    version = "kubeflow.org/v1" if kind == "PyTorchJob" else "kubeflow.org/v2beta1"
    return {"apiVersion": version, "kind": kind, "metadata": {"name": "nb"}, "spec": roles}


def counted(
    manifest: dict[str, Any], sharing: GpuSharing = "auto", *, has_gpus: bool = True, mps: bool = True
) -> ParsedManifest:
    return ShareAdmission(sharing, has_gpus=has_gpus, mps=lambda: mps).counted(parse(manifest))


def test_job_that_asks_for_a_part_gets_it_and_no_whole_gpu() -> None:
    found = counted(a_manifest({CORE: 25, MEMORY: "4096"}))
    assert (found.spec.share, found.spec.gpus_per_replica) == (GpuRequest(milli=250, memory_mib=4_096), 0)
    assert found.warnings == ()
    alias = counted(a_manifest({"elasticgpu.com/gpu-core": 30}))
    assert alias.spec.share == GpuRequest(milli=300)


def test_job_that_asks_for_whole_gpus_by_core_gets_so_many() -> None:
    found = counted(a_manifest({CORE: 200}))
    assert (found.spec.share, found.spec.gpus_per_replica, found.warnings) == (None, 2, ())


def test_job_that_asks_for_no_part_stays_as_it_is() -> None:
    parsed = parse(a_manifest({"nvidia.com/gpu": 2}))
    assert ShareAdmission("plain", has_gpus=True, mps=bool).counted(parsed) is parsed


@pytest.mark.parametrize(("has_gpus", "gpus"), [(True, 0), (False, 1)])
def test_job_without_gpus_takes_a_slot_only_where_there_are_no_gpus(has_gpus: bool, gpus: int) -> None:
    assert counted(a_manifest({"nvidia.com/gpu": 0}), has_gpus=has_gpus).spec.gpus_per_replica == gpus


@pytest.mark.parametrize(
    ("fields", "where", "why"),
    [
        ({"replicas": 2}, {}, "a part of a GPU is for a job of one worker, without mpirun"),
        ({"kind": "MPIJob"}, {}, "a part of a GPU is for a job of one worker, without mpirun"),
        ({}, {"has_gpus": False}, "this machine has no GPU to share"),
        ({}, {"mps": False}, "nothing here divides GPUs (NVIDIA MPS does not run, or serves one user alone); `voda up"),
        ({}, {"sharing": "off"}, "voda up --gpu-sharing off says so"),
    ],
)
def test_job_that_cannot_have_a_part_gets_whole_gpus_and_is_told_why(
    fields: dict[str, Any], where: dict[str, Any], why: str
) -> None:
    found = counted(a_manifest({CORE: 25}, **fields), **where)
    assert (found.spec.share, found.spec.gpus_per_replica) == (None, 1)
    (message,) = {warning.message for warning in found.warnings if warning.message.startswith("its workers get")}
    assert message.startswith(f"its workers get whole {'GPUs' if where.get('has_gpus', True) else 'CPU slots'}: {why}")


@pytest.mark.parametrize(
    ("sharing", "has_gpus", "mps", "line"),
    [
        ("auto", False, True, ""),
        ("auto", True, True, "jobs may share GPUs, divided by NVIDIA MPS: voda submit --gpu-milli 250"),
        ("plain", True, False, "jobs may share GPUs, which nothing divides (--gpu-sharing plain): voda submit"),
        ("auto", True, False, "GPUs are not shared: nothing here divides GPUs"),
        ("off", True, True, "GPUs are not shared: voda up --gpu-sharing off says so"),
    ],
)
def test_machine_says_how_its_gpus_are_shared(sharing: GpuSharing, has_gpus: bool, mps: bool, line: str) -> None:
    shares = ShareAdmission(sharing, has_gpus=has_gpus, mps=lambda: mps)
    told = shares.description()
    assert (len(told), "".join(told).startswith(line)) == (int(has_gpus), True)


def test_parts_without_mps_are_given_where_the_operator_lets_jobs_share() -> None:
    assert counted(a_manifest({CORE: 25}), "plain", mps=False).spec.share == GpuRequest(milli=250)


@pytest.mark.parametrize(
    ("limits", "requests", "named"),
    [
        ({CORE: 150}, None, "gpu-core is 150, expected less than 100 or a multiple of it"),
        ({CORE: -25}, None, "expected a whole number from 0, got '-25'"),
        ({CORE: "25m"}, None, "expected a whole number from 0, got '25m'"),
        ({CORE: 25, "elasticgpu.com/gpu-core": 25}, None, "expected one of them: they are the same resource"),
        ({CORE: 25, "nvidia.com/gpu": 1}, None, "it asks for nvidia.com/gpu and for a part of a GPU, expected one of"),
        ({CORE: 25}, {CORE: 30}, "its request is 30 and its limit 25, expected the same"),
    ],
)
def test_parts_that_no_gpu_has_are_refused_in_one_sentence(
    limits: dict[str, Any], requests: dict[str, Any] | None, named: str
) -> None:
    with pytest.raises(InvalidField) as refused:
        counted(a_manifest(limits, requests))
    assert named in str(refused.value)
    assert str(refused.value).startswith(
        "spec.pytorchReplicaSpecs.Worker.template.spec.containers[0].resources.limits["
    )
