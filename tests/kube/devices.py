"""GPUs as devices of dynamic resource allocation, as a driver publishes them and users claim them.

Rule: no driver runs: ResourceSlices alone are enough for kube-scheduler.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from tests.kube.client import Object

DRIVER = "gpu.example.com"
CLASS = DRIVER


def class_of(kind: str) -> str:
    """Return the CEL expression that selects the driver's devices of a type."""
    return f'device.driver == "{DRIVER}" && device.attributes["{DRIVER}"].type == "{kind}"'


def a_device_class(name: str = CLASS, expression: str = class_of("gpu")) -> Object:
    """Return a class of devices of the driver, by default of whole GPUs."""
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


def partitioned_slices(node: str, gpus: int) -> Sequence[Object]:
    """Return what the driver publishes of GPUs, each of which is one device, or two `3g`, or seven `1g`."""
    counters = [
        {"name": f"gpu-{at}", "counters": {"slices": {"value": "7"}, "memory": {"value": "80Gi"}}} for at in range(gpus)
    ]
    devices = []
    for at in range(gpus):
        for kind, most, slices, memory in (("gpu", 1, 7, "80Gi"), ("3g", 2, 3, "40Gi"), ("1g", 7, 1, "10Gi")):
            takes = {"slices": {"value": str(slices)}, "memory": {"value": memory}}
            consumed = [{"counterSet": f"gpu-{at}", "counters": takes}]
            for number in range(most):
                name = f"gpu-{at}-{kind}-{number}"
                devices.append(a_device(name, attributes={"type": kind}, consumesCounters=consumed))
    published = a_slice(node, devices, name=f"{node}-devices", slices=2)
    shared = a_slice(node, [], name=f"{node}-counters", slices=2)
    del shared["spec"]["devices"]
    shared["spec"]["sharedCounters"] = counters
    return shared, published


def attached(claim: Object) -> Object:
    """Return what a driver says of the devices of a claim once they are attached to its node."""
    said = {"status": "True", "reason": "Done", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    devices = [
        {
            **{key: each[key] for key in ("driver", "pool", "device")},
            "conditions": [{"type": name, **said} for name in each["bindingConditions"]],
        }
        for each in claim["status"]["allocation"]["devices"]["results"]
    ]
    return {"status": {"devices": devices}}


def a_gpu(node: str, number: int, *, milli: int = 1_000, memory: str = "80Gi") -> Object:
    """Return a GPU that claims share."""
    capacity = {"milli": {"value": str(milli)}, "memory": {"value": memory}}
    attributes = {"uuid": f"GPU-{node}-{number}"}
    return a_device(f"gpu-{number}", attributes=attributes, allowMultipleAllocations=True, capacity=capacity)


def a_taint_rule(name: str, effect: str, **selector: str) -> Object:
    """Return an administrator's taint of the devices that are selected by `driver`, `pool` and `device`."""
    taint = {"key": "example.com/health", "value": "bad", "effect": effect}
    return {"metadata": {"name": name}, "spec": {"deviceSelector": selector, "taint": taint}}


def a_claim_template(name: str, namespace: str, gpus: int = 1, request: Object | None = None) -> Object:
    """Return a template of claims of so many GPUs; `request` replaces what its one request asks for."""
    asked = request or {"exactly": {"deviceClassName": CLASS, "count": gpus}}
    devices = {"requests": [{"name": "gpus", **asked}]}
    return {"metadata": {"name": name, "namespace": namespace}, "spec": {"spec": {"devices": devices}}}


def claims_of(template: str) -> Object:
    """Return the fields of a pod's spec by which it claims devices after a template."""
    return {"resourceClaims": [{"name": "gpus", "resourceClaimTemplateName": template}]}
