"""Every type of event has a sentence and a subject."""

import pytest
from msgspec.structs import replace

from tests.builders import Log, a_node, a_spec
from tests.reasons import worded
from voda.domain.cells import CellsSpec, GangRequest, PinSpec, QuotaSpec, VirtualClusterSpec, WorkerCells
from voda.domain.gpus import ContainerGpus, GpuDevice, GpuRequest, Gpus
from voda.domain.node import Taint
from voda.domain.reasons.nodes import Said
from voda.domain.reasons.outcomes import Demoted
from voda.domain.reasons.pods import NotWaiting, PodGone
from voda.domain.reasons.requests import Requested
from voda.events.event_text import TYPES, describe, jobs_of, subject_of
from voda.events.types import (
    ActionFailed,
    AnyFact,
    GangJoined,
    GangLeft,
    GangPlaced,
    JobBackedOff,
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
    LeaderElected,
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

GANG = GangRequest(name="g", virtual_cluster="vision", members=((2, 1),))


def a_place(node: str, quota: str = "") -> WorkerCells:
    return WorkerCells(node=node, devices=(0,), chain="node", quota=quota)


CELLS = CellsSpec(
    virtual_clusters={
        "vision": VirtualClusterSpec(
            virtual_cells=(QuotaSpec(cell_type="rack.node", cell_number=2),),
            pinned_cells=(PinSpec(pinned_cell_id="dgx"),),
            members=("ada", "bob"),
        ),
        "speech": VirtualClusterSpec(),
    }
)
A_PLAN = PlanAdopted(
    pool="default",
    number=7,
    based_on=3,
    policy="fifo",
    placer="steady",
    cause="job.submitted",
    placed={"a": ("n1", "n1", "n2")},
    released=("b",),
    reasons={"a": worded("starts"), "b": worded("preempted"), "c": worded("waits")},
)
TOLD: list[tuple[AnyFact, str]] = [
    (
        JobSubmitted(spec=a_spec("a", max_replicas=4, gpus_per_replica=2, epochs=9, user="eve")),
        "submitted: 1-4 replicas of 2 GPUs, 1 requested, 9 epochs, by eve",
    ),
    (JobCancelRequested(job_id="a", reason=Requested(text="typo")), "cancellation requested: typo"),
    (JobHaltRequested(job_id="a", reason=Requested(by="ann", text="disk is full")), "halted by ann: disk is full"),
    (JobHaltRequested(job_id="a"), "halted"),
    (JobResumeRequested(job_id="a"), "resumed"),
    (JobChanged(job_id="a", max_replicas=2), "changed: max_replicas = 2"),
    (SettingsChanged(pool="default", settings={"policy": "fifo"}), "changed: policy = fifo"),
    (SettingsChanged(pool="default", settings={"ratelimit_s": 0.0}), "changed: ratelimit_s = 0.0"),
    (
        SettingsChanged(pool="default", settings={"retention_s": 60.0, "retention_bytes": 5}),
        "changed: retention_s = 60.0, retention_bytes = 5",
    ),
    (
        JobFolderDeleted(job_id="a", by="retention (30 days)", size_bytes=1_500_000),
        "folder deleted by retention (30 days), 1.5 MB",
    ),
    (NodeJoined(node=a_node("n1")), "joined with 4 GPUs"),
    (
        NodeChanged(node=a_node("n1", is_ready=False, foreign_gpus=1)),
        "is now 4 GPUs, not ready, 1 used by others",
    ),
    (
        NodeChanged(node=a_node("n1", taints=(Taint(key="dedicated", value="x"), Taint(key="spot")))),
        "is now 4 GPUs, tainted dedicated=x:NoSchedule, tainted spot:NoSchedule",
    ),
    (
        NodeRoomChanged(name="n1", room={"cpu": 2_500, "memory": 2**30 * 1_000, "pods": 7_000}),
        "others leave it 2.5 cpu, 1 GiB memory, 7 pods",
    ),
    (NodeLeft(name="n1"), "left"),
    (NodeDrainRequested(name="n1", reason=Requested(by="ada", text="new fan")), "drained by ada: new fan"),
    (NodeUndrainRequested(name="n1"), "undrained: it takes workers again"),
    (
        VirtualClustersApplied(pool="default", cells=CELLS),
        "virtual clusters: vision (2 rack.node, pinned dgx, members ada bob), speech (no cells)",
    ),
    (VirtualClustersApplied(pool="default", cells=CellsSpec()), "no virtual clusters any more"),
    (
        NodeChanged(node=a_node("n1", devices=(GpuDevice(memory_mib=16_000),))),
        "is now 4 GPUs, 1 GPU to share",
    ),
    (
        ShareAssigned(
            node="n1",
            pod_uid="u1",
            pod="ml/notebook",
            containers={
                "main": ContainerGpus(gpus=(0,), request=GpuRequest(milli=250, memory_mib=4096)),
                "side": ContainerGpus(gpus=(1, 2), request=GpuRequest(devices=Gpus(2))),
            },
        ),
        "ml/notebook gets for main 250 milli and 4,096 MiB of GPU 0; for side GPUs 1, 2",
    ),
    (
        ShareAssigned(
            node="n1",
            pod_uid="u1",
            pod="ml/notebook",
            containers={"main": ContainerGpus(gpus=(0,), request=GpuRequest(memory_mib=4096))},
        ),
        "ml/notebook gets 4,096 MiB of GPU 0",
    ),
    (
        ShareReleased(node="n1", pod_uid="u1", pod="ml/notebook", reason=PodGone()),
        "ml/notebook has no GPU any more: the pod is gone",
    ),
    (
        GangPlaced(pool="default", request=GANG, placement=(a_place("n1", "node"), a_place("n2", "node"))),
        "gang g has cells for 2 pods on n1, n2, guaranteed by vision",
    ),
    (
        GangPlaced(pool="default", request=GANG, placement=(a_place("n1"),)),
        "gang g has cells for 1 pod on n1, on idle cells",
    ),
    (GangJoined(pool="default", gang="g", slot=1, pod_uid="u", pod="ml/p"), "ml/p has place 1 of gang g"),
    (
        GangLeft(pool="default", gang="g", pod_uid="u", pod="ml/p", reason=PodGone()),
        "ml/p has left gang g: the pod is gone",
    ),
    (
        ShareRequested(node="n1", pod_uid="u1", pod="ml/nb", containers={"gpu": GpuRequest(milli=250)}),
        "ml/nb waits for GPUs that jobs can spare: gpu (250 milli)",
    ),
    (
        ShareRequestWithdrawn(node="n1", pod_uid="u1", pod="ml/nb", reason=NotWaiting()),
        "ml/nb waits for none of its GPUs any more: the pod does not wait any more",
    ),
    (JobRegistered(job_id="a", uid="6f-1", kind="MPIJob"), "its MPIJob is 6f-1"),
    (JobRegistered(job_id="a", uid=""), "its object in the cluster is gone and will be created again"),
    (
        WorkerRefused(job_id="a", node="n1", reason=Said(text="2 CPUs free, 4 needed")),
        "n1 cannot take a worker: 2 CPUs free, 4 needed",
    ),
    (WorkerRefused(job_id="a", node="n1"), "n1 can take a worker again"),
    (
        WorkerGpuSick(job_id="a", worker=2, node="n1", gpu="n1-gpu-3", reason="Unhealthy"),
        "GPU n1-gpu-3 of worker 2 on n1 is unhealthy: the worker moves unless it is well again soon",
    ),
    (
        WorkerGpuSick(job_id="a", worker=2, node="n1", gpu="gpu-3", reason="contested", other="ns/other"),
        "GPU gpu-3 of worker 2 on n1 was given to ns/other as well (see whether two schedulers run): the worker moves"
        " unless that is over soon",
    ),
    (
        WorkerGpuSick(job_id="a", worker=2, node="n1", gpu="gpu-3", reason="contested again", other="ns/other"),
        "GPU gpu-3 of worker 2 on n1 was given to ns/other as well, again: kube-scheduler takes it for free, until a"
        " DeviceTaintRule closes it or it is restarted",
    ),
    (WorkerGpuSick(job_id="a", worker=2, node="n1"), "the GPU of worker 2 on n1 is well again"),
    (JobStalled(job_id="a", reason=Said(text="its image is missing")), "is stalled: its image is missing"),
    (JobStalled(job_id="a"), "continues"),
    (
        JobBackedOff(
            pool="default",
            job_id="a",
            at_work=1,
            planned=4,
            since=0.0,
            reason=Said(text="no pods"),
            retry_after_s=240.0,
        ),
        "a is stuck, 1 of 4 planned workers at work: no pods; others go first for 4m 00s",
    ),
    (JobSilent(job_id="a", since=9.0), "has printed nothing since it was started"),
    (JobSilent(job_id="a", since=9.0, workers_before=1), "has printed nothing since it was resized"),
    (JobSilent(job_id="a"), "prints again"),
    (WorkerStarted(job_id="a", workers={0: "n1", 1: "n1", 2: "n2"}), "3 workers started on n1 x2, n2"),
    (WorkerExited(job_id="a", workers=(1,), cause="failed", exit_code=137), "1 worker failed with exit code 137"),
    (
        ProgramFailed(job_id="a", replica="worker-0", reason=Said(text="ended with exit code 1: no data")),
        "worker-0 ended with exit code 1: no data; it will be started again",
    ),
    (
        ProgramFailed(
            job_id="a", replica="worker-0", reason=Said(text="ended with exit code 1: no data"), times_inside=2
        ),
        "in worker-0 a process ended with exit code 1: no data, 2 times; the replica goes on",
    ),
    (JobProgressed(job_id="a", epochs_done=1, workers=2), "1 epoch done on 2 workers"),
    (
        JobProgressed(job_id="a", epochs_done=2, workers=1, epoch_s=1.5),
        "2 epochs done on 1 worker, the last in 1.5 s",
    ),
    (JobCompleted(job_id="a"), "completed"),
    (JobFailed(job_id="a", reason=Said(text="out of memory")), "failed: out of memory"),
    (JobCanceled(job_id="a"), "canceled"),
    (
        ActionFailed(job_id="a", action="StartJob", error="no room", attempt=2),
        "StartJob failed (attempt 2): no room",
    ),
    (LeaderElected(pool="default", leader="voda-0"), "voda-0 leads"),
    (A_PLAN, "plan 7 after job.submitted (fifo, steady): a on n1 x2, n2; b released; c waits"),
    (
        replace(
            A_PLAN,
            released=(),
            placed={},
            reasons={"b": worded("keeps 1 worker"), "c": worded("waits")},
            guaranteed={"b": ()},
        ),
        "plan 7 after job.submitted (fifo, steady): b stays; c waits",
    ),
    (
        JobQueueLevelChanged(pool="default", job_id="a", queue_level=1, reason=Demoted(served_gpu_s=9, limit_gpu_s=5)),
        "a moved to queue 1: demoted: served 9 GPU-s since its start, limit 5",
    ),
]


@pytest.mark.parametrize(("fact", "words"), TOLD, ids=lambda value: getattr(value, "TYPE", ""))
def test_event_when_described_says_what_happened(fact: AnyFact, words: str) -> None:
    assert describe(Log().add(fact, at=0)) == words


def test_words_are_tested_for_every_type_of_event() -> None:
    assert {fact.TYPE for fact, _ in TOLD} == set(TYPES)


def test_plan_when_it_changes_many_jobs_names_some_and_counts_the_rest() -> None:
    placed = {f"job-{number}": ("n1",) for number in range(9)}
    plan = PlanAdopted(
        pool="default", number=1, based_on=0, policy="fifo", placer="steady", cause="tick", placed=placed
    )
    assert describe(Log().add(plan, at=0)).endswith("; job-3 on n1 and 5 more")


@pytest.mark.parametrize(
    ("fact", "jobs", "subject"),
    [
        (A_PLAN, {"a", "b", "c"}, "decisions.default"),
        (JobSubmitted(spec=a_spec("a")), {"a"}, "a"),
        (JobQueueLevelChanged(pool="default", job_id="a", queue_level=1), {"a"}, "decisions.default"),
        (NodeLeft(name="n1"), set(), "node n1"),
        (NodeDrainRequested(name="n1"), set(), "node n1"),
    ],
)
def test_event_knows_whom_it_is_about(fact: AnyFact, jobs: set[str], subject: str) -> None:
    assert jobs_of(fact) == jobs
    assert subject_of(Log().add(fact, at=0)) == subject
