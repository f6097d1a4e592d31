"""The accounts of shared cards as raters read nodes and pods, and the card that a share gets by them.

Rule: of CPU and of a node's own memory the accounts know nothing, so pods ask for none of them here.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from voda.domain.gpus import GpuRequest, Gpus
from voda.domain.shares import PodShares, SharingNode
from voda.sharing.demand import Demand
from voda.sharing.fleet import Fleet
from voda.sharing.nodes import FIRST_DEVICE, GpuNode
from voda.sharing.placement import PodPlacer
from voda.sharing.pod import PodRequest
from voda.sharing.raters import RATERS, RatingContext

RATER: Final = "fgd"
"""By which jobs with a part of a card get it."""
_WHOLE: Final = PodRequest(containers=(GpuRequest(devices=Gpus(1)),))


def choose_card(
    accounts: Mapping[str, SharingNode], request: GpuRequest, *, closed: Mapping[str, Collection[int]]
) -> tuple[str, int] | None:
    """Return the node and the card where a share comes best; None: no card has so much left.

    Pods to come are expected to ask for the same as those that have some, and as often for a whole card, which elastic
    jobs use: so a share comes beside others rather than on a card that is whole.

    Args:
        accounts: node -> what its pods have, in the order in which equal nodes are chosen.
        request: the share.
        closed: node -> its cards that are not for shares now.
    """
    fleet = fleet_of(accounts, closed)
    pod = PodRequest(containers=(request,))
    shares = [*requests_in(accounts.values()).elements(), pod]
    demand = Demand([*shares, *[_WHOLE] * len(shares)], fleet.hardware)
    chosen = PodPlacer(fleet, RATERS[RATER], RatingContext(demand=demand)).choose(pod)
    return (chosen.node, chosen.devices[0][0]) if chosen is not None else None


def fleet_of(accounts: Mapping[str, SharingNode], closed: Mapping[str, Collection[int]] | None = None) -> Fleet:
    """Return what is free of the cards of these nodes, in their order; nothing of those that are closed."""
    nodes = [
        GpuNode(name=name, cpu_milli=0, memory_mib=0, devices=account.devices) for name, account in accounts.items()
    ]
    fleet = Fleet(nodes)
    width = fleet.hardware.device_memory.shape[1]
    for row, (name, account) in enumerate(accounts.items()):
        shut = (closed or {}).get(name, ())
        for card, left in enumerate(account.free()):
            fleet.free[row, FIRST_DEVICE + card] = 0 if card in shut else left.milli
            fleet.free[row, FIRST_DEVICE + width + card] = 0 if card in shut else max(0, left.memory_mib)
    return fleet


def requests_in(accounts: Iterable[SharingNode]) -> Counter[PodRequest]:
    """Return what the pods that have cards of these nodes asked for, and how many asked for the same."""
    return Counter(_request(pod) for account in accounts for pod in account.pods.values())


def _request(pod: PodShares) -> PodRequest:
    return PodRequest(containers=tuple(share.request for share in pod.containers.values()))
