"""Cards that jobs give up for pods that wait for parts of them: how many of each node, and where some can be spared.

1. Pods that have requested cards come in the order of their requests, among the jobs that wait for whole GPUs.
2. Each has room beside shares that are there, or else on whole cards that no job needs for its minimum: none that runs
   or is planned to, and no waiting one that comes before the request and that the nodes could hold.
3. Those cards are others' for policies, so that elastic jobs shrink; and they stay so until the pod has its cards.

Rules: pure; a request for which nothing can be spared changes nothing; which card a pod gets is decided where cards are
free by then. Pools with virtual clusters serve no requests: pods are in no virtual cluster.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from typing import NamedTuple

from msgspec.structs import replace

from voda.domain.gpus import MILLI_PER_DEVICE, GpuRequest, Gpus
from voda.domain.job import Job
from voda.domain.shares import SharingNode
from voda.domain.state import ClusterState
from voda.planner.feasibility import feasible_view
from voda.planner.spare_gpus import is_waiting, spare_gpus, takes_shares

Containers = Mapping[str, GpuRequest]
_Turn = tuple[int, float, str]
"""Lower ones come first: higher priority, then earlier submission."""


def with_requested_cards(view: ClusterState) -> ClusterState:
    """Return the view in which cards that pods have requested, and jobs can spare, are others'."""
    if not any(account.requests for account in view.shares.values()):
        return view
    possible, _ = feasible_view(view)
    taken, nodes = SpareCards(possible).taken, dict(view.nodes)
    for name, cards in taken.items():
        nodes[name] = replace(nodes[name], foreign_gpus=Gpus(min(nodes[name].gpus, nodes[name].foreign_gpus + cards)))
    return replace(view, nodes=nodes)


class SpareCards:
    """What jobs of a pool can spare, beyond what the requests that there are get."""

    def __init__(self, view: ClusterState) -> None:
        self.taken = Counter[str]()
        """Node -> whole cards that the requests get."""
        self.served = set[str]()
        """Uids of pods whose requests get what they ask for."""
        self._spare = dict(spare_gpus(view))
        self._left = sum(self._spare.values())
        """Of the pool, less what waiting jobs need that come before."""
        self._nodes = {
            name: _NodeCards(account)
            for name, account in view.shares.items()
            if account.is_claimed and takes_shares(view, name)
        }
        waiting = [job for job in view.jobs.values() if is_waiting(view, job)]
        turns: list[tuple[_Turn, Job | str]] = [
            ((-job.spec.priority, job.submitted_at, job.spec.job_id), job) for job in waiting
        ]
        # A pod names no priority, and neither do most jobs.
        turns += [
            ((0, request.requested_at, uid), name)
            for name in self._nodes
            for uid, request in view.shares[name].requests.items()
        ]
        for (*_, uid), turn in sorted(turns, key=lambda each: each[0]):
            if isinstance(turn, Job):
                need = turn.spec.min_replicas * turn.spec.gpus_per_replica
                self._left -= need if need <= self._left else 0
            elif self.take(turn, view.shares[turn].requests[uid].containers):
                self.served.add(uid)

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

    def take(self, name: str, containers: Containers) -> bool:
        """Give a pod what it asks for of a node, if that can be spared; say whether it can."""
        node = self._nodes[name]
        needed = node.whole_needed(containers)
        if needed is None or not self._can_spare(name, needed):
            return False
        node.take(containers)
        self.taken[name] += needed
        self._spare[name] -= needed
        self._left -= needed
        return True

    def _can_spare(self, name: str, cards: int) -> bool:
        return cards <= min(self._spare[name], self._left) or not cards


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

    @property
    def state(self) -> "_State":
        """What decides the answers."""
        return (self._whole, *self._shared)

    def whole_needed(self, containers: Containers) -> int | None:
        """Return how many whole cards a pod takes; None: no card has as much as it asks for."""
        found = self._with(containers)
        return found[0] if found is not None else None

    def take(self, containers: Containers) -> None:
        """Give a pod as much of the cards as it asks for; it fits."""
        found = self._with(containers)
        assert found is not None
        self._shared = found[1]

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
