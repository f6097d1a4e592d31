"""GPUs that drivers publish as devices of dynamic resource allocation, by node.

Rules: no I/O; a device is a GPU where a class of the settings selects it, on one node; while a driver writes a new
generation of its slices, those of the last complete one stand, until a slice of that is gone; of a device and its
partitions those of one class count.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeVar

from msgspec import Struct

from voda.cluster.kubernetes.device_objects import DeviceClass, DeviceTaintRule, PublishedDevice, ResourceSlice
from voda.cluster.kubernetes.state.claim_ledger import DeviceId, LedgerGpu, PoolId, ledger_gpu
from voda.cluster.kubernetes.state.nodes import PoolRule
from voda.cluster.kubernetes.state.published.classes import (
    attribute,
    complete_slices,
    newest_generation,
    selector_of,
)
from voda.cluster.kubernetes.state.published.partitions import NO_PARTITIONS, Partitions, partitions_of

T = TypeVar("T")


class ClaimableGpu(Struct, frozen=True):
    device: PublishedDevice
    node: str
    product: str
    """Value of the attribute by which the settings form pools."""
    is_closed: bool
    """Whether a taint of its own, or of a rule, keeps it from being allocated."""


_NONE: Final[Mapping[DeviceId, ClaimableGpu]] = {}


class PublishedGpus:
    """See the module; `touch` is called with each node whose GPUs are others than before, `touch_all` for all nodes.

    `put_shared` gets those of a pool that claims share.
    """

    def __init__(
        self,
        rule: PoolRule,
        touch: Callable[[str], None],
        touch_all: Callable[[], None],
        put_shared: Callable[[PoolId, Mapping[DeviceId, LedgerGpu]], None],
    ) -> None:
        self.slices: dict[str, ResourceSlice] = {}
        self.classes: dict[str, DeviceClass] = {}
        self.taint_rules: dict[str, DeviceTaintRule] = {}
        self.rule = rule
        self._touch = touch
        self._touch_all = touch_all
        self._put_shared = put_shared
        self._slices: defaultdict[PoolId, dict[str, ResourceSlice]] = defaultdict(dict)
        self._gpus: dict[PoolId, Mapping[DeviceId, ClaimableGpu]] = {}
        self._by_node: defaultdict[str, dict[DeviceId, ClaimableGpu]] = defaultdict(dict)
        self._partitions: dict[PoolId, Partitions] = {}
        self._uncounted: dict[PoolId, Mapping[str, str]] = {}
        self._generations: dict[PoolId, int] = {}
        """Pool -> the last generation that was complete."""

    # ---- changes

    def put_slice(self, key: str, now: ResourceSlice | None) -> None:
        before = self.slices.pop(key, None)
        if before is not None:
            del self._slices[before.pool][key]
        if now is not None:
            self.slices[key] = self._slices[now.pool][key] = now
        for pool in {each.pool for each in (before, now) if each is not None}:
            self._refresh(pool)

    def put_class(self, key: str, now: DeviceClass | None) -> None:
        before = self.extended_resources
        put(self.classes, key, now)
        if self.extended_resources != before:
            self._touch_all()
        if key in self.rule.device_classes:
            for pool in list(self._slices):
                self._refresh(pool)

    def put_taint_rule(self, key: str, now: DeviceTaintRule | None) -> None:
        before = self.taint_rules.get(key)
        put(self.taint_rules, key, now)
        rules = [rule for rule in (before, now) if rule is not None]
        if before is not None and now is not None and before.spec == now.spec:
            # Its controller writes to its status how many pods it has evicted.
            return
        for pool in [pool for pool in self._slices if any(rule.is_about(*pool) for rule in rules)]:
            self._refresh(pool)

    def _refresh(self, pool: PoolId) -> None:
        """Count the devices of a pool anew, unless its newest generation is not complete yet."""
        slices = self._slices[pool].values()
        newest = newest_generation(slices)
        if (complete := complete_slices(slices)) is None:
            if newest != self._generations.get(pool):
                return
            # kube-scheduler gives no device of it either.
            complete = ()
        self._generations[pool] = newest
        rules = self.taint_rules.values()
        selected, self._uncounted[pool] = self._selected(pool, complete)
        partitions = partitions_of(complete)
        gpus = {}
        if (names := self.rule.gpu_capacities) is not None:
            there = (
                ledger_gpu(pool, node, device, names, is_closed=_is_closed(pool, device, rules))
                for node, device in selected
            )
            gpus = {gpu.id: gpu for gpu in there if gpu is not None}
            self._put_shared(pool, gpus)
        of_jobs = {key for key, gpu in gpus.items() if not gpu.is_for_pods}
        now = {
            key: ClaimableGpu(device, node, self.product(pool[0], device), _is_closed(pool, device, rules))
            for node, device in selected
            if (key := (*pool, device.name)) in of_jobs or not device.allow_multiple_allocations
        }
        before, had = self._gpus.pop(pool, {}), self._partitions.pop(pool, NO_PARTITIONS)
        if now:
            self._gpus[pool], self._partitions[pool] = now, partitions
        if not slices:
            del self._slices[pool], self._uncounted[pool], self._generations[pool]
        if before == now and had == partitions:
            return
        for key, gpu in before.items():
            del self._by_node[gpu.node][key]
        for key, gpu in now.items():
            self._by_node[gpu.node][key] = gpu
        for node in {gpu.node for gpu in (*before.values(), *now.values())}:
            self._touch(node)
            if not self._by_node[node]:
                del self._by_node[node]

    def _selected(
        self, pool: PoolId, slices: Iterable[ResourceSlice]
    ) -> tuple[Sequence[tuple[str, PublishedDevice]], Mapping[str, str]]:
        """Return the devices, with their nodes, that the classes select, and class -> the one that counts in its place.

        Of a device and its partitions those of the class count that the settings have first.
        """
        names = [name for name in self.rule.device_classes if name in self.classes]
        selectors = [selector_of(self.classes[name]) for name in names]
        found = [
            (node, device, rank)
            for each in slices
            for device in each.spec.devices
            if (node := device.node_name or each.spec.node_name)
            and (rank := next((at for at, one in enumerate(selectors) if one.selects(pool[0], device)), None))
            is not None
        ]
        ranks = {(*pool, device.name): rank for _, device, rank in found}
        uncounted = partitions_of(slices).uncounted(ranks)
        classes = {names[ranks[device]]: names[rank] for device, rank in uncounted.items()}
        return [(node, device) for node, device, _ in found if (*pool, device.name) not in uncounted], classes

    def product(self, driver: str, device: PublishedDevice) -> str:
        name = self.rule.pool_attribute
        return str(attribute(driver, device, name) or "") if name else ""

    # ---- queries

    @property
    def extended_resources(self) -> Sequence[str]:
        """Return the extended resources that kube-scheduler gives as devices of a class, whatever nodes offer."""
        return sorted({name for each in self.classes.values() if (name := each.spec.extended_resource_name)})

    @property
    def uncounted_classes(self) -> Mapping[str, str]:
        """Return class -> the class that is counted in its place, for devices of which both give parts."""
        return {name: other for each in self._uncounted.values() for name, other in each.items()}

    def on(self, node: str) -> Mapping[DeviceId, ClaimableGpu]:
        return self._by_node.get(node, _NONE)

    def node_of(self, device: DeviceId) -> str:
        """Return the node whose GPUs change with a device; empty: none's."""
        gpu = self._gpus.get(device[:2], _NONE).get(device)
        return gpu.node if gpu is not None else self._partitions.get(device[:2], NO_PARTITIONS).nodes.get(device, "")

    def is_gone(self, device: DeviceId) -> bool:
        """Say whether a device is no more in its pool, which still has GPUs; while it has none, its node is silent."""
        pool = device[:2]
        if pool not in self._gpus or device in self._gpus[pool]:
            return False
        if (complete := complete_slices(self._slices[pool].values())) is None:
            return False
        return all(each.name != device[2] for found in complete for each in found.spec.devices)

    def is_closed(self, device: DeviceId) -> bool:
        """Say whether a device is a GPU that a taint keeps from being allocated."""
        gpu = self._gpus.get(device[:2], _NONE).get(device)
        return gpu is not None and gpu.is_closed

    def partitions(self, pool: PoolId) -> Partitions:
        """Return the partitions of devices of a pool."""
        return self._partitions.get(pool, NO_PARTITIONS)


def _is_closed(pool: PoolId, device: PublishedDevice, rules: Iterable[DeviceTaintRule]) -> bool:
    return device.is_closed or any(rule.closes(*pool, device.name) for rule in rules)


def put(objects: dict[str, T], key: str, now: T | None) -> None:
    """Keep an object as it is now; None: it is gone."""
    if now is None:
        objects.pop(key, None)
    else:
        objects[key] = now
