"""GPUs reserved on nodes for workers whose gates are lifted, and that are not bound yet: else two jobs would get them.

Rule: pure; what counts is what voda itself has done and planned, for anybody can write the annotation of a pod.
"""

from collections.abc import Iterator

from voda.cluster.kubernetes import well_known
from voda.cluster.kubernetes.objects import Pod
from voda.cluster.kubernetes.state.inventory import Inventory


class Reservations:
    """What is free on nodes, less what is reserved for workers until they are bound or gone."""

    def __init__(self, inventory: Inventory) -> None:
        self._inventory = inventory
        self._reserved: dict[str, dict[str, str]] = {}
        """node -> key of a pod -> its uid."""
        self._under_way: set[str] = set()
        """Uids of the pods whose gates are being lifted: theirs hold before the mirror shows that."""

    def begin(self, pod: Pod, node: str) -> None:
        """Reserve for a worker whose gate is about to be lifted."""
        self._under_way.add(pod.metadata.uid)
        self.reserve(pod, node)

    def end(self, pod: Pod) -> None:
        """Go by the mirror from now on: its gate was lifted, or not."""
        self._under_way.discard(pod.metadata.uid)

    def reserve(self, pod: Pod, node: str) -> None:
        """Reserve for a worker whose gate is lifted, on the node that the plan has for it."""
        self._reserved.setdefault(node, {})[pod.metadata.key] = pod.metadata.uid

    def free_milli(self, node: str) -> int:
        """Return the thousandths of the pools' resource that no pod has, and that are reserved for none."""
        stock = self._inventory.stock
        waiting = (pod for pod in self._waiting(node) if not pod.takes_from)
        return stock.free_milli(node) - sum(stock.awaited_milli(pod, node) for pod in waiting)

    def tidy(self) -> None:
        """Forget the workers that are bound or gone."""
        for node in list(self._reserved):
            reserved = {pod.metadata.key: pod.metadata.uid for pod in self._waiting(node)}
            if reserved:
                self._reserved[node] = reserved
            else:
                del self._reserved[node]

    def _waiting(self, node: str) -> Iterator[Pod]:
        pods = self._inventory.pods_by_key
        for key, uid in self._reserved.get(node, {}).items():
            pod = pods.get(key)
            if pod is None or pod.metadata.uid != uid or pod.spec.node_name or pod.is_over:
                continue
            if uid in self._under_way or well_known.GATE not in pod.gates:
                yield pod
