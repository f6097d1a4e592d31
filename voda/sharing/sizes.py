"""Whether any GPU of a pool is large enough for a part of it, whoever has what of the GPUs now.

Rule: pure; compute is no matter: no part of a GPU is larger than a GPU.
"""

from collections.abc import Iterable

from voda.domain.gpus import GpuRequest
from voda.domain.node import Node
from voda.domain.reasons.cells import GpusTooSmall


def largest_gpu_mib(nodes: Iterable[Node]) -> int | None:
    """Return the memory of the largest GPU of these nodes, MiB, whatever their state; None: they have none to share.

    0 = of no GPU is it known.
    """
    return max((device.memory_mib for node in nodes for device in node.devices), default=None)


def lacking_memory(largest_mib: int | None, request: GpuRequest) -> GpusTooSmall | None:
    """Return that no GPU of a pool has the memory that a share asks for, where its largest has so much.

    None: the largest one has as much, however much of it is in use; or there are no GPUs to share.
    """
    if largest_mib is None or request.memory_mib <= largest_mib:
        return None
    return GpusTooSmall(needs_mib=request.memory_mib, largest_mib=largest_mib)
