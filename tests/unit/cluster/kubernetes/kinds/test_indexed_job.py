"""A Job of batch/v1 as voda makes, adopts, resizes and reads it."""

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from tests.manifests import an_indexed_job
from voda.cluster.kubernetes.kinds.indexed_job import IndexedJobV1
from voda.cluster.kubernetes.kinds.operator_pods import index, owner_name
from voda.cluster.kubernetes.kinds.template import GPU_TAINTS
from voda.cluster.kubernetes.objects import JobObject, Pod
from voda.domain.job import JobSpec
from voda.domain.reasons.failures import GivenUp, PodFailed, ReplicaFailed
from voda.events.types import JobCompleted, JobFailed
from voda.manifests.parse import parse

JOB = IndexedJobV1()
BOUNDS = {"voda.dev/min-replicas": "1", "voda.dev/max-replicas": "4"}
VARIABLES = {"VODA_JOB_ID": "digits-2", "VODA_JOB_TOKEN": "secret"}
GATE = {"name": "voda.dev/placement"}


def a_spec(manifest: dict[str, Any]) -> JobSpec:
    return replace(parse(manifest).spec, job_id="digits-2", namespace="team")


def made(manifest: dict[str, Any]) -> dict[str, Any]:
    return JOB.new_object(a_spec(manifest), GPU_TAINTS, VARIABLES)


def env_of(job: dict[str, Any]) -> dict[str, str]:
    """Return the variables of the container that trains; of those from fields, the fields."""
    variables = job["spec"]["template"]["spec"]["containers"][0]["env"]
    return {each["name"]: each.get("value") or each["valueFrom"]["fieldRef"]["fieldPath"] for each in variables}


def an_object(*conditions: str, reason: str = "", **fields: Any) -> JobObject:
    told = [{"type": each, "status": "True", "reason": reason} for each in conditions]
    metadata = {"name": "digits", "namespace": "team", "uid": "u1"}
    status = {"conditions": told, **fields.pop("status", {})}
    return msgspec.convert({"metadata": metadata, "spec": fields, "status": status}, JobObject)


def a_pod(name: str, phase: str = "Running", *, reason: str = "", **metadata: Any) -> Pod:
    labels = {"batch.kubernetes.io/job-name": "digits", **metadata.pop("labels", {})}
    status: dict[str, Any] = {"phase": phase}
    if reason:
        status["conditions"] = [{"type": "DisruptionTarget", "status": "True", "reason": reason}]
    return msgspec.convert(
        {"metadata": {"name": name, "namespace": "team", "labels": labels, **metadata}, "status": status}, Pod
    )


def test_new_job_is_suspended_gated_and_of_the_requested_size() -> None:
    job = made(an_indexed_job(3, annotations=BOUNDS))
    spec, pod = job["spec"], job["spec"]["template"]["spec"]
    assert (job["apiVersion"], job["kind"], spec["suspend"]) == ("batch/v1", "Job", True)
    assert (spec["parallelism"], spec["completions"], spec["completionMode"]) == (3, 3, "Indexed")
    assert pod["schedulingGates"] == [GATE]
    assert "schedulerName" not in pod
    assert spec["template"]["metadata"]["annotations"] == {"voda.dev/job-id": "digits-2"}


def test_new_torchrun_job_survives_lost_nodes_and_ends_with_its_first_replica() -> None:
    spec = made(an_indexed_job(3, annotations=BOUNDS))["spec"]
    assert spec["podReplacementPolicy"] == "Failed"
    assert spec["successPolicy"] == {"rules": [{"succeededIndexes": "0"}]}
    assert spec["podFailurePolicy"]["rules"][0]["onPodConditions"] == [{"type": "DisruptionTarget"}]
    assert (spec["backoffLimitPerIndex"], spec["maxFailedIndexes"]) == (6, 0)


def test_new_torchrun_job_has_all_that_its_replicas_need_to_meet() -> None:
    job = made(an_indexed_job(3, annotations=BOUNDS))
    assert job["spec"]["template"]["spec"]["subdomain"] == "digits"
    assert env_of(job) == {
        "PET_NNODES": "metadata.annotations['voda.dev/env.PET_NNODES']",
        "PET_NODE_RANK": "metadata.annotations['batch.kubernetes.io/job-completion-index']",
        "PET_NPROC_PER_NODE": "1",
        "PET_RDZV_BACKEND": "static",
        "PET_RDZV_ENDPOINT": "digits-0.digits.team.svc.cluster.local:29500",
        "PET_RDZV_ID": "digits-2",
        "PET_MONITOR_INTERVAL": "0.1",
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
        "TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "28",
        **VARIABLES,
    }


def test_what_the_user_wrote_stays() -> None:
    own: dict[str, Any] = {
        "backoffLimit": 2,
        "successPolicy": {"rules": [{"succeededIndexes": "0-1"}]},
        "podFailurePolicy": {"rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [3]}}]},
    }
    job = made(an_indexed_job(2, env=[{"name": "PET_RDZV_BACKEND", "value": "c10d"}], **own))
    assert {name: job["spec"][name] for name in own} == own
    assert (job["spec"]["backoffLimitPerIndex"], job["spec"]["maxFailedIndexes"]) == (2, 0)
    assert env_of(job)["PET_RDZV_BACKEND"] == "c10d"


def test_new_torchrun_job_when_its_user_wrote_its_bounds_learns_its_size_all_the_same() -> None:
    own = [{"name": "PET_NNODES", "value": "1:9"}, {"name": "PET_NODE_RANK", "value": "0"}]
    plain, written = made(an_indexed_job(2)), made(an_indexed_job(2, env=own))
    assert env_of(written) == env_of(plain)
    assert len(written["spec"]["template"]["spec"]["containers"][0]["env"]) == len(env_of(plain))


def test_new_torchrun_job_gives_its_program_the_grace_of_its_pods_but_for_the_agent_s_last_words() -> None:
    for grace_s, shutdown_s in ((120, "118"), (1, "1")):
        manifest = an_indexed_job(2)
        manifest["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = grace_s
        assert env_of(made(manifest))["TORCH_ELASTIC_SHUTDOWN_TIMEOUT"] == shutdown_s


def test_new_torchrun_job_heeds_sigterm_before_its_agents_do_except_where_its_pods_see_all_processes() -> None:
    manifest = an_indexed_job(2)
    assert made(manifest)["spec"]["template"]["spec"]["shareProcessNamespace"] is True
    manifest["spec"]["template"]["spec"]["hostPID"] = True
    assert "shareProcessNamespace" not in made(manifest)["spec"]["template"]["spec"]


def test_new_job_that_accelerate_starts_has_all_that_one_of_torchrun_has() -> None:
    manifest = an_indexed_job(3)
    plain = made(manifest)
    command = ["accelerate", "launch", "--multi_gpu", "--num_processes", "2", "train.py"]
    manifest["spec"]["template"]["spec"]["containers"][0]["command"] = command
    job = made(manifest)
    assert env_of(job) == env_of(plain)
    assert job["spec"]["successPolicy"] == plain["spec"]["successPolicy"]
    assert job["metadata"]["annotations"] == plain["metadata"]["annotations"]


@pytest.mark.parametrize("command", [["python", "shard.py"], ["sh", "-c", "pip install accelerate && python shard.py"]])
def test_new_job_without_torchrun_completes_when_all_of_its_indices_have(command: list[str]) -> None:
    manifest = an_indexed_job(3)
    manifest["spec"]["template"]["spec"]["containers"][0]["command"] = command
    job = made(manifest)
    assert "successPolicy" not in job["spec"]
    assert "subdomain" not in job["spec"]["template"]["spec"]
    assert env_of(job) == VARIABLES


def test_job_made_again_from_an_adopted_one_leaves_out_what_the_server_added() -> None:
    manifest = an_indexed_job(2, selector={"matchLabels": {"batch.kubernetes.io/controller-uid": "old"}})
    labels = {"batch.kubernetes.io/controller-uid": "old", "job-name": "digits", "team": "vision"}
    manifest["spec"]["template"]["metadata"] = {"labels": labels}
    spec = made(manifest)["spec"]
    assert "selector" not in spec
    assert spec["template"]["metadata"]["labels"] == {"team": "vision", "voda.dev/managed": "true"}


def test_adopted_job_changes_only_in_what_a_suspended_one_may() -> None:
    manifest = an_indexed_job(2)
    manifest["metadata"] |= {"resourceVersion": "7", "uid": "u1"}
    other = {"name": "example.com/quota"}
    manifest["spec"]["template"]["spec"]["schedulingGates"] = [other]
    body = JOB.adoption_patch(manifest, a_spec(manifest), GPU_TAINTS, VARIABLES).body
    assert set(body["spec"]) == {"suspend", "podReplacementPolicy", "template"}
    assert set(body["spec"]["template"]["spec"]) == {"schedulingGates", "tolerations"}
    assert body["spec"]["template"]["spec"]["schedulingGates"] == [other, GATE]
    assert body["spec"]["template"]["metadata"]["annotations"] == {
        "voda.dev/job-id": "digits-2",
        "voda.dev/env.VODA_JOB_ID": "digits-2",
        "voda.dev/env.VODA_JOB_TOKEN": "secret",
    }


def test_sizes_are_written_as_one() -> None:
    job = an_object(parallelism=2, completions=2)
    assert JOB.resize_patch(job, 5).body == {"spec": {"parallelism": 5, "completions": 5}}
    assert JOB.suspend_patch().body == {"spec": {"suspend": True}}
    spec = a_spec(an_indexed_job(2))
    resumed = JOB.resume_patch(job, spec, 3).body
    assert resumed == {"spec": {"suspend": False, "parallelism": 3, "completions": 3}}
    assert (JOB.replicas(job), JOB.replicas(an_object()), JOB.can_resize(job, 7)) == (2, 1, True)


def test_replicas_start_together_where_torchrun_starts_their_program() -> None:
    plain = an_indexed_job(3)
    plain["spec"]["template"]["spec"]["containers"][0]["command"] = ["python", "shard.py"]
    for manifest, is_together in ((an_indexed_job(3), True), (plain, False)):
        for job in (made(manifest), JOB.adoption_patch(manifest, a_spec(manifest), (), {}).body):
            there = an_object(parallelism=3)
            there = replace(there, metadata=replace(there.metadata, annotations=job["metadata"]["annotations"]))
            assert (JOB.starts_together(there), JOB.can_resize(there, 2)) == (is_together, not is_together)


def test_headless_service_is_made_where_the_template_names_a_subdomain() -> None:
    assert JOB.companions(an_object()) == ()
    ((path, service),) = JOB.companions(an_object(template={"spec": {"subdomain": "digits"}}))
    assert path == "/api/v1/namespaces/team/services"
    assert service["metadata"]["ownerReferences"] == [
        {"apiVersion": "batch/v1", "kind": "Job", "name": "digits", "uid": "u1"}
    ]
    assert service["spec"] == {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": {"batch.kubernetes.io/job-name": "digits"},
    }


@pytest.mark.parametrize("condition", ["SuccessCriteriaMet", "Complete"])
def test_job_has_completed_when_its_criteria_are_met(condition: str) -> None:
    assert JOB.end(an_object(condition), (), "a") == JobCompleted(job_id="a")
    assert an_object(condition).has_finished


def test_job_that_failed_by_itself_says_why() -> None:
    failed = an_object("Failed", reason="BackoffLimitExceeded")
    end = JOB.end(failed, (a_pod("digits-0-abcde", "Failed"),), "a")
    assert end == JobFailed(
        job_id="a",
        reason=GivenUp(object="Job", limit="backoff", last=ReplicaFailed(replica="digits-0-abcde", how=PodFailed())),
    )


def test_job_whose_pods_were_all_lost_is_made_anew_whatever_its_limit_says() -> None:
    lost = (a_pod("digits-0-abcde", "Failed", reason="DeletionByTaintManager"),)
    failed = an_object("Failed", reason="BackoffLimitExceeded")
    assert (JOB.end(failed, lost, "a"), JOB.is_broken(failed, lost)) == (None, True)
    late = an_object("Failed", reason="DeadlineExceeded")
    assert JOB.end(late, lost, "a") is not None
    assert not JOB.is_broken(late, lost)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("digits-0-abcde", 0),
        ("digits-12-x7f2k", 12),
        ("digits-0", None),
        ("digits-01-abcde", None),
        ("digits-worker-0", None),
        ("digits-launcher-x7f2k", None),
        ("digits-2-0-abcde", None),
        ("other-0-abcde", None),
    ],
)
def test_index_of_a_pod_is_in_its_name(name: str, expected: int | None) -> None:
    assert index(a_pod(name)) == expected


def test_launcher_of_an_operator_is_no_replica_though_its_pod_is_a_jobs() -> None:
    labels = {
        "training.kubeflow.org/job-name": "digits",
        "batch.kubernetes.io/job-name": "digits-launcher",
        "training.kubeflow.org/job-role": "launcher",
    }
    pod = a_pod("digits-launcher-x7f2k", labels=labels)
    assert (owner_name(pod), index(pod)) == ("digits", None)


@pytest.mark.parametrize(
    ("text", "done"), [("", set()), ("0", {0}), ("0,3-5", {0, 3, 4, 5}), ("odd,2-", {2}), ("1-99999999999", None)]
)
def test_replicas_that_succeeded_are_read_from_the_status(text: str, done: set[int] | None) -> None:
    found = an_object(status={"completedIndexes": text}).status.done_indices
    assert found == done if done is not None else len(found) < 100_000
