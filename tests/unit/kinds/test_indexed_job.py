"""What voda reads of a Job of batch/v1, and which it refuses."""

from typing import Any

import pytest

from tests.manifests import an_indexed_job
from voda.application.change_job import JobPatch, changed_spec
from voda.cluster.local.run_spec import run_spec_of
from voda.domain.errors import InvalidField
from voda.manifests.kubernetes_warnings import kubernetes_warnings
from voda.manifests.local_warnings import local_warnings, refuse_unrunnable
from voda.manifests.parse import parse
from voda.manifests.programs import failure_policy

BOUNDS = {"voda.dev/min-replicas": "1", "voda.dev/max-replicas": "8"}
SERVED = {"Job": "batch/v1"}
ENDPOINT = {"name": "PET_RDZV_ENDPOINT", "value": "digits-0.digits.default.svc.cluster.local:29500"}


def test_replicas_are_parallelism_and_completions_in_one() -> None:
    spec = parse(an_indexed_job(3, annotations=BOUNDS)).spec
    assert (spec.kind, spec.min_replicas, spec.max_replicas, spec.requested) == ("Job", 1, 8, 3)
    assert spec.gpus_per_replica == 1
    alone = an_indexed_job(3)
    del alone["spec"]["parallelism"]
    assert parse(alone).spec.requested == 3


def test_bounds_are_those_that_torchrun_is_told_unless_an_annotation_says_more() -> None:
    nnodes = [{"name": "PET_NNODES", "value": "2:6"}]
    spec = parse(an_indexed_job(3, env=nnodes)).spec
    assert (spec.min_replicas, spec.max_replicas, spec.requested) == (2, 6, 3)
    assert parse(an_indexed_job(3, env=nnodes, annotations=BOUNDS)).spec.max_replicas == 8


@pytest.mark.parametrize(
    ("spec", "field", "words"),
    [
        ({"completionMode": "NonIndexed"}, "spec.completionMode", "expected Indexed, got 'NonIndexed'"),
        ({"completionMode": None}, "spec.completionMode", "only a Job with numbered replicas can have other than one"),
        ({"completionMode": "Numbered"}, "spec.completionMode", "expected one of Indexed, NonIndexed, got 'Numbered'"),
        ({"completionMode": None, "parallelism": 1, "completions": None}, "spec.completionMode", "expected Indexed"),
        ({"completions": 5}, "spec.completions", "expected 2, as parallelism, got 5"),
        ({"parallelism": 0, "completions": 0}, "spec.parallelism", "expected 1 to"),
        ({"backoffLimit": -1}, "spec.backoffLimit", "expected 0 to"),
        ({"activeDeadlineSeconds": 0}, "spec.activeDeadlineSeconds", "expected 1 to"),
        ({"runPolicy": {"backoffLimit": 3}}, "spec.runPolicy", "a Job has none"),
    ],
)
def test_job_that_cannot_be_resized_or_run_is_refused_in_one_sentence(
    spec: dict[str, Any], field: str, words: str
) -> None:
    manifest = an_indexed_job(2, **spec)
    with pytest.raises(InvalidField) as refusal:
        parse({**manifest, "spec": {name: value for name, value in manifest["spec"].items() if value is not None}})
    assert refusal.value.field == field
    assert words in str(refusal.value)


@pytest.mark.parametrize("size", [{"parallelism": None, "completions": None}, {}, {"parallelism": None}])
def test_job_without_numbers_of_one_pod_is_a_rigid_job_of_one_replica(size: dict[str, Any]) -> None:
    manifest = an_indexed_job(1, completionMode=None, **size)
    spec = parse({**manifest, "spec": {name: value for name, value in manifest["spec"].items() if value}}).spec
    assert (spec.min_replicas, spec.requested, spec.max_replicas) == (1, 1, 1)
    with pytest.raises(InvalidField, match="a Job without numbered replicas has one, got 2"):
        changed_spec(spec, JobPatch(max_replicas=2))


def test_job_without_numbers_that_is_to_have_more_is_refused_by_what_asks_for_them() -> None:
    manifest = an_indexed_job(1, completionMode="NonIndexed", annotations=BOUNDS)
    with pytest.raises(InvalidField, match=r"expected Indexed for 8 replicas \(metadata.annotations"):
        parse(manifest)


def test_pod_that_is_always_started_again_is_refused() -> None:
    manifest = an_indexed_job(2)
    manifest["spec"]["template"]["spec"]["restartPolicy"] = "Always"
    with pytest.raises(InvalidField, match=r"spec.template.spec.restartPolicy: expected one of Never, OnFailure"):
        parse(manifest)


def test_pod_that_names_its_node_is_refused_on_kubernetes() -> None:
    manifest = an_indexed_job(2)
    manifest["spec"]["template"]["spec"]["nodeName"] = "node-1"
    with pytest.raises(InvalidField, match="name nodes by nodeSelector"):
        kubernetes_warnings(parse(manifest), SERVED, "nvidia.com/gpu")


@pytest.mark.parametrize("name", ["voda", "volcano"])
def test_scheduler_of_another_name_is_warned_of_as_what_a_job_that_is_there_keeps(name: str) -> None:
    manifest = an_indexed_job(2)
    manifest["spec"]["template"]["spec"]["schedulerName"] = name
    warning, *_ = kubernetes_warnings(parse(manifest), SERVED, "nvidia.com/gpu")
    assert warning.field == "spec.template.spec.schedulerName"
    assert "its replicas wait until a scheduler of this name binds them" in warning.message
    manifest["spec"]["template"]["spec"]["schedulerName"] = "default-scheduler"
    assert kubernetes_warnings(parse(manifest), SERVED, "nvidia.com/gpu") == ()


def test_job_that_is_there_is_warned_of_the_rendezvous_that_voda_cannot_add() -> None:
    manifest = an_indexed_job(2)
    assert kubernetes_warnings(parse(manifest), SERVED, "nvidia.com/gpu") == ()
    manifest["spec"]["selector"] = {"matchLabels": {"batch.kubernetes.io/controller-uid": "u"}}
    (warning,) = kubernetes_warnings(parse(manifest), SERVED, "nvidia.com/gpu")
    assert warning.field == "spec.template.spec.containers[0].env[PET_RDZV_ENDPOINT]"
    assert "voda cannot add it" in warning.message
    there = an_indexed_job(2, env=[ENDPOINT], selector=manifest["spec"]["selector"])
    assert kubernetes_warnings(parse(there), SERVED, "nvidia.com/gpu") == ()


def test_agents_that_look_for_newcomers_in_a_store_of_their_program_s_are_warned_of_where_voda_cannot_part_them() -> (
    None
):
    dynamic = {"name": "PET_RDZV_BACKEND", "value": "c10d"}
    there: dict[str, Any] = {"selector": {"matchLabels": {"batch.kubernetes.io/controller-uid": "u"}}}
    (warning,) = kubernetes_warnings(
        parse(an_indexed_job(2, env=[ENDPOINT, dynamic], **there)), SERVED, "nvidia.com/gpu"
    )
    assert warning.field == "spec.template.spec.containers[0].env[TORCH_DISABLE_SHARE_RDZV_TCP_STORE]"
    assert 'add TORCH_DISABLE_SHARE_RDZV_TCP_STORE: "1"' in warning.message
    apart = {"name": "TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "value": "1"}
    for fine in (
        an_indexed_job(2, env=[ENDPOINT, dynamic, apart], **there),
        an_indexed_job(2, env=[ENDPOINT, dynamic]),
        an_indexed_job(1, env=[ENDPOINT, dynamic], **there),
    ):
        assert kubernetes_warnings(parse(fine), SERVED, "nvidia.com/gpu") == ()


def test_rendezvous_at_the_replica_of_another_job_is_warned_of() -> None:
    renamed = an_indexed_job(2, env=[ENDPOINT])
    assert kubernetes_warnings(parse(renamed), SERVED, "nvidia.com/gpu") == ()
    renamed["metadata"]["name"] = "other"
    (warning,) = kubernetes_warnings(parse(renamed), SERVED, "nvidia.com/gpu")
    assert "names digits-0.digits.default.svc.cluster.local, and replica 0 of this job is other-0" in warning.message
    for host in ("store.example.com", "$(NAME)-0.$(NAME).default.svc.cluster.local"):
        renamed["spec"]["template"]["spec"]["containers"][0]["env"] = [{**ENDPOINT, "value": f"{host}:29500"}]
        assert kubernetes_warnings(parse(renamed), SERVED, "nvidia.com/gpu") == ()


def test_limits_of_a_job_are_in_its_spec() -> None:
    policy = failure_policy(parse(an_indexed_job(2, backoffLimit=4, activeDeadlineSeconds=60)).job)
    assert (policy.backoff_limit, policy.active_deadline_s) == (4, 60.0)
    assert failure_policy(parse(an_indexed_job(2)).job).backoff_limit == 6


def test_same_job_runs_on_one_machine_where_its_replicas_meet_at_a_port_of_it() -> None:
    own = [ENDPOINT, {"name": "PET_NPROC_PER_NODE", "value": "2"}, {"name": "LR", "value": "0.1"}]
    parsed = parse(an_indexed_job(2, env=own, successPolicy={"rules": [{"succeededIndexes": "0"}]}))
    refuse_unrunnable(parsed)
    runs = run_spec_of(parsed.spec)
    assert (runs.kind, runs.index_variable, runs.processes) == ("torch", "JOB_COMPLETION_INDEX", 2)
    assert dict(runs.programs["worker"].env) == {"PET_NPROC_PER_NODE": "2", "LR": "0.1"}
    fields = [warning.field for warning in local_warnings(parsed)]
    assert "spec.successPolicy" in fields
    assert "spec.template.spec.containers[0].env[0]" in fields
