"""The GPUs of one replica, and the processes that share them.

Rule: a replica is one worker, and its GPUs are the limit of the worker's container; without a limit, each of its
processes needs one.
"""

from collections.abc import Mapping

from voda.domain.errors import InvalidField
from voda.kinds.base import JobManifest
from voda.kinds.pod_template import MOST_GPUS, Quantity

# Shares of a GPU (elasticgpu.io/gpu-core: 100 is one card; aliyun.com/gpu-mem is GiB) are no count of GPUs.
_SHARES = ("core", "mem", "percent")


def is_gpu_count(resource: str) -> bool:
    """Return whether a resource counts GPUs, such as nvidia.com/gpu or amd.com/gpu."""
    return "gpu" in resource and not is_gpu_share(resource)


def is_gpu_share(resource: str) -> bool:
    """Return whether a resource is part of a GPU, such as elasticgpu.io/gpu-core."""
    return "gpu" in resource and any(share in resource for share in _SHARES)


def gpus_per_replica(job: JobManifest) -> int:
    """Return the GPUs of one worker, 1 or more: its container's limit, else one for each of its processes.

    Raises:
        InvalidField: the limit is no whole number, or more than 1,024.
    """
    limit = _gpu_limit(job)
    return _bounded(job.processes or 1, job.processes_field) if limit is None else max(limit, 1)


def processes_per_replica(job: JobManifest) -> int:
    """Return the processes of one worker; where the manifest leaves it open, one for each of its GPUs."""
    return job.processes or gpus_per_replica(job)


def _gpu_limit(job: JobManifest) -> int | None:
    """Return the GPUs in the limits (else requests) of a worker; None if they name none."""
    role = job.resized_role
    index, container = job.main_container(role)
    path = f"{job.path(role)}.template.spec.containers[{index}].resources"
    resources = container.resources
    if resources is None:
        return None
    limits = _gpu_count(resources.limits or {}, f"{path}.limits")
    return limits if limits is not None else _gpu_count(resources.requests or {}, f"{path}.requests")


def _gpu_count(resources: Mapping[str, Quantity], path: str) -> int | None:
    counts = [_whole_gpus(value, f"{path}[{name}]") for name, value in resources.items() if is_gpu_count(name)]
    return _bounded(sum(counts), path) if counts else None


def _whole_gpus(value: Quantity, path: str) -> int:
    if isinstance(value, int):
        return _bounded(value, path)
    text = str(value).strip()
    if text.isascii() and text.isdecimal() and len(text) < 10:
        return _bounded(int(text), path)
    raise InvalidField(path, f"{path}: expected a whole number of GPUs, got {text[:60]!r}")


def _bounded(gpus: int, path: str) -> int:
    if not 0 <= gpus <= MOST_GPUS:
        raise InvalidField(path, f"{path}: expected 0 to {MOST_GPUS} GPUs for one replica, got {gpus}")
    return gpus
