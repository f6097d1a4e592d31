"""Objects of dynamic resource allocation (resource.k8s.io/v1), trimmed to the fields that voda reads."""

from collections.abc import Mapping
from sys import intern
from typing import Any, Final

from msgspec import field
from msgspec.structs import force_setattr

from voda.cluster.kubernetes.interning import intern_value
from voda.cluster.kubernetes.objects import OwnObject
from voda.kubernetes_client.metadata import KubeRecord

_CLOSING: Final = ("NoSchedule", "NoExecute")


class DeviceTaint(KubeRecord, frozen=True):
    key: str = ""
    effect: str = ""


class PublishedDevice(KubeRecord, frozen=True):
    name: str
    node_name: str = ""
    """Where the slice names no node."""
    taints: tuple[DeviceTaint, ...] = ()
    allow_multiple_allocations: bool = False
    """Whether claims take shares of it."""
    attributes: Mapping[str, Mapping[str, Any]] = {}
    """`name`, of the driver's own, or `domain/name` -> string, number or boolean."""

    def __post_init__(self) -> None:
        plain = {intern(key): next(iter(value.values()), None) for key, value in self.attributes.items()}
        force_setattr(self, "attributes", plain)

    @property
    def is_closed(self) -> bool:
        """Whether a taint keeps it from being allocated."""
        return any(taint.effect in _CLOSING for taint in self.taints)


class SlicePool(KubeRecord, frozen=True):
    name: str = ""
    generation: int = 0
    resource_slice_count: int = 1


class ResourceSliceSpec(KubeRecord, frozen=True):
    driver: str = ""
    pool: SlicePool = SlicePool()
    node_name: str = ""
    devices: tuple[PublishedDevice, ...] = ()


class ResourceSlice(OwnObject, frozen=True):
    spec: ResourceSliceSpec = ResourceSliceSpec()

    @property
    def pool(self) -> tuple[str, str]:
        """Driver and name of the pool that it is a part of."""
        return self.spec.driver, self.spec.pool.name


class CelSelector(KubeRecord, frozen=True):
    expression: str = ""


class ClassSelector(KubeRecord, frozen=True):
    cel: CelSelector = CelSelector()


class DeviceClassSpec(KubeRecord, frozen=True):
    selectors: tuple[ClassSelector, ...] = ()


class DeviceClass(OwnObject, frozen=True):
    spec: DeviceClassSpec = DeviceClassSpec()


class RequestChoice(KubeRecord, frozen=True):
    """What a request asks for; of several choices kube-scheduler takes the first that it can."""

    device_class_name: str = ""
    allocation_mode: str = ""
    count: int = 1
    admin_access: bool = False


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
    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool = False


class AllocatedDevices(KubeRecord, frozen=True):
    results: tuple[AllocatedDevice, ...] = ()


class ClaimAllocation(KubeRecord, frozen=True):
    devices: AllocatedDevices = AllocatedDevices()


class ClaimStatus(KubeRecord, frozen=True):
    allocation: ClaimAllocation | None = None


class ResourceClaim(OwnObject, frozen=True):
    spec: ClaimSpec = ClaimSpec()
    status: ClaimStatus = field(default_factory=ClaimStatus)

    @property
    def devices(self) -> frozenset[tuple[str, str, str]]:
        """Driver, pool and name of each device that it has, and that no other claim can have meanwhile."""
        results = self.status.allocation.devices.results if self.status.allocation is not None else ()
        return frozenset((each.driver, each.pool, each.device) for each in results if not each.admin_access)

    @property
    def pod(self) -> str:
        """Key (namespace/name) of the pod that it was made for; empty: it was made by itself."""
        owners = self.metadata.owner_references
        return next((f"{self.metadata.namespace}/{each.name}" for each in owners if each.kind == "Pod"), "")

    def is_of_pod(self, uid: str) -> bool:
        """Say whether it was made for a pod."""
        return any(each.uid == uid for each in self.metadata.owner_references)
