"""Turns Kubernetes nodes into the nodes of plans: the pool of each, and what it can be used for.

Rules: pure; a heartbeat, an annotation or a condition's time changes nothing here, because every changed Node goes to
the log; a label becomes a pool by one rule, so that a job's manifest can name it. While a kubelet or a device plugin
starts anew, a node says no GPUs for a moment: it stays in the pool of the workers that run there.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from msgspec import Struct

from voda.cluster.kubernetes.kinds.template import GPU_TAINTS
from voda.cluster.kubernetes.objects import NodeObject, Taint
from voda.cluster.kubernetes.quantities import milli
from voda.cluster.kubernetes.state.claim_ledger import CapacityNames
from voda.cluster.kubernetes.state.shared_gpus import SHARE_RESOURCES, ShareResources, gpus_of
from voda.domain.errors import InvalidInput
from voda.domain.gpus import GpuDevice, Gpus
from voda.domain.node import Node
from voda.manifests import names

MOST_GPUS: Final = 65_536
"""More than any machine has; a kubelet that offers more is broken."""
_KEPT_LABELS: Final = (
    "kubernetes.io/hostname",
    "node.kubernetes.io/instance-type",
    "nvidia.com/gpu.product",
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
)
_LONGEST_LABEL: Final = 63
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


NO_DEVICES: Final = NodeDevices()


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
    foreign_milli: int = 0,
    devices: NodeDevices = NO_DEVICES,
    of_workers: str = "",
) -> Node | None:
    """Return a node as plans see it; None: voda does not use it.

    Others' pods take `foreign_milli` thousandths of its GPUs, e.g. 250 for a quarter of a CPU. See `pool_of`.
    """
    if (pool := pool_of(node, rule, devices, of_workers=of_workers)) is None:
        return None
    offered = offered_milli(node, rule, devices)
    gpus = offered // 1000
    return Node(
        name=node.metadata.name,
        pool=pool,
        gpus=Gpus(gpus),
        # Only whole units count: 7.9 CPUs of which others take 0.5 are 7, of which they take none.
        foreign_gpus=Gpus(gpus - max(0, offered - foreign_milli) // 1000),
        is_ready=is_ready(node),
        is_schedulable=not (node.spec.unschedulable or any(_taints(node, rule, "NoSchedule"))),
        is_draining=node.metadata.deletion_timestamp is not None or any(_taints(node, rule, "NoExecute")),
        labels=_labels(node, rule),
        devices=_gpus(node, rule, devices),
    )


def is_ready(node: NodeObject) -> bool:
    """Say whether the node's kubelet reports that it is ready; one that never reported is not."""
    return any(each.type == "Ready" and each.status == "True" for each in node.status.conditions)


def _taints(node: NodeObject, rule: PoolRule, effect: str) -> Iterator[Taint]:
    """Yield the taints that say what somebody wants of the node; the node controller's say only that it is silent."""
    for taint in node.spec.taints:
        if taint.effect == effect and taint.key not in rule.tolerated_taints and taint.key not in _SILENCE:
            yield taint


def offered_milli(node: NodeObject, rule: PoolRule, devices: NodeDevices) -> int:
    """Return the thousandths of GPUs that a node has, by either way: where it has both, they are the same GPUs.

    What is no quantity offers none.
    """
    try:
        allocatable = milli(node.status.allocatable.get(rule.resource, "0"))
    except InvalidInput:
        allocatable = 0
    return min(max(allocatable, devices.gpus * 1000), MOST_GPUS * 1000)


def _gpus(node: NodeObject, rule: PoolRule, devices: NodeDevices) -> tuple[GpuDevice, ...]:
    """Return the GPUs that a node has to share; where it has them both ways, they are the same, and claimed."""
    return devices.shared or gpus_of(node, rule.share_resources)


def _labels(node: NodeObject, rule: PoolRule) -> dict[str, str]:
    found = node.metadata.labels
    kept = sorted({*_KEPT_LABELS, rule.label})
    return {key: found[key][:_LONGEST_LABEL] for key in kept if key in found}
