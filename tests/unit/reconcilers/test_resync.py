"""The resync: facts that lead from what the log believes to what the cluster shows."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.builders import Log, a_job, a_node, a_spec, a_state
from voda.cluster.port import Observed
from voda.domain.gpus import ContainerGpus, GpuDevice, GpuRequest, Gpus
from voda.domain.reasons.nodes import Said
from voda.domain.reasons.requests import ObjectGone
from voda.domain.shares import PodShares, SharingNode
from voda.domain.state import ClusterState
from voda.events.types import (
    ExitCause,
    JobCanceled,
    JobCancelRequested,
    JobCompleted,
    JobFailed,
    JobRegistered,
    JobSubmitted,
    NodeChanged,
    NodeJoined,
    NodeLeft,
    NodeRoomChanged,
    WorkerExited,
    WorkerStarted,
)
from voda.projections.cluster.live_cluster import LiveCluster
from voda.reconcilers.resync import missing_facts

_JOBS = ("a", "b")
_NODES = ("n1", "n2")
_WORKERS = st.dictionaries(st.integers(0, 3), st.sampled_from(_NODES), max_size=4)


def showing(
    workers: Mapping[str, Mapping[int, str]], nodes: tuple[str, ...] = _NODES, ended: tuple[str, ...] = ()
) -> Observed:
    return Observed(
        nodes={name: a_node(name) for name in nodes},
        workers=workers,
        gpus_per_replica=dict.fromkeys(workers, Gpus(1)),
        ended={job_id: JobCompleted(job_id=job_id) for job_id in ended},
    )


def believing(workers: Mapping[int, str], planned: tuple[str, ...]) -> ClusterState:
    return a_state(
        jobs=[a_job("a", workers=workers)],
        nodes=[a_node("n1"), a_node("n2")],
        placement={"a": planned} if planned else {},
    )


def test_relist_when_the_log_is_right_finds_nothing() -> None:
    assert missing_facts(believing({0: "n1"}, ("n1",)), showing({"a": {0: "n1"}})) == ()


def test_relist_when_nodes_differ_tells_of_each() -> None:
    state = a_state(nodes=[a_node("gone"), a_node("n1", gpus=2)])
    assert missing_facts(state, showing({})) == (
        NodeLeft(name="gone", how="unseen"),
        NodeChanged(node=a_node("n1")),
        NodeJoined(node=a_node("n2")),
    )


def test_relist_when_others_leave_a_node_other_room_tells_of_that_alone() -> None:
    state = a_state(nodes=[a_node("n1", room={"cpu": 1_000}, labels={"zone": "a"}), a_node("n2")])
    nodes = {"n1": a_node("n1", room={"cpu": 2_000}, labels={"zone": "a"}), "n2": a_node("n2")}
    assert missing_facts(state, replace(showing({}), nodes=nodes)) == (NodeRoomChanged(name="n1", room={"cpu": 2_000}),)


def test_relist_when_a_job_ended_unseen_tells_its_end_then_its_workers() -> None:
    state = believing({0: "n1", 1: "n2"}, ("n1", "n2"))
    assert missing_facts(state, showing({}, ended=("a",))) == (
        JobCompleted(job_id="a"),
        WorkerExited(job_id="a", workers=(0, 1), cause="finished"),
    )


def test_relist_when_workers_are_gone_says_why_as_far_as_can_be_seen() -> None:
    state = believing({0: "n1", 1: "lost", 2: "n1", 3: "n1"}, ("n1", "lost", "n2"))
    seen = showing({"a": {2: "n2"}})
    facts = [fact for fact in missing_facts(state, seen) if isinstance(fact, WorkerExited)]
    assert {fact.cause: fact.workers for fact in facts} == {
        "failed": (0,),
        "node_lost": (1,),
        "migrated": (2,),
        "stopped": (3,),
    }


def test_relist_when_the_cluster_still_tells_why_a_worker_went_believes_it() -> None:
    observed = replace(showing({"a": {1: "n2"}}), exits={"a": {0: "evicted"}, "b": {0: "failed"}})
    state = believing({0: "n1", 1: "n2"}, ("n1", "n2"))
    assert missing_facts(state, observed) == (WorkerExited(job_id="a", workers=(0,), cause="evicted"),)


def test_relist_when_a_worker_moved_tells_that_it_left_before_it_came() -> None:
    facts = missing_facts(believing({0: "n1"}, ("n2",)), showing({"a": {0: "n2"}}))
    assert facts == (
        WorkerExited(job_id="a", workers=(0,), cause="migrated"),
        WorkerStarted(job_id="a", workers={0: "n2"}),
    )


def test_relist_when_one_job_has_what_another_left_tells_first_that_it_left() -> None:
    state = a_state(
        jobs=[a_job("a"), replace(a_job("b"), workers={0: "n1"})], nodes=[a_node("n1"), a_node("n2")], placement={}
    )
    assert missing_facts(state, showing({"a": {0: "n1"}})) == (
        WorkerExited(job_id="b", workers=(0,), cause="stopped"),
        WorkerStarted(job_id="a", workers={0: "n1"}),
    )


@pytest.mark.parametrize(
    ("end", "cause"),
    [
        (JobCompleted(job_id="a"), "finished"),
        (JobFailed(job_id="a", reason=Said(text="it broke")), "failed"),
        (JobCanceled(job_id="a"), "stopped"),
    ],
)
def test_relist_when_a_job_ended_and_nobody_told_of_its_workers_tells_those_that_are_gone(
    end: JobCompleted | JobFailed | JobCanceled, cause: ExitCause
) -> None:
    log, live = Log(), LiveCluster()

    def missing(workers: Mapping[int, str]) -> tuple[object, ...]:
        return missing_facts(live.state("default"), showing({"a": workers} if workers else {}, nodes=()))

    for fact in (JobSubmitted(spec=a_spec("a")), WorkerStarted(job_id="a", workers={0: "n1", 1: "n2", 2: "n2"}), end):
        live.apply(log.add(fact, at=0))
    first, last = (WorkerExited(job_id="a", workers=gone, cause=cause) for gone in ((0, 2), (1,)))
    assert missing({1: "n2"}) == (first,)
    live.load(live.dump())
    live.apply(log.add(first, at=1))
    assert missing({1: "n2"}) == ()
    assert missing({}) == (last,)
    live.apply(log.add(last, at=2))
    assert (missing({}), live.state("default").outlived) == ((), {})


def test_relist_when_a_job_is_not_live_leaves_its_workers_to_the_reconciler() -> None:
    assert missing_facts(a_state(nodes=[a_node("n1"), a_node("n2")]), showing({"ghost": {0: "n1"}})) == ()


def of_object(uid: str, *, is_canceling: bool = False) -> ClusterState:
    """A job whose object the log knows by `uid`."""
    return a_state(
        jobs=[a_job("a", uid=uid, is_canceling=is_canceling, workers={0: "n1"})],
        nodes=[a_node("n1"), a_node("n2")],
        placement={"a": ("n1",)},
    )


def showing_object(uid: str, ended: tuple[str, ...] = ()) -> Observed:
    seen = showing({"a": {0: "n1"}}, ended=ended)
    return replace(seen, objects={"a": uid} if uid else {})


def test_relist_when_a_job_has_an_object_that_the_log_does_not_know_tells_its_uid() -> None:
    assert missing_facts(of_object(""), showing_object("u1")) == (JobRegistered(job_id="a", uid="u1", kind="MPIJob"),)


def test_relist_when_a_job_has_its_object_or_none_yet_finds_nothing() -> None:
    assert missing_facts(of_object("u1"), showing_object("u1")) == ()
    assert missing_facts(of_object(""), showing_object("")) == ()


def test_relist_when_a_jobs_object_is_gone_or_another_ones_tells_that_it_is_canceled_although_workers_run() -> None:
    deleted, replaced = ObjectGone(object="MPIJob"), ObjectGone(object="MPIJob", is_replaced=True)
    assert missing_facts(of_object("u1"), showing_object("")) == (JobCancelRequested(job_id="a", reason=deleted),)
    assert missing_facts(of_object("u1"), showing_object("u2")) == (JobCancelRequested(job_id="a", reason=replaced),)


def test_relist_when_the_object_of_an_ending_job_is_gone_does_not_cancel_it() -> None:
    assert missing_facts(of_object("u1", is_canceling=True), showing_object("")) == ()
    told = missing_facts(of_object("u1"), showing_object("", ended=("a",)))
    assert told == (JobCompleted(job_id="a"),)


def test_relist_when_the_cluster_keeps_no_objects_asks_for_none() -> None:
    assert missing_facts(of_object("u1"), showing({"a": {0: "n1"}})) == ()


@given(
    before=st.fixed_dictionaries(dict.fromkeys(_JOBS, _WORKERS)),
    after=st.dictionaries(st.sampled_from(_JOBS), _WORKERS),
)
def test_relist_when_its_facts_are_recorded_finds_nothing_more(
    before: Mapping[str, Mapping[int, str]], after: Mapping[str, Mapping[int, str]]
) -> None:
    log, live = Log(), LiveCluster()
    for job_id in _JOBS:
        live.apply(log.add(JobSubmitted(spec=a_spec(job_id, max_replicas=4)), at=0))
        if before[job_id]:
            live.apply(log.add(WorkerStarted(job_id=job_id, workers=before[job_id]), at=1))
    seen = showing(after)
    for fact in missing_facts(live.state("default"), seen):
        live.apply(log.add(fact, at=2))
    assert missing_facts(live.state("default"), seen) == ()


def test_resync_when_a_failed_worker_is_tried_again_later_says_when() -> None:
    observed = replace(showing({}), exits={"a": {0: "failed"}}, retries={"a": 1008.0})
    assert missing_facts(believing({0: "n1"}, ("n1",)), observed) == (
        WorkerExited(job_id="a", workers=(0,), cause="failed", retry_at=1008.0),
    )


def an_account(**gpus: int) -> SharingNode:
    """Return the account of a node of two GPUs; job -> the GPU of which it has 250 milli."""
    pods = {
        job_id: PodShares(
            pod=f"default/{job_id}",
            containers={"share": ContainerGpus(gpus=(gpu,), request=GpuRequest(milli=250))},
            assigned_at=0.0,
        )
        for job_id, gpu in gpus.items()
    }
    return SharingNode(devices=(GpuDevice(), GpuDevice()), pods=pods)


def test_shares_when_the_log_has_others_are_released_before_those_of_the_cluster_are_assigned() -> None:
    believed = replace(believing({}, ()), shares={"n1": an_account(a=0, b=1)})
    shown = replace(showing({}), shares={"n1": an_account(b=0, c=1)})
    facts = [(type(fact).__name__, getattr(fact, "pod_uid", "")) for fact in missing_facts(believed, shown)]
    assert facts == [("ShareReleased", "a"), ("ShareReleased", "b"), ("ShareAssigned", "b"), ("ShareAssigned", "c")]
    assert missing_facts(believed, replace(shown, shares={"n1": an_account(a=0, b=1)})) == ()


def test_shares_when_the_cluster_gives_jobs_none_stay_as_the_log_has_them() -> None:
    assert missing_facts(replace(believing({}, ()), shares={"n1": an_account(a=0)}), showing({})) == ()


def test_shares_that_the_log_would_not_take_are_not_recorded_again_and_again() -> None:
    believed = replace(believing({}, ()), shares={"n1": an_account()})
    assert missing_facts(believed, replace(showing({}), shares={"n1": an_account(a=2)})) == ()
