"""Objects of dynamic resource allocation (resource.k8s.io/v1), trimmed to the fields that voda reads."""

import re
from collections.abc import Mapping, Sequence
from sys import intern
from typing import Any, ClassVar, Final, Self

from msgspec import Raw, field
from msgspec.structs import force_setattr, replace

from voda.cluster.kubernetes import well_known
from voda.cluster.kubernetes.interning import intern_value
from voda.cluster.kubernetes.objects import KubeCondition, OwnObject
from voda.kubernetes_client.metadata import KubeRecord, WatchedObject

_LABEL: Final = re.compile(r"[a-z0-9-]{1,63}")
_CLOSING: Final = ("NoSchedule", "NoExecute")


class DeviceTaint(KubeRecord, frozen=True):
    effect: str = ""

    @property
    def closes(self) -> bool:
        """Whether it keeps a device from being allocated."""
        return self.effect in _CLOSING


class CapacityPolicy(KubeRecord, frozen=True):
    default: str | int | float | None = None
    """What a claim takes that does not say how much; None: all of it."""


class DeviceCapacity(KubeRecord, frozen=True):
    value: str | int | float = "0"
    request_policy: CapacityPolicy = CapacityPolicy()


class CounterValue(KubeRecord, frozen=True):
    value: str | int | float = "0"


class CounterSet(KubeRecord, frozen=True):
    """What a device has that its partitions take from each other, or what one of them takes of it."""

    name: str = ""
    counter_set: str = ""
    """The name, of what a partition takes."""
    counters: Mapping[str, CounterValue] = {}


class PublishedDevice(KubeRecord, frozen=True):
    name: str
    node_name: str = ""
    """Where the slice names no node."""
    taints: tuple[DeviceTaint, ...] = ()
    allow_multiple_allocations: bool = False
    """Whether claims take shares of it."""
    attributes: Mapping[str, Mapping[str, Any]] = {}
    """`name`, of the driver's own, or `domain/name` -> string, number or boolean."""
    capacity: Mapping[str, DeviceCapacity] = {}
    """Under such names too; of devices that claims share."""
    consumes_counters: tuple[CounterSet, ...] = ()
    """Of a partition: what it takes of counters, which other partitions take too."""
    texts: Mapping[str, str] = field(default={}, name=".texts")
    """The attributes that are strings; of devices that claims share."""

    def __post_init__(self) -> None:
        if self.allow_multiple_allocations:
            texts = {key: each["string"] for key, each in self.attributes.items() if "string" in each}
            force_setattr(self, "texts", texts)
        else:
            force_setattr(self, "capacity", {})
        plain = {intern(key): next(iter(value.values()), None) for key, value in self.attributes.items()}
        force_setattr(self, "attributes", plain)

    @property
    def is_closed(self) -> bool:
        """Whether a taint of its own keeps it from being allocated."""
        return any(taint.closes for taint in self.taints)


class SlicePool(KubeRecord, frozen=True):
    name: str = ""
    generation: int = 0
    resource_slice_count: int = 1


class ResourceSliceSpec(KubeRecord, frozen=True):
    driver: str = ""
    pool: SlicePool = SlicePool()
    node_name: str = ""
    devices: tuple[PublishedDevice, ...] = ()
    shared_counters: tuple[CounterSet, ...] = ()


class ResourceSlice(OwnObject, frozen=True):
    spec: ResourceSliceSpec = ResourceSliceSpec()

    @property
    def pool(self) -> tuple[str, str]:
        """Driver and name of the pool that it is a part of."""
        return self.spec.driver, self.spec.pool.name


class TaintSelector(KubeRecord, frozen=True):
    """The devices of a rule; what is None may be any."""

    driver: str | None = None
    pool: str | None = None
    device: str | None = None


class DeviceTaintRuleSpec(KubeRecord, frozen=True):
    device_selector: TaintSelector | None = None
    """None: it taints nothing."""
    taint: DeviceTaint = DeviceTaint()


class DeviceTaintRule(OwnObject, frozen=True):
    """A taint of devices that an administrator writes, not their driver."""

    spec: DeviceTaintRuleSpec = DeviceTaintRuleSpec()

    def is_about(self, driver: str, pool: str) -> bool:
        """Say whether it may keep devices of a pool from being allocated."""
        wanted = self.spec.device_selector
        if wanted is None or not self.spec.taint.closes:
            return False
        return wanted.driver in (None, driver) and wanted.pool in (None, pool)

    def closes(self, driver: str, pool: str, device: str) -> bool:
        """Say whether it keeps a device from being allocated."""
        wanted = self.spec.device_selector
        return wanted is not None and wanted.device in (None, device) and self.is_about(driver, pool)


class CelSelector(KubeRecord, frozen=True):
    expression: str = ""


class ClassSelector(KubeRecord, frozen=True):
    cel: CelSelector = CelSelector()


class DeviceClassSpec(KubeRecord, frozen=True):
    selectors: tuple[ClassSelector, ...] = ()
    extended_resource_name: str = ""
    """Of pods that ask for its devices as for an extended resource; empty: none do."""


class DeviceClass(OwnObject, frozen=True):
    spec: DeviceClassSpec = DeviceClassSpec()


class RequestedCapacity(KubeRecord, frozen=True):
    requests: Mapping[str, str | int | float] = {}

    def __hash__(self) -> int:
        return hash(tuple(self.requests.items()))


class RequestChoice(KubeRecord, frozen=True):
    """What a request asks for; of several choices kube-scheduler takes the first that it can."""

    device_class_name: str = ""
    allocation_mode: str = ""
    count: int = 1
    admin_access: bool = False
    capacity: RequestedCapacity = RequestedCapacity()
    """What it takes of a device that claims share."""


class DeviceRequest(KubeRecord, frozen=True):
    name: str = ""
    exactly: RequestChoice | None = None
    first_available: tuple[RequestChoice, ...] = ()

    @property
    def choices(self) -> tuple[RequestChoice, ...]:
        return self.first_available if self.exactly is None else (self.exactly,)


class ClaimDevices(KubeRecord, frozen=True):
    requests: tuple[DeviceRequest, ...] = ()

    def __post_init__(self) -> None:
        force_setattr(self, "requests", intern_value(self.requests))


class ClaimSpec(KubeRecord, frozen=True):
    devices: ClaimDevices = ClaimDevices()


class ClaimTemplateSpec(KubeRecord, frozen=True):
    spec: ClaimSpec = ClaimSpec()


class ResourceClaimTemplate(OwnObject, frozen=True):
    spec: ClaimTemplateSpec = ClaimTemplateSpec()


class AllocatedDevice(KubeRecord, frozen=True):
    request: str = ""
    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool = False
    share_id: str = field(default="", name="shareID")
    """Of a device that claims share; empty: it has the device alone."""
    consumed_capacity: Mapping[str, str | int | float] = {}
    tolerations: tuple[Mapping[str, Any], ...] = ()
    """Of its request: kube-scheduler gives it to this claim in spite of some taints."""
    binding_conditions: tuple[str, ...] = ()
    """What its driver has to say of it before kube-scheduler binds a pod, such as that it is attached."""


class AllocatedDevices(KubeRecord, frozen=True):
    results: tuple[AllocatedDevice, ...] = ()


class ClaimAllocation(KubeRecord, frozen=True):
    devices: AllocatedDevices = AllocatedDevices()
    allocation_timestamp: str = ""
    """When it was made; not every scheduler writes it."""


class DeviceStatus(KubeRecord, frozen=True):
    driver: str = ""
    pool: str = ""
    device: str = ""
    conditions: tuple[KubeCondition, ...] = ()


class ClaimStatus(KubeRecord, frozen=True):
    allocation: ClaimAllocation | None = None
    devices: tuple[DeviceStatus, ...] = ()
    """What drivers say of those that it has."""


class ResourceClaim(OwnObject, WatchedObject, frozen=True):
    KEEPS_LISTED: ClassVar = True
    spec: ClaimSpec = ClaimSpec()
    status: ClaimStatus = field(default_factory=ClaimStatus)
    text: bytes = field(default=b"", name=".text")
    """All of it, while it asks for a part of a device and has none; under a name that no field of an object has."""

    def with_text(self, text: Raw) -> Self:
        """Return the claim with all that was said of it, where voda may have to make another one after it."""
        choices = (choice for request in self.spec.devices.requests for choice in request.choices)
        is_open = self.status.allocation is None and any(each.capacity.requests for each in choices)
        return replace(self, text=bytes(text)) if is_open else self

    @property
    def pod_claim(self) -> str:
        """Name, within its pod, of the claim that it is; its own name where it was made by itself."""
        name = self.metadata.annotations.get(well_known.POD_CLAIM, "")
        # Anybody may write anything there, and the log has it for ever.
        return name if _LABEL.fullmatch(name) else self.metadata.name

    @property
    def owner(self) -> str:
        """Uid of the pod that it was made for; its own where it was made by itself."""
        pods = (each.uid for each in self.metadata.owner_references if each.kind == "Pod")
        return next(pods, self.metadata.uid)

    @property
    def results(self) -> tuple[AllocatedDevice, ...]:
        """What it was given; of what only watches a device nothing counts."""
        found = self.status.allocation.devices.results if self.status.allocation is not None else ()
        return tuple(each for each in found if not each.admin_access)

    @property
    def devices(self) -> frozenset[tuple[str, str, str]]:
        """Driver, pool and name of each device that it has, or has some of."""
        return frozenset((each.driver, each.pool, each.device) for each in self.results)

    @property
    def awaited_conditions(self) -> Sequence[str]:
        """Return what drivers have not said yet of devices that it has, without which no pod of it is bound."""
        said = {
            (each.driver, each.pool, each.device, condition.type)
            for each in self.status.devices
            for condition in each.conditions
            if condition.status == "True"
        }
        awaited = ((each, name) for each in self.results for name in each.binding_conditions)
        return sorted({name for each, name in awaited if (each.driver, each.pool, each.device, name) not in said})

    def tolerates(self, device: tuple[str, str, str]) -> bool:
        """Say whether it has a device and tolerates taints of it, so that it may get it again."""
        return any(each.tolerations and (each.driver, each.pool, each.device) == device for each in self.results)

    @property
    def pod(self) -> str:
        """Key (namespace/name) of the pod that it was made for; empty: it was made by itself."""
        owners = self.metadata.owner_references
        return next((f"{self.metadata.namespace}/{each.name}" for each in owners if each.kind == "Pod"), "")
