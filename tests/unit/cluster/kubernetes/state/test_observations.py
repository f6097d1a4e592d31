"""What is told of a job's object that goes, a wish to cancel or its end; and of workers that outlive their job."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from tests.builders import a_job
from tests.kube.trimmed import a_node_object, a_pod
from voda.cluster.kubernetes.kinds.pytorchjob import PyTorchJobV1
from voda.cluster.kubernetes.objects import JobObject, JobObjectSpec, Pod
from voda.cluster.kubernetes.state.inventory import Inventory
from voda.cluster.kubernetes.state.job_objects import KubeJob
from voda.cluster.kubernetes.state.nodes import PoolRule
from voda.cluster.kubernetes.state.observations import Observations
from voda.cluster.port import Notice
from voda.domain.job import Job, Phase
from voda.domain.reasons.failures import Exited
from voda.domain.reasons.requests import ObjectGone
from voda.events.types import (
    ExitCause,
    JobCancelRequested,
    JobCompleted,
    NodeChanged,
    NodeLeft,
    NodeRoomChanged,
    ProgramFailed,
    WorkerExited,
)

TORCH = PyTorchJobV1()
SUCCEEDED: dict[str, Any] = {
    "conditions": [{"type": "Succeeded", "status": "True"}],
    "completionTime": "2026-01-01T00:00:00Z",
}


class Told:
    """Notices of a cluster with one live job, `a`, whose object has the uid u1."""

    def __init__(self, job: Job | None = None) -> None:
        live = job or a_job("a", name="a", namespace="ns", uid="u1")
        self.live, self.past = {"a": live}, dict[str, Job]()
        self.inventory = Inventory(PoolRule(), self.live.get, self.past.get)
        self.inventory.put_node("n1", a_node_object("n1"))
        self.observations = Observations(self.inventory, lambda: 0.0)

    def see(self, job: JobObject) -> None:
        self.inventory.put_object(job.metadata.uid, TORCH, job)

    def lose(self, job: JobObject) -> None:
        self.observations.object_gone(KubeJob(TORCH, job))
        self.inventory.put_object(job.metadata.uid, TORCH, None)

    def end(self, phase: Phase, workers: Mapping[int, str]) -> None:
        """Have the log know the end of the job, and workers that outlive it."""
        self.past["a"] = replace(self.live.pop("a"), phase=phase, workers=workers)

    def run(self, *indices: int, phase: str = "Running") -> None:
        for index in indices:
            pod = a_worker(index, phase)
            self.inventory.put_pod(pod.metadata.key, pod)

    def look(self, desired: Mapping[int, str] | None = None) -> Sequence[Notice]:
        return tuple(fact for _, fact in self.observations.job_facts("a", desired or {}))


def an_object(uid: str = "u1", **status: Any) -> JobObject:
    metadata = {"name": "a", "namespace": "ns", "uid": uid, "annotations": {"voda.dev/job-id": "a"}}
    return msgspec.convert({"metadata": metadata, "status": status}, JobObject)


def a_worker(index: int, phase: str) -> Pod:
    metadata = {
        "name": f"a-worker-{index}",
        "namespace": "ns",
        "uid": f"pod-{index}",
        "labels": {"training.kubeflow.org/job-name": "a"},
        "annotations": {"voda.dev/job-id": "a"},
    }
    spec = {"nodeName": "n1", "schedulerName": "voda", "containers": [{"name": "pytorch"}]}
    return msgspec.convert({"metadata": metadata, "spec": spec, "status": {"phase": phase}}, Pod)


def test_workers_that_voda_ends_to_start_all_anew_were_not_evicted_and_one_that_was_started_again_failed() -> None:
    told = Told()
    told.see(an_object())
    told.run(0, 1)
    told.look()
    for index, restarts in ((0, 0), (1, 1)):
        last = {"terminated": {"exitCode": 3}} if restarts else {}
        again = {
            "status": {
                "phase": "Running",
                "containerStatuses": [{"name": "pytorch", "restartCount": restarts, "lastState": last}],
            }
        }
        raw = msgspec.to_builtins(a_worker(index, "Running")) | again
        told.inventory.put_pod(f"ns/a-worker-{index}", msgspec.convert(raw, Pod))
    told.see(replace(an_object(), spec=msgspec.convert({"suspend": True}, JobObjectSpec)))
    told.look()
    for index in (0, 1):
        told.inventory.put_pod(f"ns/a-worker-{index}", None)
    assert told.look({0: "n1", 1: "n1"}) == (
        WorkerExited(job_id="a", workers=(0,), cause="stopped"),
        WorkerExited(job_id="a", workers=(1,), cause="failed", exit_code=3),
        ProgramFailed(job_id="a", replica="a-worker-1", reason=Exited(exit_code=3), next_try=2, most_tries=7),
    )


def test_object_that_is_deleted_while_its_job_goes_on_cancels_it() -> None:
    told = Told()
    told.see(an_object())
    told.look()
    told.lose(an_object())
    assert told.look() == (JobCancelRequested(job_id="a", reason=ObjectGone(object="MPIJob")),)


def test_object_that_is_deleted_before_anybody_looked_at_its_end_tells_the_end() -> None:
    told = Told()
    told.see(an_object())
    told.look()
    told.see(an_object(**SUCCEEDED))
    told.lose(an_object(**SUCCEEDED))
    assert told.look() == (JobCompleted(job_id="a"),)
    assert told.look() == ()


def test_object_that_is_deleted_after_its_end_was_told_tells_nothing_more() -> None:
    told = Told()
    told.see(an_object(**SUCCEEDED))
    assert told.look() == (JobCompleted(job_id="a"),)
    told.lose(an_object(**SUCCEEDED))
    assert told.look() == ()


def test_end_that_an_object_told_before_this_replica_leads_is_known_when_it_begins() -> None:
    told = Told()
    told.see(an_object(**SUCCEEDED))
    told.lose(an_object(**SUCCEEDED))
    told.observations.begin([a_job("a", name="a", namespace="ns", uid="u1")])
    assert told.observations.ends == {"a": JobCompleted(job_id="a")}


def test_end_of_another_object_that_says_it_is_the_jobs_is_not_the_jobs() -> None:
    told = Told()
    told.see(an_object())
    told.look()
    told.lose(an_object("u2", **SUCCEEDED))
    assert told.look() == ()


@pytest.mark.parametrize(
    ("phase", "cause"), [(Phase.COMPLETED, "finished"), (Phase.FAILED, "failed"), (Phase.CANCELED, "stopped")]
)
def test_workers_that_outlive_their_job_are_told_when_they_go(phase: Phase, cause: ExitCause) -> None:
    told = Told()
    told.see(an_object())
    told.run(0, 1)
    told.look()
    told.end(phase, {0: "n1", 1: "n1"})
    assert told.look() == ()
    told.inventory.put_pod("ns/a-worker-1", None)
    assert told.look() == (WorkerExited(job_id="a", workers=(1,), cause=cause),)
    told.inventory.put_pod("ns/a-worker-0", None)
    assert told.look() == (WorkerExited(job_id="a", workers=(0,), cause=cause),)
    assert told.look() == ()


def test_replica_whose_pod_is_deleted_right_after_its_success_has_finished() -> None:
    told = Told()
    told.see(an_object())
    told.run(0, 1)
    told.look()
    told.see(an_object(completedIndexes="1"))
    told.inventory.put_pod("ns/a-worker-1", None)
    assert told.look() == (WorkerExited(job_id="a", workers=(1,), cause="finished", exit_code=0),)


def test_workers_that_went_after_their_jobs_end_while_nobody_led_are_left_to_the_relist() -> None:
    told = Told()
    told.run(1)
    told.end(Phase.COMPLETED, {0: "n1", 1: "n1"})
    told.observations.begin([])
    told.inventory.put_pod("ns/a-worker-1", None)
    assert told.look() == (WorkerExited(job_id="a", workers=(1,), cause="finished"),)


def test_room_that_others_leave_is_told_alone_only_when_it_is_asked_for_and_once() -> None:
    told = Told()
    told.observations.begin(told.live.values())
    other = a_pod("other", node="n1", requests={"cpu": "2", "memory": "1Gi"})
    told.inventory.put_pod("other", other)
    assert told.observations.node_facts("n1") == []
    (fact,) = (fact for _, fact in told.observations.room_facts())
    assert isinstance(fact, NodeRoomChanged)
    room = fact.room or {}
    assert (room["cpu"], room["memory"], room["pods"]) == (30_000, 255 * 2**30 * 1000, 109_000)
    assert told.observations.room_facts() == []


def test_room_that_is_as_before_again_is_not_told() -> None:
    told = Told()
    told.observations.begin(told.live.values())
    for other in (a_pod("other", node="n1"), None):
        told.inventory.put_pod("other", other)
        assert told.observations.node_facts("n1") == []
    assert told.observations.room_facts() == []


def test_room_is_told_with_what_else_changes_at_once() -> None:
    told = Told()
    told.observations.begin(told.live.values())
    told.inventory.put_pod("other", a_pod("other", node="n1"))
    assert told.observations.node_facts("n1") == []
    told.inventory.put_node("n1", a_node_object("n1", is_cordoned=True))
    ((_, fact),) = told.observations.node_facts("n1")
    assert isinstance(fact, NodeChanged)
    assert (fact.node.is_schedulable, (fact.node.room or {})["pods"]) == (False, 109_000)
    assert told.observations.room_facts() == []


def test_workers_and_pods_that_have_ended_leave_the_room_of_their_node_as_it_is() -> None:
    told = Told(a_job("a", name="a", namespace="ns", uid="u1", pool="a100"))
    told.observations.begin(told.live.values())
    told.see(an_object())
    told.run(0, 1)
    told.inventory.put_pod("over", a_pod("over", node="n1", phase="Succeeded", requests={"cpu": "2"}))
    told.inventory.put_pod("unbound", a_pod("unbound", requests={"cpu": "2"}))
    assert told.observations.node_facts("n1") == []
    assert told.observations.room_facts() == []


def test_node_that_leaves_while_its_room_has_changed_is_told_to_have_left_and_nothing_more() -> None:
    told = Told()
    told.observations.begin(told.live.values())
    told.inventory.put_pod("other", a_pod("other", node="n1"))
    told.observations.node_facts("n1")
    told.inventory.put_node("n1", None)
    assert [type(fact) for _, fact in told.observations.node_facts("n1")] == [NodeLeft]
    assert told.observations.room_facts() == []
