"""What operators take for success though the pod was deleted before its program had finished, and what is done then."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from tests.builders import a_job
from voda.cluster.kubernetes.convergence.desired import DesiredRun, ObservedJob, Unregister
from voda.cluster.kubernetes.convergence.steps import steps, to_untrack
from voda.cluster.kubernetes.kinds.base import JobKind, Patch
from voda.cluster.kubernetes.kinds.indexed_job import IndexedJobV1
from voda.cluster.kubernetes.kinds.mpijob import MPIJobV1, MPIJobV2
from voda.cluster.kubernetes.kinds.operator_pods import index
from voda.cluster.kubernetes.kinds.pytorchjob import PyTorchJobV1
from voda.cluster.kubernetes.kinds.success_policy import SuccessRule
from voda.cluster.kubernetes.objects import JobObject, Pod
from voda.cluster.kubernetes.state.job_objects import KubeJob, outcome_of
from voda.domain.job import Job
from voda.events.text.failures import void_text
from voda.events.types import JobCompleted

JOBS = IndexedJobV1()
INDEX_0_ENDS = {"rules": [{"succeededIndexes": "0"}]}
DISRUPTED = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
STARTED = a_job("a", max_replicas=4, uid="u1", first_started_at=1.0)
TRACKED = ["batch.kubernetes.io/job-tracking"]


def an_object(done: str = "", *, is_complete: bool = False, **spec: Any) -> JobObject:
    notes = {"voda.dev/job-id": "a", "voda.dev/starts-together": "true" if spec.pop("together", False) else ""}
    metadata = {"name": "a", "namespace": "ns", "uid": "u1", "annotations": notes}
    status = {"completedIndexes": done, "conditions": [{"type": "Complete", "status": "True"}] * is_complete}
    spec = {"parallelism": 4, **spec}
    return msgspec.convert({"metadata": metadata, "spec": spec, "status": status}, JobObject)


def a_pod(number: int, phase: str = "Succeeded", *, told_at: str = "", ended_at: str = "", **fields: Any) -> Pod:
    """Return the pod of a replica, whose deletion was requested `told_at`, 30 s before its grace is over."""
    labels = {"batch.kubernetes.io/job-name": "a"}
    leaving = {"deletionTimestamp": f"2026-11-28T12:01:{told_at}Z", "deletionGracePeriodSeconds": 60} if told_at else {}
    metadata = {"name": f"a-{number}-abcde", "namespace": "ns", "uid": f"p{number}", "labels": labels, **leaving}
    metadata |= {"ownerReferences": [{"kind": "Job", "name": "a", "uid": "u1"}], "finalizers": TRACKED}
    metadata |= {"annotations": {"voda.dev/job-id": "a"}}
    ended = {"finishedAt": f"2026-11-28T12:00:{ended_at}Z"} if ended_at else None
    containers = [{"name": "w", "state": {"terminated": ended}}] if ended else []
    status = {"phase": phase, "containerStatuses": containers, **fields}
    return msgspec.convert({"metadata": metadata, "spec": {"nodeName": "n1"}, "status": status}, Pod)


def seen(job: JobObject, pods: Sequence[Pod], logged: Job = STARTED, kind: JobKind = JOBS) -> ObservedJob:
    workers = {pod.metadata.key: pod for pod in pods}
    return ObservedJob(
        job_id="a",
        job=logged,
        kube_job=KubeJob(kind, job).judged(pods, logged),
        workers=workers,
        indices={key: number for key, pod in workers.items() if (number := index(pod)) is not None},
        pods=workers,
        dead_nodes={},
        now=0.0,
    )


@pytest.mark.parametrize(
    ("pod", "is_done"),
    [
        (a_pod(2), True),
        (a_pod(2, conditions=[DISRUPTED]), False),
        (a_pod(2, told_at="05"), False),
        (a_pod(2, told_at="05", ended_at="07"), False),
        # Within one second nobody knows what came first.
        (a_pod(2, told_at="05", ended_at="05"), False),
        # It was deleted once it had finished.
        (a_pod(2, told_at="05", ended_at="03"), True),
        # The watch of pods is behind that of Jobs.
        (a_pod(2, "Running"), True),
        (a_pod(2, "Running", told_at="05"), False),
    ],
)
def test_replica_has_finished_only_if_its_program_ended_before_its_pod_was_deleted(pod: Pod, is_done: bool) -> None:
    found = KubeJob(JOBS, an_object("2")).judged([pod], STARTED)
    assert (found.done_indices == {2}, found.object.void == {2}) == (is_done, not is_done)


def test_success_whose_pod_is_gone_counts_only_if_the_log_has_it() -> None:
    job = an_object("2")
    assert KubeJob(JOBS, job).judged([], STARTED).done_indices == frozenset()
    logged = a_job("a", max_replicas=4, uid="u1", first_started_at=1.0, done=(2,), done_of=4)
    assert KubeJob(JOBS, job).judged([], logged).done_indices == {2}
    # One that never ran under voda is not judged.
    assert KubeJob(JOBS, job).judged([], a_job("a", max_replicas=4, uid="u1")).done_indices == {2}


def test_job_is_shrunk_below_a_void_success_and_grows_once_that_is_forgotten() -> None:
    at_work = [a_pod(number, "Running") for number in (0, 1, 3)]
    pods = [*at_work, a_pod(2, told_at="05")]
    desired = DesiredRun(("n1",) * 4)
    [shrink] = steps(desired, seen(an_object("2"), pods))
    assert isinstance(shrink, Patch)
    assert shrink.body == {"spec": {"parallelism": 2, "completions": 2}}
    assert steps(desired, seen(an_object("2", parallelism=2), pods)) == ()
    [grow, *_] = steps(desired, seen(an_object(parallelism=2), at_work[:2]))
    assert isinstance(grow, Patch)
    assert grow.body == {"spec": {"parallelism": 4, "completions": 4}}


@pytest.mark.parametrize(
    ("job", "pods", "has_ended"),
    [
        (an_object("0", is_complete=True, successPolicy=INDEX_0_ENDS), [a_pod(0)], True),
        (an_object("0", is_complete=True, successPolicy=INDEX_0_ENDS), [a_pod(0, conditions=[DISRUPTED])], False),
        (an_object("0", is_complete=True, successPolicy=INDEX_0_ENDS), [], False),
        (an_object("0,2", is_complete=True, successPolicy=INDEX_0_ENDS), [a_pod(0), a_pod(2, told_at="05")], True),
        (an_object("0-1", is_complete=True, parallelism=2), [a_pod(0), a_pod(1, told_at="05")], False),
        (an_object("0-1", is_complete=True, parallelism=2), [a_pod(0), a_pod(1)], True),
    ],
)
def test_job_has_completed_only_by_successes_that_are_some(
    job: JobObject, pods: Sequence[Pod], has_ended: bool
) -> None:
    at = seen(job, pods)
    assert at.kube_job is not None
    assert outcome_of(at.kube_job, pods, "a") == (JobCompleted(job_id="a") if has_ended else None)
    assert at.kube_job.is_broken(at.pods) != has_ended


@pytest.mark.parametrize(
    ("pods", "why"), [([a_pod(0, conditions=[DISRUPTED])], "before its program had finished"), ([], "nobody saw")]
)
def test_job_that_ended_by_a_void_success_is_made_anew_and_the_log_says_why(pods: Sequence[Pod], why: str) -> None:
    job = an_object("0", is_complete=True, successPolicy=INDEX_0_ENDS)
    [step] = steps(DesiredRun(("n1",)), seen(job, pods))
    assert isinstance(step, Unregister)
    assert why in void_text(step.reason)


def test_replica_0_without_a_success_policy_is_run_again_by_a_new_object() -> None:
    at = seen(an_object("0"), [a_pod(0, told_at="05"), a_pod(1, "Running")])
    assert at.kube_job is not None
    assert at.kube_job.object.is_void


@pytest.mark.parametrize("is_suspended", [False, True])
@pytest.mark.parametrize(("done", "is_made_anew"), [((0,), True), ((1,), False), ((0, 1), True)])
def test_job_of_which_all_replicas_below_a_void_success_are_done_is_made_anew_since_shrunk_it_would_be_complete(
    done: tuple[int, ...], is_made_anew: bool, is_suspended: bool
) -> None:
    void = max(done) + 1
    logged = a_job("a", max_replicas=4, uid="u1", first_started_at=1.0, done=done, done_of=4)
    job = an_object(",".join(map(str, (*done, void))), suspend=is_suspended)
    found = steps(DesiredRun(("n1",) * 4), seen(job, [a_pod(void, conditions=[DISRUPTED])], logged))
    assert any(isinstance(step, Unregister) for step in found) == is_made_anew
    if not (is_made_anew or is_suspended):
        assert [step.body for step in found if isinstance(step, Patch)] == [
            {"spec": {"parallelism": 2, "completions": 2}}
        ]


def a_gated_pod(number: int) -> Pod:
    pod = a_pod(number, "Pending")
    spec = msgspec.structs.replace(pod.spec, node_name="", scheduling_gates=({"name": "voda.dev/placement"},))
    return msgspec.structs.replace(pod, spec=spec)


def test_replicas_that_start_together_do_not_wait_for_one_that_is_done() -> None:
    rest: dict[str, Any] = {"parallelism": 3, "together": True}
    desired = DesiredRun(("n1",) * 3)
    # Replica 1 has failed, and its successor is there.
    [suspend] = steps(desired, seen(an_object("2", **rest), [a_gated_pod(0), a_gated_pod(1), a_pod(2)]))
    assert isinstance(suspend, Patch)
    assert suspend.body == {"spec": {"suspend": True}}
    [anew] = steps(desired, seen(an_object("0", **rest), [a_pod(0), a_gated_pod(1), a_gated_pod(2)]))
    assert isinstance(anew, Unregister)
    assert "all start anew" in void_text(anew.reason)
    [anew] = steps(desired, seen(an_object("0", suspend=True, **rest), [a_pod(0)]))
    assert isinstance(anew, Unregister)


@pytest.mark.parametrize(
    ("job", "pods"),
    [
        # The others are about to end too.
        (an_object("0", parallelism=2, together=True), [a_pod(0), a_pod(1, "Running")]),
        (an_object("0", parallelism=2, together=True, successPolicy=INDEX_0_ENDS), [a_pod(0), a_gated_pod(1)]),
        (an_object("0-1", parallelism=2, together=True, suspend=True), [a_pod(0), a_pod(1)]),
    ],
)
def test_job_whose_first_replica_is_done_is_not_made_anew_while_no_other_one_waits_for_it(
    job: JobObject, pods: Sequence[Pod]
) -> None:
    at = seen(job, pods)
    assert at.kube_job is not None
    assert not at.kube_job.object.is_void


@pytest.mark.parametrize("kind", [PyTorchJobV1(), MPIJobV1()])
@pytest.mark.parametrize("is_taken", [False, True])
def test_operators_success_by_a_pod_that_was_taken_is_none(kind: JobKind, is_taken: bool) -> None:
    metadata = {"name": "a", "namespace": "ns", "uid": "u1"}
    status = {"conditions": [{"type": "Succeeded", "status": "True"}]}
    job = msgspec.convert({"metadata": metadata, "status": status}, JobObject)
    role = "launcher" if isinstance(kind, MPIJobV1) else "worker"
    labels = {"training.kubeflow.org/job-name": "a", "training.kubeflow.org/job-role": role}
    owner = {"kind": kind.name, "name": "a", "uid": "u1"}
    own = {**metadata, "name": f"a-{role}-0", "labels": labels, "uid": "p0", "ownerReferences": [owner]}
    pod = {"metadata": own, "status": {"phase": "Succeeded", "conditions": [DISRUPTED] * is_taken}}
    found = KubeJob(kind, job).judged([msgspec.convert(pod, Pod)], STARTED)
    assert found.object.is_void == is_taken


@pytest.mark.parametrize("policy", [{}, {"ttlSecondsAfterFinished": 60}, {"cleanPodPolicy": "All"}])
@pytest.mark.parametrize("kind", [MPIJobV1(), MPIJobV2()])
def test_operators_success_by_a_launcher_that_is_gone_is_none_where_launchers_stay(
    kind: JobKind, policy: dict[str, Any]
) -> None:
    status = {"conditions": [{"type": "Succeeded", "status": "True"}]}
    body = {"metadata": {"name": "a", "namespace": "ns", "uid": "u1"}, "status": status, "spec": {"runPolicy": policy}}
    job = msgspec.convert(body, JobObject)
    assert KubeJob(kind, job).judged([], STARTED).object.is_void == (not policy)
    assert not KubeJob(kind, job).judged([], a_job("a", max_replicas=4, uid="u1")).object.is_void


def test_pod_that_others_delete_while_it_runs_is_not_counted_by_its_job() -> None:
    pods = [
        a_pod(0, "Running"),
        a_pod(1, "Running", told_at="05"),
        a_pod(2, told_at="05", ended_at="03"),
        a_pod(3, told_at="05"),
    ]
    assert to_untrack(pods) == [pods[1], pods[3]]


@pytest.mark.parametrize(
    ("rule", "done", "is_met"),
    [
        (SuccessRule(succeeded_indexes="0,2-3"), {0, 2, 3, 4}, True),
        (SuccessRule(succeeded_indexes="0,2-3"), {0, 2}, False),
        (SuccessRule(succeeded_indexes="0,2-3", succeeded_count=2), {0, 2}, True),
        (SuccessRule(succeeded_count=2), {1}, False),
        (SuccessRule(succeeded_count=2), {1, 5}, True),
    ],
)
def test_success_rule_is_met_by_all_or_so_many_of_its_indices(rule: SuccessRule, done: set[int], is_met: bool) -> None:
    assert rule.is_met_by(done) == is_met


def test_success_that_the_log_has_stands_though_its_pod_is_gone() -> None:
    job = an_object(is_complete=True)
    ended = a_job("a", max_replicas=4, uid="u1", first_started_at=1.0, done=(0,))
    assert not KubeJob(PyTorchJobV1(), job).judged([], ended).object.is_void
    assert KubeJob(PyTorchJobV1(), job).judged([], STARTED).object.is_void
