"""From a manifest to the job it asks for.

Rule: whoever reads a refusal finds the field by its path and knows what to write instead; whatever is accepted can be
run, so that nothing of it fails later.
"""

from collections.abc import Mapping
from typing import Any

from voda.domain.errors import InvalidField
from voda.domain.gpus import Gpus
from voda.domain.job import JobSpec, category_of
from voda.manifests import names
from voda.manifests.parsed import Parsed
from voda.manifests.read.schema import Shape, shape_of
from voda.manifests.read.validation import refuse_unusable
from voda.manifests.replica_bounds import VARIABLES, Wishes, count, limits_of
from voda.manifests.resources import gpus_per_replica
from voda.manifests.warnings.ignored_fields import not_read

_MOST_EPOCHS = 1_000_000_000
_MOST_PRIORITY = 1_000_000_000
ACCELERATOR = "vodascheduler/accelerator"


def parse(manifest: Mapping[str, Any], *, default_pool: str = "default", pool_label: str = ACCELERATOR) -> Parsed:
    """Return the job that a manifest asks for.

    Args:
        manifest: an MPIJob of kubeflow.org/v2beta1 or v1, or a PyTorchJob of kubeflow.org/v1.
        default_pool: where a job goes that names no pool.
        pool_label: of nodes; a nodeSelector by it names the pool.

    Raises:
        InvalidInput: it is something else, or a field is missing, of the wrong type or out of bounds.
    """
    job = shape_of(manifest)
    name = names.job_name(job.metadata)
    namespace = names.namespace(job.metadata)
    refuse_unusable(job)
    wishes = Wishes(job)
    limits = limits_of(job, wishes)
    names.refuse_long_worker_name(name, limits.most)
    spec = JobSpec(
        job_id=name,
        name=name,
        namespace=namespace,
        pool=_pool(job, wishes, default_pool, pool_label),
        min_replicas=limits.least,
        max_replicas=limits.most,
        requested_replicas=limits.requested,
        gpus_per_replica=Gpus(gpus_per_replica(job)),
        epochs=_figure(wishes, "epochs", least=0, most=_MOST_EPOCHS),
        priority=_figure(wishes, "priority", least=-_MOST_PRIORITY, most=_MOST_PRIORITY),
        category=_category(wishes, name),
        kind=job.kind,
        manifest=manifest,
    )
    return Parsed(spec=spec, omissions=not_read(job, manifest, VARIABLES))


def _figure(wishes: Wishes, what: str, *, least: int, most: int) -> int:
    wish = wishes.of(what)
    return 0 if wish is None else count(wish, least=least, most=most)


def _category(wishes: Wishes, name: str) -> str:
    """Return the group whose history the job starts from: JOB_NAME where given, as the ancestor's users wrote it."""
    wish = wishes.of("category")
    if wish is None or not wish.text.strip():
        return category_of(name)
    if len(wish.text) > names.LONGEST_LABEL or not wish.text.isprintable():
        raise InvalidField(
            wish.path, f"{wish.path}: expected up to {names.LONGEST_LABEL} printable characters, got {wish.text[:60]!r}"
        )
    return category_of(wish.text)


def _pool(job: Shape, wishes: Wishes, default_pool: str, pool_label: str) -> str:
    annotations = job.metadata.annotations or {}
    if (wish := wishes.of("pool")) is not None:
        return names.pool(wish.text, wish.path)
    if ACCELERATOR in annotations:
        return names.pool_of_label(annotations[ACCELERATOR], f"metadata.annotations[{ACCELERATOR}]")
    for role in ("Worker", "Master"):
        selector = job.roles[role].template.spec.node_selector if role in job.roles else None
        if selector and pool_label in selector:
            path = f"{job.replica_specs}.{role}.template.spec.nodeSelector[{pool_label}]"
            return names.pool_of_label(selector[pool_label], path)
    return default_pool
