"""What is not honoured is named, and nothing else is."""

from typing import Any

import pytest

from tests.manifests import a_torch_job, an_mpi_job
from voda.domain.errors import InvalidField
from voda.manifests import replicas
from voda.manifests.ignored_fields import ANNOTATIONS
from voda.manifests.kubernetes_warnings import kubernetes_warnings
from voda.manifests.local_warnings import local_warnings, refuse_unrunnable
from voda.manifests.parse import DEVICE_CLASS, parse
from voda.programs.program_manifest import INTERPRETER, KEPT_SCRIPT, LAUNCHER, NICE, SCRIPT, WORKING_DIR

_LAUNCHER = "spec.mpiReplicaSpecs.Launcher.template.spec"
_WORKER = "spec.mpiReplicaSpecs.Worker.template.spec"


def unread(manifest: dict[str, Any]) -> list[str]:
    return [warning.field for warning in parse(manifest).warnings]


def unmet(manifest: dict[str, Any]) -> list[str]:
    return [warning.field for warning in local_warnings(parse(manifest))]


def without_images(manifest: dict[str, Any]) -> dict[str, Any]:
    for specs in ("mpiReplicaSpecs", "pytorchReplicaSpecs"):
        for role in manifest["spec"].get(specs, {}).values():
            for container in role["template"]["spec"]["containers"]:
                container.pop("image", None)
    return manifest


def test_images_when_named_are_told_for_each_role() -> None:
    assert unmet(an_mpi_job()) == [f"{_LAUNCHER}.containers[0].image", f"{_WORKER}.containers[0].image"]
    assert unmet(without_images(an_mpi_job())) == []


@pytest.mark.parametrize(
    ("pod", "field"),
    [
        ({"volumes": [{"name": "x", "emptyDir": {}}]}, "volumes"),
        ({"initContainers": [{"name": "x"}]}, "initContainers"),
        ({"affinity": {"nodeAffinity": {}}}, "affinity"),
        ({"tolerations": [{"key": "x"}]}, "tolerations"),
        ({"nodeSelector": {"disk": "ssd", "vodascheduler/accelerator": "v100"}}, "nodeSelector[disk]"),
        ({"securityContext": {"runAsUser": 0}}, "securityContext"),
        ({"imagePullSecrets": [{"name": "x"}]}, "imagePullSecrets"),
        ({"serviceAccountName": "x"}, "serviceAccountName"),
    ],
)
def test_pod_fields_when_a_machine_has_no_such_thing_are_told(pod: dict[str, Any], field: str) -> None:
    manifest = without_images(an_mpi_job())
    manifest["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["spec"] |= pod
    assert unmet(manifest) == [f"{_WORKER}.{field}"]


@pytest.mark.parametrize(
    ("container", "fields"),
    [
        ({"volumeMounts": [{"name": "x"}]}, ["volumeMounts"]),
        ({"envFrom": [{"secretRef": {"name": "x"}}]}, ["envFrom"]),
        ({"ports": [{"containerPort": 1}], "livenessProbe": {"exec": {}}}, ["ports", "livenessProbe"]),
        ({"securityContext": {"privileged": True}}, ["securityContext"]),
        ({"resources": {"limits": {"cpu": 2, "nvidia.com/gpu": 0}}}, ["resources.limits[cpu]"]),
        ({"resources": {"requests": {"memory": "2Gi"}}}, ["resources.requests[memory]"]),
        ({"env": [{"name": "A", "valueFrom": {"secretKeyRef": {}}}]}, ["env[0].valueFrom"]),
        ({"env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]}, []),
        ({"volumeMounts": [], "ports": None, "securityContext": {}}, []),
    ],
)
def test_container_fields_when_a_process_has_no_such_thing_are_told(
    container: dict[str, Any], fields: list[str]
) -> None:
    manifest = without_images(an_mpi_job(launcher=container))
    assert unmet(manifest) == [f"{_LAUNCHER}.containers[0].{field}" for field in fields]


def test_sidecars_when_there_are_some_are_told_as_wholes() -> None:
    manifest = without_images(a_torch_job())
    pod = manifest["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]
    pod["containers"].insert(0, {"name": "logs", "image": "x"})
    assert unmet(manifest) == ["spec.pytorchReplicaSpecs.Worker.template.spec.containers[0]"]


@pytest.mark.parametrize(
    ("command", "is_told"), [(["/usr/sbin/sshd", "-De"], False), (["sleep", "365d"], False), (["train"], True)]
)
def test_worker_command_when_it_only_waits_for_the_launcher_is_not_told(command: list[str], is_told: bool) -> None:
    manifest = without_images(an_mpi_job(worker={"command": command}))
    assert unmet(manifest) == ([f"{_WORKER}.containers[0].command"] if is_told else [])


def test_spec_fields_when_a_machine_has_no_such_thing_are_told() -> None:
    policy = {"suspend": True, "schedulingPolicy": {"queue": "x"}, "cleanPodPolicy": "All"}
    manifest = without_images(an_mpi_job(spec={"runPolicy": policy, "runLauncherAsWorker": True}))
    assert unmet(manifest) == ["spec.runLauncherAsWorker", "spec.runPolicy.suspend", "spec.runPolicy.schedulingPolicy"]


def test_device_class_when_a_machine_hands_out_its_own_gpus_is_told() -> None:
    manifest = without_images(an_mpi_job(annotations={"voda.dev/device-class": "gpu.example.com"}))
    assert unmet(manifest) == ["metadata.annotations[voda.dev/device-class]"]
    assert unread(manifest) == []


def test_ways_to_meet_when_a_machine_has_its_own_are_told() -> None:
    assert unmet(without_images(an_mpi_job(spec={"mpiImplementation": "OpenMPI"}))) == []
    assert unmet(without_images(an_mpi_job(spec={"mpiImplementation": "Intel"}))) == ["spec.mpiImplementation"]
    torch = a_torch_job(spec={"elasticPolicy": {"standalone": True, "rdzvBackend": "c10d"}})
    assert unmet(without_images(torch)) == ["spec.elasticPolicy.standalone"]


@pytest.mark.parametrize(
    ("where", "name"),
    [("annotations", "voda.dev/queue"), ("labels", "voda.dev/queue"), ("labels", "kueue.x-k8s.io/queue-name")],
)
def test_queue_when_a_manifest_names_one_is_answered_with_a_warning(where: str, name: str) -> None:
    (warning,) = parse(an_mpi_job(metadata={where: {name: "lab"}})).warnings
    assert warning.field == f"metadata.{where}[{name}]"
    assert warning.message.startswith("queue 'lab' is not used by voda; ")


def test_queue_of_a_scheduling_policy_is_answered_with_a_warning() -> None:
    (warning,) = parse(an_mpi_job(spec={"runPolicy": {"schedulingPolicy": {"queue": "lab"}}})).warnings
    assert warning.field == "spec.runPolicy.schedulingPolicy.queue"
    assert warning.message.startswith("queue 'lab' is not used by voda; ")


def test_priority_classes_when_named_are_told_on_any_cluster() -> None:
    policy = {"schedulingPolicy": {"priorityClass": "high"}}
    labels = {"kueue.x-k8s.io/priority-class": "high"}
    manifest = an_mpi_job(spec={"runPolicy": policy}, metadata={"labels": labels})
    manifest["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["priorityClassName"] = "high"
    assert unread(manifest) == [
        "metadata.labels[kueue.x-k8s.io/priority-class]",
        "spec.runPolicy.schedulingPolicy.priorityClass",
        f"{_LAUNCHER}.priorityClassName",
    ]


def test_annotation_when_mistyped_is_told_with_the_right_one() -> None:
    (warning,) = parse(an_mpi_job(annotations={"voda.dev/min-replica": "1", "other/x": "y"})).warnings
    assert warning.field == "metadata.annotations[voda.dev/min-replica]"
    assert "did you mean voda.dev/min-replicas?" in warning.message


def test_annotation_that_is_like_none_is_told_with_all() -> None:
    (warning,) = parse(an_mpi_job(annotations={"voda.dev/team": "1"})).warnings
    assert "did you mean" not in warning.message
    assert "voda reads voda.dev/min-replicas, " in warning.message


def test_parts_of_gpus_when_limited_are_told_on_every_cluster_and_a_launchers_gpus_on_one_machine() -> None:
    worker = {"resources": {"limits": {"elasticgpu.io/gpu-core": 50}}}
    launcher = {"resources": {"limits": {"nvidia.com/gpu": 1}}}
    manifest = an_mpi_job(worker=worker, launcher=launcher)
    assert unread(manifest) == [f"{_WORKER}.containers[0].resources.limits[elasticgpu.io/gpu-core]"]
    assert f"{_LAUNCHER}.containers[0].resources.limits[nvidia.com/gpu]" in unmet(manifest)


def test_limits_when_they_lie_in_a_config_map_are_told() -> None:
    env = [{"name": "MAX_NP", "valueFrom": {"configMapKeyRef": {"name": "x", "key": "y"}}}]
    assert unread(an_mpi_job(launcher={"env": env})) == [f"{_LAUNCHER}.containers[0].env[0].valueFrom"]


def test_torch_container_when_not_named_pytorch_is_told_and_the_first_is_taken() -> None:
    manifest = a_torch_job(container={"name": "main"}, spec={"elasticPolicy": {"metrics": [{"type": "Resource"}]}})
    assert unread(manifest) == [
        "spec.pytorchReplicaSpecs.Worker.template.spec.containers",
        "spec.elasticPolicy.metrics",
    ]


def test_command_when_left_to_the_image_cannot_run_here() -> None:
    refuse_unrunnable(parse(an_mpi_job()))
    with pytest.raises(InvalidField) as refusal:
        refuse_unrunnable(parse(an_mpi_job(launcher={"command": None, "args": None})))
    assert refusal.value.field == f"{_LAUNCHER}.containers[0].command"
    with pytest.raises(InvalidField):
        refuse_unrunnable(parse(a_torch_job(masters=1, container={"command": [], "args": []})))


def test_annotations_when_voda_wrote_them_onto_an_object_are_no_unknown_ones() -> None:
    names = ("job-id", "state", "worker-failures", "counted-failures", "recorded-bounds")
    written = {f"voda.dev/{name}": "1" for name in names}
    assert parse(an_mpi_job(metadata={"annotations": written})).warnings == ()


def test_annotations_that_voda_reads_are_no_unknown_ones() -> None:
    read = {annotation for annotation, _ in replicas._SOURCES.values() if annotation}
    assert read | {WORKING_DIR, LAUNCHER, INTERPRETER, DEVICE_CLASS, SCRIPT, KEPT_SCRIPT, NICE} == {*ANNOTATIONS}


@pytest.mark.parametrize(
    ("path", "written", "meant"),
    [
        ("spec", "slotPerWorker", "slotsPerWorker"),
        ("spec", "runpolicy", "runPolicy"),
        ("metadata", "lables", "labels"),
        ("spec.mpiReplicaSpecs.Worker", "replica", "replicas"),
        ("spec.mpiReplicaSpecs.Worker.template.spec", "nodeSelectors", "nodeSelector"),
        ("spec.mpiReplicaSpecs.Launcher.template.spec.containers[0]", "enviroment", ""),
        ("spec.mpiReplicaSpecs.Launcher.template.spec.containers[0]", "volumMounts", "volumeMounts"),
        ("spec.mpiReplicaSpecs.Launcher.template.spec.containers[0]", "workingDirectory", ""),
        ("spec.mpiReplicaSpecs.Launcher.template.spec.containers[0]", "vendorExtension", ""),
    ],
)
def test_fields_when_unknown_and_like_a_known_one_are_told(path: str, written: str, meant: str) -> None:
    manifest = an_mpi_job()
    manifest["spec"]["mpiReplicaSpecs"]["Worker"].pop("replicas", None)
    place: Any = manifest
    for name in path.replace("[0]", ".0").split("."):
        place = place[int(name)] if name == "0" else place[name]
    place[written] = 1
    expected = [(f"{path}.{written}", f"unknown field: did you mean {meant}?")] if meant else []
    assert [(one.field, one.message) for one in parse(manifest).warnings] == expected


def test_fields_when_very_many_are_unknown_are_told_of_a_few() -> None:
    manifest = an_mpi_job()
    manifest["spec"] |= {f"slotsPerWorker{number}": 1 for number in range(20_000)}
    assert 0 < len(parse(manifest).warnings) <= 20


@pytest.mark.parametrize(
    ("path", "name", "written"),
    [("", "spec", "spce"), ("", "metadata", "metdata"), ("spec", "mpiReplicaSpecs", "mpiReplicaSpec")],
)
def test_field_when_missing_and_another_is_like_it_is_told(path: str, name: str, written: str) -> None:
    manifest = an_mpi_job()
    place = manifest[path] if path else manifest
    place[written] = place.pop(name)
    with pytest.raises(InvalidField, match=f"{name} is missing, and {written} is unknown: did you mean {name}"):
        parse(manifest)


@pytest.mark.parametrize(
    ("name", "path", "message"),
    [
        ("A-B", "/k", "expected the name of a variable"),
        ("", "/k", "expected the name of a variable"),
        ("A", "k", "expected an absolute path of a file with mode 0600, got 'k'"),
        ("A", "~/k", "expected an absolute path"),
    ],
)
def test_file_of_a_secret_that_cannot_be_read_here_is_refused(name: str, path: str, message: str) -> None:
    manifest = without_images(an_mpi_job(annotations={f"voda.dev/env-from-file.{name}": path}))
    with pytest.raises(InvalidField, match=message) as refused:
        refuse_unrunnable(parse(manifest))
    assert refused.value.field == f"metadata.annotations[voda.dev/env-from-file.{name}]"


def test_limits_that_the_kernel_keeps_are_not_told_and_requests_are() -> None:
    amounts = {"memory": "1Gi", "cpu": 1, "ephemeral-storage": "1Gi"}
    worker = {"resources": {"limits": amounts, "requests": amounts}}
    manifest = without_images(an_mpi_job(worker=worker))
    path = f"{_WORKER}.containers[0].resources"
    requests = [f"{path}.requests[{name}]" for name in amounts]
    assert unmet(manifest) == [*(f"{path}.limits[{name}]" for name in amounts), *requests]
    kept = [warning.field for warning in local_warnings(parse(manifest), {"memory", "cpu", "pids"})]
    assert kept == [f"{path}.limits[ephemeral-storage]", *requests]


def test_file_of_a_secret_is_honoured_here() -> None:
    manifest = without_images(an_mpi_job(annotations={"voda.dev/env-from-file.KEY": "/k"}))
    refuse_unrunnable(parse(manifest))
    assert unmet(manifest) == []
    assert unread(manifest) == []


@pytest.mark.parametrize(
    ("words", "options"),
    [
        (["torchrun", "--nnodes=3", "train.py"], ["--nnodes=3"]),
        (["torchrun", "--nnodes", "1:3", "train.py"], ["--nnodes 1:3"]),
        (["torchrun", "--standalone", "--nproc-per-node=1", "train.py"], ["--standalone"]),
        (["sh", "-c", "exec torchrun --standalone --nnodes=1 train.py"], ["--standalone", "--nnodes=1"]),
        (["python", "-m", "torch.distributed.run", "--node_rank=0", "train.py"], ["--node_rank"]),
        (["torchrun", "--nnodes=1:6", "--rdzv-backend=c10d", "train.py"], []),
        (["torchrun", "--nnodes=$SIZE", "train.py"], []),
        (["torchrun", "train.py", "--standalone", "--nnodes=3"], []),
        (["python", "train.py", "--nnodes=3"], []),
    ],
)
def test_torchrun_options_that_suit_no_other_size_are_told(words: list[str], options: list[str]) -> None:
    elastic = {"elasticPolicy": {"minReplicas": 1, "maxReplicas": 6}}
    manifest = a_torch_job(spec=elastic, container={"command": words, "args": []})
    told = [warning.message for warning in parse(manifest).warnings]
    assert [f"torchrun's {option} goes" for option in options] == [text.partition(" before")[0] for text in told]


def test_torchrun_options_that_suit_the_only_size_are_not_told() -> None:
    manifest = a_torch_job(replicas=2, container={"command": ["torchrun", "--nnodes=2", "train.py"], "args": []})
    assert parse(manifest).warnings == ()


@pytest.mark.parametrize(
    ("command", "args", "is_told"),
    [
        (["accelerate", "launch", "--multi_gpu", "--num_processes", "2", "train.py"], [], True),
        (["env", "A=1", "/opt/bin/accelerate"], ["launch", "train.py"], True),
        (["python", "-m", "accelerate.commands.launch", "train.py"], [], True),
        (["sh", "-c", "cd /data && exec accelerate launch train.py"], [], True),
        (["accelerate", "launch", "--rdzv_backend", "c10d", "train.py"], [], False),
        (["sh", "-c", "accelerate launch --rdzv_backend=c10d train.py"], [], False),
        (["torchrun", "train.py", "accelerate"], [], False),
        ([], [], False),
    ],
)
@pytest.mark.parametrize("most", [2, 4])
def test_accelerate_when_its_agents_hear_of_no_resize_is_told_what_it_needs(
    command: list[str], args: list[str], is_told: bool, most: int
) -> None:
    bounds = {"voda.dev/min-replicas": "2", "voda.dev/max-replicas": str(most)}
    manifest = a_torch_job(container={"command": command, "args": args}, annotations=bounds)
    parsed = parse(manifest)
    warnings = kubernetes_warnings(parsed, {"PyTorchJob": "kubeflow.org/v1"}, "nvidia.com/gpu")
    told = [warning.message for warning in warnings if "--rdzv_backend c10d" in warning.message]
    assert bool(told) == (is_told and most > 2)
    # On one machine all agents are started for the size that there is.
    assert parsed.warnings == ()
