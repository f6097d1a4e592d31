"""Requests that jobs give up GPUs for pods which find no room: when one is made, of which node, and when it ends.

1. The oldest pod that has found no room for a moment requests GPUs of a node whose jobs can spare some; plans then
   leave those to it (voda/planner/gpus_for_pods.py). A node has one request at a time. Who will find room beside that
   pod waits; who will not requests GPUs of another node.
2. The request ends once the pod has GPUs, anywhere, or waits no more; and once the node has nothing to spare any more,
   say because others came: then the pod requests GPUs of another node at once, though only once. One that was in vain
   for a minute, though no worker is about to leave the node, is withdrawn; the pod pauses, ever longer, and then tries
   another node first. So it does where GPUs that it got are of no use to it.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

from voda.application.sharing.claims.card_allotment import RefusedClaimant
from voda.application.sharing.claims.claimants import Claimants
from voda.backoff import Backoff
from voda.domain.gpus import GpuRequest
from voda.domain.shares import ShareRequest
from voda.events.types import ShareRequested, ShareRequestWithdrawn
from voda.planner.gpus_for_pods import SpareGpus

_AFTER_S: Final = 2.0
"""A pod that leaves makes room within that, say in the course of a rollout."""
_LOOK_S: Final = 1.0
"""How often this looks at nodes and pods: that takes tens of milliseconds where there are thousands."""
_MOST_AT_ONCE: Final = 32
"""Requests that are made at a time; the next time it goes on."""
_OPEN_S: Final = 60.0
_OPEN_WITH_WORKERS_S: Final = 900.0
"""As long as workers are about to leave the node: they may have a long grace."""
_FIRST_PAUSE_S: Final = 300.0
_LONGEST_PAUSE_S: Final = 3600.0
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
        due = self._due(refused, now)
        self.next_at = max(self._look_at, self.next_at)
        if requests or due:
            spare = self._claimants.spare_for_pods(now)
            yield from self._ended(waiting, spare, now)
            yield from islice(self._begun(due, spare), _MOST_AT_ONCE)

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

    def _ended(self, waiting: set[str], spare: Sequence[SpareGpus], now: float) -> Iterator[ShareRequestWithdrawn]:
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

    def _begun(self, due: Sequence[RefusedClaimant], spare: Sequence[SpareGpus]) -> Iterator[ShareRequested]:
        helpless = set[tuple[int, frozenset[tuple[str, GpuRequest]]]]()
        """Nodes and requests that nothing can be spared for: many pods ask for the same."""
        taken, able = {*self._claimants.shares.requests().values()}, dict[int, Sequence[str]]()
        for claimant, nodes in due:
            kind = id(nodes), frozenset(claimant.requests.items())
            if kind in helpless:
                continue
            if id(nodes) not in able:
                able[id(nodes)] = [name for name in nodes if self._claimants.gives_cards_up(name)]
            # Beside a pod that has requested some it will find room without a request of its own.
            others = [name for name in able[id(nodes)] if name not in taken]
            if _fits_beside(spare, claimant.requests, taken.intersection(able[id(nodes)])):
                continue
            if node := _choice(spare, claimant.requests, others, self._in_vain.get(claimant.uid, ())):
                taken.add(node)
                yield ShareRequested(node=node, pod_uid=claimant.uid, pod=claimant.key, containers=claimant.requests)
            else:
                helpless.add(kind)

    def _forget(self, waiting: set[str]) -> None:
        known = self._since.keys() | self._in_vain.keys() | self._moved
        for uid in known - waiting:
            self._since.pop(uid, None)
            self._in_vain.pop(uid, None)
            self._moved.discard(uid)
            self._pauses.reset(uid)


def _fits_beside(spare: Sequence[SpareGpus], requests: Mapping[str, GpuRequest], nodes: Collection[str]) -> bool:
    """Say whether a pod needs no whole GPU of one of these nodes, and take what it needs there."""
    for pool in spare:
        if (found := pool.choose(requests, nodes)) is not None and not found[1]:
            pool.take(found[0], requests)
            return True
    return False


def _choice(
    spare: Sequence[SpareGpus], requests: Mapping[str, GpuRequest], nodes: Sequence[str], avoided: Collection[str]
) -> str:
    """Return the node of which a pod is to request GPUs, and take them; if possible none of those avoided."""
    for those in ([name for name in nodes if name not in avoided], nodes) if avoided else (nodes,):
        for pool in spare:
            if (found := pool.choose(requests, those)) is not None:
                pool.take(found[0], requests)
                return found[0]
    return ""


def _withdrawn(node: str, uid: str, request: ShareRequest, reason: str) -> ShareRequestWithdrawn:
    return ShareRequestWithdrawn(node=node, pod_uid=uid, pod=request.pod, reason=reason)
