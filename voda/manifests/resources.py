"""What one replica holds: its GPUs, and the processes that share them.

Rule: a replica is one worker, and its GPUs are what the worker's container is limited to; where nothing is said, each
of its processes needs one.
"""

from collections.abc import Mapping

from voda.domain.errors import InvalidField
from voda.manifests.programs import main_container, torch_processes
from voda.manifests.read.schema import PyTorchJob, Quantity, Shape

MOST_GPUS = 1_024
# Shares of a GPU (elasticgpu.io/gpu-core: 100 is one card; aliyun.com/gpu-mem is GiB) are no count of GPUs.
_SHARES = ("core", "mem", "percent")


def is_gpu_count(resource: str) -> bool:
    """Say whether a resource counts GPUs, such as nvidia.com/gpu or amd.com/gpu."""
    return "gpu" in resource and not is_gpu_share(resource)


def is_gpu_share(resource: str) -> bool:
    """Say whether a resource is part of a GPU, such as elasticgpu.io/gpu-core."""
    return "gpu" in resource and any(share in resource for share in _SHARES)


def gpus_per_replica(job: Shape) -> int:
    """Return the GPUs of one worker, 1 or more: its container's limit, else one for each of its processes.

    Raises:
        InvalidField: the limit is no whole number, or more than 1,024.
    """
    limited = _limited_gpus(job)
    if limited is not None:
        return max(limited, 1)
    if isinstance(job, PyTorchJob):
        processes = torch_processes(job)
        found, path = int(processes) if processes.isdecimal() else 1, "spec.nprocPerNode"
    else:
        found, path = job.spec.slots_per_worker or 1, "spec.slotsPerWorker"
    return _within(found, path)


def processes_per_replica(job: Shape) -> int:
    """Return the processes of one worker: its slots; for torch's auto, gpu and cpu, one for each GPU (or slot)."""
    if not isinstance(job, PyTorchJob):
        return job.spec.slots_per_worker or 1
    processes = torch_processes(job)
    return int(processes) if processes.isdecimal() else gpus_per_replica(job)


def _limited_gpus(job: Shape) -> int | None:
    """Return the GPUs in the limits (else requests) of a worker; None if they name none."""
    role = "Worker" if "Worker" in job.roles else "Master"
    index, container = main_container(job, job.roles[role])
    path = f"{job.replica_specs}.{role}.template.spec.containers[{index}].resources"
    resources = container.resources
    if resources is None:
        return None
    limits = _counts(resources.limits or {}, f"{path}.limits")
    return limits if limits is not None else _counts(resources.requests or {}, f"{path}.requests")


def _counts(resources: Mapping[str, Quantity], path: str) -> int | None:
    found = [_gpus(value, f"{path}[{name}]") for name, value in resources.items() if is_gpu_count(name)]
    return _within(sum(found), path) if found else None


def _gpus(value: Quantity, path: str) -> int:
    if isinstance(value, int):
        return _within(value, path)
    text = str(value).strip()
    if text.isascii() and text.isdecimal() and len(text) < 10:
        return _within(int(text), path)
    raise InvalidField(path, f"{path}: expected a whole number of GPUs, got {text[:60]!r}")


def _within(gpus: int, path: str) -> int:
    if not 0 <= gpus <= MOST_GPUS:
        raise InvalidField(path, f"{path}: expected 0 to {MOST_GPUS} GPUs for one replica, got {gpus}")
    return gpus
