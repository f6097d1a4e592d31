"""GPUs that jobs give up for pods that wait for parts of them: how many of each node, and where some can be spared.

1. Pods that have requested GPUs come in the order of their requests, among the jobs that wait for whole GPUs.
2. Each has room beside shares that are there, or else on whole GPUs that no job needs for its minimum: none that runs
   or is planned to, and no waiting one that comes before the request and that the nodes could hold.
3. Those GPUs are others' for policies, so that elastic jobs shrink; and they stay so until the pod has its GPUs.
   Which jobs shrink is the policy's choice. Where a job would lose its place for all requests together, the oldest one
   is served alone; and where it would for that one, none is.

Rules: pure; a request for which nothing can be spared changes nothing; which GPU a pod gets is decided where GPUs are
free by then. Pools with virtual clusters serve no requests: pods are in no virtual cluster.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from voda.domain.gpus import MILLI_PER_DEVICE, GpuRequest, Gpus
from voda.domain.job import Job
from voda.domain.shares import GpuRemainder, SharingNode
from voda.domain.state import ClusterState
from voda.planner.candidates import Placed
from voda.planner.feasibility import feasible_view, without_jobs
from voda.planner.sharing.spare_gpus import is_waiting, spare_gpus
from voda.planner.sharing.tenants import is_open
from voda.sharing import OpenGpus

Containers = Mapping[str, GpuRequest]
_Turn = tuple[int, float, str]
"""Lower ones come first: higher priority, then earlier submission."""


class Served(NamedTuple):
    """What the request of a pod gets: so many whole GPUs of a node, beside parts of others."""

    node: str
    gpus: int
    requested_at: float


def serve_requests(view: ClusterState, undisturbed: Placed, place: Callable[[ClusterState], Placed]) -> Placed:
    """Return what is placed while requests are served for which no job loses its place.

    Args:
        view: of a pool without virtual clusters.
        undisturbed: what is placed of it while none is served.
        place: of a view in which GPUs are others'.
    """
    if not any(account.requests for account in view.shares.values()):
        return undisturbed
    possible, _ = feasible_view(view)
    served = [each for each in SpareGpus(possible).served.values() if each.gpus]
    # What is left of GPUs that a large worker leaves is for nobody to start on who would stop them from leaving.
    late = {job_id for job_id in view.jobs if job_id not in undisturbed.placement}
    known = without_jobs(view, late)
    for those in [served, served[:1]] if len(served) > 1 else [served]:
        placed = place(_with(known, those))
        if not _displaces(known, undisturbed, placed, those):
            return _with_late(placed, undisturbed, late)
    return undisturbed


def _displaces(view: ClusterState, undisturbed: Placed, placed: Placed, served: Sequence[Served]) -> bool:
    """Say whether a job loses its place: one that runs or is to, or that comes before the requests."""
    until = max((each.requested_at for each in served), default=0.0)
    lost = [view.jobs[job_id] for job_id in undisturbed.placement.keys() - placed.placement.keys()]
    return any(not is_waiting(view, job) or _job_turn(job) < (0, until, "") for job in lost)


def _with(view: ClusterState, served: Sequence[Served]) -> ClusterState:
    nodes = dict(view.nodes)
    for each in served:
        node = nodes[each.node]
        nodes[each.node] = replace(node, foreign_gpus=Gpus(min(node.gpus, node.foreign_gpus + each.gpus)))
    return replace(view, nodes=nodes)


def _with_late(placed: Placed, undisturbed: Placed, late: Collection[str]) -> Placed:
    reasons = {job_id: why for job_id, why in undisturbed.reasons.items() if job_id in late}
    left_out = {job_id: why for job_id, why in undisturbed.left_out.items() if job_id in late}
    return replace(placed, reasons={**reasons, **placed.reasons}, left_out={**left_out, **placed.left_out})


class SpareGpus:
    """What jobs of a pool can spare, beyond what the requests that there are get."""

    def __init__(self, view: ClusterState) -> None:
        self.served = dict[str, Served]()
        """By uid of the pod, in the order of turns; those of which the node can spare what they ask for."""
        self._spare = dict(spare_gpus(view))
        self._left = sum(self._spare.values())
        """Of the pool, less what waiting jobs need that come before."""
        self._nodes = {
            name: _Leftovers(account)
            for name, account in view.shares.items()
            if account.is_claimed and is_open(view, name)
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
            if (gpus := self.take(turn.node, request.containers)) is not None:
                self.served[turn.uid] = Served(turn.node, gpus, request.requested_at)

    def choose(self, containers: Containers, nodes: Collection[str]) -> tuple[str, int] | None:
        """Return the node, of these, where a pod takes the fewest whole GPUs, and most can be spared, and how many it
        takes; None: there is none.
        """
        found, needed_of = dict[str, int](), dict[_State, int | None]()
        for name in self._nodes.keys() & nodes:
            # Most nodes are alike: nobody shares a GPU there.
            state = self._nodes[name].state
            if state not in needed_of:
                needed_of[state] = self._nodes[name].whole_needed(containers)
            if (needed := needed_of[state]) is not None and self._can_spare(name, needed):
                found[name] = needed
        best = min(found, key=lambda name: (found[name], -self._spare[name], name), default="")
        return (best, found[best]) if best else None

    def take(self, name: str, containers: Containers) -> int | None:
        """Give a pod what it asks for of a node, if that can be spared, and return how many whole GPUs it takes."""
        node = self._nodes[name]
        needed = node.whole_needed(containers)
        if needed is None or not self._can_spare(name, needed):
            return None
        node.take(containers)
        self._spare[name] -= needed
        self._left -= needed
        return needed

    def _can_spare(self, name: str, gpus: int) -> bool:
        return gpus <= min(self._spare[name], self._left) or not gpus


class _RequestTurn(NamedTuple):
    """A request of a pod for GPUs of a node."""

    node: str
    uid: str


def _job_turn(job: Job) -> _Turn:
    return -job.spec.priority, job.submitted_at, job.spec.job_id


_State = tuple[GpuRemainder, tuple[tuple[bool, int, int], ...]]


class _Leftovers:
    """What is left of the GPUs of a node: of those that somebody shares, and of a whole one."""

    def __init__(self, account: SharingNode) -> None:
        self._shared = OpenGpus(enumerate(left for left in account.free() if not left.is_whole))
        # Which whole GPUs will be free nobody knows yet: any of them is to be large enough.
        memory_mib = min((gpu.memory_mib for gpu in account.devices), default=0)
        self._whole = GpuRemainder(milli=MILLI_PER_DEVICE, memory_mib=memory_mib, is_whole=True)

    @property
    def state(self) -> _State:
        """What decides the answers."""
        return self._whole, self._shared.amounts()

    def whole_needed(self, containers: Containers) -> int | None:
        """Return how many whole GPUs a pod takes; None: no GPU has as much as it asks for."""
        found = self._with(containers)
        return found[0] if found is not None else None

    def take(self, containers: Containers) -> None:
        """Give a pod as much of the GPUs as it asks for; it fits."""
        found = self._with(containers)
        assert found is not None
        self._shared = found[1]

    def _with(self, containers: Containers) -> tuple[int, OpenGpus[int]] | None:
        """Return the whole GPUs that a pod takes, and what is left of shared ones then."""
        shared, whole = self._shared.copy(), 0
        for request in sorted(containers.values(), key=lambda each: (each.milli, each.memory_mib), reverse=True):
            whole += request.devices
            if not request.is_share:
                continue
            # The fullest: what the rater will choose is not known here, and the fewest whole ones are to go.
            gpu = next(shared.fitting(request), None)
            if gpu is not None:
                shared.take(gpu, request)
            elif self._whole.fits(request):
                whole += 1
                shared.put(len(shared), self._whole.less(request))
            else:
                return None
        return whole, shared
