"""What is free of the cards of a pool and of no use: by node, and by what pods ask for.

It is FGD's measure (voda/sharing/fragmentation.py); typical are the kinds of the pods and jobs that have shares now.

Rules: the metric and the report are both read here. Free is what a pod could be given: nothing of a node that takes
none, and no card that a worker or somebody else has as a whole.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np
from msgspec import Struct

from voda.domain.gpus import GpuRequest
from voda.domain.shares import SharingNode
from voda.domain.state import ClusterState
from voda.sharing.accounts import fleet_of, requests_in
from voda.sharing.demand import COVERAGE, Demand
from voda.sharing.fragmentation import Fragmentation
from voda.sharing.kinds import TypicalKind, kind_of, largest_container, typical_kinds
from voda.sharing.nodes import Floats


class NodeFragment(Struct, frozen=True, kw_only=True):
    """What is free of one node's cards."""

    node: str
    is_open: bool
    """Whether pods and workers may come to it; of one that is not, nothing is free."""
    cards: int
    whole_free_cards: int
    free_milli: int
    fragment_milli: float | None
    """Of that, what typical pods cannot use, on average over them; None: no pod of the pool has compute of a card."""


class KindFragment(Struct, frozen=True, kw_only=True):
    """What pods that ask for the same can use of what is free in the pool."""

    request: GpuRequest
    """Of their largest container."""
    pods: int
    """Those that have it now."""
    share: float
    """Of the pods of all typical kinds."""
    usable_milli: int
    lost_milli: int
    more_pods: int
    """How many more of them have room; memory counts here, which FGD leaves out."""


class FragmentReport(Struct, frozen=True, kw_only=True):
    """Nodes with cards by name, and the typical kinds, the most frequent first."""

    nodes: Sequence[NodeFragment] = ()
    kinds: Sequence[KindFragment] = ()
    rare_pods: int = 0
    """Pods of kinds too rare to be typical."""


def fragments(state: ClusterState) -> Mapping[str, float]:
    """Return node -> free milli of its cards that typical pods cannot use.

    Empty while no pod has compute of a card: nothing is typical.
    """
    return _Pool(state).fragments


def fragment_report(state: ClusterState) -> FragmentReport:
    """Return what is free of a pool's cards, and of use to whom; O(nodes * kinds), so it is for a thread."""
    pool = _Pool(state)
    kinds = pool.kinds() if pool.fragments else ()
    return FragmentReport(
        nodes=pool.nodes(),
        kinds=kinds,
        rare_pods=pool.requests.total() - sum(kind.pods for kind in kinds) if kinds else 0,
    )


class _Pool:
    """The accounts of a pool as arrays, in the order of the nodes' names."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        accounts = {name: state.shares[name] for name in sorted(state.shares) if name in state.nodes}
        self._accounts = accounts
        self.requests = requests_in(accounts.values())
        workers = _workers_gpus(state)
        fleet = fleet_of(accounts, {name: _closed(state, name, workers[name]) for name in accounts})
        self._hardware, self._rows = fleet.hardware, fleet.rows()

    @cached_property
    def fragments(self) -> Mapping[str, float]:
        if not any(request.total_milli for request in self.requests):
            return {}
        measured = Demand(self.requests.elements(), self._hardware).fragmentation.of(self._rows)
        return dict(zip(self._accounts, measured.tolist(), strict=True))

    def nodes(self) -> Sequence[NodeFragment]:
        free, whole = self._rows.milli.sum(axis=1).tolist(), self._rows.whole.sum(axis=1).tolist()
        return [
            NodeFragment(
                node=name,
                is_open=self._state.nodes[name].is_open,
                cards=len(account.devices),
                whole_free_cards=whole[row],
                free_milli=free[row],
                fragment_milli=self.fragments.get(name),
            )
            for row, (name, account) in enumerate(self._accounts.items())
            if account.devices
        ]

    def kinds(self) -> Sequence[KindFragment]:
        """Return a row for each size and memory; kinds that differ in memory alone are one to FGD."""
        typical = {(each.milli, each.devices): each for each in typical_kinds(self.requests, COVERAGE)}
        pods = Counter[GpuRequest]()
        for pod, count in self.requests.items():
            _, milli, devices, _ = kind_of(pod)
            if (milli, devices) in typical:
                pods[largest_container(pod) or GpuRequest()] += count
        free = int(self._rows.milli.sum())
        lost = {size: round(float(self._lost(kind).sum())) for size, kind in typical.items()}
        return [
            KindFragment(
                request=request,
                pods=count,
                share=count / pods.total(),
                usable_milli=free - lost[request.milli_each, request.count],
                lost_milli=lost[request.milli_each, request.count],
                more_pods=self._more(request),
            )
            for request, count in sorted(pods.items(), key=lambda item: (-item[1], _size(item[0])))
        ]

    def _lost(self, kind: TypicalKind) -> Floats:
        """Return shape (n,): the fragment of each node for one kind alone."""
        alone = TypicalKind(share=1.0, cpu_milli=0, milli=kind.milli, devices=kind.devices)
        return Fragmentation([alone], self._hardware).of(self._rows)

    def _more(self, request: GpuRequest) -> int:
        if not request.count:
            return 0
        if request.devices:
            return int((self._rows.whole.sum(axis=1) // request.devices).sum())
        each = np.full(self._rows.milli.shape, np.iinfo(np.int64).max)
        if request.milli:
            each = np.minimum(each, self._rows.milli // request.milli)
        if request.memory_mib:
            each = np.minimum(each, self._rows.device_memory // request.memory_mib)
        return int(each[self._rows.fitting(request)].sum())


def _size(request: GpuRequest) -> tuple[int, int, int]:
    return request.devices, request.milli, request.memory_mib


def _workers_gpus(state: ClusterState) -> Counter[str]:
    """Return node -> whole GPUs that workers have there."""
    gpus = Counter[str]()
    for job in (job for job in state.jobs.values() if job.spec.gpus_per_replica):
        for node in job.workers.values():
            gpus[node] += job.spec.gpus_per_replica
    return gpus


def _closed(state: ClusterState, name: str, workers_gpus: int) -> Sequence[int]:
    """Return the cards of a node that nobody is given, though the account has nobody on them."""
    node, account = state.nodes[name], state.shares[name]
    if not node.is_open:
        return range(len(account.devices))
    whole = [card for card, left in enumerate(account.free()) if left.is_whole]
    # Which of them workers and others have is not in the log: it matters only where cards differ in memory.
    return whole[len(whole) - min(len(whole), _held(state, account, name) + workers_gpus) :]


def _held(state: ClusterState, account: SharingNode, name: str) -> int:
    """Return the GPUs that others have; cards that are shared count as theirs in the state, and are not meant."""
    node = state.nodes[name]
    return max(0, node.foreign_gpus - account.used_cards()) if node.gpus else 0
