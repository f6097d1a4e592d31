"""Whether a job ended, broke or goes on, and what its owner is told."""

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from voda.cluster.kubernetes.container_status import ContainerState, ContainerStatus, Terminated
from voda.cluster.kubernetes.kinds.base import JobKind
from voda.cluster.kubernetes.kinds.mpijob import MPIJobV1, MPIJobV2
from voda.cluster.kubernetes.kinds.operator_pods import exhausted, lost
from voda.cluster.kubernetes.kinds.pytorchjob import PyTorchJobV1
from voda.cluster.kubernetes.objects import (
    JobObject,
    JobObjectSpec,
    JobStatus,
    KubeCondition,
    KubeRunPolicy,
    ObjectMeta,
    OwnerReference,
    Pod,
    PodStatus,
    ReplicaStatus,
)
from voda.events.text.failures import failure_text
from voda.events.types import JobCompleted, JobFailed

ALL: tuple[JobKind, ...] = (MPIJobV1(), MPIJobV2(), PyTorchJobV1())
V1, V2, TORCH = ALL
_DONE = "2026-11-21T12:00:00Z"
_LAUNCHER = {"training.kubeflow.org/job-role": "launcher"}


def a_job(condition: KubeCondition | None = None, *, done: bool = True, **failed: int) -> JobObject:
    status = JobStatus(
        conditions=(KubeCondition(type="Running", status="False"), condition) if condition else (),
        completion_time=_DONE if done and condition else None,
        replica_statuses={role: ReplicaStatus(failed=count) for role, count in failed.items()},
    )
    return JobObject(metadata=ObjectMeta(name="digits", namespace="default"), status=status)


def a_failure(reason: str = "", message: str = "") -> KubeCondition:
    return KubeCondition(type="Failed", status="True", reason=reason, message=message)


def a_pod(name: str, *, code: int = 0, reason: str = "", phase: str = "Failed", **terminated: Any) -> Pod:
    ended = ContainerState(terminated=Terminated(exit_code=code, **terminated)) if code else ContainerState()
    is_launcher = "launcher" in name
    disrupted = KubeCondition(type="DisruptionTarget", status="True", reason=reason)
    return Pod(
        metadata=ObjectMeta(name=name, namespace="default", labels=_LAUNCHER if is_launcher else {}),
        status=PodStatus(
            phase=phase,
            reason=reason,
            conditions=(disrupted,) if reason == "Evicted" else (),
            container_statuses=(ContainerStatus(name="c", state=ended),),
        ),
    )


def reason_of(kind: JobKind, job: JobObject, *pods: Pod) -> str:
    end = kind.end(job, pods, "digits")
    assert isinstance(end, JobFailed)
    assert not kind.is_broken(job, pods), "an end and broken exclude each other"
    return failure_text(end.reason)


# ---- all kinds


@pytest.mark.parametrize("kind", ALL)
def test_job_without_conditions_goes_on(kind: JobKind) -> None:
    assert kind.end(a_job(), [], "digits") is None
    assert not kind.is_broken(a_job(), [])


@pytest.mark.parametrize("kind", ALL)
def test_job_that_succeeded_is_completed_whatever_became_of_its_workers(kind: JobKind) -> None:
    job = a_job(KubeCondition(type="Succeeded", status="True"), Worker=2)
    pods = [a_pod("digits-worker-0", reason="Evicted")]
    assert kind.end(job, pods, "digits") == JobCompleted(job_id="digits")
    assert not kind.is_broken(job, pods)


@pytest.mark.parametrize("kind", ALL)
def test_condition_that_is_not_true_says_nothing(kind: JobKind) -> None:
    job = a_job(KubeCondition(type="Failed", status="False", reason="MPIJobFailed"))
    assert kind.end(job, [], "digits") is None
    assert not kind.is_broken(job, [])


# ---- MPIJob v2beta1


def test_evicted_worker_of_v2_is_neither_an_end_nor_a_break() -> None:
    job = a_job(a_failure("MPIJobEvicted", "1/2 workers are evicted"), done=False, Worker=1)
    pods = [a_pod("digits-worker-1", reason="Evicted")]
    assert V2.end(job, pods, "digits") is None
    assert not V2.is_broken(job, pods)


def test_launcher_of_v2_that_failed_too_often_is_told_with_its_exit_code() -> None:
    job = a_job(a_failure("BackoffLimitExceeded", "Job has reached the specified backoff limit"))
    pods = [a_pod("digits-launcher-a", code=1), a_pod("digits-worker-0", code=9)]
    assert reason_of(V2, job, *pods) == (
        "digits-launcher-a ended with exit code 1; it failed more often than backoffLimit allows"
    )


def test_launcher_of_v2_that_took_too_long_is_told_so() -> None:
    job = a_job(a_failure("DeadlineExceeded", "Job was active longer than specified deadline"))
    assert reason_of(V2, job) == "it ran longer than activeDeadlineSeconds allows"


def test_launcher_whose_pods_are_gone_is_told_by_what_is_known() -> None:
    assert reason_of(V2, a_job(a_failure("MPIJobFailed", "MPIJob default/digits has failed"))) == (
        "its operator calls the MPIJob failed and gives no reason"
    )
    assert reason_of(V2, a_job(a_failure("PodFailurePolicy", "Container c failed\nsecond line"))) == (
        "PodFailurePolicy: Container c failed"
    )


def test_last_words_of_a_launcher_are_told_in_one_clean_line() -> None:
    pod = a_pod("digits-launcher-a", code=137, reason="", message="x" * 999 + "\nout\x1b[31m of memory\n")
    pod_reason = reason_of(V2, a_job(a_failure("MPIJobFailed")), pod)
    assert pod_reason == "digits-launcher-a ended with exit code 137: out[31m of memory"


def test_killed_for_memory_is_named() -> None:
    ended = Terminated(exit_code=137, reason="OOMKilled")
    status = ContainerStatus(name="c", restart_count=1, last_state=ContainerState(terminated=ended))
    pod = Pod(
        metadata=ObjectMeta(name="digits-launcher-a", labels=_LAUNCHER),
        status=PodStatus(phase="Running", container_statuses=(status,)),
    )
    assert "exit code 137 (OOMKilled)" in reason_of(V2, a_job(a_failure("MPIJobFailed")), pod)


# ---- MPIJob v1


@pytest.mark.parametrize(
    ("reason", "launchers", "workers"),
    [("MPIJobEvicted", 0, 1), ("MPIJobMPIJobFailed", 0, 1), ("NodeLost", 1, 0), ("MPIJobNodeLost", 1, 0)],
)
def test_v1_job_that_was_given_up_for_a_lost_pod_is_broken(reason: str, launchers: int, workers: int) -> None:
    failed = a_failure(reason, "MPIJob digits is failed because 1 Worker replica(s) failed.")
    job = a_job(failed, Launcher=launchers, Worker=workers)
    assert V1.is_broken(job, [])
    assert V1.end(job, [], "digits") is None


def test_v1_job_whose_launcher_failed_has_ended() -> None:
    job = a_job(a_failure("MPIJobFailed", "MPIJob default/digits has failed"), Launcher=1, Worker=1)
    assert reason_of(V1, job, a_pod("digits-launcher", code=3)) == "digits-launcher ended with exit code 3"
    assert reason_of(V1, job) == "its operator calls the MPIJob failed and gives no reason"


def test_v1_job_whose_launcher_was_evicted_is_broken() -> None:
    job = a_job(a_failure("MPIJobFailed"), Launcher=1)
    pods = [a_pod("digits-launcher", reason="Evicted")]
    assert V1.is_broken(job, pods)
    assert V1.end(job, pods, "digits") is None


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ("Job digits has failed because it has reached the specified backoff limit", "backoffLimit allows"),
        ("Job digits has failed because it was active longer than specified deadline", "activeDeadlineSeconds allows"),
    ],
)
def test_v1_job_that_hit_a_limit_has_ended_though_workers_failed_too(message: str, told: str) -> None:
    assert reason_of(V1, a_job(a_failure("MPIJobFailed", message), Worker=2)).endswith(told)


# ---- PyTorchJob


def test_torch_job_whose_worker_failed_by_itself_has_ended_with_that_workers_words() -> None:
    job = a_job(a_failure("PyTorchJobFailed", "PyTorchJob digits is failed because 2 Worker replica(s) failed."))
    pods = [a_pod("digits-worker-0", code=1), a_pod("digits-worker-1", reason="Evicted")]
    assert reason_of(TORCH, job, *pods).startswith("digits-worker-0 ended with exit code 1")


_TRACEBACK = 'Traceback (most recent call last):\n  File "train.py", line 4, in <module>\n'
_SUMMARY = f"""\
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
{"=" * 60}
train.py FAILED
{"-" * 60}
Root Cause (first observed failure):
[0]:
  rank      : 0 (local_rank: 0)
  exitcode  : {{}} (pid: 11157)
{"=" * 60}
"""


def test_worker_under_torchrun_is_told_with_its_ranks_words_and_code() -> None:
    job = a_job(a_failure("PyTorchJobFailed"))
    said = f"cannot open /data/shard-1\n{_SUMMARY.format(3)}"
    assert reason_of(TORCH, job, a_pod("digits-worker-0", code=1, message=said)) == (
        "digits-worker-0 ended with exit code 3: cannot open /data/shard-1"
    )
    killed = a_pod("digits-worker-0", code=1, message=f"epoch 1\n{_SUMMARY.format(-9)}")
    assert reason_of(TORCH, job, killed) == "digits-worker-0 was killed by signal 9: epoch 1"


def test_worker_that_only_speaks_of_anothers_end_is_not_the_one_that_is_told() -> None:
    job = a_job(a_failure("PyTorchJobFailed"))
    pods = [
        a_pod("digits-worker-0", code=1, message=f"{_TRACEBACK}ValueError: label 37 out of range"),
        a_pod("digits-worker-1", code=1, message=f"{_TRACEBACK}RuntimeError: Connection closed by peer [10.0.0.1]"),
    ]
    assert reason_of(TORCH, job, *pods) == "digits-worker-0 ended with exit code 1: ValueError: label 37 out of range"


def test_torch_job_that_only_lost_pods_is_broken() -> None:
    job = a_job(a_failure("PyTorchJobFailed"), Worker=1)
    pods = [a_pod("digits-worker-0", reason="Evicted"), a_pod("digits-worker-1", phase="Running")]
    assert TORCH.is_broken(job, pods)
    assert TORCH.end(job, pods, "digits") is None


def test_torch_job_without_a_trace_of_its_pods_has_ended() -> None:
    assert reason_of(
        TORCH, a_job(a_failure("PyTorchJobFailed", "x is failed because 1 Worker replica(s) failed."))
    ) == ("x is failed because 1 Worker replica(s) failed")


# ---- pods and limits


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        (a_pod("w", code=1), ""),
        (a_pod("w", reason="DeadlineExceeded"), ""),
        (a_pod("w", reason="Evicted"), "Evicted"),
        (a_pod("w", reason="OutOfnvidia.com/gpu"), "OutOfnvidia.com/gpu"),
        (a_pod("w", reason="NodeLost"), "NodeLost"),
        (a_pod("w", phase="Running", reason="Evicted"), ""),
    ],
)
def test_pod_that_its_node_lost_is_told_from_one_that_failed(pod: Pod, expected: str) -> None:
    assert lost(pod) == expected


def test_pod_that_was_disrupted_is_lost_whatever_its_exit_code() -> None:
    disrupted = KubeCondition(type="DisruptionTarget", status="True", reason="DeletionByTaintManager")
    pod = Pod(metadata=ObjectMeta(name="w"), status=PodStatus(phase="Failed", conditions=(disrupted,)))
    assert lost(pod) == "DeletionByTaintManager"


def limited(limit: int | None) -> JobObject:
    return JobObject(metadata=ObjectMeta(name="x"), spec=JobObjectSpec(run_policy=KubeRunPolicy(backoff_limit=limit)))


@pytest.mark.parametrize(("limit", "failures"), [(None, 6), (0, 0), (3, 3)])
def test_job_may_go_on_until_its_workers_failed_more_often_than_allowed(limit: int | None, failures: int) -> None:
    assert exhausted(limited(limit), failures) is None
    sentence = failure_text(exhausted(limited(limit), failures + 1))
    assert sentence.startswith("its workers failed by themselves")
    assert sentence.endswith(f"more often than backoffLimit {6 if limit is None else limit} allows")


# ---- what pods say, before the operator does


def succeeded(name: str, *, made: str = _DONE, **metadata: Any) -> Pod:
    pod = a_pod(name, phase="Succeeded")
    labels = {"training.kubeflow.org/job-name": "digits", **pod.metadata.labels}
    meta = replace(pod.metadata, creation_timestamp=made, **{"labels": labels, **metadata})
    return replace(pod, metadata=meta)


def a_running_job(replicas: int = 2) -> JobObject:
    worker = {"Worker": {"replicas": replicas}}
    spec = msgspec.convert({"mpiReplicaSpecs": worker, "pytorchReplicaSpecs": worker}, JobObjectSpec)
    meta = ObjectMeta(name="digits", namespace="default", uid="u1", creation_timestamp=_DONE)
    return JobObject(metadata=meta, spec=spec)


@pytest.mark.parametrize("kind", [V1, V2])
def test_job_whose_launcher_succeeded_is_completed_though_its_operator_has_not_said_so(kind: JobKind) -> None:
    assert kind.end(a_running_job(), [succeeded("digits-launcher-x")], "digits") == JobCompleted(job_id="digits")
    broken = replace(a_running_job(), status=a_job(a_failure("MPIJobEvicted"), done=False, Worker=1).status)
    assert not kind.is_broken(broken, [succeeded("digits-launcher-x")])
    assert kind.end(broken, [succeeded("digits-launcher-x")], "digits") == JobCompleted(job_id="digits")


def test_pytorchjob_of_which_all_ranks_succeeded_is_completed_and_not_before() -> None:
    both = [succeeded("digits-worker-0"), succeeded("digits-worker-1")]
    assert TORCH.end(a_running_job(), both, "digits") == JobCompleted(job_id="digits")
    assert TORCH.end(a_running_job(), both[:1], "digits") is None
    assert TORCH.end(a_running_job(3), both, "digits") is None


@pytest.mark.parametrize(
    "pod",
    [
        succeeded("digits-launcher-x", deletion_timestamp=_DONE),
        succeeded("digits-launcher-x", made="2026-11-20T12:00:00Z"),
        succeeded("digits-launcher-x", owner_references=(OwnerReference(kind="MPIJob", name="digits", uid="u0"),)),
    ],
    ids=["is deleted", "is older than the object", "is another object's"],
)
def test_launcher_that_did_not_end_by_itself_or_is_not_the_jobs_ends_nothing(pod: Pod) -> None:
    assert V2.end(a_running_job(), [pod], "digits") is None
