"""How events change a pool: settings, plan, nodes, and since when silent nodes and planned jobs are waited for.

Rules: a node is silent that does not answer, or that says fewer GPUs than its workers hold: one fact with one clock.
Once most nodes of a pool answer again, the others are waited for anew: they may only be a moment behind.
"""

from collections import Counter
from collections.abc import Collection, Container, Iterable, Mapping, MutableMapping
from typing import TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from voda.domain.cells import CellsSpec, GangAllocation, GangPod
from voda.domain.gpus import Gpus
from voda.domain.groups import copied
from voda.domain.job import Job
from voda.domain.node import Node, with_known_labels
from voda.domain.plan import Placement, Plan
from voda.domain.reasons.outcomes import Reason
from voda.domain.reasons.requests import Requested
from voda.domain.settings import Settings, SettingsPatch, patched
from voda.domain.state import UserService, mostly_silent
from voda.events.types import (
    GangFact,
    GangJoined,
    GangPlaced,
    NodeDrainRequested,
    NodeRoomChanged,
    NodeUndrainRequested,
    PlanAdopted,
    WorkerExited,
    WorkerStarted,
)
from voda.projections.cluster.displacements import let_displace_again
from voda.projections.cluster.live_jobs import LiveJobs
from voda.projections.cluster.surplus import SurplusHistory
from voda.projections.jobs.changes import JobPatch, workers_after

DrainFact = NodeDrainRequested | NodeUndrainRequested
T = TypeVar("T")


class LivePool(Struct, kw_only=True):
    """One pool; the projection changes it in place."""

    plan: Plan
    jobs: dict[str, Job] = {}
    nodes: dict[str, Node] = {}
    opened: dict[str, int] = {}
    """As in ClusterState."""
    openings: int = 0
    """The last one of them."""
    settings: Settings = Settings()
    undecided: dict[str, int] = {}
    """Jobs that no plan has considered yet, or not since they were halted or resumed -> position of that."""
    outlived: dict[str, Job] = {}
    """Jobs that have ended and whose workers have not all exited."""
    held: dict[str, int] = {}
    """Node -> GPUs that workers of the pool's jobs hold there, those of jobs that have ended too."""
    silent_since: dict[str, float] = {}
    """Node that is silent -> since when, or since most nodes of the pool answered again."""
    placed_at: dict[str, float] = {}
    freed_at: dict[str, float] = {}
    reclaimed_at: dict[str, dict[int, float]] = {}
    service: dict[str, UserService] = {}
    led_at: float = 0.0
    """These five as in ClusterState."""
    surplus: SurplusHistory = field(default_factory=SurplusHistory)
    drains: dict[str, Requested] = {}
    """Node that voda was asked to drain -> why."""
    cells: CellsSpec = CellsSpec()
    cells_revision: int = 0
    gangs: dict[str, GangAllocation] = {}
    gangs_version: int = 0
    """Of the stream of their facts."""

    def __post_init__(self) -> None:
        self.jobs = LiveJobs(self.jobs)
        self.nodes = {name: with_known_labels(node) for name, node in self.nodes.items()}

    @property
    def live_jobs(self) -> LiveJobs:
        """The jobs, with what is kept beside them."""
        assert isinstance(self.jobs, LiveJobs), "they were made so"
        return self.jobs


def put_node(pool: LivePool, node: Node, at: float) -> None:
    """Store a node that joined or changed at that instant, seconds since the epoch; the last changed node is last."""
    was_ill = mostly_silent(pool.silent_since, pool.nodes)
    before = pool.nodes.pop(node.name, None)
    pool.nodes[node.name] = node
    if before is None or _opens(pool, before, node, at):
        _note_opening(pool, node.name)
    let_displace_again(pool.live_jobs, node)
    # Others' pods may take what workers hold, by preemption: then they make room, and the node has as many as before.
    has_fewer = before is not None and node.gpus < before.gpus
    was_short = before is not None and before.is_ready and node.name in pool.silent_since
    _note_silence(pool, node, at, is_short=has_fewer or was_short)
    _restart(pool, at, was_ill=was_ill)


def put_room(pool: LivePool, fact: NodeRoomChanged) -> None:
    """Store what others leave of a node; one that is not there stays away."""
    if (node := pool.nodes.get(fact.name)) is not None:
        pool.nodes[fact.name] = node = replace(node, room=fact.room)
        let_displace_again(pool.live_jobs, node)


def drop_node(pool: LivePool, name: str, at: float) -> None:
    """Remove a node that is there and left at that instant."""
    was_ill = mostly_silent(pool.silent_since, pool.nodes)
    del pool.nodes[name]
    pool.opened.pop(name, None)
    let_displace_again(pool.live_jobs, name)
    pool.silent_since.pop(name, None)
    _restart(pool, at, was_ill=was_ill)


def _opens(pool: LivePool, before: Node, node: Node, at: float) -> bool:
    """Return whether a node takes new workers again that was cordoned, or silent for so long that it was given up."""
    since = pool.silent_since.get(node.name, at)
    was_given_up = not before.is_ready and at - since >= pool.settings.node_grace_s
    return node.is_open and (was_given_up or not before.is_schedulable or before.is_draining)


def _note_opening(pool: LivePool, name: str) -> None:
    pool.openings += 1
    pool.opened[name] = pool.openings
    let_displace_again(pool.live_jobs, name)


def note_held(pool: LivePool, job: Job, after: Mapping[int, str], changed: Iterable[int], at: float) -> None:
    """Count the GPUs that workers of a job hold: these of them are as in `after` from now on."""
    was_ill = mostly_silent(pool.silent_since, pool.nodes)
    each, gpus = list(changed), job.spec.gpus_per_replica
    gone, come = (Counter(at[index] for index in each if index in at) for at in (job.workers, after))
    if change := (come.total() - gone.total()) * gpus:
        charge_user(pool.service, job.spec.user, change, at, pool.settings.fair_share_half_life_s)
    for name in {**gone, **come}:
        if left := pool.held.pop(name, 0) + (come[name] - gone[name]) * gpus:
            pool.held[name] = left
        if (node := pool.nodes.get(name)) is not None and node.is_ready:
            _note_silence(pool, node, at, is_short=name in pool.silent_since)
    _restart(pool, at, was_ill=was_ill)


def charge_user(services: dict[str, UserService], user: str, gpus: int, now: float, half_life_s: float) -> None:
    """Note that a user holds so many GPUs more from `now` on; below 0: fewer. Costs O(1).

    Who changed longest ago comes first in the mapping, and one of these is forgotten at each change, where it can be.
    """
    before = services.pop(user, UserService(at=now)).by(now, half_life_s)
    services[user] = UserService(before.gpu_s, before.at, Gpus(max(0, before.gpus + gpus)))
    first = next(iter(services))
    oldest = services[first].by(now, half_life_s)
    if oldest.is_forgotten:
        del services[first]
    elif oldest.gpus:
        # It cannot be forgotten, and would hide the others.
        services[first] = services.pop(first)


def _note_silence(pool: LivePool, node: Node, at: float, *, is_short: bool) -> None:
    """Note whether a node is silent; `is_short`: it has fewer GPUs than it had, or was silent for fewer already."""
    held = pool.held.get(node.name, 0)
    lacks = node.gpus < held or (is_short and node.own_gpus < held)
    if node.is_draining or (node.is_ready and not lacks):
        pool.silent_since.pop(node.name, None)
    else:
        pool.silent_since.setdefault(node.name, at)


def with_drains(nodes: Mapping[str, Node], drains: Collection[str]) -> dict[str, Node]:
    """Return the nodes as decisions see them: those that voda was asked to drain are left by their workers."""
    drained = {name: replace(nodes[name], is_draining=True) for name in drains}
    return copied(nodes) | drained


def note_drain(pool: LivePool, fact: DrainFact) -> None:
    """Note whether a node of the pool is drained."""
    pool.drains.pop(fact.name, None)
    if isinstance(fact, NodeDrainRequested):
        pool.drains[fact.name] = fact.reason
    elif fact.name in pool.nodes:
        _note_opening(pool, fact.name)


def _restart(pool: LivePool, at: float, *, was_ill: bool) -> None:
    if was_ill and not mostly_silent(pool.silent_since, pool.nodes):
        pool.silent_since.update(dict.fromkeys(pool.silent_since, at))


def change_settings(pool: LivePool, patch: SettingsPatch, at: float) -> None:
    """Take over new settings; what users had until then has become less by the half-life before."""
    half_life_s = pool.settings.fair_share_half_life_s
    pool.settings = patched(pool.settings, patch)
    if pool.settings.fair_share_half_life_s != half_life_s:
        pool.service = {user: each.by(at, half_life_s) for user, each in pool.service.items()}


def note_placed(pool: LivePool, fact: PlanAdopted, at: float) -> None:
    """Note which live jobs a plan gives workers, and from which it takes all; the plan before is in force still."""
    pool.live_jobs.replanned((*fact.placed, *fact.released))
    for job_id in fact.released:
        pool.placed_at.pop(job_id, None)
        if (job := pool.jobs.get(job_id)) is not None:
            pool.surplus.leave(_least_gpus(pool, job), at)
    for job_id in fact.placed:
        # One that is resized, or planned elsewhere because a node refused it, has not begun to wait anew.
        if job_id not in pool.plan.placement and (job := pool.jobs.get(job_id)) is not None:
            pool.placed_at[job_id] = at
            pool.surplus.take(_least_gpus(pool, job), at)


def _least_gpus(pool: LivePool, job: Job) -> Gpus:
    """Return what counts for the surplus of a pool without virtual clusters."""
    return Gpus(0 if pool.cells.virtual_clusters else job.spec.min_replicas * job.spec.gpus_per_replica)


def change_outlived(pool: LivePool, fact: JobPatch, at: float) -> bool:
    """Fold a fact about a job that has ended, and return whether it has workers left."""
    if not isinstance(fact, WorkerStarted | WorkerExited):
        return True
    outlived = pool.outlived
    job = outlived[fact.job_id]
    left = workers_after(job, fact)
    note_held(pool, job, left, fact.workers, at)
    if isinstance(fact, WorkerExited):
        note_freed(pool.freed_at, pool.nodes, job, fact, at)
        # The order of jobs is that of their last exits.
        del outlived[fact.job_id]
    if left:
        outlived[fact.job_id] = replace(job, workers=left)
    return bool(left)


def move_job(old: LivePool, new: LivePool, job: Job, position: int) -> None:
    """Bring a job that no plan has placed to another pool."""
    job_id = job.spec.job_id
    del old.jobs[job_id]
    forget_job(old, job_id)
    new.jobs[job_id], new.undecided[job_id] = job, position


def end_job(pool: LivePool, job: Job, at: float) -> None:
    """Drop what is noted of a job that has ended, beside its workers; others may have its GPUs."""
    if job.spec.job_id in pool.plan.placement:
        pool.surplus.leave(_least_gpus(pool, job), at)
    forget_job(pool, job.spec.job_id)


def forget_job(pool: LivePool, job_id: str) -> None:
    """Drop what is noted of a job that the pool has no more, beside its workers."""
    for noted in (pool.undecided, pool.placed_at, pool.reclaimed_at):
        noted.pop(job_id, None)
    # A plan releases only what it placed, so the reason of a job that never was would stay for ever.
    if job_id in pool.plan.reasons and job_id not in pool.plan.placement:
        reasons = {other: reason for other, reason in pool.plan.reasons.items() if other != job_id}
        pool.plan = replace(pool.plan, reasons=reasons)


def rebase(pool: LivePool) -> None:
    """Make this state the beginning of another log."""
    pool.plan = replace(pool.plan, based_on=0)
    pool.undecided = dict.fromkeys(pool.undecided, 0)
    pool.gangs_version = 0


def note_surplus(pool: LivePool, job: Job, at: float) -> None:
    """Note which workers of a job are at work though the plan has them no more."""
    if not (pool.cells.virtual_clusters or pool.reclaimed_at):
        return
    job_id = job.spec.job_id
    before, size = pool.reclaimed_at.pop(job_id, {}), len(pool.plan.placement.get(job_id, ()))
    if surplus := {index: before.get(index, at) for index in job.workers if index >= size}:
        pool.reclaimed_at[job_id] = surplus


def note_freed(
    freed_at: MutableMapping[str, float], nodes: Container[str], job: Job, fact: WorkerExited, at: float
) -> None:
    """Note which of the pool's nodes workers of a job left."""
    for index in fact.workers:
        node = job.workers.get(index)
        if node is not None and node in nodes:
            freed_at[node] = at


def adopted(old: Plan, fact: PlanAdopted, decided_at: float) -> Plan:
    """Return the plan in force once the fact is recorded at `decided_at`; the inverse of `voda.planner.decide.changes`.

    Costs two shallow copies of mappings that are as long as the pool has live jobs.
    """
    placement, reasons = copied(old.placement), copied(old.reasons)
    fold(fact, placement, reasons)
    return Plan(
        pool=fact.pool,
        number=fact.number,
        based_on=fact.based_on,
        policy=fact.policy,
        placer=fact.placer,
        decided_at=decided_at,
        cause=fact.cause,
        placement=placement,
        guaranteed=_changed_cells(old.guaranteed, fact.guaranteed, placement),
        devices=_changed_cells(old.devices, fact.devices, placement),
        launchers=_changed_cells(old.launchers, fact.launchers, placement),
        reasons=reasons,
    )


def _changed_cells(old: Mapping[str, T], changed: Mapping[str, T], placement: Placement) -> Mapping[str, T]:
    """Return what is noted of jobs (cells, a node), with what changed; a job of which that is empty is not in it."""
    if not (old or changed):
        return old
    return {job_id: cells for job_id, cells in {**old, **changed}.items() if cells and job_id in placement}


def fold(fact: PlanAdopted, placement: dict[str, tuple[str, ...]], reasons: dict[str, Reason]) -> None:
    """Change a plan's placement and reasons in place; for callers that fold many plans and need only the last."""
    for job_id in fact.released:
        placement.pop(job_id, None)
        # Released without a reason: the job has ended, and needs none.
        reasons.pop(job_id, None)
    placement.update(fact.placed)
    reasons.update(fact.reasons)


def change_gang(pool: LivePool, fact: GangFact, version: int) -> None:
    """Note what a fact, of that version of its stream, says of a gang; void where the gang or place is not there."""
    gangs, pool.gangs_version = pool.gangs, version
    name = fact.request.name if isinstance(fact, GangPlaced) else fact.gang
    gang = gangs.get(name)
    if isinstance(fact, GangPlaced):
        pods = gang.pods if gang is not None else {}
        gangs[name] = GangAllocation(request=fact.request, placement=fact.placement, pods=pods)
    elif gang is None:
        return
    elif isinstance(fact, GangJoined):
        if fact.slot not in gang.pods and 0 <= fact.slot < len(gang.placement):
            pod = GangPod(uid=fact.pod_uid, key=fact.pod)
            gangs[name] = replace(gang, pods={**gang.pods, fact.slot: pod})
    elif left := {slot: pod for slot, pod in gang.pods.items() if pod.uid != fact.pod_uid}:
        gangs[name] = replace(gang, pods=left)
    else:
        del gangs[name]
