"""HiveD's scheduler extender over a book of cells: kube-scheduler asks for a pod, and gets a node or the reason.

A pod that gets a node has its cells from then on, and gets the same node whenever it is asked for again, until it is
deleted. Rules: victims are named only when kube-scheduler preempts; then the cells are reserved. After a restart the
book follows from the annotations of the bound pods.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from voda.cells.adoption import adopt, start
from voda.cells.book import CellBook
from voda.cells.decisions import Decision, GangPreempts, GangStarts, GangWaits
from voda.cells.gangs import GangPlacement
from voda.cells.preemption import end_worker, stop_waiting
from voda.cells.scheduling import Conditions, decide
from voda.domain.errors import InvalidInput, NotFound, WrongState
from voda.extender.wire import (
    ExtenderBindingArgs,
    ExtenderFilterResult,
    ExtenderPreemptionResult,
    MetaPod,
    MetaVictims,
)
from voda.hived.bind_info import bind_annotations, read_bound_pod
from voda.hived.pod_request import AnnotatedPod, HivedRequest, read_request


class _Place(NamedTuple):
    gang: str
    placement: GangPlacement
    slot: int

    @property
    def node(self) -> str:
        return self.placement[self.slot].node


@dataclass
class HivedExtender:
    """The pods that HiveD's annotations describe, and the book of cells that they use."""

    book: CellBook
    places: dict[str, _Place] = field(default_factory=dict)
    """Uid of a pod that has cells -> which."""
    waiting: dict[str, str] = field(default_factory=dict)
    """Uid of a pod that has none -> its gang."""

    def filter(self, pod: AnnotatedPod, names: Sequence[str]) -> ExtenderFilterResult:
        """Return the node for a pod, whose cells are the pod's from now on, or why it waits.

        Raises:
            InvalidInput: the pod's request can never be met as it is.
        """
        uid = _uid(pod)
        place = self.places.get(uid)
        if place is None:
            request = self._request(pod)
            decision = self._decide(uid, request, names, may_preempt=False)
            if not isinstance(decision, GangStarts):
                return _failed(names, _reason(decision))
            place = self._start(uid, request, decision)
        if place.node not in names:
            return _failed(names, f"the pod has its cells on node {place.node}, which kube-scheduler does not offer")
        return ExtenderFilterResult(node_names=(place.node,))

    def preempt(self, pod: AnnotatedPod, names: Sequence[str]) -> ExtenderPreemptionResult:
        """Return the pods that must leave for a pod, whose cells are reserved from now on.

        Raises:
            InvalidInput: the pod's request can never be met as it is.
        """
        uid = _uid(pod)
        if uid in self.places:
            return ExtenderPreemptionResult()
        decision = self._decide(uid, self._request(pod), names, may_preempt=True)
        if not isinstance(decision, GangPreempts):
            return ExtenderPreemptionResult()
        victims: dict[str, list[MetaPod]] = {}
        for name in decision.victims:
            for worker in self.book.gangs[name].workers.values():
                victims.setdefault(self.places[worker].node, []).append(MetaPod(worker))
        return ExtenderPreemptionResult({node: MetaVictims(tuple(pods)) for node, pods in victims.items()})

    def bind(self, arguments: ExtenderBindingArgs) -> dict[str, str]:
        """Return the annotations with which a pod is bound to its node; the same whenever it is asked again.

        Raises:
            NotFound: the pod has no cells: filter comes first.
            WrongState: its cells are on another node.
        """
        key, place = f"{arguments.podnamespace}/{arguments.podname}", self.places.get(arguments.poduid)
        if place is None:
            raise NotFound(f"pod {key} ({arguments.poduid}) has no cells: filter it before it is bound")
        if place.node != arguments.node:
            raise WrongState(f"pod {key} has its cells on node {place.node}, and cannot be bound to {arguments.node}")
        return bind_annotations(place.placement, place.slot)

    def add_bound(self, pod: AnnotatedPod) -> None:
        """Let a pod that was bound before, perhaps by HiveD, use the cells that its annotations name.

        Raises:
            InvalidInput: its annotations cannot be read, or its gang has no place left for it.
        """
        uid, bound = _uid(pod), read_bound_pod(pod)
        if bound is None or uid in self.places:
            return
        request, slot = self._request(pod), bound.slot
        gang = self.book.gangs.get(request.gang.name)
        placement = gang.placement if gang is not None and not gang.is_waiting else bound.placement
        if gang is not None and slot in gang.workers:
            free = gang.slot(request.leafs)
            if free is None:
                raise InvalidInput(f"gang {gang.name} has a pod on every place: {uid} has none left")
            slot = free
        start(self.book, request.gang, placement, slot=slot, worker=uid)
        self.places[uid] = _Place(request.gang.name, placement, slot)

    def remove(self, uid: str) -> None:
        """Note that a pod is gone; with the last one of a gang, its cells are free."""
        if (place := self.places.pop(uid, None)) is not None:
            end_worker(self.book, place.gang, place.slot)
        elif (name := self.waiting.pop(uid, "")) != "":
            stop_waiting(self.book, name, uid)

    def _request(self, pod: AnnotatedPod) -> HivedRequest:
        request = read_request(pod)
        gang = self.book.gangs.get(request.gang.name)
        if gang is not None and gang.request.virtual_cluster != request.gang.virtual_cluster:
            raise InvalidInput(
                f"gang {gang.name} is of virtual cluster {gang.request.virtual_cluster}, and a pod of"
                f" {request.gang.virtual_cluster or 'none'} cannot join it"
            )
        return request

    def _decide(self, uid: str, request: HivedRequest, nodes: Sequence[str], *, may_preempt: bool) -> Decision:
        conditions = Conditions(suggested=set(nodes), may_preempt=may_preempt)
        decision = decide(self.book, request.gang, request.leafs, conditions)
        adopt(self.book, request.gang, decision, uid, may_preempt=may_preempt)
        self.waiting[uid] = request.gang.name
        return decision

    def _start(self, uid: str, request: HivedRequest, decision: GangStarts) -> _Place:
        # What it starts on may be another's reservation, which filtering leaves alone until now.
        start(self.book, request.gang, decision.placement, slot=decision.slot, worker=uid)
        self.waiting.pop(uid, None)
        place = self.places[uid] = _Place(request.gang.name, decision.placement, decision.slot)
        return place


def _uid(pod: AnnotatedPod) -> str:
    if not pod.metadata.uid:
        raise InvalidInput(f"pod {pod.key} has no metadata.uid")
    return pod.metadata.uid


def _failed(names: Sequence[str], reason: str) -> ExtenderFilterResult:
    # Without nodes there is no other place for the reason.
    return ExtenderFilterResult(failed_nodes=dict.fromkeys(names or ("",), reason))


def _reason(decision: GangPreempts | GangWaits) -> str:
    if isinstance(decision, GangPreempts):
        return f"waits until these gangs have left its cells: {', '.join(decision.victims)}"
    return f"waits: {'; '.join(map(str, decision.blockers))}"
