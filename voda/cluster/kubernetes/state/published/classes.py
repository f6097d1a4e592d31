"""What claims ask for, in GPUs, and which devices a class selects. Pure.

Rules: a job whose number of GPUs cannot be known is refused; of a class's CEL voda reads comparisons by == that are
joined by &&, and takes all else for true: it counts too much rather than nothing, and kube-scheduler has the last word.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from msgspec import Struct

from voda.cluster.kubernetes.device_objects import ClaimSpec, DeviceClass, DeviceRequest, PublishedDevice, ResourceSlice
from voda.domain.errors import InvalidInput

_TEXT: Final = r"""(?:"([^"\\]*)"|'([^'\\]*)')"""
_DRIVER: Final = re.compile(rf"device\.driver\s*==\s*{_TEXT}")
_ATTRIBUTE: Final = re.compile(rf"device\.attributes\[{_TEXT}\]\.(\w+)\s*==\s*(?:{_TEXT}|(true|false)|(-?\d{{1,18}}))")
_TRUE: Final = "true"

Value = str | int | bool


class DeviceSelector(Struct, frozen=True):
    """Which devices a class selects, as far as voda can read that."""

    drivers: frozenset[str] = frozenset()
    attributes: Mapping[str, Value] = {}
    """`domain/name` -> value."""

    def selects(self, driver: str, device: PublishedDevice) -> bool:
        if self.drivers != {driver}:
            return False
        return all(
            (found := attribute(driver, device, name)) == value and type(found) is type(value)
            for name, value in self.attributes.items()
        )


def selector_of(device_class: DeviceClass) -> DeviceSelector:
    """Return what a class selects; nothing where no selector names the driver."""
    drivers: set[str] = set()
    attributes: dict[str, Value] = {}
    for selector in device_class.spec.selectors:
        if "||" in selector.cel.expression:
            continue
        for term in map(str.strip, selector.cel.expression.split("&&")):
            if found := _DRIVER.fullmatch(term):
                drivers.add(found[1] or found[2] or "")
            elif found := _ATTRIBUTE.fullmatch(term):
                attributes[f"{found[1] or found[2]}/{found[3]}"] = _value(found)
    return DeviceSelector(frozenset(drivers), attributes)


def _value(found: re.Match[str]) -> Value:
    _, _, _, double, single, truth, number = found.groups()
    if truth is not None:
        return truth == _TRUE
    return int(number) if number is not None else double if double is not None else single


def attribute(driver: str, device: PublishedDevice, name: str) -> object:
    """Return an attribute by its full name, `domain/name`; drivers leave out their own domain. None: there is none."""
    domain, _, short = name.rpartition("/")
    return device.attributes.get(name, device.attributes.get(short) if domain in (driver, "") else None)


def requested_gpus(claim: ClaimSpec, classes: Collection[str]) -> int:
    """Return how many devices of these classes a claim asks for; InvalidInput: that cannot be known."""
    return sum(_count(request, classes) for request in claim.devices.requests)


def requested_classes(claim: ClaimSpec) -> Collection[str]:
    """Return the names of all device classes that a claim asks for."""
    return {choice.device_class_name for request in claim.devices.requests for choice in request.choices}


def _count(request: DeviceRequest, classes: Collection[str]) -> int:
    counts: set[int] = set()
    for choice in request.choices:
        is_gpu = choice.device_class_name in classes and not choice.admin_access
        if is_gpu and choice.allocation_mode == "All":
            raise InvalidInput(
                f"request {request.name!r}: allocationMode All takes whatever a node has: expected ExactCount, with a"
                " count"
            )
        counts.add(choice.count if is_gpu else 0)
    if len(counts) > 1:
        asked = " or ".join(map(str, sorted(counts)))
        raise InvalidInput(
            f"request {request.name!r}: firstAvailable asks for {asked} GPUs: expected one number in all"
        )
    return counts.pop() if counts else 0


def newest_generation(slices: Iterable[ResourceSlice]) -> int:
    """Return the newest generation that slices of a pool are of; 0: there are none."""
    return max((each.spec.pool.generation for each in slices), default=0)


def complete_slices(slices: Iterable[ResourceSlice]) -> Collection[ResourceSlice] | None:
    """Return the slices of a pool's newest generation; None while some of them are missing."""
    there = list(slices)
    newest = newest_generation(there)
    found = [each for each in there if each.spec.pool.generation == newest]
    return found if len(found) >= max((each.spec.pool.resource_slice_count for each in found), default=0) else None
