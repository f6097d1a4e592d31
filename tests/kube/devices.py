"""GPUs as devices of dynamic resource allocation, as a driver publishes them and users claim them.

Rule: no driver runs: ResourceSlices alone are enough for kube-scheduler.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from tests.kube.client import Object

DRIVER = "gpu.example.com"
CLASS = DRIVER
_CEL = f'device.driver == "{DRIVER}" && device.attributes["{DRIVER}"].type == "gpu"'


def a_device_class(name: str = CLASS, expression: str = _CEL) -> Object:
    """Return a class of whole GPUs of the driver."""
    return {"metadata": {"name": name}, "spec": {"selectors": [{"cel": {"expression": expression}}]}}


def a_slice(node: str, devices: int | Sequence[Object] = 4, **changes: Any) -> Object:
    """Return what the driver publishes of a node.

    Args:
        node: whose, and the name of the pool.
        devices: how many, or each (see `a_device`).
        changes: `name` of the slice, `generation` and `slices` (1) of its pool, `driver`.
    """
    listed = [a_device(f"gpu-{number}") for number in range(devices)] if isinstance(devices, int) else list(devices)
    pool = {"name": node, "generation": changes.get("generation", 1), "resourceSliceCount": changes.get("slices", 1)}
    spec = {"driver": changes.get("driver", DRIVER), "nodeName": node, "pool": pool, "devices": listed}
    return {"metadata": {"name": changes.get("name", f"{node}-gpus")}, "spec": spec}


def a_device(name: str, *, attributes: Mapping[str, str] | None = None, **fields: Any) -> Object:
    """Return a whole GPU; `attributes` are strings, `fields` others of the device."""
    texts = {"type": "gpu", "productName": "Example H100", **(attributes or {})}
    return {"name": name, "attributes": {key: {"string": text} for key, text in texts.items()}, **fields}


def a_gpu(node: str, number: int, *, milli: int = 1_000, memory: str = "80Gi") -> Object:
    """Return a GPU that claims share."""
    capacity = {"milli": {"value": str(milli)}, "memory": {"value": memory}}
    attributes = {"uuid": f"GPU-{node}-{number}"}
    return a_device(f"gpu-{number}", attributes=attributes, allowMultipleAllocations=True, capacity=capacity)


def a_claim_template(name: str, namespace: str, gpus: int = 1, request: Object | None = None) -> Object:
    """Return a template of claims of so many GPUs; `request` replaces what its one request asks for."""
    asked = request or {"exactly": {"deviceClassName": CLASS, "count": gpus}}
    devices = {"requests": [{"name": "gpus", **asked}]}
    return {"metadata": {"name": name, "namespace": namespace}, "spec": {"spec": {"devices": devices}}}


def claims_of(template: str) -> Object:
    """Return the fields of a pod's spec by which it claims devices after a template."""
    return {"resourceClaims": [{"name": "gpus", "resourceClaimTemplateName": template}]}
