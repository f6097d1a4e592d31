"""Scheduling: where a gang goes, what must happen first, or why it waits. Nothing in the book changes.

1. The request is checked. 2. A gang that has its cells gets the next place in them. 3. A new guaranteed gang is packed
into the views of its virtual cluster, chain by chain: first beside all that runs there, then at the expense of lower
priorities; the virtual leafs are mapped to physical ones, whoever works there without a guarantee. An opportunistic
gang is packed into whatever is idle, away from guaranteed work. Rule: chains, types, nodes and leafs have a fixed
order, so that a replay decides the same.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Final

from voda.cells.book import CellBook
from voda.cells.decisions import Blocker, Decision, GangPreempts, GangStarts, GangWaits, WaitReason
from voda.cells.gangs import Gang, GangPlacement, GangRequest, GangState, WorkerCells
from voda.cells.preemption import cancel, downgrade
from voda.cells.requests import RefusalReason, RequestRefused, chains_to_search, check_worker
from voda.cells.search.losses import Losses
from voda.cells.search.mapping import map_leafs
from voda.cells.search.packing import leafs_of_workers
from voda.cells.search.views import physical_view, virtual_view
from voda.cells.structure.quotas import QuotaView
from voda.cells.structure.trees import NONE


@dataclass(frozen=True)
class Conditions:
    """Under which a gang is placed."""

    suggested: Set[str] | None = None
    """Nodes that a gang must use that does not ignore suggestions; None = any."""
    may_preempt: bool = True
    """Whether reservations may be made and withdrawn."""
    losses: Losses | None = None
    """What is lost when opportunistic gangs leave; None = the leafs that they use count."""

    def nodes(self, request: GangRequest) -> Set[str] | None:
        """Return the only nodes that a gang may use; None = any."""
        return None if request.ignores_suggestions else self.suggested


ANY: Final = Conditions()


def decide(book: CellBook, request: GangRequest, leafs: int, conditions: Conditions = ANY) -> Decision:
    """Return what becomes of one worker of a gang, and of the gang with it.

    Args:
        leafs: devices of the worker.

    Raises:
        RequestRefused: the request can never be met as it is.
    """
    check_worker(request, leafs)
    gang = book.gangs.get(request.name)
    if gang is None:
        return _new(book, request, leafs, conditions)
    is_preempting = book.state(gang) == GangState.PREEMPTING and conditions.may_preempt
    if is_preempting and not _is_usable(book, gang, conditions.nodes(request)):
        trial = book.copy()
        cancel(trial, gang.name)
        decision = _new(trial, request, leafs, conditions)
        return replace(decision, cancels=(gang.name, *decision.cancels))
    return _continue(book, gang, leafs)


def _is_usable(book: CellBook, gang: Gang, nodes: Set[str] | None) -> bool:
    """Return whether the cells that a gang has reserved are healthy, and on the nodes that it must be on."""
    places = {book.topology.nodes[leaf][0] for leaf in gang.leafs}
    return not any(book.bad[leaf] for leaf in gang.leafs) and (nodes is None or places <= nodes)


def _continue(book: CellBook, gang: Gang, leafs: int) -> Decision:
    """Return the next place of a gang that has cells."""
    slot = gang.slot(leafs)
    if slot is None:
        declared = gang.request.sizes.count(leafs)
        message = f"gang {gang.name} declares {declared} workers of {leafs} devices, and all of them have a place"
        raise RequestRefused(RefusalReason.TOO_MANY_WORKERS, message)
    state = book.state(gang)
    if state == GangState.BEING_PREEMPTED:
        return GangWaits((Blocker(gang.placement[slot].chain, WaitReason.BEING_PREEMPTED, gang.placement[slot].node),))
    victims = _holders(book, gang.leafs) if state == GangState.PREEMPTING else ()
    return GangPreempts(gang.placement, gang.virtual, victims) if victims else GangStarts(gang.placement, slot)


def _new(
    book: CellBook, request: GangRequest, leafs: int, conditions: Conditions
) -> GangStarts | GangPreempts | GangWaits:
    chains = chains_to_search(book, request)
    blockers = []
    for name, view in _views(book, request, [chain.name for chain in chains]):
        nodes = conditions.nodes(request)
        found = _place_guaranteed(book, request, view, conditions) if view else _place_idle(book, request, name, nodes)
        if isinstance(found, _GangCells):
            return _decision(found, request, leafs, may_preempt=conditions.may_preempt)
        blockers.append(replace(found, where=name))
    return GangWaits(tuple(blockers) or (Blocker("", WaitReason.NO_QUOTA),))


def _views(book: CellBook, request: GangRequest, chains: Sequence[str]) -> list[tuple[str, QuotaView | None]]:
    """Return what is searched: views of the virtual cluster, or whole chains (None) for opportunistic work."""
    if request.pin:
        return [(request.pin, book.quotas.pin_views[request.virtual_cluster, request.pin])]
    if not request.is_guaranteed:
        return [(name, None) for name in chains]
    return [(name, book.quotas.views[request.virtual_cluster, name]) for name in chains]


@dataclass(frozen=True)
class _GangCells:
    """Physical leafs of each worker."""

    book: CellBook
    """In which gangs have lost their guarantee already."""
    workers: Sequence[Sequence[int]]
    virtual: Mapping[int, int]
    downgrades: tuple[str, ...] = ()

    @property
    def leafs(self) -> list[int]:
        return [leaf for leafs in self.workers for leaf in leafs]


def _place_guaranteed(
    book: CellBook, request: GangRequest, view: QuotaView, conditions: Conditions
) -> _GangCells | Blocker:
    nodes = conditions.nodes(request)
    chosen = virtual_view(book, view, nodes).pack(request.sizes, request.priority)
    if isinstance(chosen, Blocker):
        return chosen
    workers = leafs_of_workers(book.quotas.trees, request.sizes, chosen.nodes, chosen.candidates)
    leafs = [leaf for each in workers for leaf in each]
    yielding = _yielding(book, leafs)
    trial = book.copy() if yielding else book
    for name in yielding:
        downgrade(trial, name, request.name)
    # What a gang leaves may be shown as bad at another quota cell than that which it had there.
    if yielding and any(trial.is_bad_binding(leaf) for leaf in leafs):
        found = _place_guaranteed(trial, request, view, conditions)
        return found if isinstance(found, Blocker) else replace(found, downgrades=(*yielding, *found.downgrades))
    bindings = map_leafs(trial, leafs, nodes, conditions.losses)
    if bindings is None:
        return Blocker("", WaitReason.MAPPING_NEEDS_BAD if nodes is None else WaitReason.MAPPING_NEEDS_UNUSABLE)
    physical = [[bindings[leaf] for leaf in each] for each in workers]
    return _GangCells(trial, physical, {cell: leaf for leaf, cell in bindings.items()}, yielding)


def _place_idle(book: CellBook, request: GangRequest, chain: str, nodes: Set[str] | None) -> _GangCells | Blocker:
    chosen = physical_view(book, chain, nodes).pack(request.sizes, request.priority)
    if isinstance(chosen, Blocker):
        return chosen
    return _GangCells(book, leafs_of_workers(book.topology.trees, request.sizes, chosen.nodes, chosen.candidates), {})


def _yielding(book: CellBook, leafs: Sequence[int]) -> tuple[str, ...]:
    """Return the gangs on these virtual leafs that may lose their guarantee at once."""
    cells = [book.place[leaf] for leaf in leafs if book.place[leaf] != NONE]
    holders = dict.fromkeys(book.holder[cell] for cell in cells if book.holder[cell] and not book.reserver[cell])
    return tuple(name for name in holders if book.gangs[name].request.yields)


def _holders(book: CellBook, leafs: Sequence[int]) -> tuple[str, ...]:
    """Return the gangs that use any of these physical leafs."""
    return tuple(dict.fromkeys(book.holder[leaf] for leaf in leafs if book.holder[leaf]))


def _decision(place: _GangCells, request: GangRequest, leafs: int, *, may_preempt: bool) -> GangStarts | GangPreempts:
    book = place.book
    placement = _placement(book, place)
    victims = _holders(book, place.leafs)
    reservers = dict.fromkeys(book.reserver[leaf] for leaf in place.leafs if book.reserver[leaf])
    cancels = tuple(reservers) if may_preempt else ()
    if victims:
        virtual = {leaf: place.virtual[leaf] for leaf in place.leafs}
        return GangPreempts(placement, virtual, victims, cancels, place.downgrades)
    return GangStarts(placement, request.sizes.index(leafs), cancels, place.downgrades)


def _placement(book: CellBook, place: _GangCells) -> GangPlacement:
    return tuple(_worker_cells(book, place, leafs) for leafs in place.workers)


def _worker_cells(book: CellBook, place: _GangCells, leafs: Sequence[int]) -> WorkerCells:
    chain = book.topology.trees.chain[leafs[0]]
    quota = ""
    if place.virtual:
        quota = chain.type_at(book.quotas.trees.level[book.quotas.root[place.virtual[leafs[0]]]]).name
    devices = tuple(book.topology.devices[leaf] for leaf in leafs)
    return WorkerCells(node=book.topology.nodes[leafs[0]][0], devices=devices, chain=chain.name, quota=quota)
