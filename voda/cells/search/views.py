"""Views: the nodes among which a gang is packed, best first, and what can be used of each.

In its own virtual cluster a guaranteed gang prefers nodes that are used most, whoever uses them. Opportunistic work
prefers nodes with other opportunistic work, then such with the least guaranteed work. Rule: bad nodes, and nodes that
the gang must not use, come last and are never used; they are named when the gang waits for want of them.
"""

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import partial

from voda.cells.book import CellBook
from voda.cells.decisions import Blocker, WaitReason
from voda.cells.gangs import FREE, OPPORTUNISTIC
from voda.cells.search.packing import Sizes, pack
from voda.cells.structure.quotas import QuotaView
from voda.cells.structure.trees import NONE


@dataclass(frozen=True)
class Packing:
    """The node of each worker, and the leafs that can be used on a node."""

    nodes: Sequence[int]
    candidates: Callable[[int], list[int]]


@dataclass(frozen=True)
class _Lacking:
    """Why a gang waits: for want of free cells, or because only nodes that it must not use are left."""

    free: WaitReason
    suggested: WaitReason
    healthy: WaitReason


@dataclass(frozen=True)
class UsableNodes:
    """The nodes of a view at one moment."""

    rooms: Callable[[int], Mapping[int, int]]
    """Priority -> of each node that can be used, the leafs that a gang of that priority can have there."""
    rank: Callable[[int], int]
    """The best node has the lowest."""
    leafs: Sequence[Sequence[int]]
    priority: Sequence[int]
    """Of leafs."""
    blocker: Callable[[], Blocker]
    """What a gang waits for that finds no room."""

    def pack(self, sizes: Sizes, priority: int) -> Packing | Blocker:
        """Place workers: first beside all that is there, then at the expense of lower priorities."""
        for level in dict.fromkeys((OPPORTUNISTIC, priority)):
            # Nodes without room for the smallest worker are left out before they are sorted: most are full.
            room = {node: leafs for node, leafs in self.rooms(level).items() if leafs >= sizes[0]}
            chosen = pack(sizes, sorted(room, key=self.rank), room)
            if chosen is not None:
                return Packing(chosen, partial(self._candidates, level))
        return self.blocker()

    def _candidates(self, priority: int, node: int) -> list[int]:
        free = [leaf for leaf in self.leafs[node] if self.priority[leaf] == FREE]
        return free + [leaf for leaf in self.leafs[node] if FREE < self.priority[leaf] < priority]


def virtual_view(book: CellBook, view: QuotaView, nodes: Set[str] | None) -> UsableNodes:
    """Return the virtual nodes of a view; `nodes`: the only machines that may be used, None = any."""
    place, used, leafs = book.place, book.used, book.quotas.trees.leafs
    usable = [node for node in view.nodes if place[node] == NONE or _is_usable(book, place[node], nodes)]

    def rooms(priority: int) -> Mapping[int, int]:
        if priority == OPPORTUNISTIC:
            return {node: len(leafs[node]) - used[node] for node in usable}
        return {node: len(leafs[node]) - book.used_from(node, priority) for node in usable}

    def blocker() -> Blocker:
        lacking = _Lacking(WaitReason.QUOTA_IN_USE, WaitReason.QUOTA_NOT_SUGGESTED, WaitReason.QUOTA_BAD)
        return _blocker(book, [place[node] for node in view.nodes if place[node] != NONE], nodes, lacking)

    return UsableNodes(rooms, lambda node: -used[node], leafs, book.virtual_priority, blocker)


def physical_view(book: CellBook, chain: str, nodes: Set[str] | None) -> UsableNodes:
    """Return the machines of a chain."""
    opportunistic, guaranteed = book.opportunistic, book.guaranteed
    kind = book.topology.chains[chain]
    machines = book.topology.cells_at[chain, kind.node_level]
    leafs = kind.type_at(kind.node_level).leafs

    def rooms(_: int) -> Mapping[int, int]:
        return {
            node: leafs - opportunistic[node] - guaranteed[node] for node in machines if _is_usable(book, node, nodes)
        }

    def blocker() -> Blocker:
        lacking = _Lacking(WaitReason.NOT_IDLE, WaitReason.IDLE_NOT_SUGGESTED, WaitReason.IDLE_BAD)
        return _blocker(book, machines, nodes, lacking)

    # There are fewer leafs on a node than this factor.
    return UsableNodes(
        rooms,
        lambda node: guaranteed[node] - opportunistic[node] * (leafs + 1),
        book.topology.trees.leafs,
        book.priority,
        blocker,
    )


def _is_usable(book: CellBook, place: int, allowed: Set[str] | None) -> bool:
    return not book.bad[place] and (allowed is None or book.topology.nodes[place][0] in allowed)


def _blocker(book: CellBook, places: Sequence[int], allowed: Set[str] | None, lacking: _Lacking) -> Blocker:
    """Return why these places do not suffice: healthy ones that are not suggested count before bad ones."""
    names = book.topology.nodes
    unsuggested = (each for each in places if allowed is not None and names[each][0] not in allowed)
    healthy = next((each for each in unsuggested if not book.bad[each]), NONE)
    if healthy != NONE:
        return Blocker("", lacking.suggested, names[healthy][0])
    bad = next((each for each in places if book.bad[each]), NONE)
    return Blocker("", lacking.free) if bad == NONE else Blocker("", lacking.healthy, names[bad][0])
