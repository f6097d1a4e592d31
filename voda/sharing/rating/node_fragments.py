"""What is free of the GPUs of a pool's nodes and of no use to pods: FGD's measure (`fragmentation`).

Typical are the kinds of the pods and jobs that have shares now. Rule: free is what a pod could be given: nothing of a
node that takes none, and no GPU that a worker or somebody else has as a whole.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from voda.domain.shares import PodShares, SharingNode
from voda.domain.state import ClusterState
from voda.sharing.rating.demand import Demand
from voda.sharing.rating.fleet import Fleet
from voda.sharing.rating.nodes import FIRST_DEVICE, GpuNode
from voda.sharing.rating.pod import PodRequest


def fragments(state: ClusterState) -> Mapping[str, float]:
    """Return node -> free milli of its GPUs that typical pods cannot use, on average over them.

    Empty while no pod has compute of a GPU: nothing is typical. O(nodes * kinds), so it is for a thread.
    """
    accounts = {name: state.shares[name] for name in sorted(state.shares) if name in state.nodes}
    requests = Counter(_request(pod) for account in accounts.values() for pod in account.pods.values())
    if not any(request.total_milli for request in requests):
        return {}
    workers = _workers_gpus(state)
    fleet = _fleet(accounts, {name: _closed(state, name, workers[name]) for name in accounts})
    measured = Demand(requests, fleet.hardware).fragmentation.of(fleet.rows())
    return dict(zip(accounts, measured.tolist(), strict=True))


def _fleet(accounts: Mapping[str, SharingNode], closed: Mapping[str, Collection[int]]) -> Fleet:
    """Return what is free of the GPUs of these nodes, in their order; nothing of those that are closed."""
    nodes = [
        GpuNode(name=name, cpu_milli=0, memory_mib=0, devices=account.devices) for name, account in accounts.items()
    ]
    fleet = Fleet(nodes)
    width = fleet.hardware.device_memory.shape[1]
    for row, (name, account) in enumerate(accounts.items()):
        for gpu, left in enumerate(account.free()):
            is_closed = gpu in closed[name]
            fleet.free[row, FIRST_DEVICE + gpu] = 0 if is_closed else left.milli
            fleet.free[row, FIRST_DEVICE + width + gpu] = 0 if is_closed else max(0, left.memory_mib)
    return fleet


def _request(pod: PodShares) -> PodRequest:
    return PodRequest(containers=tuple(share.request for share in pod.containers.values()))


def _workers_gpus(state: ClusterState) -> Counter[str]:
    """Return node -> whole GPUs that workers have there."""
    gpus = Counter[str]()
    for job in (job for job in state.jobs.values() if job.spec.gpus_per_replica):
        for node in job.workers.values():
            gpus[node] += job.spec.gpus_per_replica
    return gpus


def _closed(state: ClusterState, name: str, workers_gpus: int) -> Sequence[int]:
    """Return the GPUs of a node that nobody is given, though the account has nobody on them."""
    node, account = state.nodes[name], state.shares[name]
    if not node.is_open:
        return range(len(account.devices))
    whole = account.whole_gpus()
    # Which of them workers and others have is not in the log: it matters only where GPUs differ in memory.
    return whole[len(whole) - min(len(whole), _held(state, account, name) + workers_gpus) :]


def _held(state: ClusterState, account: SharingNode, name: str) -> int:
    """Return the GPUs that others have; GPUs that are shared count as theirs in the state, and are not meant."""
    node = state.nodes[name]
    return max(0, node.foreign_gpus - account.used_gpus()) if node.gpus else 0
