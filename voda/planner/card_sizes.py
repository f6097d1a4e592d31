"""Whether any card of a pool is large enough for a part of it, whoever has what of the cards now.

Rule: pure; compute is no matter: no part of a card is larger than a card.
"""

from collections.abc import Iterable

from voda.domain.gpus import GpuRequest
from voda.domain.node import Node
from voda.domain.reasons.cells import CardsTooSmall


def largest_card_mib(nodes: Iterable[Node]) -> int | None:
    """Return the memory of the largest card of these nodes, MiB, whatever their state; None: they have none to share.

    0 = of no card is it known.
    """
    return max((device.memory_mib for node in nodes for device in node.devices), default=None)


def lacking_memory(largest_mib: int | None, request: GpuRequest) -> CardsTooSmall | None:
    """Return that no card of a pool has the memory that a share asks for, where its largest has so much.

    None: the largest one has as much, however much of it is in use; or there are no cards to share.
    """
    if largest_mib is None or request.memory_mib <= largest_mib:
        return None
    return CardsTooSmall(needs_mib=request.memory_mib, largest_mib=largest_mib)
