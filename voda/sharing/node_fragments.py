"""What is free of the cards of a pool's nodes and of no use to pods: FGD's measure (voda/sharing/fragmentation.py).

Typical are the kinds of the pods and jobs that have shares now. Rule: free is what a pod could be given: nothing of a
node that takes none, and no card that a worker or somebody else has as a whole.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

from voda.domain.shares import SharingNode
from voda.domain.state import ClusterState
from voda.sharing.accounts import fleet_of, requests_in
from voda.sharing.demand import Demand


def fragments(state: ClusterState) -> Mapping[str, float]:
    """Return node -> free milli of its cards that typical pods cannot use, on average over them.

    Empty while no pod has compute of a card: nothing is typical. O(nodes * kinds), so it is for a thread.
    """
    accounts = {name: state.shares[name] for name in sorted(state.shares) if name in state.nodes}
    requests, workers = requests_in(accounts.values()), _workers_gpus(state)
    if not any(request.total_milli for request in requests):
        return {}
    fleet = fleet_of(accounts, {name: _closed(state, name, workers[name]) for name in accounts})
    measured = Demand(requests.elements(), fleet.hardware).fragmentation.of(fleet.rows())
    return dict(zip(accounts, measured.tolist(), strict=True))


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
