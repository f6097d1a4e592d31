"""What is made of a manifest for the API server."""

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from tests.manifests import a_torch_job, an_mpi_job
from voda.cluster.kubernetes.kinds.base import JobKind
from voda.cluster.kubernetes.kinds.mpijob import MPIJobV1, MPIJobV2
from voda.cluster.kubernetes.kinds.pytorchjob import PyTorchJobV1
from voda.cluster.kubernetes.kinds.template import GPU_TAINTS
from voda.domain.errors import ActionRefused
from voda.domain.job import JobSpec
from voda.manifests.parse import parse

ENVIRONMENT = {"VODA_JOB_ID": "digits-2", "VODA_API_URL": "http://voda:8080"}


def a_spec(manifest: dict[str, Any]) -> JobSpec:
    return replace(parse(manifest).spec, job_id="digits-2")


def made(kind: JobKind, manifest: dict[str, Any], taints: Sequence[str] = GPU_TAINTS) -> dict[str, Any]:
    return kind.new_object(a_spec(manifest), taints, ENVIRONMENT)


def template(job: dict[str, Any], role: str) -> dict[str, Any]:
    specs = job["spec"].get("mpiReplicaSpecs") or job["spec"]["pytorchReplicaSpecs"]
    found: dict[str, Any] = specs[role]["template"]
    return found


def variables(job: dict[str, Any], role: str) -> list[dict[str, str]]:
    found: list[dict[str, str]] = template(job, role)["spec"]["containers"][0].get("env", [])
    return found


def test_object_of_a_submitted_job_is_suspended_marked_and_of_the_requested_size() -> None:
    job = made(MPIJobV2(), an_mpi_job(annotations={"voda.dev/max-replicas": "4"}, replicas=3))
    assert (job["apiVersion"], job["kind"]) == ("kubeflow.org/v2beta1", "MPIJob")
    assert job["metadata"]["labels"] == {"voda.dev/managed": "true"}
    assert job["metadata"]["annotations"] == {"voda.dev/job-id": "digits-2", "voda.dev/max-replicas": "4"}
    assert job["spec"]["runPolicy"]["suspend"] is True
    assert job["spec"]["mpiReplicaSpecs"]["Worker"]["replicas"] == 3


def test_only_workers_wait_for_voda_to_place_them() -> None:
    job = made(MPIJobV2(), an_mpi_job())
    worker, launcher = template(job, "Worker"), template(job, "Launcher")
    assert worker["spec"]["schedulingGates"] == [{"name": "voda.dev/placement"}]
    assert worker["metadata"]["labels"] == {"voda.dev/managed": "true"}
    assert worker["metadata"]["annotations"] == {"voda.dev/job-id": "digits-2"}
    assert "schedulingGates" not in launcher["spec"]
    assert "metadata" not in launcher


def test_workers_own_scheduler_and_node_give_way_to_voda() -> None:
    manifest = an_mpi_job()
    template(manifest, "Worker")["spec"] |= {"schedulerName": "volcano", "nodeName": "gpu-7"}
    template(manifest, "Worker")["spec"]["schedulingGates"] = [{"name": "example.com/quota"}]
    pod = template(made(MPIJobV2(), manifest), "Worker")["spec"]
    assert "schedulerName" not in pod
    assert [each["name"] for each in pod["schedulingGates"]] == ["example.com/quota", "voda.dev/placement"]
    assert "nodeName" not in pod


def test_workers_tolerate_the_taints_of_gpu_nodes_besides_their_own() -> None:
    manifest = an_mpi_job()
    own = {"key": "spot", "operator": "Exists", "effect": "NoSchedule"}
    template(manifest, "Worker")["spec"]["tolerations"] = [own, {"key": "nvidia.com/gpu", "operator": "Exists"}]
    found = template(made(MPIJobV2(), manifest), "Worker")["spec"]["tolerations"]
    assert found[0] == own
    assert [each["key"] for each in found] == ["spot", "nvidia.com/gpu", "amd.com/gpu"]


def test_workers_that_tolerate_everything_need_no_more_tolerations() -> None:
    manifest = an_mpi_job()
    template(manifest, "Worker")["spec"]["tolerations"] = [{"operator": "Exists"}]
    assert template(made(MPIJobV2(), manifest), "Worker")["spec"]["tolerations"] == [{"operator": "Exists"}]


def test_toleration_of_one_effect_is_not_taken_for_one_of_all() -> None:
    manifest = an_mpi_job()
    own = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoExecute"}
    template(manifest, "Worker")["spec"]["tolerations"] = [own]
    found = template(made(MPIJobV2(), manifest), "Worker")["spec"]["tolerations"]
    assert found[:2] == [own, {"key": "nvidia.com/gpu", "operator": "Exists"}]


@pytest.mark.parametrize("role", ["Launcher", "Worker"])
def test_containers_of_all_roles_are_told_of_their_job_before_their_own_variables(role: str) -> None:
    manifest = an_mpi_job()
    template(manifest, role)["spec"]["containers"][0]["env"] = [{"name": "OUT", "value": "/out/$(VODA_JOB_ID)"}]
    names = [each["name"] for each in variables(made(MPIJobV2(), manifest), role)]
    assert names == ["VODA_JOB_ID", "VODA_API_URL", "OUT"]


def test_variable_that_the_manifest_sets_itself_wins() -> None:
    found = variables(made(MPIJobV2(), an_mpi_job(env={"VODA_API_URL": "http://other"})), "Launcher")
    assert [each for each in found if each["name"] == "VODA_API_URL"] == [
        {"name": "VODA_API_URL", "value": "http://other"}
    ]


def test_what_belongs_to_another_object_is_left_behind() -> None:
    notes = {
        "voda.dev/state": "Running",
        "voda.dev/worker-failures": "6",
        "voda.dev/counted-failures": "u-9",
        "voda.dev/other": "",
        "team": "vision",
    }
    of_another = {
        "uid": "u-1",
        "resourceVersion": "7",
        "generation": 3,
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "managedFields": [{}],
        "ownerReferences": [{"uid": "gone"}],
        "finalizers": ["example.com/never"],
        "labels": {"kueue.x-k8s.io/queue-name": "q", "team": "vision"},
    }
    manifest = an_mpi_job(annotations=notes, metadata=of_another, spec={"runPolicy": {"managedBy": "kueue.x-k8s.io/x"}})
    manifest["status"] = {"conditions": [{"type": "Succeeded", "status": "True"}]}
    job = made(MPIJobV2(), manifest)
    assert job["metadata"] == {
        "name": "digits",
        "namespace": "default",
        "labels": {"team": "vision", "voda.dev/managed": "true"},
        "annotations": {"team": "vision", "voda.dev/job-id": "digits-2"},
    }
    assert "status" not in job
    assert "managedBy" not in job["spec"]["runPolicy"]


def test_nulls_and_fractions_are_written_as_an_api_server_takes_them() -> None:
    manifest = an_mpi_job(worker={"env": None, "resources": {"limits": {"cpu": 0.5, "nvidia.com/gpu": 1}}})
    manifest["metadata"]["labels"] = None
    container = template(made(MPIJobV2(), manifest), "Worker")["spec"]["containers"][0]
    assert container["resources"] == {"limits": {"cpu": "0.5", "nvidia.com/gpu": 1}}


def test_manifest_stays_as_it_was_submitted() -> None:
    manifest, again = an_mpi_job(), an_mpi_job()
    made(MPIJobV1(), manifest)
    assert manifest == again


def test_a_job_without_a_manifest_of_the_kind_is_refused_in_one_sentence() -> None:
    with pytest.raises(ActionRefused, match="job plain: has no manifest of a MPIJob"):
        MPIJobV2().new_object(JobSpec(job_id="plain"), GPU_TAINTS, {})


# ---- MPIJob v1


def test_workers_of_v1_survive_the_failure_of_one_of_them() -> None:
    job = made(MPIJobV1(), an_mpi_job(api_version="kubeflow.org/v1"))
    assert job["spec"]["mpiReplicaSpecs"]["Worker"]["restartPolicy"] == "ExitCode"
    assert "restartPolicy" not in job["spec"]["mpiReplicaSpecs"]["Launcher"]


def test_manifest_of_the_version_that_is_not_served_is_converted() -> None:
    job = made(MPIJobV1(), an_mpi_job(spec={"sshAuthMountPath": "/home/mpi/.ssh"}))
    assert job["apiVersion"] == "kubeflow.org/v1"
    assert "sshAuthMountPath" not in job["spec"]


# ---- PyTorchJob


def test_master_is_placed_by_voda_as_replica_zero_and_its_workers_come_after_it() -> None:
    job = made(PyTorchJobV1(), a_torch_job(masters=1, replicas=2))
    assert job["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] == 2
    for role, first in (("Master", None), ("Worker", "1")):
        found = template(job, role)
        assert found["spec"]["schedulingGates"] == [{"name": "voda.dev/placement"}]
        assert found["metadata"]["annotations"].get("voda.dev/first-index") == first


def test_rigid_torch_job_is_left_without_an_elastic_policy() -> None:
    assert "elasticPolicy" not in made(PyTorchJobV1(), a_torch_job())["spec"]


def test_elastic_torch_job_without_a_policy_gets_one_as_wide_as_its_bounds() -> None:
    job = made(PyTorchJobV1(), a_torch_job(annotations={"voda.dev/min-replicas": "1", "voda.dev/max-replicas": "6"}))
    assert job["spec"]["elasticPolicy"] == {
        "minReplicas": 1,
        "maxReplicas": 6,
        "rdzvBackend": "c10d",
        "rdzvConf": [{"key": "last_call_timeout", "value": "2"}],
    }


def test_elastic_policy_is_widened_to_the_bounds_and_never_narrowed() -> None:
    last_call = [{"key": "timeout", "value": "60"}, {"key": "last_call_timeout", "value": "9"}]
    own = {"minReplicas": 2, "maxReplicas": 4, "maxRestarts": 3, "rdzvConf": last_call}
    wider = a_torch_job(annotations={"voda.dev/max-replicas": "6"}, spec={"elasticPolicy": own})
    assert made(PyTorchJobV1(), wider)["spec"]["elasticPolicy"] == own | {"maxReplicas": 6}
    narrower = a_torch_job(annotations={"voda.dev/max-replicas": "3"}, spec={"elasticPolicy": own})
    assert made(PyTorchJobV1(), narrower)["spec"]["elasticPolicy"] == own


def test_agents_of_an_elastic_job_with_a_master_meet_at_the_master() -> None:
    elastic = {"minReplicas": 1, "maxReplicas": 3}
    job = made(PyTorchJobV1(), a_torch_job(masters=1, replicas=1, spec={"elasticPolicy": elastic}))
    assert job["spec"]["elasticPolicy"]["rdzvHost"] == "digits-master-0"
    elsewhere = elastic | {"rdzvHost": "etcd", "rdzvBackend": "etcd"}
    job = made(PyTorchJobV1(), a_torch_job(masters=1, replicas=1, spec={"elasticPolicy": elsewhere}))
    assert job["spec"]["elasticPolicy"]["rdzvHost"] == "etcd"


def test_number_of_processes_is_written_as_the_string_that_is_expected() -> None:
    assert made(PyTorchJobV1(), a_torch_job(spec={"nprocPerNode": 4}))["spec"]["nprocPerNode"] == "4"
