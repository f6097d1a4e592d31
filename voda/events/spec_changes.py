"""Applies a requested change to a job's spec, for all projections that hold specs."""

from msgspec.structs import replace

from voda.domain.job import MOST_REPLICAS, JobSpec
from voda.events.types import JobChanged


def respecified(spec: JobSpec, fact: JobChanged) -> JobSpec:
    """Return the spec after the change: the request is clamped to the bounds; impossible bounds change nothing."""
    least = fact.min_replicas or spec.min_replicas
    most = fact.max_replicas or spec.max_replicas
    if not 1 <= least <= most <= MOST_REPLICAS:
        return spec
    return replace(
        spec,
        min_replicas=least,
        max_replicas=most,
        requested_replicas=min(max(fact.requested_replicas or spec.requested, least), most),
        priority=spec.priority if fact.priority is None else fact.priority,
        epochs=spec.epochs if fact.epochs is None else fact.epochs,
    )
