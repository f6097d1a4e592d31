"""The live cluster: jobs not finished yet, nodes, the plan in force and the settings, pool by pool.

Rule: folding an event costs O(1), whatever happened before; a plan costs O(jobs placed).
"""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from voda.domain.estimate import Estimate
from voda.domain.job import Job, Phase
from voda.domain.node import Node
from voda.domain.plan import Plan
from voda.domain.state import ClusterState, Settings
from voda.events.envelope import Event
from voda.events.plan_diff import adopted
from voda.events.spec_changes import respecified
from voda.events.types import (
    ActionFailed,
    JobCanceled,
    JobCancelRequested,
    JobChanged,
    JobCompleted,
    JobFailed,
    JobPriorityChanged,
    JobProgressed,
    JobRegistered,
    JobSubmitted,
    NodeChanged,
    NodeJoined,
    NodeLeft,
    PlanAdopted,
    PolicyChanged,
    RatelimitChanged,
    WorkerExited,
    WorkerRefused,
    WorkerStarted,
)
from voda.projections.job_folds import exit_workers, start_workers


class LivePool(Struct, kw_only=True):
    """What is known of one pool; the projection's own, changed in place."""

    plan: Plan
    jobs: dict[str, Job] = {}
    nodes: dict[str, Node] = {}
    settings: Settings = Settings()
    undecided: dict[str, int] = {}
    """Jobs that no plan has considered yet -> position of their submission."""
    outlived: dict[str, Job] = {}
    """Jobs that have ended and whose workers have not all exited."""


class LiveCluster:
    """Folds the log into the state that decisions read."""

    FORMAT: ClassVar[str] = "cluster-2"

    def __init__(self) -> None:
        self.position = 0
        self.touched: set[str] = set()
        """Pools that the last event was about. Not part of the state."""
        self._pools: dict[str, LivePool] = {}
        self._pool_of: dict[str, LivePool] = {}
        self._outlived_in: dict[str, LivePool] = {}
        self._refused_by: dict[str, set[str]] = {}
        """Node -> jobs it refuses: an index of `Job.refusals`."""

    def apply(self, event: Event) -> None:
        """Fold one event; events must come in the order of their positions."""
        self.touched.clear()
        fold = _FOLDS.get(type(event.data))
        if fold is not None:
            fold(self, event, event.data)
        self.position = event.position

    def pools(self) -> tuple[str, ...]:
        """Return the names of all pools ever mentioned, sorted."""
        return tuple(sorted(self._pools))

    def pool_of(self, job_id: str) -> str | None:
        """Return the pool of a live job."""
        pool = self._pool_of.get(job_id)
        return pool.plan.pool if pool else None

    def undecided(self, pool: str) -> frozenset[str]:
        """Return the live jobs of the pool that no plan has considered yet."""
        return frozenset(self._pool(pool).undecided)

    def plan(self, pool: str) -> Plan:
        """Return the plan in force."""
        return self._pool(pool).plan

    def settings(self, pool: str) -> Settings:
        """Return the settings in force."""
        return self._pool(pool).settings

    def state(self, pool: str, estimates: Mapping[str, Estimate] | None = None) -> ClusterState:
        """Return a frozen view of one pool; later events do not change it. Costs O(live jobs)."""
        kept = self._pool(pool)
        return ClusterState(
            pool=pool,
            position=self.position,
            jobs=dict(kept.jobs),
            nodes=dict(kept.nodes),
            plan=kept.plan,
            estimates=estimates or {},
            settings=kept.settings,
            outlived=dict(kept.outlived),
        )

    def nodes(self, pool: str) -> Mapping[str, Node]:
        """Return the nodes of the pool, read-only and changing with the log."""
        return self._pool(pool).nodes

    def jobs(self, pool: str) -> Mapping[str, Job]:
        """Return the live jobs of the pool, read-only and changing with the log."""
        return self._pool(pool).jobs

    def dump(self) -> bytes:
        """Return the whole state as MessagePack; folding the same log gives the same bytes."""
        return msgspec.msgpack.encode((self.position, self._pools))

    def load(self, state: bytes) -> None:
        """Replace the state by a dumped one."""
        self.position, self._pools = msgspec.msgpack.decode(state, type=tuple[int, dict[str, LivePool]])
        self._pool_of = {job_id: pool for pool in self._pools.values() for job_id in pool.jobs}
        self._outlived_in = {job_id: pool for pool in self._pools.values() for job_id in pool.outlived}
        self._refused_by = {}
        for pool in self._pools.values():
            for job_id, job in pool.jobs.items():
                _index(self, job_id, job.refusals)

    def rebase(self) -> None:
        """Let this state be the beginning of another log, whose first event is at position 1."""
        self.position = 0
        for pool in self._pools.values():
            pool.plan = replace(pool.plan, based_on=0)
            pool.undecided = dict.fromkeys(pool.undecided, 0)

    def _pool(self, name: str) -> LivePool:
        pool = self._pools.get(name)
        if pool is None:
            pool = self._pools[name] = LivePool(plan=Plan(pool=name))
        return pool

    def _touched(self, name: str) -> LivePool:
        """Return a pool that the event at hand is about."""
        self.touched.add(name)
        return self._pool(name)

    def _change(self, job_id: str, **fields: Any) -> None:
        """Change a live job; what is told of a job that is not live is of no consequence here."""
        if (job := self._job(job_id)) is not None:
            self._keep(replace(job, **fields))

    def _keep(self, job: Job) -> None:
        """Let a live job be as given."""
        pool = self._pool_of[job.spec.job_id]
        self.touched.add(pool.plan.pool)
        pool.jobs[job.spec.job_id] = job

    def _job(self, job_id: str) -> Job | None:
        pool = self._pool_of.get(job_id)
        return pool.jobs[job_id] if pool else None


def _submitted(live: LiveCluster, event: Event, fact: JobSubmitted) -> None:
    job_id = fact.spec.job_id
    if job_id in live._pool_of:
        return
    pool = live._pool_of[job_id] = live._touched(fact.spec.pool)
    pool.jobs[job_id] = Job(spec=fact.spec, submitted_at=event.recorded_at, counted_at=event.recorded_at)
    pool.undecided[job_id] = event.position


def _ended(live: LiveCluster, event: Event, fact: JobCompleted | JobFailed | JobCanceled) -> None:
    if (pool := live._pool_of.pop(fact.job_id, None)) is not None:
        live.touched.add(pool.plan.pool)
        job = pool.jobs.pop(fact.job_id)
        _unindex(live, job)
        if job.workers:
            pool.outlived[fact.job_id] = replace(job, phase=_PHASES[type(fact)])
            live._outlived_in[fact.job_id] = pool
        pool.undecided.pop(fact.job_id, None)
        # A plan releases only what it placed, so the reason of a job that never was would stay for ever.
        if fact.job_id in pool.plan.reasons and fact.job_id not in pool.plan.placement:
            reasons = {job_id: reason for job_id, reason in pool.plan.reasons.items() if job_id != fact.job_id}
            pool.plan = replace(pool.plan, reasons=reasons)


def _cancel_requested(live: LiveCluster, event: Event, fact: JobCancelRequested) -> None:
    live._change(fact.job_id, is_canceling=True)


def _changed(live: LiveCluster, event: Event, fact: JobChanged) -> None:
    if (job := live._job(fact.job_id)) is not None:
        _unindex(live, job)
        live._change(fact.job_id, spec=respecified(job.spec, fact), refusals={})


def _registered(live: LiveCluster, event: Event, fact: JobRegistered) -> None:
    live._change(fact.job_id, uid=fact.uid)


def _refused(live: LiveCluster, event: Event, fact: WorkerRefused) -> None:
    if not fact.reason:
        _lift(live, fact.job_id, fact.node)
    elif (job := live._job(fact.job_id)) is not None:
        live._change(fact.job_id, refusals={**job.refusals, fact.node: fact.reason})
        _index(live, fact.job_id, {fact.node: fact.reason})


def _worker_started(live: LiveCluster, event: Event, fact: WorkerStarted) -> None:
    if (job := live._job(fact.job_id)) is not None:
        live._keep(start_workers(job, fact.workers, event.recorded_at))
    elif (pool := live._outlived_in.get(fact.job_id)) is not None:
        past = pool.outlived[fact.job_id]
        pool.outlived[fact.job_id] = replace(past, workers={**past.workers, **fact.workers})


def _worker_exited(live: LiveCluster, event: Event, fact: WorkerExited) -> None:
    if (job := live._job(fact.job_id)) is not None:
        live._keep(exit_workers(job, fact.workers, fact.cause, event.recorded_at))
    elif (pool := live._outlived_in.get(fact.job_id)) is not None:
        past = pool.outlived.pop(fact.job_id)
        if left := {index: node for index, node in past.workers.items() if index not in fact.workers}:
            pool.outlived[fact.job_id] = replace(past, workers=left)
        else:
            del live._outlived_in[fact.job_id]


def _progressed(live: LiveCluster, event: Event, fact: JobProgressed) -> None:
    job = live._job(fact.job_id)
    if job is not None and fact.epochs_done > job.epochs_done:
        live._change(fact.job_id, epochs_done=fact.epochs_done)


def _action_failed(live: LiveCluster, event: Event, fact: ActionFailed) -> None:
    if (job := live._job(fact.job_id)) is not None:
        live._change(fact.job_id, failures=job.failures + 1)


def _node_seen(live: LiveCluster, event: Event, fact: NodeJoined | NodeChanged) -> None:
    _forget_node(live, fact.node.name)
    _lift_all(live, fact.node.name)
    live._touched(fact.node.pool).nodes[fact.node.name] = fact.node


def _node_left(live: LiveCluster, event: Event, fact: NodeLeft) -> None:
    _forget_node(live, fact.name)
    _lift_all(live, fact.name)


def _forget_node(live: LiveCluster, name: str) -> None:
    """A node is in one pool at a time, and its label may change while we look away."""
    for pool in live._pools.values():
        if pool.nodes.pop(name, None) is not None:
            live.touched.add(pool.plan.pool)


def _lift_all(live: LiveCluster, node: str) -> None:
    """What a node refused may fit, once it has changed."""
    for job_id in live._refused_by.pop(node, ()):
        _lift(live, job_id, node)


def _lift(live: LiveCluster, job_id: str, node: str) -> None:
    if (job := live._job(job_id)) is not None and node in job.refusals:
        _unindex(live, job)
        left = {name: reason for name, reason in job.refusals.items() if name != node}
        live._change(job_id, refusals=left)
        _index(live, job_id, left)


def _index(live: LiveCluster, job_id: str, refusals: Mapping[str, str]) -> None:
    for node in refusals:
        live._refused_by.setdefault(node, set()).add(job_id)


def _unindex(live: LiveCluster, job: Job) -> None:
    for node in job.refusals:
        jobs = live._refused_by.get(node, set())
        jobs.discard(job.spec.job_id)
        if not jobs:
            live._refused_by.pop(node, None)


def _plan_adopted(live: LiveCluster, event: Event, fact: PlanAdopted) -> None:
    pool = live._touched(fact.pool)
    pool.plan = adopted(pool.plan, fact, event.recorded_at)
    decided = [job_id for job_id, position in pool.undecided.items() if position <= fact.based_on]
    for job_id in decided:
        del pool.undecided[job_id]
        if pool.jobs[job_id].phase is Phase.SUBMITTED:
            live._change(job_id, phase=Phase.WAITING)


def _priority_changed(live: LiveCluster, event: Event, fact: JobPriorityChanged) -> None:
    live._change(fact.job_id, queue_level=fact.queue_level, queued_since=event.recorded_at)


def _settings_changed(live: LiveCluster, event: Event, fact: PolicyChanged | RatelimitChanged) -> None:
    pool = live._touched(fact.pool)
    known = Settings.__struct_fields__
    given = {name: value for name in fact.__struct_fields__ if (value := getattr(fact, name)) is not None}
    pool.settings = replace(pool.settings, **{name: value for name, value in given.items() if name in known})


_PHASES: Final = {JobCompleted: Phase.COMPLETED, JobFailed: Phase.FAILED, JobCanceled: Phase.CANCELED}
_FOLDS: Final[Mapping[type, Callable[[LiveCluster, Event, Any], None]]] = {
    JobSubmitted: _submitted,
    JobCompleted: _ended,
    JobFailed: _ended,
    JobCanceled: _ended,
    JobCancelRequested: _cancel_requested,
    JobChanged: _changed,
    JobRegistered: _registered,
    WorkerRefused: _refused,
    WorkerStarted: _worker_started,
    WorkerExited: _worker_exited,
    JobProgressed: _progressed,
    ActionFailed: _action_failed,
    NodeJoined: _node_seen,
    NodeChanged: _node_seen,
    NodeLeft: _node_left,
    PlanAdopted: _plan_adopted,
    JobPriorityChanged: _priority_changed,
    PolicyChanged: _settings_changed,
    RatelimitChanged: _settings_changed,
}
