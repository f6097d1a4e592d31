"""The GPUs of nodes that claims share: devices that may be allocated many times, and the claims that have them.

Rules: no I/O; a node's GPUs are sorted by name, and their place there is their index in the log; a GPU that no
attribute tells from all others cannot be chosen, since a claim selects by attributes alone.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from typing import Final, TypeVar

from msgspec import Struct

from voda.cluster.kubernetes.device_objects import DeviceCapacity, PublishedDevice, ResourceClaim
from voda.domain.errors import InvalidInput
from voda.domain.gpus import GpuDevice
from voda.kinds.quantities import milli

PoolId = tuple[str, str]
"""Driver and name."""
DeviceId = tuple[str, str, str]
"""Driver, pool and name."""
T = TypeVar("T")
MIB_MILLI: Final = 1000 << 20
"""Thousandths of a byte in a MiB."""
_UNIQUE: Final = ("uuid", "id")
"""Attributes that are looked at first: drivers give each device one."""
_CLOSE: Final = ("resource.kubernetes.io/numaNode", "resource.kubernetes.io/pcieRoot")
"""Attributes that close devices of a node have in common, from the widest group to the closest."""
_PLAIN: Final = re.compile(r"[A-Za-z0-9 ._:/@+=-]{1,64}")
"""Values that need no care within quotes."""
_NUMBER: Final = re.compile(r"(\d+)")


class CapacityNames(Struct, frozen=True, kw_only=True):
    """Under which names devices have what claims take of them; `name`, of the driver's own domain, or `domain/name`."""

    compute: str = "milli"
    memory: str = "memory"


class LedgerGpu(Struct, frozen=True, kw_only=True):
    """One device that claims share."""

    id: DeviceId
    node: str
    device: PublishedDevice
    compute: int
    """What it has of compute, in thousandths of whatever its driver counts; 0: its driver does not count it."""
    memory_mib: int
    is_closed: bool = False
    """Whether a taint keeps it from being allocated."""

    @property
    def is_for_pods(self) -> bool:
        """Return whether a claim that says nothing of its capacities may get less than all of it."""
        return bool(self.device.consumes_counters) or not all(map(_is_all, self.device.capacity.values()))

    @property
    def name(self) -> str:
        """Return `driver/pool/device`."""
        return "/".join(self.id)


class UniqueText(Struct, frozen=True):
    """An attribute of a GPU with a value that no other GPU of its driver has."""

    driver: str
    domain: str
    name: str
    text: str


class GpuSizes(Struct, frozen=True, kw_only=True):
    """Of all GPUs that there are; 0: none counts it."""

    least_compute: int
    """Of those that count it."""
    most_compute: int
    least_mib: int
    most_mib: int


_NO_CLAIMS: Final[Mapping[str, ResourceClaim]] = {}


class ClaimLedger:
    """See the module; `touch` is called with each node whose GPUs are others than before."""

    def __init__(self, names: CapacityNames, touch: Callable[[str], None]) -> None:
        self.names = names
        self.changed: set[str] = set()
        """Nodes whose GPUs, or the claims of them, have changed; whoever follows clears it."""
        self.changes = 0
        """How often anything has changed."""
        self._touch = touch
        self._pools: dict[PoolId, Mapping[DeviceId, LedgerGpu]] = {}
        self._nodes: dict[str, tuple[LedgerGpu, ...]] = {}
        self._devices: dict[str, tuple[GpuDevice, ...]] = {}
        self._allocated: defaultdict[DeviceId, dict[str, ResourceClaim]] = defaultdict(dict)
        self._marks: dict[str, int] = {}
        """Node -> `changes` when something of its GPUs or claims changed last."""
        self._by_owner: defaultdict[str, dict[str, ResourceClaim]] = defaultdict(dict)
        self._sizes: GpuSizes | None = None
        self._labels: Mapping[DeviceId, UniqueText] | None = None
        """Both None: the GPUs have changed since."""

    # ---- changes

    def put_pool(self, pool: PoolId, gpus: Mapping[DeviceId, LedgerGpu]) -> None:
        """Take in the GPUs of a pool, none where it has gone."""
        before = self._pools.pop(pool, {})
        if gpus:
            self._pools[pool] = gpus
        if before == gpus:
            return
        self._sizes, self._labels = None, None
        for node in {gpu.node for gpu in (*before.values(), *gpus.values())}:
            self._put_node(node, pool)
            self._mark(node)
            self._touch(node)

    def _put_node(self, node: str, pool: PoolId) -> None:
        """Count the GPUs of a node anew: those of a pool have changed."""
        others = [gpu for gpu in self._nodes.pop(node, ()) if gpu.id[:2] != pool]
        own = [gpu for gpu in self._pools.get(pool, {}).values() if gpu.node == node]
        self._devices.pop(node, None)
        if others or own:
            self._nodes[node] = tuple(sorted([*others, *own], key=_order))
            self._devices[node] = tuple(_recorded(self._nodes[node]))

    def put_claim(self, key: str, before: ResourceClaim | None, now: ResourceClaim | None) -> None:
        if before is not None:
            for device in _shared(before):
                self._allocated[device].pop(key, None)
                if not self._allocated[device]:
                    del self._allocated[device]
            self._by_owner[before.owner].pop(key, None)
            if not self._by_owner[before.owner]:
                del self._by_owner[before.owner]
        if now is not None:
            for device in _shared(now):
                self._allocated[device][key] = now
            self._by_owner[now.owner][key] = now
        self.changes += 1
        gpus = (self._pools.get(device[:2], {}).get(device) for device in {*_shared(before), *_shared(now)})
        for node in {gpu.node for gpu in gpus if gpu is not None}:
            self._mark(node)

    def _mark(self, node: str) -> None:
        self.changed.add(node)
        self.changes += 1
        self._marks[node] = self.changes
        if node not in self._nodes:
            del self._marks[node]

    # ---- queries

    @property
    def nodes(self) -> Mapping[str, tuple[LedgerGpu, ...]]:
        """Node -> its GPUs, by index."""
        return self._nodes

    @property
    def sizes(self) -> GpuSizes:
        """The least and the most that GPUs have."""
        if self._sizes is None:
            gpus = list(self._all())
            compute, memory = [gpu.compute for gpu in gpus], [gpu.memory_mib for gpu in gpus]
            self._sizes = GpuSizes(
                least_compute=min(filter(None, compute), default=0),
                most_compute=max(compute, default=0),
                least_mib=min(memory, default=0),
                most_mib=max(memory, default=0),
            )
        return self._sizes

    def devices(self, node: str) -> tuple[GpuDevice, ...]:
        """Return the GPUs of a node as the log has them."""
        return self._devices.get(node, ())

    def claims_on(self, node: str) -> Mapping[str, ResourceClaim]:
        """Return the claims that have something of a node's GPUs, by key."""
        gpus = (self._allocated.get(gpu.id, _NO_CLAIMS) for gpu in self._nodes.get(node, ()))
        return {key: claim for claims in gpus for key, claim in claims.items()}

    def last_change(self, node: str) -> int:
        """Return a number that is another one once something of a node's GPUs, or of the claims of them, changed."""
        return self._marks.get(node, 0)

    def claims_of(self, pod_uid: str) -> Mapping[str, ResourceClaim]:
        """Return the claims that were made for a pod, by key."""
        return self._by_owner.get(pod_uid, {})

    def nodes_of(self, claim: ResourceClaim) -> Set[str]:
        """Return the nodes of the GPUs that a claim has; of GPUs that nobody publishes there is none."""
        ids = [(each.driver, each.pool, each.device) for each in claim.results]
        found = (self._pools.get(each[:2], {}).get(each) for each in ids)
        return {gpu.node for gpu in found if gpu is not None}

    def selector(self, *gpus: LedgerGpu) -> str:
        """Return the CEL expression that selects these GPUs alone; empty: no attribute tells one from all others."""
        found = [self._unique.get(gpu.id) for gpu in gpus]
        return _expression([each for each in found if each is not None]) if None not in found else ""

    def obstacle(self, gpu: LedgerGpu) -> str:
        """Return why voda chooses a GPU for nobody, the end of a sentence; empty: it does."""
        if gpu.is_closed:
            return "tainted"
        if gpu.device.consumes_counters:
            # Whether it can be allocated depends on other partitions, which accounts do not know of.
            return "a partition of a device"
        return "" if gpu.id in self._unique else "like others in all attributes"

    @property
    def _unique(self) -> Mapping[DeviceId, UniqueText]:
        if self._labels is None:
            self._labels = dict(_unique_texts(list(self._all())))
        return self._labels

    def _all(self) -> Iterator[LedgerGpu]:
        return (gpu for pool in self._pools.values() for gpu in pool.values())


def ledger_gpu(
    pool: PoolId, node: str, device: PublishedDevice, names: CapacityNames, *, is_closed: bool
) -> LedgerGpu | None:
    """Return a device as a GPU; None where claims do not share it, or it has neither of the capacities."""
    if not device.allow_multiple_allocations:
        return None
    compute, memory = (_capacity(pool[0], device, name) for name in (names.compute, names.memory))
    if not compute and not memory:
        return None
    return LedgerGpu(
        id=(*pool, device.name),
        node=node,
        device=device,
        compute=compute,
        memory_mib=memory // MIB_MILLI,
        is_closed=is_closed,
    )


def named(driver: str, values: Mapping[str, T], name: str) -> T | None:
    """Return the value under a name, which may be of the driver's own domain or `domain/name`; None: there is none."""
    domain, _, short = name.rpartition("/")
    if name in values or domain not in ("", driver):
        return values.get(name)
    return values.get(short if domain else f"{driver}/{name}")


def in_mib(quantity: str | int | float) -> int:
    """Return a quantity of bytes in MiB, rounded up; InvalidInput: it is none."""
    return -(-milli(quantity) // MIB_MILLI)


def _recorded(gpus: Sequence[LedgerGpu]) -> Iterator[GpuDevice]:
    """Yield the GPUs of a node as the log has them; one that does not say where it is is close to no other."""
    levels = list[Sequence[int]]()
    for name in _CLOSE:
        values = [_place(gpu.device.attributes.get(name)) for gpu in gpus]
        if any(value is not None for value in values):
            known = list(dict.fromkeys(value for value in values if value is not None))
            alone = range(len(known), len(known) + len(gpus))
            levels.append([alone[at] if value is None else known.index(value) for at, value in enumerate(values)])
    for at, gpu in enumerate(gpus):
        groups = tuple(level[at] for level in levels)
        yield GpuDevice(memory_mib=gpu.memory_mib, groups=groups, name=gpu.name, is_for_pods=gpu.is_for_pods)


def _place(value: object) -> str | int | None:
    """Return where a device is, as an attribute says; None: it is in several places, or does not say."""
    return value if isinstance(value, str | int) else None


def _is_all(capacity: DeviceCapacity) -> bool:
    """Return whether a claim that does not say how much it takes of a capacity takes all of it."""
    default = capacity.request_policy.default
    try:
        return default is None or milli(default) >= milli(capacity.value)
    except InvalidInput:
        return False


def _capacity(driver: str, device: PublishedDevice, name: str) -> int:
    """Return thousandths; 0 where the device has none, or what is no quantity."""
    found = named(driver, device.capacity, name)
    try:
        return max(0, milli(found.value)) if found is not None else 0
    except InvalidInput:
        return 0


def _unique_texts(gpus: Sequence[LedgerGpu]) -> Iterator[tuple[DeviceId, UniqueText]]:
    shared = Counter((gpu.id[0], *item) for gpu in gpus for item in gpu.device.texts.items())
    for gpu in gpus:
        own = [name for name, text in gpu.device.texts.items() if _PLAIN.fullmatch(text)]
        alone = [name for name in own if shared[gpu.id[0], name, gpu.device.texts[name]] == 1]
        if alone:
            name = min(alone, key=lambda each: (each.rpartition("/")[2] not in _UNIQUE, each))
            domain, _, short = name.rpartition("/")
            yield gpu.id, UniqueText(gpu.id[0], domain or gpu.id[0], short, gpu.device.texts[name])


def _expression(labels: Sequence[UniqueText]) -> str:
    """Return the CEL expression that selects the GPUs with these values of attributes."""
    by_attribute = defaultdict[tuple[str, str], list[str]](list)
    for each in labels:
        found = f'device.attributes["{each.domain}"].{each.name}'
        by_attribute[each.driver, found].append(f'"{each.text}"')
    # Of a GPU beside them that has no such attribute the expression would fail, and kube-scheduler with it.
    terms = [
        f'device.driver == "{driver}" && has({found}) && '
        + (f"{found} == {texts[0]}" if len(texts) == 1 else f"{found} in [{', '.join(texts)}]")
        for (driver, found), texts in by_attribute.items()
    ]
    return " || ".join(f"({term})" for term in terms) if len(terms) > 1 else "".join(terms)


def _shared(claim: ResourceClaim | None) -> Sequence[DeviceId]:
    """Return the devices that a claim has with others, or could have."""
    return [(each.driver, each.pool, each.device) for each in claim.results if each.share_id] if claim else ()


def _order(gpu: LedgerGpu) -> tuple[str, str, Sequence[tuple[int, str]]]:
    parts = _NUMBER.split(gpu.id[2])
    return gpu.id[0], gpu.id[1], [(int(part), "") if part.isdecimal() else (-1, part) for part in parts]
