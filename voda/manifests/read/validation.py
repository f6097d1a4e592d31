"""What no process could be started with, found before the job exists.

Rule: only what would fail later is refused here; what is merely not honoured is an omission.
"""

from collections.abc import Sequence

from voda.domain.errors import InvalidField
from voda.domain.job import MOST_REPLICAS
from voda.manifests.programs import torch_processes
from voda.manifests.read.schema import Container, MPIJob, Policy, PyTorchJob, Replica, Shape
from voda.manifests.resources import MOST_GPUS

_BIGGEST = 2**31 - 1
_RESTART_V2 = ("Never", "OnFailure")
_RESTART_V1 = ("Always", "OnFailure", "Never", "ExitCode")
_CLEAN = ("None", "Running", "All")
_IMPLEMENTATIONS = ("OpenMPI", "Intel", "MPICH")
_BACKENDS = ("c10d", "etcd", "etcd-v2")


def refuse_unusable(job: Shape) -> None:
    """Raise InvalidField on the first field that no process could be started with."""
    if isinstance(job, PyTorchJob):
        _check_torch(job)
    else:
        _check_mpi(job)
    for role, replica in job.roles.items():
        _check_replica(job, role, replica)
    _check_policy(job.spec.run_policy)


def _check_mpi(job: MPIJob) -> None:
    _in_range("spec.slotsPerWorker", job.spec.slots_per_worker, 1, MOST_GPUS)
    _among("spec.cleanPodPolicy", job.spec.clean_pod_policy, _CLEAN)
    _among("spec.mpiImplementation", job.spec.mpi_implementation, _IMPLEMENTATIONS)
    _single(job, "Launcher")


def _check_torch(job: PyTorchJob) -> None:
    if not job.roles:
        field = f"{job.replica_specs}.Worker"
        raise InvalidField(field, f"{field} is missing: a PyTorchJob needs a Worker or a Master")
    _single(job, "Master")
    processes = torch_processes(job)
    is_count = processes.isascii() and processes.isdecimal() and len(processes) < 6
    if processes not in ("auto", "cpu", "gpu") and not (is_count and 1 <= int(processes) <= MOST_GPUS):
        raise InvalidField(
            "spec.nprocPerNode",
            f"spec.nprocPerNode: expected auto, cpu, gpu or 1 to {MOST_GPUS}, got {processes[:60]!r}",
        )
    if (elastic := job.spec.elastic_policy) is not None:
        _among("spec.elasticPolicy.rdzvBackend", elastic.rdzv_backend, _BACKENDS)
        _in_range("spec.elasticPolicy.rdzvPort", elastic.rdzv_port, 1, 65_535)
        _in_range("spec.elasticPolicy.maxRestarts", elastic.max_restarts, 0, _BIGGEST)


def _check_replica(job: Shape, role: str, replica: Replica) -> None:
    path = f"{job.replica_specs}.{role}"
    if replica.replicas is not None:
        _in_range(f"{path}.replicas", replica.replicas, 1, MOST_REPLICAS)
    if replica.restart_policy is not None:
        _among(f"{path}.restartPolicy", replica.restart_policy, _RESTART_V2 if job.has_v2 else _RESTART_V1)
    pod = replica.template.spec
    grace_s = pod.termination_grace_period_seconds
    _in_range(f"{path}.template.spec.terminationGracePeriodSeconds", grace_s, 0, _BIGGEST)
    for place, container in enumerate(pod.containers):
        if container.env:
            _check_env(f"{path}.template.spec.containers[{place}].env", container)


def _check_env(path: str, container: Container) -> None:
    for place, variable in enumerate(container.env or ()):
        if not variable.name or "=" in variable.name or "\0" in variable.name:
            field = f"{path}[{place}].name"
            raise InvalidField(field, f"{field}: expected a name without '=', got {variable.name[:60]!r}")
        if variable.value and variable.value_from is not None:
            field = f"{path}[{place}].valueFrom"
            raise InvalidField(field, f"{field}: {variable.name[:60]} has a value too: keep one of them")


def _check_policy(policy: Policy | None) -> None:
    if policy is None:
        return
    _in_range("spec.runPolicy.backoffLimit", policy.backoff_limit, 0, _BIGGEST)
    _in_range("spec.runPolicy.activeDeadlineSeconds", policy.active_deadline_seconds, 1, _BIGGEST)
    _in_range("spec.runPolicy.ttlSecondsAfterFinished", policy.ttl_seconds_after_finished, 0, _BIGGEST)
    _among("spec.runPolicy.cleanPodPolicy", policy.clean_pod_policy, _CLEAN)


def _single(job: Shape, role: str) -> None:
    replica = job.roles.get(role)
    if replica is not None and replica.replicas not in (None, 1):
        field = f"{job.replica_specs}.{role}.replicas"
        raise InvalidField(field, f"{field}: expected 1, got {replica.replicas}")


def _in_range(field: str, value: int | None, least: int, most: int) -> None:
    if value is not None and not least <= value <= most:
        raise InvalidField(field, f"{field}: expected {least} to {most}, got {value}")


def _among(field: str, value: str | None, allowed: Sequence[str]) -> None:
    if value is not None and value not in allowed:
        raise InvalidField(field, f"{field}: expected one of {', '.join(allowed)}, got {value[:60]!r}")
