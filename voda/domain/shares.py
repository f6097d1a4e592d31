"""What pods have of the GPUs of a node, and what is left of them: values, but for the account of a node.

Rule: capacity follows the node: what a pod has of a GPU that is gone stays its own, and is of no use to others.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from voda.domain.gpus import MILLI_PER_DEVICE, ContainerGpus, GpuDevice, GpuRequest
from voda.domain.node import Node
from voda.domain.reasons.cells import GpusTooSmall


class PodShares(Struct, frozen=True, kw_only=True):
    """What one pod has of its node."""

    pod: str
    """`namespace/name`."""
    containers: Mapping[str, ContainerGpus]
    assigned_at: float


class PendingRequest(Struct, frozen=True, kw_only=True):
    """What a pod waits for that jobs can spare."""

    pod: str
    """`namespace/name`."""
    containers: Mapping[str, GpuRequest]
    requested_at: float


class GpuRemainder(Struct, frozen=True, kw_only=True):
    """What is left of a GPU; below 0 where it has less memory than it had."""

    milli: int
    memory_mib: int
    is_whole: bool
    """Whether nobody has any of it."""

    def fits(self, request: GpuRequest) -> bool:
        """Return whether a container can have what it asks for of this GPU."""
        if request.devices:
            return self.is_whole
        return self.milli >= request.least_milli and max(0, self.memory_mib) >= request.memory_mib

    def less(self, request: GpuRequest) -> "GpuRemainder":
        """Return what is left once a container has that too."""
        memory_mib = 0 if request.devices else self.memory_mib - request.memory_mib
        return GpuRemainder(milli=self.milli - request.milli_each, memory_mib=memory_mib, is_whole=False)


class SharingNode(Struct, kw_only=True):
    """The account of one node; the projection changes it in place."""

    devices: tuple[GpuDevice, ...] = ()
    version: int = 0
    """Of its stream in the log: who appends to it at this version knows all shares of the node."""
    pods: dict[str, PodShares] = {}
    """By uid."""
    requests: dict[str, PendingRequest] = {}
    """By uid of the pod; of those that have no GPUs yet."""

    @property
    def is_claimed(self) -> bool:
        """Whether its GPUs are devices that pods claim (dynamic resource allocation)."""
        return any(device.name for device in self.devices)

    def free(self) -> Sequence[GpuRemainder]:
        """Return what is left of each GPU; below 0 where the node has less memory than it had."""
        milli = [MILLI_PER_DEVICE] * len(self.devices)
        memory = [device.memory_mib for device in self.devices]
        used = set[int]()
        for _, share in self._shares():
            used.update(share.gpus)
            for gpu in share.gpus:
                if gpu < len(self.devices):
                    milli[gpu] -= share.request.milli_each
                    memory[gpu] -= self.devices[gpu].memory_mib if share.request.devices else share.request.memory_mib
        return [
            GpuRemainder(milli=milli[gpu], memory_mib=memory[gpu], is_whole=gpu not in used)
            for gpu in range(len(self.devices))
        ]

    def refusal(self, containers: Mapping[str, ContainerGpus]) -> str:
        """Return why these shares cannot be given, one sentence; empty: they can."""
        free = list(self.free())
        for name, share in containers.items():
            for gpu in share.gpus:
                if gpu >= len(free):
                    return f"container {name}: there is no GPU {gpu}, the node has {len(free)}"
                left, request = free[gpu], share.request
                if not left.fits(request):
                    if request.devices:
                        return f"container {name}: GPU {gpu} is in use"
                    return (
                        f"container {name}: GPU {gpu} has {left.milli} milli and {left.memory_mib} MiB left,"
                        f" needed {request.least_milli} and {request.memory_mib}"
                    )
                free[gpu] = left.less(request)
        return ""

    def copy(self) -> "SharingNode":
        """Return the account as it is now."""
        return SharingNode(
            devices=self.devices, version=self.version, pods=dict(self.pods), requests=dict(self.requests)
        )

    def has_room_beside_others(self, request: GpuRequest, beside: Collection[str] | None = None) -> bool:
        """Return whether a GPU of which somebody has a share, and nobody all, has so much left; `beside`: of which one
        of these pods has.
        """
        gpus = range(len(self.devices)) if beside is None else self.gpus_of(beside)
        return any(not left.is_whole and left.fits(request) for gpu, left in enumerate(self.free()) if gpu in gpus)

    def gpus_of(self, uids: Collection[str]) -> frozenset[int]:
        """Return the GPUs of which these pods have shares."""
        pods = [self.pods[uid] for uid in uids if uid in self.pods]
        return frozenset(gpu for pod in pods for share in pod.containers.values() for gpu in share.gpus)

    def whole_gpus(self) -> Sequence[int]:
        """Return the GPUs of which nobody has any."""
        return [gpu for gpu, left in enumerate(self.free()) if left.is_whole]

    def used_gpus(self) -> int:
        """Return how many of its GPUs are not wholly free, of those that are GPUs for jobs too."""
        used = {gpu for _, share in self._shares() for gpu in share.gpus if gpu < len(self.devices)}
        return sum(not self.devices[gpu].is_for_pods for gpu in used)

    def _shares(self) -> Iterator[tuple[str, ContainerGpus]]:
        for pod in self.pods.values():
            yield from pod.containers.items()


def largest_gpu_mib(nodes: Iterable[Node]) -> int | None:
    """Return the memory of the largest GPU of these nodes, MiB, 0 = not known; None: they have none to share."""
    return max((device.memory_mib for node in nodes for device in node.devices), default=None)


def lacking_memory(largest_mib: int | None, request: GpuRequest) -> GpusTooSmall | None:
    """Return that no GPU of a pool has the memory that a share asks for, where its largest has so much.

    None: the largest one has as much, however much of it is in use; or there are no GPUs to share.
    """
    if largest_mib is None or request.memory_mib <= largest_mib:
        return None
    return GpusTooSmall(needs_mib=request.memory_mib, largest_mib=largest_mib)
