"""What a cluster changes of a manifest is named, and nothing else is."""

from typing import Any

import pytest

from tests.manifests import a_torch_job, an_mpi_job
from voda.domain.errors import InvalidField
from voda.kinds.mpijob import V1, V2
from voda.manifests.kubernetes_warnings import kubernetes_warnings, refuse_elsewhere
from voda.manifests.parse import parse

GPU = {"resources": {"limits": {"nvidia.com/gpu": 1}}}
ELASTIC = {"voda.dev/min-replicas": "1", "voda.dev/max-replicas": "4"}
_LAUNCHER = "spec.mpiReplicaSpecs.Launcher.template.spec"
_WORKER = "spec.mpiReplicaSpecs.Worker.template.spec"
_TORCH = "spec.pytorchReplicaSpecs.Worker.template.spec"


def told(manifest: dict[str, Any], *, mpi: str = V2) -> dict[str, str]:
    """Return field -> message."""
    found = kubernetes_warnings(parse(manifest), {"MPIJob": mpi, "PyTorchJob": V1}, "nvidia.com/gpu")
    return {warning.field: warning.message for warning in found}


def mpi(**changes: Any) -> dict[str, Any]:
    return an_mpi_job(worker=changes.pop("worker", GPU), **changes)


def torch(**changes: Any) -> dict[str, Any]:
    return a_torch_job(container=GPU, **changes)


def with_pod(manifest: dict[str, Any], **pod: Any) -> dict[str, Any]:
    manifest["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["spec"] |= pod
    return manifest


def test_claims_are_warned_of_only_where_the_cluster_does_not_count_them() -> None:
    parsed = parse(with_pod(mpi(worker={}), resourceClaims=[{"name": "x", "resourceClaimTemplateName": "two"}]))
    served = {"MPIJob": V2}
    [warning] = kubernetes_warnings(parsed, served, "nvidia.com/gpu")
    assert warning.field == f"{_WORKER}.resourceClaims"
    assert warning.message.startswith("not counted: this voda sees no devices that are claimed")
    assert kubernetes_warnings(parsed, served, "nvidia.com/gpu", counts_claims=True) == ()


@pytest.mark.parametrize("manifest", [mpi(), torch(), torch(masters=1)])
def test_plain_manifest_is_honoured_as_a_whole(manifest: dict[str, Any]) -> None:
    assert told(manifest) == {}


def test_kind_without_an_operator_is_refused() -> None:
    sentence = "kind: PyTorchJob has no operator in this cluster, which runs MPIJob: install training-operator"
    with pytest.raises(InvalidField, match=sentence):
        kubernetes_warnings(parse(torch()), {"MPIJob": V2}, "nvidia.com/gpu")


def test_kind_that_the_settings_leave_out_is_refused() -> None:
    refuse_elsewhere(parse(torch()), (), ("PyTorchJob",))
    with pytest.raises(InvalidField, match=r"kind: expected one that this voda runs \(Job, MPIJob; .*got PyTorchJob"):
        refuse_elsewhere(parse(torch()), (), ("Job", "MPIJob"))


@pytest.mark.parametrize(
    ("container", "field"),
    [
        ({"image": None}, "image"),
        ({"name": ""}, "name"),
        ({"resources": {"requests": {"nvidia.com/gpu": 1}}}, "resources.limits[nvidia.com/gpu]"),
        ({"resources": {"limits": {"nvidia.com/gpu": 2}, "requests": {"nvidia.com/gpu": 1}}}, "resources.limits"),
    ],
)
def test_container_that_no_pod_can_be_made_of_is_refused(container: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidField) as refused:
        told(an_mpi_job(worker=container))
    assert refused.value.field.startswith(f"{_WORKER}.containers[0].{field}")


@pytest.mark.parametrize(
    ("template", "sentence"),
    [
        ({"metadata": "x"}, "metadata: expected a mapping, got 'x'"),
        ({"metadata": {"labels": {"a": 1}}}, r"metadata.labels\[a\]: expected a string, got 1: quote it"),
        ({"spec": {"tolerations": "x"}}, "spec.tolerations: expected a list, got 'x'"),
    ],
)
def test_template_that_cannot_be_added_to_is_refused(template: dict[str, Any], sentence: str) -> None:
    manifest = mpi()
    worker = manifest["spec"]["mpiReplicaSpecs"]["Worker"]["template"]
    worker |= {**template, "spec": worker["spec"] | template.get("spec", {})}
    with pytest.raises(InvalidField, match=sentence):
        told(manifest)


def test_torch_job_without_the_container_its_operator_looks_for_is_refused() -> None:
    with pytest.raises(InvalidField, match="expects a container named pytorch, got 'main'"):
        told(a_torch_job(container={"name": "main"}))


@pytest.mark.parametrize(
    ("pod", "field"),
    [
        ({"schedulerName": "volcano"}, "schedulerName"),
        ({"schedulerName": "voda"}, "schedulerName"),
        ({"nodeName": "gpu-1"}, "nodeName"),
        ({"topologySpreadConstraints": [{"maxSkew": 1}]}, "topologySpreadConstraints"),
        ({"affinity": {"podAntiAffinity": {"x": []}, "nodeAffinity": {"x": []}}}, "affinity.podAntiAffinity"),
        ({"resourceClaims": [{"name": "x"}]}, "resourceClaims"),
    ],
)
def test_what_plans_do_not_know_of_is_told_of_workers(pod: dict[str, Any], field: str) -> None:
    assert list(told(with_pod(mpi(), **pod))) == [f"{_WORKER}.{field}"]


def test_what_a_pod_can_have_anywhere_is_not_told() -> None:
    pod = {
        "volumes": [{"name": "x", "persistentVolumeClaim": {"claimName": "data"}}, {"name": "y", "ephemeral": {}}],
        "initContainers": [{"name": "x", "image": "x"}],
        "tolerations": [{"key": "x", "operator": "Exists"}],
        "nodeSelector": {"disk": "ssd"},
        "serviceAccountName": "x",
    }
    assert told(with_pod(mpi(), **pod)) == {}


@pytest.mark.parametrize(
    ("policy", "is_told"),
    [
        ({"schedulingPolicy": {"minAvailable": 2}}, True),
        ({"activeDeadlineSeconds": 60}, True),
        ({"managedBy": "kueue.x-k8s.io/multikueue"}, True),
        ({"managedBy": "kubeflow.org/mpi-operator"}, False),
        ({"suspend": True}, False),
        ({"backoffLimit": 3, "cleanPodPolicy": "Running", "ttlSecondsAfterFinished": 10}, False),
    ],
)
def test_run_policies_that_voda_changes_are_told(policy: dict[str, Any], is_told: bool) -> None:
    expected = [f"spec.runPolicy.{name}" for name in policy] if is_told else []
    assert list(told(mpi(spec={"runPolicy": policy}))) == expected


def test_job_that_its_operator_deletes_at_once_is_told() -> None:
    assert list(told(torch(spec={"runPolicy": {"ttlSecondsAfterFinished": 10}}))) == [
        "spec.runPolicy.ttlSecondsAfterFinished"
    ]
    assert told(torch(spec={"runPolicy": {"ttlSecondsAfterFinished": 3600}})) == {}


def test_kueues_label_and_what_ties_the_object_to_others_are_told() -> None:
    metadata = {"labels": {"kueue.x-k8s.io/queue-name": "q"}, "finalizers": ["a"], "ownerReferences": [{"uid": "u"}]}
    assert sorted(told(mpi(metadata=metadata))) == [
        "metadata.finalizers",
        "metadata.labels[kueue.x-k8s.io/queue-name]",
        "metadata.ownerReferences",
    ]


def test_launcher_that_is_a_worker_too_is_told_not_to_be_counted() -> None:
    assert "a plan has a node for it" in told(mpi(spec={"runLauncherAsWorker": True}))["spec.runLauncherAsWorker"]


def test_conversion_is_told_with_its_losses() -> None:
    assert sorted(told(mpi(spec={"runLauncherAsWorker": True}), mpi=V1)) == ["apiVersion", "spec.runLauncherAsWorker"]


def test_restart_policy_of_v1_workers_is_told_to_be_another_than_they_said() -> None:
    manifest = mpi(api_version=V1)
    assert told(manifest, mpi=V1) == {}
    manifest["spec"]["mpiReplicaSpecs"]["Worker"]["restartPolicy"] = "Never"
    assert list(told(manifest, mpi=V1)) == ["spec.mpiReplicaSpecs.Worker.restartPolicy"]


@pytest.mark.parametrize("container", [{}, {"resources": {"limits": {"amd.com/gpu": 2}}}])
def test_workers_that_ask_for_no_gpu_of_the_pool_are_told_that_they_get_none(container: Any) -> None:
    message = told(an_mpi_job(worker=container))[f"{_WORKER}.containers[0].resources.limits"]
    assert message == "asks for no nvidia.com/gpu: its replicas start without GPUs, and wait for none"


def test_cores_that_count_as_gpus_may_be_requested() -> None:
    manifest = an_mpi_job(worker={"resources": {"requests": {"cpu": "1"}}})
    assert kubernetes_warnings(parse(manifest), {"MPIJob": V2}, "cpu") == ()


# ---- elastic programs


def horovod(*words: str, mpi_version: str = V2, **changes: Any) -> list[str]:
    manifest = mpi(launcher={"command": list(words), "args": None}, **({"annotations": ELASTIC} | changes))
    found = kubernetes_warnings(parse(manifest), {"MPIJob": mpi_version}, "nvidia.com/gpu")
    return [warning.message.split(" to horovodrun")[0] for warning in found]


def test_elastic_horovod_is_told_of_slots_and_of_hosts_that_come_back() -> None:
    expected = ["add --slots-per-host 1", "add --blacklist-cooldown-range 10 60"]
    assert horovod("horovodrun", "python", "train.py") == expected
    assert horovod("sh", "-c", "horovodrun -np 2 python train.py") == expected


def test_slots_are_in_the_list_of_hosts_of_v1() -> None:
    assert horovod("horovodrun", "x", mpi_version=V1, api_version=V1) == ["add --blacklist-cooldown-range 10 60"]


def test_horovod_that_is_rigid_or_knows_all_that_is_left_in_peace() -> None:
    assert horovod("horovodrun", "x", annotations={}) == []
    assert horovod("horovodrun", "--slots-per-host", "1", "--blacklist-cooldown-range", "10", "60", "x") == []
    assert horovod("voda", "run", "--min-np", "1") == []


def test_voda_run_where_the_manifest_names_another_mpi_than_it_starts_programs_by_is_told() -> None:
    mpich: dict[str, Any] = {"spec": {"mpiImplementation": "MPICH"}}
    told = ["voda run starts programs by Open MPI's mpirun, not by that of MPICH"]
    assert horovod("voda", "run", "--min-np", "1", **mpich) == told
    assert horovod("mpirun", "train", **mpich) == []


def test_elastic_torch_job_without_a_policy_is_told_to_get_one() -> None:
    assert "for 1 to 4 replicas" in told(torch(annotations=ELASTIC))["spec.elasticPolicy"]


def test_elastic_torch_job_is_told_what_its_policy_lacks() -> None:
    elastic = {"minReplicas": 1, "maxReplicas": 4}
    assert told(torch(spec={"elasticPolicy": elastic})) == {}
    assert list(told(torch(masters=1, spec={"elasticPolicy": elastic}))) == ["spec.elasticPolicy.rdzvHost"]


def test_namespace_where_no_jobs_are_looked_for_is_refused() -> None:
    manifest = mpi()
    manifest["metadata"]["namespace"] = "elsewhere"
    refuse_elsewhere(parse(manifest), ())
    refuse_elsewhere(parse(manifest), ("elsewhere", "research"))
    with pytest.raises(InvalidField, match=r"where voda looks for jobs \(ml, research\), got 'elsewhere'"):
        refuse_elsewhere(parse(manifest), ("research", "ml"))
    del manifest["metadata"]["namespace"]
    with pytest.raises(InvalidField, match="got 'default'"):
        refuse_elsewhere(parse(manifest), ("research",))


def test_file_of_a_secret_is_refused_with_what_a_cluster_has_instead() -> None:
    with pytest.raises(InvalidField, match=r"keep it in a Secret, and name that by valueFrom.secretKeyRef"):
        told(mpi(annotations={"voda.dev/env-from-file.KEY": "/k"}))
