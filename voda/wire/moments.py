"""How the cluster stood at a moment, and what changed from one moment to the next, as they travel over HTTP."""

from collections.abc import Mapping
from typing import Annotated

from msgspec import Meta

from voda.domain.reasons.outcomes import JobReason
from voda.wire.base import Instant, UnknownReason, View
from voda.wire.jobs import ForecastView, GpuShareView
from voda.wire.pools import NodeView, PoolView


class MomentJobView(View, frozen=True, kw_only=True):
    """A live job at a moment: what a picture of the cluster shows of it."""

    job_id: str
    name: str
    namespace: str
    user: str
    pool: str
    labels: Mapping[str, str] = {}
    virtual_cluster: str = ""
    priority: int
    kind: str
    state: Annotated[str, Meta(description="Submitted, Waiting, Running, Preempted, Halted or Canceling.")]
    min_replicas: int
    max_replicas: int
    requested_replicas: int
    gpus_per_replica: int
    share: Annotated[GpuShareView | None, Meta(description="The part of one GPU that it asks for.")] = None
    replicas: Annotated[int, Meta(description="Workers observed.")]
    planned_replicas: int
    guaranteed_replicas: Annotated[
        int | None,
        Meta(description="By the plan under its virtual cluster's guarantee, the others borrow; null: it has none."),
    ] = None
    gpus: Annotated[int, Meta(description="Held by its workers.")]
    nodes: Annotated[Mapping[str, int], Meta(description="node -> workers there.")]
    reason: Annotated[JobReason | UnknownReason | None, Meta(description="Why it has what it has, or waits.")]
    message: Annotated[str, Meta(description="The reason in words, with what keeps it from running as planned.")]
    submitted_at: Instant
    started_at: Annotated[Instant | None, Meta(description="First start.")]
    epochs_done: float
    epochs: Annotated[int, Meta(description="0 = unknown.")]
    forecast: Annotated[ForecastView, Meta(description="As made now: empty of moments of the past.")]


class MomentView(View, frozen=True, kw_only=True):
    """The cluster at one moment."""

    position: Annotated[int, Meta(description="Of the last event in it.")]
    at: Instant
    end: Annotated[int, Meta(description="Where the log ended.")]
    pools: tuple[PoolView, ...]
    nodes: tuple[NodeView, ...]
    jobs: tuple[MomentJobView, ...]


class ChangesView(View, frozen=True, kw_only=True):
    """What is otherwise at a moment than at the one before it: records that are new or changed, and what is gone."""

    position: int
    at: Instant
    end: int
    pools: tuple[PoolView, ...] = ()
    nodes: tuple[NodeView, ...] = ()
    jobs: tuple[MomentJobView, ...] = ()
    gone_nodes: tuple[str, ...] = ()
    gone_jobs: tuple[str, ...] = ()


class ChangesList(View, frozen=True, kw_only=True):
    """Moments one after the other, each as changes to the one before."""

    position: Annotated[int, Meta(description="Of the moment that the first one changes.")]
    at: Instant
    end: int
    items: tuple[ChangesView, ...]


class TimelineView(View, frozen=True, kw_only=True):
    """What happened between two moments, by stretches of equal length: each list has a figure for each of them."""

    since: Instant
    until: Instant
    begins_at: Annotated[Instant | None, Meta(description="Of the log's first event; null: it has none.")]
    ends_at: Annotated[Instant | None, Meta(description="Of its last one.")]
    known_until: Annotated[
        Instant | None, Meta(description="How far the log was read for this: ask again while it is before ends_at.")
    ]
    at: Annotated[tuple[float, ...], Meta(description="Where each stretch begins; seconds since the epoch.")]
    gpus_in_use: Annotated[tuple[float, ...], Meta(description="Mean.")]
    capacity: Annotated[tuple[float, ...], Meta(description="Mean: GPUs that plans may hand out.")]
    running: Annotated[tuple[float, ...], Meta(description="Mean: jobs with workers.")]
    waiting: Annotated[tuple[float, ...], Meta(description="Mean: live jobs without workers.")]
    decisions: Annotated[tuple[float, ...], Meta(description="Plans adopted.")]
    resizes: Annotated[tuple[float, ...], Meta(description="Jobs that a plan gave another size or place.")]
    failures: Annotated[tuple[float, ...], Meta(description="Jobs and programs that failed, and nodes that left.")]
