"""Jobs that few nodes take get their minimum there before others' surplus, and then their share.

1. For a job that has no place, workers of others leave nodes that take it: they go where there is room for them. Those
   that their jobs have beyond their minimum may also go for good; others only where no such worker helps.
2. A job that has fewer than it is to have gets more by the same steps, where no other job has fewer in the end.

Rules: no job loses its minimum, and none of higher priority, or whose size is fixed, any worker; no anchor moves; what
a job has beyond one of its sizes in the end, it leaves. Only
jobs that some nodes refuse, or that lack a scarce resource, are helped; where there are none, nothing is done. Steps
are counted, and no more are taken than a budget allows: who has not been helped by then stays as it is.
"""

import enum
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import nsmallest
from typing import Final

from msgspec import Struct

from voda.domain.gpus import Gpus, total
from voda.domain.job import Job
from voda.domain.plan import Placement
from voda.domain.state import ClusterState
from voda.placement.free_gpus import FreeGpus
from voda.placement.order import anchor, by_size, is_confined, lacking, most_confined_first, per_node, shape
from voda.placement.scarce import ScarceResources

_MOST_NODES: Final = 64
"""That are tried for one more worker: a bound on the time that a decision takes."""
_MOST_STEPS: Final = 4_000
_MOST_STEPS_BY_NODE: Final = 12
"""Looks at the room of a node, for a whole placement: another bound, for each node that the pool has."""
_MOST_IN_TURN: Final = 2
"""Jobs that make way for each other, one after the other."""


class Ways(Struct, frozen=True, kw_only=True):
    """Who may give way in a placement."""

    view: ClusterState
    replicas: Mapping[str, int]
    """Job -> workers that it is to have."""
    may_shrink: bool
    """Whether jobs may have fewer than that, for others' minimum."""


def give_way(ways: Ways, placed: Placement) -> Placement:
    """Return the placement once others have given way to the jobs that few nodes take."""
    view, replicas = ways.view, ways.replicas
    short = lacking(replicas, placed)
    helped = [job_id for job_id in short if view.scarce or is_confined(view, view.jobs[job_id])]
    if not helped:
        return placed
    order = most_confined_first(view, by_size(view, helped, replicas))
    order = sorted(order, key=lambda job_id: -view.jobs[job_id].spec.priority)
    draft = _Rearrangement(ways, placed)
    # What is in vain for one job is in vain for others of its class: these have the very same refusals.
    in_vain: set[tuple[object, ...]] = set()
    for job_id in order:
        job = view.jobs[job_id]
        if draft.steps_left <= 0:
            break
        alike = *shape(job), job.spec.min_replicas, job.spec.priority
        if job_id not in draft.nodes and alike not in in_vain:
            in_vain |= set() if draft.start(job) else {alike}
    for job_id in order:
        job = view.jobs[job_id]
        if draft.steps_left <= 0:
            break
        if job_id in draft.nodes and draft.has_free(job.spec.gpus_per_replica) and shape(job) not in in_vain:
            in_vain |= set() if draft.grow(job, replicas[job_id]) else {shape(job)}
    return {job_id: nodes[: view.jobs[job_id].spec.size_within(len(nodes))] for job_id, nodes in draft.nodes.items()}


_Rank = tuple[int, int, str]


class _Leavers(enum.Enum):
    """Workers that may leave their nodes for another job, and whether they may go for good."""

    SPARE = enum.auto()
    """Those beyond the minimum of jobs that yield to it; for good."""
    ANY = enum.auto()
    """These, and all others that find another place."""
    MOVING = enum.auto()
    """Those beyond the minimum of any job that find another place."""


class _Rearrangement:
    """A placement while jobs give way."""

    def __init__(self, ways: Ways, placed: Placement) -> None:
        self.nodes = dict(placed)
        """Job -> the node of each worker, of jobs that have a place."""
        self._ways, self._view = ways, ways.view
        self._free = FreeGpus(ways.view.free_gpus(placed))
        self._scarce = ScarceResources(ways.view.scarce)
        self._on: dict[str, dict[str, int]] = defaultdict(dict)
        """Node -> job -> its workers there."""
        for job_id, nodes in placed.items():
            counts = per_node(nodes)
            self._scarce.take_all(ways.view.jobs[job_id], counts)
            for node, count in counts.items():
                self._on[node][job_id] = count
        self._undo: list[tuple[str, tuple[str, ...]]] = []
        self.steps_left = _MOST_STEPS + _MOST_STEPS_BY_NODE * len(ways.view.nodes)
        self._may_leave: bool | None = None
        """Whether any worker may leave its node; None: not known since the last job that was helped."""
        self._ranked: dict[tuple[object, ...], dict[str, _Rank]] = {}
        """Class of jobs without a place -> node -> its rank as a candidate, where others would give up their spare."""
        self._changed: dict[tuple[object, ...], set[str]] = {}
        """The same, and classes that had room on no node -> nodes that have changed since they were looked at."""

    def has_free(self, gpus: Gpus) -> bool:
        """Return whether a node has so many GPUs free."""
        return self._free.most() >= gpus

    def start(self, job: Job) -> bool:
        """Give a job its minimum; return False, with nothing changed, where that cannot be."""
        for who in (_Leavers.SPARE, _Leavers.ANY):
            if who is _Leavers.ANY and not self._any_may_leave():
                break
            self._undo.clear()
            if self._seat(job, job.spec.min_replicas, who) >= job.spec.min_replicas:
                self._may_leave = None
                return True
            self._go_back(0)
        return False

    def grow(self, job: Job, size: int) -> bool:
        """Give a job that has a place more workers, up to a size; return whether it got one."""
        self._undo.clear()
        return self._seat(job, size - len(self.nodes[job.spec.job_id]), _Leavers.MOVING) > 0

    def _any_may_leave(self) -> bool:
        """Return whether a job has workers to spare, or room anywhere for one: else nothing can begin to move."""
        if self._may_leave is None:
            jobs = {shape(job): job for job in map(self._view.jobs.__getitem__, self.nodes)}
            self._may_leave = (self._ways.may_shrink and any(self._spare(job_id) > 0 for job_id in self.nodes)) or any(
                self._scarce.has_room(job, self._free.with_at_least(job.spec.gpus_per_replica)) for job in jobs.values()
            )
        return self._may_leave

    def _seat(self, job: Job, count: int, who: _Leavers) -> int:
        """Give a job so many workers more, or as many as can be; return how many."""
        seated = 0
        for node in self._candidates(job, count, who):
            while seated < count and self._make_room(job, node, who, {}):
                self._put(job.spec.job_id, (*self.nodes.get(job.spec.job_id, ()), node))
                seated += 1
            if seated == count:
                break
        return seated

    def _candidates(self, job: Job, count: int, who: _Leavers) -> Sequence[str]:
        """Return the nodes that may take a worker of the job, those first that have room for the most."""
        if who is not _Leavers.SPARE:
            ranked = self._ranks(job, count, who, self._view.nodes)
        else:
            # Of the nodes that were ranked for another job of its class, only those that have changed are ranked anew.
            alike = *shape(job), count, job.spec.priority
            ranked = self._ranked.setdefault(alike, {})
            changed = self._changed.get(alike, self._view.nodes)
            for name in changed:
                ranked.pop(name, None)
            ranked.update(self._ranks(job, count, who, changed))
            self._changed[alike] = set()
        return [name for _, _, name in nsmallest(_MOST_NODES, ranked.values())]

    def _ranks(self, job: Job, count: int, who: _Leavers, nodes: Iterable[str]) -> dict[str, _Rank]:
        own, ranks = per_node(self.nodes.get(job.spec.job_id, ())), dict[str, _Rank]()
        for name in nodes:
            if not job.is_refused_by(name, own.get(name, 0) + 1) and (most := self._most(job, name, who)) > 0:
                ranks[name] = -min(most, count), -min(self._room(job, name), count), name
        return ranks

    def _most(self, job: Job, node: str, who: _Leavers) -> int:
        """Return how many workers of a job would fit on a node, were all gone that may leave it."""
        self.steps_left -= 1
        jobs, own = self._view.jobs, job.spec.job_id
        leaving = {
            other: count if who is _Leavers.ANY else min(count, self._spare(other))
            for other, count in self._on[node].items()
            if other != own and (who is not _Leavers.SPARE or self._yields(jobs[other], (own,)))
        }
        gpus = self._free[node] + total(jobs[other].spec.gpus_per_replica * count for other, count in leaving.items())
        most = gpus // job.spec.gpus_per_replica
        if node in job.refusals:
            most = min(most, job.fits.get(node, 0) - self._on[node].get(own, 0))
        if most <= 0 or node not in self._scarce.left:
            return most
        for other, count in leaving.items():
            self._scarce.take(jobs[other], node, -count)
        most = self._scarce.most(job, node, most)
        for other, count in leaving.items():
            self._scarce.take(jobs[other], node, count)
        return most

    def _make_room(self, job: Job, node: str, who: _Leavers, served: Mapping[str, str]) -> bool:
        """Have workers of others leave a node until it takes one more of the job; return False where none can.

        `served` are jobs for which this is done, and the nodes that are to take them: these give up nothing for it.
        """
        begun, served = len(self._undo), {**served, job.spec.job_id: node}
        while self._room(job, node) < 1:
            leavers = self._leavers(node, who, served) if self.steps_left > 0 else ()
            if not any(self._send_off(other, index, who, served) for other, index in leavers):
                self._go_back(begun)
                return False
        return True

    def _leavers(self, node: str, who: _Leavers, served: Mapping[str, str]) -> Iterator[tuple[str, int]]:
        """Yield the workers that may leave a node, the cheapest first: of each job the one of the highest index."""
        jobs = self._view.jobs

        def rank(other: str) -> tuple[bool, int, Gpus, float, str]:
            spec = jobs[other].spec
            is_spare = self._spare(other) > 0
            return not is_spare, spec.priority, spec.gpus_per_replica, -jobs[other].submitted_at, other

        for other in sorted((other for other in self._on[node] if other not in served), key=rank):
            if self._spare(other) <= 0 and who is not _Leavers.ANY:
                return
            nodes = self.nodes[other]
            index = max(index for index, name in enumerate(nodes) if name == node)
            if index or anchor(self._view, other) != node:
                yield other, index

    def _send_off(self, other: str, index: int, who: _Leavers, served: Mapping[str, str]) -> bool:
        """Let a worker go elsewhere, or else for good where it may; return whether it went."""
        leaver, nodes = self._view.jobs[other], self.nodes[other]
        if (elsewhere := self._place_for(leaver, who, served)) is not None:
            nodes = self.nodes[other]
            self._put(other, (*nodes[:index], elsewhere, *nodes[index + 1 :]))
            return True
        if who is _Leavers.MOVING or self._spare(other) <= 0 or not self._yields(leaver, served):
            return False
        *rest, last = nodes
        # The last worker fills the gap, under another index: its node has to take it anew.
        if index < len(rest) and leaver.is_refused_by(last, 1):
            return False
        self._put(other, tuple(rest if index == len(rest) else [*rest[:index], last, *rest[index + 1 :]]))
        return True

    def _place_for(self, job: Job, who: _Leavers, served: Mapping[str, str]) -> str | None:
        """Return another node for a worker, one of its job's own if there is a choice; None: there is none."""
        own, wanted = per_node(self.nodes[job.spec.job_id]), {*served.values()}
        for node in (*sorted(own, key=lambda name: (-own[name], name)), *self._free_for(job)):
            if node not in wanted and self._room(job, node) > 0:
                return node
        # Where it has workers itself, there may be room for another job of its class.
        self._changed[shape(job)] = wanted | own.keys()
        if who is not _Leavers.ANY or len(served) > _MOST_IN_TURN or self.steps_left <= 0:
            return None
        # What stands in its way there gives way in turn.
        nodes = (node for node in self._candidates(job, 1, who) if node not in wanted)
        return next((node for node in nodes if self._make_room(job, node, who, served)), None)

    def _free_for(self, job: Job) -> Iterator[str]:
        """Yield the nodes that may have room for a worker, those with the fewest free GPUs first."""
        if (changed := self._changed.get(shape(job))) is None:
            yield from self._free.with_at_least(job.spec.gpus_per_replica)
        else:
            yield from sorted(changed, key=lambda name: (self._free[name], name))

    def _room(self, job: Job, node: str) -> int:
        """Return how many more workers of a job fit on a node."""
        self.steps_left -= 1
        most = self._free[node] // job.spec.gpus_per_replica
        if most and node in job.refusals:
            most = min(most, job.fits.get(node, 0) - self._on[node].get(job.spec.job_id, 0))
        return self._scarce.most(job, node, most) if most > 0 else 0

    def _spare(self, job_id: str) -> int:
        return len(self.nodes[job_id]) - self._view.jobs[job_id].spec.min_replicas

    def _yields(self, job: Job, served: Iterable[str]) -> bool:
        """Return whether a job may have fewer than it is to have, for the minimum of others."""
        jobs = self._view.jobs
        return self._ways.may_shrink and job.spec.priority <= min(jobs[other].spec.priority for other in served)

    def _put(self, job_id: str, nodes: tuple[str, ...]) -> None:
        """Let a job's workers be on these nodes."""
        before = self.nodes.get(job_id, ())
        self._undo.append((job_id, before))
        for changed in self._changed.values():
            changed.update(before, nodes)
        self._account(job_id, before, -1)
        self._account(job_id, nodes, 1)
        if nodes:
            self.nodes[job_id] = nodes
        else:
            del self.nodes[job_id]

    def _account(self, job_id: str, nodes: Sequence[str], sign: int) -> None:
        job, counts = self._view.jobs[job_id], per_node(nodes)
        for node, count in counts.items():
            self._free.take(node, sign * count * job.spec.gpus_per_replica)
            left = self._on[node].get(job_id, 0) + sign * count
            if left:
                self._on[node][job_id] = left
            else:
                del self._on[node][job_id]
        self._scarce.take_all(job, {node: sign * count for node, count in counts.items()})

    def _go_back(self, begun: int) -> None:
        """Undo all steps since so many had been made."""
        while len(self._undo) > begun:
            job_id, nodes = self._undo.pop()
            self._put(job_id, nodes)
            self._undo.pop()
