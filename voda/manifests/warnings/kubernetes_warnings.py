"""What of a manifest is different on Kubernetes, where voda runs it as an object of its operator.

Rule: nearly everything is honoured there (images, volumes, service accounts); told is what voda changes so that it
can place and suspend the job, and what only kube-scheduler could do. Refused is what no pod could be made of.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from voda.domain.errors import InvalidField
from voda.manifests.parsed import Omission
from voda.manifests.read.schema import MPIJob, PyTorchJob, Shape, shape_of
from voda.manifests.replica_bounds import Limits, Wishes, limits_of
from voda.manifests.resources import gpus_per_replica
from voda.manifests.versions import V1, in_version
from voda.manifests.warnings.horovod import hints
from voda.manifests.warnings.pod_scheduling import of_placed_pods, refuse_unmade

_KUEUE: Final = "kueue.x-k8s.io/queue-name"
_OWN_OPERATORS: Final = (None, "", "kubeflow.org/mpi-operator", "kubeflow.org/training-operator")
_LEAST_TTL_S: Final = 300
_OF_METADATA: Final = {
    "finalizers": "left out: the object would outlive its deletion",
    "ownerReferences": "left out: the object belongs to the job alone",
}
_OF_POLICIES: Final = {
    "schedulingPolicy": "not needed: voda binds all workers of a start together",
    "activeDeadlineSeconds": "counts from the latest start: a preempted job has all of it again",
}
_OF_SPECS: Final = {
    "runLauncherAsWorker": (
        "the launcher trains too, but voda neither places nor counts it: kube-scheduler finds a node for it, and the"
        " GPUs it asks for are taken for another's; each shrink also restarts the last worker that stays"
    ),
}


def on_kubernetes(manifest: Mapping[str, Any], served: Mapping[str, str], gpu_resource: str) -> tuple[Omission, ...]:
    """Return what of an accepted manifest is changed or not honoured in a cluster, besides what `parse` names.

    Args:
        manifest: that `parse` accepted.
        served: kind -> the apiVersion that the cluster serves.
        gpu_resource: that its pools count, such as nvidia.com/gpu.

    Raises:
        InvalidField: the cluster does not run the kind, or no pod could be made of a template.
    """
    job = shape_of(manifest)
    if job.kind not in served:
        runs = " and ".join(sorted(served)) or "neither MPIJobs nor PyTorchJobs"
        raise InvalidField("kind", f"kind: {job.kind} has no operator in this cluster, which runs {runs}")
    refuse_unmade(job, manifest)
    converted = in_version(manifest, served[job.kind])
    limits = limits_of(job, Wishes(job))
    found = [*_metadata(manifest), *converted.omissions, *_policies(job, manifest, served[job.kind])]
    if isinstance(job, MPIJob):
        found += _mpi(job, converted.manifest, limits)
    else:
        found += _torch(job, limits)
    return (*found, *of_placed_pods(job, manifest), *_gpus(job, gpu_resource))


def refuse_elsewhere(manifest: Mapping[str, Any], namespaces: Collection[str]) -> None:
    """Raise InvalidField where an accepted manifest's namespace is none of those that jobs may be in; empty: any."""
    namespace = manifest["metadata"].get("namespace") or "default"
    if namespaces and namespace not in namespaces:
        where = ", ".join(sorted(namespaces))
        said = f"expected a namespace where voda looks for jobs ({where}), got {namespace!r}"
        raise InvalidField("metadata.namespace", f"metadata.namespace: {said}")


def _metadata(manifest: Mapping[str, Any]) -> Iterator[Omission]:
    metadata = manifest["metadata"]
    for name, message in _OF_METADATA.items():
        if metadata.get(name):
            yield Omission(field=f"metadata.{name}", message=message)
    if (metadata.get("labels") or {}).get(_KUEUE):
        message = "left out of the object: voda runs the job, so Kueue must not"
        yield Omission(field=f"metadata.labels[{_KUEUE}]", message=message)


def _policies(job: Shape, manifest: Mapping[str, Any], api_version: str) -> Iterator[Omission]:
    policy = manifest["spec"].get("runPolicy") or {}
    for name, message in _OF_POLICIES.items():
        if policy.get(name):
            yield Omission(field=f"spec.runPolicy.{name}", message=message)
    if policy.get("managedBy") not in _OWN_OPERATORS:
        yield Omission(field="spec.runPolicy.managedBy", message="left out: voda runs the job itself")
    ttl_s = policy.get("ttlSecondsAfterFinished")
    if api_version == V1 and ttl_s is not None and ttl_s < _LEAST_TTL_S:
        yield Omission(
            field="spec.runPolicy.ttlSecondsAfterFinished",
            message=f"with less than {_LEAST_TTL_S}, the object may be gone before voda sees how the job ended",
        )


def _mpi(job: MPIJob, converted: Mapping[str, Any], limits: Limits) -> Iterator[Omission]:
    for name, message in _OF_SPECS.items():
        if converted["spec"].get(name):
            yield Omission(field=f"spec.{name}", message=message)
    if converted["apiVersion"] == V1 and job.spec.mpi_replica_specs.worker.restart_policy not in (None, "ExitCode"):
        message = "ExitCode is used: with any other, the operator gives the whole job up for one failed worker"
        yield Omission(field=f"{job.replica_specs}.Worker.restartPolicy", message=message)
    if limits.least < limits.most:
        yield from hints(job, needs_slots=converted["apiVersion"] != V1)


def _torch(job: PyTorchJob, limits: Limits) -> Iterator[Omission]:
    elastic = job.spec.elastic_policy
    if limits.least == limits.most:
        return
    if elastic is None:
        message = f"added, for {limits.least} to {limits.most} replicas: without it no agent would hear of a resize"
        yield Omission(field="spec.elasticPolicy", message=message)
        return
    if elastic.max_restarts is None:
        message = "set to 100: torch takes a peer that leaves for a failure"
        yield Omission(field="spec.elasticPolicy.maxRestarts", message=message)
    if "Master" in job.roles and elastic.rdzv_host is None and elastic.rdzv_backend in (None, "c10d"):
        message = "set to the Master: the first worker, where agents meet by default, may not be there"
        yield Omission(field="spec.elasticPolicy.rdzvHost", message=message)


def _gpus(job: Shape, resource: str) -> Iterator[Omission]:
    role = "Worker" if "Worker" in job.roles else "Master"
    asked = [each.resources for each in job.roles[role].template.spec.containers if each.resources is not None]
    if any(resource in {**(each.limits or {}), **(each.requests or {})} for each in asked):
        return
    gpus = gpus_per_replica(job)
    yield Omission(
        field=f"{job.replica_specs}.{role}.template.spec.containers[0].resources.limits",
        message=f"asks for no {resource}: voda counts {gpus} for each replica, but its pods are given none",
    )
