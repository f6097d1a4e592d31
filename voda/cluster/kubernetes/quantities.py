"""Quantities of Kubernetes, what pods take of a node, and what is left of it.

Rules: pure; thousandths of every resource, as integers, so that what was added and is removed again leaves nothing;
what is finer is rounded away from zero, as Kubernetes does; no text, however long or large its exponent, costs more
than a moment.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Final

from voda.cluster.kubernetes.objects import KubeContainer, NodeObject, Pod, ResourceRequirements
from voda.domain.errors import InvalidInput

PODS: Final = "pods"
"""The resource of which every pod takes one: a node's kubelet runs only so many."""
_ONE: Final = 1000
LARGEST: Final = (2**63 - 1) * 1000
"""Thousandths. Kubernetes takes whatever is larger for this."""
_LONGEST: Final = 64
_PARTS: Final = re.compile(
    r"(?P<sign>[+-]?)(?:(?P<whole>[0-9]+)\.?(?P<part>[0-9]*)|\.(?P<bare>[0-9]+))"
    r"(?:[eE](?P<exponent>[+-]?[0-9]+)|(?P<suffix>[KMGTPE]i|[numkMGTPE]?))"
)
_SUFFIXES: Final = {
    "": Fraction(1000),
    **{suffix: Fraction(10) ** (3 * (step - 2)) for step, suffix in enumerate("num")},
    **{suffix: Fraction(1000) * 1000**step for step, suffix in enumerate("kMGTPE", 1)},
    **{suffix: Fraction(1000) * 1024**step for step, suffix in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), 1)},
}
"""Suffix -> thousandths."""
_FARTHEST: Final = 100
"""Decimal places: an exponent beyond is as good as this, for 64 digits cannot make up for it."""


def milli(quantity: str | int | float) -> int:
    """Return a quantity (500m, 1.5Gi, 1e3, a number) in thousandths, rounded away from zero, or raise InvalidInput."""
    # True equals 1, and would be answered from the cache.
    if isinstance(quantity, bool):
        raise _no_quantity(quantity)
    return _milli(quantity)


def format_amount(milli_units: int, resource: str) -> str:
    """Write an amount for people: 3.5 CPUs, 16 GiB of memory, 2 nvidia.com/gpu, 1 pod."""
    if resource in ("memory", "ephemeral-storage"):
        return f"{_bytes(milli_units // 1000)} of {resource}"
    amount = f"{milli_units / 1000:.6g}"
    unit = {"cpu": "CPU", "pods": "pod"}.get(resource)
    return f"{amount} {resource}" if unit is None else f"{amount} {unit}{'' if amount == '1' else 's'}"


def _bytes(count: int) -> str:
    for power, unit in ((4, "TiB"), (3, "GiB"), (2, "MiB"), (1, "KiB")):
        if abs(count) >= 1024**power:
            return f"{count / 1024**power:.4g} {unit}"
    return f"{count} B"


# A cluster writes few different quantities, ten thousand times.
@lru_cache(maxsize=4096)
def _milli(quantity: str | int | float) -> int:
    text = str(quantity)
    parts = _PARTS.fullmatch(text) if len(text) <= _LONGEST else None
    if parts is None:
        raise _no_quantity(quantity)
    fraction = parts["part"] or parts["bare"] or ""
    digits = Fraction(int((parts["whole"] or "") + fraction), 10 ** len(fraction))
    scale = _power(parts["exponent"]) if parts["exponent"] else _SUFFIXES[parts["suffix"]]
    size = min(-(-digits * scale // 1), LARGEST)
    return -size if parts["sign"] == "-" else size


def _power(exponent: str) -> Fraction:
    return Fraction(10) ** max(-_FARTHEST, min(int(exponent), _FARTHEST)) * 1000


def _no_quantity(quantity: object) -> InvalidInput:
    text = str(quantity)
    got = repr(text if len(text) <= _LONGEST else f"{text[:_LONGEST]}...")
    return InvalidInput(f"expected a Kubernetes quantity such as 500m, 2 or 16Gi, got {got}")


class NodeLoad:
    __slots__ = ("_pods", "taken")

    def __init__(self) -> None:
        self._pods: dict[str, Mapping[str, int]] = {}
        self.taken: dict[str, int] = {}
        """Resource -> thousandths. Read-only for everybody else."""

    def add(self, key: str, pod: Pod) -> None:
        """Count a pod, which is bound to the node and not over, in the place of what had its key.

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

        InvalidInput: the node offers what is no quantity.
        """
        return {name: amount - self.taken.get(name, 0) for name, amount in allocatable(node).items()}


def allocatable(node: NodeObject) -> dict[str, int]:
    """Return what a node has for pods, resource -> thousandths, or raise InvalidInput."""
    return _amounts(node.status.allocatable, f"node {node.metadata.name}")


def pod_requests(pod: Pod) -> dict[str, int]:
    """Return what a pod takes of its node, resource -> thousandths, one of `pods` included, or raise InvalidInput.

    Containers and sidecars run together; init containers run one by one before, beside the sidecars that come before
    them, so only the greatest counts. What the pod requests as a whole counts instead; what the runtime itself costs is
    added.
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
