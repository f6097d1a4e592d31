"""GPUs as devices of dynamic resource allocation: how many nodes have, who holds them, and what claims ask for.

Rules: no I/O; a claim that says no more gets all of a device; what counts is what claims have, and how many more can be
had: partitions in use, whosever, take from others of their device; a device that a taint closes counts for as long as a
claim has it, so that nothing is moved for it; where the claim tolerates taints, for its worker alone: else a job would
grow by it, lose it, and get it again.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from contextlib import suppress

from msgspec.structs import replace

from voda.cluster.kubernetes.device_objects import ClaimSpec, ResourceClaim, ResourceClaimTemplate
from voda.cluster.kubernetes.objects import Pod
from voda.cluster.kubernetes.state.claim_ledger import CapacityNames, ClaimLedger, DeviceId
from voda.cluster.kubernetes.state.nodes import NO_DEVICES, NodeDevices, PoolRule
from voda.cluster.kubernetes.state.published.classes import requested_classes, requested_gpus
from voda.cluster.kubernetes.state.published.gpus import PublishedGpus, put
from voda.domain.errors import InvalidField, InvalidInput, MissingReference
from voda.kinds.pod_template import PodClaim


class DeviceStock:
    """See the module; `touch` is called with each node of which plans may see something else than before.

    `touch_all` is called where that may be so of all nodes.
    """

    def __init__(
        self, rule: PoolRule, touch: Callable[[str], None], touch_all: Callable[[], None] = lambda: None
    ) -> None:
        self.is_served = False
        """Whether the cluster has such objects."""
        self.templates: dict[str, ResourceClaimTemplate] = {}
        self.claims: dict[str, ResourceClaim] = {}
        self.rule = rule
        self.shared = ClaimLedger(rule.gpu_capacities or CapacityNames(), touch)
        self.published = PublishedGpus(rule, touch, touch_all, self.shared.put_pool)
        self._touch = touch
        self._holders: defaultdict[DeviceId, set[str]] = defaultdict(set)
        """Device -> keys of the claims that have it, or some of it; of any device."""

    # ---- changes

    def put_template(self, key: str, now: ResourceClaimTemplate | None) -> None:
        put(self.templates, key, now)

    def put_claim(self, key: str, now: ResourceClaim | None) -> None:
        before = self.claims.get(key)
        put(self.claims, key, now)
        self.shared.put_claim(key, before, now)
        had, has = (each.devices if each is not None else frozenset() for each in (before, now))
        for device in had - has:
            self._holders[device].discard(key)
            if not self._holders[device]:
                del self._holders[device]
        for device in has - had:
            self._holders[device].add(key)
        for node in {self.published.node_of(device) for device in had ^ has} - {""}:
            self._touch(node)

    # ---- queries

    def claims_holding(self, device: DeviceId) -> Collection[str]:
        """Return the keys of the claims that have a device, or some of it."""
        return self._holders.get(device, ())

    def of(self, node: str) -> NodeDevices:
        """Return what a node has."""
        shared, given = self.shared.devices(node), self.published.extended_resources
        gpus = self.published.on(node)
        if not gpus:
            if not (shared or given):
                return NO_DEVICES
            return NodeDevices(product=_product_of_shared(self, node), shared=shared, extended_resources=given)
        count = self.taken(node) + self._more(node)
        products = Counter(sorted(gpu.product for gpu in gpus.values() if gpu.product))
        return NodeDevices(count, products.most_common(1)[0][0] if products else "", shared, given)

    def _more(self, node: str) -> int:
        """Return how many GPUs of a node can be had beside those that claims have."""
        free = {
            key: gpu for key, gpu in self.published.on(node).items() if not gpu.is_closed and key not in self._holders
        }
        partitions = [key for key, gpu in free.items() if gpu.device.consumes_counters]
        more = (
            self.published.partitions(pool).most_more((key for key in partitions if key[:2] == pool), self._holders)
            for pool in {key[:2] for key in partitions}
        )
        return len(free) - len(partitions) + sum(more)

    def holders(self, node: str) -> Mapping[str, int]:
        """Return key of a claim -> how many GPUs of a node it has, of those that claims do not share."""
        return Counter(claim for key in self._unshared(node) for claim in self._holders.get(key, ()))

    def taken_by_others(self, node: str, workers: Set[str]) -> int:
        """Return how many GPUs of a node, of those that claims do not share, others have than these `workers`' claims.

        A GPU that two claims have by mistake is one; of a worker, it counts as the worker's until that has left it.
        """
        holders = (self._holders.get(key, ()) for key in self._unshared(node))
        return sum(bool(each) and workers.isdisjoint(each) for each in holders)

    def taken(self, node: str) -> int:
        """Return how many GPUs of a node claims have, or have some of."""
        return len(self.published.on(node).keys() & self._holders.keys())

    def taken_by(self, pod_uid: str, node: str) -> int:
        """Return how many GPUs of a node the claims of a pod have, or have some of."""
        claims = self.shared.claims_of(pod_uid).values()
        return len(self.published.on(node).keys() & {device for claim in claims for device in claim.devices})

    def unshared(self, node: str) -> int:
        """Return how many GPUs of a node there are that claims do not share."""
        return len(self._unshared(node))

    def _unshared(self, node: str) -> Sequence[DeviceId]:
        return [key for key, gpu in self.published.on(node).items() if not gpu.device.allow_multiple_allocations]

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
                gpus += _requested(self, field, f"ResourceClaimTemplate {name}", found.spec.spec)
            elif (shared := self.claims.get(f"{namespace}/{claim.resource_claim_name}")) is not None:
                field = f"{path}.resourceClaimName"
                if _requested(self, field, f"ResourceClaim {claim.resource_claim_name}", shared.spec):
                    raise InvalidField(field, "replicas cannot share GPUs: expected resourceClaimTemplateName")
        return gpus


def awaited_conditions(devices: DeviceStock, pods: Mapping[str, Pod]) -> Mapping[str, Sequence[str]]:
    """Return key of a pod -> the conditions that kube-scheduler awaits of its devices before it binds the pod.

    None of a pod whose devices are attached: it looks at them every few seconds.
    """
    waiting = {key: pod for key, pod in pods.items() if pod.status.nominated_node_name and not pod.spec.node_name}
    found = {
        key: [made for name in pod.claim_names if (made := devices.claims.get(f"{pod.metadata.namespace}/{name}"))]
        for key, pod in waiting.items()
    }
    return {
        key: sorted({name for claim in claims for name in claim.awaited_conditions})
        for key, claims in found.items()
        if any(device.binding_conditions for claim in claims for device in claim.results)
    }


def devices_for_plans(devices: DeviceStock, node: str, workers: Set[str]) -> NodeDevices:
    """Return what a node has for plans; `workers` are the keys of the claims that workers of voda's have."""
    found = devices.of(node)
    closed = (key for key, gpu in devices.published.on(node).items() if gpu.is_closed)
    tolerated = sum(
        any(each in workers and devices.claims[each].tolerates(key) for each in devices.claims_holding(key))
        for key in closed
    )
    return replace(found, gpus=max(found.gpus - tolerated, devices.taken(node))) if tolerated else found


def partition_obstacle(devices: DeviceStock, names: Iterable[str]) -> str:
    """Return why no GPUs of these classes count, one sentence; empty: nothing is in the way."""
    uncounted = devices.published.uncounted_classes
    found = next((name for name in sorted(names) if name in uncounted), "")
    if not found:
        return ""
    return (
        f"DeviceClass {found!r} gives partitions of devices that count for DeviceClass {uncounted[found]!r}: expected"
        " one of the two in cluster.gpuDeviceClasses"
    )


def _product_of_shared(devices: DeviceStock, node: str) -> str:
    gpus = devices.shared.nodes.get(node, ())
    return next(filter(None, (devices.published.product(gpu.id[0], gpu.device) for gpu in gpus)), "")


def _requested(devices: DeviceStock, field: str, what: str, claim: ClaimSpec) -> int:
    names = requested_classes(claim)
    if missing := sorted(names - devices.published.classes.keys()):
        raise MissingReference(field, f"{what} asks for DeviceClass {missing[0]!r}, which is not there")
    if obstacle := partition_obstacle(devices, names):
        raise InvalidField(field, f"{what}: {obstacle}")
    try:
        return requested_gpus(claim, devices.rule.device_classes)
    except InvalidInput as error:
        raise InvalidField(field, f"{what}: {error}") from error
