"""How long a re-plan takes at the size of a large cluster: snapshot, policy, placement, difference.

Jobs arrive, leave and change their bounds one at a time, others report epochs meanwhile; every plan is adopted and
reached before the next change.
"""

import time
from collections.abc import Mapping, Sequence

import numpy as np

from benchmarks.table import Row
from voda.cluster.port import Observed
from voda.domain.cells import CellsSpec, QuotaSpec, VirtualClusterSpec
from voda.domain.gpus import Gpus
from voda.domain.job import JobSpec
from voda.domain.node import Node
from voda.domain.rng import rng_at
from voda.events.envelope import Event
from voda.events.types import (
    AnyFact,
    JobChanged,
    JobCompleted,
    JobProgressed,
    JobSubmitted,
    NodeJoined,
    VirtualClustersApplied,
    WorkerExited,
    WorkerStarted,
)
from voda.placement import PLACERS
from voda.planner.decide import decide
from voda.planner.plan_changes import changes
from voda.planner.registries import all_wings
from voda.planner.virtual_clusters import CellPlanner
from voda.policies import POLICIES
from voda.projections.live import Live
from voda.reconcilers.diff import diff

TITLE = "Re-plan: snapshot, policy (elastic-fifo), placement, difference"
_TURNS = 300
_WARM_UP = 30
_POOL = "default"
_GO_PACKED_400_S = 0.12
"""The ancestor's placement of 400 nodes, in Go; its specification names the figure."""


class ChangingPool:
    """A pool that changes at random, and does at once what a plan says."""

    def __init__(self, *, nodes: int, gpus_per_node: int, jobs: int, virtual_clusters: int = 0) -> None:
        """Begin with a pool; its virtual clusters are owed all nodes, in equal parts."""
        self.live = Live()
        self.wings = all_wings(CellPlanner())
        self._virtual_clusters = virtual_clusters
        self._rng = rng_at(0, f"replan-{nodes}-{jobs}")
        self._now = 0.0
        self._submitted = 0
        self._gpus_per_node = gpus_per_node
        for index in range(nodes):
            self.record(NodeJoined(node=self.node(index)))
        if virtual_clusters:
            quota = QuotaSpec(cell_type="node", cell_number=nodes // virtual_clusters)
            teams = {f"team-{each}": VirtualClusterSpec(virtual_cells=(quota,)) for each in range(virtual_clusters)}
            self.record(VirtualClustersApplied(pool=_POOL, cells=CellsSpec(virtual_clusters=teams)))
        for _ in range(jobs):
            self.submit()

    def record(self, data: AnyFact) -> None:
        """Fold a fact, a second after the one before."""
        self._now += 1.0
        self.live.apply(
            Event(
                position=self.live.position + 1,
                stream=data.stream,
                version=0,
                event_id="",
                type=data.TYPE,
                schema=data.SCHEMA,
                recorded_at=self._now,
                actor="",
                correlation_id="",
                causation_id="",
                epoch=0,
                data=data,
            )
        )

    def node(self, index: int) -> Node:
        """Return a node of the pool."""
        return Node(name=f"node-{index:04}", gpus=Gpus(self._gpus_per_node))

    def submit(self) -> None:
        """Let a job of 1 to 8 workers arrive, of one of 40 categories."""
        self._submitted += 1
        self.record(JobSubmitted(spec=self.spec(self._submitted)))

    def spec(self, index: int) -> JobSpec:
        """Return what the next job asks for."""
        least = self._rng.choice((1, 1, 1, 2, 2, 4))
        return JobSpec(
            job_id=f"job-{index:06}",
            category=f"category-{index % 40}",
            min_replicas=least,
            max_replicas=2 * least,
            epochs=self._rng.randint(5, 200),
            virtual_cluster=self._virtual_cluster(),
        )

    def _virtual_cluster(self) -> str:
        """Return a virtual cluster; some are asked for more than others."""
        if not self._virtual_clusters:
            return ""
        return f"team-{min(self._rng.randrange(self._virtual_clusters) for _ in range(2))}"

    def complete(self) -> None:
        """Let a job be done, and its GPUs be free."""
        job_id = self._any_job()
        self._exit(job_id, tuple(self.live.cluster.jobs(_POOL)[job_id].workers))
        self.record(JobCompleted(job_id=job_id))

    def widen(self) -> None:
        """Let a job use one worker more than it could."""
        job_id = self._any_job()
        most = self.live.cluster.jobs(_POOL)[job_id].spec.max_replicas
        self.record(JobChanged(job_id=job_id, max_replicas=min(8, most + 1)))

    def progress(self, jobs: int) -> None:
        """Let some jobs report an epoch."""
        for _ in range(jobs):
            job = self.live.cluster.jobs(_POOL)[self._any_job()]
            if workers := job.replicas:
                epoch_s = 600.0 / workers**0.9
                self.record(
                    JobProgressed(
                        job_id=job.spec.job_id, epochs_done=job.epochs_done + 1, workers=workers, epoch_s=epoch_s
                    )
                )

    def observed(self) -> Observed:
        """Return what the cluster shows."""
        jobs = self.live.cluster.jobs(_POOL)
        return Observed(
            nodes=self.live.state(_POOL).nodes,
            workers={job_id: dict(job.workers) for job_id, job in jobs.items() if job.workers},
            gpus_per_replica=dict.fromkeys(jobs, Gpus(1)),
        )

    def reach_plan(self) -> None:
        """Let every job have the workers that the plan in force gives it."""
        placement = self.live.cluster.plan(_POOL).placement
        for job_id, job in list(self.live.cluster.jobs(_POOL).items()):
            wanted = dict(enumerate(placement.get(job_id, ())))
            self._exit(job_id, tuple(index for index, node in job.workers.items() if wanted.get(index) != node))
            if new := {index: node for index, node in wanted.items() if job.workers.get(index) != node}:
                self.record(WorkerStarted(job_id=job_id, workers=new))

    def _exit(self, job_id: str, workers: tuple[int, ...]) -> None:
        if workers:
            self.record(WorkerExited(job_id=job_id, workers=workers, cause="migrated"))

    def _any_job(self) -> str:
        return self._rng.choice(list(self.live.cluster.jobs(_POOL)))


def run() -> Sequence[Row]:
    """Measure whole re-plans, and how long `packed` needs at the size its ancestor was measured at."""
    large = {"nodes": 1_000, "gpus_per_node": 8, "jobs": 2_000}
    rows = [*replans("steady", ChangingPool(**large), goal_ms=50.0), *replans("packed", ChangingPool(**large))]
    rows += replans("frugal", ChangingPool(**large), goal_ms=50.0)
    rows += replans("steady", ChangingPool(nodes=128, gpus_per_node=4, jobs=300))
    return [*rows, _packing_anew()]


def replans(placer_name: str, cluster: ChangingPool, *, goal_ms: float | None = None) -> Sequence[Row]:
    """Measure whole re-plans of a pool that changes."""
    state = cluster.live.state(_POOL)
    size = f"{placer_name}, {len(state.nodes):,} nodes, {state.capacity_gpus:,} GPUs, {len(state.jobs):,} jobs"
    cpu_s: list[float] = []
    spent = [replan(cluster, placer_name, turn, cpu_s) for turn in range(_WARM_UP + _TURNS)][_WARM_UP:]
    totals_ms = [1e3 * sum(parts.values()) for parts in spent]
    rows = [
        Row(what=f"{size}: p99", figure=float(np.percentile(totals_ms, 99)), unit="ms", goal=goal_ms),
        Row(what="  p50", figure=float(np.median(totals_ms)), unit="ms"),
    ]
    for part in spent[0]:
        part_ms = 1e3 * float(np.median([parts[part] for parts in spent]))
        rows.append(Row(what=f"  {part}, p50", figure=part_ms, unit="ms"))
    cpu_ms = [1e3 * each for each in cpu_s[_WARM_UP:]]
    rows.append(Row(what="  CPU time, p50", figure=float(np.median(cpu_ms)), unit="ms"))
    rows.append(Row(what="  CPU time, p99", figure=float(np.percentile(cpu_ms, 99)), unit="ms"))
    return rows


def replan(cluster: ChangingPool, placer_name: str, turn: int, cpu_s: list[float]) -> Mapping[str, float]:
    """Change the cluster a little, make the next plan, adopt and reach it; return the seconds of each part.

    The CPU seconds of all parts come to `cpu_s`: what other work on the machine delays counts there less.
    """
    (cluster.submit, cluster.complete, cluster.widen)[turn % 3]()
    cluster.progress(20)
    observed, undecided = cluster.observed(), cluster.live.cluster.undecided(_POOL)
    begun, cpu = time.perf_counter(), time.thread_time()
    state = cluster.live.state(_POOL)
    seen = time.perf_counter()
    policy, placer = POLICIES.choose("elastic-fifo"), PLACERS.choose(placer_name)
    plan = decide(state, policy, placer, 0.0, cause="tick", wings=cluster.wings)
    fact = changes(state.plan, plan, undecided)
    decided = time.perf_counter()
    if fact is not None:
        cluster.record(fact)
    state = cluster.live.state(_POOL)
    adopted = time.perf_counter()
    diff(state, observed)
    ended = time.perf_counter()
    cpu_s.append(time.thread_time() - cpu)
    cluster.reach_plan()
    return {"snapshot": seen - begun, "decide": decided - seen, "adopt": adopted - decided, "diff": ended - adopted}


def _packing_anew() -> Row:
    """Time `packed` alone, with 400 nodes full of jobs that are already placed."""
    cluster = ChangingPool(nodes=400, gpus_per_node=8, jobs=1_600)
    for turn in range(3):
        replan(cluster, "packed", turn, [])
    state = cluster.live.state(_POOL)
    replicas = POLICIES.choose("elastic-fifo").allocate(state, 0.0).replicas
    spans_s = []
    for _ in range(10):
        begun = time.perf_counter()
        PLACERS["packed"].place(state, replicas, 0.0)
        spans_s.append(time.perf_counter() - begun)
    median_s = float(np.median(spans_s))
    return Row(
        what="packed alone, 400 nodes",
        figure=1e3 * median_s,
        unit="ms",
        yardstick="the ancestor's Go, about 120 ms",
        ratio=median_s / _GO_PACKED_400_S,
    )
