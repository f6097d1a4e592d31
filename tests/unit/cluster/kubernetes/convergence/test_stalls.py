"""What a job waits for, by what its object and its pods show, and when that is told."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from tests.builders import a_spec
from voda.cluster.kubernetes.convergence.stalls import Stall, stall_of
from voda.cluster.kubernetes.convergence.steps import Desired, DesiredHalt, DesiredRun, Situation
from voda.cluster.kubernetes.kinds.mpijob import MPIJobV2
from voda.cluster.kubernetes.objects import JobObject, Pod
from voda.cluster.kubernetes.state.job_objects import KubeJob

NOW = 1_000_000.0
GONE_BEFORE, GONE_LATER = "1970-01-12T13:46:30Z", "1970-01-12T13:47:00Z"
HERE = DesiredRun(("n1", "n1"))


def a_worker(index: int, node: str = "n1", phase: str = "Running", **fields: Any) -> Pod:
    return _pod(f"a-worker-{index}", "worker", node, phase, **fields)


def a_launcher(node: str = "n2", phase: str = "Running", **fields: Any) -> Pod:
    return _pod("a-launcher-x7", "launcher", node, phase, **fields)


def waiting(reason: str, *, init: bool = False) -> dict[str, Any]:
    status = {"name": "train", "state": {"waiting": {"reason": reason, "message": "back-off 40s"}}}
    return {"initContainerStatuses" if init else "containerStatuses": [status]}


def wait(desired: Desired, pods: Sequence[Pod], unbound_reasons: str = "", **fields: Any) -> Stall:
    metadata = {"name": "a", "namespace": "ns", "uid": "u1", **fields.get("metadata", {})}
    spec = {"runPolicy": {"suspend": fields.get("suspend", False)}}
    whole = {"metadata": metadata, "spec": spec, "status": fields.get("status", {})}
    workers = {pod.metadata.key: pod for pod in pods if "worker" in pod.metadata.name}
    at = Situation(
        job_id="a",
        uid="u1",
        spec=a_spec("a", max_replicas=2),
        kube_job=KubeJob(MPIJobV2(), msgspec.convert(whole, JobObject)),
        workers=workers,
        indices={key: int(key.rpartition("-")[2]) for key in workers},
        logged_workers={},
        pods={pod.metadata.key: pod for pod in pods},
        dead_nodes={},
        now=NOW,
    )
    return stall_of(desired, at, unbound_reasons)


def test_job_that_runs_waits_for_nothing() -> None:
    assert wait(HERE, [a_worker(0), a_worker(1), a_launcher()]) == Stall()


def test_job_whose_operator_makes_no_pods_waits_for_it() -> None:
    assert "mpi-operator" in wait(HERE, [a_worker(0)]).reason


@pytest.mark.parametrize("reason", ["ErrImagePull", "ImagePullBackOff"])
def test_worker_without_its_image_is_told_alike_at_each_try(reason: str) -> None:
    stall = wait(HERE, [a_worker(0), a_worker(1, phase="Pending", **waiting(reason))])
    assert stall == Stall("worker 1 on n1: container train cannot pull its image")


def test_container_that_cannot_be_started_is_told_with_the_kubelets_word() -> None:
    broken = a_worker(0, phase="Pending", **waiting("CreateContainerConfigError"))
    assert wait(HERE, [broken, a_worker(1)]).reason.endswith("does not start: CreateContainerConfigError")
    looping = a_worker(0, **waiting("CrashLoopBackOff", init=True))
    assert wait(HERE, [looping, a_worker(1)]).reason.endswith("does not start: CrashLoopBackOff")


def test_container_that_is_being_made_may_take_longer() -> None:
    stall = wait(HERE, [a_worker(0, phase="Pending", **waiting("ContainerCreating")), a_worker(1)])
    assert stall == Stall("worker 0 on n1 has not started yet", may_take_long=True)


def test_what_may_take_long_hides_nothing_that_does_not() -> None:
    slow, stuck = a_worker(0, phase="Pending"), a_worker(1, phase="Pending", **waiting("ErrImagePull"))
    assert wait(HERE, [slow, stuck]).reason == "worker 1 on n1: container train cannot pull its image"


def test_launcher_that_nobody_finds_a_node_for_is_told() -> None:
    stall = wait(HERE, [a_worker(0), a_worker(1), a_launcher("", "Pending")])
    assert stall.reason.startswith("its launcher a-launcher-x7 has no node")


def test_launcher_without_its_image_is_told() -> None:
    stuck = a_launcher(phase="Pending", **waiting("ImagePullBackOff"))
    assert wait(HERE, [a_worker(0), a_worker(1), stuck]).reason.startswith("its launcher on n2: container train")


def test_workers_that_are_gated_or_do_not_fit_are_told() -> None:
    gated = a_worker(0, "", "Pending", gates=[{"name": "quota"}])
    assert "scheduling gates quota" in wait(HERE, [gated, a_worker(1)]).reason
    assert wait(HERE, [a_worker(0, "", "Pending"), a_worker(1)], "node n1 is full") == Stall("node n1 is full")
    assert wait(HERE, [a_worker(0), a_worker(1)], "node n1 is full") == Stall()


def test_pod_that_does_not_go_is_told_when_its_grace_is_over() -> None:
    for stamp, is_told in ((GONE_LATER, False), (GONE_BEFORE, True)):
        stuck = a_worker(1, deleted_at=stamp)
        assert bool(wait(HERE, [a_worker(0), stuck], suspend=True).reason) == is_told


def test_halted_job_waits_for_an_operator_that_leaves_its_pods() -> None:
    assert "training-operator" not in wait(DesiredHalt(), [a_worker(0)], suspend=True).reason
    assert "mpi-operator" in wait(DesiredHalt(), [a_worker(0)], suspend=True).reason
    assert wait(DesiredHalt(), [a_worker(0, deleted_at=GONE_LATER)], suspend=True) == Stall()


def test_job_that_has_ended_waits_for_nothing() -> None:
    succeeded = {"conditions": [{"type": "Succeeded", "status": "True"}]}
    assert wait(HERE, [], status=succeeded) == Stall()
    assert wait(HERE, [], metadata={"deletionTimestamp": GONE_BEFORE}) == Stall()


def _pod(name: str, role: str, node: str, phase: str, **fields: Any) -> Pod:
    labels = {"training.kubeflow.org/job-name": "a", "training.kubeflow.org/job-role": role}
    metadata = {"name": name, "namespace": "ns", "uid": name, "labels": labels}
    if "deleted_at" in fields:
        metadata["deletionTimestamp"] = fields.pop("deleted_at")
    spec = {"nodeName": node, "schedulingGates": fields.pop("gates", [])}
    return msgspec.convert({"metadata": metadata, "spec": spec, "status": {"phase": phase, **fields}}, Pod)
