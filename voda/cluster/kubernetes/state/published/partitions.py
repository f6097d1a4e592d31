"""Partitions of devices (DRAPartitionableDevices): what they take of the counters of their pool, and which of them can
be had beside those that are in use. Pure.

Rules: a whole device is one of its partitions, which takes all; what takes of a counter that nobody publishes cannot be
had, as for kube-scheduler; of several sizes the small ones are counted, so that the number is the most that can be had.
"""

from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping
from typing import Final

from msgspec import Struct

from voda.cluster.kubernetes.device_objects import CounterSet, ResourceSlice
from voda.cluster.kubernetes.state.claim_ledger import DeviceId
from voda.domain.errors import InvalidInput
from voda.kinds.quantities import milli

CounterId = tuple[str, str]
"""Names of the set, which stands for a device, and of a counter in it."""


class Partitions(Struct, frozen=True):
    """Those of one pool; a device that takes of no counter is none."""

    counters: Mapping[CounterId, int] = {}
    """In thousandths, whoever has them."""
    takes: Mapping[DeviceId, Mapping[CounterId, int]] = {}
    """What each takes of them."""
    nodes: Mapping[DeviceId, str] = {}

    def left(self, in_use: Container[DeviceId]) -> Mapping[CounterId, int]:
        """Return what partitions that are in use leave of each counter."""
        taken = Counter[CounterId]()
        for device, takes in self.takes.items():
            if device in in_use:
                taken.update(takes)
        return {counter: amount - taken[counter] for counter, amount in self.counters.items()}

    def most_more(self, wanted: Iterable[DeviceId], in_use: Container[DeviceId]) -> int:
        """Return how many of the `wanted` can be had together beside those in use."""
        left, found = dict(self.left(in_use)), 0
        for device in sorted(wanted, key=lambda each: (sum(self.takes[each].values()), each)):
            takes = self.takes[device]
            if all(left.get(counter, -1) >= amount for counter, amount in takes.items()):
                left.update({counter: left[counter] - amount for counter, amount in takes.items()})
                found += 1
        return found

    def uncounted(self, ranks: Mapping[DeviceId, int]) -> Mapping[DeviceId, int]:
        """Return those of which a device has parts, or which are parts of one, that has a lower rank, and that rank.

        To count both would count one device twice.
        """
        lowest: dict[str, int] = {}
        partitions = ranks.keys() & self.takes.keys()
        for device in partitions:
            for name, _ in self.takes[device]:
                lowest[name] = min(ranks[device], lowest.get(name, ranks[device]))
        found = {
            device: min((lowest[name] for name, _ in self.takes[device]), default=ranks[device])
            for device in partitions
        }
        return {device: rank for device, rank in found.items() if rank < ranks[device]}


NO_PARTITIONS: Final = Partitions()


def partitions_of(slices: Iterable[ResourceSlice]) -> Partitions:
    """Return the partitions that the slices of a pool publish."""
    there = list(slices)
    devices = [
        ((*each.pool, device.name), device.node_name or each.spec.node_name, device.consumes_counters)
        for each in there
        for device in each.spec.devices
        if device.consumes_counters
    ]
    if not devices:
        return NO_PARTITIONS
    return Partitions(
        counters=_amounts((one for each in there for one in each.spec.shared_counters), lambda one: one.name),
        takes={device: _amounts(sets, lambda one: one.counter_set) for device, _, sets in devices},
        nodes={device: node for device, node, _ in devices},
    )


def _amounts(sets: Iterable[CounterSet], name: Callable[[CounterSet], str]) -> Mapping[CounterId, int]:
    return {(name(each), key): _milli(each.counters[key].value) for each in sets for key in each.counters}


def _milli(quantity: str | int | float) -> int:
    try:
        return milli(quantity)
    except InvalidInput:
        return 0
