"""How a new request changes a job: its sizes, its priority, what it asks of nodes, and who set its maximum. Pure."""

from msgspec.structs import replace

from voda.domain.job import MOST_REPLICAS, Job, JobSpec
from voda.domain.reasons.policies import AtMaximum
from voda.events.types import JobChanged


def requested_job(job: Job, fact: JobChanged, now: float, *, stays: bool) -> Job:
    """Return a live job after a new request; `stays`: it goes to no other pool any more."""
    spec = respecified(job.spec, replace(fact, to_pool=None) if stays else fact)
    if spec.max_replicas != job.spec.max_replicas:
        maximum = AtMaximum(workers=spec.max_replicas, set_by=fact.by, set_at=now)
        job = replace(job, maximum=maximum)
    if _asks(spec) == _asks(job.spec):
        return replace(job, spec=spec, backoff=job.backoff if spec.priority == job.spec.priority else None)
    job = replace(job, displaced_in_vain=job.in_vain_for(spec), avoided_sizes={})
    return replace(job, spec=spec, refusals={}, fits={}, backoff=None)


def _asks(spec: JobSpec) -> tuple[object, ...]:
    """Return what the answers of nodes to a job depend on; its priority is none of it."""
    return *spec.asked_of_nodes, spec.min_replicas, spec.max_replicas, spec.requested, spec.sizes


def respecified(spec: JobSpec, fact: JobChanged) -> JobSpec:
    """Return the spec after the change: the request is clamped to the bounds; impossible bounds change nothing."""
    least = fact.min_replicas or spec.min_replicas
    most = fact.max_replicas or spec.max_replicas
    sizes = spec.sizes if fact.sizes is None else fact.sizes
    is_possible = sizes is None or (least in sizes and most in sizes)
    if not (1 <= least <= most <= MOST_REPLICAS and is_possible):
        return spec
    requested = min(max(fact.requested_replicas or spec.requested, least), most)
    pool = fact.to_pool if fact.to_pool in spec.pools else None
    return replace(
        spec,
        pool=pool or spec.pool,
        virtual_cluster=spec.pools[pool] if pool else spec.virtual_cluster,
        min_replicas=least,
        max_replicas=most,
        requested_replicas=requested if sizes is None else sizes.floor(requested),
        sizes=None if sizes is None or sizes.is_dense else sizes,
        priority=spec.priority if fact.priority is None else fact.priority,
        epochs=spec.epochs if fact.epochs is None else fact.epochs,
        gpus_per_replica=spec.gpus_per_replica if fact.gpus_per_replica is None else fact.gpus_per_replica,
        launcher_gpus=spec.launcher_gpus if fact.launcher_gpus is None else fact.launcher_gpus,
        needs=spec.needs if fact.needs is None else fact.needs,
    )
