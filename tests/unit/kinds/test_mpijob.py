"""An MPIJob means the same in the version that a cluster serves, or it is said what is lost."""

from typing import Any

import pytest

from tests.manifests import a_torch_job, an_mpi_job
from voda.domain.errors import InvalidField
from voda.kinds.base import ConvertedManifest
from voda.kinds.mpijob import V1, V2
from voda.kinds.registry import KINDS
from voda.manifests.parse import parse


def in_version(manifest: dict[str, Any], version: str) -> ConvertedManifest:
    return KINDS[manifest["kind"]].in_version(manifest, version)


def v1(**changes: Any) -> dict[str, Any]:
    return an_mpi_job(api_version=V1, **changes)


def with_policies(manifest: dict[str, Any], **policies: str) -> dict[str, Any]:
    for role, policy in policies.items():
        manifest["spec"]["mpiReplicaSpecs"][role]["restartPolicy"] = policy
    return manifest


def policies(manifest: Any) -> tuple[str, str]:
    roles = manifest["spec"]["mpiReplicaSpecs"]
    return roles["Launcher"].get("restartPolicy", ""), roles["Worker"].get("restartPolicy", "")


def fields(manifest: dict[str, Any], version: str) -> list[str]:
    return [warning.field for warning in in_version(manifest, version).warnings]


@pytest.mark.parametrize("manifest", [an_mpi_job(), v1(), a_torch_job()])
def test_manifest_of_the_served_version_is_left_alone(manifest: dict[str, Any]) -> None:
    assert in_version(manifest, manifest["apiVersion"]).manifest is manifest


@pytest.mark.parametrize(("version", "other"), [(V1, V2), (V2, V1)])
def test_converted_manifest_is_accepted_and_the_original_stays(version: str, other: str) -> None:
    manifest = an_mpi_job(api_version=version, replicas=3)
    converted = in_version(manifest, other).manifest
    assert converted["apiVersion"] == other
    assert parse(converted).spec.requested == 3
    assert manifest == an_mpi_job(api_version=version, replicas=3)


def test_clean_pod_policy_of_v1_moves_into_the_run_policy_unless_that_says_something() -> None:
    assert in_version(v1(spec={"cleanPodPolicy": "All"}), V2).manifest["spec"]["runPolicy"]["cleanPodPolicy"] == "All"
    both = v1(spec={"cleanPodPolicy": "All", "runPolicy": {"cleanPodPolicy": "Running"}})
    spec = in_version(both, V2).manifest["spec"]
    assert spec["runPolicy"]["cleanPodPolicy"] == "Running"
    assert "cleanPodPolicy" not in spec


def test_launcher_of_v1_that_is_never_restarted_is_not_restarted_by_its_job_either() -> None:
    converted = in_version(v1(), V2).manifest
    assert policies(converted)[0] == "Never"
    assert converted["spec"]["runPolicy"]["backoffLimit"] == 0
    asked = in_version(v1(spec={"runPolicy": {"backoffLimit": 2}}), V2).manifest
    assert asked["spec"]["runPolicy"]["backoffLimit"] == 0


def test_launcher_of_v1_that_is_restarted_keeps_the_jobs_own_limit() -> None:
    converted = in_version(with_policies(v1(), Launcher="OnFailure"), V2).manifest
    assert policies(converted)[0] == "OnFailure"
    assert "backoffLimit" not in converted["spec"]["runPolicy"]


@pytest.mark.parametrize("policy", ["Always", "ExitCode"])
def test_restart_policy_without_an_equivalent_is_told(policy: str) -> None:
    manifest = with_policies(v1(), Launcher=policy)
    assert policies(in_version(manifest, V2).manifest)[0] == "OnFailure"
    assert "spec.mpiReplicaSpecs.Launcher.restartPolicy" in fields(manifest, V2)


def test_main_container_is_told_to_be_lost() -> None:
    assert "spec.mainContainer" in fields(v1(spec={"mainContainer": "worker"}), V2)


def test_worker_that_sleeps_runs_sshd_where_it_is_reached_by_ssh() -> None:
    manifest = v1(worker={"command": ["sleep", "365d"]})
    container = in_version(manifest, V2).manifest["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["spec"]["containers"]
    assert container == [{"name": "worker", "image": "train"}]
    assert "spec.mpiReplicaSpecs.Worker.template.spec.containers[0].command" in fields(manifest, V2)
    own = v1(worker={"command": ["sh", "-c", "sleep 1; /usr/sbin/sshd -De"]})
    assert fields(own, V2) == ["apiVersion"]


@pytest.mark.parametrize(("limit", "policy"), [(None, "OnFailure"), (3, "OnFailure"), (0, "Never")])
def test_launcher_of_v2_is_tried_again_as_often_in_v1(limit: int | None, policy: str) -> None:
    converted = in_version(an_mpi_job(spec={"runPolicy": {"backoffLimit": limit}}), V1).manifest
    assert policies(converted)[0] == policy
    assert converted["spec"]["runPolicy"]["backoffLimit"] == (6 if limit is None else limit)


@pytest.mark.parametrize(
    ("field", "value", "default"),
    [
        ("sshAuthMountPath", "/home/mpi/.ssh", "/root/.ssh"),
        ("runLauncherAsWorker", True, False),
        ("launcherCreationPolicy", "WaitForWorkersReady", "AtStartup"),
        ("mpiImplementation", "Intel", "OpenMPI"),
    ],
)
def test_field_that_v1_does_not_know_is_left_out_and_told_unless_it_is_the_default(
    field: str, value: Any, default: Any
) -> None:
    assert fields(an_mpi_job(spec={field: value}), V1) == [f"spec.{field}", "apiVersion"]
    assert fields(an_mpi_job(spec={field: default}), V1) == ["apiVersion"]
    assert field not in in_version(an_mpi_job(spec={field: value}), V1).manifest["spec"]


def test_version_that_a_kind_has_not_is_refused() -> None:
    with pytest.raises(InvalidField, match=r"apiVersion: expected kubeflow.org/v2beta1, got kubeflow.org/v1"):
        in_version(a_torch_job(), V2)
