"""Quantities of Kubernetes, and what pods take of a node.

Rules: pure; thousandths of every resource, as integers; what is finer is rounded away from zero, as Kubernetes does;
no text, however long or large its exponent, costs more than a moment.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from math import ceil
from typing import Final, Protocol

from voda.domain.errors import InvalidInput
from voda.kinds.pod_template import Quantity

LARGEST: Final = (2**63 - 1) * 1000
"""Thousandths. Kubernetes takes whatever is larger for this."""
_LONGEST: Final = 64
_PARTS: Final = re.compile(
    r"(?P<number>[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))"
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


class Resources(Protocol):
    """What a container asks for, or a pod as a whole; quantities as written."""

    @property
    def requests(self) -> Mapping[str, Quantity] | None: ...

    @property
    def limits(self) -> Mapping[str, Quantity] | None: ...


class Container(Protocol):
    @property
    def resources(self) -> Resources | None: ...

    @property
    def restart_policy(self) -> str | None:
        """Of an init container: Always makes it a sidecar, which runs beside the containers."""


class PodSpec(Protocol):
    """Of a pod, or of a template of pods."""

    @property
    def containers(self) -> Sequence[Container]: ...

    @property
    def init_containers(self) -> Sequence[Container] | None: ...

    @property
    def resources(self) -> Resources | None: ...

    @property
    def overhead(self) -> Mapping[str, Quantity] | None: ...


def milli(quantity: Quantity) -> int:
    """Return a quantity (500m, 1.5Gi, 1e3, a number) in thousandths, rounded away from zero, or raise InvalidInput."""
    # True equals 1, and would be answered from the cache.
    if isinstance(quantity, bool):
        raise _no_quantity(quantity)
    return _milli(quantity)


# A cluster writes few different quantities, ten thousand times.
@lru_cache(maxsize=4096)
def _milli(quantity: Quantity) -> int:
    text = str(quantity)
    parts = _PARTS.fullmatch(text) if len(text) <= _LONGEST else None
    if parts is None:
        raise _no_quantity(quantity)
    scale = _power(parts["exponent"]) if parts["exponent"] else _SUFFIXES[parts["suffix"]]
    amount = Fraction(parts["number"]) * scale
    size = min(ceil(abs(amount)), LARGEST)
    return size if amount > 0 else -size


def _power(exponent: str) -> Fraction:
    return Fraction(10) ** max(-_FARTHEST, min(int(exponent), _FARTHEST)) * 1000


def _no_quantity(quantity: object) -> InvalidInput:
    text = str(quantity)
    got = repr(text if len(text) <= _LONGEST else f"{text[:_LONGEST]}...")
    return InvalidInput(f"expected a Kubernetes quantity such as 500m, 2 or 16Gi, got {got}")


def pod_requests(spec: PodSpec, what: str) -> dict[str, int]:
    """Return what a pod takes of its node, resource -> thousandths, or raise InvalidInput, which names `what`.

    Containers and sidecars run together; init containers run one by one before, beside the sidecars that come before
    them, so only the greatest counts. What the pod requests as a whole counts instead; what the runtime itself costs is
    added.
    """
    total = _sum(_of(container.resources, what) for container in spec.containers)
    if spec.init_containers:
        total = _with_init(total, spec.init_containers, what)
    total.update(_of(spec.resources, what))
    _add(total, _amounts(spec.overhead or {}, what))
    return total


def _with_init(running: dict[str, int], init_containers: Sequence[Container], what: str) -> dict[str, int]:
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


def _of(resources: Resources | None, what: str) -> dict[str, int]:
    if resources is None:
        return {}
    requests, limits = resources.requests or {}, resources.limits or {}
    # A limit without a request is a request; the API server writes that out only in pods it has admitted.
    return _amounts(requests if limits.keys() <= requests.keys() else {**limits, **requests}, what)


def _amounts(quantities: Mapping[str, Quantity], what: str) -> dict[str, int]:
    try:
        return {resource: _amount(resource, quantity) for resource, quantity in quantities.items()}
    except InvalidInput as error:
        raise InvalidInput(f"{what}: {error}") from error


def _amount(resource: str, quantity: Quantity) -> int:
    if (amount := milli(quantity)) < 0:
        raise InvalidInput(f"{resource[:80]}: expected 0 or more, got {str(quantity)[:_LONGEST]}")
    return amount


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
