"""What pods take of a node, and what is left of it.

Rules: pure; thousandths of every resource, as integers, so that what was added and is removed again leaves nothing;
a pod costs the same to add and to remove, however many there are.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from voda.cluster.kubernetes.resources.objects import KubeContainer, NodeObject, Pod, ResourceRequirements
from voda.cluster.kubernetes.resources.quantity import milli
from voda.domain.errors import InvalidInput

PODS: Final = "pods"
"""The resource of which every pod takes one: a node's kubelet runs only so many."""
_ONE: Final = 1000


class NodeLoad:
    """What all pods on one node take together."""

    __slots__ = ("_pods", "taken")

    def __init__(self) -> None:
        self._pods: dict[str, Mapping[str, int]] = {}
        self.taken: dict[str, int] = {}
        """Resource -> thousandths. Read-only for everybody else."""

    def add(self, key: str, pod: Pod) -> None:
        """Count a pod, which is bound to the node and not over, in the place of what had its key.

        Raises:
            InvalidInput: it asks for what is no quantity; nothing has changed.
        """
        requests = {resource: amount for resource, amount in pod_requests(pod).items() if amount}
        self.remove(key)
        self._pods[key] = requests
        for resource, amount in requests.items():
            self.taken[resource] = self.taken.get(resource, 0) + amount

    def remove(self, key: str) -> None:
        """Count a pod no more; nothing happens if it was not counted."""
        for resource, amount in self._pods.pop(key, {}).items():
            left = self.taken[resource] - amount
            if left:
                self.taken[resource] = left
            else:
                del self.taken[resource]

    def free(self, node: NodeObject) -> dict[str, int]:
        """Return what is left of a node: resource -> thousandths, below 0 where more is taken than there is.

        Raises:
            InvalidInput: the node offers what is no quantity.
        """
        return {name: amount - self.taken.get(name, 0) for name, amount in allocatable(node).items()}


def allocatable(node: NodeObject) -> dict[str, int]:
    """Return what a node has for pods: resource -> thousandths.

    Raises:
        InvalidInput: it offers what is no quantity.
    """
    return _amounts(node.status.allocatable, f"node {node.metadata.name}")


def pod_requests(pod: Pod) -> dict[str, int]:
    """Return what a pod takes of its node: resource -> thousandths, one of `pods` included.

    Containers and sidecars run together; init containers run one by one before, beside the sidecars that come before
    them, so only the greatest counts. What the pod requests as a whole counts instead; what the runtime itself
    costs is added.

    Raises:
        InvalidInput: it asks for what is no quantity.
    """
    spec, what = pod.spec, f"pod {pod.metadata.key}"
    total = _sum(_of(container.resources, what) for container in spec.containers)
    if spec.init_containers:
        total = _with_init(total, spec.init_containers, what)
    total.update(_of(spec.resources, what))
    _add(total, _amounts(spec.overhead, what))
    total[PODS] = _ONE
    return total


def _with_init(running: dict[str, int], init_containers: Sequence[KubeContainer], what: str) -> dict[str, int]:
    sidecars: dict[str, int] = {}
    greatest: dict[str, int] = {}
    for container in init_containers:
        takes = _of(container.resources, what)
        _add(takes, sidecars)
        if container.restart_policy == "Always":
            sidecars = takes
        _raise(greatest, takes)
    _add(running, sidecars)
    _raise(running, greatest)
    return running


def _of(resources: ResourceRequirements, what: str) -> dict[str, int]:
    # A limit without a request is a request; the API server writes that out only in pods it has admitted.
    if resources.limits.keys() <= resources.requests.keys():
        return _amounts(resources.requests, what)
    return _amounts({**resources.limits, **resources.requests}, what)


def _amounts(quantities: Mapping[str, str | int | float], what: str) -> dict[str, int]:
    try:
        return {resource: milli(quantity) for resource, quantity in quantities.items()}
    except InvalidInput as error:
        raise InvalidInput(f"{what}: {error}") from error


def _sum(parts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for part in parts:
        _add(total, part)
    return total


def _add(total: dict[str, int], more: Mapping[str, int]) -> None:
    for resource, amount in more.items():
        total[resource] = total.get(resource, 0) + amount


def _raise(total: dict[str, int], least: Mapping[str, int]) -> None:
    for resource, amount in least.items():
        total[resource] = max(total.get(resource, 0), amount)
