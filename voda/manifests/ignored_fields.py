"""Fields of a manifest that voda ignores wherever the job runs.

Rule: the user gets a warning with the path of every field that has no effect; none is dropped silently.
"""

from collections.abc import Iterator, Mapping, Set
from functools import cache
from itertools import islice
from typing import Any, Final

import msgspec
from msgspec import inspect

from voda.domain.errors import closest
from voda.kinds.base import FieldWarning, JobManifest
from voda.manifests.programs import known_value
from voda.manifests.replicas import VARIABLES, is_gpu_share
from voda.programs.program_manifest import ENV_FILE

_OURS = "voda.dev/"
_QUEUE = f"{_OURS}queue"
_KUEUE = "kueue.x-k8s.io/queue-name"
ANNOTATIONS = tuple(
    f"{_OURS}{name}"
    for name in (
        *(
            "min-replicas",
            "max-replicas",
            "sizes",
            "epochs",
            "pool",
            "virtual-cluster",
            "priority",
            "working-dir",
            "restartable",
        ),
        *("pinned-cell", "device-class", "launcher", "interpreter", "script", "kept-script", "nice"),
        *("after", "array", "array-name", "array-task"),
    )
)
# Written by voda itself onto objects in a cluster, from where a manifest may have been copied.
_WRITTEN_BY_VODA = frozenset(
    f"{_OURS}{name}"
    for name in (
        *("job-id", "state", "explanation", "estimated-finish"),
        *("worker-failures", "counted-failures", "recorded-bounds", "one-try", "wishes-taken", "gpus-claimed"),
    )
)
_ALIKE: Final = 0.8
"""An unknown field and a known one, where the one is taken for the other."""
_MOST_COMPARED, _LONGEST_COMPARED = 20, 60
# Fields that voda leaves alone, so that nobody takes them for misspelt ones.
_OTHERS: Final = {
    "JobMetadata": (
        "annotations creationTimestamp deletionGracePeriodSeconds deletionTimestamp finalizers generation managedFields"
        " ownerReferences resourceVersion selfLink uid"
    ),
    "MPIJob": "status",
    "PyTorchJob": "status",
    "IndexedJob": "status",
    "IndexedJobSpec": (
        "managedBy manualSelector maxFailedIndexes podFailurePolicy podReplacementPolicy runPolicy selector"
        " successPolicy suspend"
    ),
    "MPISpec": "launcherCreationPolicy runLauncherAsWorker sshAuthMountPath",
    "RunPolicyFields": "managedBy schedulingPolicy",
    "TorchElasticPolicy": "metrics",
    "PodTemplate": "metadata",
    "PodTemplateSpec": (
        "activeDeadlineSeconds affinity automountServiceAccountToken dnsConfig dnsPolicy enableServiceLinks"
        " ephemeralContainers hostAliases hostIPC hostNetwork hostPID hostUsers hostname imagePullSecrets"
        " nodeName os preemptionPolicy priority readinessGates"
        " restartPolicy runtimeClassName schedulerName schedulingGates securityContext serviceAccount"
        " serviceAccountName setHostnameAsFQDN shareProcessNamespace subdomain tolerations"
        " topologySpreadConstraints volumes"
    ),
    "ContainerTemplate": (
        "envFrom imagePullPolicy lifecycle livenessProbe ports readinessProbe resizePolicy"
        " restartPolicyRules securityContext startupProbe stdin stdinOnce terminationMessagePath"
        " terminationMessagePolicy tty volumeDevices volumeMounts"
    ),
    "ContainerResources": "claims",
    "ValueFrom": "configMapKeyRef fileKeyRef resourceFieldRef secretKeyRef",
    "FieldRef": "apiVersion",
}
_NO_PRIORITY_CLASS = "priority classes are not read: set the annotation voda.dev/priority to a number"


def ignored_fields(job: JobManifest, manifest: Mapping[str, Any]) -> Iterator[FieldWarning]:
    """Yield the fields that voda ignores on every cluster."""
    yield from _unknown_annotations(job)
    yield from _misspelt(job, manifest)
    scheduling = (manifest["spec"].get("runPolicy") or {}).get("schedulingPolicy")
    scheduling = scheduling if isinstance(scheduling, Mapping) else {}
    yield from _queues(job, scheduling)
    yield from _priority_classes(job, scheduling)
    for role in job.roles:
        yield from _of_container(job, role)
    yield from job.warnings(manifest["spec"])


def _unknown_annotations(job: JobManifest) -> Iterator[FieldWarning]:
    for name in job.metadata.annotations or ():
        is_ours = name.startswith(_OURS) and not name.startswith(ENV_FILE)
        if is_ours and name not in (*ANNOTATIONS, _QUEUE) and name not in _WRITTEN_BY_VODA:
            # Without what all have in common, which would make all of them close.
            close = closest(name.removeprefix(_OURS), [known.removeprefix(_OURS) for known in ANNOTATIONS])
            advice = f"did you mean {_OURS}{close}?" if close else f"voda reads {', '.join(ANNOTATIONS)}"
            yield FieldWarning(field=f"metadata.annotations[{name[:80]}]", message=f"unknown annotation: {advice}")


def _misspelt(job: JobManifest, manifest: Mapping[str, Any]) -> Iterator[FieldWarning]:
    """Yield the unknown fields that look like a known one of their place that is not there."""
    # Comparing takes its time, and a manifest may have very many fields.
    for path, name, known in islice(_unknown(manifest, _type_of(type(job)), ""), _MOST_COMPARED):
        if close := closest(name, known, alike=_ALIKE):
            yield FieldWarning(field=f"{path}{name}", message=f"unknown field: did you mean {close}?")


def _unknown(value: object, kind: inspect.Type, path: str) -> Iterator[tuple[str, str, Set[str]]]:
    """Yield the path, the name and the fields that are missing there, of each unknown field of a value."""
    if isinstance(kind, inspect.UnionType):
        for one in kind.types:
            yield from _unknown(value, one, path)
    elif isinstance(kind, inspect.VarTupleType) and isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _unknown(item, kind.item_type, f"{path.removesuffix('.')}[{index}].")
    elif isinstance(kind, inspect.StructType) and isinstance(value, Mapping):
        known = _known_fields(kind.cls)
        for name in value:
            if name not in known and len(name) <= _LONGEST_COMPARED:
                yield path, name, known - value.keys()
        for field in kind.fields:
            if field.encode_name in value:
                yield from _unknown(value[field.encode_name], field.type, f"{path}{field.encode_name}.")


# Reading the types takes longer than all the rest of a submit.
_type_of = cache(inspect.type_info)


@cache
def _known_fields(kind: type[Any]) -> Set[str]:
    read = (field.encode_name for field in msgspec.structs.fields(kind))
    return frozenset((*read, *_OTHERS.get(kind.__name__, "").split()))


def _queues(job: JobManifest, scheduling: Mapping[str, Any]) -> Iterator[FieldWarning]:
    named = (("annotations", _QUEUE), ("labels", _QUEUE), ("labels", _KUEUE))
    queues = {f"metadata.{where}[{name}]": (getattr(job.metadata, where) or {}).get(name) for where, name in named}
    queues["spec.runPolicy.schedulingPolicy.queue"] = scheduling.get("queue")
    for field, queue in queues.items():
        if queue:
            message = f"queue {str(queue)[:63]!r} is not used by voda; voda.dev/priority says which job goes first"
            yield FieldWarning(field=field, message=message)


def _priority_classes(job: JobManifest, scheduling: Mapping[str, Any]) -> Iterator[FieldWarning]:
    if "kueue.x-k8s.io/priority-class" in (job.metadata.labels or {}):
        yield FieldWarning(field="metadata.labels[kueue.x-k8s.io/priority-class]", message=_NO_PRIORITY_CLASS)
    if scheduling.get("priorityClass"):
        yield FieldWarning(field="spec.runPolicy.schedulingPolicy.priorityClass", message=_NO_PRIORITY_CLASS)
    for name, role in job.roles.items():
        if role.template.spec.priority_class_name:
            field = f"{job.path(name)}.template.spec.priorityClassName"
            yield FieldWarning(field=field, message=_NO_PRIORITY_CLASS)


def _of_container(job: JobManifest, role: str) -> Iterator[FieldWarning]:
    index, container = job.main_container(role)
    path = f"{job.path(role)}.template.spec.containers"
    expected = job.main_container_name
    if expected and container.name != expected:
        yield FieldWarning(field=path, message=f"no container is named {expected[:60]!r}: voda takes the first one")
    for place, variable in enumerate(container.env or ()):
        if variable.name in VARIABLES and known_value(variable, "") is None:
            yield FieldWarning(
                field=f"{path}[{index}].env[{place}].valueFrom",
                message=f"{variable.name} is not read from elsewhere: give its value, or the voda.dev annotation",
            )
    limits = (container.resources.limits if container.resources is not None else None) or {}
    for resource in limits:
        field = f"{path}[{index}].resources.limits[{resource[:80]}]"
        if is_gpu_share(resource):
            message = "parts of a GPU are not handed out: each replica gets whole GPUs"
            yield FieldWarning(field=field, message=message)
