"""Requests that jobs give up cards for pods which find no room: when one is made, of which node, and when it ends.

1. A pod that has found no room for a moment requests cards of a node whose jobs can spare some; plans then leave those
   cards to it (voda/planner/requested_cards.py).
2. The request ends once the pod has cards, anywhere, or waits no more; and once the node has nothing to spare any
   more, say because others came, so that the pod requests cards of another node at once. One that was in vain for a
   minute, though no worker is about to leave the node, is withdrawn; the pod pauses, ever longer, and then tries
   another node first.

Rules: only so many are open at once; they are made by namespaces in turn, the oldest pods first, and pods that no node
can help keep nobody from one.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

from voda.application.sharing.claims.card_allotment import RefusedClaimant
from voda.application.sharing.claims.claimants import Claimants
from voda.backoff import Backoff
from voda.domain.gpus import GpuRequest
from voda.domain.shares import ShareRequest
from voda.events.types import ShareRequested, ShareRequestWithdrawn
from voda.planner.requested_cards import SpareCards

_AFTER_S: Final = 2.0
"""A pod that leaves makes room within that, say in the course of a rollout."""
_LOOK_S: Final = 1.0
"""How often the nodes of open requests are looked at: that takes milliseconds where there are thousands of workers."""
_OPEN_S: Final = 60.0
_OPEN_WITH_WORKERS_S: Final = 900.0
"""As long as workers are about to leave the node: they may have a long grace."""
_FIRST_PAUSE_S: Final = 300.0
_LONGEST_PAUSE_S: Final = 3600.0
MOST_OPEN: Final = 64

RequestFact = ShareRequested | ShareRequestWithdrawn


class CardRequests:
    """What the leader remembers of pods that found no room; all of it may be forgotten."""

    def __init__(self, claimants: Claimants) -> None:
        self.next_at = float("inf")
        """When the next pod may request cards, seconds since the epoch."""
        self._claimants = claimants
        self._look_at = 0.0
        """When to look next whether open requests can still be served."""
        self._since: dict[str, float] = {}
        """Uid of a pod that waits -> when it first found no room."""
        self._pauses = Backoff(first_s=_FIRST_PAUSE_S, longest_s=_LONGEST_PAUSE_S)
        self._in_vain: defaultdict[str, set[str]] = defaultdict(set)
        """Uid -> nodes whose cards it has requested in vain."""

    def due(self, refused: Sequence[RefusedClaimant], now: float) -> Iterator[RequestFact]:
        """Yield the requests that begin and end now.

        Args:
            refused: the pods that have found no room, the oldest first.
            now: seconds since the epoch.
        """
        waiting = {pod.metadata.uid for pod in self._claimants.accounts.pods.waiting()}
        self._forget(waiting)
        due, shares = self._due(refused, now), self._claimants.shares
        room = MOST_OPEN - len(shares.requests())
        is_looked_through = bool(shares.requests()) and now >= self._look_at
        spare: Sequence[SpareCards] | None = None
        if is_looked_through or (due and room > 0):
            spare, self._look_at = self._claimants.spare_cards(now), now + _LOOK_S
        if shares.requests():
            self.next_at = min(self.next_at, self._look_at)
        yield from self._ended(waiting, spare, now)
        if spare is not None and due and room > 0:
            yield from self._begun(_in_turn(due), spare, room)

    def _due(self, refused: Sequence[RefusedClaimant], now: float) -> Sequence[RefusedClaimant]:
        """Return the pods that may request cards now, and remember when the next one may."""
        shares, due = self._claimants.shares, list[RefusedClaimant]()
        self.next_at = float("inf")
        for each in refused:
            uid = each.claimant.uid
            if shares.node_of(uid) or uid in shares.requests():
                continue
            at = max(self._since.setdefault(uid, now) + _AFTER_S, self._pauses.due_at(uid))
            if at <= now:
                due.append(each)
            else:
                self.next_at = min(self.next_at, at)
        return due

    def _ended(
        self, waiting: set[str], spare: Sequence[SpareCards] | None, now: float
    ) -> Iterator[ShareRequestWithdrawn]:
        shares = self._claimants.shares
        served = set[str]().union(*(pool.served for pool in spare)) if spare is not None else shares.requests()
        for uid, node in shares.requests().items():
            request = shares.nodes[node].requests[uid]
            age_s = now - request.requested_at
            if uid not in waiting:
                yield _withdrawn(node, uid, request, "the pod does not wait any more")
            elif uid not in served:
                yield _withdrawn(node, uid, request, "the node has no cards to spare for it any more")
            elif age_s >= _OPEN_WITH_WORKERS_S or (age_s >= _OPEN_S and not self._claimants.is_being_left(node)):
                self._pauses.failed(uid, now)
                self._in_vain[uid].add(node)
                yield _withdrawn(node, uid, request, f"no card was free for it within {int(age_s)} s")

    def _begun(
        self, due: Sequence[RefusedClaimant], spare: Sequence[SpareCards], room: int
    ) -> Iterator[ShareRequested]:
        helpless = set[tuple[int, frozenset[tuple[str, GpuRequest]]]]()
        """Nodes and requests that nothing can be spared for: many pods ask for the same."""
        able = dict[int, Sequence[str]]()
        for claimant, nodes in due:
            asked = id(nodes), frozenset(claimant.requests.items())
            if asked in helpless:
                continue
            if id(nodes) not in able:
                able[id(nodes)] = [name for name in nodes if self._claimants.gives_cards_up(name)]
            avoided = self._in_vain.get(claimant.uid, frozenset[str]())
            node, pool = _choice(spare, claimant.requests, able[id(nodes)], avoided)
            if pool is None:
                helpless.add(asked)
                continue
            pool.take(node, claimant.requests)
            yield ShareRequested(node=node, pod_uid=claimant.uid, pod=claimant.key, containers=claimant.requests)
            if not (room := room - 1):
                return

    def _forget(self, waiting: set[str]) -> None:
        for uid in [uid for uid in self._since if uid not in waiting]:
            del self._since[uid]
            self._in_vain.pop(uid, None)
            self._pauses.reset(uid)


def _choice(
    spare: Sequence[SpareCards], requests: Mapping[str, GpuRequest], nodes: Sequence[str], avoided: Collection[str]
) -> tuple[str, SpareCards | None]:
    """Return the node, if possible none of those avoided, and its pool; None: nothing can be spared."""
    for those in ([name for name in nodes if name not in avoided], nodes) if avoided else (nodes,):
        for pool in spare:
            if node := pool.node_for(requests, those):
                return node, pool
    return "", None


def _in_turn(due: Sequence[RefusedClaimant]) -> Sequence[RefusedClaimant]:
    """Return the oldest pod of each namespace, then the next of each."""
    before, numbered = Counter[str](), list[tuple[int, RefusedClaimant]]()
    for each in due:
        namespace = each.claimant.pod.metadata.namespace
        numbered.append((before[namespace], each))
        before[namespace] += 1
    return [each for _, each in sorted(numbered, key=lambda each: each[0])]


def _withdrawn(node: str, uid: str, request: ShareRequest, reason: str) -> ShareRequestWithdrawn:
    return ShareRequestWithdrawn(node=node, pod_uid=uid, pod=request.pod, reason=reason)
