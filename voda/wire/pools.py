"""Nodes, pools and their plans, as they travel over HTTP."""

from collections.abc import Mapping
from typing import Annotated

from msgspec import Meta

from voda.domain.reasons.outcomes import Reason
from voda.domain.reasons.requests import Requested
from voda.domain.settings import Settings
from voda.wire.base import Instant, View


class ShareView(View, frozen=True, kw_only=True):
    """What one container has of a GPU."""

    pod: Annotated[str, Meta(description="`namespace/name`; of a job of one machine, its id in place of the name.")]
    pod_uid: str
    container: str
    milli: Annotated[int, Meta(description="Thousandths of the GPU's compute.")]
    memory_mib: Annotated[int, Meta(description="0 = none is accounted for.")]
    assigned_at: Instant


class GpuView(View, frozen=True, kw_only=True):
    """One GPU of a node, and who has shares of it."""

    index: int
    name: Annotated[
        str, Meta(description="Of a device that pods claim, DRIVER/POOL/DEVICE; empty: its index says which it is.")
    ] = ""
    is_present: Annotated[bool, Meta(description="False: the node has it no more, but pods still have shares of it.")]
    memory_mib: Annotated[int, Meta(description="0 = not known.")]
    free_milli: Annotated[int, Meta(description="Of 1,000; workers that use whole GPUs are not subtracted: see `job`.")]
    free_memory_mib: int
    shares: tuple[ShareView, ...]
    job: Annotated[
        str,
        Meta(
            description="Id of the job of which a worker has all of it; empty: none, or it is not known which GPU a"
            " worker has: `used_gpus` counts those too."
        ),
    ] = ""


class NodeView(View, frozen=True, kw_only=True):
    """One node."""

    name: str
    pool: str
    gpus: int
    foreign_gpus: int
    used_gpus: Annotated[int, Meta(description="By workers observed.")]
    free_gpus: int
    is_ready: bool
    is_schedulable: Annotated[bool, Meta(description="False: cordoned; those that run there stay.")]
    is_draining: Annotated[bool, Meta(description="Whether its workers are to go elsewhere.")]
    drain_reason: Annotated[
        Requested | None, Meta(description="Who drains it by voda, and why; None: nobody does.")
    ] = None
    drain_message: Annotated[str, Meta(description="That in words.")] = ""
    silent_since: Annotated[
        Instant | None,
        Meta(description="Since when it does not answer, or says fewer GPUs than its workers hold."),
    ] = None
    workers_stay_until: Annotated[
        Instant | None,
        Meta(description="Until when they stay for all that; null: it is not silent, or most of its pool's nodes are."),
    ] = None
    labels: Annotated[Mapping[str, str], Meta(description="Those that say what machine it is; jobs may ask for any.")]
    taints: Annotated[
        tuple[str, ...], Meta(description="KEY=VALUE:EFFECT: they keep off workers that do not tolerate them.")
    ] = ()
    jobs: Annotated[Mapping[str, int], Meta(description="job id -> GPUs it holds here.")]
    staying: Annotated[
        tuple[str, ...], Meta(description="Those of the jobs that are not restartable: a drain waits for them to end.")
    ] = ()
    devices: Annotated[tuple[GpuView, ...], Meta(description="GPUs that pods may share; empty: it shares none.")] = ()


class NodeList(View, frozen=True, kw_only=True):
    """All nodes that were asked for, by name."""

    items: tuple[NodeView, ...]


class PoolView(View, frozen=True, kw_only=True):
    """One pool at a glance."""

    name: str
    nodes: int
    gpus: Annotated[int, Meta(description="That plans may hand out.")]
    shared_gpus: Annotated[int, Meta(description="Of which somebody has a part; not among `gpus` nor `used_gpus`.")] = 0
    used_gpus: int
    waiting: int
    running: int
    plan: Annotated[int, Meta(description="Number of the plan in force.")]
    settings: Settings
    revision: str


class PoolList(View, frozen=True, kw_only=True):
    """All pools, by name."""

    items: tuple[PoolView, ...]


class PlanView(View, frozen=True, kw_only=True):
    """A plan: who gets which nodes, and why."""

    pool: str
    number: int
    position: Annotated[int, Meta(description="Of the event; 0 before the first plan.")]
    based_on: int
    policy: str
    placer: str
    cause: str
    decided_at: Instant | None
    placement: Annotated[Mapping[str, tuple[str, ...]], Meta(description="job id -> node of each worker, by index.")]
    reasons: Annotated[Mapping[str, Reason], Meta(description="job id -> why.")]
    messages: Annotated[Mapping[str, str], Meta(description="job id -> the reason in words.")]
    changed: Annotated[
        tuple[str, ...],
        Meta(
            description="Jobs that this plan placed otherwise than the one before; only of a plan asked for by number."
        ),
    ] = ()
