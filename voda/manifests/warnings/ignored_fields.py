"""What voda does not honour of a manifest, wherever the job runs.

Rule: whoever wrote a field that does nothing is told so, with the field's path; nothing is dropped without a word.
"""

import difflib
from collections.abc import Iterator, Mapping
from typing import Any

from voda.manifests.parsed import Omission
from voda.manifests.programs import known_value, main_container, wanted_container
from voda.manifests.read.schema import MPIJob, PyTorchJob, Shape
from voda.manifests.resources import is_gpu_count, is_gpu_share

_OURS = "voda.dev/"
_QUEUE = f"{_OURS}queue"
_KUEUE = "kueue.x-k8s.io/queue-name"
ANNOTATIONS = tuple(
    f"{_OURS}{name}" for name in ("min-replicas", "max-replicas", "epochs", "pool", "priority", "working-dir")
)
# Written by voda itself onto objects in a cluster, from where a manifest may have been copied.
_WRITTEN = frozenset(
    f"{_OURS}{name}"
    for name in ("job-id", "state", "explanation", "estimated-finish", "worker-failures", "wishes-taken")
)
_NO_PRIORITY_CLASS = "priority classes are not read: set the annotation voda.dev/priority to a number"


def not_read(job: Shape, manifest: Mapping[str, Any], variables: frozenset[str]) -> tuple[Omission, ...]:
    """Return the fields that voda does not honour on any cluster.

    Args:
        job: the typed view of the manifest.
        manifest: as submitted.
        variables: names of the environment variables that voda reads.
    """
    found = [*_unknown_annotations(job), *_queues(job), *_priority_classes(job, manifest)]
    for role in job.roles:
        found += _of_containers(job, role, variables)
    if isinstance(job, PyTorchJob):
        found += _autoscaling(manifest)
    else:
        found += _launcher_gpus(job)
    return tuple(found)


def _unknown_annotations(job: Shape) -> Iterator[Omission]:
    for name in job.metadata.annotations or ():
        if name.startswith(_OURS) and name not in (*ANNOTATIONS, _QUEUE) and name not in _WRITTEN:
            close = difflib.get_close_matches(name, ANNOTATIONS, 1)
            advice = f"did you mean {close[0]}?" if close else f"voda reads {', '.join(ANNOTATIONS)}"
            yield Omission(field=f"metadata.annotations[{name[:80]}]", message=f"unknown annotation: {advice}")


def _queues(job: Shape) -> Iterator[Omission]:
    for where, name in (("annotations", _QUEUE), ("labels", _QUEUE), ("labels", _KUEUE)):
        if queue := (getattr(job.metadata, where) or {}).get(name):
            message = f"queue {queue[:63]!r} is not used by voda; voda.dev/priority says which job goes first"
            yield Omission(field=f"metadata.{where}[{name}]", message=message)


def _priority_classes(job: Shape, manifest: Mapping[str, Any]) -> Iterator[Omission]:
    if "kueue.x-k8s.io/priority-class" in (job.metadata.labels or {}):
        yield Omission(field="metadata.labels[kueue.x-k8s.io/priority-class]", message=_NO_PRIORITY_CLASS)
    scheduling = (manifest["spec"].get("runPolicy") or {}).get("schedulingPolicy")
    if isinstance(scheduling, Mapping) and scheduling.get("priorityClass"):
        yield Omission(field="spec.runPolicy.schedulingPolicy.priorityClass", message=_NO_PRIORITY_CLASS)
    for role, replica in job.roles.items():
        if replica.template.spec.priority_class_name:
            field = f"{job.replica_specs}.{role}.template.spec.priorityClassName"
            yield Omission(field=field, message=_NO_PRIORITY_CLASS)


def _of_containers(job: Shape, role: str, variables: frozenset[str]) -> Iterator[Omission]:
    place, container = main_container(job, job.roles[role])
    path = f"{job.replica_specs}.{role}.template.spec.containers"
    wanted = wanted_container(job)
    if wanted and container.name != wanted:
        yield Omission(field=path, message=f"no container is named {wanted[:60]!r}: the first one is taken")
    for index, variable in enumerate(container.env or ()):
        if variable.name in variables and known_value(variable, "") is None:
            yield Omission(
                field=f"{path}[{place}].env[{index}].valueFrom",
                message=f"{variable.name} is not read from elsewhere: give its value, or the voda.dev annotation",
            )
    resources = container.resources
    for name in (resources.limits if resources is not None else None) or ():
        if is_gpu_share(name):
            field = f"{path}[{place}].resources.limits[{name[:80]}]"
            yield Omission(field=field, message="parts of a GPU are not handed out: each replica gets whole GPUs")


def _launcher_gpus(job: MPIJob) -> Iterator[Omission]:
    place, container = main_container(job, job.roles["Launcher"])
    resources = container.resources
    for name in (resources.limits if resources is not None else None) or ():
        if is_gpu_count(name):
            yield Omission(
                field=f"{job.replica_specs}.Launcher.template.spec.containers[{place}].resources.limits[{name[:80]}]",
                message="a launcher's GPUs are not counted: voda gives GPUs to workers",
            )


def _autoscaling(manifest: Mapping[str, Any]) -> Iterator[Omission]:
    if (manifest["spec"].get("elasticPolicy") or {}).get("metrics"):
        message = "there is no autoscaler by metrics: voda's policy decides on the size"
        yield Omission(field="spec.elasticPolicy.metrics", message=message)
