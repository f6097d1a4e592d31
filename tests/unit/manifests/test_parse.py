"""What job a manifest comes to, and which field a refusal names."""

import copy
from collections.abc import Sequence
from typing import Any

import pytest

from tests.manifests import a_torch_job, an_mpi_job
from voda.domain.errors import InvalidField
from voda.domain.job import MOST_REPLICAS, JobSpec, validated
from voda.kinds.registry import KINDS
from voda.manifests.parse import parse

_ENV = "spec.mpiReplicaSpecs.Launcher.template.spec.containers[0].env"
_WORKER = "spec.mpiReplicaSpecs.Worker.template.spec.containers[0]"


def spec_of(manifest: dict[str, Any]) -> JobSpec:
    return validated(parse(manifest).spec)


def sizes(manifest: dict[str, Any]) -> tuple[int, int, int]:
    spec = spec_of(manifest)
    return spec.min_replicas, spec.requested, spec.max_replicas


def limits(least: int, most: int) -> dict[str, str]:
    return {"voda.dev/min-replicas": str(least), "voda.dev/max-replicas": str(most)}


def test_job_when_only_its_replicas_are_said_is_rigid() -> None:
    manifest = an_mpi_job(replicas=3)
    spec = spec_of(manifest)
    assert (spec.job_id, spec.name, spec.namespace, spec.kind) == ("digits", "digits", "default", "MPIJob")
    assert (spec.pool, spec.user, spec.priority, spec.epochs) == ("default", "", 0, 0)
    assert sizes(manifest) == (3, 3, 3)
    assert not spec.is_elastic
    assert spec.manifest is manifest


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"replicas": None}, (1, 1, 1)),
        ({"env": {"NUM_PROC": "2", "MIN_NUM_PROC": "1", "MAX_NUM_PROC": "4"}}, (1, 2, 4)),
        ({"env": {"NP": "2", "MIN_NP": "1", "MAX_NP": "4"}}, (1, 2, 4)),
        ({"env": {"MIN_NP": "1", "MAX_NP": "4"}, "replicas": 3}, (1, 1, 4)),
        ({"env": {"NP": "5", "NUM_PROC": "6"}}, (6, 6, 6)),
        ({"env": {"MAX_NP": "4"}, "replicas": 2}, (2, 2, 4)),
        ({"env": {"MIN_NP": "1"}, "replicas": 3}, (1, 1, 3)),
        ({"env": {"MIN_NP": "5"}, "replicas": 3}, (5, 5, 5)),
        ({"env": {"MAX_NP": "2"}, "replicas": 3}, (2, 2, 2)),
        ({"env": {"BASE": "3", "MAX_NP": "$(BASE)"}}, (2, 2, 3)),
        ({"annotations": limits(1, 8), "replicas": 3}, (1, 3, 8)),
        ({"annotations": limits(1, 2), "replicas": 3}, (1, 2, 2)),
        ({"annotations": limits(4, 8), "env": {"NP": "1", "MIN_NP": "1", "MAX_NP": "2"}}, (4, 4, 8)),
        ({"annotations": {"voda.dev/max-replicas": "8"}, "env": {"MIN_NP": "3"}}, (3, 3, 8)),
    ],
)
def test_limits_of_an_mpi_job_when_several_are_said_follow_the_precedence(
    changes: dict[str, Any], expected: tuple[int, int, int]
) -> None:
    assert sizes(an_mpi_job(**changes)) == expected


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"spec": {"elasticPolicy": {"minReplicas": 1, "maxReplicas": 4}}}, (1, 2, 4)),
        ({"spec": {"elasticPolicy": {"minReplicas": 3, "maxReplicas": 4}}}, (3, 3, 4)),
        ({"spec": {"elasticPolicy": {"minReplicas": 3}}}, (3, 3, 3)),
        ({"spec": {"elasticPolicy": {}}}, (2, 2, 2)),
        ({"spec": {"elasticPolicy": {"minReplicas": 1, "maxReplicas": 4}}, "env": {"MAX_NP": "3"}}, (1, 2, 3)),
        ({"spec": {"elasticPolicy": {"minReplicas": 1, "maxReplicas": 4}}, "annotations": limits(2, 6)}, (2, 2, 6)),
        ({"masters": 1, "replicas": 3}, (4, 4, 4)),
        ({"masters": 1, "replicas": 0}, (1, 1, 1)),
        ({"masters": 1, "replicas": 3, "annotations": limits(1, 8)}, (1, 4, 8)),
    ],
)
def test_limits_of_a_torch_job_when_several_are_said_follow_the_precedence(
    changes: dict[str, Any], expected: tuple[int, int, int]
) -> None:
    assert sizes(a_torch_job(**changes)) == expected


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({"NP": "4", "MIN_NP": "2", "MAX_NP": "8"}, (1, 2, 4)),
        ({"MIN_NP": "3", "MAX_NP": "7"}, (2, 2, 3)),
        ({"MIN_NP": "3", "MAX_NP": "3"}, (2, 2, 2)),
        ({"MIN_NP": "1", "MAX_NP": "1"}, (1, 1, 1)),
    ],
)
def test_processes_when_a_worker_runs_two_are_turned_into_workers(
    env: dict[str, str], expected: tuple[int, int, int]
) -> None:
    assert sizes(an_mpi_job(env=env, spec={"slotsPerWorker": 2})) == expected


@pytest.mark.parametrize(
    ("changes", "gpus"),
    [
        ({}, 1),
        ({"worker": {"resources": {"limits": {"nvidia.com/gpu": 2}}}}, 2),
        ({"worker": {"resources": {"limits": {"amd.com/gpu": "4"}}}}, 4),
        ({"worker": {"resources": {"requests": {"gpu.intel.com/i915": 2}}}}, 2),
        ({"worker": {"resources": {"limits": {"cpu": 8, "nvidia.com/gpu": 0}}}}, 0),
        ({"worker": {"resources": {"limits": {"cpu": 8}}}, "spec": {"slotsPerWorker": 2}}, 2),
        ({"worker": {"resources": {"limits": {"nvidia.com/gpu": 2}}}, "spec": {"slotsPerWorker": 2}}, 2),
        ({"worker": {"resources": {"limits": {"nvidia.com/gpu": 1}}}, "spec": {"slotsPerWorker": 4}}, 1),
        ({"worker": {"resources": {"limits": {"elasticgpu.io/gpu-core": 50, "aliyun.com/gpu-mem": 8}}}}, 1),
    ],
)
def test_gpus_when_limits_and_slots_are_said_are_those_of_one_worker(changes: dict[str, Any], gpus: int) -> None:
    assert spec_of(an_mpi_job(**changes)).gpus_per_replica == gpus


def a_worker(limits: dict[str, Any], *, init: Sequence[dict[str, Any]] = ()) -> dict[str, Any]:
    manifest = an_mpi_job(worker={"resources": {"limits": limits}})
    pod = manifest["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["spec"]
    pod["containers"].append({"name": "logs", "resources": {"limits": {"cpu": "250m"}}})
    pod["initContainers"] = list(init)
    return manifest


@pytest.mark.parametrize(
    ("resource", "limits", "init", "gpus"),
    [
        ("huawei.com/Ascend910", {"huawei.com/Ascend910": 8}, [], 8),
        ("habana.ai/gaudi", {"habana.ai/gaudi": "2"}, [], 2),
        ("aws.amazon.com/neuron", {"aws.amazon.com/neuron": 16}, [], 16),
        ("google.com/tpu", {"google.com/tpu": 4, "nvidia.com/gpu": 1}, [], 4),
        ("cpu", {"cpu": "4"}, [], 5),
        ("cpu", {"cpu": "1500m"}, [], 2),
        ("cpu", {}, [], 1),
        ("nvidia.com/gpu", {"amd.com/gpu": 2}, [], 0),
        ("nvidia.com/gpu", {"cpu": 8}, [], 0),
        ("nvidia.com/gpu", {"nvidia.com/gpu": 1}, [{"resources": {"limits": {"nvidia.com/gpu": 2}}}], 2),
        (
            "nvidia.com/gpu",
            {"nvidia.com/gpu": 1},
            [{"resources": {"limits": {"nvidia.com/gpu": 2}}, "restartPolicy": "Always"}],
            3,
        ),
    ],
)
def test_gpus_on_kubernetes_are_what_the_pod_takes_of_the_resource_that_counts_them(
    resource: str, limits: dict[str, Any], init: list[dict[str, Any]], gpus: int
) -> None:
    assert parse(a_worker(limits, init=init), gpu_resource=resource).spec.gpus_per_replica == gpus


def test_gpus_of_a_master_alone_are_those_of_every_replica() -> None:
    manifest = a_torch_job()
    roles = manifest["spec"]["pytorchReplicaSpecs"]
    roles["Master"] = {**copy.deepcopy(roles["Worker"]), "replicas": 1}
    roles["Master"]["template"]["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": 8}}
    assert parse(manifest, gpu_resource="nvidia.com/gpu").spec.gpus_per_replica == 8


def test_gpus_of_a_launcher_are_noted_where_they_are_no_more_than_a_workers() -> None:
    launcher = {"resources": {"limits": {"nvidia.com/gpu": 2}}}
    worker = {"resources": {"limits": {"nvidia.com/gpu": 2}}}
    whole = an_mpi_job(launcher=launcher, worker=worker)
    assert parse(whole, gpu_resource="nvidia.com/gpu").spec.launcher_gpus == 2
    assert parse(whole, gpu_resource="amd.com/gpu").spec.launcher_gpus == 0
    assert parse(whole).spec.launcher_gpus == 0
    with pytest.raises(InvalidField, match=r"^spec.*Launcher.template.spec: asks for 2 nvidia.com/gpu, expected no"):
        parse(an_mpi_job(launcher=launcher), gpu_resource="nvidia.com/gpu")


@pytest.mark.parametrize("amount", ["half", "1.5", "-1", 1025])
def test_gpus_of_an_init_container_that_are_no_number_are_refused_by_their_path(amount: str | int) -> None:
    manifest = a_worker({}, init=[{"resources": {"limits": {"habana.ai/gaudi": amount}}}])
    with pytest.raises(InvalidField) as refused:
        parse(manifest, gpu_resource="habana.ai/gaudi")
    path = "spec.mpiReplicaSpecs.Worker.template.spec.initContainers[0].resources.limits[habana.ai/gaudi]"
    assert refused.value.field == path


@pytest.mark.parametrize(
    ("spec", "resources", "gpus"),
    [
        ({"nprocPerNode": "4"}, {}, 4),
        ({"nprocPerNode": "auto"}, {}, 1),
        ({"nprocPerNode": "auto"}, {"limits": {"nvidia.com/gpu": 8}}, 8),
        ({"elasticPolicy": {"nProcPerNode": 2}}, {}, 2),
    ],
)
def test_gpus_of_a_torch_job_when_not_limited_are_its_processes(
    spec: dict[str, Any], resources: dict[str, Any], gpus: int
) -> None:
    assert spec_of(a_torch_job(spec=spec, container={"resources": resources})).gpus_per_replica == gpus


def test_environment_when_it_names_epochs_priority_and_job_is_heeded() -> None:
    env = {"EPOCHS": "150", "JOB_PRIORITY": "-3", "JOB_NAME": "keras-mnist-20210714-035048"}
    spec = spec_of(an_mpi_job(env=env))
    assert (spec.epochs, spec.priority, spec.category) == (150, -3, "keras-mnist")
    assert (spec.job_id, spec.name) == ("digits", "digits")


def test_annotations_when_the_environment_says_otherwise_win() -> None:
    annotations = {"voda.dev/epochs": "3", "voda.dev/priority": "+7", "voda.dev/pool": "v100"}
    env = {"EPOCHS": "150", "JOB_PRIORITY": "1"}
    metadata = {"namespace": "team-a"}
    spec = spec_of(an_mpi_job(env=env, annotations=annotations, metadata=metadata))
    assert (spec.epochs, spec.priority, spec.pool, spec.namespace) == (3, 7, "v100", "team-a")


def test_category_when_no_job_name_is_given_is_the_name_without_its_running_number() -> None:
    assert spec_of(an_mpi_job(metadata={"name": "mnist-20210714-035048"})).category == "mnist"


@pytest.mark.parametrize("role", ["Worker", "Master"])
def test_pool_when_a_node_selector_names_an_accelerator_is_that(role: str) -> None:
    manifest = a_torch_job(masters=1, replicas=1 if role == "Worker" else 0)
    pod = manifest["spec"]["pytorchReplicaSpecs"][role]["template"]["spec"]
    pod["nodeSelector"] = {"vodascheduler/accelerator": "nvidia-tesla-v100"}
    assert spec_of(manifest).pool == "nvidia-tesla-v100"


def test_pool_when_none_is_named_is_the_default_given() -> None:
    assert parse(an_mpi_job(), default_pool="a100").spec.pool == "a100"
    annotated = an_mpi_job(annotations={"vodascheduler/accelerator": "k80"})
    assert parse(annotated, default_pool="a100").spec.pool == "k80"


@pytest.mark.parametrize(
    ("changes", "field", "sentence"),
    [
        ({"metadata": {"name": "Digits"}}, "metadata.name", "beginning with a letter"),
        ({"metadata": {"name": "../../etc"}}, "metadata.name", "a-z"),
        ({"metadata": {"name": "dígits"}}, "metadata.name", "a-z"),
        ({"metadata": {"name": "digits\n"}}, "metadata.name", "a-z"),
        ({"metadata": {"name": "1digits"}}, "metadata.name", "beginning with a letter"),
        ({"metadata": {"name": 7}}, "metadata.name", "quote it"),
        ({"metadata": {"name": None}}, "metadata.name", "give the job a name"),
        ({"metadata": {"name": None, "generateName": "d-"}}, "metadata.generateName", "give metadata.name"),
        ({"metadata": {"name": "d" * 55}, "replicas": 1}, "metadata.name", "up to 54 characters"),
        ({"metadata": {"name": "d" * 54}, "annotations": limits(1, 11)}, "metadata.name", "up to 53 characters"),
        ({"metadata": {"namespace": "a.b"}}, "metadata.namespace", "a-z"),
        ({"annotations": {"voda.dev/min-replicas": 2}}, "metadata.annotations[voda.dev/min-replicas]", "quote it"),
        ({"annotations": limits(3, 2)}, "metadata.annotations[voda.dev/max-replicas]", "no less than 3"),
        ({"annotations": limits(0, 2)}, "metadata.annotations[voda.dev/min-replicas]", "expected 1 to"),
        (
            {"annotations": limits(1, MOST_REPLICAS + 1)},
            "metadata.annotations[voda.dev/max-replicas]",
            f"expected 1 to {MOST_REPLICAS}",
        ),
        ({"annotations": {"voda.dev/epochs": "ten"}}, "metadata.annotations[voda.dev/epochs]", "whole number"),
        ({"annotations": {"voda.dev/epochs": "-1"}}, "metadata.annotations[voda.dev/epochs]", "expected 0 to"),
        ({"annotations": {"voda.dev/epochs": "9" * 5000}}, "metadata.annotations[voda.dev/epochs]", "whole number"),
        ({"annotations": {"voda.dev/epochs": "٣"}}, "metadata.annotations[voda.dev/epochs]", "whole number"),
        ({"annotations": {"voda.dev/priority": "2000000000"}}, "metadata.annotations[voda.dev/priority]", "1000000000"),
        ({"annotations": {"voda.dev/pool": "a.b"}}, "metadata.annotations[voda.dev/pool]", "letters, digits"),
        ({"annotations": "none"}, "metadata.annotations", "expected a mapping, got 'none'"),
        ({"env": {"MIN_NP": "4", "MAX_NP": "2"}}, f"{_ENV}[1].value", "no less than 4"),
        ({"env": {"NP": "9", "MIN_NP": "1", "MAX_NP": "2"}}, f"{_ENV}[0].value", "got 9"),
        ({"env": {"MAX_NP": ""}}, f"{_ENV}[0].value", "whole number"),
        ({"env": {"MAX_NP": 8}}, f"{_ENV}[0].value", "expected a string, got 8: quote it"),
        ({"env": {"X": True}}, f"{_ENV}[0].value", "expected a string, got true: quote it"),
        ({"env": {"A=B": "1"}}, f"{_ENV}[0].name", "without '='"),
        ({"env": {"JOB_NAME": "a\x1b[2J"}}, f"{_ENV}[0].value", "printable"),
        ({"replicas": 0}, "spec.mpiReplicaSpecs.Worker.replicas", "expected 1 to"),
        ({"replicas": "2"}, "spec.mpiReplicaSpecs.Worker.replicas", "write it without quotes"),
        ({"replicas": MOST_REPLICAS + 1}, "spec.mpiReplicaSpecs.Worker.replicas", "expected 1 to"),
        ({"spec": {"slotsPerWorker": 0}}, "spec.slotsPerWorker", "expected 1 to"),
        ({"spec": {"mpiImplementation": "LAM"}}, "spec.mpiImplementation", "OpenMPI, Intel, MPICH"),
        ({"spec": {"runPolicy": {"backoffLimit": -1}}}, "spec.runPolicy.backoffLimit", "expected 0 to"),
        ({"spec": {"runPolicy": {"cleanPodPolicy": "Some"}}}, "spec.runPolicy.cleanPodPolicy", "None, Running, All"),
        ({"spec": {"mpiReplicaSpecs": {}}}, "spec.mpiReplicaSpecs.Launcher", "is missing"),
        ({"worker": {"resources": {"limits": {"nvidia.com/gpu": "two"}}}},
         f"{_WORKER}.resources.limits[nvidia.com/gpu]", "whole number of GPUs"),
        ({"worker": {"resources": {"limits": {"nvidia.com/gpu": 1.5}}}},
         f"{_WORKER}.resources.limits[nvidia.com/gpu]", "whole number of GPUs"),
        ({"worker": {"resources": {"limits": {"nvidia.com/gpu": 1025}}}},
         f"{_WORKER}.resources.limits[nvidia.com/gpu]", "0 to 1024"),
        ({"worker": {"args": ["--epochs", 3]}}, f"{_WORKER}.args[1]", "expected a string, got 3: quote it"),
        ({"worker": {"command": "train"}}, f"{_WORKER}.command", "expected a list, got 'train'"),
    ],
)  # fmt: skip
def test_manifest_when_a_field_is_wrong_is_refused_with_its_path(
    changes: dict[str, Any], field: str, sentence: str
) -> None:
    with pytest.raises(InvalidField) as refusal:
        parse(an_mpi_job(**changes))
    assert refusal.value.field == field
    assert str(refusal.value).startswith(field)
    assert sentence in str(refusal.value)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"replicas": 0}, "spec.pytorchReplicaSpecs.Worker"),
        ({"replicas": 0, "masters": 1, "annotations": limits(1, 2)}, "spec.pytorchReplicaSpecs.Worker"),
        ({"masters": 2}, "spec.pytorchReplicaSpecs.Master.replicas"),
        ({"spec": {"nprocPerNode": "many"}}, "spec.nprocPerNode"),
        ({"spec": {"nprocPerNode": "²"}}, "spec.nprocPerNode"),
        ({"spec": {"elasticPolicy": {"minReplicas": 3, "maxReplicas": 2}}}, "spec.elasticPolicy.maxReplicas"),
        ({"spec": {"elasticPolicy": {"minReplicas": 0}}}, "spec.elasticPolicy.minReplicas"),
        ({"spec": {"elasticPolicy": {"rdzvBackend": "zk"}}}, "spec.elasticPolicy.rdzvBackend"),
        ({"spec": {"elasticPolicy": {"rdzvPort": 99_999}}}, "spec.elasticPolicy.rdzvPort"),
    ],
)
def test_torch_job_when_a_field_is_wrong_is_refused_with_its_path(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidField) as refusal:
        parse(a_torch_job(**changes))
    assert refusal.value.field == field


@pytest.mark.parametrize(
    ("changes", "field", "sentence"),
    [
        ({"kind": "CronJob"}, "kind", f"expected one of {', '.join(KINDS)}, got 'CronJob'"),
        ({"kind": None}, "kind", "got none"),
        ({"kind": ["MPIJob"]}, "kind", "expected one of"),
        ({"apiVersion": "kubeflow.org/v2"}, "apiVersion", "expected kubeflow.org/v2beta1 or kubeflow.org/v1"),
        ({"apiVersion": {}}, "apiVersion", "expected kubeflow.org/v2beta1"),
        ({"kind": "PyTorchJob"}, "apiVersion", "expected kubeflow.org/v1, got 'kubeflow.org/v2beta1'"),
        ({"metadata": None}, "metadata", "expected a mapping, got nothing"),
        ({"spec": []}, "spec", "expected a mapping, got a list"),
    ],
)
def test_manifest_when_it_is_something_else_is_refused(changes: dict[str, Any], field: str, sentence: str) -> None:
    with pytest.raises(InvalidField, match="expected") as refusal:
        parse(an_mpi_job() | changes)
    assert refusal.value.field == field
    assert sentence in str(refusal.value)


def test_launcher_when_it_has_no_container_or_two_copies_is_refused() -> None:
    manifest = an_mpi_job()
    launcher = manifest["spec"]["mpiReplicaSpecs"]["Launcher"]
    launcher["replicas"] = 2
    with pytest.raises(InvalidField, match=r"Launcher\.replicas: expected 1, got 2"):
        parse(manifest)
    launcher["template"]["spec"]["containers"] = []
    with pytest.raises(InvalidField, match="containers: expected at least one, got none"):
        parse(manifest)


def test_restart_policy_when_the_operator_of_that_version_refuses_it_is_refused() -> None:
    def with_policy(version: str) -> dict[str, Any]:
        manifest = an_mpi_job(api_version=version)
        manifest["spec"]["mpiReplicaSpecs"]["Worker"]["restartPolicy"] = "ExitCode"
        return manifest

    parse(with_policy("kubeflow.org/v1"))
    with pytest.raises(InvalidField, match=r"Worker\.restartPolicy: expected one of Never, OnFailure"):
        parse(with_policy("kubeflow.org/v2beta1"))


def test_fields_when_voda_does_not_know_them_are_kept() -> None:
    manifest = an_mpi_job(spec={"brandNew": {"x": 1}}, worker={"stdin": True})
    spec = spec_of(manifest)
    assert spec.manifest is not None
    assert spec.manifest["spec"]["brandNew"] == {"x": 1}


def test_nulls_when_optional_fields_hold_them_are_as_if_absent() -> None:
    empty = {"command": ["mpirun"], "args": None, "env": None, "workingDir": None, "resources": None}
    spec = {"slotsPerWorker": None, "runPolicy": None}
    manifest = an_mpi_job(launcher=empty, worker=empty, spec=spec, metadata={"labels": None, "annotations": None})
    assert sizes(manifest) == (2, 2, 2)


def test_kind_when_it_is_almost_one_is_told_which() -> None:
    with pytest.raises(InvalidField, match=r"got 'PytorchJob': did you mean PyTorchJob\?$"):
        parse({**a_torch_job(), "kind": "PytorchJob"})


def test_kind_when_it_is_another_one_is_not_told_as_mistyped() -> None:
    with pytest.raises(InvalidField, match=r"got 'TFJob'$"):
        parse({**a_torch_job(), "kind": "TFJob"})


POWERS = {"voda.dev/sizes": "1,2,4,8"}


@pytest.mark.parametrize("manifest", [an_mpi_job, a_torch_job])
@pytest.mark.parametrize(
    ("annotations", "expected", "shown"),
    [
        (POWERS, (1, 2, 8), "1,2,4,8"),
        ({**POWERS, "voda.dev/max-replicas": "4"}, (1, 2, 4), "1,2,4,8"),
        ({**POWERS, "voda.dev/min-replicas": "4"}, (4, 4, 8), "1,2,4,8"),
        ({"voda.dev/sizes": "3-5"}, (3, 3, 5), "None"),
    ],
)
def test_job_when_an_annotation_says_its_sizes_has_these(
    manifest: Any, annotations: dict[str, str], expected: tuple[int, int, int], shown: str
) -> None:
    document = manifest(replicas=3 if "3-5" not in annotations["voda.dev/sizes"] else 1, annotations=annotations)
    assert sizes(document) == expected
    assert str(spec_of(document).sizes) == shown


@pytest.mark.parametrize(
    ("annotations", "sentence"),
    [
        ({"voda.dev/sizes": ""}, "sizes]: expected 1 to 4,096, such as 2, 1-4, 2-16:2 or 1,2,4,8, got ''"),
        ({"voda.dev/sizes": "2-9:4"}, "sizes]: steps of 4 from 2 do not reach 9: expected 2-6:4 or 2-10:4, got 2-9:4"),
        (
            {**POWERS, "voda.dev/min-replicas": "3"},
            "min-replicas]: expected one of the sizes in metadata.annotations[voda.dev/sizes], 1,2,4,8, got 3",
        ),
        (
            {**POWERS, "voda.dev/min-replicas": "4", "voda.dev/max-replicas": "2"},
            "max-replicas]: expected no less than 4, which metadata.annotations[voda.dev/min-replicas] asks for at"
            " least, got 2",
        ),
    ],
)
def test_job_when_its_sizes_are_none_is_refused_in_one_sentence(annotations: dict[str, str], sentence: str) -> None:
    with pytest.raises(InvalidField) as refused:
        parse(an_mpi_job(replicas=1, annotations=annotations))
    assert str(refused.value) == f"metadata.annotations[voda.dev/{sentence}"
