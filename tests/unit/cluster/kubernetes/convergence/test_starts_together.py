"""Replicas that only work with those that were started with them: all of them end and start anew, in one go."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from tests.builders import a_job
from voda.cluster.kubernetes.convergence.desired import DeletePods, DesiredRun, LiftGates, ObservedJob, Step
from voda.cluster.kubernetes.convergence.steps import steps
from voda.cluster.kubernetes.kinds.base import JobKind, Patch
from voda.cluster.kubernetes.kinds.indexed_job import IndexedJobV1
from voda.cluster.kubernetes.kinds.operator_pods import index
from voda.cluster.kubernetes.kinds.pytorchjob import PyTorchJobV1
from voda.cluster.kubernetes.objects import JobObject, Pod
from voda.cluster.kubernetes.state.job_objects import KubeJob, counted_failures

JOB, TORCH = IndexedJobV1(), PyTorchJobV1()
BOTH = DesiredRun(("n0", "n1"))
SUSPENDED = {TORCH: {"spec": {"runPolicy": {"suspend": True}}}, JOB: {"spec": {"suspend": True}}}
each_kind = pytest.mark.parametrize("kind", [JOB, TORCH], ids=["Job", "PyTorchJob"])


def an_object(
    kind: JobKind, *, suspend: bool = False, done: str = "", notes: Mapping[str, str] | None = None
) -> JobObject:
    """Return an object of two replicas."""
    roles = {"Worker": {"replicas": 2}}
    spec = {"suspend": suspend, "parallelism": 2, "runPolicy": {"suspend": suspend}, "pytorchReplicaSpecs": roles}
    annotations = {"voda.dev/job-id": "a", "voda.dev/starts-together": "true", **(notes or {})}
    metadata = {"name": "a", "namespace": "ns", "uid": "u1", "annotations": annotations}
    return msgspec.convert({"metadata": metadata, "spec": spec, "status": {"completedIndexes": done}}, JobObject)


def a_pod(kind: JobKind, index: int, phase: str = "Running", *, on: str = "", mark: str = "aaaaa", **more: Any) -> Pod:
    """Return replica `index`, on the node of its number; `mark` tells pods of one index apart."""
    is_gated, node = phase == "Pending", on or f"n{index}"
    name = f"a-{index}-{mark}" if kind is JOB else f"a-worker-{index}"
    label = "batch.kubernetes.io/job-name" if kind is JOB else "training.kubeflow.org/job-name"
    names = ("train", "sidecar")
    restarts = [{"name": name, **more.pop(name, {})} for name in names]
    raw = {
        "metadata": {
            "name": name,
            "namespace": "ns",
            "uid": f"{index}{mark}",
            "labels": {label: "a"},
            "annotations": {} if is_gated else {"voda.dev/node": node},
            **more,
        },
        "spec": {"schedulingGates": [{"name": "voda.dev/placement"}] if is_gated else [], "nodeName": node},
        "status": {"phase": phase, "containerStatuses": restarts},
    }
    raw["spec"]["containers"] = [{"name": name} for name in names]
    if is_gated:
        raw["spec"]["nodeName"] = ""
    return msgspec.convert(raw, Pod)


def again(code: int, reason: str = "Error") -> dict[str, Any]:
    """Return the status of a container that ended so and was started again in place."""
    return {"restartCount": 1, "lastState": {"terminated": {"exitCode": code, "reason": reason}}}


def todo(
    kind: JobKind, wanted: DesiredRun, job: JobObject, *pods: Pod, logged: Mapping[int, str] | None = None
) -> list[Step]:
    by_key = {pod.metadata.key: pod for pod in pods}
    at = ObservedJob(
        job_id="a",
        job=a_job("a", max_replicas=8, uid="u1", workers=logged or {}),
        kube_job=KubeJob(kind, job),
        workers=by_key,
        indices={key: number for key, pod in by_key.items() if (number := index(pod)) is not None},
        pods=by_key,
        dead_nodes={},
        now=1_000_000.0,
    )
    return list(steps(wanted, at))


def bodies(found: list[Step]) -> list[Any]:
    return [step.body if isinstance(step, Patch) else step for step in found]


@each_kind
def test_running_replicas_when_the_plan_has_more_or_fewer_all_end_at_once(kind: JobKind) -> None:
    here = (a_pod(kind, 0), a_pod(kind, 1))
    for wanted in (DesiredRun(("n0",)), DesiredRun(("n0", "n1", "n2"))):
        assert bodies(todo(kind, wanted, an_object(kind), *here)) == [SUSPENDED[kind]]
    assert todo(kind, BOTH, an_object(kind), *here) == []


@each_kind
def test_replicas_when_they_start_learn_their_number_together_and_none_before_all_are_there(kind: JobKind) -> None:
    waiting = (a_pod(kind, 0, "Pending"), a_pod(kind, 1, "Pending"))
    nodes = {pod.metadata.key: f"n{number}" for number, pod in enumerate(waiting)}
    assert todo(kind, BOTH, an_object(kind), *waiting) == [LiftGates(nodes, replicas=2)]
    assert todo(kind, BOTH, an_object(kind), waiting[0]) == []
    # One that has not begun waits for nobody yet.
    begins = a_pod(kind, 0, "Pending", annotations={"voda.dev/node": "n0"})
    begins = msgspec.structs.replace(begins, spec=msgspec.structs.replace(begins.spec, scheduling_gates=()))
    assert todo(kind, BOTH, an_object(kind), begins, waiting[1]) == [
        LiftGates({waiting[1].metadata.key: "n1"}, replicas=2)
    ]


@each_kind
def test_running_replica_when_another_one_came_anew_ends_with_it(kind: JobKind) -> None:
    assert bodies(todo(kind, BOTH, an_object(kind), a_pod(kind, 0), a_pod(kind, 1, "Pending"))) == [SUSPENDED[kind]]
    assert bodies(todo(kind, BOTH, an_object(kind), a_pod(kind, 0))) == [SUSPENDED[kind]]


def test_running_replica_when_another_one_fails_ends_and_the_job_controller_counts_it() -> None:
    here = (a_pod(JOB, 0), a_pod(JOB, 1, "Failed"))
    assert bodies(todo(JOB, BOTH, an_object(JOB), *here)) == [SUSPENDED[JOB]]
    # The failed pod stays: by it the Job controller knows how often the index has failed.
    [resumed] = bodies(todo(JOB, BOTH, an_object(JOB, suspend=True), here[1]))
    assert resumed["spec"] == {"suspend": False, "parallelism": 2, "completions": 2}
    # It is no replica of the next start.
    failed, again = here[1], a_pod(JOB, 0, "Pending")
    assert todo(JOB, BOTH, an_object(JOB), failed, again) == []
    [lifted] = todo(JOB, BOTH, an_object(JOB), failed, again, a_pod(JOB, 1, "Pending", mark="bbbbb"))
    assert lifted == LiftGates({"ns/a-0-aaaaa": "n0", "ns/a-1-bbbbb": "n1"}, replicas=2)


def test_replicas_of_an_operator_when_some_fail_are_one_failure_that_is_counted_before_they_go() -> None:
    here = (a_pod(TORCH, 0, "Failed"), a_pod(TORCH, 1, "Failed"))
    job = KubeJob(TORCH, an_object(TORCH, notes={"voda.dev/worker-failures": "2"}))
    assert counted_failures(job, here, here)["voda.dev/worker-failures"] == "3"
    found = bodies(todo(TORCH, BOTH, an_object(TORCH), a_pod(TORCH, 0), here[1]))
    assert found == [DeletePods(("ns/a-worker-1",), "ended"), SUSPENDED[TORCH]]


def test_replicas_of_an_operator_that_failed_are_kept_until_the_log_knows_of_all_so_that_they_count_once() -> None:
    here = (a_pod(TORCH, 0, "Failed"), a_pod(TORCH, 1, "Failed"))
    assert todo(TORCH, BOTH, an_object(TORCH), *here, logged={1: "n1"}) == []
    gone = DeletePods(("ns/a-worker-0", "ns/a-worker-1"), "ended")
    assert todo(TORCH, BOTH, an_object(TORCH), *here) == [gone]


@each_kind
def test_replica_that_its_kubelet_started_again_is_a_failure_of_all(kind: JobKind) -> None:
    here = (a_pod(kind, 0), a_pod(kind, 1, train=again(1)))
    found = bodies(todo(kind, BOTH, an_object(kind), *here))
    assert found == [DeletePods((here[1].metadata.key,), "ended"), SUSPENDED[kind]]
    # Killed by its memory's limit.
    here = (a_pod(kind, 0), a_pod(kind, 1, train=again(137, "OOMKilled")))
    assert len(todo(kind, BOTH, an_object(kind), *here)) == 2


@each_kind
@pytest.mark.parametrize(("code", "reason"), [(0, "Completed"), (137, "Error"), (143, "Error"), (255, "Unknown")])
def test_replica_that_was_started_again_after_a_reboot_or_a_signal_ends_all_and_is_no_failure(
    kind: JobKind, code: int, reason: str
) -> None:
    here = (a_pod(kind, 0), a_pod(kind, 1, train=again(code, reason)))
    assert bodies(todo(kind, BOTH, an_object(kind), *here)) == [SUSPENDED[kind]]


@each_kind
def test_sidecar_that_was_started_again_ends_nothing(kind: JobKind) -> None:
    here = (a_pod(kind, 0), a_pod(kind, 1, sidecar=again(1)))
    assert todo(kind, BOTH, an_object(kind), *here) == []


def test_container_that_trains_is_known_by_its_name_or_is_the_first() -> None:
    raw = {"containers": [{"name": "proxy"}, {"name": "pytorch"}]}
    statuses = [{"name": "proxy", **again(1)}, {"name": "pytorch"}]
    pod = msgspec.convert({"metadata": {"name": "a"}, "spec": raw, "status": {"containerStatuses": statuses}}, Pod)
    found = {kind: KubeJob(kind, an_object(kind)).was_restarted(pod) for kind in (JOB, TORCH)}
    assert found == {JOB: True, TORCH: False}


@each_kind
def test_running_replica_when_another_one_is_done_goes_on(kind: JobKind) -> None:
    assert todo(kind, BOTH, an_object(kind), a_pod(kind, 0), a_pod(kind, 1, "Succeeded")) == []
    assert todo(JOB, BOTH, an_object(JOB, done="1"), a_pod(JOB, 0)) == []


def test_job_that_starts_anew_forgets_which_of_its_replicas_were_done() -> None:
    [shrunk] = bodies(todo(JOB, BOTH, an_object(JOB, suspend=True, done="1")))
    assert shrunk == {"spec": {"parallelism": 1, "completions": 1}}
