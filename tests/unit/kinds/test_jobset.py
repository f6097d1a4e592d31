"""What voda reads of a JobSet, and which it refuses."""

from typing import Any

import pytest

from tests.manifests import a_jobset
from voda.domain.errors import InvalidField
from voda.manifests.kubernetes_warnings import kubernetes_warnings
from voda.manifests.local_warnings import refuse_unrunnable
from voda.manifests.parse import parse

BOUNDS = {"voda.dev/min-replicas": "1", "voda.dev/max-replicas": "8"}
SERVED = {"JobSet": "jobset.x-k8s.io/v1alpha2"}
GPU = "nvidia.com/gpu"
JOB = "spec.replicatedJobs[0].template.spec"


def test_replicas_are_those_of_its_only_job() -> None:
    spec = parse(a_jobset(3, annotations=BOUNDS)).spec
    assert (spec.kind, spec.min_replicas, spec.max_replicas, spec.requested) == ("JobSet", 1, 8, 3)
    assert spec.gpus_per_replica == 1


def test_job_that_names_no_completion_mode_is_indexed() -> None:
    manifest = a_jobset(2)
    del manifest["spec"]["replicatedJobs"][0]["template"]["spec"]["completionMode"]
    assert parse(manifest).spec.requested == 2


@pytest.mark.parametrize(
    ("job", "field", "words"),
    [
        ({"completionMode": "NonIndexed"}, f"{JOB}.completionMode", "expected Indexed, got 'NonIndexed'"),
        ({"completions": 5}, f"{JOB}.completions", "expected 2, as parallelism, got 5"),
        ({"parallelism": 0, "completions": 0}, f"{JOB}.parallelism", "expected 1 to"),
    ],
)
def test_job_of_a_jobset_that_cannot_be_resized_is_refused(job: dict[str, Any], field: str, words: str) -> None:
    with pytest.raises(InvalidField, match=words) as refusal:
        parse(a_jobset(2, **job))
    assert refusal.value.field == field


def test_jobset_of_which_voda_cannot_tell_the_elastic_job_is_refused_in_one_sentence() -> None:
    several = a_jobset()
    several["spec"]["replicatedJobs"].append({**several["spec"]["replicatedJobs"][0], "name": "driver"})
    with pytest.raises(InvalidField, match=r"expected one, got 2 \(node, driver\): voda cannot tell which") as refusal:
        parse(several)
    assert refusal.value.field == "spec.replicatedJobs"
    twice = a_jobset()
    twice["spec"]["replicatedJobs"][0]["replicas"] = 2
    with pytest.raises(InvalidField, match=r"replicas: expected 1, got 2"):
        parse(twice)


@pytest.mark.parametrize("jobs", [None, [], {}, "odd", [None], [{}], [{"name": "a"}], [{"name": "a", "template": {}}]])
def test_jobset_without_a_usable_job_is_refused(jobs: Any) -> None:
    manifest = a_jobset()
    manifest["spec"]["replicatedJobs"] = jobs
    with pytest.raises(InvalidField, match=r"spec\.replicatedJobs"):
        parse(manifest)


@pytest.mark.parametrize("way", ["variable", "flag"])
def test_torchrun_that_cannot_meet_its_peers_is_warned_of(way: str) -> None:
    alone = parse(a_jobset(2, annotations=BOUNDS))
    (warning,) = kubernetes_warnings(alone, SERVED, GPU)
    assert warning.field == f"{JOB}.template.spec.containers[0].env[PET_RDZV_ENDPOINT]"
    assert "as digits-node-0-0.digits.default.svc.cluster.local:29500" in warning.message
    endpoint = [{"name": "PET_RDZV_ENDPOINT", "value": "digits-node-0-0.digits:29500"}]
    meeting = a_jobset(2, annotations=BOUNDS, env=endpoint if way == "variable" else ())
    if way == "flag":
        pod = meeting["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
        pod["containers"][0]["args"] = ["--rdzv-endpoint=digits-node-0-0.digits:29500"]
    assert list(kubernetes_warnings(parse(meeting), SERVED, GPU)) == []


def test_agents_that_look_for_newcomers_in_a_store_of_their_program_s_are_warned_of() -> None:
    endpoint = {"name": "PET_RDZV_ENDPOINT", "value": "digits-node-0-0.digits:29500"}
    job = a_jobset(2, annotations=BOUNDS, env=[endpoint])
    pod = job["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    pod["containers"][0]["args"] = ["--rdzv-backend=c10d"]
    (warning,) = kubernetes_warnings(parse(job), SERVED, GPU)
    assert warning.field == f"{JOB}.template.spec.containers[0].env[TORCH_DISABLE_SHARE_RDZV_TCP_STORE]"
    pod["containers"][0]["env"].append({"name": "TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "value": "1"})
    assert list(kubernetes_warnings(parse(job), SERVED, GPU)) == []


def test_torchrun_that_waits_for_one_number_of_replicas_is_warned_of_where_they_may_change() -> None:
    fixed = (
        {"name": "PET_NNODES", "value": "2"},
        {"name": "PET_RDZV_ENDPOINT", "value": "digits-node-0-0.digits:29500"},
    )
    job = a_jobset(2, annotations=BOUNDS, env=fixed)
    (warning,) = kubernetes_warnings(parse(job), SERVED, GPU)
    assert warning.field == f"{JOB}.template.spec.containers[0].env[PET_NNODES]"
    assert "waits for 2 replicas" in warning.message
    pod = job["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    pod["containers"][0]["args"] = ["--nnodes=1:4"]
    assert list(kubernetes_warnings(parse(job), SERVED, GPU)) == []
    assert list(kubernetes_warnings(parse(a_jobset(2, env=fixed)), SERVED, GPU)) == []


def test_node_name_is_refused_and_one_machine_runs_no_jobset() -> None:
    manifest = a_jobset()
    manifest["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["nodeName"] = "gpu-1"
    with pytest.raises(InvalidField, match=r"nodeName: expected none"):
        list(kubernetes_warnings(parse(manifest), SERVED, GPU))
    with pytest.raises(InvalidField, match="JobSet"):
        refuse_unrunnable(parse(a_jobset()))
