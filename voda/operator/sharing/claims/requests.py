"""Requests that jobs give up GPUs for pods which find no room: when one is made, of which node, and when it ends. Pure.

1. The oldest pod that has found no room for a moment requests GPUs of a node whose jobs can spare some; plans then
   leave those to it (voda/planner/sharing/gpus_for_pods.py). A node has one request at a time. Who will find room
   beside that pod waits; who will not requests GPUs of another node.
2. The request ends once the pod has GPUs, anywhere, or waits no more; and once the node has nothing to spare any more,
   say because others came: then the pod requests GPUs of another node at once, though only once. One that was in vain
   for a minute, though no worker is about to leave the node, is withdrawn; the pod pauses, ever longer, and then tries
   another node first. So it does where GPUs that it got are of no use to it.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from voda.domain.gpus import GpuRequest
from voda.domain.reasons.pods import NoGpuFree, NothingToSpare, NotWaiting, Withdrawal
from voda.domain.shares import PendingRequest
from voda.events.types import ShareRequested, ShareRequestWithdrawn
from voda.operator.sharing.claims.allotment import NoRoom
from voda.operator.sharing.claims.attempt import NEW, PodAttempt
from voda.planner.sharing import SpareGpus

_AFTER_S: Final = 2.0
"""A pod that leaves makes room within that, say in the course of a rollout."""
_MOST_AT_ONCE: Final = 32
"""Requests that are made at a time; the next time it goes on."""
_OPEN_S: Final = 60.0
_OPEN_WITH_WORKERS_S: Final = 900.0
"""As long as workers are about to leave the node: they may have a long grace."""

RequestFact = ShareRequested | ShareRequestWithdrawn
OpenRequests = Mapping[str, tuple[str, PendingRequest]]
"""Uid of a pod -> the node, and what it waits for there."""


class JobGpus(Struct, frozen=True, kw_only=True):
    """What jobs can give up, and do."""

    spare: Sequence[SpareGpus]
    """Of each pool."""
    being_left: Collection[str]
    """Nodes with workers that no plan has there any more."""
    gives_up: Callable[[str], bool]
    """Says whether a worker that leaves a node leaves a GPU that a pod can be given."""


def with_refused(refused: Sequence[NoRoom], memory: Mapping[str, PodAttempt], now: float) -> Mapping[str, PodAttempt]:
    """Return the memory with since when pods find no room."""
    new = {each.claimant.uid: memory.get(each.claimant.uid, NEW) for each in refused}
    return {
        **memory,
        **{uid: replace(each, no_room_since=now) for uid, each in new.items() if each.no_room_since is None},
    }


def request_at(attempt: PodAttempt) -> float:
    """Return when a pod without room may request GPUs."""
    since = attempt.no_room_since
    return max(since + _AFTER_S, attempt.request_at) if since is not None else float("inf")


def ended_requests(
    requests: OpenRequests, waiting: Collection[str], jobs: JobGpus, now: float
) -> Iterator[ShareRequestWithdrawn]:
    """Yield the requests that end now; `waiting` are the uids of all pods that wait."""
    served = set[str]().union(*(pool.served for pool in jobs.spare))
    for uid, (node, request) in requests.items():
        age_s = now - request.requested_at
        if uid not in waiting:
            reason: Withdrawal = NotWaiting()
        elif uid not in served:
            reason = NothingToSpare()
        elif age_s >= _OPEN_WITH_WORKERS_S or (age_s >= _OPEN_S and node not in jobs.being_left):
            reason = NoGpuFree(within_s=int(age_s))
        else:
            continue
        yield ShareRequestWithdrawn(node=node, pod_uid=uid, pod=request.pod, reason=reason)


def new_requests(
    due: Sequence[NoRoom], taken: Collection[str], jobs: JobGpus, memory: Mapping[str, PodAttempt]
) -> Sequence[ShareRequested]:
    """Return the requests that begin now.

    Args:
        due: pods that may make one, the oldest first.
        taken: nodes that have one.
        jobs: what they can spare; what new requests take of it is taken.
        memory: what is remembered of pods, by uid.
    """
    return list(islice(_begun(due, {*taken}, jobs, memory), _MOST_AT_ONCE))


def after_withdrawal(attempt: PodAttempt, fact: ShareRequestWithdrawn, now: float) -> PodAttempt:
    """Return what is remembered of a pod whose request the log has as withdrawn."""
    if isinstance(fact.reason, NotWaiting):
        return attempt
    if isinstance(fact.reason, NothingToSpare) and not attempt.has_moved_on:
        return replace(attempt, has_moved_on=True)
    return attempt.pausing(fact.node, now)


def _begun(
    due: Sequence[NoRoom], taken: set[str], jobs: JobGpus, memory: Mapping[str, PodAttempt]
) -> Iterator[ShareRequested]:
    helpless = set[tuple[int, frozenset[tuple[str, GpuRequest]]]]()
    """Nodes and requests that nothing can be spared for: many pods ask for the same."""
    able = dict[int, Sequence[str]]()
    for claimant, nodes, _ in due:
        kind, asked = (id(nodes), frozenset(claimant.requests.items())), claimant.requests
        if kind in helpless:
            continue
        if id(nodes) not in able:
            able[id(nodes)] = [name for name in nodes if jobs.gives_up(name)]
        # Beside a pod that has requested some it will find room without a request of its own.
        if _fits_beside(jobs.spare, asked, taken.intersection(able[id(nodes)])):
            continue
        others = [name for name in able[id(nodes)] if name not in taken]
        if node := _choice(jobs.spare, asked, others, memory.get(claimant.uid, NEW).in_vain):
            taken.add(node)
            yield ShareRequested(node=node, pod_uid=claimant.uid, pod=claimant.key, containers=asked)
        else:
            helpless.add(kind)


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
