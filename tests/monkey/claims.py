"""GPUs as devices that jobs claim (dynamic resource allocation), in the place of those that are counted.

Each GPU is given whole or in parts. Rule: the names of templates say how many whole GPUs they claim; `gpus-0` claims a
part of one.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from tests.kube import client as api
from tests.kube.assets import IS_OLD
from tests.kube.client import Object, Resource
from tests.kube.devices import (
    CLASS,
    a_claim_template,
    a_device,
    a_device_class,
    a_slice,
    claims_of,
    class_of,
    partitioned_slices,
)
from tests.kube.objects import a_training_runtime

MOST_GPUS: Final = 3
"""That a pod claims."""
_PART: Final = "1g"
CLUSTER: Final[Mapping[str, Any]] = {"defaultPool": "", "gpuDeviceClasses": [CLASS]}
"""Of voda's settings."""


def objects(namespace: str, runtime: str, job: Mapping[str, Any]) -> Iterator[tuple[Resource, Object]]:
    """Yield what pods claim by: a class, templates for jobs and for pods of others, and runtimes of TrainJobs."""
    yield api.DEVICE_CLASSES, a_device_class()
    part = _PART if not IS_OLD else CLASS
    yield api.DEVICE_CLASSES, a_device_class(_PART, class_of(_PART))
    yield api.CLAIM_TEMPLATES, a_claim_template(_template(0), "default", request={"exactly": {"deviceClassName": part}})
    for gpus in range(1, MOST_GPUS + 1):
        for home in (namespace, "default"):
            yield api.CLAIM_TEMPLATES, a_claim_template(_template(gpus), home, gpus)
        made = a_training_runtime(f"{runtime}-{gpus}", namespace, job=job)
        made["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"] |= claim(gpus)
        yield api.RUNTIMES, made


def claim(gpus: int) -> Object:
    """Return the fields of a pod's spec by which it claims so many GPUs."""
    return claims_of(_template(gpus))


def job_fields(gpus: int, runtime: str) -> Mapping[str, Any]:
    """Return what makes a job claim its GPUs, for whatever kind it is; see tests/kube/objects.py."""
    return {
        "gpus": 0,
        "worker_spec": claim(gpus),
        "runtime": f"{runtime}-{gpus}",
        "trainer": {"resourcesPerNode": {}},
    }


def slices(node: str, gpus: int) -> Sequence[Object]:
    """Return what a driver says of a node."""
    if not IS_OLD:
        return partitioned_slices(node, gpus)
    whole = [a_device(f"gpu-{at}-gpu-0") for at in range(gpus)]
    return [a_slice(node, whole, name=f"{node}-devices")]


def slice_names(node: str) -> Sequence[str]:
    """Return the names of the slices that say it."""
    return [str(each["metadata"]["name"]) for each in slices(node, 1)]


def offered(slices: Sequence[Object], claims: Sequence[Object], rules: Sequence[Object]) -> Counter[str]:
    """Return node -> whole GPUs that are had by claims, or that no rule and no part that is had closes."""
    allocated = (each.get("status", {}).get("allocation", {}).get("devices", {}) for each in claims)
    had = {(result["pool"], result["device"]) for each in allocated for result in each.get("results", ())}
    selectors = (each["spec"]["deviceSelector"] for each in rules)
    closed = {(each["pool"], each["device"]) for each in selectors}
    parted = {(pool, device.split("-")[1]) for pool, device in had}
    said, found = Counter(str(each["spec"]["pool"]["name"]) for each in slices), Counter[str]()
    for each in slices:
        spec = each["spec"]
        pool = spec["pool"]["name"]
        # One that is not said whole is not said.
        for device in spec.get("devices", ()) if said[pool] == spec["pool"]["resourceSliceCount"] else ():
            key, is_whole = (pool, device["name"]), device["attributes"]["type"]["string"] == "gpu"
            can_be_had = key not in closed and (pool, device["name"].split("-")[1]) not in parted
            found[spec["nodeName"]] += is_whole and (key in had or can_be_had)
    return found


def claimed_gpus(pod: Object) -> int:
    """Return how many GPUs a pod claims."""
    names = (each["resourceClaimTemplateName"] for each in pod["spec"].get("resourceClaims", ()))
    return sum(int(name.rpartition("-")[2]) for name in names)


def _template(gpus: int) -> str:
    return f"gpus-{gpus}"
