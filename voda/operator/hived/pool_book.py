"""The cells of one pool as HiveD's extender sees them, kept level with the log.

The book is made of the plan in force and of the gangs in the log; it is made anew when one of them changes otherwise
than by the extender itself. Rule: reservations are in no log; they are made again, in the order in which they came.
"""

from collections.abc import Mapping, Sequence, Set
from contextlib import suppress
from typing import NamedTuple

from msgspec.structs import replace

from voda.application.journal import JournalView
from voda.cells.gangs import WorkerCells
from voda.domain.errors import InvalidInput
from voda.domain.state import ClusterState
from voda.events import types as facts
from voda.events.envelope import Event
from voda.hived.extender import HivedExtender, PodPlace
from voda.hived.pod_request import HivedPod
from voda.planner.virtual_clusters import blocked_nodes, book_of

_CHANGES_CELLS = (
    facts.PlanAdopted
    | facts.NodeJoined
    | facts.NodeChanged
    | facts.NodeLeft
    | facts.ShareFact
    | facts.NodeDrainRequested
    | facts.NodeUndrainRequested
    | facts.VirtualClustersApplied
    | facts.JobEnd
    | facts.JobChanged
    | facts.JobCancelRequested
    | facts.WorkerRefused
)


class PoolBook:
    """One pool; used on one event loop."""

    def __init__(self, pool: str, view: JournalView) -> None:
        self.pool = pool
        self.preempting: dict[str, tuple[HivedPod, Sequence[str]]] = {}
        """Uid of a pod that preempts -> the pod, and the nodes that kube-scheduler considered."""
        self.version = 0
        """Of the stream of gangs, as far as the book has it."""
        self._view = view
        self._extender: HivedExtender | None = None
        self._on_nodes: Mapping[str, Sequence[_JobOnNode]] | None = None
        """None: a plan or a worker has changed since."""

    def extender(self) -> HivedExtender:
        """Return the extender over the present book."""
        if self._extender is None:
            state = self._view.cluster.state(self.pool)
            self.version = state.gangs_version
            self._extender = open_extender(state)
            for pod, names in list(self.preempting.values()):
                with suppress(InvalidInput):
                    self._extender.preempt(pod, names)
        return self._extender

    def forget(self) -> None:
        """Let the book be made anew from the log."""
        self._extender = self._on_nodes = None

    def see(self, event: Event) -> None:
        """Note an event of the log that the view has folded."""
        if self._extender is None or self.pool not in self._view.cluster.changed_pools:
            return
        if isinstance(event.data, facts.GangFact):
            self.version = event.version
            if not _is_known(self._extender, event.data):
                self.forget()
        elif isinstance(event.data, _CHANGES_CELLS):
            self.forget()
        elif isinstance(event.data, facts.WorkerStarted | facts.WorkerExited):
            self._on_nodes = None

    def leaving(self, place: WorkerCells) -> Sequence[str]:
        """Return the jobs that a plan has yet to take from these cells, or of which a worker has yet to leave the node.

        Which devices a worker had that the plan no longer has there is not known: the whole node waits for it.
        """
        if self._on_nodes is None:
            self._on_nodes = _on_nodes(self._view.cluster.state(self.pool))
        return [each.job_id for each in self._on_nodes.get(place.node, ()) if each.is_in_the_way(place)]


class _JobOnNode(NamedTuple):
    """What a job has of a node."""

    job_id: str
    planned: Mapping[int, tuple[int, ...] | None]
    """Worker that the plan has there -> its devices; None: the plan does not say."""
    there: Set[int]
    """Workers that are there."""

    def is_in_the_way(self, place: WorkerCells) -> bool:
        """Return whether somebody has to wait until it has left."""
        own = {*place.devices}
        is_planned = any(devices is None or not own.isdisjoint(devices) for devices in self.planned.values())
        return is_planned or not self.there <= self.planned.keys()


def _on_nodes(state: ClusterState) -> Mapping[str, Sequence[_JobOnNode]]:
    """Return node -> what jobs have of it."""
    found: dict[str, list[_JobOnNode]] = {}
    for job_id, job in (*state.jobs.items(), *state.outlived.items()):
        devices = state.plan.devices.get(job_id, ())
        planned: dict[str, dict[int, tuple[int, ...] | None]] = {}
        there: dict[str, set[int]] = {}
        for index, node in enumerate(state.plan.placement.get(job_id, ())):
            planned.setdefault(node, {})[index] = devices[index] if index < len(devices) else None
        for index, node in job.workers.items():
            there.setdefault(node, set()).add(index)
        for node in planned.keys() | there.keys():
            found.setdefault(node, []).append(_JobOnNode(job_id, planned.get(node, {}), there.get(node, set())))
    return found


def open_extender(state: ClusterState) -> HivedExtender:
    """Return the extender over the plan in force and the gangs of a pool that has virtual clusters."""
    book = book_of(state)
    places = {}
    for name, gang in state.gangs.items():
        # Plans never take cells of gangs; among gangs, one may yield.
        book.gangs[name] = replace(book.gangs[name], request=gang.request)
        for slot, pod in gang.pods.items():
            places[pod.uid] = PodPlace(name, gang.placement, slot, pod.key)
    return HivedExtender(state.pool, book, blocked_nodes(book), places)


def _is_known(extender: HivedExtender, fact: facts.GangFact) -> bool:
    """Return whether the book has what a fact says already, because it was recorded for it."""
    if isinstance(fact, facts.GangPlaced):
        gang = extender.book.gangs.get(fact.request.name)
        return gang is not None and bool(gang.workers) and gang.placement == fact.placement
    place = extender.places.get(fact.pod_uid)
    if isinstance(fact, facts.GangLeft):
        return place is None
    return place is not None and (place.gang, place.slot) == (fact.gang, fact.slot)
