"""A JobSet as voda makes, adopts, resizes and reads it: with the Job that its controller makes of it."""

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from tests.manifests import a_jobset
from voda.cluster.kubernetes.kinds.indexed_job import IndexedJobV1
from voda.cluster.kubernetes.kinds.jobset import JobSetV1Alpha2
from voda.cluster.kubernetes.kinds.operator_pods import index, owner_name
from voda.cluster.kubernetes.kinds.template import GPU_TAINTS
from voda.cluster.kubernetes.objects import JobObject, Pod
from voda.cluster.kubernetes.state.job_objects import ObjectIndex
from voda.domain.job import JobSpec
from voda.events.types import JobCompleted, JobFailed
from voda.manifests.parse import parse

JOBSET, JOB = JobSetV1Alpha2(), IndexedJobV1()
VARIABLES = {"VODA_JOB_ID": "digits-2"}
GATE = {"name": "voda.dev/placement"}


def a_spec(manifest: dict[str, Any]) -> JobSpec:
    return replace(parse(manifest).spec, job_id="digits-2", namespace="team")


def a_jobset_object(*conditions: str, version: int = 1) -> JobObject:
    metadata: dict[str, Any] = {"name": "digits", "namespace": "team", "uid": "set", "resourceVersion": str(version)}
    metadata |= {"annotations": {"voda.dev/job-id": "digits-2"}, "labels": {"voda.dev/managed": "true"}}
    told = [{"type": each, "status": "True", "reason": "FailedJobs"} for each in conditions]
    return msgspec.convert({"metadata": metadata, "status": {"conditions": told}}, JobObject)


def a_child(uid: str = "job", size: int = 2, version: int = 2, **status: Any) -> JobObject:
    owner = {"kind": "JobSet", "name": "digits", "uid": "set", "controller": True}
    known = {"uid": uid, "resourceVersion": str(version), "ownerReferences": [owner]}
    metadata = {"name": "digits-node-0", "namespace": "team", **known}
    return msgspec.convert({"metadata": metadata, "spec": {"parallelism": size}, "status": status}, JobObject)


def a_pod(number: int, phase: str = "Running", owner: str = "job", job_id: str = "digits-2") -> Pod:
    metadata = {
        "name": f"digits-node-0-{number}-abc12",
        "namespace": "team",
        "labels": {"batch.kubernetes.io/job-name": "digits-node-0", "jobset.sigs.k8s.io/jobset-name": "digits"},
        "annotations": {"voda.dev/job-id": job_id},
        "ownerReferences": [{"kind": "Job", "name": "digits-node-0", "uid": owner, "controller": True}],
    }
    return msgspec.convert({"metadata": metadata, "status": {"phase": phase}}, Pod)


def with_child(child: JobObject, *conditions: str) -> JobObject:
    objects = ObjectIndex()
    objects.put("set", JOBSET, a_jobset_object(*conditions))
    objects.put(child.metadata.uid, JOB, child)
    return objects.by_uid["set"].object


def test_new_jobset_is_suspended_and_its_pods_are_gated() -> None:
    manifest = a_jobset(3)
    manifest["spec"]["managedBy"] = "kueue.x-k8s.io/multikueue"
    made = JOBSET.new_object(a_spec(manifest), GPU_TAINTS, VARIABLES)
    assert (made["apiVersion"], made["kind"]) == ("jobset.x-k8s.io/v1alpha2", "JobSet")
    assert made["spec"]["suspend"] is True
    assert "managedBy" not in made["spec"]
    [replicated] = made["spec"]["replicatedJobs"]
    job = replicated["template"]["spec"]
    assert (job["parallelism"], job["podReplacementPolicy"]) == (3, "Failed")
    assert job["template"]["spec"]["schedulingGates"] == [GATE]
    assert job["template"]["metadata"]["annotations"] == {"voda.dev/job-id": "digits-2"}
    env = {each["name"]: each["value"] for each in job["template"]["spec"]["containers"][0]["env"]}
    assert env == VARIABLES
    assert manifest["spec"]["replicatedJobs"][0]["template"]["spec"]["template"].keys() == {"spec"}


def test_adopted_jobset_changes_only_in_what_its_webhook_lets_pass() -> None:
    manifest = a_jobset(2)
    manifest["metadata"] |= {"resourceVersion": "7", "uid": "set"}
    body = JOBSET.adoption_patch(manifest, a_spec(manifest), GPU_TAINTS, VARIABLES).body
    assert set(body["spec"]) == {"suspend", "replicatedJobs"}
    [before], [after] = manifest["spec"]["replicatedJobs"], body["spec"]["replicatedJobs"]
    was, now = before["template"]["spec"], after["template"]["spec"]
    assert {name for name in now if now[name] != was.get(name)} == {"template"}
    pod, own = now["template"]["spec"], was["template"]["spec"]
    assert {name for name in pod if pod[name] != own.get(name)} == {"schedulingGates", "tolerations"}
    assert now["template"]["metadata"]["annotations"]["voda.dev/env.VODA_JOB_ID"] == "digits-2"


def test_size_is_that_of_its_job_and_written_there() -> None:
    alone, both = a_jobset_object(), with_child(a_child(size=2))
    assert (JOBSET.replicas(alone), JOBSET.replicas(both)) == (0, 2)
    size = {"parallelism": 3, "completions": 3, "podReplacementPolicy": "Failed"}
    resized = JOBSET.resize_patch(both, 3)
    assert (resized.is_of_child, resized.body) == (True, {"spec": size})
    resumed = JOBSET.resume_patch(both, a_spec(a_jobset()), 3)
    assert (resumed.body, resumed.is_of_child) == ({"spec": {"suspend": False}}, False)
    assert JOBSET.suspend_patch().body == {"spec": {"suspend": True}}


def test_how_the_job_ended_says_the_jobset_alone() -> None:
    failed = a_child(conditions=[{"type": "Failed", "status": "True"}])
    assert JOBSET.end(with_child(failed), [], "digits-2") is None
    ended = JOBSET.end(with_child(failed, "Failed"), [a_pod(0, "Failed")], "digits-2")
    assert isinstance(ended, JobFailed)
    assert JOBSET.end(with_child(a_child(), "Completed"), [], "digits-2") == JobCompleted(job_id="digits-2")


def test_replicas_that_succeeded_end_the_job_unless_it_was_started_again() -> None:
    done = [a_pod(0, "Succeeded"), a_pod(1, "Succeeded")]
    assert JOBSET.end(with_child(a_child(size=3)), done, "digits-2") is None
    assert JOBSET.end(with_child(a_child(size=2)), done, "digits-2") == JobCompleted(job_id="digits-2")
    assert JOBSET.end(with_child(a_child("again", size=2)), done, "digits-2") is None
    assert JOBSET.end(a_jobset_object(), done, "digits-2") is None


def test_pods_belong_to_the_jobset_and_are_numbered_as_by_their_job() -> None:
    pod = a_pod(3)
    assert (owner_name(pod), index(pod)) == ("digits", 3)
    assert with_child(a_child()).owns(pod)
    assert not with_child(a_child("another")).owns(pod)


@pytest.mark.parametrize("child_first", [True, False])
def test_job_is_attached_to_its_jobset_in_whatever_order_they_come_and_go(child_first: bool) -> None:
    objects = ObjectIndex()
    if child_first:
        assert objects.put("job", JOB, a_child()) == set()
    assert objects.put("set", JOBSET, a_jobset_object()) == {"digits-2"}
    if not child_first:
        assert objects.put("job", JOB, a_child()) == {"digits-2"}
    assert JOBSET.replicas(objects.by_uid["set"].object) == 2
    # A resize, then another version of the JobSet itself: both stay.
    assert objects.put("job", JOB, a_child(size=5, version=3, completedIndexes="0-1")) == {"digits-2"}
    objects.put("set", JOBSET, a_jobset_object(version=4))
    shown = objects.by_uid["set"].object
    assert shown.child is not None
    assert (JOBSET.replicas(shown), shown.child.status.done_indices) == (5, {0, 1})
    # Started again: the new Job is there before the end of the old one is seen.
    objects.put("again", JOB, a_child("again", size=4, version=5))
    assert objects.put("job", JOB, None) == {"digits-2"}
    assert JOBSET.replicas(objects.by_uid["set"].object) == 4
    objects.put("again", JOB, None)
    assert objects.by_uid["set"].object.child is None
    assert objects.put("set", JOBSET, None) == {"digits-2"}


@pytest.mark.parametrize(("kind", "namespace"), [("MPIJob", "team"), ("JobSet", "others")])
def test_launcher_of_an_operator_and_job_of_another_namespace_are_no_child(kind: str, namespace: str) -> None:
    objects, job = ObjectIndex(), a_child()
    owner = replace(job.metadata.owner_references[0], kind=kind)
    metadata = replace(job.metadata, owner_references=(owner,), namespace=namespace)
    objects.put("set", JOBSET, a_jobset_object())
    objects.put("job", JOB, replace(job, metadata=metadata))
    assert objects.by_uid["set"].object.child is None
