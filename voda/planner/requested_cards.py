"""Cards that jobs give up for pods that wait for parts of them: how many of each node, and where some can be spared.

1. Pods that have requested cards come in the order of their requests, among the jobs that wait for whole GPUs.
2. Each has room beside shares that are there, or else on whole cards that no job needs for its minimum: none that runs
   or is planned to, and no waiting one that comes before the request and that the nodes could hold.
3. Those cards are others' for policies, so that elastic jobs shrink; and they stay so until the pod has its cards.
   Which jobs shrink is the policy's choice: requests for which a job would lose its place are not served.

Rules: pure; a request for which nothing can be spared changes nothing; which card a pod gets is decided where cards are
free by then. Pools with virtual clusters serve no requests: pods are in no virtual cluster.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, NamedTuple

from msgspec.structs import replace

from voda.domain.gpus import MILLI_PER_DEVICE, GpuRequest, Gpus
from voda.domain.job import Job
from voda.domain.shares import SharingNode
from voda.domain.state import ClusterState
from voda.planner.feasibility import feasible_view, without_jobs
from voda.planner.spare_gpus import is_waiting, spare_gpus, takes_shares
from voda.planner.virtual_clusters.cell_plan import Placed

_MOST_TRIES: Final = 8
"""Decisions beside that which serves all requests: a bound on the time that one takes."""
Containers = Mapping[str, GpuRequest]
_Turn = tuple[int, float, str]
"""Lower ones come first: higher priority, then earlier submission."""


class Served(NamedTuple):
    """What the request of a pod gets: so many whole cards of a node, beside parts of others."""

    node: str
    cards: int
    requested_at: float


def serve_requests(view: ClusterState, undisturbed: Placed, place: Callable[[ClusterState], Placed]) -> Placed:
    """Return what is placed while those requests are served for which no job loses its place.

    Args:
        view: of a pool without virtual clusters.
        undisturbed: what is placed of it while none is served.
        place: of a view in which cards are others'.
    """
    if not any(account.requests for account in view.shares.values()):
        return undisturbed
    possible, _ = feasible_view(view)
    served = [each for each in SpareCards(possible).served.values() if each.cards]
    serving = _Serving(view, undisturbed, place)
    if not served or serving.accepts(served):
        return serving.placed
    # One that no job can make room for is to keep nobody else waiting, and a decision takes its time.
    at, size = 0, 1
    for _ in range(_MOST_TRIES):
        if at >= len(served) or len(served) == 1:
            break
        if serving.accepts(served[at : at + size]):
            at, size = at + size, 2 * size
        elif size > 1:
            size = 1
        else:
            at += 1
    return serving.placed


class _Serving:
    """What is placed while some requests are served."""

    def __init__(self, view: ClusterState, undisturbed: Placed, place: Callable[[ClusterState], Placed]) -> None:
        self.placed = undisturbed
        self._undisturbed = undisturbed
        self._place = place
        # What is left of cards that a large worker leaves is for nobody to start on who would stop them from leaving.
        self._late = {job_id for job_id in view.jobs if job_id not in undisturbed.placement}
        self._view = without_jobs(view, self._late)
        self._accepted: list[Served] = []

    def accepts(self, more: Sequence[Served]) -> bool:
        """Serve more requests, and say whether no job loses its place: one that runs or is to, or that comes first."""
        served = [*self._accepted, *more]
        placed, until = self._place(self._with(served)), max((each.requested_at for each in served), default=0.0)
        for job_id in self._undisturbed.placement.keys() - placed.placement.keys():
            job = self._view.jobs[job_id]
            if not is_waiting(self._view, job) or _job_turn(job) < (0, until, ""):
                return False
        self._accepted, self.placed = served, self._with_late(placed)
        return True

    def _with(self, served: Sequence[Served]) -> ClusterState:
        nodes = dict(self._view.nodes)
        for each in served:
            node = nodes[each.node]
            nodes[each.node] = replace(node, foreign_gpus=Gpus(min(node.gpus, node.foreign_gpus + each.cards)))
        return replace(self._view, nodes=nodes)

    def _with_late(self, placed: Placed) -> Placed:
        was = self._undisturbed
        reasons = {job_id: why for job_id, why in was.reasons.items() if job_id in self._late}
        left_out = {job_id: why for job_id, why in was.left_out.items() if job_id in self._late}
        return replace(placed, reasons={**reasons, **placed.reasons}, left_out={**left_out, **placed.left_out})


class SpareCards:
    """What jobs of a pool can spare, beyond what the requests that there are get."""

    def __init__(self, view: ClusterState) -> None:
        self.served = dict[str, Served]()
        """By uid of the pod, in the order of turns; those of which the node can spare what they ask for."""
        self._spare = dict(spare_gpus(view))
        self._left = sum(self._spare.values())
        """Of the pool, less what waiting jobs need that come before."""
        self._nodes = {
            name: _NodeCards(account)
            for name, account in view.shares.items()
            if account.is_claimed and takes_shares(view, name)
        }
        # A pod names no priority, and neither do most jobs: those of a lower one come after all pods.
        waiting = [job for job in view.jobs.values() if is_waiting(view, job) and job.spec.priority >= 0]
        turns: list[tuple[_Turn, Job | _RequestTurn]] = [(_job_turn(job), job) for job in waiting]
        turns += [
            # Of one node they come as they were made, by which they had room: an instant has many.
            ((0, request.requested_at, f"{number:09} {name}"), _RequestTurn(name, uid))
            for name in self._nodes
            for number, (uid, request) in enumerate(view.shares[name].requests.items())
        ]
        for _, turn in sorted(turns, key=lambda each: each[0]):
            if isinstance(turn, Job):
                need = turn.spec.min_replicas * turn.spec.gpus_per_replica
                self._left -= need if need <= self._left else 0
                continue
            request = view.shares[turn.node].requests[turn.uid]
            if (cards := self.take(turn.node, request.containers)) is not None:
                self.served[turn.uid] = Served(turn.node, cards, request.requested_at)

    def node_for(self, containers: Containers, nodes: Collection[str]) -> str:
        """Return the node, of these, where a pod takes the fewest whole cards, and most can be spared; empty: none."""
        found, needed_of = dict[str, int](), dict[_State, int | None]()
        for name in self._nodes.keys() & nodes:
            # Most nodes are alike: nobody shares a card there.
            state = self._nodes[name].state
            if state not in needed_of:
                needed_of[state] = self._nodes[name].whole_needed(containers)
            if (needed := needed_of[state]) is not None and self._can_spare(name, needed):
                found[name] = needed
        return min(found, key=lambda name: (found[name], -self._spare[name], name), default="")

    def has_any(self, nodes: Collection[str]) -> bool:
        """Return whether any of the nodes is one of these."""
        return not self._nodes.keys().isdisjoint(nodes)

    def take(self, name: str, containers: Containers) -> int | None:
        """Give a pod what it asks for of a node, if that can be spared, and return how many whole cards it takes."""
        node = self._nodes[name]
        needed = node.whole_needed(containers)
        if needed is None or not self._can_spare(name, needed):
            return None
        node.take(containers)
        self._spare[name] -= needed
        self._left -= needed
        return needed

    def _can_spare(self, name: str, cards: int) -> bool:
        return cards <= min(self._spare[name], self._left) or not cards


class _RequestTurn(NamedTuple):
    """A request of a pod for cards of a node."""

    node: str
    uid: str


def _job_turn(job: Job) -> _Turn:
    return -job.spec.priority, job.submitted_at, job.spec.job_id


class _Left(NamedTuple):
    """What is left of a card."""

    milli: int
    memory_mib: int

    def has(self, request: GpuRequest) -> bool:
        return self.milli >= max(1, request.milli) and self.memory_mib >= request.memory_mib

    def less(self, request: GpuRequest) -> "_Left":
        return _Left(self.milli - request.milli, self.memory_mib - request.memory_mib)


_State = tuple[_Left, ...]


class _NodeCards:
    """What is left of the cards of a node: of those that somebody shares, and of a whole one."""

    def __init__(self, account: SharingNode) -> None:
        self._shared = [_Left(left.milli, left.memory_mib) for left in account.free() if not left.is_whole]
        # Which whole cards will be free nobody knows yet: any of them is to be large enough.
        self._whole = _Left(MILLI_PER_DEVICE, min((device.memory_mib for device in account.devices), default=0))
        self.state: _State = (self._whole, *self._shared)
        """What decides the answers."""

    def whole_needed(self, containers: Containers) -> int | None:
        """Return how many whole cards a pod takes; None: no card has as much as it asks for."""
        found = self._with(containers)
        return found[0] if found is not None else None

    def take(self, containers: Containers) -> None:
        """Give a pod as much of the cards as it asks for; it fits."""
        found = self._with(containers)
        assert found is not None
        self._shared = found[1]
        self.state = (self._whole, *self._shared)

    def _with(self, containers: Containers) -> tuple[int, list[_Left]] | None:
        """Return the whole cards that a pod takes, and what is left of shared ones then."""
        shared, whole = list(self._shared), 0
        for request in sorted(containers.values(), key=lambda each: (each.milli, each.memory_mib), reverse=True):
            whole += request.devices
            if not request.is_share:
                continue
            fitting = [left for left in shared if left.has(request)]
            if fitting:
                # The fullest: what the rater will choose is not known here, and the fewest whole ones are to go.
                shared.remove(tightest := min(fitting))
                shared.append(tightest.less(request))
            elif self._whole.has(request):
                whole += 1
                shared.append(self._whole.less(request))
            else:
                return None
        return whole, shared
