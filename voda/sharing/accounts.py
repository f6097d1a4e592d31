"""The accounts of shared cards, as the log has them, in the form in which raters read nodes and pods.

Rule: of CPU and of a node's own memory the accounts know nothing, so pods ask for none of them here.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

from voda.domain.shares import PodShares, SharingNode
from voda.sharing.fleet import Fleet
from voda.sharing.nodes import FIRST_DEVICE, GpuNode
from voda.sharing.pod import PodRequest


def fleet_of(accounts: Mapping[str, SharingNode]) -> Fleet:
    """Return what is free of the cards of these nodes, in their order."""
    nodes = [
        GpuNode(name=name, cpu_milli=0, memory_mib=0, devices=account.devices) for name, account in accounts.items()
    ]
    fleet = Fleet(nodes)
    width = fleet.hardware.device_memory.shape[1]
    for row, account in enumerate(accounts.values()):
        for card, left in enumerate(account.free()):
            fleet.free[row, FIRST_DEVICE + card] = left.milli
            fleet.free[row, FIRST_DEVICE + width + card] = max(0, left.memory_mib)
    return fleet


def requests_in(accounts: Iterable[SharingNode]) -> Counter[PodRequest]:
    """Return what the pods that have cards of these nodes asked for, and how many asked for the same."""
    return Counter(_request(pod) for account in accounts for pod in account.pods.values())


def _request(pod: PodShares) -> PodRequest:
    return PodRequest(containers=tuple(share.request for share in pod.containers.values()))
