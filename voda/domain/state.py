"""The frozen view that a decision reads, and the settings that steer it."""

import math
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from typing import Final, Literal, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from voda.domain.cells import CellsSpec, GangAllocation
from voda.domain.gpus import NO_GPUS, Gpus, total
from voda.domain.groups import JobGroups, NodeGroups, PlannedRoom, copied
from voda.domain.job import Job
from voda.domain.node import Node
from voda.domain.plan import Placement, Plan
from voda.domain.reasons.nodes import NodeRefusal
from voda.domain.reasons.requests import Requested
from voda.domain.settings import Settings
from voda.domain.shares import SharingNode

T = TypeVar("T")
_FORGOTTEN_GPU_S: Final = 1.0
"""A user who has had less lately, and holds no GPU, counts as one who never had any."""


Source = Literal["measured", "category", "declared", "assumed"]
"""How something is known of a job: by its own reports, by those of others of its category, because its user or the
pool's settings say so, or by a rule that knows nothing of it."""


class Belief(Struct, frozen=True):
    """How an estimate is known, and how far off it may be."""

    source: Source
    spread: float = math.inf
    """A factor >= 1: two of three true values lie between the estimate over it and the estimate times it; infinite
    where nobody knows."""


ASSUMED: Final = Belief("assumed")


class Estimate(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is believed of a job: how it scales, and how long it still needs. The learning projection makes it."""

    speedup: Sequence[float]
    """T(n): shape (max_replicas + 1,), speedup on n replicas relative to one; T(0) = 0."""
    speedup_belief: Belief = ASSUMED
    """Its spread is that of T(requested)."""
    remaining_s: float = math.inf
    """W: seconds left on ONE replica; infinite when nothing is known."""
    remaining_belief: Belief = ASSUMED
    length_source: Source = "declared"
    """How the number of epochs is known: as declared, from those of its category that have ended, or not at all."""
    resize_cost_s: float = 0.0
    """Seconds of training lost by one start, resize or migration of this kind of job."""
    resize_cost_belief: Belief = ASSUMED
    span_penalty: float = 0.0
    """Share by which an epoch takes longer when the workers span nodes; 0.25 means a quarter longer."""

    @property
    def is_assumed(self) -> bool:
        """Whether the speedup is a guess, not measured."""
        return self.speedup_belief.source == "assumed"

    def time_left_s(self, replicas: int) -> float:
        """Return the seconds left on `replicas` workers, 0 <= replicas <= max_replicas; infinite at 0."""
        speed = self.speedup[replicas]
        return self.remaining_s / speed if speed > 0 else math.inf


def linear_speedup(max_replicas: int) -> tuple[float, ...]:
    """Return T(n) = n for n in 0..max_replicas: what is assumed of a job never seen."""
    return tuple(float(n) for n in range(max_replicas + 1))


class UserService(Struct, frozen=True):
    """The GPU time of one user in one pool; GPU-seconds count less the longer ago they were."""

    gpu_s: float = 0.0
    """GPU-seconds had until `at`; those of a half-life before count half."""
    at: float = 0.0
    gpus: Gpus = NO_GPUS
    """Held since then."""

    def by(self, now: float, half_life_s: float) -> "UserService":
        """Return the same at `now`, which is no earlier than `at`; half_life_s > 0."""
        span_s, mean_life_s = max(0.0, now - self.at), mean_life(half_life_s)
        left = math.exp(-span_s / mean_life_s)
        held_gpu_s = self.gpus * mean_life_s * -math.expm1(-span_s / mean_life_s)
        return UserService(self.gpu_s * left + held_gpu_s, max(now, self.at), self.gpus)

    @property
    def is_forgotten(self) -> bool:
        """Whether it differs from no service at all by too little to matter."""
        return not self.gpus and self.gpu_s < _FORGOTTEN_GPU_S


def mean_life(half_life_s: float) -> float:
    """Return the seconds for which a GPU-second counts on average: one GPU held for ever is worth as many of them."""
    return half_life_s / math.log(2.0)


class Surplus(Struct, frozen=True, kw_only=True):
    """The GPUs that planned jobs have beyond their minimum, or that nobody has: how long they are there until a job
    starts on them (`voda/projections/cluster/surplus.py`).
    """

    runs: tuple[tuple[float, Gpus], ...] = ()
    """(since when, GPUs) of what jobs left, oldest first; all other GPUs are there since `begun_at`."""
    begun_at: float = 0.0
    taken_at: float = 0.0
    """When a job last started."""
    lasted_s: float = math.inf
    """How long what the last few starts took had been there, in the mean; infinite until a few jobs have started."""

    def lasts_s(self, above: int, now: float) -> tuple[float, int]:
        """Return for how many seconds more a GPU is likely to be there that starts take after `above` others: as long
        as such ones were lately, as it is, or as nobody has started; and how many more are like it, 0: all.
        """
        since, alike = self.begun_at, 0
        for run_since, gpus in reversed(self.runs):
            if (above := above - gpus) < 0:
                since, alike = run_since, -above
                break
        return max(self.lasted_s, now - min(since, self.taken_at)), alike


class ExpectedRetry(Struct, frozen=True, kw_only=True):
    """A job without workers whose program failed and is to be started again."""

    gpus: Gpus
    """That it needs at least."""
    priority: int
    in_s: float


class ClusterState(Struct, frozen=True, kw_only=True, dict=True):
    """One pool at one position of the log; of ended jobs only those that still have workers are in it."""

    pool: str
    position: int
    jobs: Mapping[str, Job]
    nodes: Mapping[str, Node]
    plan: Plan
    opened: Mapping[str, int] = {}
    """Node -> which opening of a node of the pool was its last, counted from 1: it joined, was uncordoned or undrained,
    or answered again after its workers were given up."""
    estimates: Mapping[str, Estimate]
    settings: Settings
    service: Mapping[str, UserService] = {}
    """User -> GPU time that they have had lately, of those who have had some."""
    surplus: Surplus = Surplus()
    outlived: Mapping[str, Job] = {}
    """Jobs that have ended and of which the log still has workers."""
    silent_since: Mapping[str, float] = {}
    """Node that does not answer or says fewer GPUs than its workers hold -> since when."""
    placed_at: Mapping[str, float] = {}
    """Planned job -> since when it could have had its workers: the plan gave it more, or its user changed it."""
    reclaimed_at: Mapping[str, Mapping[int, float]] = {}
    """Job -> worker at work -> since when the plan has it no more; kept of pools with virtual clusters."""
    overdue: frozenset[str] = frozenset()
    """Jobs whose processes are killed once no plan has them; known where plans are carried out."""
    freed_at: Mapping[str, float] = {}
    """Node -> when a worker last left it."""
    led_at: float = 0.0
    """Since when the present leader leads."""
    drains: Mapping[str, Requested] = {}
    """Node that voda was asked to drain -> why."""
    closed_nodes: Mapping[str, NodeRefusal] = {}
    """Nodes that have room for the workers there and for no others -> why (voda/planner/node_states.py)."""
    scarce: Mapping[str, Mapping[str, int]] = {}
    """Node -> resource that its workers could use up -> thousandths left for them (voda/planner/fit/node_fit.py)."""
    cells: CellsSpec | None = None
    """The cells of the pool and its virtual clusters; None: it has no virtual clusters."""
    cells_revision: int = 0
    """How often they were applied."""
    gangs: Mapping[str, GangAllocation] = {}
    """Gangs of pods that voda does not make, by name; they have their cells before any job."""
    gangs_version: int = 0
    """Of the stream of their facts."""
    shares: Mapping[str, SharingNode] = {}
    """Node -> the account of its GPUs, of those with GPUs to share. A GPU that is shared is foreign in `nodes`."""
    retries: tuple[ExpectedRetry, ...] = ()
    """Of jobs that a decision leaves out until then."""
    room: PlannedRoom | None = None
    """Of this plan, these jobs and nodes, where it is known; that of others counts for nothing."""
    nodes_known: NodeGroups | None = None
    groups: JobGroups | None = None
    """Of these jobs, where it is known; that of others counts for nothing."""
    capacity_limit_gpus: Gpus | None = None
    """GPUs that jobs of higher priority leave to those of this view; None = all that the nodes have."""

    @cached_property
    def capacity_gpus(self) -> Gpus:
        """GPUs that a plan may hand out."""
        if self.capacity_limit_gpus is not None:
            return self.capacity_limit_gpus
        return self.node_groups.capacity_gpus

    @cached_property
    def shared_gpus(self) -> Gpus:
        """GPUs that a plan could hand out if nobody had a part of them."""
        return total(node.usable_gpus - self.nodes[name].usable_gpus for name, node in self.unshared_nodes().items())

    def unshared_nodes(self) -> dict[str, Node]:
        """Return the nodes as they would be if nobody had a part of a GPU."""
        nodes = dict(self.nodes)
        for name, account in self.shares.items():
            if (node := nodes.get(name)) is not None and node.gpus and (used := account.used_gpus()):
                nodes[name] = replace(node, foreign_gpus=Gpus(max(0, node.foreign_gpus - used)))
        return nodes

    @property
    def is_mostly_silent(self) -> bool:
        """Whether more than half of the nodes are silent: then what they share, not the nodes, is believed ill."""
        return mostly_silent(self.silent_since, self.nodes)

    @cached_property
    def node_groups(self) -> NodeGroups:
        """The nodes in their groups."""
        known = self.nodes_known
        return known if known is not None and known.nodes is self.nodes else NodeGroups.of(self.nodes)

    @cached_property
    def job_groups(self) -> JobGroups:
        """The jobs in their groups."""
        return self.known_groups or JobGroups.of(self.jobs)

    @property
    def special_jobs(self) -> Mapping[str, Job]:
        """The jobs that rules are about which are about few."""
        return self.job_groups.special

    def with_jobs(self, changed: Mapping[str, Job], gone: Collection[str] = ()) -> "ClusterState":
        """Return the view with these jobs instead of those of the same ids, and without those that are `gone`."""
        if not (changed or gone):
            return self
        jobs = copied(self.jobs)
        jobs.update(changed)
        for job_id in gone:
            jobs.pop(job_id, None)
        is_few = len(changed) + len(gone) < len(self.jobs) / 2
        groups = self.job_groups.following(jobs, {*changed, *gone}) if is_few else None
        room = self.planned_room
        if room is not None:
            room = room.following(jobs, self.nodes, self.plan.placement, {*changed, *gone}) if is_few else None
        return replace(self, jobs=jobs, groups=groups, room=room)

    @property
    def planned_room(self) -> PlannedRoom | None:
        """What the plan leaves of the nodes, where that is known."""
        room = self.room
        if room is None or room.jobs is not self.jobs or room.nodes is not self.nodes:
            return None
        return room if room.placement is self.plan.placement else None

    @cached_property
    def priorities(self) -> Sequence[int]:
        """The different priorities of jobs that are not being canceled, highest first."""
        if (known := self.known_groups) is None:
            return sorted({job.spec.priority for job in self.jobs.values() if not job.is_canceling}, reverse=True)
        return sorted({priority for priority, *_ in known.shapes}, reverse=True)

    @property
    def known_groups(self) -> JobGroups | None:
        """The groups of the jobs, where they are known."""
        return self.groups if self.groups is not None and self.groups.jobs is self.jobs else None

    def gpus_of(self, replicas: Mapping[str, int]) -> Gpus:
        """Return the GPUs of so many workers of these jobs."""
        if (known := self.known_groups) is not None and len(sizes := {gpus for _, gpus, *_ in known.shapes}) == 1:
            return Gpus(sum(replicas.values()) * sizes.pop())
        return total(size * self.jobs[job_id].spec.gpus_per_replica for job_id, size in replicas.items() if size)

    def free_gpus(self, placement: Placement) -> dict[str, Gpus]:
        """Return node -> GPUs that a placement leaves on it; below 0 where it does not fit. Costs O(workers)."""
        free = {name: node.usable_gpus for name, node in self.nodes.items()}
        for job_id, nodes in placement.items():
            job = self.jobs[job_id]
            for index, node in enumerate(nodes):
                if index not in job.done:
                    free[node] -= job.spec.gpus_per_replica
        return free

    def slots(self, gpus_per_replica: Gpus) -> int:
        """Return how many workers of that many GPUs each the nodes have room for, were they empty."""
        return sum(node.usable_gpus // gpus_per_replica for node in self.nodes.values())


def mostly_silent(silent: Collection[str], nodes: Mapping[str, Node]) -> bool:
    """Say whether more than half of a pool's nodes are silent at once; idle ones that say no GPUs do not count.

    One node alone has nothing in common with others: while it says some GPUs, it is believed.
    """
    if not silent:
        return False
    counted = [node for name, node in nodes.items() if node.gpus or name in silent]
    is_most = 2 * len(silent) > len(counted)
    return is_most and (len(counted) > 1 or not any(node.usable_gpus for node in counted))
