"""Trimmed pods and nodes, as voda keeps them of what an API server shows."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from voda.cluster.kubernetes.objects import NodeObject, Pod


def a_pod(name: str = "digits-worker-0", **fields: Any) -> Pod:
    """Return a pod.

    Args:
        name: of it.
        fields: `requests` of its one container, `labels`, `deleted_at`, `node`, `phase`, `status`; all else is of its
            spec.
    """
    requests = fields.pop("requests", {})
    metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}", "labels": fields.pop("labels", {})}
    if "deleted_at" in fields:
        metadata["deletionTimestamp"] = fields.pop("deleted_at")
    status = {"phase": fields.pop("phase", "Pending"), **fields.pop("status", {})}
    spec = {"containers": [{"name": "worker", "resources": {"requests": requests}}], **fields}
    if "node" in spec:
        spec["nodeName"] = spec.pop("node")
    return msgspec.convert({"metadata": metadata, "spec": spec, "status": status}, Pod)


def a_node_object(  # noqa: PLR0913 - all of them are what tests vary
    name: str = "gpu-1",
    *,
    allocatable: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    taints: Sequence[Mapping[str, str]] = (),
    is_cordoned: bool = False,
    ready: str = "True",
    **metadata: Any,
) -> NodeObject:
    """Return a node of eight GPUs, 32 CPUs and 256 GiB."""
    if allocatable is None:
        allocatable = {"cpu": "32", "memory": "256Gi", "ephemeral-storage": "1Ti", "pods": "110", "nvidia.com/gpu": "8"}
    found = {
        "metadata": {"name": name, "labels": {"vodascheduler/accelerator": "a100"} if labels is None else labels}
        | metadata,
        "spec": {"unschedulable": is_cordoned, "taints": list(taints)},
        "status": {"allocatable": allocatable, "conditions": [{"type": "Ready", "status": ready}]},
    }
    return msgspec.convert(found, NodeObject)
