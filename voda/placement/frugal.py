"""Frugal: as `steady`, but a job that spans nodes is brought together only where that pays for all who move for it.

Rules beside those of `steady`: others leave a node for the job, one or two of them, where the seconds that it saves
exceed those that all lose who move (`PlacementCosts`), be it that they span now; who starts or changes its size moves
for nothing, who ends before a move has paid does not move for others; of what is equally good, fewer nodes win. So by
these figures a plan is never worse than one for which nobody moved.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations, islice
from typing import ClassVar, Final

from msgspec.structs import replace

from voda.domain.job import Job
from voda.domain.plan import Placement
from voda.domain.state import ClusterState
from voda.placement.costs import PlacementCosts
from voda.placement.free_room import FreeRoom
from voda.placement.order import anchor, by_size, per_node
from voda.placement.scarce import ScarceResources
from voda.placement.steady import settled

_MOST_HOMES: Final = 8
"""Nodes, beside its own, on which a job is tried."""
_MOST_LEAVING: Final = 2
"""Jobs that leave a node for another one."""
_MOST_TRIES: Final = 400
"""Exchanges that are tried for a placement: like the others, a bound on the time that a decision takes."""
_MOST_ROUNDS: Final = 4


class Frugal:
    """Keeps workers where they are, unless all moves that bring a job together cost less than it saves."""

    name: ClassVar[str] = "frugal"
    title: ClassVar[str] = "keeps workers where they are, and moves some where all the moves together save time"
    weighs_moves: ClassVar[bool] = True

    def place(self, view: ClusterState, replicas: Mapping[str, int], now: float) -> Placement:
        costs = PlacementCosts(view, replicas, now)
        placed = settled(view, replicas, keeps_spans=True)
        for _ in range(_MOST_ROUNDS):
            better = _Exchanges(view, placed, costs).better()
            if better == placed or all(len(better.get(job_id, ())) == count for job_id, count in replicas.items()):
                return better
            # Room that came together may be enough for a job that lacks workers.
            begun = replace(view, plan=replace(view.plan, placement=better))
            placed = settled(begun, replicas, keeps_spans=True)
        return placed


class _Exchanges:
    """A placement while jobs change places; every job keeps its size."""

    def __init__(self, view: ClusterState, placed: Placement, costs: PlacementCosts) -> None:
        self._view, self._costs = view, costs
        self._placed = dict(placed)
        self._tries_left = _MOST_TRIES

    def better(self) -> Placement:
        """Return the placement once no exchange makes it better."""
        largest = max((node.usable_gpus for node in self._view.nodes.values()), default=0)
        spanning = [
            job_id
            for job_id, nodes in self._placed.items()
            if nodes.count(nodes[0]) < len(nodes)
            and len(nodes) * self._view.jobs[job_id].spec.gpus_per_replica <= largest
            and self._would_gain(job_id)
        ]
        if spanning:
            self._look_at_nodes()
        while spanning and self._tries_left > 0:
            order = sorted(spanning, key=lambda job_id: (-self._costs.spanning_s(job_id), job_id))
            moved = {each for job_id in order for each in self._bring_together(job_id)}
            spanning = [job_id for job_id in {*order, *moved} if moved and self._would_gain(job_id)]
        return self._placed

    def _look_at_nodes(self) -> None:
        view = self._view
        self._room = FreeRoom(view.free_gpus(self._placed), ScarceResources(view.scarce))
        self._on: dict[str, dict[str, int]] = defaultdict(dict)
        """Node -> job -> its workers there."""
        for job_id, nodes in self._placed.items():
            counts = per_node(nodes)
            self._room.scarce.take_all(view.jobs[job_id], counts)
            for node, workers in counts.items():
                self._on[node][job_id] = workers

    def _would_gain(self, job_id: str) -> bool:
        """Return whether a job spans that may move and would be better off on one node, were there room."""
        nodes = self._placed[job_id]
        if len(set(nodes)) < 2 or self._is_held(job_id):
            return False
        # Where it is at work it may lose nothing; elsewhere it loses the same everywhere.
        home = (self._costs.at_work(job_id) or nodes)[0]
        return self._costs.of(job_id, (home,) * len(nodes)) < self._costs.of(job_id, nodes)

    def _is_held(self, job_id: str) -> bool:
        """Return whether a job keeps its places, whatever it or others would gain."""
        nodes, job = self._placed[job_id], self._view.jobs[job_id]
        return (
            not self._view.closed_nodes.keys().isdisjoint(nodes)
            # Elsewhere there may be room for fewer.
            or any(node in job.fits and node in nodes for node in job.workers.values())
            or self._costs.ends_soon(job_id)
        )

    def _bring_together(self, job_id: str) -> Sequence[str]:
        """Put a job on one node if that makes the placement better; return who has moved, the job as well."""
        if not self._would_gain(job_id):
            return ()
        for home in self._homes(job_id):
            for leaving in self._leaving(job_id, home):
                self._tries_left -= 1
                if self._exchange(job_id, home, leaving):
                    return (job_id, *leaving)
                if self._tries_left <= 0:
                    return ()
        return ()

    def _homes(self, job_id: str) -> Sequence[str]:
        """Return the nodes on which a job is tried: its own, the one that fits best, and some with much room."""
        nodes, job = self._placed[job_id], self._view.jobs[job_id]
        if self._is_anchored(job_id):
            return nodes[:1]
        own = per_node(nodes)
        best = self._room.best_fit(job, len(nodes), own)
        roomy = islice(self._room.gpus.with_most(), _MOST_HOMES)
        homes = dict.fromkeys([*sorted(own, key=lambda node: (-own[node], node)), *([best] if best else []), *roomy])
        gpus = len(nodes) * job.spec.gpus_per_replica
        return [home for home in homes if self._view.nodes[home].usable_gpus >= gpus]

    def _is_anchored(self, job_id: str) -> bool:
        return anchor(self._view, job_id) == self._placed[job_id][0]

    def _leaving(self, job_id: str, home: str) -> Iterator[Sequence[str]]:
        """Yield the jobs that may leave a node for another one, those first that lose the least by a move."""
        size, gpus = len(self._placed[job_id]), self._view.jobs[job_id].spec.gpus_per_replica
        lacking = (size - self._on[home].get(job_id, 0)) * gpus - self._room.gpus[home]
        if lacking <= 0:
            yield ()
            return
        saved_s = self._costs.of(job_id, self._placed[job_id]).seconds
        saved_s -= self._costs.of(job_id, (home,) * size).seconds
        held = {
            other: workers * self._view.jobs[other].spec.gpus_per_replica
            for other, workers in self._on[home].items()
            if other != job_id
            and not self._is_held(other)
            and not (self._is_anchored(other) and self._placed[other][0] == home)
        }
        costs_s = {other: self._least_cost_s(other) for other in held}

        def rank(leaving: Sequence[str]) -> tuple[float, int, Sequence[str]]:
            return sum(costs_s[each] for each in leaving), sum(held[each] for each in leaving), leaving

        some = [each for count in range(1, _MOST_LEAVING + 1) for each in combinations(sorted(held), count)]
        ranks = sorted(rank(each) for each in some if sum(held[other] for other in each) >= lacking)
        yield from (leaving for cost_s, _, leaving in ranks if cost_s <= saved_s)

    def _least_cost_s(self, job_id: str) -> float:
        """Return the least that a job loses by leaving its places; 0 where it has left its former ones already."""
        is_there = self._placed[job_id] == self._costs.at_work(job_id)
        return self._costs.restart_s(job_id) if is_there and self._costs.is_settled(job_id) else 0.0

    def _exchange(self, job_id: str, home: str, leaving: Sequence[str]) -> bool:
        """Put a job on a node and those that leave it elsewhere; return False, with all as it was, if that is no
        better.
        """
        before = {each: self._placed[each] for each in (job_id, *leaving)}
        for each in before:
            self._take_off(each)
        sizes = {each: len(nodes) for each, nodes in before.items()}
        places = self._together(job_id, sizes[job_id], home)
        for each in (job_id, *by_size(self._view, leaving, sizes)):
            places = places if each == job_id else self._elsewhere(each, before[each], home)
            if not places:
                break
            self._put(each, places)
        if places and self._loss(before.keys(), self._placed) < self._loss(before.keys(), before):
            return True
        for each in before.keys() & self._placed.keys():
            self._take_off(each)
        for each, nodes in before.items():
            self._put(each, nodes)
        return False

    def _loss(self, jobs: Iterable[str], placed: Placement) -> tuple[float, int]:
        losses = [self._costs.of(job_id, placed[job_id]) for job_id in jobs]
        return round(sum(loss.seconds for loss in losses), 3), sum(loss.nodes for loss in losses)

    def _together(self, job_id: str, size: int, home: str) -> Sequence[str]:
        """Return a job's places on one node; none where that has no room for all."""
        return (home,) * size if self._have_room(self._view.jobs[job_id], (home,) * size) else ()

    def _elsewhere(self, job_id: str, before: Sequence[str], left: str) -> Sequence[str]:
        """Return places for a job that left a node: where it is at work, else one node, else few for those who left."""
        job, at_work = self._view.jobs[job_id], self._costs.at_work(job_id)
        if self._costs.is_settled(job_id) and self._have_room(job, at_work):
            return at_work
        if (best := self._room.best_fit(job, len(before))) is not None:
            return (best,) * len(before)
        staying = per_node(node for node in before if node != left)
        if not self._have_room(job, [node for node in before if node != left]):
            return ()
        self._room.take(job, staying)
        added = self._room.spread(job, before.count(left), staying)
        for taken in (staying, added):
            self._room.take(job, {node: -workers for node, workers in taken.items()})
        places = iter([node for node, workers in added.items() for _ in range(workers)])
        is_whole = sum(added.values()) == before.count(left)
        return tuple([next(places) if node == left else node for node in before]) if is_whole else ()

    def _have_room(self, job: Job, nodes: Sequence[str]) -> bool:
        """Return whether nodes have room for workers of a job that has none there."""
        return all(
            node in self._view.nodes
            and node not in self._view.closed_nodes
            and self._room.gpus[node] >= workers * job.spec.gpus_per_replica
            and self._room.takes(job, node, 0, workers)
            for node, workers in per_node(nodes).items()
        )

    def _take_off(self, job_id: str) -> None:
        counts = per_node(self._placed.pop(job_id))
        self._room.take(self._view.jobs[job_id], {node: -workers for node, workers in counts.items()})
        for node in counts:
            del self._on[node][job_id]

    def _put(self, job_id: str, nodes: Sequence[str]) -> None:
        counts = per_node(nodes)
        self._placed[job_id] = tuple(nodes)
        self._room.take(self._view.jobs[job_id], counts)
        for node, workers in counts.items():
            self._on[node][job_id] = workers
