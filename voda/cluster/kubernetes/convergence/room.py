"""Room on nodes that workers were let go to, and that no pod has yet: without it two jobs would get the same GPUs.

Rule: pure; what counts is what voda itself has done and planned, for anybody can write the annotation of a pod.
"""

from collections.abc import Iterator

from voda.cluster.kubernetes import well_known
from voda.cluster.kubernetes.objects import Pod
from voda.cluster.kubernetes.state.inventory import Inventory


class Room:
    """What is free on nodes, less what is kept for workers until they are bound or gone."""

    def __init__(self, inventory: Inventory) -> None:
        self._inventory = inventory
        self._kept: dict[str, dict[str, str]] = {}
        """node -> key of a pod -> its uid."""
        self._under_way: set[str] = set()
        """Uids of the pods whose gates are being lifted: they keep their room before the mirror shows it."""

    def begin(self, pod: Pod, node: str) -> None:
        """Keep room for a worker whose gate is about to be lifted."""
        self._under_way.add(pod.metadata.uid)
        self.keep(pod, node)

    def end(self, pod: Pod) -> None:
        """Go by the mirror from now on: its gate was lifted, or not."""
        self._under_way.discard(pod.metadata.uid)

    def keep(self, pod: Pod, node: str) -> None:
        """Keep room for a worker whose gate is lifted, on the node that the plan has for it."""
        self._kept.setdefault(node, {})[pod.metadata.key] = pod.metadata.uid

    def free_milli(self, node: str) -> int:
        """Return the thousandths of the pools' resource that no pod has, and that are kept for none."""
        stock = self._inventory.stock
        waiting = (pod for pod in self._waiting(node) if not pod.takes_from)
        return stock.free_milli(node) - sum(stock.awaited_milli(pod, node) for pod in waiting)

    def tidy(self) -> None:
        """Forget the workers that are bound or gone."""
        for node in list(self._kept):
            kept = {pod.metadata.key: pod.metadata.uid for pod in self._waiting(node)}
            if kept:
                self._kept[node] = kept
            else:
                del self._kept[node]

    def _waiting(self, node: str) -> Iterator[Pod]:
        pods = self._inventory.pods_by_key
        for key, uid in self._kept.get(node, {}).items():
            pod = pods.get(key)
            if pod is None or pod.metadata.uid != uid or pod.spec.node_name or pod.is_over:
                continue
            if uid in self._under_way or well_known.GATE not in pod.gates:
                yield pod
