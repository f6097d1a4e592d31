"""Requests that jobs give up cards for pods which find no room: when one is made, of which node, and when it ends.

1. A pod that has found no room for a moment requests cards of a node whose jobs can spare some; plans then leave those
   cards to it (voda/planner/requested_cards.py).
2. The request ends once the pod has cards, anywhere, or waits no more; and once the node has nothing to spare any
   more, say because others came: then the pod requests cards of another node at once, though only once. One that was
   in vain for a minute, though no worker is about to leave the node, is withdrawn; the pod pauses, ever longer, and
   then tries another node first. So it does where cards that it got are of no use to it.

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
"""How often this looks at nodes and pods: that takes tens of milliseconds where there are thousands."""
_MOST_LOOKED_AT: Final = 32
"""Pods at a time; the next time it goes on after these."""
_OPEN_S: Final = 60.0
_OPEN_WITH_WORKERS_S: Final = 900.0
"""As long as workers are about to leave the node: they may have a long grace."""
_FIRST_PAUSE_S: Final = 300.0
_LONGEST_PAUSE_S: Final = 3600.0
MOST_OPEN: Final = 64
_GONE: Final = "the pod does not wait any more"
_NOTHING_LEFT: Final = "the node has no cards to spare for it any more"

RequestFact = ShareRequested | ShareRequestWithdrawn


class CardRequests:
    """What the leader remembers of pods that found no room; all of it may be forgotten."""

    def __init__(self, claimants: Claimants) -> None:
        self.next_at = float("inf")
        """When to look next, seconds since the epoch."""
        self._claimants = claimants
        self._look_at = 0.0
        """Not to look again before."""
        self._since: dict[str, float] = {}
        """Uid of a pod that waits -> when it first found no room."""
        self._pauses = Backoff(first_s=_FIRST_PAUSE_S, longest_s=_LONGEST_PAUSE_S)
        self._in_vain: defaultdict[str, set[str]] = defaultdict(set)
        """Uid -> nodes whose cards it has requested in vain."""
        self._moved: set[str] = set()
        """Uids of pods whose request was withdrawn once, for their node had nothing to spare any more."""
        self._start = 0
        """Where to go on among the pods that are due: the last time more were due than are looked at at once."""

    def due(self, refused: Sequence[RefusedClaimant], now: float) -> Iterator[RequestFact]:
        """Yield the requests that begin and end now; `recorded` is to be told which the log has.

        Args:
            refused: the pods that have found no room, the oldest first.
            now: seconds since the epoch.
        """
        requests = self._claimants.shares.requests()
        # A clock that was set back closes this for no longer.
        if now < self._look_at <= now + _LOOK_S and (refused or requests):
            self.next_at = self._look_at
            return
        self._look_at = now + _LOOK_S
        waiting = {pod.metadata.uid for pod in self._claimants.accounts.pods.waiting()}
        self._forget(waiting)
        due, room = self._due(refused, now), MOST_OPEN - len(requests)
        self.next_at = max(self._look_at, self.next_at)
        if requests or (due and room > 0):
            spare = self._claimants.spare_cards(now)
            yield from self._ended(waiting, spare, now)
            yield from self._begun(due, spare, room)

    def recorded(self, fact: RequestFact, now: float) -> None:
        """Note that the log has one of the facts that were due."""
        if isinstance(fact, ShareRequestWithdrawn) and fact.reason != _GONE:
            if fact.reason == _NOTHING_LEFT and fact.pod_uid not in self._moved:
                self._moved.add(fact.pod_uid)
            else:
                self.failed(fact.pod_uid, fact.node, now)

    def failed(self, uid: str, node: str, now: float) -> None:
        """Note that cards of a node were of no use to a pod: it pauses before it requests others."""
        self._pauses.failed(uid, now)
        self._in_vain[uid].add(node)

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

    def _ended(self, waiting: set[str], spare: Sequence[SpareCards], now: float) -> Iterator[ShareRequestWithdrawn]:
        shares = self._claimants.shares
        served, left = set[str]().union(*(pool.served for pool in spare)), self._claimants.nodes_being_left()
        for uid, node in shares.requests().items():
            request = shares.nodes[node].requests[uid]
            age_s = now - request.requested_at
            if uid not in waiting:
                yield _withdrawn(node, uid, request, _GONE)
            elif uid not in served:
                yield _withdrawn(node, uid, request, _NOTHING_LEFT)
            elif age_s >= _OPEN_WITH_WORKERS_S or (age_s >= _OPEN_S and node not in left):
                yield _withdrawn(node, uid, request, f"no card was free for it within {int(age_s)} s")

    def _begun(
        self, due: Sequence[RefusedClaimant], spare: Sequence[SpareCards], room: int
    ) -> Iterator[ShareRequested]:
        helpless, looked = set[tuple[int, frozenset[tuple[str, GpuRequest]]]](), 0
        """Nodes and requests that nothing can be spared for: many pods ask for the same."""
        able = dict[int, Sequence[str]]()
        turns, start = _in_turn(due), self._start
        self._start = 0
        for number, (claimant, nodes) in enumerate((*turns[start:], *turns[:start])):
            asked = id(nodes), frozenset(claimant.requests.items())
            if asked in helpless:
                continue
            if room <= 0:
                return
            if looked == _MOST_LOOKED_AT:
                self._start = (start + number) % len(turns)
                return
            if id(nodes) not in able:
                able[id(nodes)] = [name for name in nodes if self._claimants.gives_cards_up(name)]
            avoided = self._in_vain.get(claimant.uid, frozenset[str]())
            node, pool = _choice(spare, claimant.requests, able[id(nodes)], avoided)
            looked += 1
            if pool is None:
                helpless.add(asked)
                continue
            pool.take(node, claimant.requests)
            room -= 1
            yield ShareRequested(node=node, pod_uid=claimant.uid, pod=claimant.key, containers=claimant.requests)

    def _forget(self, waiting: set[str]) -> None:
        known = self._since.keys() | self._in_vain.keys() | self._moved
        for uid in known - waiting:
            self._since.pop(uid, None)
            self._in_vain.pop(uid, None)
            self._moved.discard(uid)
            self._pauses.reset(uid)


def _choice(
    spare: Sequence[SpareCards], requests: Mapping[str, GpuRequest], nodes: Sequence[str], avoided: Collection[str]
) -> tuple[str, SpareCards | None]:
    """Return the node, if possible none of those avoided, and its pool; None: nothing can be spared."""
    # Where a request was in vain, the others of the pool may be too: its policy is one.
    spare = sorted(spare, key=lambda pool: pool.has_any(avoided)) if avoided else spare
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
