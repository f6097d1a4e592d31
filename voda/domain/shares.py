"""What pods have of the cards of a node, what is left of them, and which shares move on request so that cards become
whole: values, but for the account of a node.

Rules: capacity follows the node: what a pod has of a card that is gone stays its own, and is of no use to others. Moves
come one after the other, and whoever carries them out keeps nothing in memory that it would miss after a crash.
"""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from voda.domain.gpus import MILLI_PER_DEVICE, CardShare, GpuDevice, GpuRequest

RESTARTABLE: Final = "voda.dev/restartable"
"""Annotation of a job's manifest, or of a pod: "true" if its user lets voda end it, and start it on another card."""
MOVES: Final = "moves to "
"""Begins the reason of a plan that halts a job so that it moves to another card, and of no other plan that halts one:
folds of the log read it there, since a plan has the moves nowhere else."""
LIMIT_S: Final = 600.0
"""How long the cards that are to become whole are kept from shares."""
NEW_PLACE_S: Final = 60.0
"""How long the next move waits for a share that has left its card to have its new place."""


class PodShares(Struct, frozen=True, kw_only=True):
    """What one pod has of its node."""

    pod: str
    """`namespace/name`."""
    containers: Mapping[str, CardShare]
    assigned_at: float


class ShareRequest(Struct, frozen=True, kw_only=True):
    """What a pod waits for that jobs can spare."""

    pod: str
    """`namespace/name`."""
    containers: Mapping[str, GpuRequest]
    requested_at: float


class FreeCard(Struct, frozen=True, kw_only=True):
    """What is left of a card."""

    milli: int
    memory_mib: int
    is_whole: bool
    """Whether nobody has any of it."""


class SharingNode(Struct, kw_only=True):
    """The account of one node; the projection changes it in place."""

    devices: tuple[GpuDevice, ...] = ()
    version: int = 0
    """Of its stream in the log: who appends to it at this version knows all shares of the node."""
    pods: dict[str, PodShares] = {}
    """By uid."""
    requests: dict[str, ShareRequest] = {}
    """By uid of the pod; of those that have no cards yet."""

    @property
    def is_claimed(self) -> bool:
        """Whether its cards are devices that pods claim (dynamic resource allocation)."""
        return any(device.name for device in self.devices)

    def free(self) -> Sequence[FreeCard]:
        """Return what is left of each card; below 0 where the node has less memory than it had."""
        milli = [MILLI_PER_DEVICE] * len(self.devices)
        memory = [device.memory_mib for device in self.devices]
        used = set[int]()
        for _, share in self._shares():
            used.update(share.cards)
            for card in share.cards:
                if card < len(self.devices):
                    milli[card] -= share.request.milli_each
                    memory[card] -= self.devices[card].memory_mib if share.request.devices else share.request.memory_mib
        return [
            FreeCard(milli=milli[card], memory_mib=memory[card], is_whole=card not in used)
            for card in range(len(self.devices))
        ]

    def refusal(self, containers: Mapping[str, CardShare]) -> str:
        """Return why these shares cannot be given, one sentence; empty: they can."""
        free = list(self.free())
        for name, share in containers.items():
            for card in share.cards:
                if card >= len(free):
                    return f"container {name}: there is no card {card}, the node has {len(free)}"
                left, request = free[card], share.request
                if request.devices and not left.is_whole:
                    return f"container {name}: card {card} is in use"
                if request.milli > left.milli or request.memory_mib > max(0, left.memory_mib):
                    return (
                        f"container {name}: card {card} has {left.milli} milli and {left.memory_mib} MiB left,"
                        f" needed {request.milli} and {request.memory_mib}"
                    )
                if left.milli <= 0:
                    return f"container {name}: card {card} has no compute left"
                free[card] = FreeCard(
                    milli=left.milli - request.milli_each,
                    memory_mib=0 if request.devices else left.memory_mib - request.memory_mib,
                    is_whole=False,
                )
        return ""

    def copy(self) -> "SharingNode":
        """Return the account as it is now."""
        return SharingNode(
            devices=self.devices, version=self.version, pods=dict(self.pods), requests=dict(self.requests)
        )

    def has_room_beside_others(
        self, request: GpuRequest, beside: Collection[str] | None = None, closed: Collection[int] = ()
    ) -> bool:
        """Return whether a card of which somebody has a share, and nobody all, has so much left; `beside`: of which one
        of these pods has; `closed`: these cards do not count.
        """
        cards = range(len(self.devices)) if beside is None else self.cards_of(beside)
        return any(
            not left.is_whole and left.milli >= max(1, request.milli) and left.memory_mib >= request.memory_mib
            for card, left in enumerate(self.free())
            if card in cards and card not in closed
        )

    def cards_of(self, uids: Collection[str]) -> frozenset[int]:
        """Return the cards of which these pods have shares."""
        pods = [self.pods[uid] for uid in uids if uid in self.pods]
        return frozenset(card for pod in pods for share in pod.containers.values() for card in share.cards)

    def used_cards(self) -> int:
        """Return how many of its cards are not wholly free, of those that are GPUs for jobs too."""
        used = {card for _, share in self._shares() for card in share.cards if card < len(self.devices)}
        return sum(not self.devices[card].is_for_pods for card in used)

    def _shares(self) -> Iterator[tuple[str, CardShare]]:
        for pod in self.pods.values():
            yield from pod.containers.items()


class NodeCard(Struct, frozen=True, order=True):
    """A card of a node."""

    node: str
    card: int

    def __str__(self) -> str:
        return f"card {self.card} of {self.node}"


class ShareMove(Struct, frozen=True, kw_only=True):
    """A pod or job leaves its card, and there is room for it on another one."""

    pod_uid: str
    pod: str
    """`namespace/name`."""
    milli: int
    memory_mib: int
    source: NodeCard
    target: NodeCard


class Defragmentation(Struct, frozen=True, kw_only=True):
    """The moves that were requested last of a pool."""

    requested_by: str
    requested_at: float
    ends_at: float
    moves: tuple[ShareMove, ...]
    freed: tuple[NodeCard, ...]
    """The cards that become whole once all moves are done."""
    version: int
    """Of the stream of such requests."""
    left_at: Mapping[str, float] = {}
    """uid of a pod -> when it had no card any more."""
    successors: Mapping[str, str] = {}
    """uid of a pod -> that of the pod which came in its place; of a job its own."""

    def is_over(self, move: ShareMove, now: float) -> bool:
        """Return whether a share has left its card, and has its new place, or does not come to it in time."""
        left_at = self.left_at.get(move.pod_uid, math.inf)
        return now >= left_at and (move.pod_uid in self.successors or now >= left_at + NEW_PLACE_S)

    def is_in_force(self, now: float) -> bool:
        """Return whether moves are still to be made, and there is time."""
        return now < self.ends_at and not all(self.is_over(move, now) for move in self.moves)

    def current(
        self, now: float, accounts: Mapping[str, SharingNode], stuck: Collection[NodeCard] = ()
    ) -> ShareMove | None:
        """Return the move that is under way or comes next; None: there is none.

        A card stays as it is for now if it is `stuck`, or if others took the room of a share that would leave it.
        """
        if now >= self.ends_at:
            return None
        begun = [move for move in self.moves if move.pod_uid in self.left_at and not self.is_over(move, now)]
        rest = [move for move in self.moves if move.pod_uid not in self.left_at]
        roomless = {move.source for move in rest if not _has_room(accounts, move)}
        return next(iter([*begun, *(move for move in rest if move.source not in {*stuck, *roomless})]), None)

    def kept(self, node: str) -> frozenset[int]:
        """Return the cards of a node that are to become whole."""
        return frozenset(each.card for each in self.freed if each.node == node)

    def changes_at(self, now: float) -> float:
        """Return when the next move begins, or all end, if nothing else happens; infinite: they have ended."""
        if not self.is_in_force(now):
            return math.inf
        late = (at + NEW_PLACE_S for uid, at in self.left_at.items() if uid not in self.successors)
        return min([self.ends_at, *(at for at in late if at > now)])

    def with_left(self, pod_uid: str, at: float) -> "Defragmentation":
        """Return what follows from a pod that has no card any more."""
        if pod_uid in self.left_at or all(move.pod_uid != pod_uid for move in self.moves):
            return self
        return replace(self, left_at={**self.left_at, pod_uid: at})

    def with_share(self, pod_uid: str, pod: str, containers: Mapping[str, CardShare]) -> "Defragmentation":
        """Return what follows from a pod or job that has a card now: it may have come in place of one that was moved.

        The log does not know which pod takes the place of which: one of the same namespace that has as much does, and
        may come before the other has left. A mistake begins the next move too early, and no more.
        """
        namespace, amount = pod.partition("/")[0], total_amount(containers)
        if pod_uid in self.successors.values():
            return self
        for move in self.moves:
            is_itself = move.pod_uid == pod_uid and pod_uid in self.left_at
            is_like_it = move.pod.partition("/")[0] == namespace and (move.milli, move.memory_mib) == amount
            if move.pod_uid not in self.successors and (is_itself or (move.pod_uid != pod_uid and is_like_it)):
                return replace(self, successors={**self.successors, move.pod_uid: pod_uid})
        return self


def _has_room(accounts: Mapping[str, SharingNode], move: ShareMove) -> bool:
    account = accounts.get(move.target.node)
    if account is None or move.target.card >= len(account.devices):
        return False
    left = account.free()[move.target.card]
    return left.milli >= max(1, move.milli) and left.memory_mib >= move.memory_mib


def total_amount(containers: Mapping[str, CardShare]) -> tuple[int, int]:
    """Return what a pod has of cards in all, milli and MiB, whole cards left out."""
    requests = [share.request for share in containers.values()]
    return sum(each.milli for each in requests), sum(each.memory_mib for each in requests)


def cards_to_keep(account: SharingNode, kept: Collection[int], milli: int, memory_mib: int) -> Collection[int]:
    """Return the cards of a node that a share is not to come to: those that are kept and, where it has room beside
    others, those that nobody uses.
    """
    free = {card: left for card, left in enumerate(account.free()) if card not in kept}
    whole = {card for card, left in free.items() if left.is_whole}
    beside = (left for card, left in free.items() if card not in whole)
    has_room = any(left.milli >= max(1, milli) and left.memory_mib >= memory_mib for left in beside)
    return {*kept, *whole} if has_room else kept
