"""Turns Kubernetes nodes into the nodes of plans: the pool of each, and what it can be used for.

Rules: pure; a heartbeat, an annotation or a condition's time changes nothing here, because every changed Node goes to
the log; a label becomes a pool by one rule, so that a job's manifest can name it. While a kubelet or a device plugin
starts anew, a node says no GPUs for a moment: it stays in the pool of the workers that run there. What a node says is
bounded, and what is no quantity counts as none.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from typing import Final

from msgspec import Struct

from voda.cluster.kubernetes.interning import intern_value
from voda.cluster.kubernetes.kinds.template import GPU_TAINTS
from voda.cluster.kubernetes.objects import NodeObject
from voda.cluster.kubernetes.state.claim_ledger import CapacityNames
from voda.cluster.kubernetes.state.shared_gpus import SHARE_RESOURCES, ShareResources, gpus_of
from voda.domain.errors import InvalidInput
from voda.domain.gpus import GpuDevice, Gpus
from voda.domain.node import PODS, Node, Taint
from voda.kinds.quantities import milli
from voda.manifests import names

MOST_GPUS: Final = 65_536
"""More than any machine has; a kubelet that offers more is broken."""
_MOST_LABELS: Final = 1_000
_MOST_TAINTS: Final = 100
_MOST_RESOURCES: Final = 200
"""Of a node: more would not fit into one event. Feature discovery writes about 150 labels."""
_MOST_MILLI: Final = 2**63 - 1
"""What an event can hold; no machine has as much."""
_BARRING: Final = ("NoSchedule", "NoExecute")
"""Effects of the taints that keep pods off."""
CORDON: Final = "node.kubernetes.io/unschedulable"
"""Taint that the node controller adds to what is cordoned."""
_SILENCE: Final = frozenset({"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"})
"""Taints that the node controller adds while a node does not report; the condition Ready says the same."""


class PoolRule(Struct, frozen=True, kw_only=True):
    """Which nodes form which pools."""

    label: str = "vodascheduler/accelerator"
    """Key of the node label whose value names the pool."""
    resource: str = "nvidia.com/gpu"
    """What a replica takes; cpu makes a cluster without GPUs usable."""
    default_pool: str = ""
    """Of nodes that have the resource and not the label; empty: voda leaves them alone."""
    tolerated_taints: tuple[str, ...] = GPU_TAINTS
    """Keys of taints that workers are made to tolerate."""
    device_classes: tuple[str, ...] = ()
    """Of devices that are GPUs; empty: only the resource counts."""
    pool_attribute: str = ""
    """Of devices; its value names the pool of a node without the label."""
    share_resources: ShareResources = SHARE_RESOURCES
    """By which nodes offer GPUs to share."""
    gpu_capacities: CapacityNames | None = None
    """Of devices that claims share; None: they are none of voda's business."""


class NodeDevices(Struct, frozen=True):
    """GPUs of a node as devices of dynamic resource allocation."""

    gpus: int = 0
    product: str = ""
    """Value of the attribute that names the pool, of most of them."""
    shared: tuple[GpuDevice, ...] = ()
    """Those that claims share."""
    extended_resources: Sequence[str] = ()
    """Names of the resources that are given as devices."""


NO_DEVICES: Final = NodeDevices()
NONE_TAKEN: Final[Mapping[str, int]] = {}


def pool_of(node: NodeObject, rule: PoolRule, devices: NodeDevices = NO_DEVICES, *, of_workers: str = "") -> str | None:
    """Return the pool of a node; None: voda does not use it.

    `of_workers` is the pool of the jobs that have workers there: what it went by may be gone for a moment.
    """
    if value := node.metadata.labels.get(rule.label):
        return pool_name(value)
    if devices.product:
        return pool_name("-".join(devices.product.split()))
    has_gpus = offered_milli(node, rule, devices) >= 1000 or bool(_gpus(node, rule, devices))
    if of_workers and (rule.pool_attribute or not has_gpus):
        return of_workers
    return rule.default_pool or None if has_gpus else None


@lru_cache(maxsize=1024)
def pool_name(value: str) -> str | None:
    """Return the pool that a label's value names; None where the value is no label's.

    Dots become dashes, for streams are named after pools: `1.5` and `1-5` are one pool; NodeStock warns of it.
    """
    try:
        return names.pool_of_label(value, "pool")
    except InvalidInput:
        return None


def as_node(
    node: NodeObject,
    rule: PoolRule,
    *,
    taken: Mapping[str, int] = NONE_TAKEN,
    devices: NodeDevices = NO_DEVICES,
    of_workers: str = "",
) -> Node | None:
    """Return a node as plans see it; None: voda does not use it.

    Others' pods have `taken` of each resource, in thousandths, e.g. 250 for a quarter of a CPU; of `pods`, too. See
    `pool_of`.
    """
    if (pool := pool_of(node, rule, devices, of_workers=of_workers)) is None:
        return None
    offered = offered_milli(node, rule, devices)
    gpus, foreign_milli = offered // 1000, taken.get(rule.resource, 0)
    taints = node.spec.taints
    return Node(
        name=node.metadata.name,
        pool=pool,
        gpus=Gpus(gpus),
        # Only whole units count: 7.9 CPUs of which others take 0.5 are 7, of which they take none.
        foreign_gpus=Gpus(gpus - max(0, offered - foreign_milli) // 1000),
        is_ready=is_ready(node),
        is_schedulable=not (node.spec.unschedulable or any(each.key == CORDON for each in taints)),
        is_draining=node.metadata.deletion_timestamp is not None,
        labels=_labels(node.metadata.labels, rule),
        taints=_barring(taints, {*rule.tolerated_taints, *_SILENCE, CORDON}),
        room={
            **_room(node.status.allocatable, taken, rule.resource),
            # How many there are is for kube-scheduler to know.
            **{name: _MOST_MILLI for name in devices.extended_resources if name != rule.resource},
        },
        devices=_gpus(node, rule, devices),
    )


def is_ready(node: NodeObject) -> bool:
    """Say whether the node's kubelet reports that it is ready; one that never reported is not."""
    return any(each.type == "Ready" and each.status == "True" for each in node.status.conditions)


def _barring(taints: Iterable[Taint], others: Collection[str]) -> tuple[Taint, ...]:
    """Return the taints that keep off workers that do not tolerate them; those of the `others` say something else."""
    found = {each for each in taints if each.effect in _BARRING and each.key not in others}
    return intern_value(tuple(sorted(found, key=lambda each: (each.key, each.effect, each.value))[:_MOST_TAINTS]))


def _room(allocatable: Mapping[str, str], taken: Mapping[str, int], gpu_resource: str) -> Mapping[str, int]:
    """Return what others leave of each resource but GPUs; what is not there is 0."""
    left = {name: _milli(allocatable[name]) - taken.get(name, 0) for name in allocatable if name != gpu_resource}
    # Every pod asks for one of `pods`, wherever that is bounded at all.
    room = ((name, max(0, min(milli, _MOST_MILLI))) for name, milli in left.items() if milli > 0 or name == PODS)
    return dict(islice(room, _MOST_RESOURCES))


def offered_milli(node: NodeObject, rule: PoolRule, devices: NodeDevices) -> int:
    """Return the thousandths of GPUs that a node has, by either way: where it has both, they are the same GPUs.

    What is no quantity offers none.
    """
    return min(max(offered_amount(node, rule.resource), devices.gpus * 1000), MOST_GPUS * 1000)


def offered_amount(node: NodeObject, resource: str) -> int:
    """Return the thousandths of a resource that a node offers to pods."""
    return _milli(node.status.allocatable.get(resource, "0"))


def _milli(quantity: str) -> int:
    try:
        return milli(quantity)
    except InvalidInput:
        return 0


def _gpus(node: NodeObject, rule: PoolRule, devices: NodeDevices) -> tuple[GpuDevice, ...]:
    """Return the GPUs that a node has to share; where it has them both ways, they are the same, and claimed."""
    return devices.shared or gpus_of(node, rule.share_resources)


def _labels(found: Mapping[str, str], rule: PoolRule) -> Mapping[str, str]:
    if len(found) <= _MOST_LABELS:
        return found
    first = sorted(found, key=lambda key: (key != rule.label, key))
    return {key: found[key] for key in first[:_MOST_LABELS]}
