"""GPUs as devices that jobs claim (dynamic resource allocation), in the place of those that are counted.

Rule: the names of templates say how many GPUs they claim; nothing else does, so that invariants need no claims.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from tests.kube import client as api
from tests.kube.client import Object, Resource
from tests.kube.devices import CLASS, a_claim_template, a_device_class, claims_of
from tests.kube.objects import a_training_runtime

MOST_GPUS: Final = 3
"""That a pod claims."""
CLUSTER: Final[Mapping[str, Any]] = {"defaultPool": "", "gpuDeviceClasses": [CLASS]}
"""Of voda's settings."""


def objects(namespace: str, runtime: str, job: Mapping[str, Any]) -> Iterator[tuple[Resource, Object]]:
    """Yield what pods claim by: a class, templates for jobs and for pods of others, and runtimes of TrainJobs."""
    yield api.DEVICE_CLASSES, a_device_class()
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


def claimed_gpus(pod: Object) -> int:
    """Return how many GPUs a pod claims."""
    names = (each["resourceClaimTemplateName"] for each in pod["spec"].get("resourceClaims", ()))
    return sum(int(name.rpartition("-")[2]) for name in names)


def _template(gpus: int) -> str:
    return f"gpus-{gpus}"
