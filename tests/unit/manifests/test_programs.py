"""What replicas run, with the operators' defaults."""

from typing import Any

import pytest

from tests.manifests import a_torch_job, an_mpi_job
from voda.kinds.pod_template import TorchElasticPolicy
from voda.kinds.pytorchjob import PyTorchJob
from voda.manifests.conversion import typed_manifest
from voda.manifests.programs import (
    ReplicaProgram,
    expand_program,
    failure_policy,
    is_plain,
    program,
    working_dir_annotation,
)


def elastic_policy(manifest: dict[str, Any]) -> TorchElasticPolicy | None:
    job = typed_manifest(manifest)
    assert isinstance(job, PyTorchJob)
    return job.elastic_policy()


def test_program_of_a_launcher_when_read_is_its_command_then_its_args() -> None:
    manifest = an_mpi_job(env={"NP": "2", "LR": "0.1"}, launcher={"workingDir": "/code"})
    manifest["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["terminationGracePeriodSeconds"] = 90
    assert program(typed_manifest(manifest), "launcher") == ReplicaProgram(
        role="launcher",
        argv=("mpirun", "train.py"),
        env=(("NP", "2"), ("LR", "0.1")),
        working_dir="/code",
        grace_s=90.0,
    )


def test_program_when_the_image_brings_the_command_is_empty() -> None:
    assert program(typed_manifest(an_mpi_job()), "worker") == ReplicaProgram(role="worker", argv=())


def test_program_when_the_kind_has_no_such_role_is_none() -> None:
    assert program(typed_manifest(an_mpi_job()), "master") is None
    assert program(typed_manifest(a_torch_job()), "master") is None
    assert program(typed_manifest(a_torch_job()), "launcher") is None
    assert program(typed_manifest(a_torch_job(masters=1)), "master") is not None


def test_program_when_there_are_sidecars_is_that_of_the_container_that_trains() -> None:
    torch = a_torch_job()
    torch["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"].insert(
        0, {"name": "sidecar", "command": ["watch"]}
    )
    mpi = an_mpi_job(spec={"mainContainer": "trains"})
    mpi["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"].append(
        {"name": "trains", "command": ["mpiexec"]}
    )
    for manifest, role, argv in ((torch, "worker", ("torchrun", "train.py")), (mpi, "launcher", ("mpiexec",))):
        found = program(typed_manifest(manifest), role)
        assert found is not None
        assert found.argv == argv


def test_variables_when_their_values_lie_elsewhere_are_left_out_but_for_names() -> None:
    env = [
        {"name": "ME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "SPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
        {"name": "HOST", "valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}}},
        {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
        {"name": "EMPTY"},
    ]
    found = program(typed_manifest(an_mpi_job(launcher={"env": env}, metadata={"namespace": "team"})), "launcher")
    assert found is not None
    assert found.env == (("ME", "$(VODA_POD_NAME)"), ("SPACE", "team"), ("EMPTY", ""))


@pytest.mark.parametrize(
    ("manifest", "backoff_limit", "restart_policy"),
    [
        (an_mpi_job(), 6, {"launcher": "OnFailure", "worker": "Never"}),
        (an_mpi_job(api_version="kubeflow.org/v1"), 0, {"launcher": "Never", "worker": "Never"}),
        (a_torch_job(), 6, {"worker": "OnFailure"}),
        (a_torch_job(masters=1), 6, {"master": "OnFailure", "worker": "OnFailure"}),
    ],
)
def test_failure_policy_when_nothing_is_said_is_the_operators(
    manifest: dict[str, Any], backoff_limit: int, restart_policy: dict[str, str]
) -> None:
    policy = failure_policy(typed_manifest(manifest))
    assert (policy.backoff_limit, policy.restart_policy) == (backoff_limit, restart_policy)
    assert policy.active_deadline_s is None


def test_failure_policy_when_said_is_that() -> None:
    said = {"backoffLimit": 0, "activeDeadlineSeconds": 60, "ttlSecondsAfterFinished": 5, "suspend": True}
    policy = failure_policy(typed_manifest(an_mpi_job(spec={"runPolicy": said, "cleanPodPolicy": "All"})))
    assert (policy.backoff_limit, policy.active_deadline_s) == (0, 60.0)


def test_elastic_policy_when_one_bound_is_missing_has_both() -> None:
    for bound in ("minReplicas", "maxReplicas"):
        elastic = elastic_policy(a_torch_job(spec={"elasticPolicy": {bound: 3}}))
        assert elastic is not None
        assert (elastic.min_replicas, elastic.max_replicas) == (3, 3)
    assert elastic_policy(a_torch_job(replicas=2, spec={"elasticPolicy": {}})) == TorchElasticPolicy(2, 2)
    assert elastic_policy(a_torch_job()) is None


def test_counts_when_asked_are_the_manifests_own() -> None:
    mpi = typed_manifest(an_mpi_job(replicas=3, spec={"slotsPerWorker": 2}))
    torch = typed_manifest(a_torch_job(masters=1, replicas=4, spec={"nprocPerNode": 2}))
    assert (mpi.replica_count(), mpi.processes) == (3, 2)
    assert (torch.replica_count(), torch.processes) == (5, 2)
    assert typed_manifest(a_torch_job()).processes is None


def test_working_dir_when_annotated_is_that_folder() -> None:
    assert (
        working_dir_annotation(typed_manifest(an_mpi_job(annotations={"voda.dev/working-dir": "/home/u/x"})))
        == "/home/u/x"
    )
    assert working_dir_annotation(typed_manifest(an_mpi_job(metadata={"annotations": None}))) == ""


def test_env_when_a_value_refers_to_another_sees_only_what_came_before() -> None:
    env = (("A", "1"), ("B", "$(A)$(C)"), ("C", "3"), ("D", "$(C)-$(GIVEN)"))
    _, found = expand_program(ReplicaProgram(role="launcher", argv=(), env=env), {"GIVEN": "x"})
    assert {name: found[name] for name in "ABCD"} == {"A": "1", "B": "1$(C)", "C": "3", "D": "3-x"}


def test_env_when_a_name_comes_twice_takes_the_later_value() -> None:
    argv, env = expand_program(
        ReplicaProgram(role="worker", argv=("$(A)",), env=(("A", "1"), ("A", "$(A)2"))), {"A": "0"}
    )
    assert (argv, env["A"]) == (("12",), "12")


def test_pod_name_when_the_cluster_gives_none_is_made_of_job_and_role() -> None:
    program = ReplicaProgram(role="launcher", argv=("$(ME)",), env=(("ME", "$(VODA_POD_NAME)"),))
    assert expand_program(program, {"VODA_JOB_NAME": "digits"})[0] == ("digits-launcher",)
    assert expand_program(program, {"VODA_POD_NAME": "digits-launcher-x7"})[0] == ("digits-launcher-x7",)


def test_plain_when_a_manifest_says_so_or_lacks_what_would_say_it() -> None:
    assert is_plain({"metadata": {"annotations": {"voda.dev/launcher": "plain"}}})
    without: list[dict[str, object]] = [{}, {"metadata": None}, {"metadata": {}}, {"metadata": {"annotations": None}}]
    assert [is_plain(manifest) for manifest in without] == [False] * 4
