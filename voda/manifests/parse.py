"""From a manifest to the job that it describes.

Rule: a refusal names the field by its path and says what to write instead; an accepted manifest can be run, so that
nothing in it fails later.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from voda.domain.dependency import DependencyRequest
from voda.domain.errors import InvalidField
from voda.domain.job import JobSpec, category_of
from voda.domain.job_array import ArrayRange, indices_of
from voda.domain.labels import checked_labels
from voda.kinds.base import FieldWarning, JobManifest, refuse_unusable
from voda.kinds.pod_needs import worker_needs
from voda.kinds.torchrun import size_warnings
from voda.manifests import names
from voda.manifests.arrays import array_range, array_task, dependencies
from voda.manifests.conversion import typed_manifest
from voda.manifests.ignored_fields import ignored_fields
from voda.manifests.programs import checked_restarts, refuse_large_expansions, unused_limits
from voda.manifests.replicas import (
    JobSettings,
    gpus_per_replica,
    launcher_gpus,
    processes_per_replica,
    replica_bounds,
    whole_number,
)

ANY_POOL: Final = "any"
"""The job may start in every pool."""
_MOST_EPOCHS = 1_000_000_000
_LONGEST_PIN = 253
_MOST_PRIORITY = 1_000_000_000
ACCELERATOR = "vodascheduler/accelerator"
DEVICE_CLASS: Final = "voda.dev/device-class"
"""Annotation: instead of an extended resource the replicas claim GPUs of this class."""


class ParsedManifest(Struct, frozen=True, kw_only=True):
    """An accepted manifest: converted once, and handed on to all that read it."""

    raw: Mapping[str, Any]
    """As the user wrote it."""
    job: JobManifest
    spec: JobSpec
    """Complete but for its job_id, which is the name until the job is submitted."""
    warnings: tuple[FieldWarning, ...] = ()
    """Of fields that voda ignores, or cannot change, on every cluster."""
    after: Sequence[DependencyRequest] = ()
    """The jobs that have to end first, which `spec` lacks until they are looked up."""
    pools: Sequence[str] = ()
    """Pools that it may start in, or ANY_POOL; empty: that of `spec`."""
    array: ArrayRange | None = None
    """The tasks that the manifest stands for; None: it is one job."""


def parse(
    manifest: Mapping[str, Any],
    *,
    default_pool: str = "default",
    pool_label: str = ACCELERATOR,
    gpu_resource: str = "",
) -> ParsedManifest:
    """Return the job that a manifest describes.

    Args:
        manifest: as the user wrote it.
        default_pool: of a job that names none.
        pool_label: label of nodes; a nodeSelector by it names the pool.
        gpu_resource: what GPUs are counted by, such as nvidia.com/gpu; empty: the job is for one machine.

    Raises:
        InvalidInput: it is something else, or a field is missing, of the wrong type or out of bounds.
    """
    job = typed_manifest(manifest)
    name, is_restartable = names.job_name(job.metadata), checked_restarts(job, manifest["spec"])
    refuse_unusable(job)
    refuse_large_expansions(job)
    pools = _pools(settings := JobSettings(job))
    gpus = gpus_per_replica(job, "" if DEVICE_CLASS in (job.metadata.annotations or {}) else gpu_resource)
    bounds = replica_bounds(job, settings, processes_per_replica(job, gpus))
    task = array_task(settings, tasks := array_range(settings))
    array = tasks if task is None else None
    names.refuse_long_worker_name(name if array is None else f"{name}-{indices_of(array.indices)[-1]}", bounds.most)
    spec = JobSpec(
        job_id=name,
        name=name,
        namespace=names.namespace(job.metadata),
        pool=pools[0] if pools else _pool(job, settings, default_pool, pool_label),
        min_replicas=bounds.least,
        max_replicas=bounds.most,
        requested_replicas=bounds.requested,
        sizes=bounds.sizes,
        gpus_per_replica=gpus,
        launcher_gpus=launcher_gpus(job, gpu_resource, gpus),
        needs=worker_needs(job, gpu_resource) if gpu_resource else None,
        epochs=_number(settings, "epochs", least=0, most=_MOST_EPOCHS),
        is_restartable=is_restartable,
        priority=_number(settings, "priority", least=-_MOST_PRIORITY, most=_MOST_PRIORITY),
        virtual_cluster=_virtual_cluster(settings),
        pinned_cell=_pinned_cell(settings),
        category=_category(settings, name),
        kind=job.kind,
        labels=checked_labels(job.metadata.labels or {}),
        manifest=manifest,
        array=task,
    )
    return ParsedManifest(
        raw=manifest,
        job=job,
        spec=spec,
        warnings=(*ignored_fields(job, manifest), *unused_limits(job), *size_warnings(job, spec)),
        after=dependencies(settings),
        pools=pools,
        array=array,
    )


def _number(settings: JobSettings, setting: str, *, least: int, most: int) -> int:
    field = settings.get(setting)
    return 0 if field is None else whole_number(field, least=least, most=most)


def _category(settings: JobSettings, name: str) -> str:
    """Return the group whose history the job starts from: JOB_NAME where given, as users of vodascheduler wrote it."""
    field = settings.get("category")
    if field is None or not field.text.strip():
        return category_of(name)
    if len(field.text) > names.LONGEST_LABEL or not field.text.isprintable():
        expected = f"up to {names.LONGEST_LABEL} printable characters"
        raise InvalidField(field.path, f"{field.path}: expected {expected}, got {field.text[:60]!r}")
    return category_of(field.text)


def _virtual_cluster(settings: JobSettings) -> str:
    field = settings.get("virtual_cluster")
    return "" if field is None else names.pool(field.text, field.path)


def _pinned_cell(settings: JobSettings) -> str:
    field = settings.get("pinned_cell")
    if field is None:
        return ""
    # Cells and pins have the names that HiveD allows: any.
    if not 0 < len(field.text) <= _LONGEST_PIN or not field.text.isprintable():
        expected = f"1 to {_LONGEST_PIN} printable characters"
        raise InvalidField(field.path, f"{field.path}: expected {expected}, got {field.text[:60]!r}")
    return field.text


def _pools(settings: JobSettings) -> Sequence[str]:
    """Return the pools that a job lists, or ANY_POOL; empty where it names one or none."""
    field = settings.get("pool")
    if field is None or (field.text != ANY_POOL and "," not in field.text):
        return ()
    return tuple(dict.fromkeys(names.pool(name.strip(), field.path) for name in field.text.split(",")))


def _pool(job: JobManifest, settings: JobSettings, default_pool: str, pool_label: str) -> str:
    annotations = job.metadata.annotations or {}
    if (field := settings.get("pool")) is not None:
        return names.pool(field.text, field.path)
    if ACCELERATOR in annotations:
        return names.pool_of_label(annotations[ACCELERATOR], f"metadata.annotations[{ACCELERATOR}]")
    for role in reversed(job.placed_roles):
        selector = job.roles[role].template.spec.node_selector if role in job.roles else None
        if selector and pool_label in selector:
            path = f"{job.path(role)}.template.spec.nodeSelector[{pool_label}]"
            return names.pool_of_label(selector[pool_label], path)
    return default_pool
