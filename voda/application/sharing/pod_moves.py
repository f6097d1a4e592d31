"""Moves of pods that claim parts of cards: which pods may be moved, and their evictions as it was requested. What makes
a pod makes it anew elsewhere (docs/adr/0033).

Level-triggered: each round asks the log whose turn it is. What was evicted is known by the cluster and by the log, so
whoever takes over goes on; an eviction that is sent again does no harm. Rules: a disruption budget that refuses is
heeded, and the pod asked for again later; a pod that is not to be moved any more stays.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from voda.application.defragment import MovablePods
from voda.application.sharing.claims.card_allotment import selects
from voda.application.sharing.claims.claim_accounts import ClaimAccounts
from voda.application.sharing.claims.claimants import Claimants
from voda.application.status.kube_events import Announcement, Reason, Subject
from voda.cluster.kubernetes.objects import Pod
from voda.concurrency import log_unexpected
from voda.domain.errors import ActionRefused, ClusterUnavailable, NotFound, TransientError
from voda.domain.shares import RESTARTABLE, Defragmentation, NodeCard, ShareMove

_LOOK_S: Final = 1.0
_AGAIN_S: Final = 15.0
"""After which a pod is evicted again that was not, or is still there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodMobility:
    """Of one replica."""

    claimants: Claimants
    is_synced: Callable[[], bool]

    def movable(self) -> MovablePods:
        """Return the pods that may be moved now.

        Raises:
            ClusterUnavailable: the cluster has not been read yet.
        """
        if not self.is_synced():
            raise ClusterUnavailable("this replica is still reading the cluster: try again in a moment")
        nodes = self.claimants.open_nodes()
        return MovablePods(
            nodes={
                uid: [name for name, node in nodes.items() if selects(pod, node)]
                for uid, pod in self.claimants.accounts.pods.by_uid.items()
                if pod.is_active and pod.spec.node_name and is_movable(pod)
            },
            closed={name: [*node.closed_cards] for name, node in nodes.items()},
        )


def is_movable(pod: Pod) -> bool:
    """Return whether a pod's user lets it be moved, and something makes it anew."""
    meta = pod.metadata
    return meta.annotations.get(RESTARTABLE) == "true" and any(owner.controller for owner in meta.owner_references)


@dataclass(kw_only=True)
class ShareMover:
    """Runs while this replica leads."""

    accounts: ClaimAccounts
    announce: Callable[[Announcement], None]
    _stuck: dict[NodeCard, float] = field(default_factory=dict, init=False)
    """Card from which a pod could not be evicted -> until when it is left alone."""
    _asked: dict[str, float] = field(default_factory=dict, init=False)
    """Uid of a pod that was evicted -> when it is evicted again if it is still there."""

    async def run(self) -> None:
        """Evict whose turn it is, until cancelled."""
        while True:
            with log_unexpected("moving shares", "shares"):
                await self.step()
            await asyncio.sleep(_LOOK_S)

    async def step(self) -> None:
        """Evict the pod of each pool whose turn it is."""
        requested, now = self.accounts.shares.moves.requested, self.accounts.backend.clock.now()
        self._stuck = {card: until for card, until in self._stuck.items() if until > now}
        self._asked = {uid: until for uid, until in self._asked.items() if until > now}
        for moves in [*requested.values()]:
            move = moves.current(now, self.accounts.shares.nodes, self._stuck.keys())
            if move is not None and not self._is_one_leaving(moves):
                await self._move(moves, move, now)

    async def _move(self, moves: Defragmentation, move: ShareMove, now: float) -> None:
        pod = self.accounts.pods.by_uid.get(move.pod_uid)
        if move.pod_uid in moves.left_at or pod is None or move.pod_uid in self._asked:
            # Its share is about to be released, or its successor comes.
            return
        if not is_movable(pod):
            self._leave(pod, move, "it is not restartable any more", now)
            return
        who = moves.requested_by or "nobody in particular"
        why = f"so that {move.source} becomes whole: defragmentation requested by {who}"
        try:
            await self.accounts.binding.evict(pod)
        except NotFound:
            return
        except (TransientError, ActionRefused) as error:
            self._leave(pod, move, str(error), now)
            return
        self._asked[move.pod_uid] = now + _AGAIN_S
        self._say(pod, "Moved", f"evicted {why}; there is room for its successor on {move.target}", moves.requested_at)

    def _is_one_leaving(self, moves: Defragmentation) -> bool:
        """Return whether a pod has its share for the length of its grace, though its successor may have come."""
        pods = (self.accounts.pods.by_uid.get(move.pod_uid) for move in moves.moves)
        return any(pod is not None and pod.is_leaving and pod.metadata.uid not in moves.left_at for pod in pods)

    def _leave(self, pod: Pod, move: ShareMove, reason: str, now: float) -> None:
        self._stuck[move.source] = now + _AGAIN_S
        self._say(pod, "NotMoved", f"stays on {move.source}, which was to become whole: {reason}", now)

    def _say(self, pod: Pod, reason: Reason, message: str, at: float) -> None:
        meta = pod.metadata
        subject = Subject(api_version="v1", kind="Pod", namespace=meta.namespace, name=meta.name, uid=meta.uid)
        self.announce(Announcement(subject=subject, reason=reason, message=message, at=at, key=f"{at} {message}"))
