"""The unfinished jobs, nodes, the plan in force and the settings of all pools.

Rules: a decision reads the log through `Live.state` only; folding an event costs O(1), whatever happened before; a plan
costs O(jobs placed).
"""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec
from msgspec.structs import replace

from voda.domain.cells import CellsSpec
from voda.domain.job import Job, Phase
from voda.domain.node import Node
from voda.domain.plan import Plan
from voda.domain.reasons.requests import Unmet
from voda.domain.settings import Settings
from voda.domain.state import ClusterState, Estimate
from voda.events import types as facts
from voda.events.envelope import Event
from voda.events.message_pack import append, append_structs
from voda.projections.base import Projection, considered
from voda.projections.cluster import pool_changes
from voda.projections.cluster.dependencies import Dependencies, LiveArray
from voda.projections.cluster.displacements import displacing
from voda.projections.cluster.pool_changes import LivePool
from voda.projections.cluster.shares import ShareAccounts
from voda.projections.jobs.changes import END_PHASES, JobPatch, changed_job, new_job, refused_job, replanned_job

_ARRAY_OF_FOUR: Final = b"\x94"


class LiveCluster(Projection):
    """The state that decisions read."""

    def __init__(self) -> None:
        self.position = 0
        self.changed_pools: set[str] = set()
        """Pools that the last event changed. Not part of the state."""
        self._pools: dict[str, LivePool] = {}
        self._pool_of: dict[str, LivePool] = {}
        self._outlived_in: dict[str, LivePool] = {}
        self._refused_by: dict[str, set[str]] = {}
        """Node -> jobs it refuses: an index of `Job.refusals`."""
        self._dependencies = Dependencies(self._pool_of.__contains__)
        self._unsatisfiable: dict[str, dict[str, None]] = {}
        """Pool -> jobs whose dependencies cannot be met any more: an index of `Job.unsatisfiable`."""
        self.shares = ShareAccounts()

    def apply(self, event: Event) -> None:
        self.changed_pools.clear()
        self.shares.apply(event)
        super().apply(event)
        self.position = event.position

    def pools(self) -> tuple[str, ...]:
        """Return the names of all pools that events ever named, sorted."""
        return tuple(sorted(self._pools))

    def job(self, job_id: str) -> Job | None:
        """Return a live job."""
        pool = self._pool_of.get(job_id)
        return pool.jobs[job_id] if pool else None

    def unsatisfiable(self, pool: str) -> Mapping[str, Unmet]:
        """Return the live jobs whose dependencies can no longer be met, and why not, but for those being canceled."""
        jobs = self.pool(pool).jobs
        found = {job_id: jobs[job_id] for job_id in self._unsatisfiable.get(pool, ())}
        return {
            job_id: job.unsatisfiable
            for job_id, job in found.items()
            if job.unsatisfiable is not None and not job.is_canceling
        }

    def array(self, array_id: str) -> LiveArray | None:
        """Return an array of which some tasks are live, or have yet to come."""
        return self._dependencies.array(array_id)

    def undecided(self, pool: str) -> frozenset[str]:
        return frozenset(self.pool(pool).undecided)

    def plan(self, pool: str) -> Plan:
        return self.pool(pool).plan

    def settings(self, pool: str) -> Settings:
        return self.pool(pool).settings

    def state(self, pool: str, estimates: Mapping[str, Estimate] | None = None) -> ClusterState:
        """Return a frozen view of one pool; later events do not change it. Costs O(live jobs)."""
        live_pool = self.pool(pool)
        groups, plan = live_pool.live_jobs.groups(), live_pool.plan
        whole = self.shares.without_shared_gpus(pool_changes.with_drains(live_pool.nodes, live_pool.drains))
        nodes = live_pool.live_jobs.node_groups(whole)
        return ClusterState(
            pool=pool,
            position=self.position,
            jobs=groups.jobs,
            nodes=nodes.nodes,
            plan=plan,
            opened=live_pool.opened.copy(),
            estimates=estimates or {},
            settings=live_pool.settings,
            service=live_pool.service.copy(),
            surplus=live_pool.surplus.surplus,
            outlived=live_pool.outlived.copy(),
            silent_since=live_pool.silent_since.copy(),
            placed_at=live_pool.placed_at.copy(),
            freed_at=live_pool.freed_at.copy(),
            reclaimed_at=live_pool.reclaimed_at.copy(),
            led_at=live_pool.led_at,
            drains=live_pool.drains.copy(),
            cells=self.cells(pool),
            shares=self.shares.accounts(live_pool.nodes),
            cells_revision=live_pool.cells_revision,
            gangs=live_pool.gangs.copy(),
            gangs_version=live_pool.gangs_version,
            nodes_known=nodes,
            groups=groups,
            room=None if self.cells(pool) else live_pool.live_jobs.room(groups.jobs, nodes.nodes, plan.placement),
        )

    def cells(self, pool: str) -> CellsSpec | None:
        """Return the cells and virtual clusters of the pool; None: it has no virtual clusters."""
        return cells if (cells := self.pool(pool).cells).virtual_clusters else None

    def nodes(self, pool: str) -> Mapping[str, Node]:
        """Return the nodes as the cluster shows them, read-only and changing with the log."""
        return self.pool(pool).nodes

    def jobs(self, pool: str) -> Mapping[str, Job]:
        """Return the live jobs of the pool, read-only and changing with the log."""
        return self.pool(pool).jobs

    def dump(self) -> bytes:
        """Return the whole state as MessagePack; folding the same log gives the same bytes."""
        buffer = bytearray(_ARRAY_OF_FOUR)
        append(buffer, self.position)
        append_structs(buffer, self._pools)
        append(buffer, self._dependencies.dump())
        append(buffer, self.shares.dump())
        return bytes(buffer)

    def load(self, state: bytes) -> None:
        kind = tuple[int, dict[str, LivePool], bytes, bytes]
        self.position, self._pools, dependencies, shares = msgspec.msgpack.decode(state, type=kind)
        self._pool_of = {job_id: pool for pool in self._pools.values() for job_id in pool.jobs}
        self._dependencies = Dependencies(self._pool_of.__contains__)
        self._dependencies.load(dependencies)
        self.shares.load(shares)
        self._unsatisfiable, self._refused_by = {}, {}
        self._outlived_in = {job_id: pool for pool in self._pools.values() for job_id in pool.outlived}
        for pool in self._pools.values():
            for job_id, job in pool.jobs.items():
                _index(self, job_id, job.refusals)
                self._dependencies.index(job)
                if job.unsatisfiable:
                    self._unsatisfiable.setdefault(pool.plan.pool, {})[job_id] = None

    def rebase(self) -> None:
        """Make this state the beginning of another log, whose first event is at position 1."""
        self.position = 0
        self.shares.rebase()
        for pool in self._pools.values():
            pool_changes.rebase(pool)

    def pool(self, name: str) -> LivePool:
        """Return a pool to read; an unknown one is empty, and stays unknown."""
        return self._pools.get(name) or LivePool(plan=Plan(pool=name))

    def _change_pool(self, name: str) -> LivePool:
        """Return a pool that the present event changes."""
        self.changed_pools.add(name)
        return self._pools.setdefault(name, self.pool(name))


def _store(live: LiveCluster, job: Job) -> None:
    pool = live._pool_of[job.spec.job_id]
    live.changed_pools.add(pool.plan.pool)
    pool.jobs[job.spec.job_id] = job


@LiveCluster.folds
def _submitted(live: LiveCluster, fact: facts.JobSubmitted, event: Event) -> None:
    job_id = fact.spec.job_id
    if job_id in live._pool_of:
        return
    pool = live._pool_of[job_id] = live._change_pool(fact.spec.pool)
    job = new_job(fact.spec, event.recorded_at)
    pool.jobs[job_id] = job
    live._dependencies.add(fact.spec)
    live._dependencies.index(job)
    _resolve(live, job_id, event.position)
    pool.undecided[job_id] = event.position


@LiveCluster.folds
def _ended(live: LiveCluster, fact: facts.JobEnd, event: Event) -> None:
    if (pool := live._pool_of.pop(fact.job_id, None)) is not None:
        live.changed_pools.add(pool.plan.pool)
        job = pool.jobs[fact.job_id]
        del pool.jobs[fact.job_id]
        _unindex(live, job)
        live._unsatisfiable.get(pool.plan.pool, {}).pop(fact.job_id, None)
        for waiting in live._dependencies.end(job, END_PHASES[type(fact)]):
            _resolve(live, waiting, event.position)
        if job.workers:
            pool.outlived[fact.job_id] = replace(job, phase=END_PHASES[type(fact)])
            live._outlived_in[fact.job_id] = pool
        pool_changes.end_job(pool, job, event.recorded_at)


def _resolve(live: LiveCluster, job_id: str, position: int) -> None:
    """Drop the dependencies of a live job that are met."""
    pool = live._pool_of[job_id]
    before = pool.jobs[job_id]
    if (job := live._dependencies.resolved(before)) is before:
        return
    _store(live, job)
    if job.unsatisfiable:
        live._unsatisfiable.setdefault(pool.plan.pool, {})[job_id] = None
    if not job.waits_for:
        # The next plan gives another reason why it waits.
        pool.undecided[job_id] = position


@LiveCluster.folds
def _job_changed(live: LiveCluster, fact: JobPatch, event: Event) -> None:
    if (job := live.job(fact.job_id)) is not None:
        if isinstance(fact, facts.JobChanged):
            _unindex(live, job)
        elif isinstance(fact, facts.JobHaltRequested | facts.JobResumeRequested | facts.JobBackedOff):
            # The next plan gives a reason for it, also where its workers stay as they are.
            live._pool_of[fact.job_id].undecided[fact.job_id] = event.position
        elif isinstance(fact, facts.JobCancelRequested) and fact.with_array and job.spec.array is not None:
            live._dependencies.cancel_array(job.spec.array)
        pool = live._pool_of[fact.job_id]
        if isinstance(fact, facts.JobChanged | facts.JobResumeRequested) and fact.job_id in pool.placed_at:
            pool.placed_at[fact.job_id] = event.recorded_at
        elif isinstance(fact, facts.WorkerExited):
            pool_changes.note_freed(pool.freed_at, pool.nodes, job, fact, event.recorded_at)
        planned = pool.plan.placement.get(fact.job_id, ())
        if (changed := changed_job(job, fact, event.recorded_at, planned)) is not job:
            _store(live, changed)
            if changed.spec.pool != pool.plan.pool:
                live._pool_of[fact.job_id] = new = live._change_pool(changed.spec.pool)
                pool_changes.move_job(pool, new, changed, event.position)
            if isinstance(fact, facts.WorkerStarted | facts.WorkerExited):
                pool_changes.note_held(pool, job, changed.workers, fact.workers, event.recorded_at)
                pool_changes.note_surplus(pool, changed, event.recorded_at)
    elif (ended_in := live._outlived_in.get(fact.job_id)) is not None:
        if not pool_changes.change_outlived(ended_in, fact, event.recorded_at):
            del live._outlived_in[fact.job_id]
        live.changed_pools.add(ended_in.plan.pool)


@LiveCluster.folds
def _worker_refused(live: LiveCluster, fact: facts.WorkerRefused, event: Event | None = None) -> None:
    if (job := live.job(fact.job_id)) is None:
        return
    pool = live._pool_of[fact.job_id]
    if (changed := refused_job(job, fact, pool.nodes, pool.openings)) is not job:
        _unindex(live, job)
        _store(live, changed)
        _index(live, fact.job_id, changed.refusals)


@LiveCluster.folds
def _node_changed(live: LiveCluster, fact: facts.NodeJoined | facts.NodeChanged, event: Event) -> None:
    pool = live._change_pool(fact.node.pool)
    # Its label may have changed unobserved.
    _forget_node(live, fact.node.name, event.recorded_at, stays_in=pool)
    pool_changes.put_node(pool, fact.node, event.recorded_at)


@LiveCluster.folds
def _room_changed(live: LiveCluster, fact: facts.NodeRoomChanged, event: Event) -> None:
    pool_changes.put_room(live._change_pool(fact.pool), fact)


@LiveCluster.folds
def _node_left(live: LiveCluster, fact: facts.NodeLeft, event: Event) -> None:
    _forget_node(live, fact.name, event.recorded_at)


@LiveCluster.folds
def _share_changed(live: LiveCluster, fact: facts.ShareFact, event: Event) -> None:
    # Plans are of whole GPUs: GPUs of a node that offers none beside them change nothing for a pool.
    for name, pool in live._pools.items():
        if (node := pool.nodes.get(fact.node)) is not None and node.gpus:
            live.changed_pools.add(name)


@LiveCluster.folds
def _drain_requested(live: LiveCluster, fact: pool_changes.DrainFact, event: Event) -> None:
    for pool in live._pools.values():
        if fact.name in pool.nodes:
            pool_changes.note_drain(pool, fact)
            live.changed_pools.add(pool.plan.pool)


def _forget_node(live: LiveCluster, name: str, at: float, *, stays_in: LivePool | None = None) -> None:
    """Remove a node from its pool, and lift its refusals."""
    for pool in live._pools.values():
        if pool is not stays_in and name in pool.nodes:
            pool_changes.drop_node(pool, name, at)
            pool.freed_at.pop(name, None)
            if (drain := pool.drains.pop(name, None)) is not None and stays_in is not None:
                stays_in.drains[name] = drain
            live.changed_pools.add(pool.plan.pool)
    for job_id in live._refused_by.pop(name, ()):
        _worker_refused(live, facts.WorkerRefused(job_id=job_id, node=name))


def _index(live: LiveCluster, job_id: str, refusals: Iterable[str]) -> None:
    for node in refusals:
        live._refused_by.setdefault(node, set()).add(job_id)


def _unindex(live: LiveCluster, job: Job) -> None:
    for node in job.refusals:
        jobs = live._refused_by.get(node, set())
        jobs.discard(job.spec.job_id)
        if not jobs:
            live._refused_by.pop(node, None)


@LiveCluster.folds
def _plan_adopted(live: LiveCluster, fact: facts.PlanAdopted, event: Event) -> None:
    pool = live._change_pool(fact.pool)
    pool_changes.note_placed(pool, fact, event.recorded_at)
    displaced_by = displacing(pool.plan.placement, fact, pool.jobs)
    pool.plan = pool_changes.adopted(pool.plan, fact, event.recorded_at)
    for job_id in considered(fact, pool.undecided):
        del pool.undecided[job_id]
        if (job := pool.jobs[job_id]).phase is Phase.SUBMITTED:
            _store(live, replace(job, phase=Phase.WAITING))
    for job_id in (*fact.placed, *fact.released):
        if (before := pool.jobs.get(job_id)) is not None:
            after = replanned_job(before, fact, has_displaced=job_id in displaced_by)
            if after is not before:
                _store(live, after)
            pool_changes.note_surplus(pool, after, event.recorded_at)


@LiveCluster.folds
def _elected(live: LiveCluster, fact: facts.LeaderElected, event: Event) -> None:
    if fact.pool in live._pools:
        live._change_pool(fact.pool).led_at = event.recorded_at


@LiveCluster.folds
def _settings_changed(live: LiveCluster, fact: facts.SettingsChanged, event: Event) -> None:
    pool_changes.change_settings(live._change_pool(fact.pool), fact.settings, event.recorded_at)


@LiveCluster.folds
def _cells_applied(live: LiveCluster, fact: facts.VirtualClustersApplied, event: Event) -> None:
    pool = live._change_pool(fact.pool)
    pool.cells, pool.cells_revision = fact.cells, event.version


@LiveCluster.folds
def _gang_changed(live: LiveCluster, fact: facts.GangFact, event: Event) -> None:
    pool_changes.change_gang(live._change_pool(fact.pool), fact, event.version)
