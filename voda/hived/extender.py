"""HiveD's scheduler extender over a book of cells: kube-scheduler asks for a pod, and gets a node or the reason.

A pod that gets a node has its cells from then on, and gets the same node whenever it is asked for again, until it is
deleted. Rules: pods are named as victims only when kube-scheduler preempts; then the cells are reserved. Workers of
jobs that are in the way leave by the next plan, and nobody is named for them. What changes is in `take_facts`, for the
log.
"""

from collections.abc import Sequence, Set
from dataclasses import dataclass, field
from typing import NamedTuple

from msgspec.structs import replace

from voda.cells.adoption import adopt, start
from voda.cells.book import CellBook
from voda.cells.decisions import Decision, GangPreempts, GangStarts, GangWaits
from voda.cells.gangs import GangPlacement, GangRequest
from voda.cells.preemption import end, end_worker, stop_waiting
from voda.cells.scheduling import Conditions, decide
from voda.domain.errors import InvalidInput, NotFound, WrongState
from voda.domain.reasons.pods import PodGone
from voda.events.types import GangFact, GangJoined, GangLeft, GangPlaced
from voda.extender.wire import (
    ExtenderBindingArgs,
    ExtenderFilterResult,
    ExtenderPreemptionResult,
    MetaPod,
    MetaVictims,
)
from voda.hived.bind_info import bind_annotations, read_bound_pod
from voda.hived.pod_request import HivedPod, HivedRequest, read_request


class PodPlace(NamedTuple):
    """Where a pod is in its gang."""

    gang: str
    placement: GangPlacement
    slot: int
    key: str
    """`namespace/name` of the pod."""

    @property
    def node(self) -> str:
        """The node that it is to be bound to."""
        return self.placement[self.slot].node


class WaitingPod(NamedTuple):
    """A pod that has no cells yet."""

    gang: str
    key: str


@dataclass
class HivedExtender:
    """The pods that HiveD's annotations describe, and the book of cells that they share with the workers of jobs.

    Gangs of pods have their pods' uids as workers in the book; the workers of jobs have none.
    """

    pool: str
    book: CellBook
    shared_nodes: Set[str] = frozenset()
    """Nodes on which others use devices, nobody knows which: no guarantee rests on them."""
    places: dict[str, PodPlace] = field(default_factory=dict)
    """Uid of a pod that has cells -> which."""
    waiting: dict[str, WaitingPod] = field(default_factory=dict)
    """Uid of a pod that has none -> which."""
    _facts: list[GangFact] = field(default_factory=list)

    def filter(self, pod: HivedPod, names: Sequence[str]) -> ExtenderFilterResult:
        """Return the node for a pod, whose cells are the pod's from now on, or why it waits.

        Raises:
            InvalidInput: the pod's request can never be met as it is.
        """
        uid = _uid(pod)
        place = self.places.get(uid)
        if place is None:
            request = self._request(pod)
            decision = self._decide(pod, request, names, may_preempt=False)
            if isinstance(decision, GangWaits) or (victims := self._pods_in_the_way(decision)):
                reason = _reason(decision) if isinstance(decision, GangWaits) else _leaving(victims)
                return refused(names, reason, is_resolvable=not isinstance(decision, GangWaits))
            place = self._start(pod, request, decision)
        if place.node not in names:
            return refused(names, f"the pod has its cells on node {place.node}, which kube-scheduler does not offer")
        return ExtenderFilterResult(node_names=(place.node,))

    def reclaim(self, pod: HivedPod, names: Sequence[str]) -> bool:
        """Give a pod cells that jobs alone are in the way of; return whether kube-scheduler is to ask for the pod.

        That is so where nobody is in its way, or pods are that kube-scheduler has to preempt: it may have given up,
        because one that was named was gone already. While jobs fill its nodes, it asks no extender about it.

        Raises:
            InvalidInput: the pod's request can never be met as it is.
        """
        request = self._request(pod)
        decision = self._choose(request, names, may_preempt=False)
        if isinstance(decision, GangPreempts) and not self._pods_in_the_way(decision):
            self._adopt(pod, request, decision, may_preempt=False)
            self._start(pod, request, decision)
            return False
        return not isinstance(decision, GangWaits)

    def preempt(self, pod: HivedPod, names: Sequence[str]) -> ExtenderPreemptionResult:
        """Return the pods that must leave for a pod, whose cells are reserved from now on.

        Raises:
            InvalidInput: the pod's request can never be met as it is.
        """
        if _uid(pod) in self.places:
            return ExtenderPreemptionResult()
        decision = self._decide(pod, self._request(pod), names, may_preempt=True)
        victims: dict[str, list[MetaPod]] = {}
        for name in self._pods_in_the_way(decision):
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
        if place is None or place.key != key:
            raise NotFound(f"pod {key} ({arguments.poduid}) has no cells: filter it before it is bound")
        if place.node != arguments.node:
            raise WrongState(f"pod {key} has its cells on node {place.node}, and cannot be bound to {arguments.node}")
        return bind_annotations(place.placement, place.slot)

    def add_bound(self, pod: HivedPod) -> None:
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
        self._place(pod, request.gang, placement, slot)

    def remove(self, uid: str, reason: PodGone | None = None) -> None:
        """Note that a pod is gone; with the last one of a gang, its cells are free."""
        if (place := self.places.pop(uid, None)) is not None:
            end_worker(self.book, place.gang, place.slot)
            self._facts.append(GangLeft(pool=self.pool, gang=place.gang, pod_uid=uid, pod=place.key, reason=reason))
        elif (pod := self.waiting.pop(uid, None)) is not None:
            stop_waiting(self.book, pod.gang, uid)

    def take_facts(self) -> Sequence[GangFact]:
        """Return what has changed since the last call, for the log."""
        facts, self._facts = self._facts, []
        return facts

    def _request(self, pod: HivedPod) -> HivedRequest:
        request = read_request(pod)
        name, gang = request.gang.name, self.book.gangs.get(request.gang.name)
        if gang is not None and not (gang.workers or gang.waiting):
            raise InvalidInput(f"the affinity group cannot be called {name!r}: voda has that name for something else")
        if gang is not None and gang.request.virtual_cluster != request.gang.virtual_cluster:
            raise InvalidInput(
                f"gang {gang.name} is of virtual cluster {gang.request.virtual_cluster}, and a pod of"
                f" {request.gang.virtual_cluster or 'none'} cannot join it"
            )
        return request

    def _decide(self, pod: HivedPod, request: HivedRequest, nodes: Sequence[str], *, may_preempt: bool) -> Decision:
        decision = self._choose(request, nodes, may_preempt=may_preempt)
        self._adopt(pod, request, decision, may_preempt=may_preempt)
        return decision

    def _choose(self, request: HivedRequest, nodes: Sequence[str], *, may_preempt: bool) -> Decision:
        gang, suggested = request.gang, set(nodes)
        if self.shared_nodes and gang.is_guaranteed:
            everywhere = self.book.topology.leafs_on.keys() if gang.ignores_suggestions else suggested
            gang, suggested = replace(gang, ignores_suggestions=False), set(everywhere) - self.shared_nodes
        return decide(self.book, gang, request.leafs, Conditions(suggested=suggested, may_preempt=may_preempt))

    def _adopt(self, pod: HivedPod, request: HivedRequest, decision: Decision, *, may_preempt: bool) -> None:
        adopt(self.book, request.gang, decision, _uid(pod), may_preempt=may_preempt)
        if not isinstance(decision, GangWaits):
            self._note_downgrades(decision.downgrades)
        self.waiting[_uid(pod)] = WaitingPod(request.gang.name, pod.key)

    def _pods_in_the_way(self, decision: Decision) -> Sequence[str]:
        """Return the gangs of pods that must leave."""
        victims = decision.victims if isinstance(decision, GangPreempts) else ()
        return [name for name in victims if self.book.gangs[name].workers]

    def _start(self, pod: HivedPod, request: HivedRequest, decision: GangStarts | GangPreempts) -> PodPlace:
        gang = self.book.gangs.get(request.gang.name)
        if isinstance(decision, GangStarts):
            slot = decision.slot
        else:
            found = gang.slot(request.leafs) if gang is not None else request.gang.sizes.index(request.leafs)
            assert found is not None, "a decision is about a worker that has a place"
            slot = found
            for name in decision.victims:
                end(self.book, name)
        return self._place(pod, request.gang, decision.placement, slot)

    def _place(self, pod: HivedPod, request: GangRequest, placement: GangPlacement, slot: int) -> PodPlace:
        uid, before = _uid(pod), self.book.gangs.get(request.name)
        # What it starts on may be another's reservation, which filtering leaves alone until now.
        start(self.book, request, placement, slot=slot, worker=uid)
        self.waiting.pop(uid, None)
        place = self.places[uid] = PodPlace(request.name, placement, slot, pod.key)
        if before is None or before.is_waiting:
            self._facts.append(GangPlaced(pool=self.pool, request=request, placement=placement))
        self._facts.append(GangJoined(pool=self.pool, gang=request.name, slot=slot, pod_uid=uid, pod=pod.key))
        return place

    def _note_downgrades(self, names: Sequence[str]) -> None:
        for name in names:
            gang = self.book.gangs[name]
            if gang.workers:
                placement = tuple(replace(cells, quota="") for cells in gang.placement)
                self.book.gangs[name] = replace(gang, placement=placement)
                self._facts.append(GangPlaced(pool=self.pool, request=gang.request, placement=placement))


def _uid(pod: HivedPod) -> str:
    if not pod.metadata.uid:
        raise InvalidInput(f"pod {pod.key} has no metadata.uid")
    return pod.metadata.uid


def refused(names: Sequence[str], reason: str, *, is_resolvable: bool = False) -> ExtenderFilterResult:
    """Return that no node is left, and why; `is_resolvable`: kube-scheduler may preempt pods for it."""
    # Without nodes there is no other place for the reason.
    nodes = dict.fromkeys(names or ("",), reason)
    return (
        ExtenderFilterResult(failed_nodes=nodes)
        if is_resolvable
        else ExtenderFilterResult(failed_and_unresolvable_nodes=nodes)
    )


def _reason(decision: GangWaits) -> str:
    return f"waits: {'; '.join(map(str, decision.blockers))}"


def _leaving(gangs: Sequence[str]) -> str:
    return f"waits until these gangs have left its cells: {', '.join(gangs)}"
