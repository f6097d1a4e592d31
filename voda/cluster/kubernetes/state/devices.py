"""GPUs as devices of dynamic resource allocation: which nodes have them, who holds them, and what claims ask for.

Rules: no I/O; a device is a GPU where a class of the settings selects it, on one node, and a claim that says no more
gets all of it; while a driver writes a new generation of its slices, those of the last complete one stand; a device
that a taint closes counts for as long as a claim has it, so that nothing is moved for it.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final, TypeVar

from msgspec import Struct

from voda.cluster.kubernetes.device_objects import (
    ClaimSpec,
    DeviceClass,
    PublishedDevice,
    ResourceClaim,
    ResourceClaimTemplate,
    ResourceSlice,
)
from voda.cluster.kubernetes.objects import Pod
from voda.cluster.kubernetes.state.claim_ledger import CapacityNames, ClaimLedger, DeviceId, PoolId, ledger_gpu
from voda.cluster.kubernetes.state.device_classes import (
    attribute,
    complete_slices,
    requested_classes,
    requested_gpus,
    selector_of,
)
from voda.cluster.kubernetes.state.nodes import NO_DEVICES, NodeDevices, PoolRule
from voda.domain.errors import InvalidField, InvalidInput, MissingReference
from voda.kinds.pod_template import PodClaim

T = TypeVar("T")


class _ClaimableGpu(Struct, frozen=True):
    device: PublishedDevice
    node: str
    product: str
    """Value of the attribute by which the settings form pools."""


_NONE: Final[Mapping[DeviceId, _ClaimableGpu]] = {}


class DeviceStock:
    """See the module; `touch` is called with each node of which plans may see something else than before."""

    def __init__(self, rule: PoolRule, touch: Callable[[str], None]) -> None:
        self.is_served = False
        """Whether the cluster has such objects."""
        self.slices: dict[str, ResourceSlice] = {}
        self.classes: dict[str, DeviceClass] = {}
        self.templates: dict[str, ResourceClaimTemplate] = {}
        self.claims: dict[str, ResourceClaim] = {}
        self.rule = rule
        self.shared = ClaimLedger(rule.gpu_capacities or CapacityNames(), touch)
        self._touch = touch
        self._slices: defaultdict[PoolId, dict[str, ResourceSlice]] = defaultdict(dict)
        self._gpus: dict[PoolId, Mapping[DeviceId, _ClaimableGpu]] = {}
        self._by_node: defaultdict[str, dict[DeviceId, _ClaimableGpu]] = defaultdict(dict)
        self._holders: defaultdict[DeviceId, set[str]] = defaultdict(set)
        """Device -> keys of the claims that have it, or some of it; of any device."""

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
        _put(self.classes, key, now)
        if key in self.rule.device_classes:
            for pool in list(self._slices):
                self._refresh(pool)

    def put_template(self, key: str, now: ResourceClaimTemplate | None) -> None:
        _put(self.templates, key, now)

    def put_claim(self, key: str, now: ResourceClaim | None) -> None:
        before = self.claims.get(key)
        _put(self.claims, key, now)
        self.shared.put_claim(key, before, now)
        had, has = (each.devices if each is not None else frozenset() for each in (before, now))
        for device in had - has:
            self._holders[device].discard(key)
            if not self._holders[device]:
                del self._holders[device]
        for device in has - had:
            self._holders[device].add(key)
        found = (self._gpus.get(device[:2], {}).get(device) for device in had ^ has)
        for node in {gpu.node for gpu in found if gpu is not None}:
            self._touch(node)

    def _refresh(self, pool: PoolId) -> None:
        """Count the devices of a pool anew, unless its newest generation is not complete yet."""
        slices = self._slices[pool].values()
        if (complete := complete_slices(slices)) is None:
            return
        selectors = [selector_of(self.classes[name]) for name in self.rule.device_classes if name in self.classes]
        selected = [
            (node, device)
            for each in complete
            for device in each.spec.devices
            if (node := device.node_name or each.spec.node_name)
            and any(selector.selects(pool[0], device) for selector in selectors)
        ]
        gpus = {}
        if (names := self.rule.gpu_capacities) is not None:
            there = (ledger_gpu(pool, node, device, names) for node, device in selected)
            gpus = {gpu.id: gpu for gpu in there if gpu is not None}
            self.shared.put_pool(pool, gpus)
        of_jobs = {key for key, gpu in gpus.items() if not gpu.is_for_pods}
        now = {
            key: _ClaimableGpu(device, node, self._product(pool[0], device))
            for node, device in selected
            if (key := (*pool, device.name)) in of_jobs or not device.allow_multiple_allocations
        }
        before = self._gpus.pop(pool, {})
        if now:
            self._gpus[pool] = now
        if not slices:
            del self._slices[pool]
        if before == now:
            return
        for key, gpu in before.items():
            del self._by_node[gpu.node][key]
        for key, gpu in now.items():
            self._by_node[gpu.node][key] = gpu
        for node in {gpu.node for gpu in (*before.values(), *now.values())}:
            self._touch(node)
            if not self._by_node[node]:
                del self._by_node[node]

    def _product(self, driver: str, device: PublishedDevice) -> str:
        name = self.rule.pool_attribute
        return str(attribute(driver, device, name) or "") if name else ""

    # ---- queries

    def of(self, node: str) -> NodeDevices:
        """Return what a node has."""
        shared = self.shared.devices(node)
        if node not in self._by_node:
            return NodeDevices(product=self._product_of_shared(node), shared=shared) if shared else NO_DEVICES
        gpus = self._by_node[node]
        count = sum(not gpu.device.is_closed or key in self._holders for key, gpu in gpus.items())
        products = Counter(sorted(gpu.product for gpu in gpus.values() if gpu.product))
        return NodeDevices(count, products.most_common(1)[0][0] if products else "", shared)

    def _product_of_shared(self, node: str) -> str:
        gpus = self.shared.nodes.get(node, ())
        return next(filter(None, (self._product(gpu.id[0], gpu.device) for gpu in gpus)), "")

    def holders(self, node: str) -> Mapping[str, int]:
        """Return key of a claim -> how many GPUs of a node it has, of those that claims do not share."""
        return Counter(claim for key in self._unshared(node) for claim in self._holders.get(key, ()))

    def taken(self, node: str) -> int:
        """Return how many GPUs of a node claims have, or have some of."""
        return len(self._on(node).keys() & self._holders.keys())

    def taken_by(self, pod_uid: str, node: str) -> int:
        """Return how many GPUs of a node the claims of a pod have, or have some of."""
        claims = self.shared.claims_of(pod_uid).values()
        return len(self._on(node).keys() & {device for claim in claims for device in claim.devices})

    def unshared(self, node: str) -> int:
        """Return how many GPUs of a node there are that claims do not share."""
        return len(self._unshared(node))

    def _unshared(self, node: str) -> Sequence[DeviceId]:
        return [key for key, gpu in self._on(node).items() if not gpu.device.allow_multiple_allocations]

    def _on(self, node: str) -> Mapping[DeviceId, _ClaimableGpu]:
        return self._by_node.get(node, _NONE)

    def requested(self, pod: Pod) -> int:
        """Return how many GPUs a pod's claims ask for; 0 where that is not known."""
        gpus = 0
        for claim in pod.spec.resource_claims:
            key = f"{pod.metadata.namespace}/{claim.resource_claim_template_name}"
            with suppress(KeyError, InvalidInput):
                gpus += requested_gpus(self.templates[key].spec.spec, self.rule.device_classes)
        return gpus

    def claimed(self, namespace: str, claims: Sequence[PodClaim]) -> int:
        """Return how many GPUs the claims of one replica ask for.

        Raises:
            MissingReference: a template, or the class of one, is not there; `field` is the path within the pod.
            InvalidField: the number cannot be known, or replicas would share GPUs.
        """
        gpus = 0
        for place, claim in enumerate(claims):
            path = f"resourceClaims[{place}]"
            if name := claim.resource_claim_template_name:
                field, found = f"{path}.resourceClaimTemplateName", self.templates.get(f"{namespace}/{name}")
                if found is None:
                    raise MissingReference(field, f"namespace {namespace} has no ResourceClaimTemplate {name[:253]!r}")
                gpus += self._requested(field, f"ResourceClaimTemplate {name}", found.spec.spec)
            elif (shared := self.claims.get(f"{namespace}/{claim.resource_claim_name}")) is not None:
                field = f"{path}.resourceClaimName"
                if self._requested(field, f"ResourceClaim {claim.resource_claim_name}", shared.spec):
                    raise InvalidField(field, "replicas cannot share GPUs: expected resourceClaimTemplateName")
        return gpus

    def _requested(self, field: str, what: str, claim: ClaimSpec) -> int:
        if missing := sorted(requested_classes(claim) - self.classes.keys()):
            raise MissingReference(field, f"{what} asks for DeviceClass {missing[0]!r}, which is not there")
        try:
            return requested_gpus(claim, self.rule.device_classes)
        except InvalidInput as error:
            raise InvalidField(field, f"{what}: {error}") from error


def _put(objects: dict[str, T], key: str, now: T | None) -> None:
    if now is None:
        objects.pop(key, None)
    else:
        objects[key] = now
