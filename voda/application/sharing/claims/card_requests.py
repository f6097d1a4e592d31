"""Requests that jobs give up cards for pods which find no room: when one is made, of which node, and when it ends.

1. A pod that has found no room for a moment requests cards of a node whose jobs can spare some; plans then leave those
   cards to it (voda/planner/requested_cards.py).
2. The request ends once the pod has cards, anywhere, or waits no more. One that was in vain for a minute is withdrawn,
   and the pod may request cards again later, of another node too.

Rule: only so many are open at once, the oldest pods' first, so that a thousand pods that fit nowhere cost little.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from voda.application.sharing.claims.card_allotment import RefusedClaimant
from voda.application.sharing.claims.claimants import Claimants
from voda.domain.shares import ShareRequest
from voda.events.types import ShareRequested, ShareRequestWithdrawn

_AFTER_S: Final = 2.0
"""A pod that leaves makes room within that, say in the course of a rollout."""
_OPEN_S: Final = 60.0
_PAUSE_S: Final = 300.0
"""After a request in vain."""
_LOOK_AGAIN_S: Final = 5.0
"""After no node had cards to spare."""
MOST_OPEN: Final = 64

RequestFact = ShareRequested | ShareRequestWithdrawn


class CardRequests:
    """What the leader remembers of pods that found no room; all of it may be forgotten."""

    def __init__(self, claimants: Claimants) -> None:
        self._claimants = claimants
        self._not_before: dict[str, float] = {}
        """Uid of a pod that waits -> when it may request cards."""

    def due(self, refused: Sequence[RefusedClaimant], now: float) -> Iterator[RequestFact]:
        """Yield the requests that begin and end now.

        Args:
            refused: the pods that have found no room, the oldest first.
            now: seconds since the epoch.
        """
        yield from self._ended(now)
        shares = self._claimants.shares
        able = [each for each in refused if not shares.node_of(each.claimant.uid)]
        self._not_before = {
            uid: self._not_before.get(uid, now + _AFTER_S) for uid in (each.claimant.uid for each in able)
        }
        due = [each for each in able if now >= self._not_before[each.claimant.uid]]
        due = [each for each in due if each.claimant.uid not in shares.requests()]
        if room := max(0, MOST_OPEN - len(shares.requests())):
            yield from self._begun(due[:room], now)

    def _ended(self, now: float) -> Iterator[ShareRequestWithdrawn]:
        waiting = {pod.metadata.uid for pod in self._claimants.accounts.pods.waiting()}
        shares = self._claimants.shares
        for uid, node in shares.requests().items():
            request = shares.nodes[node].requests[uid]
            if uid not in waiting:
                yield _withdrawn(node, uid, request, "the pod does not wait any more")
            elif now - request.requested_at >= _OPEN_S:
                self._not_before[uid] = now + _PAUSE_S
                yield _withdrawn(node, uid, request, f"no card was given up for it within {_OPEN_S:g} s")

    def _begun(self, due: Sequence[RefusedClaimant], now: float) -> Iterator[ShareRequested]:
        spare = self._claimants.spare_cards() if due else ()
        for claimant, nodes in due:
            found = ((pool, pool.node_for(claimant.requests, nodes)) for pool in spare)
            pool, node = next((each for each in found if each[1]), (None, ""))
            if pool is None:
                self._not_before[claimant.uid] = now + _LOOK_AGAIN_S
                continue
            pool.take(node, claimant.requests)
            yield ShareRequested(node=node, pod_uid=claimant.uid, pod=claimant.key, containers=claimant.requests)


def _withdrawn(node: str, uid: str, request: ShareRequest, reason: str) -> ShareRequestWithdrawn:
    return ShareRequestWithdrawn(node=node, pod_uid=uid, pod=request.pod, reason=reason)
