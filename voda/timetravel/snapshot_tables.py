"""One moment of a cluster as tables: nodes with the holders of their GPUs, and jobs with their workers.

Rule: pure; every figure is of the same instant.
"""

import math
from collections.abc import Mapping

from msgspec import Struct

from voda.domain.job import Job, Phase
from voda.domain.node import Node
from voda.domain.state import ClusterState, Estimate
from voda.projections.live import Live


class NodeRow(Struct, frozen=True, kw_only=True):
    name: str
    gpus: int
    foreign_gpus: int
    free_gpus: int
    """Free for a plan; 0 on a node that is not ready or cordoned."""
    is_ready: bool
    is_schedulable: bool
    held_gpus: Mapping[str, int]
    """job id -> GPUs that its workers hold."""


class JobRow(Struct, frozen=True, kw_only=True):
    job_id: str
    phase: Phase
    replicas: int
    """Observed; `planned` is the number in the plan in force."""
    planned: int
    min_replicas: int
    max_replicas: int
    gpus: int
    nodes: tuple[str, ...]
    """By worker index."""
    submitted_at: float
    waited_s: float
    running_s: float
    attained_gpu_s: float
    epochs_done: float
    epochs: int
    """0 = unknown."""
    ends_at: float | None
    """Expected at the present size; None while it waits or nothing is known."""
    priority: int
    queue_level: int
    restarts: int


class ClusterSnapshot(Struct, frozen=True, kw_only=True):
    """One pool."""

    pool: str
    position: int
    at: float
    policy: str
    placer: str
    plan: int
    """Number of the plan in force; 0 = none yet."""
    capacity_gpus: int
    nodes: tuple[NodeRow, ...]
    jobs: tuple[JobRow, ...]
    """In the order of their submissions."""


def cluster_snapshots(live: Live, at: float) -> tuple[ClusterSnapshot, ...]:
    """Return every pool of the state as tables, by name; times are carried on to `at`, seconds since the epoch."""
    return tuple(cluster_snapshot(live.state(pool), at) for pool in live.cluster.pools())


def cluster_snapshot(state: ClusterState, at: float) -> ClusterSnapshot:
    """Return one pool as tables."""
    jobs = sorted(state.jobs.values(), key=lambda job: (job.submitted_at, job.spec.job_id))
    return ClusterSnapshot(
        pool=state.pool,
        position=state.position,
        at=at,
        policy=state.settings.policy,
        placer=state.settings.placer,
        plan=state.plan.number,
        capacity_gpus=state.capacity_gpus,
        nodes=tuple(_node_row(state.nodes[name], state.jobs) for name in sorted(state.nodes)),
        jobs=tuple(_job_row(job, state, at) for job in jobs),
    )


def gpus_by_job(node: str, jobs: Mapping[str, Job]) -> Mapping[str, int]:
    """Return job id -> GPUs that the job's workers hold on the node."""
    gpus = {
        job_id: sum(1 for there in job.workers.values() if there == node) * job.spec.gpus_per_replica
        for job_id, job in jobs.items()
    }
    return {job_id: gpus[job_id] for job_id in sorted(gpus) if gpus[job_id]}


def _node_row(node: Node, jobs: Mapping[str, Job]) -> NodeRow:
    held = gpus_by_job(node.name, jobs)
    return NodeRow(
        name=node.name,
        gpus=node.gpus,
        foreign_gpus=node.foreign_gpus,
        free_gpus=max(0, node.usable_gpus - sum(held.values())),
        is_ready=node.is_ready,
        is_schedulable=node.is_schedulable,
        held_gpus=held,
    )


def _job_row(job: Job, state: ClusterState, at: float) -> JobRow:
    job_id = job.spec.job_id
    return JobRow(
        job_id=job_id,
        phase=job.phase,
        replicas=job.replicas,
        planned=len(state.plan.placement.get(job_id, ())),
        min_replicas=job.spec.min_replicas,
        max_replicas=job.spec.max_replicas,
        gpus=job.gpus,
        nodes=tuple(job.workers[index] for index in sorted(job.workers)),
        submitted_at=job.submitted_at,
        waited_s=job.waiting_by(at),
        running_s=job.running_by(at),
        attained_gpu_s=job.service_by(at),
        epochs_done=job.epochs_done,
        epochs=job.spec.epochs,
        ends_at=_ends_at(job, state.estimates.get(job_id), at),
        priority=job.spec.priority,
        queue_level=job.queue_level,
        restarts=job.restarts,
    )


def _ends_at(job: Job, estimate: Estimate | None, at: float) -> float | None:
    if estimate is None or not job.workers:
        return None
    # A worker may be observed beyond the maximum for a moment, after job.changed.
    left_s = estimate.time_left_s(min(job.replicas, len(estimate.speedup) - 1))
    return at + left_s if math.isfinite(left_s) else None
