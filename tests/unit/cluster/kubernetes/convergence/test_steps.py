"""What is to be done next about a job, by what is wanted of it and what there is."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.builders import a_job
from voda.cluster.kubernetes.convergence.desired import (
    DeleteObject,
    DeletePods,
    Desired,
    DesiredHalt,
    DesiredRun,
    DesiredStop,
    LiftGates,
    ObservedJob,
    ReportObstacle,
    StartUnready,
    Step,
    Unregister,
)
from voda.cluster.kubernetes.convergence.steps import FORCE_AFTER_S, KILL_S, steps
from voda.cluster.kubernetes.kinds.base import Patch
from voda.cluster.kubernetes.kinds.indexed_job import IndexedJobV1
from voda.cluster.kubernetes.kinds.mpijob import MPIJobV1, MPIJobV2
from voda.cluster.kubernetes.kinds.operator_pods import index
from voda.cluster.kubernetes.kinds.pytorchjob import PyTorchJobV1
from voda.cluster.kubernetes.objects import JobObject, JobObjectSpec, Pod
from voda.cluster.kubernetes.state.job_objects import KubeJob

NOW = 1_000_000.0
"""1970-01-12T13:46:40Z."""
TOLD_TO_GO = "1970-01-12T13:46:30Z"
V2, V1, TORCH = MPIJobV2(), MPIJobV1(), PyTorchJobV1()


def an_object(*, replicas: int = 2, suspend: bool = False, **fields: Any) -> JobObject:
    spec = {"runPolicy": {"suspend": suspend}, "mpiReplicaSpecs": {"Launcher": {}, "Worker": {"replicas": replicas}}}
    given = fields.pop("metadata", {})
    annotations = {"voda.dev/job-id": "a", **given.pop("annotations", {})}
    metadata = {"name": "a", "namespace": "ns", "uid": "u1", "annotations": annotations, **given}
    return msgspec.convert({"metadata": metadata, "spec": spec, **fields}, JobObject)


def a_worker(index: int, node: str = "", phase: str = "Running", **fields: Any) -> Pod:
    metadata = {"name": f"a-worker-{index}", "namespace": "ns", "uid": f"p{index}", **fields.pop("metadata", {})}
    labels = {"training.kubeflow.org/job-name": "a", "training.kubeflow.org/job-role": "worker"}
    notes = {"voda.dev/node": node} if node else {}
    raw = {
        "metadata": {**metadata, "labels": labels, "annotations": notes},
        "spec": {"nodeName": node, "schedulingGates": [] if node else [{"name": "voda.dev/placement"}]},
        "status": {"phase": phase if node else "Pending", **fields},
    }
    return msgspec.convert(raw, Pod)


def going(index: int, node: str) -> Pod:
    return a_worker(index, node, metadata={"deletionTimestamp": TOLD_TO_GO})


def a_launcher(phase: str, **metadata: Any) -> Pod:
    named = {"name": "a-launcher", "namespace": "ns", "uid": "l", **metadata}
    return msgspec.convert({"metadata": named, "spec": {"nodeName": "gone"}, "status": {"phase": phase}}, Pod)


def todo(
    desired: Desired,
    job: JobObject | None = None,
    workers: Sequence[Pod] = (),
    *,
    kind: Any = V2,
    dead: Mapping[str, bool] | None = None,
    **fields: Any,
) -> list[Step]:
    pods = {pod.metadata.key: pod for pod in workers}
    at = ObservedJob(
        job_id="a",
        job=a_job("a", max_replicas=8, uid=fields.get("uid", "u1"), workers=fields.get("logged_workers", {})),
        kube_job=KubeJob(kind, job) if job is not None else None,
        workers=pods,
        indices={key: number for key, pod in pods.items() if (number := index(pod)) is not None},
        pods={**pods, **{pod.metadata.key: pod for pod in fields.get("others", ())}},
        dead_nodes=dead or {},
        now=fields.get("now", NOW),
        obstacle=fields.get("obstacle", ""),
        most_grace_s=fields.get("most_grace_s", math.inf),
        launcher_node=fields.get("launcher_node", ""),
    )
    return list(steps(desired, at))


def a_waiting_launcher(node: str = "") -> Pod:
    """Return a launcher without a node, whose gate was lifted for one, or was not."""
    metadata = {"name": "a-launcher-x", "namespace": "ns", "uid": "l", "annotations": {"voda.dev/node": node}}
    labels = {"training.kubeflow.org/job-name": "a", "training.kubeflow.org/job-role": "launcher"}
    gates = [] if node else [{"name": "voda.dev/placement"}]
    raw = {"metadata": {**metadata, "labels": labels}, "spec": {"schedulingGates": gates}}
    return msgspec.convert({**raw, "status": {"phase": "Pending"}}, Pod)


def body(step: Step) -> Any:
    assert isinstance(step, Patch)
    return step.body


def test_run_when_suspended_without_pods_resumes_with_the_size_in_one_patch() -> None:
    [step] = todo(DesiredRun(("n1", "n2", "n3")), an_object(suspend=True))
    assert body(step)["spec"]["runPolicy"]["suspend"] is False
    assert body(step)["spec"]["mpiReplicaSpecs"]["Worker"]["replicas"] == 3


def test_run_when_new_pods_would_be_in_vain_starts_nothing_lifts_no_gate_and_lets_be_what_runs() -> None:
    report = ReportObstacle("no template")
    assert todo(DesiredRun(("n1",)), an_object(suspend=True), obstacle="no template") == [report]
    workers = [a_worker(0, "n1"), a_worker(1)]
    assert todo(DesiredRun(("n1", "n2")), an_object(), workers, obstacle="no template") == [report]
    assert todo(DesiredRun(("n1",)), an_object(replicas=1), workers[:1], obstacle="no template") == []


def test_run_when_pods_of_before_still_leave_waits_for_them() -> None:
    assert todo(DesiredRun(("n1",)), an_object(suspend=True), [going(0, "n9")]) == []


@pytest.mark.parametrize(("job_id", "is_old"), [("", True), ("the-job-it-is-a-copy-of", True), ("a", False)])
def test_run_when_pods_were_made_before_the_object_was_taken_in_halts_it_until_they_are_gone(
    job_id: str, is_old: bool
) -> None:
    owner = [{"uid": "u1", "kind": "MPIJob", "name": "a", "controller": True}]
    made = a_worker(0, "n1", metadata={"ownerReferences": owner})
    notes = {**made.metadata.annotations, **({"voda.dev/job-id": job_id} if job_id else {})}
    before = replace(made, metadata=replace(made.metadata, annotations=notes))
    found = todo(DesiredRun(("n1",)), an_object(replicas=1), others=[before])
    assert [body(step) for step in found] == ([{"spec": {"runPolicy": {"suspend": True}}}] if is_old else [])


def test_run_when_not_made_ready_yet_waits() -> None:
    assert todo(DesiredRun(("n1",)), an_object(suspend=True, metadata={"annotations": {"voda.dev/job-id": ""}})) == []


def test_run_when_suspended_clears_what_the_operator_left_of_before() -> None:
    done = an_object(suspend=True, status={"conditions": [{"type": "Suspended", "status": "True"}]})
    over = a_worker(0, "n1", "Failed")
    assert todo(DesiredRun(("n1",)), done, [over]) == [DeletePods(("ns/a-worker-0",), "left over")]


def test_run_when_some_worker_has_no_pod_yet_binds_none() -> None:
    assert todo(DesiredRun(("n1", "n2")), an_object(), [a_worker(0)]) == []


def test_run_when_all_workers_have_pods_binds_them_together() -> None:
    assert todo(DesiredRun(("n1", "n2")), an_object(), [a_worker(0), a_worker(1)]) == [
        LiftGates({"ns/a-worker-0": "n1", "ns/a-worker-1": "n2"})
    ]


def test_run_when_a_crash_came_between_two_gates_lifts_the_rest() -> None:
    assert todo(DesiredRun(("n1", "n2")), an_object(), [a_worker(0, "n1"), a_worker(1)]) == [
        LiftGates({"ns/a-worker-1": "n2"})
    ]


def test_run_of_a_master_alone_keeps_its_spare_worker_from_holding_a_gpu() -> None:
    roles = {"Master": {"replicas": 1}, "Worker": {"replicas": 1}}
    spec = {"runPolicy": {}, "pytorchReplicaSpecs": roles, "elasticPolicy": {"minReplicas": 1, "maxReplicas": 4}}
    job = replace(an_object(), spec=msgspec.convert(spec, JobObjectSpec))
    alone = DesiredRun(("n1",))
    assert todo(alone, job, [a_worker(0), a_worker(1)], kind=TORCH) == [LiftGates({"ns/a-worker-0": "n1"}, replicas=1)]
    assert todo(alone, job, [a_worker(0, "n1"), a_worker(1)], kind=TORCH) == []


def test_run_when_the_size_differs_resizes_and_asks_nothing_of_pods_beyond() -> None:
    [step] = todo(DesiredRun(("n1",)), an_object(replicas=2), [a_worker(0, "n1"), a_worker(1, "n2")])
    assert body(step)["spec"]["mpiReplicaSpecs"]["Worker"]["replicas"] == 1


def test_run_when_a_worker_is_elsewhere_deletes_that_pod_alone() -> None:
    assert todo(DesiredRun(("n1", "n2")), an_object(), [a_worker(0, "n1"), a_worker(1, "n9")]) == [
        DeletePods(("ns/a-worker-1",), "misplaced")
    ]


def test_run_when_a_moved_worker_still_leaves_waits_for_its_name() -> None:
    assert todo(DesiredRun(("n1", "n2")), an_object(), [a_worker(0, "n1"), going(1, "n9")]) == []


def test_run_when_a_worker_failed_clears_it_away_so_that_its_successor_can_come() -> None:
    failed = a_worker(1, "n2", "Failed")
    assert todo(DesiredRun(("n1", "n2")), an_object(), [a_worker(0, "n1"), failed]) == [
        DeletePods(("ns/a-worker-1",), "ended")
    ]


def test_run_when_a_worker_failed_keeps_its_pod_until_the_log_knows_why() -> None:
    here = [a_worker(0, "n1"), a_worker(1, "n2", "Failed")]
    assert todo(DesiredRun(("n1", "n2")), an_object(), here, logged_workers={0: "n1", 1: "n2"}) == []
    assert todo(DesiredRun(("n1", "n2")), an_object(), here, logged_workers={0: "n1"}) != []
    # Another one of before: of this one it was never said that it came.
    assert todo(DesiredRun(("n1", "n2")), an_object(), here, logged_workers={0: "n1", 1: "n3"}) != []


def test_run_when_settled_does_nothing() -> None:
    assert todo(DesiredRun(("n1", "n2")), an_object(), [a_worker(0, "n1"), a_worker(1, "n2")]) == []


def test_run_when_the_object_has_ended_or_is_gone_does_nothing() -> None:
    done = an_object(suspend=True, status={"conditions": [{"type": "Succeeded", "status": "True"}]})
    assert todo(DesiredRun(("n1",)), done) == []
    assert todo(DesiredRun(("n1",)), None) == []
    assert todo(DesiredRun(("n1",)), an_object(suspend=True, metadata={"deletionTimestamp": TOLD_TO_GO})) == []


def test_run_when_workers_failed_more_often_than_allowed_does_nothing() -> None:
    tired = an_object(metadata={"annotations": {"voda.dev/worker-failures": "7"}})
    assert todo(DesiredRun(("n1",)), tired, [a_worker(0, "n1", "Failed")]) == []


def test_run_when_the_operator_gave_up_for_a_lost_worker_makes_the_object_anew() -> None:
    gave_up = an_object(
        status={"conditions": [{"type": "Failed", "status": "True", "reason": "MPIJobEvicted"}], "completionTime": "x"}
    )
    disrupted = {"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet"}
    lost = a_worker(1, "n2", "Failed", reason="Evicted", conditions=[disrupted])
    assert todo(DesiredRun(("n1", "n2")), gave_up, [a_worker(0, "n1"), lost], kind=V1) == [Unregister()]
    assert todo(DesiredRun(("n1", "n2")), gave_up, [a_worker(0, "n1"), lost], kind=V1, uid="") == [DeleteObject()]


def test_halt_when_running_suspends_and_leaves_the_size_alone() -> None:
    [step] = todo(DesiredHalt(), an_object(), [a_worker(0, "n1")])
    assert body(step) == {"spec": {"runPolicy": {"suspend": True}}}


def test_halt_when_suspended_waits_for_the_operator_then_clears_what_it_left() -> None:
    asked = an_object(suspend=True)
    done = an_object(suspend=True, status={"conditions": [{"type": "Suspended", "status": "True"}]})
    assert todo(DesiredHalt(), asked, [a_worker(2, "n1")]) == []
    assert todo(DesiredHalt(), done, [a_worker(2, "n1")]) == [DeletePods(("ns/a-worker-2",), "left over")]
    assert todo(DesiredHalt(), done, [going(2, "n1")]) == []


def test_halt_when_its_time_is_over_kills_the_pods_once_nothing_makes_them_anew() -> None:
    kill, done = DesiredHalt(is_kill=True), an_object(suspend=True)
    leaving = a_worker(1, "n1", metadata={"deletionTimestamp": "1970-01-12T14:46:40Z"})
    ended = a_worker(2, "n1", phase="Succeeded")
    [step] = todo(kill, an_object(), [leaving])
    assert body(step) == {"spec": {"runPolicy": {"suspend": True}}}
    [step] = todo(kill, done, [a_worker(0, "n1"), leaving, ended])
    assert step == DeletePods(("ns/a-worker-0", "ns/a-worker-1"), "overdue")
    assert todo(kill, done, [going(0, "n1")]) == []


def test_stop_when_an_admin_kills_gives_pods_a_second_and_a_little_later_none() -> None:
    kill = DesiredStop(is_unwanted=True, is_kill=True)
    leaving = a_worker(1, "n1", metadata={"deletionTimestamp": "2033-05-18T03:33:20Z"})
    assert todo(kill, an_object(), [leaving]) == [DeleteObject()]
    assert todo(kill, None, [a_worker(0, "n1"), leaving])[-1] == DeletePods(
        ("ns/a-worker-0", "ns/a-worker-1"), "overdue"
    )
    left_at = going(0, "n1").leaves_at
    assert todo(kill, None, [going(0, "n1")], now=left_at + KILL_S - 1) == []
    assert todo(kill, None, [going(0, "n1")], now=left_at + KILL_S) == [DeletePods(("ns/a-worker-0",), "lost")]
    assert todo(DesiredStop(is_unwanted=True), None, [going(0, "n1")], now=left_at + KILL_S) == []


def test_launcher_when_its_job_is_killed_has_no_more_time_than_the_workers() -> None:
    launcher = a_launcher("Running")
    late = DeletePods(("ns/a-launcher",), "overdue")
    kill = DesiredStop(is_unwanted=True, is_kill=True)
    # Nothing says whose it is once the object is gone.
    assert todo(kill, an_object(), [a_worker(0, "n1")], others=[launcher]) == [DeleteObject(), late]
    deleted = an_object(metadata={"deletionTimestamp": TOLD_TO_GO})
    assert todo(kill, deleted, others=[launcher]) == [late]
    assert todo(DesiredHalt(is_kill=True), an_object(suspend=True), others=[launcher]) == [late]
    # Its operator would make it anew.
    assert late not in todo(DesiredHalt(is_kill=True), an_object(), others=[launcher])
    told = a_launcher("Running", deletionTimestamp="1970-01-12T13:46:41Z")
    assert todo(kill, an_object(), others=[told]) == [DeleteObject()]
    assert todo(DesiredStop(is_unwanted=True), an_object(), others=[launcher]) == [DeleteObject()]


def test_pod_that_leaves_with_more_grace_than_counts_gets_less_whoever_deleted_it() -> None:
    def leaving(grace_s: int) -> Pod:
        deleted = {"deletionTimestamp": "2033-05-18T03:33:20Z", "deletionGracePeriodSeconds": grace_s}
        return a_worker(0, "n1", metadata=deleted)

    wanted = DesiredRun(("n1",))
    assert todo(wanted, an_object(replicas=1), [leaving(1_000_000_000)], most_grace_s=600.0) == [
        DeletePods(("ns/a-worker-0",), "slow")
    ]
    assert todo(wanted, an_object(replicas=1), [leaving(600)], most_grace_s=600.0) == []


@pytest.mark.parametrize("most_grace_s", [0.0, 0.5, 1.5])
def test_pod_that_leaves_with_the_least_grace_is_not_deleted_again_whatever_the_setting(most_grace_s: float) -> None:
    deleted = {"deletionTimestamp": "2033-05-18T03:33:20Z", "deletionGracePeriodSeconds": 1}
    at_work = [a_worker(0, "n1", metadata=deleted)]
    assert todo(DesiredRun(("n1",)), an_object(replicas=1), at_work, most_grace_s=most_grace_s) == []


def test_launcher_on_a_node_that_is_gone_is_given_up_unless_it_has_ended() -> None:
    def given_up(launcher: Pod) -> list[Step]:
        found = todo(DesiredRun(("n1",)), an_object(suspend=True), others=[launcher], dead={"gone": True})
        return [step for step in found if isinstance(step, DeletePods)]

    assert given_up(a_launcher("Running")) == [DeletePods(("ns/a-launcher",), "lost")]
    assert given_up(a_launcher("Failed", deletionTimestamp=TOLD_TO_GO))
    assert given_up(a_launcher("Succeeded")) == []


def test_stop_when_canceled_deletes_the_object() -> None:
    assert todo(DesiredStop(is_unwanted=True), an_object(), [a_worker(0, "n1")]) == [DeleteObject()]


def test_stop_when_finished_leaves_the_pods_that_have_ended_to_their_operator() -> None:
    done = an_object(status={"conditions": [{"type": "Succeeded", "status": "True"}]})
    pods = [a_worker(0, "n1", "Succeeded"), a_worker(1, "n1"), a_worker(2, "n1", "Failed")]
    assert todo(DesiredStop(is_unwanted=False), done, pods) == [DeletePods(("ns/a-worker-1",), "left over")]


def test_stop_when_workers_failed_too_often_suspends_or_the_operator_would_make_them_again() -> None:
    failing = an_object(metadata={"annotations": {"voda.dev/worker-failures": "99"}})
    [step] = todo(DesiredStop(is_unwanted=False), failing, [a_worker(0, "n1")])
    assert body(step) == {"spec": {"runPolicy": {"suspend": True}}}


def test_stop_when_finished_keeps_the_object_and_frees_its_gpus() -> None:
    done = an_object(status={"conditions": [{"type": "Succeeded", "status": "True"}]})
    expected = [DeletePods(("ns/a-worker-0",), "left over")]
    assert todo(DesiredStop(is_unwanted=False), done, [a_worker(0, "n1")]) == expected
    assert todo(DesiredStop(is_unwanted=True), done, [a_worker(0, "n1")]) == expected


def test_stop_when_the_log_calls_it_failed_suspends_what_still_runs() -> None:
    [step] = todo(DesiredStop(is_unwanted=False), an_object(), [a_worker(0, "n1")])
    assert body(step) == {"spec": {"runPolicy": {"suspend": True}}}


def test_pod_when_its_node_is_gone_is_deleted_by_force_at_once() -> None:
    pods = [a_worker(0, "n1"), a_worker(1, "gone")]
    first = todo(DesiredRun(("n1", "n2")), an_object(), pods, dead={"gone": True})[0]
    assert first == DeletePods(("ns/a-worker-1",), "lost")


def test_pod_when_its_node_is_silent_is_forced_only_after_its_grace() -> None:
    pods = [going(0, "silent")]
    wanted = DesiredRun(("n1",))
    assert todo(wanted, an_object(replicas=1), pods, dead={"silent": False}) == []
    late = todo(wanted, an_object(replicas=1), pods, dead={"silent": False}, now=NOW + FORCE_AFTER_S)
    assert late == [DeletePods(("ns/a-worker-0",), "lost")]


def test_torch_job_when_its_bounds_were_fixed_at_the_start_is_halted_to_pass_them() -> None:
    raw = {
        "metadata": {"name": "a", "namespace": "ns", "uid": "u1", "annotations": {"voda.dev/job-id": "a"}},
        "spec": {
            "elasticPolicy": {"minReplicas": 1, "maxReplicas": 2},
            "pytorchReplicaSpecs": {"Worker": {"replicas": 2}},
        },
    }
    job = msgspec.convert(raw, JobObject)
    [step] = todo(DesiredRun(("n1",) * 4), job, [a_worker(0, "n1")], kind=TORCH)
    assert body(step) == {"spec": {"runPolicy": {"suspend": True}}}


PHASES = st.sampled_from(["Pending", "Running", "Failed", "Succeeded"])


@given(
    sizes=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    pods=st.dictionaries(st.integers(0, 5), st.tuples(st.sampled_from(["", "n0", "n1", "n2"]), PHASES, st.booleans())),
    suspend=st.booleans(),
)
def test_steps_whatever_there_is_bind_only_whole_jobs_to_their_planned_nodes(
    sizes: tuple[int, int], pods: dict[int, tuple[str, str, bool]], suspend: bool
) -> None:
    planned = tuple(f"n{index}" for index in range(sizes[0]))
    workers = [
        a_worker(index, node, phase, metadata={"deletionTimestamp": TOLD_TO_GO} if leaves else {})
        for index, (node, phase, leaves) in pods.items()
    ]
    found = todo(DesiredRun(planned), an_object(replicas=sizes[1], suspend=suspend), workers)
    bound = {key: node for step in found if isinstance(step, LiftGates) for key, node in step.nodes.items()}
    assert all(planned[int(key.rpartition("-")[2])] == node for key, node in bound.items())
    if bound:
        there = {
            int(pod.metadata.name.rpartition("-")[2]) for pod in workers if not pod.is_leaving or pod.spec.node_name
        }
        assert set(range(sizes[0])) <= there


def test_running_job_when_some_nodes_are_not_said_yet_moves_what_is_misplaced_and_binds_none() -> None:
    workers = [a_worker(0), a_worker(1, "n1"), a_worker(2, "n3", "Failed")]
    assert todo(DesiredRun(("", "n2", "")), an_object(replicas=3), workers) == [
        DeletePods(("ns/a-worker-1",), "misplaced")
    ]
    workers = [a_worker(0), a_worker(1), a_worker(2, "n3")]
    assert todo(DesiredRun(("", "n2", "n3")), an_object(replicas=3), workers) == []


def a_plain_job(*, replicas: int = 2, suspend: bool = False, **status: Any) -> JobObject:
    metadata = {"name": "a", "namespace": "ns", "uid": "u1", "annotations": {"voda.dev/job-id": "a"}}
    spec = {"suspend": suspend, "parallelism": replicas, "completions": replicas}
    return msgspec.convert({"metadata": metadata, "spec": spec, "status": status}, JobObject)


def a_gated(number: int, *, node: str = "", lifted_for: str = "", phase: str = "Pending", name: str = "abcde") -> Pod:
    notes = {"voda.dev/job-id": "a"} | ({"voda.dev/node": lifted_for} if lifted_for else {})
    labels = {"batch.kubernetes.io/job-name": "a"}
    metadata = {"name": f"a-{number}-{name}", "namespace": "ns", "labels": labels, "annotations": notes}
    gates = [] if lifted_for or node else [{"name": "voda.dev/placement"}]
    spec = {"nodeName": node, "schedulingGates": gates}
    return msgspec.convert({"metadata": metadata, "spec": spec, "status": {"phase": phase}}, Pod)


JOB = IndexedJobV1()
BOTH = DesiredRun(("n1", "n2"))


def test_gates_when_all_replicas_have_a_pod_are_lifted_together() -> None:
    assert todo(BOTH, a_plain_job(), [a_gated(0)], kind=JOB) == []
    found = todo(BOTH, a_plain_job(), [a_gated(0), a_gated(1)], kind=JOB)
    assert found == [LiftGates({"ns/a-0-abcde": "n1", "ns/a-1-abcde": "n2"})]


def test_replica_whose_gate_was_lifted_is_waited_for_on_its_node_and_deleted_elsewhere() -> None:
    lifted = [a_gated(0, lifted_for="n1"), a_gated(1, lifted_for="n2")]
    assert todo(BOTH, a_plain_job(), lifted, kind=JOB) == []
    wrong = [a_gated(0, lifted_for="n1"), a_gated(1, lifted_for="n9")]
    assert todo(BOTH, a_plain_job(), wrong, kind=JOB) == [DeletePods(("ns/a-1-abcde",), "misplaced")]


def test_replica_that_says_itself_where_it_is_let_go_to_and_keeps_a_gate_of_its_own_is_not_there() -> None:
    found = a_gated(0, lifted_for="n1")
    spec = msgspec.structs.replace(found.spec, scheduling_gates=({"name": "example.com/own"},))
    own = msgspec.structs.replace(found, spec=spec)
    assert own.placed_on == ""
    there = [own, a_gated(1)]
    assert todo(BOTH, a_plain_job(), there, kind=JOB) == [DeletePods(("ns/a-0-abcde",), "misplaced")]


def test_failed_replica_of_a_plain_job_stays_and_its_successor_is_let_go() -> None:
    failed = a_gated(1, node="n2", phase="Failed")
    there = [a_gated(0, node="n1", phase="Running"), failed]
    assert todo(BOTH, a_plain_job(), there, kind=JOB) == []
    found = todo(BOTH, a_plain_job(), [*there, a_gated(1, name="fghij")], kind=JOB)
    assert found == [LiftGates({"ns/a-1-fghij": "n2"})]


def test_replica_that_succeeded_before_a_halt_is_not_waited_for() -> None:
    found = todo(BOTH, a_plain_job(completedIndexes="1"), [a_gated(0)], kind=JOB)
    assert found == [LiftGates({"ns/a-0-abcde": "n1"})]


def test_plain_job_is_resized_and_resumed_in_one_patch() -> None:
    [step] = todo(DesiredRun(("n1",) * 3), a_plain_job(), kind=JOB)
    assert body(step) == {"spec": {"parallelism": 3, "completions": 3}}
    [step] = todo(DesiredRun(("n1",) * 3), a_plain_job(suspend=True), kind=JOB)
    assert body(step) == {"spec": {"suspend": False, "parallelism": 3, "completions": 3}}


def unready_job(**spec: Any) -> JobObject:
    """Return a Job that was adopted, and not made ready yet, as a watch brought it."""
    metadata = {"name": "a", "namespace": "ns", "uid": "u1"}
    whole = {"metadata": metadata, "spec": {"suspend": True, "parallelism": 1, "completions": 1, **spec}}
    return replace(msgspec.convert(whole, JobObject), text=b"{}")


def test_suspended_job_that_is_not_ready_is_made_ready_by_its_start() -> None:
    assert todo(DesiredRun(("n1",)), unready_job(), kind=JOB) == [StartUnready(1)]
    report = ReportObstacle("no template")
    assert todo(DesiredRun(("n1",)), unready_job(), kind=JOB, obstacle="no template") == [report]


@pytest.mark.parametrize("spec", [{"suspend": False}, {"template": {"spec": {"subdomain": "a"}}}])
def test_job_that_runs_or_needs_a_service_is_made_ready_before_it_is_started(spec: dict[str, Any]) -> None:
    assert todo(DesiredRun(("n1",)), unready_job(**spec), kind=JOB) == []


def test_launcher_is_let_go_to_its_planned_node_with_the_workers_or_once_they_are_there() -> None:
    run, job = DesiredRun(("n1", "n2")), an_object()
    others = [a_waiting_launcher()]
    assert todo(run, job, [a_worker(0)], others=others, launcher_node="n2") == []
    waiting = todo(run, job, [a_worker(0), a_worker(1)], others=others, launcher_node="n2")
    launcher = LiftGates({"ns/a-launcher-x": "n2"})
    assert waiting == [launcher, LiftGates({"ns/a-worker-0": "n1", "ns/a-worker-1": "n2"})]
    there = [a_worker(0, "n1"), a_worker(1, "n2")]
    assert todo(run, job, there, others=others, launcher_node="n2") == [launcher]
    # Another that is made anew while a job grows does not wait for what grows.
    assert todo(run, job, there[:1], others=others, launcher_node="n2") == [launcher]
    assert todo(run, job, there, others=[a_waiting_launcher("n2")], launcher_node="n2") == []
    assert todo(run, job, there, others=[a_waiting_launcher("n2")], launcher_node="n1") == [
        DeletePods(("ns/a-launcher-x",), "misplaced")
    ]


def test_launcher_that_asks_for_no_gpu_any_more_is_let_go_anywhere() -> None:
    there = [a_worker(0, "n1"), a_worker(1, "n2")]
    found = todo(DesiredRun(("n1", "n2")), an_object(), there, others=[a_waiting_launcher()])
    assert found == [LiftGates({"ns/a-launcher-x": ""})]
