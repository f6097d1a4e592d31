"""The live state: what each fact changes, that a snapshot with its tail equals the whole log, and its format."""

from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import Log, a_node, a_spec
from voda.domain.cells import CellsSpec, GangPod, GangRequest, QuotaSpec, VirtualClusterSpec, WorkerCells
from voda.domain.gpus import ContainerGpus, GpuDevice, GpuRequest, Gpus
from voda.domain.job import Job, Phase
from voda.domain.reasons.nodes import Said
from voda.domain.reasons.outcomes import Waits
from voda.domain.reasons.requests import Requested
from voda.domain.settings import Settings
from voda.events.text.nodes import refusal_text
from voda.events.types import (
    AnyFact,
    GangJoined,
    GangLeft,
    GangPlaced,
    JobCanceled,
    JobCancelRequested,
    JobChanged,
    JobCompleted,
    JobFailed,
    JobFolderDeleted,
    JobHaltRequested,
    JobProgressed,
    JobQueueLevelChanged,
    JobRegistered,
    JobResumeRequested,
    JobSilent,
    JobStalled,
    JobSubmitted,
    NodeChanged,
    NodeDrainRequested,
    NodeJoined,
    NodeLeft,
    NodeRoomChanged,
    NodeUndrainRequested,
    PlanAdopted,
    ProgramFailed,
    SettingsChanged,
    ShareAssigned,
    ShareReleased,
    ShareRequested,
    ShareRequestWithdrawn,
    VirtualClustersApplied,
    WorkerExited,
    WorkerGpuSick,
    WorkerRefused,
    WorkerStarted,
)
from voda.projections.cluster.live_cluster import LiveCluster
from voda.projections.cluster.pool_changes import LivePool
from voda.projections.live import Live


def folded(log: Log) -> LiveCluster:
    live = LiveCluster()
    for event in log.events:
        live.apply(event)
    return live


def a_running_job() -> Log:
    log = Log()
    log.add(JobSubmitted(spec=a_spec("a", max_replicas=4, gpus_per_replica=2)), at=0)
    log.add(WorkerStarted(job_id="a", workers={0: "n1", 1: "n1"}), at=10)
    return log


def test_job_when_submitted_is_undecided_until_a_plan_considered_it() -> None:
    log = Log()
    log.add(JobSubmitted(spec=a_spec("a")), at=0)
    assert folded(log).undecided("default") == {"a"}
    log.add(PlanAdopted(pool="default", number=1, based_on=1, policy="fifo", placer="steady", cause="x"), at=1)
    live = folded(log)
    assert live.undecided("default") == frozenset()
    assert live.state("default").jobs["a"].phase is Phase.WAITING


def test_job_when_submitted_after_the_decision_was_based_stays_undecided() -> None:
    log = Log()
    log.add(JobSubmitted(spec=a_spec("a")), at=0)
    log.add(PlanAdopted(pool="default", number=1, based_on=0, policy="fifo", placer="steady", cause="x"), at=1)
    assert folded(log).undecided("default") == {"a"}


def test_totals_when_workers_come_and_go_count_time_and_gpus() -> None:
    log = a_running_job()
    log.add(WorkerExited(job_id="a", workers=(1,)), at=20)
    log.add(WorkerExited(job_id="a", workers=(0,)), at=25)
    job = folded(log).state("default").jobs["a"]
    assert (job.waiting_s, job.running_s, job.attained_service_gpu_s) == (10, 15, 10 * 4 + 5 * 2)
    assert (job.phase, job.last_halted_at, job.last_run_s) == (Phase.WAITING, 25, 15)
    assert job.waiting_by(30) == 15


def test_service_since_start_when_started_again_begins_anew() -> None:
    log = a_running_job()
    log.add(WorkerExited(job_id="a", workers=(0, 1)), at=20)
    log.add(WorkerStarted(job_id="a", workers={0: "n1"}), at=30)
    job = folded(log).state("default").jobs["a"]
    assert job.service_since_start_by(35) == 10
    assert job.service_by(35) == 50
    assert (job.restarts, job.first_started_at, job.last_started_at) == (1, 10, 30)


def test_job_when_all_its_workers_move_is_not_halted() -> None:
    log = a_running_job()
    log.add(WorkerExited(job_id="a", workers=(0, 1), cause="migrated"), at=20)
    log.add(WorkerStarted(job_id="a", workers={0: "n2", 1: "n2"}), at=20)
    job = folded(log).state("default").jobs["a"]
    assert (job.restarts, job.last_halted_at, job.last_started_at) == (0, None, 10)
    assert dict(job.workers) == {0: "n2", 1: "n2"}


@pytest.mark.parametrize(("kind", "done"), [("Job", (1,)), ("JobSet", (1,)), ("MPIJob", ())])
def test_replica_that_finishes_is_done_for_good_where_its_kind_says_so(kind: str, done: tuple[int, ...]) -> None:
    log = Log()
    log.add(JobSubmitted(spec=a_spec("a", kind=kind, max_replicas=2)), at=0)
    log.add(WorkerStarted(job_id="a", workers={0: "n1", 1: "n1"}), at=10)
    log.add(WorkerExited(job_id="a", workers=(1,), cause="finished"), at=20)
    log.add(WorkerExited(job_id="a", workers=(0,), cause="failed"), at=21)
    assert folded(log).state("default").jobs["a"].done == done
    log.add(WorkerStarted(job_id="a", workers={1: "n1"}), at=22)
    assert folded(log).state("default").jobs["a"].done == ()


def test_replicas_are_done_of_one_object_alone() -> None:
    log = Log()
    log.add(JobSubmitted(spec=a_spec("a", kind="Job", max_replicas=2)), at=0)
    log.add(JobRegistered(job_id="a", uid="u1", kind="Job"), at=1)
    log.add(WorkerStarted(job_id="a", workers={0: "n1", 1: "n1"}), at=10)
    log.add(WorkerExited(job_id="a", workers=(1,), cause="finished"), at=20)
    log.add(JobRegistered(job_id="a", uid="u1", kind="Job"), at=21)
    assert folded(log).state("default").jobs["a"].done == (1,)
    log.add(JobRegistered(job_id="a", uid="u2", kind="Job"), at=22)
    assert folded(log).state("default").jobs["a"].done == ()


def test_replicas_that_were_done_may_run_again_where_their_job_is_stuck_and_its_size_stays() -> None:
    log = Log()
    log.add(JobSubmitted(spec=a_spec("a", kind="JobSet", max_replicas=4)), at=0)
    placed = {"a": ("n1",) * 3}
    log.add(PlanAdopted(pool="default", number=1, based_on=1, policy="f", placer="s", cause="x", placed=placed), at=5)
    log.add(WorkerStarted(job_id="a", workers={0: "n1", 1: "n1", 2: "n1"}), at=10)
    log.add(WorkerExited(job_id="a", workers=(0,), cause="finished"), at=20)
    log.add(WorkerExited(job_id="a", workers=(1, 2), cause="failed"), at=21)
    log.add(JobStalled(job_id="a", reason=Said(text="worker 1 has no pod"), at_work=1, run_again=()), at=22)
    assert folded(log).state("default").jobs["a"].done == (0,)
    log.add(JobStalled(job_id="a", reason=Said(text="worker 0 has 0 GPUs free"), run_again=(0,)), at=23)
    job = folded(log).state("default").jobs["a"]
    assert (job.done, job.done_of) == ((), 3)
    log.add(WorkerStarted(job_id="a", workers={0: "n1", 1: "n1", 2: "n1"}), at=30)
    assert folded(log).state("default").jobs["a"].done_of == 0


def test_replicas_that_were_done_may_all_run_again_where_an_older_voda_says_that_their_job_is_stuck() -> None:
    """Its plans gave them GPUs from then on."""
    log = Log()
    log.add(JobSubmitted(spec=a_spec("a", kind="Job", max_replicas=2)), at=0)
    log.add(WorkerStarted(job_id="a", workers={0: "n1", 1: "n1"}), at=10)
    log.add(WorkerExited(job_id="a", workers=(0,), cause="finished"), at=20)
    log.add(JobStalled(job_id="a"), at=21)
    assert folded(log).state("default").jobs["a"].done == (0,)
    log.add(JobStalled(job_id="a", reason=Said(text="worker 0 has 0 GPUs free")), at=22)
    assert folded(log).state("default").jobs["a"].done == ()


@pytest.mark.parametrize("end", [JobCompleted(job_id="a"), JobFailed(job_id="a", reason=Said(text="out of memory"))])
def test_job_when_ended_leaves_the_live_state(end: AnyFact) -> None:
    log = a_running_job()
    log.add(end, at=50)
    log.add(WorkerExited(job_id="a", workers=(0, 1), cause="finished"), at=51)
    assert folded(log).state("default").jobs == {}


def test_job_when_it_ends_without_ever_being_placed_leaves_no_reason_behind() -> None:
    log = Log()
    log.add(JobSubmitted(spec=a_spec("a")), at=0)
    plan = PlanAdopted(
        pool="default", number=1, based_on=1, policy="fifo", placer="steady", cause="x", reasons={"a": Waits()}
    )
    log.add(plan, at=1)
    log.add(JobCanceled(job_id="a"), at=2)
    assert folded(log).plan("default").reasons == {}


def test_job_when_submitted_twice_keeps_its_first_wishes() -> None:
    log = a_running_job()
    log.add(JobSubmitted(spec=a_spec("a", max_replicas=8)), at=11)
    assert folded(log).state("default").jobs["a"].spec.max_replicas == 4


def test_changed_bounds_when_below_the_request_lower_it() -> None:
    log = Log()
    log.add(JobSubmitted(spec=a_spec("a", max_replicas=8, requested_replicas=6)), at=0)
    log.add(JobChanged(job_id="a", max_replicas=3, priority=7), at=1)
    spec = folded(log).state("default").jobs["a"].spec
    assert (spec.min_replicas, spec.requested, spec.max_replicas, spec.priority) == (1, 3, 3, 7)


def test_changed_bounds_when_they_exclude_each_other_change_nothing() -> None:
    log = Log()
    log.add(JobSubmitted(spec=a_spec("a", max_replicas=4)), at=0)
    log.add(JobChanged(job_id="a", min_replicas=9), at=1)
    assert folded(log).state("default").jobs["a"].spec == a_spec("a", max_replicas=4)


def test_progress_when_reported_out_of_order_never_goes_back() -> None:
    log = a_running_job()
    log.add(JobProgressed(job_id="a", epochs_done=5, workers=2), at=20)
    log.add(JobProgressed(job_id="a", epochs_done=4, workers=2), at=21)
    assert folded(log).state("default").jobs["a"].epochs_done == 5


def test_node_when_it_changes_its_pool_leaves_the_old_one() -> None:
    log = Log()
    log.add(NodeJoined(node=a_node("n1", gpus=4)), at=0)
    log.add(NodeChanged(node=a_node("n1", gpus=8, pool="v100")), at=1)
    live = folded(log)
    assert live.state("default").nodes == {}
    assert live.state("v100").capacity_gpus == 8
    log.add(NodeLeft(name="n1", pool="v100"), at=2)
    assert folded(log).state("v100").nodes == {}


def test_node_when_its_room_changes_is_otherwise_as_before() -> None:
    log = Log()
    log.add(NodeJoined(node=a_node("n1", labels={"zone": "a"}, room={"cpu": 1_000})), at=0)
    log.add(NodeRoomChanged(name="n1", room={"cpu": 500, "pods": 1_000}), at=1)
    node = a_node("n1", labels={"zone": "a"}, room={"cpu": 500, "pods": 1_000})
    assert folded(log).state("default").nodes == {"n1": node}


def test_node_when_drained_is_left_by_plans_whatever_the_cluster_shows_until_it_is_undrained() -> None:
    log = Log()
    log.add(NodeJoined(node=a_node("n1", gpus=4)), at=0)
    log.add(NodeDrainRequested(name="n1", reason=Requested(by="ada")), at=1)
    log.add(NodeChanged(node=a_node("n1", gpus=8)), at=2)
    live = folded(log)
    state = live.state("default")
    assert (state.nodes["n1"].is_draining, state.capacity_gpus, state.drains) == (True, 0, {"n1": Requested(by="ada")})
    assert not live.nodes("default")["n1"].is_draining
    log.add(NodeUndrainRequested(name="n1"), at=3)
    assert (folded(log).state("default").capacity_gpus, folded(log).state("default").drains) == (8, {})


def test_drain_when_the_node_changes_its_pool_goes_with_it_and_ends_when_it_leaves() -> None:
    log = Log()
    log.add(NodeDrainRequested(name="n1"), at=0)
    log.add(NodeJoined(node=a_node("n1")), at=1)
    assert folded(log).state("default").drains == {}
    log.add(NodeDrainRequested(name="n1"), at=2)
    log.add(NodeChanged(node=a_node("n1", pool="v100")), at=3)
    assert (folded(log).state("default").drains, folded(log).state("v100").drains) == ({}, {"n1": Requested()})
    log.add(NodeLeft(name="n1", pool="v100"), at=4)
    log.add(NodeJoined(node=a_node("n1", pool="v100")), at=5)
    assert folded(log).state("v100").drains == {}


def test_settings_when_changed_keep_what_was_not_named() -> None:
    log = Log()
    log.add(
        SettingsChanged(
            pool="default", settings={"policy": "tiresias", "parameters": {"tiresias": {"demote_gpu_s": 10.0}}}
        ),
        at=0,
    )
    log.add(SettingsChanged(pool="default", settings={"ratelimit_s": 5.0}), at=1)
    log.add(
        SettingsChanged(
            pool="default", settings={"placer": "packed", "parameters": {"tiresias": {"promote_knob": 2.0}}}
        ),
        at=2,
    )
    settings = folded(log).settings("default")
    assert (settings.policy, settings.placer, settings.ratelimit_s) == ("tiresias", "packed", 5.0)
    assert settings.parameters == {"tiresias": {"demote_gpu_s": 10.0, "promote_knob": 2.0}}


def test_job_when_canceled_or_requeued_shows_it() -> None:
    log = a_running_job()
    log.add(JobQueueLevelChanged(pool="default", job_id="a", queue_level=1), at=11)
    log.add(JobCancelRequested(job_id="a"), at=12)
    job = folded(log).state("default").jobs["a"]
    assert (job.queue_level, job.queued_since, job.is_canceling) == (1, 11.0, True)


def a_refused_job() -> Log:
    log = a_running_job()
    log.add(JobSubmitted(spec=a_spec("b")), at=11)
    log.add(WorkerRefused(job_id="a", node="n1", reason=Said(text="2 CPUs free, 4 needed")), at=12)
    log.add(WorkerRefused(job_id="a", node="n2", reason=Said(text="a taint")), at=13)
    log.add(WorkerRefused(job_id="b", node="n2", reason=Said(text="a taint")), at=14)
    return log


def refusals(log: Log) -> dict[str, dict[str, str]]:
    return {job_id: refusals_of(job) for job_id, job in folded(log).jobs("default").items() if job.refusals}


def refusals_of(job: Job) -> dict[str, str]:
    return {node: refusal_text(why) for node, why in job.refusals.items()}


def test_refusals_when_told_hold_for_their_job_and_node() -> None:
    assert refusals(a_refused_job()) == {"a": {"n1": "2 CPUs free, 4 needed", "n2": "a taint"}, "b": {"n2": "a taint"}}


@pytest.mark.parametrize(
    "fact", [NodeChanged(node=a_node("n2")), NodeJoined(node=a_node("n2")), NodeLeft(name="n2", pool="elsewhere")]
)
def test_refusals_of_a_node_when_it_changes_are_lifted(fact: AnyFact) -> None:
    log = a_refused_job()
    log.add(fact, at=20)
    assert refusals(log) == {"a": {"n1": "2 CPUs free, 4 needed"}}


def test_refusals_of_a_node_stay_when_the_room_alone_changes() -> None:
    log = a_refused_job()
    before = refusals(log)
    log.add(NodeRoomChanged(name="n2", room={"cpu": 1_000}), at=20)
    log.add(NodeRoomChanged(name="n9", room={"cpu": 1_000}), at=20)
    assert refusals(log) == before


def test_refusal_when_told_without_a_reason_is_lifted_for_its_job_alone() -> None:
    log = a_refused_job()
    log.add(WorkerRefused(job_id="a", node="n2"), at=20)
    log.add(WorkerRefused(job_id="b", node="n7"), at=21)
    assert refusals(log) == {"a": {"n1": "2 CPUs free, 4 needed"}, "b": {"n2": "a taint"}}


def test_refusals_of_a_job_when_its_wishes_change_are_lifted() -> None:
    log = a_refused_job()
    log.add(JobChanged(job_id="a", max_replicas=2), at=20)
    assert refusals(log) == {"b": {"n2": "a taint"}}


def test_refusal_when_told_or_lifted_makes_its_pool_touched() -> None:
    log = a_refused_job()
    live = folded(log)
    for fact in (WorkerRefused(job_id="a", node="n3", reason=Said(text="full")), NodeLeft(name="n3", pool="elsewhere")):
        live.apply(log.add(fact, at=20))
        assert live.changed_pools == {"default"}


def test_refusals_when_read_from_a_snapshot_are_lifted_with_their_node() -> None:
    live = LiveCluster()
    log = a_refused_job()
    live.load(folded(log).dump())
    live.apply(log.add(NodeChanged(node=a_node("n2")), at=20))
    jobs = live.jobs("default")
    assert (refusals_of(jobs["a"]), refusals_of(jobs["b"])) == ({"n1": "2 CPUs free, 4 needed"}, {})


def test_memory_of_refusals_when_they_are_lifted_or_their_jobs_end_is_free() -> None:
    log = a_refused_job()
    log.add(WorkerRefused(job_id="a", node="n2"), at=20)
    log.add(JobChanged(job_id="a", max_replicas=2), at=21)
    log.add(JobCompleted(job_id="b"), at=22)
    assert folded(log)._refused_by == {}


def test_state_when_it_begins_another_log_counts_positions_from_there() -> None:
    log = a_running_job()
    plan = PlanAdopted(pool="default", number=3, based_on=2, policy="fifo", placer="steady", cause="x")
    log.add(plan, at=11)
    log.add(JobSubmitted(spec=a_spec("b")), at=12)
    live = folded(log)
    live.rebase()
    assert (live.position, live.plan("default").number, live.plan("default").based_on) == (0, 3, 0)
    again = Log()
    live.apply(again.add(PlanAdopted(**{**msgspec.structs.asdict(plan), "number": 4, "based_on": 0}), at=13))
    assert live.undecided("default") == frozenset()


def test_object_of_a_job_when_registered_is_known_by_its_uid() -> None:
    log = a_running_job()
    assert folded(log).jobs("default")["a"].uid == ""
    log.add(JobRegistered(job_id="a", uid="u1", kind="MPIJob"), at=11)
    assert folded(log).jobs("default")["a"].uid == "u1"


def test_snapshot_of_a_voda_that_knew_no_objects_and_refusals_is_read() -> None:
    live = folded(a_running_job())
    position, pools, ends, shares = msgspec.msgpack.decode(live.dump())
    jobs: dict[str, Any] = pools["default"]["jobs"]
    assert not {"uid", "refusals"} & jobs["a"].keys()
    older = LiveCluster()
    older.load(msgspec.msgpack.encode((position, pools, ends, shares)))
    assert older.state("default") == live.state("default")


def test_state_when_the_log_grows_does_not_change() -> None:
    log = a_running_job()
    live = folded(log)
    before = live.state("default")
    live.apply(log.add(JobCompleted(job_id="a"), at=99))
    assert set(before.jobs) == {"a"}


TWO_CLUSTERS = CellsSpec(
    virtual_clusters={
        "vision": VirtualClusterSpec(virtual_cells=(QuotaSpec(cell_type="node", cell_number=1),), members=("ada",)),
        "speech": VirtualClusterSpec(),
    }
)


def test_virtual_clusters_when_applied_are_part_of_the_state_until_none_are_left() -> None:
    log = Log()
    log.add(VirtualClustersApplied(pool="default", cells=TWO_CLUSTERS), at=0)
    live = folded(log)
    assert (live.state("default").cells, live.state("default").cells_revision) == (TWO_CLUSTERS, 1)
    assert live.state("a100").cells is None
    log.add(VirtualClustersApplied(pool="default", cells=CellsSpec()), at=1)
    live = folded(log)
    assert (live.state("default").cells, live.state("default").cells_revision) == (None, 2)


GANG = GangRequest(name="g", virtual_cluster="vision", members=((2, 1),))
PLACES = tuple(WorkerCells(node="n1", devices=(device,), chain="node", quota="node") for device in range(2))


def test_gang_when_pods_join_and_leave_has_its_cells_until_the_last_one_is_gone() -> None:
    log = Log()
    log.add(GangPlaced(pool="default", request=GANG, placement=PLACES), at=1)
    for slot, uid in enumerate(("u0", "u1")):
        log.add(GangJoined(pool="default", gang="g", slot=slot, pod_uid=uid, pod=f"ml/{uid}"), at=2)
    log.add(GangJoined(pool="default", gang="g", slot=1, pod_uid="late", pod="ml/late"), at=3)
    log.add(GangJoined(pool="default", gang="none", slot=0, pod_uid="u", pod="ml/u"), at=3)
    live = folded(log)
    gang = live.state("default").gangs["g"]
    assert (gang.request, gang.placement) == (GANG, PLACES)
    assert gang.pods == {slot: GangPod(uid=f"u{slot}", key=f"ml/u{slot}") for slot in range(2)}
    assert live.state("default").gangs_version == 5
    live.apply(log.add(GangLeft(pool="default", gang="g", pod_uid="u0"), at=4))
    assert live.state("default").gangs["g"].pods.keys() == {1}
    live.apply(log.add(GangLeft(pool="default", gang="g", pod_uid="u1"), at=5))
    assert live.state("default").gangs == {}


GPUS = (GpuDevice(memory_mib=16_000), GpuDevice(memory_mib=16_000))
SHARES = [
    ContainerGpus(gpus=(0,), request=GpuRequest(milli=400, memory_mib=4_000)),
    ContainerGpus(gpus=(1,), request=GpuRequest(milli=600)),
    ContainerGpus(gpus=(0, 1), request=GpuRequest(devices=Gpus(2))),
]
JOBS = st.sampled_from(["a", "b", "c"])
NODES = st.sampled_from(["n1", "n2"])
FACTS: st.SearchStrategy[AnyFact] = st.one_of(
    st.builds(JobSubmitted, spec=st.builds(a_spec, JOBS, max_replicas=st.integers(1, 8))),
    st.builds(WorkerStarted, job_id=JOBS, workers=st.dictionaries(st.integers(0, 4), NODES, min_size=1)),
    st.builds(
        WorkerExited,
        job_id=JOBS,
        workers=st.lists(st.integers(0, 4), max_size=4).map(tuple),
        cause=st.sampled_from(["stopped", "migrated", "failed", "node_lost"]),
    ),
    st.builds(JobProgressed, job_id=JOBS, epochs_done=st.floats(0, 100), workers=st.integers(0, 8)),
    st.builds(JobChanged, job_id=JOBS, min_replicas=st.integers(-1, 9), max_replicas=st.integers(-1, 9)),
    st.builds(JobCompleted, job_id=JOBS),
    st.builds(JobRegistered, job_id=JOBS, uid=st.sampled_from(["", "u1"])),
    st.builds(WorkerRefused, job_id=JOBS, node=NODES, reason=st.sampled_from([None, Said(text="full")])),
    st.builds(WorkerGpuSick, job_id=JOBS, worker=st.integers(0, 4), node=NODES, reason=st.sampled_from(["", "gone"])),
    st.builds(JobCancelRequested, job_id=JOBS),
    st.builds(JobHaltRequested, job_id=JOBS, reason=st.sampled_from([Requested(), Requested(by="ann")])),
    st.builds(JobResumeRequested, job_id=JOBS),
    st.builds(NodeJoined, node=st.builds(a_node, NODES, gpus=st.integers(0, 8))),
    st.builds(NodeJoined, node=st.builds(a_node, NODES, devices=st.sampled_from([(), GPUS[:1], GPUS]))),
    st.builds(
        ShareAssigned,
        node=NODES,
        pod_uid=JOBS,
        pod=st.just("ml/pod"),
        containers=st.dictionaries(JOBS, st.sampled_from(SHARES), min_size=1),
    ),
    st.builds(ShareReleased, node=NODES, pod_uid=JOBS),
    st.builds(ShareRequested, node=NODES, pod_uid=JOBS, pod=JOBS, containers=st.just({"gpu": GpuRequest(milli=250)})),
    st.builds(ShareRequestWithdrawn, node=NODES, pod_uid=JOBS),
    st.builds(GangPlaced, pool=st.just("default"), request=st.just(GANG), placement=st.just(PLACES)),
    st.builds(
        GangJoined,
        pool=st.just("default"),
        gang=st.just("g"),
        slot=st.integers(-1, 2),
        pod_uid=JOBS,
        pod=st.just("ml/pod"),
    ),
    st.builds(GangLeft, pool=st.just("default"), gang=st.just("g"), pod_uid=JOBS),
    st.builds(NodeLeft, name=NODES),
    st.builds(NodeDrainRequested, name=NODES),
    st.builds(VirtualClustersApplied, pool=st.just("default"), cells=st.sampled_from([CellsSpec(), TWO_CLUSTERS])),
    st.builds(NodeUndrainRequested, name=NODES),
    st.builds(
        PlanAdopted,
        pool=st.just("default"),
        number=st.integers(1, 9),
        based_on=st.integers(0, 60),
        policy=st.just("fifo"),
        placer=st.just("steady"),
        cause=st.just("tick"),
        placed=st.dictionaries(JOBS, st.lists(NODES, min_size=1, max_size=4).map(tuple)),
        released=st.lists(JOBS, unique=True).map(tuple),
    ),
)


@given(facts=st.lists(FACTS, max_size=60), cut=st.integers(0, 60))
def test_snapshot_and_tail_give_the_same_state_as_the_whole_log(facts: list[AnyFact], cut: int) -> None:
    log = Log()
    for second, fact in enumerate(facts):
        log.add(fact, at=second)
    whole, tail = folded(log), LiveCluster()
    tail.load(folded(log.until(cut)).dump())
    for event in log.events[cut:]:
        tail.apply(event)
    assert tail.dump() == whole.dump()
    assert tail.state("default") == whole.state("default")


def test_event_type_is_folded_or_changes_no_decision() -> None:
    changes_nothing = {JobFolderDeleted, JobSilent, ProgramFailed}
    assert set(LiveCluster._folds) == set(get_args(AnyFact)) - changes_nothing


def test_pool_when_only_read_stays_unknown() -> None:
    cluster = LiveCluster()
    assert (dict(cluster.jobs("a100")), cluster.plan("a100").placement, dict(cluster.nodes("a100"))) == ({}, {}, {})
    assert cluster.pools() == ()


_POOL = (
    "plan",
    "jobs",
    "nodes",
    "opened",
    "openings",
    "settings",
    "undecided",
    "outlived",
    "held",
    "silent_since",
    "placed_at",
    "freed_at",
    "reclaimed_at",
    "service",
    "led_at",
    "surplus",
    "drains",
    "cells",
    "cells_revision",
    "gangs",
    "gangs_version",
)
_KEPT = {"live-32": (_POOL, 43, 19)}
"""Format -> what snapshots of it keep of a pool, and how many fields of a job and of the settings: whoever changes that
has to count the format up, or older snapshots are misread.
"""


def test_format_goes_with_what_is_kept() -> None:
    kept = (LivePool.__struct_fields__, len(Job.__struct_fields__), len(Settings.__struct_fields__))
    assert {Live.FORMAT: kept} == _KEPT


def test_state_from_a_snapshot_is_that_of_the_whole_log_workers_of_ended_jobs_included() -> None:
    log, whole, resumed = Log(), Live(), Live()
    facts: list[AnyFact] = [
        NodeJoined(node=a_node("n1")),
        JobSubmitted(spec=a_spec("a", max_replicas=2)),
        WorkerStarted(job_id="a", workers={0: "n1", 1: "n1"}),
        JobCompleted(job_id="a"),
    ]
    for fact in facts:
        whole.apply(log.add(fact, at=0))
    resumed.load(whole.dump())
    assert resumed.state("default").outlived.keys() == {"a"}
    last = log.add(WorkerExited(job_id="a", workers=(0, 1), cause="finished"), at=1)
    for live in (whole, resumed):
        live.apply(last)
    assert resumed.state("default") == whole.state("default")
    assert (resumed.dump(), dict(resumed.state("default").outlived)) == (whole.dump(), {})


def test_labels_of_nodes_that_are_decoded_are_kept_once() -> None:
    log = Log()
    labels = [{"feature.node.kubernetes.io/cpu-model.vendor": "-".join(["Genuine", "Intel"])} for _ in range(2)]
    first, second = (log.add(NodeJoined(node=a_node(labels=each)), at=0).data for each in labels)
    assert isinstance(first, NodeJoined)
    assert isinstance(second, NodeJoined)
    ((key, value),), ((other_key, other_value),) = first.node.labels.items(), second.node.labels.items()
    assert key is other_key
    assert value is other_value
