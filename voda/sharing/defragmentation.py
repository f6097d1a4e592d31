"""Which shares to move so that whole cards become free: many cards by few moves.

Greedy: the card that the fewest and smallest shares are on comes first, and is emptied if all of them fit on cards that
are in use already, each on the fullest one that has room. Packing is NP-hard; this costs O(cards * log cards) where it
succeeds, and no card is looked at twice.

Rules: pure; only what may be moved is, and it stays among cards of one kind (driver and memory); no move takes a card
that nobody uses; targets are accounted for, so that all moves fit together, in any order.
"""

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from voda.domain.gpus import CardShare, GpuDevice, Gpus
from voda.domain.shares import NodeCard, PodShares, ShareMove, SharingNode, total_amount
from voda.domain.state import ClusterState

MOST_MOVES: Final = 500


class PlannedMoves(Struct, frozen=True, kw_only=True):
    """Moves, and what they come to."""

    moves: tuple[ShareMove, ...] = ()
    freed: tuple[NodeCard, ...] = ()
    shared: int = 0
    """Cards of which somebody has a part, before."""
    fixed: int = 0
    """Of these, cards with a share that may not be moved."""


def plan_moves(
    accounts: Mapping[str, SharingNode],
    movable: Mapping[str, Collection[str]],
    *,
    most: int,
    closed: Mapping[str, Collection[int]] | None = None,
) -> PlannedMoves:
    """Return the moves that free most cards, `most` of them at the most.

    Args:
        accounts: of the nodes that pods may come to.
        movable: uid of a pod or job that may be moved -> the nodes that it may come to.
        most: moves, 0 or more.
        closed: node -> cards that are left as they are.
    """
    draft = _Draft(accounts, closed or {})
    candidates = {card: on for card, on in draft.shares.items() if all(each.uid in movable for each in on)}
    moves, freed, receivers = list[ShareMove](), list[NodeCard](), set[NodeCard]()
    for card in sorted(candidates, key=lambda card: _size(card, candidates[card])):
        if card in receivers or len(moves) + len(candidates[card]) > most:
            # What has just come to a card stays there.
            continue
        if new := draft.empty(card, candidates[card], movable):
            moves += new
            freed.append(card)
            receivers |= {move.target for move in new}
    fixed = len(draft.shares) - len(candidates)
    return PlannedMoves(moves=tuple(moves), freed=tuple(freed), shared=len(draft.shares), fixed=fixed)


def after_moves(state: ClusterState, planned: PlannedMoves) -> ClusterState:
    """Return the state in which all moves are done, as far as cards are concerned."""
    shares = {name: account.copy() for name, account in state.shares.items()}
    for move in planned.moves:
        pod = shares[move.source.node].pods.pop(move.pod_uid)
        containers = {
            name: CardShare(cards=(move.target.card,), request=share.request) for name, share in pod.containers.items()
        }
        shares[move.target.node].pods[move.pod_uid] = replace(pod, containers=containers)
    nodes = dict(state.nodes)
    for name, account in shares.items():
        # A card that is shared is foreign in the state.
        if (node := nodes.get(name)) is not None and node.gpus:
            fewer = state.shares[name].used_cards() - account.used_cards()
            nodes[name] = replace(node, foreign_gpus=Gpus(max(0, node.foreign_gpus - fewer)))
    return replace(state, shares=shares, nodes=nodes)


class _Share(Struct, frozen=True):
    uid: str
    pod: str
    milli: int
    memory_mib: int


_Kind = tuple[str, int]
"""Driver and memory of a card."""
_Room = tuple[int, int, NodeCard]
"""What is left of a card in use, milli and MiB: the fullest first."""


class _Draft:
    """The cards as they become."""

    def __init__(self, accounts: Mapping[str, SharingNode], closed: Mapping[str, Collection[int]]) -> None:
        self.shares: dict[NodeCard, list[_Share]] = {}
        """What is on each card of which pods have parts; of a pod with several cards the uid is empty."""
        self._kind: dict[NodeCard, _Kind] = {}
        self._rooms: defaultdict[_Kind, list[_Room]] = defaultdict(list)
        self._room: dict[NodeCard, _Room] = {}
        for name, account in accounts.items():
            self._read(name, account, closed.get(name, ()))
        for rooms in self._rooms.values():
            rooms.sort()

    def empty(
        self, card: NodeCard, shares: Sequence[_Share], movable: Mapping[str, Collection[str]]
    ) -> Sequence[ShareMove]:
        """Move all shares off a card, or none: then nothing has changed."""
        self._rooms[self._kind[card]].remove(self._room[card])
        moves = list[ShareMove]()
        for share in sorted(shares, key=lambda share: (-share.milli, -share.memory_mib, share.uid)):
            if (target := self._target(self._kind[card], share, movable[share.uid])) is None:
                for move in moves:
                    self._take(move.target, -move.milli, -move.memory_mib)
                insort(self._rooms[self._kind[card]], self._room[card])
                return ()
            self._take(target, share.milli, share.memory_mib)
            moves.append(
                ShareMove(
                    pod_uid=share.uid,
                    pod=share.pod,
                    milli=share.milli,
                    memory_mib=share.memory_mib,
                    source=card,
                    target=target,
                )
            )
        return moves

    def _target(self, kind: _Kind, share: _Share, nodes: Collection[str]) -> NodeCard | None:
        rooms = self._rooms[kind]
        for milli, memory_mib, card in rooms[bisect_left(rooms, max(1, share.milli), key=_milli) :]:
            if memory_mib >= share.memory_mib and card.node in nodes and milli >= share.milli:
                return card
        return None

    def _take(self, card: NodeCard, milli: int, memory_mib: int) -> None:
        rooms, before = self._rooms[self._kind[card]], self._room[card]
        rooms.remove(before)
        self._room[card] = before[0] - milli, before[1] - memory_mib, card
        insort(rooms, self._room[card])

    def _read(self, name: str, account: SharingNode, closed: Collection[int]) -> None:
        on, whole = _on_cards(account)
        for index, left in enumerate(account.free()):
            card = NodeCard(name, index)
            if index in on and index not in closed and index not in whole:
                self.shares[card], self._kind[card] = on[index], _kind(account.devices[index])
                self._room[card] = left.milli, left.memory_mib, card
                self._rooms[self._kind[card]].append(self._room[card])


def _on_cards(account: SharingNode) -> tuple[Mapping[int, list[_Share]], Collection[int]]:
    """Return card -> what pods have of it, and the cards that pods have as a whole."""
    on, whole = defaultdict[int, list[_Share]](list), set[int]()
    for uid, pod in account.pods.items():
        cards = {card for share in pod.containers.values() for card in share.cards}
        whole |= {card for share in pod.containers.values() if share.request.devices for card in share.cards}
        for card in cards:
            on[card].append(_share(uid if len(cards) == 1 else "", pod))
    return on, whole


def _share(uid: str, pod: PodShares) -> _Share:
    return _Share(uid, pod.pod, *total_amount(pod.containers))


def _size(card: NodeCard, shares: Sequence[_Share]) -> tuple[int, int, int, NodeCard]:
    return len(shares), sum(each.milli for each in shares), sum(each.memory_mib for each in shares), card


def _kind(device: GpuDevice) -> _Kind:
    return device.name.partition("/")[0], device.memory_mib


def _milli(room: _Room) -> int:
    return room[0]
